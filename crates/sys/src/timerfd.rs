//! timerfd: a descriptor that becomes readable now and then.

use crate::syscall::{check, syscall};
use crate::{Result, turn};

/// A close-on-exec timer, moved above `floor`, that becomes readable after `first_ns` and from then on every `every_ns`.
///
/// # Errors
/// EMFILE or ENFILE when no descriptor is to be had, EPERM under a seccomp filter.
pub fn create(floor: i32, first_ns: u64, every_ns: u64) -> Result<i32> {
    let (clock, flags) = (libc::CLOCK_MONOTONIC as usize, libc::TFD_CLOEXEC as usize);
    let timer = turn::high(floor, || {
        // SAFETY: timerfd_create(clock, flags) takes no pointer.
        check(unsafe { syscall(libc::SYS_timerfd_create, [clock, flags, 0, 0, 0, 0]) })
            .map(|made| made as i32)
    })?;
    begin(timer, first_ns, every_ns);
    Ok(timer)
}

/// Begins anew: what it has told of is forgotten. Never waits, whatever the descriptor is.
pub fn begin(timer: i32, first_ns: u64, every_ns: u64) {
    let time = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // Nothing at all would stop it.
    let times = libc::itimerspec { it_interval: time(every_ns), it_value: time(first_ns.max(1)) };
    // SAFETY: the kernel reads the times from a local, and is given no room for the old ones.
    unsafe { syscall(libc::SYS_timerfd_settime, [timer as usize, 0, &raw const times as usize, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd;
    use crate::poll::{PollFd, now, ppoll};

    #[test]
    fn it_tells_of_each_time_and_forgets_it_when_it_begins_anew() {
        let timer = create(100, 1_000_000, 1_000_000).unwrap();
        assert!(timer >= 100 && fd::is_cloexec(timer) == Ok(true));
        for _ in 0..2 {
            let mut one = [PollFd { fd: timer, events: libc::POLLIN, revents: 0 }];
            assert_eq!(ppoll(&mut one, Some(5_000_000_000), 0), Ok(1));
            begin(timer, 1_000_000, 1_000_000);
        }
        begin(timer, u64::MAX / 4, 0);
        assert_eq!(now(timer, libc::POLLIN), 0);
        fd::close(timer);
    }
}
