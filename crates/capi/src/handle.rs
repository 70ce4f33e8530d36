//! What stands behind the pointers that callers hold: one thread at a time is inside.

use crate::boundary::{Outcome, read};
use crate::status::Failure;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

/// A value that one thread after the other uses.
pub struct Handle<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

/// Nobody is inside a call.
const IDLE: u8 = 0;
/// Somebody is.
const BUSY: u8 = 1;
/// A call ended by a panic: what it left is not looked at again.
const BROKEN: u8 = 2;

/// Gives the value back; as broken if it is dropped by a panic.
struct Turn<'a>(&'a AtomicU8);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let left = if std::thread::panicking() { BROKEN } else { IDLE };
        // Release: pairs with the Acquire of the next turn.
        self.0.store(left, Ordering::Release);
    }
}

fn take(state: &AtomicU8) -> Outcome {
    // Acquire: pairs with the Release at the end of the turn before.
    match state.compare_exchange(IDLE, BUSY, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(BROKEN) => {
            Err(Failure::internal("a call with this handle failed by a mistake in bypath: close it"))
        }
        Err(_) => Err(Failure::busy()),
    }
}

impl<T> Handle<T> {
    /// Of a value that nobody uses yet.
    pub const fn new(value: T) -> Handle<T> {
        Handle { state: AtomicU8::new(IDLE), value: UnsafeCell::new(value) }
    }
}

/// What callers have a pointer to.
pub trait Held: From<Handle<Self::Value>> + Into<Handle<Self::Value>> {
    /// What is used: by one thread after another.
    type Value: Send;

    fn handle(&self) -> &Handle<Self::Value>;
}

/// The pointer for the caller.
pub fn begin<H: Held>(value: H::Value) -> *mut H {
    Box::into_raw(Box::new(H::from(Handle::new(value))))
}

/// Runs `f` with the value behind a pointer, alone.
pub fn with<H: Held, R>(
    pointer: *mut H,
    name: &str,
    f: impl FnOnce(&mut H::Value) -> Outcome<R>,
) -> Outcome<R> {
    let handle = read(pointer.cast_const(), name)?.handle();
    take(&handle.state)?;
    let turn = Turn(&handle.state);
    // SAFETY: `take` let nobody else in until `turn` is dropped.
    let outcome = f(unsafe { &mut *handle.value.get() });
    drop(turn);
    outcome
}

/// Ends what is behind a pointer, and gives the value back; `None` for NULL, and where a panic left it unfit for use.
pub fn end<H: Held>(pointer: *mut H, name: &str) -> Outcome<Option<H::Value>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // Whatever it was, but not in use: BUSY for ever, for whoever still comes before the memory is given back.
    let before = read(pointer.cast_const(), name)?.handle().state.swap(BUSY, Ordering::Acquire);
    if before == BUSY {
        return Err(Failure::busy());
    }
    // SAFETY: made by `Box::into_raw` in `begin`, and this is the one call that ends it.
    let held = unsafe { Box::from_raw(pointer) };
    let handle: Handle<H::Value> = (*held).into();
    Ok((before == IDLE).then(|| handle.value.into_inner()))
}

/// Says that `$held`, a structure of nothing else, is what callers of `$value` have a pointer to.
macro_rules! held {
    ($held:ident, $value:ty) => {
        impl From<$crate::handle::Handle<$value>> for $held {
            fn from(handle: $crate::handle::Handle<$value>) -> $held {
                $held { handle }
            }
        }

        impl From<$held> for $crate::handle::Handle<$value> {
            fn from(held: $held) -> $crate::handle::Handle<$value> {
                held.handle
            }
        }

        impl $crate::handle::Held for $held {
            type Value = $value;

            fn handle(&self) -> &$crate::handle::Handle<$value> {
                &self.handle
            }
        }
    };
}
pub(crate) use held;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::guarded;
    use crate::status::{BYPATH_E_BUSY, BYPATH_E_INTERNAL, BYPATH_E_INVALID};

    struct Number {
        handle: Handle<u8>,
    }
    held!(Number, u8);

    fn status<T>(outcome: Outcome<T>) -> i32 {
        outcome.err().expect("a failure").status
    }

    #[test]
    fn one_call_at_a_time() {
        let number: *mut Number = begin(5);
        let within = with(number, "x", |n| {
            assert_eq!(status(with(number, "x", |_| Ok(()))), BYPATH_E_BUSY);
            assert_eq!(status(end(number, "x")), BYPATH_E_BUSY);
            *n += 1;
            Ok(*n)
        });
        assert_eq!(within.ok(), Some(6));
        assert_eq!(end(number, "x").ok(), Some(Some(6)));
        assert_eq!(end::<Number>(std::ptr::null_mut(), "x").ok(), Some(None));
        assert_eq!(status(with::<Number, ()>(std::ptr::null_mut(), "x", |_| Ok(()))), BYPATH_E_INVALID);
    }

    #[test]
    fn a_panic_leaves_what_can_only_be_ended() {
        let number: *mut Number = begin(5);
        let broken =
            guarded(std::ptr::null_mut(), || with(number, "x", |_| -> Outcome { panic!("for the test") }));
        assert_eq!(broken, BYPATH_E_INTERNAL);
        assert_eq!(status(with(number, "x", |_| Ok(()))), BYPATH_E_INTERNAL);
        assert_eq!(end(number, "x").ok(), Some(None));
    }
}
