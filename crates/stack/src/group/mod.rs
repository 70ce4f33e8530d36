//! Groups that we are in, and telling routers of them: IGMP (RFC 3376, RFC 2236, RFC 1112) and MLD (RFC 3810, RFC 2710).
//!
//! Groups are joined for all sources. Each group reports for itself: a query is answered by as many small reports as there are
//! groups, spread over the time that the querier gives.

mod igmp;
mod mld;

use crate::Stack;
use crate::iface::IfaceId;
use crate::share::{Shares, Whom};
use crate::stack::Due;
use crate::time::Instant;
use crate::timer::TimerId;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

/// Times that a change is told: the robustness variable (RFC 3376, 8.1; RFC 3810, 9.1).
const ROBUSTNESS: u8 = 2;
/// Between two tellings at most (RFC 3376, 8.11; RFC 3810, 9.11).
const UNSOLICITED: Duration = Duration::from_secs(1);
/// So long after a query of an older version its version is spoken: 2 x 125 s + 10 s (RFC 3376, 8.12; RFC 3810, 9.12).
const OLD_QUERIER: Duration = Duration::from_secs(260);

/// A group that cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGroup {
    /// EINVAL.
    #[error("not the address of a group")]
    NotAGroup,
    /// ENODEV.
    #[error("there is no such interface")]
    NoIface,
    /// EADDRINUSE.
    #[error("the socket is in that group already")]
    Joined,
    /// `Config::groups`, or what is left of them to one user.
    #[error("the interface is in {most} groups at most, and each user in no more than he leaves of these")]
    Full {
        /// Groups at most.
        most: usize,
    },
}

/// What the routers of a link speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// IGMPv3 and MLDv2.
    Newest,
    /// IGMPv2 and MLDv1.
    Second,
    /// IGMPv1.
    First,
}

#[derive(Debug)]
struct Group {
    ip: IpAddr,
    /// Whose sockets are in it, and how many: none, if it was left, which is being told.
    members: Vec<(Whom, u32)>,
    /// Times that the change is still to be told.
    changes: u8,
    timer: TimerId,
}

/// An older version than the newest was heard: which, and until when it counts.
#[derive(Clone, Copy, Debug, Default)]
struct Old(Option<(bool, Instant)>);

/// Groups of one interface.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    all: Vec<Group>,
    /// How many each user is in.
    shares: Shares,
    old_v4: Old,
    old_v6: Old,
}

impl Old {
    /// `first`: it was the first version.
    fn heard(&mut self, now: Instant, first: bool) {
        // The older of two that are spoken (RFC 3376, 7.2.1).
        let first = first || self.0.is_some_and(|(first, until)| first && until > now);
        self.0 = Some((first, now + OLD_QUERIER));
    }

    fn version(self, now: Instant) -> Version {
        match self.0 {
            Some((true, until)) if until > now => Version::First,
            Some((false, until)) if until > now => Version::Second,
            _ => Version::Newest,
        }
    }
}

impl Group {
    fn has_members(&self) -> bool {
        self.members.iter().any(|(_, sockets)| *sockets > 0)
    }
}

impl Groups {
    fn find(&self, ip: IpAddr) -> Option<usize> {
        self.all.iter().position(|group| group.ip == ip)
    }

    /// It counts as nobody's.
    fn count_no_more(&mut self, at: usize) {
        for (whom, _) in self.all[at].members.drain(..) {
            self.shares.take(whom, 1);
        }
    }

    fn remove(&mut self, at: usize) {
        self.count_no_more(at);
        self.all.swap_remove(at);
    }
}

/// Whether routers are told of a group: not of that of all hosts, nor of what does not leave us (RFC 3376, 5; RFC 3810, 6).
fn is_reported(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4 != Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(v6) => v6.octets()[1] & 0xf > 1 && v6.segments() != [0xff02, 0, 0, 0, 0, 0, 0, 1],
    }
}

impl Stack {
    /// Whether an interface takes packets to a group.
    #[inline]
    pub(crate) fn is_member(&self, iface: IfaceId, ip: IpAddr) -> bool {
        self.ifaces[iface.at()].groups.all.iter().any(|group| group.ip == ip && group.has_members())
    }

