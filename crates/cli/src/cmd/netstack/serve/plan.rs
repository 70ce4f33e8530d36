//! What service is wanted: flags, then what the file says where they say nothing.

use super::ServeArgs;
use super::file::{self, File, Limits};
use crate::cmd::netstack::attach::{self, Placed, Wishes};
use crate::cmd::netstack::found::DEFAULT_NAME;
use crate::config;
use crate::output::{self, Failure};
use bypath::link::fault::Faults;
use bypath_netstack::{LinkName, Setup, Way};
use bypath_stack::prefix::Prefix;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::path::PathBuf;

/// All that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub name: String,
    pub link: LinkName,
    pub wishes: Wishes,
    pub routes: Vec<Way>,
    /// Where each of them stands.
    places: Vec<String>,
    pub capture: Option<PathBuf>,
    pub metrics: Option<SocketAddr>,
    /// Microseconds.
    pub busy_poll: u32,
    pub limits: Limits,
    pub faults: Option<Faults>,
}

impl Plan {
    /// Of flags and file.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes, no link is named, or something does not go together.
    pub fn of(args: &ServeArgs) -> Result<Plan, Failure> {
        let file = match &args.config {
            None => File::default(),
            Some(path) => {
                let (file, problems) = file::read(path).map_err(|e| {
                    Failure::new(
                        2,
                        format_args!("cannot read the configuration file {}: {e}", path.display()),
                    )
                })?;
                if !problems.is_empty() {
                    let all = config::report(path, &problems);
                    let text = format!("the configuration file has mistakes:\n{}", all.trim_end());
                    return Err(Failure::new(2, text));
                }
                file
            }
        };
        let Some(link) = args.link.clone().or(file.link) else {
            return Err(Failure::new(
                2,
                "which link? give one: --link tap:bp0 (or packet:eth0; link = in the file)",
            ));
        };
        let plan = Plan {
            name: args.name.clone().or(file.name).unwrap_or_else(|| DEFAULT_NAME.to_owned()),
            link,
            wishes: joined(&args.wishes, file.wishes),
            routes: file.routes.iter().map(|(way, _)| *way).collect(),
            places: file.routes.iter().map(|(_, at)| place(args, *at)).collect(),
            capture: args.capture.clone().or(file.capture),
            metrics: args.metrics.or(file.metrics),
            busy_poll: args.busy_poll.or(file.busy_poll).unwrap_or(0),
            limits: Limits { users: args.users.clone().unwrap_or(file.limits.users), ..file.limits },
            faults: file.faults,
        };
        plan.wishes.check(&plan.link)?;
        Ok(plan)
    }

    /// All ways to other networks, those of the gateways first.
    pub fn ways(&self) -> Vec<Way> {
        let gateways = self.wishes.gateway.iter().copied().map(Way::default_by);
        gateways.chain(self.routes.iter().copied()).collect()
    }

    /// Ways by routers that `[[routes]]` alone name.
    pub fn ways_of_tables(&self) -> Vec<Placed> {
        let gateways = &self.wishes.gateway;
        let all = self.routes.iter().zip(&self.places).map(|(way, place)| (*way, place.clone()));
        all.filter(|(way, _)| way.via.is_none_or(|via| !gateways.contains(&via)))
            .map(|(way, place)| Placed { way, place })
            .collect()
    }

    /// The stack for the library. An IPv4 address on a network where others are is asked for first; on a device the kernel alone
    /// answers, whose addresses are known.
    pub fn setup(&self) -> Setup {
        let setup = self.wishes.setup(self.link.clone());
        let setup = self.routes.iter().copied().fold(setup, Setup::route);
        let setup = self.faults.into_iter().fold(setup, Setup::faults);
        if self.link.is_device() { setup } else { setup.claim() }
    }

    /// Of the stack's addresses the one that the kernel has already, and where: neither would ever hear the other one.
    pub fn taken(&self) -> Option<(Prefix, String)> {
        let kernels = self.wishes.net.iter().map(|(ip, _)| (*ip, self.link.to_string()));
        let all: Vec<(IpAddr, String)> = attach::kernels().into_iter().chain(kernels).collect();
        self.wishes.addresses().into_iter().find_map(|prefix| {
            let (_, name) = all.iter().find(|(ip, _)| *ip == prefix.address())?;
            Some((prefix, name.clone()))
        })
    }

    /// Of the kernel's addresses on the device the one that it has on another interface, and on which: what is sent to the stack
    /// would go there.
    pub fn kernels_elsewhere(&self) -> Option<(String, String)> {
        let (LinkName::Tap(device) | LinkName::Tun(device)) = &self.link else { return None };
        let all = attach::kernels();
        self.wishes.net.iter().find_map(|(wanted, len)| {
            let (_, holder) = all.iter().find(|(ip, holder)| ip == wanted && holder != device)?;
            Some((format!("{wanted}/{len}"), holder.clone()))
        })
    }

    /// What holds after a change: addresses, routes, limits and faults are those of `new`, all else is as it was.
    pub fn changed_to(self, new: Plan) -> Plan {
        let wishes = Wishes { addr: new.wishes.addr, gateway: new.wishes.gateway, ..self.wishes };
        // Where none could be they cannot be switched on.
        let faults = self.faults.and(new.faults).or(self.faults);
        Plan { wishes, routes: new.routes, places: new.places, limits: new.limits, faults, ..self }
    }

    /// What of `new` takes a restart: names of flags.
    pub fn needs_restart(&self, new: &Plan) -> Vec<&'static str> {
        let (a, b) = (&self.wishes, &new.wishes);
        let differs = [
            ("name", self.name != new.name),
            ("link", self.link != new.link),
            ("attach", a.attach != b.attach),
            ("net", a.net != b.net),
            ("dhcp", a.dhcp != b.dhcp),
            ("slaac", a.slaac != b.slaac),
            ("mtu", a.mtu != b.mtu),
            ("capture", self.capture != new.capture),
            ("metrics", self.metrics != new.metrics),
            ("faults", self.faults.is_some() != new.faults.is_some()),
            ("busy-poll", self.busy_poll != new.busy_poll),
        ];
        differs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}

/// Where something stands in the file.
fn place(args: &ServeArgs, (line, column): (u32, u32)) -> String {
    args.config.as_ref().map_or(String::new(), |path| format!("{}:{line}:{column}: ", path.display()))
}

fn joined(flags: &Wishes, file: Wishes) -> Wishes {
    fn first<T: Clone>(flags: &[T], file: Vec<T>) -> Vec<T> {
        if flags.is_empty() { file } else { flags.to_vec() }
    }
    Wishes {
        attach: flags.attach || file.attach,
        net: first(&flags.net, file.net),
        addr: first(&flags.addr, file.addr),
        gateway: first(&flags.gateway, file.gateway),
        dhcp: flags.dhcp || file.dhcp,
        slaac: flags.slaac || file.slaac,
        mtu: flags.mtu.or(file.mtu),
    }
}

/// Tells what goes on as it is until the service is started again.
pub fn tell_restart(names: &[&str]) {
    if !names.is_empty() {
        output::message(format_args!("{}: as before until a restart", names.join(", ")));
    }
}
