//! Other services on an interface of ours: they would have its frames as well, and neither would hear the other one.

use super::look::Look;
use super::rows::Object;
use super::{found, queries};
use crate::output::{self, Failure};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Longest wait for each answer of another service.
const PATIENCE: Duration = Duration::from_secs(1);

/// An interface of this machine: its network namespace, and its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct On {
    /// The inode of /proc/PID/ns/net.
    pub namespace: Option<u64>,
    pub interface: String,
}

impl On {
    /// One of this process's namespace.
    pub fn here(interface: &str) -> On {
        let namespace = std::fs::metadata("/proc/self/ns/net").ok().map(|m| m.ino());
        On { namespace, interface: interface.to_owned() }
    }

    /// The interface on which the service at `path` puts an address: the one that was named, or its first.
    ///
    /// # Errors
    /// It does not answer.
    pub fn of_service(path: &std::path::Path, named: Option<&str>) -> Result<Option<(On, bool)>, Failure> {
        let service = queries::ask(path, "service")?;
        let namespace = service.first().and_then(|row| row.get("namespace")?.as_u64());
        let links = queries::ask(path, "links")?;
        let name = |row: &Object| row.get("interface").and_then(|v| v.as_str()).map(str::to_owned);
        let found = links.iter().find(|row| named.is_none() || name(row).as_deref() == named);
        Ok(found.and_then(|row| {
            let ethernet = row.get("mac").is_some_and(|mac| !mac.is_null());
            Some((On { namespace, interface: name(row)? }, ethernet))
        }))
    }

    /// Whether another service than `but` has one of these addresses on this interface: what to say then. Those of one link are passed over,
    /// as each is made for itself.
    pub fn taken(&self, addresses: &[IpAddr], but: &str) -> Option<String> {
        let wanted: Vec<IpAddr> = addresses.iter().copied().filter(|ip| !is_of_link(*ip)).collect();
        let (mut look, others) = Look::new();
        let mut others = others.into_iter().filter(|other| other.name != but);
        others.find_map(|other| {
            let name = &other.name;
            let rows = match look.rows(&other, "service", PATIENCE) {
                Some(Err(e)) if !found::is_slow(&e) => return None,
                rows => rows.and_then(Result::ok),
            };
            let Some(rows) = rows else {
                output::message(format_args!(
                    "note: the netstack service {name} does not answer; whether it has the same addresses is not known"
                ));
                return None;
            };
            let service = rows.into_iter().next()?;
            if service.get("namespace").and_then(|v| v.as_u64()) != self.namespace {
                return None;
            }
            let rows = look.rows(&other, "addresses", PATIENCE)?.ok()?;
            let text = |row: &Object, key: &str| Some(row.get(key)?.as_str()?.to_owned());
            let ip = rows.iter().find_map(|row| {
                let on = text(row, "interface")? == self.interface && text(row, "state")? != "duplicate";
                let address = text(row, "address")?;
                let ip: IpAddr = address.split('/').next()?.parse().ok()?;
                (on && wanted.contains(&ip)).then_some(ip)
            })?;
            let pid = service.get("pid").and_then(|v| v.as_u64());
            let kill = pid.map_or(String::new(), |pid| format!(", or end that one: kill {pid}"));
            Some(format!(
                "{ip}: the netstack service {name} has that address on {}; give this one another{kill}",
                self.interface
            ))
        })
    }
}

const fn is_of_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
