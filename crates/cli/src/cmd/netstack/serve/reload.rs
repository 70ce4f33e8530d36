//! SIGHUP: the file is read again, and what can change while connections stay is changed: addresses, routes, limits.

use super::plan::{Plan, tell_restart};
use crate::output;
use bypath::link::fault::Switch;
use bypath_netstack::{Engine, Way};
use bypath_stack::iface::IfaceId;

/// Makes the stack's addresses and routes those of the new plan, as far as they came from the old one; those of DHCP and of
/// routers stay.
pub fn apply(engine: &mut Engine, at: (IfaceId, Option<&Switch>), old: &Plan, new: &Plan) {
    let (iface, switch) = at;
    tell_restart(&old.needs_restart(new));
    let (before, after) = (old.wishes.addresses(), new.wishes.addresses());
    let (ways_before, ways_after) = (old.ways(), new.ways());
    let stack = engine.stack();
    let mut changes = Vec::new();
    for prefix in before.iter().filter(|p| !after.contains(p)) {
        stack.remove_address(iface, prefix.address());
        changes.push(format!("{prefix} removed"));
    }
    for prefix in after.iter().filter(|p| !before.contains(p)) {
        let now = Engine::now();
        let added = match new.link.is_device() {
            true => stack.add_address(now, iface, *prefix),
            false => stack.claim_address(now, iface, *prefix),
        };
        match added {
            Ok(()) => changes.push(format!("{prefix} added")),
            Err(e) => output::message(format_args!("--addr {prefix}: {e}")),
        }
    }
    for way in ways_before.iter().filter(|w| !ways_after.contains(w)) {
        let gone = way.route(iface);
        stack.remove_routes(|route| *route == gone);
        changes.push(format!("route to {} removed", shown(way)));
    }
    for way in ways_after.iter().filter(|w| !ways_before.contains(w)) {
        match stack.add_route(way.route(iface)) {
            Ok(()) => changes.push(format!("route to {} added", shown(way))),
            Err(e) => output::message(format_args!("route to {}: {e}", shown(way))),
        }
    }
    if old.limits != new.limits {
        changes.push("limits changed".to_owned());
    }
    if let (Some(switch), Some(faults)) = (switch, new.faults)
        && old.faults != Some(faults)
    {
        match switch.set(faults, faults) {
            Ok(()) => changes.push("faults changed".to_owned()),
            Err(e) => output::message(format_args!("[faults]: {e}")),
        }
    }
    let text = if changes.is_empty() { "nothing has changed".to_owned() } else { changes.join("; ") };
    output::message(format_args!("configuration read again: {text}"));
}

/// A way for people.
pub fn shown(way: &Way) -> String {
    let to = if way.to.is_empty() { "default".to_owned() } else { way.to.to_string() };
    way.via.map_or_else(|| to.clone(), |via| format!("{to} via {via}"))
}
