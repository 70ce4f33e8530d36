//! The way in and out of every function: pointers are looked at, panics end here.

use crate::status::{BYPATH_OK, Failure, bypath_error, bypath_status};
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a function on this side of the boundary.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Runs `f`, and turns its failure, or its panic, into a status and the caller's `bypath_error`.
pub fn guarded(error: *mut bypath_error, f: impl FnOnce() -> Outcome) -> bypath_status {
    let outcome = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        let failure = Failure::internal(format!(
            "a mistake in bypath itself: {text}; close this socket, and please report it"
        ));
        // What was thrown may throw again when it is dropped.
        std::mem::forget(payload);
        Err(failure)
    });
    let Err(failure) = outcome else { return BYPATH_OK };
    if !error.is_null() && error.is_aligned() {
        // SAFETY: the caller's memory for an error, writable and used by nobody else during the call (header, "Pointers").
        failure.tell(unsafe { &mut *error });
    }
    failure.status
}

fn checked<T>(pointer: *const T, name: &str) -> Outcome {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("`{name}` is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format!(
            "`{name}` is not aligned: it does not point to what it should"
        )));
    }
    Ok(())
}

/// What the caller lets us read.
pub fn read<'a, T>(pointer: *const T, name: &str) -> Outcome<&'a T> {
    checked(pointer, name)?;
    // SAFETY: not NULL and aligned; the caller's promise that it points to a T that stays as it is during the call. All
    // types here are of integers, for which every bit pattern is a value.
    Ok(unsafe { &*pointer })
}

/// Writes a result into the caller's memory, which may hold anything before.
pub fn write<T>(pointer: *mut T, name: &str, value: T) -> Outcome {
    checked(pointer, name)?;
    // SAFETY: not NULL and aligned; the caller's promise that there is room for a T.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Fails where [`write`] would.
pub fn writable<T>(pointer: *mut T, name: &str) -> Outcome {
    checked(pointer, name)
}

fn length<T>(count: usize, name: &str) -> Outcome {
    // The most that a slice may have.
    if count.checked_mul(size_of::<T>()).is_none_or(|octets| octets > isize::MAX as usize) {
        return Err(Failure::invalid(format!("`{name}`: a length of {count} is more than there can be")));
    }
    Ok(())
}

/// An array that the caller lets us read. NULL is no array, unless it is empty.
pub fn slice<'a, T>(pointer: *const T, count: usize, name: &str) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    checked(pointer, name)?;
    length::<T>(count, name)?;
    // SAFETY: as in `read`, for `count` of them.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// An array that the caller lets us write.
pub fn slice_mut<'a, T>(pointer: *mut T, count: usize, name: &str) -> Outcome<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    checked(pointer, name)?;
    length::<T>(count, name)?;
    // SAFETY: as in `read`, for `count` of them, which nobody else uses during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

/// Octets that the caller lets us read.
pub fn octets<'a>(pointer: *const c_void, count: usize, name: &str) -> Outcome<&'a [u8]> {
    slice(pointer.cast(), count, name)
}

/// Octets that the caller lets us write.
pub fn octets_mut<'a>(pointer: *mut c_void, count: usize, name: &str) -> Outcome<&'a mut [u8]> {
    slice_mut(pointer.cast(), count, name)
}

/// A text of the caller's.
pub fn text<'a>(pointer: *const c_char, name: &str) -> Outcome<&'a str> {
    checked(pointer, name)?;
    // SAFETY: the caller's promise that a zero ends it.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("`{name}` is not UTF-8")))
}

/// An array of texts of the caller's.
pub fn texts<'a>(pointer: *const *const c_char, count: usize, name: &str) -> Outcome<Vec<&'a str>> {
    slice(pointer, count, name)?.iter().map(|one| text(*one, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{BYPATH_E_INTERNAL, BYPATH_E_INVALID, BYPATH_ERROR_TEXT};

    fn empty() -> bypath_error {
        bypath_error { status: 77, system: 77, message: [77; BYPATH_ERROR_TEXT] }
    }

    fn message(error: &bypath_error) -> String {
        // SAFETY: `tell` ends it with a zero.
        unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let mut error = empty();
        assert_eq!(guarded(&mut error, || panic!("number {}", 5)), BYPATH_E_INTERNAL);
        assert!(message(&error).contains("number 5"), "{}", message(&error));
        assert_eq!(error.status, BYPATH_E_INTERNAL);
        assert_eq!(guarded(std::ptr::null_mut(), || std::panic::panic_any(7)), BYPATH_E_INTERNAL);
    }

    #[test]
    fn success_leaves_the_error_alone() {
        let mut error = empty();
        assert_eq!(guarded(&mut error, || Ok(())), BYPATH_OK);
        assert_eq!((error.status, error.message[0]), (77, 77));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut error = empty();
        let text = "ä".repeat(BYPATH_ERROR_TEXT);
        assert_eq!(guarded(&mut error, || Err(Failure::invalid(text.clone()))), BYPATH_E_INVALID);
        assert_eq!(message(&error), "ä".repeat((BYPATH_ERROR_TEXT - 1) / 2));
    }

    #[test]
    fn pointers_that_cannot_be_are_refused() {
        let number = [1u64; 2];
        assert!(read(std::ptr::null::<u64>(), "x").is_err());
        assert!(read(number.as_ptr().wrapping_byte_add(1), "x").is_err());
        assert!(slice(number.as_ptr(), usize::MAX / 4, "x").is_err());
        assert!(slice(std::ptr::null::<u64>(), 1, "x").is_err());
        assert!(slice(std::ptr::null::<u64>(), 0, "x").is_ok_and(<[u64]>::is_empty));
        assert!(slice(number.as_ptr(), 2, "x").is_ok_and(|s| s == number));
        assert!(text(c"\xff".as_ptr(), "x").is_err());
    }
}
