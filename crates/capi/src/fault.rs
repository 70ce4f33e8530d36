//! Panics on demand, for the tests: only with the feature `faults`, and in no header.

use crate::boundary::guarded;
use crate::socket::{bypath_l2_socket, with};
use crate::status::{bypath_error, bypath_status};

/// What throws again when it is dropped.
struct Twice;

impl Drop for Twice {
    fn drop(&mut self) {
        panic!("thrown twice");
    }
}

/// Panics inside a call with `socket`; without one, with a payload that panics when it is dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_test_panic(
    socket: *mut bypath_l2_socket,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        if socket.is_null() {
            std::panic::panic_any(Twice);
        }
        with(socket, |s| panic!("asked for, with an MTU of {}", s.mtu()))
    })
}
