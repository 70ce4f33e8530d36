//! Whose word counts: that of one user's programs alone. What others show, be it by the same sockets, addresses, names or numbers, is not looked at, so that
//! nothing need tell what is true of it.

use super::taps::Wanted;
use crate::connections::descriptors::Process;
use crate::connections::{Family, Member, Scan, Sockets, exists, is_trusted};
use crate::filter::{Facts, Protocol};
use crate::output::Failure;
use bypath_shm::view::Path;
use std::collections::HashSet;

/// Of what others show so much is looked at to say that there is something.
const LEFT_OUT: usize = 4096;

/// Whose word it is.
#[derive(Debug)]
pub enum Whose {
    /// Root's and the own user's.
    Lookers,
    /// This user's.
    User(u32),
    /// That of this process's user.
    Process(One),
}

impl Whose {
    /// Leaves those families in the scan; the other ones. `None`: the process has ended.
    pub fn choose(&self, scan: &mut Scan) -> Option<Vec<Family>> {
        let families = std::mem::take(&mut scan.families);
        let (its, others) = match self {
            Whose::Lookers => families.into_iter().partition(|family| is_trusted(family.user())),
            Whose::User(user) => families.into_iter().partition(|family| family.is_of(*user)),
            Whose::Process(one) => {
                let its = families.iter().find(|family| family.members.iter().any(|member| one.is(member)));
                let word = its.map(Family::word);
                // As it lives still, the number has been nobody else's.
                if !one.lives() {
                    return None;
                }
                families.into_iter().partition(|family| Some(family.word()) == word)
            }
        };
        scan.families = its;
        Some(others)
    }
}

/// The sockets that others show: what is known of them is that somebody has them, under this library.
pub fn sockets_of(others: &[Family]) -> HashSet<u64> {
    others.iter().flat_map(Family::ends).filter_map(|end| end.cookie).take(LEFT_OUT).collect()
}

/// Whether others show something that is asked for, and that is not shown by the other end.
pub fn leaves_out(others: &[Family], sockets: &Sockets, wanted: &Wanted) -> bool {
    let ends = others.iter().flat_map(|family| family.ends().iter().map(move |end| (family, end)));
    let of_streams = ends.filter(|(_, end)| end.ring_size.is_some()).take(LEFT_OUT).any(|(family, end)| {
        end.peer_cookie.is_none_or(|peer| !sockets.has(peer))
            && wanted.directions(&[Some((family, end)), None], [end.local, end.remote]) != [false; 2]
    });
    let rings = others.iter().flat_map(Family::datagrams).filter(|socket| socket.incoming.path == Path::Ring);
    let facts = |destination| Facts {
        protocol: Protocol::Udp,
        source: None,
        destination,
        processes: &[],
        path: Path::Ring.code(),
        reason: "ring",
    };
    of_streams || rings.take(LEFT_OUT).any(|socket| wanted.wants(&facts(socket.local)))
}

/// One process, whoever has its number later.
#[derive(Clone, Copy, Debug)]
pub struct One {
    process: Process,
    started: u64,
}

impl One {
    /// That of this number.
    ///
    /// # Errors
    /// There is none, or it cannot be told which it is.
    pub fn of(pid: u32) -> Result<One, Failure> {
        let process = Process::of(pid);
        match process.and_then(|process| Some(One { process, started: process.start_time()? })) {
            Some(one) => Ok(one),
            None if process.is_some() && exists(pid) => {
                let text = "executes a program, and cannot be looked at meanwhile: try again";
                Err(Failure::new(1, format_args!("process {pid} {text}")))
            }
            None => Err(Failure::new(1, format_args!("there is no process {pid}"))),
        }
    }

    /// Its number.
    pub fn pid(self) -> u32 {
        self.process.pid
    }

    fn is(self, member: &Member) -> bool {
        (member.pid, member.start_time) == (self.process.pid, self.started)
    }

    /// Whether it is there still.
    fn lives(self) -> bool {
        let Some(now) = Process::of(self.process.pid) else { return false };
        // While it executes a program that cannot be told soon; of who could be another one, as he is another user, that is not believed.
        now.start_time()
            .map_or(now.user == self.process.user && exists(now.pid), |started| started == self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_has_ended_is_not_another_one_of_its_number() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat starts");
        let one = One::of(child.id()).expect("it is there");
        let later = One { started: one.started + 1, ..one };
        assert!(one.lives() && !later.lives());
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(!one.lives() && One::of(child.id()).is_err());
        let of = Whose::Process(one);
        assert!(of.choose(&mut Scan::default()).is_none());
        assert!(Whose::Lookers.choose(&mut Scan::default()).is_some());
    }
}
