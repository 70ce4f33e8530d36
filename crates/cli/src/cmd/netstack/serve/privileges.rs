//! Rights that opening a link took, and moving its frames does not: they are given up, and so are ways to get others.

use crate::output::Failure;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Gives up every capability of this thread, which must be the only one: others would keep theirs. Names of those that it had.
///
/// # Errors
/// The kernel refuses.
pub fn drop_all() -> Result<Vec<String>, Failure> {
    let failed = |e: rustix::io::Errno| {
        Failure::new(1, format_args!("cannot give up the capabilities that are not needed any more: {e}"))
    };
    let had = capabilities(None).map_err(failed)?.permitted;
    if had.contains(CapabilitySet::SETPCAP) {
        for one in had.iter() {
            remove_capability_from_bounding_set(one).map_err(failed)?;
        }
    }
    clear_ambient_capability_set().map_err(failed)?;
    set_no_new_privs(true).map_err(failed)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(failed)?;
    Ok(had.iter_names().map(|(name, _)| format!("CAP_{name}")).collect())
}
