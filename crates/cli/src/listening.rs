//! Listening sockets of netstack services: the services tell which there are, and the kernel which process holds the other end of each.

use crate::cmd::netstack::found::is_slow;
use crate::cmd::netstack::look::Look;
use crate::cmd::netstack::queries;
use crate::cmd::netstack::rows::{Object, Room};
use crate::connections::descriptors::{self, Seen};
use crate::connections::{Notes, is_trusted};
use bypath_netstack::service::{Patience, QueryError};
use bypath_sockets::service::place::Named;
use bypath_sys::{clock, netlink};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for each row of a service, and for a whole list.
const ROW: Duration = Duration::from_secs(1);
const PATIENCE: Patience = Patience { row: ROW, whole: queries::LONGEST };

/// Listeners of one service of another user's, and of all services.
const OF_OTHER: usize = 16384;
const OF_ALL: usize = 131_072;

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

/// Those of services that can say which processes have them, by address.
pub fn of_trusted() -> Vec<Listening> {
    let (look, services) = Look::new();
    let its = services.into_iter().filter(|service| is_trusted(service.owner)).collect();
    find_of(look.of_trusted(), its).0
}

/// All of them, by address, and what was left out of them, and of who holds them.
pub fn find() -> (Vec<Listening>, Vec<String>) {
    let (look, services) = Look::new();
    find_of(look, services)
}

fn find_of(mut look: Look, asked: Vec<Named>) -> (Vec<Listening>, Vec<String>) {
    let (mut found, mut services, mut all) = (Vec::<Listening>::new(), Vec::new(), Vec::new());
    let mut left_out = Notes::default();
    for service in asked {
        let of_one = if is_trusted(service.owner) { OF_ALL } else { OF_OTHER };
        let most = of_one.min(OF_ALL - found.len() - all.len());
        let Told { its, has_more, answered } = of_service(&mut look, &service, most);
        let is_slow = matches!(&answered, Some(Err(e)) if is_slow(e));
        if has_more || is_slow {
            left_out.add(not_whole(&service.name));
        }
        let whose = match answered {
            Some(Ok(whose)) => whose,
            // Who has these is not looked for.
            _ if is_slow => {
                all.extend(its);
                continue;
            }
            _ => continue,
        };
        // Another user's could name the socket of any process.
        if !is_trusted(whose) {
            all.extend(its);
            continue;
        }
        if !its.is_empty() {
            let about = look.rows(&service, "service", ROW).and_then(Result::ok).unwrap_or_default();
            let pid = |row: &Object| u32::try_from(row.get("pid")?.as_u64()?).ok();
            services.extend(about.iter().filter_map(pid));
        }
        found.extend(its);
    }
    let (mut holders, mut notes) = (Holders::new(), look.notes());
    notes.extend(left_out.all());
    if !found.is_empty() {
        let (inodes, more) = inodes(&found);
        let (its, more_left_out) = self::holders(inodes);
        holders = its;
        notes.extend(more_left_out.into_iter().chain(more));
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

fn not_whole(service: &str) -> String {
    format!(
        "not all listeners of the netstack service {service} are shown: it has not told of them in time, or tells of too many; \
         to ask it alone: bypath netstack sockets --name {service}"
    )
}

/// What a service tells of.
#[derive(Default)]
struct Told {
    /// So many at most as were asked for.
    its: Vec<Listening>,
    has_more: bool,
    /// Whose it is.
    answered: Option<Result<u32, QueryError>>,
}

fn of_service(look: &mut Look, service: &Named, most: usize) -> Told {
    let mut told = Told::default();
    told.answered = look.ask(service, "sockets", PATIENCE, |text| {
        // Only what is needed of a row is kept.
        let row = Room::few().read(text).ok();
        if let Some(listening) = row.and_then(|row| of_row(&service.name, &row)) {
            told.has_more = told.its.len() == most;
            if !told.has_more {
                told.its.push(listening);
            }
        }
        !told.has_more
    });
    told
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
