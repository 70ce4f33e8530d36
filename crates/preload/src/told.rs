//! Control messages of followed UDP sockets: made for what came through a mailbox, and looked at where the kernel made them.

use crate::datagrams::{Beside, Out};
use crate::errno::kept;
use crate::memory;
use bypath_sockets::hook::udp::{LONGEST, Name, Record, TIMESTAMP_NEW, TIMESTAMPNS_NEW, Taken, want};
use bypath_sys::clock;
use libc::{c_int, cmsghdr, msghdr};
use std::net::{IpAddr, Ipv4Addr};

/// Octets of a control message's header.
const CMSG: usize = size_of::<cmsghdr>();

/// Writes what the socket wants to be told, in the kernel's order: how many octets that takes, and MSG_CTRUNC.
#[cold]
pub(crate) fn tell(r: &Record, taken: &Taken, beside: &Beside) -> (usize, c_int) {
    let (wants, told) = (r.wants(), &taken.told);
    let mut out = Out::new(beside);
    if wants & want::STAMP != 0 {
        // Who asked for it afterwards is told when it is read.
        let ns = if told.wants & want::STAMP != 0 { told.stamp } else { clock::realtime_ns() };
        let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let is_new = wants & want::STAMP_NEW != 0;
        let (kind, rest) = if wants & want::STAMP_NS != 0 {
            (if is_new { TIMESTAMPNS_NEW } else { libc::SO_TIMESTAMPNS }, ns)
        } else {
            (if is_new { TIMESTAMP_NEW } else { libc::SO_TIMESTAMP }, ns / 1000)
        };
        let mut stamp = [0; 16];
        stamp[..8].copy_from_slice(&seconds.to_ne_bytes());
        stamp[8..].copy_from_slice(&rest.to_ne_bytes());
        out.put(libc::SOL_SOCKET, kind, &stamp);
    }
    if !r.wants_info() {
        return (out.used, out.flags);
    }
    let to = Name { ip: told.to, port: 0 };
    // Of what came by IPv4 before anybody asked the kernel keeps the address alone.
    let is_kept = !to.is_v4() || told.wants & (want::INFO | want::INFO_V6) != 0;
    let interface = if is_kept { r.interface(&to) } else { 0 }.to_ne_bytes();
    if wants & want::INFO_V6 != 0 {
        let mut info = [0; 20];
        info[..16].copy_from_slice(&to.octets());
        info[16..].copy_from_slice(&interface);
        out.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
    }
    if wants & want::INFO != 0
        && let IpAddr::V4(v4) = to.address()
    {
        let answers_from = if is_kept { v4 } else { Ipv4Addr::UNSPECIFIED };
        let mut info = [0; 12];
        info[..4].copy_from_slice(&interface);
        info[4..8].copy_from_slice(&answers_from.octets());
        info[8..].copy_from_slice(&v4.octets());
        out.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
    }
    (out.used, out.flags)
}

/// The kernel has filled `after`, whose room for control messages was that of `before`: at which interface an own address is stands there.
pub(crate) fn learn(r: &Record, after: &msghdr, before: &msghdr) {
    if !r.wants_info() || before.msg_control.is_null() {
        return;
    }
    let (start, all) = (before.msg_control as usize, after.msg_controllen.min(before.msg_controllen));
    let mut at = 0;
    while all.saturating_sub(at) >= CMSG {
        let Some(m) = memory::read((start + at) as *const cmsghdr) else { return };
        if m.cmsg_len < CMSG || m.cmsg_len > all - at {
            return;
        }
        let (data, len) = (start + at + CMSG, m.cmsg_len - CMSG);
        let found = match (m.cmsg_level, m.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if len >= 12 => {
                memory::read(data as *const [u8; 12]).map(|info| {
                    let v4 = Ipv4Addr::new(info[8], info[9], info[10], info[11]);
                    (v4.to_ipv6_mapped().octets(), [info[0], info[1], info[2], info[3]])
                })
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if len >= 20 => {
                let interface = memory::read((data + 16) as *const [u8; 4]);
                memory::read(data as *const [u8; 16]).zip(interface)
            }
            _ => None,
        };
        if let Some((to, interface)) = found {
            let from = (after.msg_name as *const u8, (after.msg_namelen as usize).min(LONGEST));
            kept(|| r.came_in(memory::slice(from.0, from.1), to, u32::from_ne_bytes(interface)));
        }
        at += m.cmsg_len.next_multiple_of(size_of::<usize>());
    }
}
