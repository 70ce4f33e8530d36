//! Listening sockets of netstack services: the services tell which there are, and the kernel which process holds the other end of each.

use crate::cmd::netstack::queries::{self, Object};
use crate::connections::descriptors::{self, Seen};
use crate::connections::is_trusted;
use bypath_sockets::service::place;
use bypath_sys::{clock, netlink};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for each service.
const PATIENCE: Duration = Duration::from_secs(1);

/// A listening socket, once for each process that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listening {
    /// `None`: it is in another network namespace, or of another user; or the service is, who could name a socket of any process.
    pub pid: Option<u32>,
    pub command: Option<String>,
    pub fd: Option<i32>,
    pub local: Option<SocketAddr>,
    pub service: String,
    /// Its name there.
    pub cookie: String,
}

/// All of them, by address.
pub fn all() -> Vec<Listening> {
    find().0
}

/// All of them, by address, and what was left out of who holds them.
pub fn find() -> (Vec<Listening>, Vec<String>) {
    let (mut found, mut services, mut all) = (Vec::<Listening>::new(), Vec::new(), Vec::new());
    for (service, path) in place::all() {
        let (rows, whose) = queries::ask_whom(&path, "sockets", PATIENCE).unwrap_or_default();
        let of_service: Vec<_> = rows.iter().filter_map(|row| of_row(&service, row)).collect();
        // Another user's could name the socket of any process.
        if !is_trusted(whose) {
            all.extend(of_service);
            continue;
        }
        if !of_service.is_empty() {
            let (about, whose) = queries::ask_whom(&path, "service", PATIENCE).unwrap_or_default();
            let pid = |row: &Object| u32::try_from(row.get("pid")?.as_u64()?).ok();
            services.extend(about.iter().filter(|_| is_trusted(whose)).filter_map(pid));
        }
        found.extend(of_service);
    }
    let (mut holders, mut notes) = (Holders::new(), Vec::new());
    if !found.is_empty() {
        let (inodes, more) = inodes(&found);
        (holders, notes) = self::holders(inodes);
        notes.extend(more);
    }
    // What stands in place of an earlier service's socket the service keeps open itself, for those who may come.
    holders.values_mut().for_each(|its| its.retain(|(pid, _)| !services.contains(pid)));
    let mut commands: HashMap<u32, Option<String>> = HashMap::new();
    let command = |pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        name.map(|name| name.trim_end().to_owned())
    };
    for socket in found {
        let its = holders.get(&socket.cookie).map_or(&[][..], Vec::as_slice);
        if its.is_empty() {
            all.push(socket);
            continue;
        }
        all.extend(its.iter().map(|(pid, fd)| {
            let command = commands.entry(*pid).or_insert_with(|| command(*pid)).clone();
            Listening { pid: Some(*pid), command, fd: Some(*fd), ..socket.clone() }
        }));
    }
    all.sort_by_key(|socket| (socket.local, socket.pid, socket.fd));
    (all, notes)
}

fn of_row(service: &str, row: &Object) -> Option<Listening> {
    let text = |key: &str| row.get(key)?.as_str();
    let cookie = text("cookie").filter(|_| text("state") == Some("Listen"))?;
    // A number only: what is printed is not the service's text.
    let cookie = format!("{:016x}", u64::from_str_radix(cookie, 16).ok()?);
    let local = text("local").and_then(|local| local.parse().ok());
    Some(Listening { pid: None, command: None, fd: None, local, service: service.to_owned(), cookie })
}

/// How long sockets of AF_UNIX are looked through (ns): anybody may have some. In that time the kernel tells of more than a million.
const LONGEST: u64 = 1_000_000_000;

/// Cookies of these sockets by the inodes that they have here, and what was left out.
fn inodes(wanted: &[Listening]) -> (HashMap<u32, String>, Option<String>) {
    let number = |socket: &Listening| u64::from_str_radix(&socket.cookie, 16).ok();
    let wanted: HashMap<u64, &String> =
        wanted.iter().filter_map(|socket| Some((number(socket)?, &socket.cookie))).collect();
    let mut found = HashMap::new();
    let until = clock::monotonic_ns() + LONGEST;
    let whole = netlink::unix_sockets(&mut |inode, cookie| {
        found.extend(wanted.get(&cookie).map(|name| (inode, (*name).clone())));
        clock::monotonic_ns() < until
    });
    let more = (whole == Ok(false)).then(|| {
        "there are too many sockets of AF_UNIX: not of all listeners is told which process has them"
            .to_owned()
    });
    (found, more)
}

/// Processes and their descriptors, by cookie.
type Holders = HashMap<String, Vec<(u32, i32)>>;

/// Those of these inodes, and what was left out.
fn holders(inodes: HashMap<u32, String>) -> (Holders, Vec<String>) {
    let mut all = Holders::new();
    let inodes = Arc::new(inodes);
    // A process has as many as it likes, but one so often on purpose only.
    let mut seen = HashSet::new();
    let look = move |_, _, text: &[u8]| {
        let inode = str::from_utf8(text)
            .ok()
            .and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        let Some((inode, cookie)) = inode.and_then(|inode: u32| inodes.get_key_value(&inode)) else {
            return Seen::Nothing;
        };
        if seen.insert(*inode) { Seen::Cheap(cookie.clone()) } else { Seen::Dear(cookie.clone()) }
    };
    let unseen = descriptors::all(look, |process, fd, cookie: String| {
        all.entry(cookie).or_default().push((process.pid, fd));
        true
    });
    (all, unseen.map(|unseen| unseen.notes.all()).unwrap_or_default())
}
