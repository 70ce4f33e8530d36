//! The C library's heap.

/// Gives the kernel back whole pages of the heap that nobody uses. Takes longer the more there are: about a tenth of a millisecond for each
/// megabyte.
///
/// C libraries other than glibc give them back by themselves, or never.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number alone, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has all threads share one heap: of glibc's each other one takes 64 MiB of addresses, or 128. To be called before there is a second thread.
///
/// Nothing changes with other C libraries.
pub fn share_one() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers alone, and moves nothing that is in use.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
