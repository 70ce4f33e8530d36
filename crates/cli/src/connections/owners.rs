//! Who has a socket: the kernel names the inode of a TCP connection's end (sock_diag), and `/proc/PID/fd` those that a process has.

use super::descriptors::Process;
use super::{Family, Member};
use crate::aside;
use crate::effort::Effort;
use bypath_shm::view::End;
use bypath_sys::netns::Namespace;
use bypath_sys::{fd, sockdiag};
use std::fs;
use std::path::PathBuf;

/// Those who were asked about.
#[derive(Debug, Default)]
pub struct Owners {
    kernel: Kernel,
    /// 50 ms for what one other user names, which are thousands of sockets, 200 ms for all of them.
    effort: Effort<50, 200>,
}

impl Owners {
    /// Whether a process that says it has this end of a connection does.
    pub fn has(&mut self, family: &Family, end: &End) -> bool {
        let Owners { kernel, effort } = self;
        let user = family.region.user;
        family
            .holders(end)
            .map(Member::process)
            .any(|process| !effort.is_over(user) && effort.on(user, || kernel.says(process, end).is_some()))
    }
}

/// The kernel, asked in the network namespace of a process.
#[derive(Debug, Default)]
struct Kernel {
    /// Where it was asked last: no more are open at a time.
    open: Option<Netlink>,
}

#[derive(Debug)]
struct Netlink {
    namespace: PathBuf,
    number: i32,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        fd::close(self.number);
    }
}

impl Kernel {
    /// That this process has this socket; else nothing.
    fn says(&mut self, process: Process, end: &End) -> Option<()> {
        let (local, remote) = (end.local?.into(), end.remote?.into());
        let (inode, namespace) = process.socket(end.fd)?;
        let found = sockdiag::tcp(self.netlink(process, namespace)?, &local, &remote).ok()??;
        (end.cookie == Some(found.cookie) && inode == u64::from(found.inode)).then_some(())
    }

    fn netlink(&mut self, process: Process, namespace: PathBuf) -> Option<i32> {
        if self.open.as_ref().is_none_or(|open| open.namespace != namespace) {
            let is_own = fs::read_link("/proc/self/ns/net").is_ok_and(|own| own == namespace);
            let opened = if is_own {
                sockdiag::open(3)
            } else {
                aside::of(process, move |_| {
                    Namespace::of(process.pid).and_then(|there| there.run(|| sockdiag::open(3))?)
                })?
            };
            self.open = Some(Netlink { namespace, number: opened.ok()? });
        }
        self.open.as_ref().map(|open| open.number)
    }
}
