//! What people want to know of a service: rows of JSON, made one by one as they are asked for. `rows.rs` says what each means.

use super::Settings;
use super::limits::Usage;
use super::socket::{Hub, Phase, outward};
use crate::Engine;
use bypath_link::Medium;
use bypath_shm::service::VERSION;
use bypath_stack::iface::{AddressState, IfaceId};
use bypath_stack::tcp::Held;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Service,
    Sockets,
    Stats,
    Addresses,
    Routes,
    Neighbors,
    Links,
}

/// How far a query has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    what: What,
    /// The next row, or the next place that may have one.
    at: usize,
}

impl Progress {
    /// What a question asks for; `None`: nothing that there is.
    pub fn of(question: &[u8]) -> Option<Progress> {
        let question: Value = serde_json::from_slice(question).ok()?;
        let what = match question.get("what")?.as_str()? {
            "service" => What::Service,
            "sockets" => What::Sockets,
            "stats" => What::Stats,
            "addresses" => What::Addresses,
            "routes" => What::Routes,
            "neighbors" => What::Neighbors,
            "links" => What::Links,
            _ => return None,
        };
        Some(Progress { what, at: 0 })
    }

    /// A row was told.
    pub const fn next(&mut self) {
        self.at += 1;
    }
}

/// The next row; empty: there are no more.
pub fn row(
    progress: &mut Progress,
    hub: &Hub,
    engine: &mut Engine,
    settings: &Settings,
    controls: usize,
) -> String {
    let at = progress.at;
    let value = match progress.what {
        What::Service => (at == 0).then(|| service(hub, engine, settings, controls)),
        What::Sockets => socket(progress, hub, engine),
        What::Stats => stat(at, hub, engine),
        What::Addresses => address(at, engine),
        What::Routes => route(at, engine),
        What::Neighbors => neighbor(at, engine),
        What::Links => link(at, engine),
    };
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn service(hub: &Hub, engine: &mut Engine, settings: &Settings, controls: usize) -> Value {
    let stack = engine.stack();
    let mut users: Vec<u32> = hub.users.iter().map(|(uid, _)| uid).collect();
    users.extend(hub.users.others());
    // Of some only what they have closed is left.
    let left = stack.users().filter(|(_, held)| *held != Held::default()).map(|(uid, _)| uid);
    users.extend(left.filter(|uid| hub.users.of(*uid) == Usage::default() && hub.users.has(*uid) == (0, 0)));
    let of_user = |uid: &u32| {
        let (usage, held) = (hub.users.of(*uid), stack.held_by(*uid));
        let (descriptors, rings) = hub.users.has(*uid);
        json!({
            "uid": uid,
            "sockets": usage.sockets,
            "octets": usage.octets + held.orphan_octets,
            "rings": rings,
            "descriptors": descriptors,
            "callers": held.callers,
            "caller_octets": held.caller_octets,
            "orphans": held.orphans,
        })
    };
    let users: Vec<Value> = users.iter().take(32).map(of_user).collect();
    json!({
        "name": hub.name,
        "pid": bypath_sys::process::pid(),
        "namespace": namespace(),
        "version": VERSION,
        "path": settings.folder.join(&settings.name),
        "sockets": hub.sockets.len(),
        "processes": controls,
        "sockets_per_user": settings.sockets_per_user,
        "octets_per_user": settings.octets_per_user,
        "users": users,
    })
}

/// The network namespace of this process.
fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/net").ok().map(|m| m.ino())
}

fn socket(progress: &mut Progress, hub: &Hub, engine: &mut Engine) -> Option<Value> {
    let (at, socket) = hub.sockets.next(progress.at)?;
    progress.at = at;
    let shown = |address: Option<SocketAddr>| address.map(|a| outward(socket.v6, a).to_string());
    if let Phase::Datagrams(of) = &socket.phase {
        let (local, remote) = socket.ends(engine.stack());
        let (unread, unsent) = engine.stack().udp(socket.id)?.queued();
        let state = if remote.is_some() { "Connected" } else { "Open" };
        let (out, incoming) = of.mail.as_ref().map_or((false, false), |mail| mail.are_used());
        return Some(json!({
            "from_program": road(out),
            "to_program": road(incoming),
            "cookie": format!("{:016x}", socket.cookie),
            "uid": socket.uid,
            "protocol": if of.ping.is_some() { "ping" } else { "udp" },
            "domain": if socket.v6 { "ipv6" } else { "ipv4" },
            "state": state,
            "local": shown(local),
            "remote": shown(remote),
            "unread": unread,
            "unsent": unsent,
            "dropped": of.dropped + engine.stack().udp(socket.id)?.dropped(),
        }));
    }
    let mut tcp = engine.stack().tcp(socket.id)?;
    let state = match (&socket.phase, tcp.state()) {
        (Phase::Listening(_), _) => "Listen".to_owned(),
        (_, Some(state)) => format!("{state:?}"),
        (_, None) => "Closed".to_owned(),
    };
    let near = socket.rings.as_ref().and_then(|rings| Some((rings, hub.neighbours.get(rings.with)?)));
    let (out, incoming) = near.map_or((false, false), |(rings, near)| rings.are_used(near));
    let mut value = json!({
        "cookie": format!("{:016x}", socket.cookie),
        "uid": socket.uid,
        "protocol": "tcp",
        "domain": if socket.v6 { "ipv6" } else { "ipv4" },
        "state": state,
        "from_program": road(out),
        "to_program": road(incoming),
        "local": shown(tcp.local()),
        "remote": shown(tcp.remote()),
    });
    if let (Some(s), Some(map)) = (tcp.statistics(), value.as_object_mut()) {
        map.insert("unread".into(), s.unread.into());
        // Of what was written; the stack counts both together.
        map.insert("unacknowledged".into(), s.unacknowledged.saturating_sub(s.unsent).into());
        map.insert("unsent".into(), s.unsent.into());
        map.insert("srtt_us".into(), s.srtt.map(|srtt| srtt.as_micros() as u64).into());
        map.insert("cwnd".into(), s.cwnd.into());
        map.insert("mss".into(), s.mss.into());
        map.insert("octets_received".into(), s.octets_received.into());
        map.insert("octets_acknowledged".into(), s.octets_acknowledged.into());
        map.insert("octets_again".into(), s.octets_again.into());
    }
    Some(value)
}

