//! What stands behind the pointers that callers hold, where several threads may be inside at a time.

use crate::boundary::{Outcome, read};
use crate::status::Failure;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value that many threads use.
pub struct Shared<T> {
    /// How many threads are inside, and the marks.
    state: AtomicUsize,
    value: T,
}

/// A call ended by a panic: what it left is not looked at again.
const BROKEN: usize = 1 << (usize::BITS - 1);
/// It ends: nobody gets in any more.
const ENDS: usize = 1 << (usize::BITS - 2);

/// Leaves again; with the mark if that is by a panic.
struct Turn<'a>(&'a AtomicUsize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fetch_or(BROKEN, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire of `end`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// What callers have a pointer to.
pub trait Held: From<Shared<Self::Value>> + Into<Shared<Self::Value>> {
    /// What is used, by several threads at a time.
    type Value: Send + Sync;

    fn shared(&self) -> &Shared<Self::Value>;
}

/// The pointer for the caller.
pub fn begin<H: Held>(value: H::Value) -> *mut H {
    Box::into_raw(Box::new(H::from(Shared { state: AtomicUsize::new(0), value })))
}

/// Runs `f` with the value behind a pointer.
pub fn with<H: Held, R>(pointer: *mut H, name: &str, f: impl FnOnce(&H::Value) -> Outcome<R>) -> Outcome<R> {
    let shared = read(pointer.cast_const(), name)?.shared();
    // Relaxed: the value is shared by itself, and what `end` does comes after all turns.
    let before = shared.state.fetch_add(1, Ordering::Relaxed);
    let _turn = Turn(&shared.state);
    if before & ENDS != 0 {
        return Err(closing());
    }
    if before & BROKEN != 0 {
        return Err(Failure::internal("a call with this handle failed by a mistake in bypath: close it"));
    }
    f(&shared.value)
}

fn closing() -> Failure {
    Failure { text: "another thread closes it: no call may begin any more".into(), ..Failure::busy() }
}

/// Ends what is behind a pointer, and gives the value back; `None` for NULL, and where a panic left it unfit for use.
pub fn end<H: Held>(pointer: *mut H, name: &str) -> Outcome<Option<H::Value>> {
    if pointer.is_null() {
        return Ok(None);
    }
    let state = &read(pointer.cast_const(), name)?.shared().state;
    let alone = |state: usize| (state & !BROKEN == 0).then_some(state | ENDS);
    // Acquire: pairs with the Release of the last turn.
    let Ok(before) = state.fetch_update(Ordering::Acquire, Ordering::Relaxed, alone) else {
        let text = "another thread is inside a call with it: let that end before it is closed";
        return Err(Failure { text: text.into(), ..Failure::busy() });
    };
    // SAFETY: made by `Box::into_raw` in `begin`, and this is the one call that ends it.
    let held = unsafe { Box::from_raw(pointer) };
    let shared: Shared<H::Value> = (*held).into();
    Ok((before & BROKEN == 0).then_some(shared.value))
}

/// Says that `$held`, a structure of nothing else, is what callers of `$value` have a pointer to.
macro_rules! held {
    ($held:ident, $value:ty) => {
        impl From<$crate::shared::Shared<$value>> for $held {
            fn from(shared: $crate::shared::Shared<$value>) -> $held {
                $held { shared }
            }
        }

        impl From<$held> for $crate::shared::Shared<$value> {
            fn from(held: $held) -> $crate::shared::Shared<$value> {
                held.shared
            }
        }

        impl $crate::shared::Held for $held {
            type Value = $value;

            fn shared(&self) -> &$crate::shared::Shared<$value> {
                &self.shared
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
        shared: Shared<u8>,
    }
    held!(Number, u8);

    fn status<T>(outcome: Outcome<T>) -> i32 {
        outcome.err().expect("a failure").status
    }

    #[test]
    fn many_at_a_time_and_the_end_by_itself() {
        let number: *mut Number = begin(5);
        let within = with(number, "x", |n| {
            assert_eq!(with(number, "x", |n| Ok(*n + 1)).ok(), Some(6));
            assert_eq!(status(end(number, "x")), BYPATH_E_BUSY);
            Ok(*n)
        });
        assert_eq!(within.ok(), Some(5));
        assert_eq!(end(number, "x").ok(), Some(Some(5)));
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
