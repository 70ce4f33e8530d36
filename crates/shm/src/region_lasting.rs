//! Memory that lives as long as the process, made without malloc (hooks may run inside it), and references to it that signal handlers may
//! follow. Unsafe file: it vouches that what is handed out is nobody else's, and never given back.

use bypath_sys::mem::Mapping;
use bypath_sys::{Errno, Result};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// Private memory that is handed out piece by piece and never given back, in few mappings: a fork copies every mapping, and
/// every page of it that was written. Too small for a huge page, of which the first byte would cost two megabytes.
const POOL_SIZE: usize = 1 << 20;
/// Where the next piece begins. A pool ends at a multiple of its size: there begins none, so another pool is made.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// `size` bytes of zeroes that live as long as the process, aligned to 128.
fn lasting(size: usize) -> Result<*mut u8> {
    let size = size.max(1).next_multiple_of(128);
    if size > POOL_SIZE / 8 {
        return Ok(Mapping::private(size)?.addr());
    }
    loop {
        let next = NEXT.load(Acquire);
        let room = next.next_multiple_of(POOL_SIZE) - next;
        let (at, made) = if size <= room {
            (next, None)
        } else {
            // A whole pool lies in there.
            let made = Mapping::private(2 * POOL_SIZE - 4096)?;
            (made.addr().addr().next_multiple_of(POOL_SIZE), Some(made))
        };
        if NEXT.compare_exchange(next, at + size, AcqRel, Acquire).is_ok() {
            return Ok(std::ptr::with_exposed_provenance_mut(at));
        }
        if let Some(made) = made {
            // SAFETY: nobody has seen it.
            unsafe { made.unmap() };
        }
    }
}

/// Allocates `n` values that live as long as the process, without malloc (hooks may run inside it).
///
/// # Errors
/// ENOMEM.
pub fn alloc_static<T: Default + Sync>(n: usize) -> Result<&'static [T]> {
    const { assert!(align_of::<T>() <= 128) };
    let size = size_of::<T>().checked_mul(n).ok_or(Errno::NOMEM)?;
    let first = lasting(size)?.cast::<T>();
    for i in 0..n {
        // SAFETY: in bounds, aligned, and nobody else's.
        unsafe { first.add(i).write(T::default()) };
    }
    // SAFETY: initialised just above, never given back.
    Ok(unsafe { std::slice::from_raw_parts(first, n) })
}

/// Moves `value` to memory that lives as long as the process, without malloc.
///
/// # Errors
/// ENOMEM.
pub fn leak<T: Sync>(value: T) -> Result<&'static T> {
    const { assert!(align_of::<T>() <= 128) };
    let place = lasting(size_of::<T>())?.cast::<T>();
    // SAFETY: fresh memory of sufficient size and alignment, never given back.
    unsafe {
        place.write(value);
        Ok(&*place)
    }
}

/// A slot for a reference that is set once, or replaced as a whole. Safe in signal handlers (no lock).
#[derive(Debug)]
pub struct StaticCell<T: 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> StaticCell<T> {
    /// Empty.
    pub const fn new() -> Self {
        StaticCell(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The reference, if set.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        let p = self.0.load(Acquire);
        // SAFETY: only `&'static T` are ever stored.
        if p.is_null() { None } else { Some(unsafe { &*p }) }
    }

    /// Sets or empties it.
    pub fn set(&self, value: Option<&'static T>) {
        self.0.store(value.map_or(std::ptr::null_mut(), |v| std::ptr::from_ref(v).cast_mut()), Release);
    }

    /// Empties it; to one of those who do so at a time it gives what it had.
    pub fn take(&self) -> Option<&'static T> {
        let p = self.0.swap(std::ptr::null_mut(), AcqRel);
        // SAFETY: only `&'static T` are ever stored.
        if p.is_null() { None } else { Some(unsafe { &*p }) }
    }

    /// Sets it if it is empty; returns what it holds afterwards.
    pub fn set_once(&self, value: &'static T) -> &'static T {
        match self.0.compare_exchange(
            std::ptr::null_mut(),
            std::ptr::from_ref(value).cast_mut(),
            AcqRel,
            Acquire,
        ) {
            Ok(_) => value,
            // SAFETY: only `&'static T` are ever stored.
            Err(p) => unsafe { &*p },
        }
    }
}

impl<T: Sync + 'static> Default for StaticCell<T> {
    fn default() -> Self {
        StaticCell::new()
    }
}

/// A table of up to `CHUNKS * CHUNK` values that is allocated chunk by chunk and never freed.
#[derive(Debug)]
pub struct Slab<T: 'static, const CHUNKS: usize, const CHUNK: usize>([AtomicPtr<T>; CHUNKS]);

impl<T: Default + Sync, const CHUNKS: usize, const CHUNK: usize> Slab<T, CHUNKS, CHUNK> {
    /// Places there can be.
    pub const CAPACITY: usize = CHUNKS * CHUNK;

    /// Empty.
    #[expect(clippy::new_without_default, reason = "only used as a static")]
    pub const fn new() -> Self {
        Slab([const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS])
    }

    /// The value at `i`, if its chunk exists.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'static T> {
        let p = self.0.get(i / CHUNK)?.load(Acquire);
        // SAFETY: a chunk has CHUNK initialised values and is never freed.
        if p.is_null() { None } else { Some(unsafe { &*p.add(i % CHUNK) }) }
    }

    /// The value at `i`, its chunk allocated if need be; `None` beyond the capacity or without memory.
    pub fn ensure(&self, i: usize) -> Option<&'static T> {
        if let Some(v) = self.get(i) {
            return Some(v);
        }
        let chunk = alloc_static::<T>(CHUNK).ok()?;
        // Two threads may get here: the slower one's chunk stays unused.
        let _ = self.0.get(i / CHUNK)?.compare_exchange(
            std::ptr::null_mut(),
            chunk.as_ptr().cast_mut(),
            AcqRel,
            Acquire,
        );
        self.get(i)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;

    #[test]
    fn what_is_allocated_is_empty_and_nobody_elses() {
        // Small and large, from the pool and beside it, until it is used up.
        let sizes = [1, 100, 4096, 5000, POOL_SIZE / 8, POOL_SIZE / 8 + 1];
        let mut all: Vec<&'static [AtomicU8]> = Vec::new();
        for size in sizes.iter().cycle().take(60) {
            let bytes = alloc_static::<AtomicU8>(*size).unwrap();
            assert!(bytes.len() == *size && bytes.as_ptr().addr().is_multiple_of(128));
            assert!(bytes.iter().all(|b| b.swap(1, Relaxed) == 0), "{size}");
            all.push(bytes);
        }
        // The pool is used up, and another one.
        for _ in 0..3 * POOL_SIZE / 4096 {
            let bytes = alloc_static::<AtomicU8>(4000).unwrap();
            assert!(bytes.iter().step_by(512).all(|b| b.swap(1, Relaxed) == 0));
            all.push(bytes);
        }
        assert!(all.iter().flat_map(|bytes| bytes.iter().step_by(512)).all(|b| b.fetch_add(1, Relaxed) == 1));
        assert_eq!(*leak(7u32).unwrap(), 7);
    }
}