/// How octets go.
const fn road(ring: bool) -> &'static str {
    if ring { "ring" } else { "pair" }
}

fn stat(at: usize, hub: &Hub, engine: &mut Engine) -> Option<Value> {
    let usage = engine.stack().usage();
    let held = [
        ("connections", usage.connections),
        ("half_open", usage.half_open),
        ("orphans", usage.orphans),
        ("time_wait", usage.time_wait),
        ("connection_octets", usage.connection_octets),
    ];
    let held = held.into_iter().map(|(name, value)| (name, value as u64, "now"));
    let counted = engine.stack().counters().iter().map(|(name, value)| (name, value, "total"));
    let asked = hub.counts.iter().map(|(name, value)| (name, value, "total"));
    let (name, value, kind) = held.chain(asked).chain(counted).nth(at)?;
    Some(json!({ "name": name, "value": value, "kind": kind }))
}

/// All interfaces, by their names: the loopback interface, and links.
pub fn interfaces(engine: &Engine) -> Vec<(IfaceId, String)> {
    let links = engine.links().map(|(iface, name)| (iface, name.to_owned()));
    std::iter::once((IfaceId::LOOPBACK, "lo".to_owned())).chain(links).collect()
}

/// The name of one of them.
pub fn name_of(engine: &Engine, iface: IfaceId) -> String {
    let found = interfaces(engine).into_iter().find(|(id, _)| *id == iface);
    found.map_or_else(|| format!("if{}", iface.scope()), |(_, name)| name)
}

fn address(at: usize, engine: &mut Engine) -> Option<Value> {
    let interfaces = interfaces(engine);
    let stack = engine.stack();
    let mut all =
        interfaces.iter().flat_map(|(iface, name)| stack.addresses(*iface).iter().map(move |a| (name, a)));
    let (name, address) = all.nth(at)?;
    let state = match address.state {
        AddressState::Tentative { .. } => "tentative",
        AddressState::Preferred => "preferred",
        AddressState::Deprecated => "deprecated",
        AddressState::Duplicate => "duplicate",
    };
    let holder = address.holder.map(|mac| mac.to_string());
    Some(
        json!({ "interface": name, "address": address.prefix.to_string(), "state": state, "holder": holder }),
    )
}

fn route(at: usize, engine: &mut Engine) -> Option<Value> {
    let route = *engine.stack().routes().nth(at)?;
    Some(json!({
        "destination": route.prefix.to_string(),
        "via": route.via.map(|via| via.to_string()),
        "interface": name_of(engine, route.iface),
        "metric": route.metric,
        "source": route.source.map(|source| source.to_string()),
    }))
}

fn neighbor(at: usize, engine: &mut Engine) -> Option<Value> {
    let interfaces = interfaces(engine);
    let stack = engine.stack();
    let mut all =
        interfaces.iter().flat_map(|(iface, name)| stack.all_neighbors(*iface).map(move |n| (name, n)));
    let (name, (address, state, mac)) = all.nth(at)?;
    let known = state != bypath_stack::neighbor::State::Incomplete;
    Some(json!({
        "interface": name,
        "address": address.to_string(),
        "mac": known.then(|| mac.to_string()),
        "state": format!("{state:?}").to_lowercase(),
    }))
}

fn link(at: usize, engine: &mut Engine) -> Option<Value> {
    let (iface, name) = engine.links().nth(at).map(|(iface, name)| (iface, name.to_owned()))?;
    let mac = engine
        .capabilities(iface)
        .filter(|can| can.medium == Medium::Ethernet)
        .map(|can| can.mac.to_string());
    let (mtu, gone, s) = (engine.mtu(iface), engine.is_gone(iface), engine.statistics(iface)?);
    Some(json!({
        "interface": name,
        "index": iface.scope(),
        "mac": mac,
        "mtu": mtu,
        "gone": gone,
        "received": s.received,
        "received_octets": s.received_octets,
        "dropped": s.dropped,
        "cut": s.cut,
        "sent": s.sent,
        "sent_octets": s.sent_octets,
        "refused": s.refused,
    }))
}