    /// One more of a user's sockets, or the stack itself, joins a group.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        iface: IfaceId,
        ip: IpAddr,
        whom: Whom,
    ) -> Result<(), NoGroup> {
        if !ip.is_multicast() {
            return Err(NoGroup::NotAGroup);
        }
        let Some(own) = self.ifaces.get_mut(iface.at()) else { return Err(NoGroup::NoIface) };
        let (groups, most) = (&mut own.groups, self.config.groups);
        let (found, free) = (groups.find(ip), most.saturating_sub(groups.all.len()));
        let was_member = found.is_some_and(|at| groups.all[at].has_members());
        let own = match found {
            Some(at) => groups.all[at].members.iter_mut().find(|(other, _)| *other == whom),
            None => None,
        };
        match own {
            Some((_, sockets)) => *sockets += 1,
            // One in which others are takes no place yet.
            None if !groups.shares.may_have(whom, found.is_none().into(), free) => {
                return Err(NoGroup::Full { most });
            }
            None => {
                let at = found.unwrap_or_else(|| {
                    let timer = self.timers.create(Due::Report(iface, ip));
                    groups.all.push(Group { ip, members: Vec::new(), changes: 0, timer });
                    groups.all.len() - 1
                });
                if !was_member {
                    groups.count_no_more(at);
                }
                groups.all[at].members.push((whom, 1));
                groups.shares.add(whom, 1);
            }
        }
        if was_member {
            return Ok(());
        }
        // Who sends to it hears it, too.
        self.generation += 1;
        self.change(now, iface, ip);
        Ok(())
    }

    /// One of them leaves it.
    pub(crate) fn leave(&mut self, iface: IfaceId, ip: IpAddr, whom: Whom) {
        let groups = &mut self.ifaces[iface.at()].groups;
        let Some(at) = groups.find(ip) else { return };
        let group = &mut groups.all[at];
        let Some(own) = group.members.iter().position(|(other, _)| *other == whom) else { return };
        group.members[own].1 = group.members[own].1.saturating_sub(1);
        if group.has_members() {
            if group.members[own].1 == 0 {
                group.members.swap_remove(own);
                groups.shares.take(whom, 1);
            }
        } else {
            // It counts as his who left it last until that was told.
            // Told by the timers, as the time is not known here: at once.
            group.changes = ROBUSTNESS;
            let timer = group.timer;
            self.timers.set(timer, Instant::ZERO);
        }
    }

    /// A group was joined: it is told now, and again soon.
    fn change(&mut self, now: Instant, iface: IfaceId, ip: IpAddr) {
        let groups = &mut self.ifaces[iface.at()].groups;
        if let Some(at) = groups.find(ip) {
            groups.all[at].changes = ROBUSTNESS;
            self.report_due(now, iface, ip);
        }
    }

    /// A group's timer: a change is told, or a query is answered.
    pub(crate) fn report_due(&mut self, now: Instant, iface: IfaceId, ip: IpAddr) {
        let own = &mut self.ifaces[iface.at()];
        let ethernet = own.mac().is_some();
        let Some(at) = own.groups.find(ip) else { return };
        let group = &mut own.groups.all[at];
        let (member, changed, timer) = (group.has_members(), group.changes > 0, group.timer);
        group.changes = group.changes.saturating_sub(1);
        let again = group.changes > 0;
        if ethernet && is_reported(ip) {
            match ip {
                IpAddr::V4(v4) => {
                    let version = own.groups.old_v4.version(now);
                    self.report_igmp(iface, v4, version, member, changed);
                }
                IpAddr::V6(v6) => {
                    let version = own.groups.old_v6.version(now);
                    self.report_mld(iface, v6, version, member, changed);
                }
            }
        }
        if again && ethernet {
            let delay = self.random_delay(UNSOLICITED);
            self.timers.set(timer, now + delay);
        } else if !member {
            self.timers.remove(timer);
            self.ifaces[iface.at()].groups.remove(at);
        }
    }

    /// A router asks for groups, `about` one or all, to be answered within `within` (RFC 3376, 5.2).
    fn queried(&mut self, now: Instant, iface: IfaceId, v4: bool, about: Option<IpAddr>, within: Duration) {
        for at in 0..self.ifaces[iface.at()].groups.all.len() {
            let group = &self.ifaces[iface.at()].groups.all[at];
            let (ip, timer) = (group.ip, group.timer);
            let asked = ip.is_ipv4() == v4 && about.is_none_or(|about| about == ip);
            if !asked || !group.has_members() || !is_reported(ip) {
                continue;
            }
            let answer = now + self.random_delay(within);
            // One that is due earlier answers as well.
            if self.timers.deadline(timer).is_none_or(|due| due > answer) {
                self.timers.set(timer, answer);
            }
        }
    }

    /// Another host reported a group in an older version: one report is enough (RFC 2236, 3; RFC 2710, 4).
    fn reported_by_other(&mut self, now: Instant, iface: IfaceId, ip: IpAddr) {
        let groups = &mut self.ifaces[iface.at()].groups;
        let old = if ip.is_ipv4() { groups.old_v4 } else { groups.old_v6 };
        if old.version(now) != Version::Newest
            && let Some(at) = groups.find(ip)
            && groups.all[at].has_members()
        {
            groups.all[at].changes = 0;
            let timer = groups.all[at].timer;
            self.timers.stop(timer);
        }
    }

    fn random_delay(&mut self, within: Duration) -> Duration {
        let nanos = within.as_nanos().min(u128::from(u64::MAX)) as u64;
        let part = u64::from(self.random.next_u32());
        Duration::from_nanos(((u128::from(nanos) * u128::from(part)) >> 32) as u64)
    }
}

/// A time in the floating-point form of both protocols (RFC 3376, 4.1.1; RFC 3810, 5.1.3): `bits` of mantissa below an exponent
/// of three bits.
const fn float(code: u32, bits: u32) -> u32 {
    let linear = 1 << (bits + 3);
    if code < linear {
        return code;
    }
    let (mantissa, exponent) = (code & ((1 << bits) - 1), code >> bits & 7);
    (mantissa | 1 << bits) << (exponent + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_have_an_exponent() {
        // IGMP: 8 bits, 4 of them mantissa. MLD: 16 and 12.
        assert_eq!([float(127, 4), float(128, 4), float(255, 4)], [127, 128, 31_744]);
        assert_eq!([float(32_767, 12), float(32_768, 12), float(65_535, 12)], [32_767, 32_768, 8_387_584]);
    }
}
