//! What a service says when it has begun.

use super::file::Users;
use super::plan::Plan;
use bypath::link::{Capabilities, Medium};
use serde::Serialize;
use std::path::Path;

/// Everybody.
const ALL: &str = "all";

/// The report, as it is printed as JSON.
#[derive(Serialize)]
pub struct Report {
    pub name: String,
    pub pid: u32,
    /// What programs ask.
    pub socket: String,
    pub link: Option<Link>,
    pub addresses: Vec<String>,
    pub routes: Vec<String>,
    /// Where Prometheus finds counters.
    pub metrics: Option<String>,
    /// File of all frames.
    pub capture: Option<String>,
    pub privileges: Privileges,
    /// Names of those who may use it, or `all`.
    pub users: Vec<String>,
    /// What to type next.
    pub next: String,
}

/// The link, and what it granted.
#[derive(Serialize)]
pub struct Link {
    pub kind: &'static str,
    pub interface: String,
    pub medium: &'static str,
    /// Hardware address of the stack; none on a TUN device.
    pub mac: Option<String>,
    pub mtu: usize,
    /// Checksums are left to the link.
    pub checksum: bool,
    /// Segmentation is left to it, too.
    pub segmentation: bool,
    /// Octets of the longest frame.
    pub longest: usize,
    /// Frames that one call moves at best.
    pub batch: usize,
}

/// Capabilities of the process.
#[derive(Serialize)]
pub struct Privileges {
    pub dropped: Vec<String>,
    pub kept: Vec<String>,
}

impl Link {
    /// Of a link's kind and name, and what it can do.
    pub fn new(plan: &Plan, interface: &str, can: &Capabilities) -> Link {
        use bypath_netstack::LinkName;
        let ethernet = can.medium == Medium::Ethernet;
        Link {
            kind: match plan.link {
                LinkName::Tap(_) => "tap",
                LinkName::Tun(_) => "tun",
                LinkName::Packet(_) => "packet",
                LinkName::Xdp(_) => "xdp",
                _ => "other",
            },
            interface: interface.to_owned(),
            medium: if ethernet { "ethernet" } else { "ip" },
            mac: ethernet.then(|| can.mac.to_string()),
            mtu: can.mtu,
            checksum: can.checksum,
            segmentation: can.segmentation,
            longest: can.longest,
            batch: can.batch,
        }
    }

    fn text(&self) -> String {
        let offloads = match (self.checksum, self.segmentation) {
            (true, true) => "checksums and segmentation by the link",
            (true, false) => "checksums by the link",
            _ => "no offloads",
        };
        let Link { kind, interface, mtu, batch, .. } = self;
        let mac = self.mac.as_deref().unwrap_or("no hardware addresses");
        let frames = if *batch == 1 { "one frame".to_owned() } else { format!("up to {batch} frames") };
        format!("{kind}:{interface}, {mac}, MTU {mtu}, {offloads}, {frames} with one call")
    }
}

/// How programs are run on a service of this name.
pub fn how_to_run(name: &str, url: &str) -> String {
    let flag = if name == super::DEFAULT_NAME { String::new() } else { format!("={name}") };
    format!("bypath run --netstack{flag} -- curl {url}")
}

/// A route for people.
pub fn way(way: &bypath_netstack::Way) -> String {
    let shown = super::reload::shown(way);
    if way.via.is_none() { format!("{shown} on the link") } else { shown }
}

/// Names of those whom the service is for: root, its own user, and those whom its settings name; `all` alone is everybody.
pub fn users(wanted: &Users) -> Vec<String> {
    let Users::Some(wanted) = wanted else { return vec![ALL.to_owned()] };
    let mut all: Vec<u32> =
        [0, nix::unistd::geteuid().as_raw()].into_iter().chain(wanted.iter().copied()).collect();
    let mut known = std::collections::HashSet::new();
    all.retain(|uid| known.insert(*uid));
    let name = |uid: u32| match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    };
    all.into_iter().map(name).collect()
}

/// The same for people. Whom a user namespace does not know are one user there, and refused.
fn users_text(users: &[String], knows_all: bool) -> String {
    match users {
        [all] if all == ALL && !knows_all => {
            "all whom this user namespace knows (/proc/self/uid_map); others are refused".to_owned()
        }
        [one] if one != ALL => format!("{one} alone (others: --users=NAME,... or --users=all)"),
        users => users.join(", "),
    }
}

/// A socket's path for people.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let list = |all: &[String]| if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        let dropped = match &self.privileges.dropped[..] {
            [] => "no capabilities".to_owned(),
            few if few.len() <= 4 => format!("{} given up; none kept", few.join(", ")),
            many => format!("{} capabilities given up; none kept", many.len()),
        };
        let mut text = format!(
            "service     {} (pid {}), {}\n\
             link        {}\n\
             addresses   {}\n\
             routes      {}\n\
             rights      {dropped}\n\
             users       {}\n",
            self.name,
            self.pid,
            self.socket,
            self.link.as_ref().map_or("none".to_owned(), Link::text),
            list(&self.addresses),
            list(&self.routes),
            users_text(&self.users, bypath_sys::process::knows_all_users()),
        );
        if let Some(metrics) = &self.metrics {
            text += &format!("metrics     {metrics}\n");
        }
        if let Some(capture) = &self.capture {
            text += &format!("capture     {capture}\n");
        }
        text + &format!("next        {}\n", self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_users_are_those_whom_the_user_namespace_knows() {
        let text = |users: &[&str], knows_all| {
            users_text(&users.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), knows_all)
        };
        assert_eq!(text(&["all"], true), "all");
        assert!(text(&["all"], false).ends_with("others are refused"));
        assert!(text(&["root"], false).starts_with("root alone"));
        assert_eq!(text(&["root", "www-data"], true), "root, www-data");
    }
}
