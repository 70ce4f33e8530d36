//! `PID[:FD]`: a process, or one of its descriptors.

use std::str::FromStr;

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The process.
    pub pid: u32,
    /// Its descriptor; `None` = all of them.
    pub fd: Option<i32>,
}

impl FromStr for Subject {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pid, fd) = match text.split_once(':') {
            Some((pid, fd)) => (pid, Some(fd)),
            None => (text, None),
        };
        let number = |s: &str| s.parse::<i32>().ok();
        let pid = number(pid).filter(|n| *n > 0).ok_or("expected a process id, such as 1234 or 1234:7")?;
        let fd = match fd {
            None => None,
            Some(fd) => Some(
                number(fd)
                    .filter(|n| *n >= 0)
                    .ok_or("expected a descriptor number after ':', such as 1234:7")?,
            ),
        };
        Ok(Subject { pid: pid.cast_unsigned(), fd })
    }
}

/// Why a process is not shown to this one, and what can be done.
pub fn out_of_reach() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "it belongs to another user namespace, or the kernel or a container keeps it from root, too"
    } else {
        "it may belong to another user: try as root"
    }
}
