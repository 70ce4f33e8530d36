//! The program that decides which received frames go to AF_XDP sockets: made at run time from rules, everything else
//! stays with the kernel.

use crate::bpf::{Assembler, Change, Instruction, Label, Reg, Size, When};
use crate::packet::filter::Vlan;
use crate::{Errno, Result};
use std::os::fd::BorrowedFd;

/// What is taken from the kernel and given to the socket of the queue that received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every frame.
    Everything,
    /// Frames of an EtherType, untagged or behind one or two VLAN tags. 0x8100 and 0x88A8 themselves: every frame with
    /// such a tag.
    EtherType {
        /// The EtherType, as it is written: 0x88B5.
        ethertype: u16,
        /// Only behind a tag with this VLAN identifier, the innermost one where there are two.
        vlan: Option<u16>,
    },
    /// Frames of an EtherType as a packet socket chooses them: behind at most two tags, and by the VLAN of the outermost one.
    Outer {
        /// The EtherType, as it is written: 0x88B5.
        ethertype: u16,
        /// Which VLANs' frames.
        vlan: Vlan,
    },
    /// IPv4 and IPv6 packets of an upper protocol to a port, with the same tags or none. Fragments, and IPv6 packets with
    /// extension headers, stay with the kernel.
    Port {
        /// 6 = TCP, 17 = UDP.
        protocol: u8,
        /// Destination port.
        port: u16,
    },
}

// enum xdp_action, enum bpf_func_id, struct xdp_md of linux/bpf.h
const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

const ETHERNET_HEADER: i32 = 14;
const TAG: i32 = 4;
const MOST_TAGS: usize = 2;
const TPIDS: [u16; 2] = [0x8100, 0x88a8];

// What the registers hold. R1 to R5 are free.
/// The VLAN identifier of the outermost tag, or a number that is none.
const OUTER: Reg = Reg::R0;
const CONTEXT: Reg = Reg::R6;
/// First octet behind the EtherType.
const PAYLOAD: Reg = Reg::R7;
/// The VLAN identifier as it is loaded, or a number that is none.
const VLAN: Reg = Reg::R8;
const END: Reg = Reg::R9;
const KIND: Reg = Reg::R5;
/// A VLAN identifier that is none.
const UNTAGGED: i32 = -1;

/// A number of two octets as it comes out of memory in network byte order.
fn loaded(value: u16) -> i32 {
    i32::from(value.to_be())
}

struct Builder<'r> {
    a: Assembler,
    rules: &'r [Rule],
    pass: Label,
    redirect: Label,
}

impl Builder<'_> {
    /// Leaves the frame to the kernel if fewer than `octets` are left from `from` on.
    fn need(&mut self, from: Reg, octets: i32) {
        self.a.change(Change::Set, Reg::R4, from);
        self.a.change(Change::Add, Reg::R4, octets);
        self.a.jump_if(Reg::R4, When::Above, END, self.pass);
    }

    /// Rules that tell by EtherType.
    fn ethertypes(&mut self) {
        for rule in self.rules {
            let (ethertype, tag) = match *rule {
                Rule::EtherType { ethertype, vlan: None } | Rule::Outer { ethertype, vlan: Vlan::Any } => {
                    (ethertype, None)
                }
                Rule::EtherType { ethertype, vlan: Some(id) } => {
                    (ethertype, Some((VLAN, vec![loaded(id & 0xfff)])))
                }
                Rule::Outer { ethertype, vlan: Vlan::Id(id) } => {
                    (ethertype, Some((OUTER, vec![loaded(id & 0xfff)])))
                }
                // VLAN 0 is a priority only.
                Rule::Outer { ethertype, vlan: Vlan::None } => (ethertype, Some((OUTER, vec![UNTAGGED, 0]))),
                Rule::Everything | Rule::Port { .. } => continue,
            };
            let Some((register, values)) = tag else {
                self.a.jump_if(KIND, When::Equal, loaded(ethertype), self.redirect);
                continue;
            };
            let next = self.a.label();
            self.a.jump_if(KIND, When::Different, loaded(ethertype), next);
            for value in values {
                self.a.jump_if(register, When::Equal, value, self.redirect);
            }
            self.a.place(next);
        }
    }

    /// Rules that tell by port; the destination port lies two octets behind R3, the protocol is in R2.
    fn ports(&mut self) {
        self.need(Reg::R3, 4);
        self.a.load(Size::Half, Reg::R4, Reg::R3, 2);
        for rule in self.rules {
            let Rule::Port { protocol, port } = *rule else { continue };
            let next = self.a.label();
            self.a.jump_if(Reg::R2, When::Different, i32::from(protocol), next);
            self.a.jump_if(Reg::R4, When::Equal, loaded(port), self.redirect);
            self.a.place(next);
        }
        self.a.jump(self.pass);
    }

    fn ipv4(&mut self) {
        /// Flags and offset but for "don't fragment" (RFC 791, 3.1): more fragments, or not the first one.
        const FRAGMENT: u16 = 0x3fff;
        self.need(PAYLOAD, 20);
        self.a.load(Size::Half, Reg::R2, PAYLOAD, 6);
        self.a.change(Change::And, Reg::R2, loaded(FRAGMENT));
        self.a.jump_if(Reg::R2, When::Different, 0, self.pass);
        // The header's length in units of four octets.
        self.a.load(Size::Byte, Reg::R3, PAYLOAD, 0);
        self.a.change(Change::And, Reg::R3, 15);
        self.a.jump_if(Reg::R3, When::Below, 5, self.pass);
        self.a.change(Change::ShiftLeft, Reg::R3, 2);
        self.a.load(Size::Byte, Reg::R2, PAYLOAD, 9);
        self.a.change(Change::Add, Reg::R3, PAYLOAD);
        self.ports();
    }

    fn ipv6(&mut self) {
        self.need(PAYLOAD, 40);
        self.a.load(Size::Byte, Reg::R2, PAYLOAD, 6);
        self.a.change(Change::Set, Reg::R3, PAYLOAD);
        self.a.change(Change::Add, Reg::R3, 40);
        self.ports();
    }
}

/// The program for `rules`: a frame that any of them matches goes to the socket in `map` under the number of the queue
/// that received it; without such a socket, and unmatched, it stays with the kernel.
///
/// # Errors
/// EINVAL without a rule; E2BIG for more rules than jumps can reach over (thousands).
pub fn redirect(rules: &[Rule], map: BorrowedFd<'_>) -> Result<Vec<Instruction>> {
    if rules.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut a = Assembler::new();
    let (pass, redirect) = (a.label(), a.label());
    let mut b = Builder { a, rules, pass, redirect };
    b.a.change(Change::Set, CONTEXT, Reg::R1);
    // Instructions that cannot be reached are refused by the kernel: this program has no end that leaves frames alone.
    if !rules.contains(&Rule::Everything) {
        b.a.load(Size::Word, PAYLOAD, Reg::R1, DATA);
        b.a.load(Size::Word, END, Reg::R1, DATA_END);
        b.need(PAYLOAD, ETHERNET_HEADER);
        b.a.load(Size::Half, KIND, PAYLOAD, 12);
        b.a.change(Change::Add, PAYLOAD, ETHERNET_HEADER);
        b.a.change(Change::Set, VLAN, UNTAGGED);
        b.a.change(Change::Set, OUTER, UNTAGGED);
        let network = b.a.label();
        for level in 0..=MOST_TAGS {
            b.ethertypes();
            if level == MOST_TAGS {
                break;
            }
            let tagged = b.a.label();
            for tpid in TPIDS {
                b.a.jump_if(KIND, When::Equal, loaded(tpid), tagged);
            }
            b.a.jump(network);
            b.a.place(tagged);
            b.need(PAYLOAD, TAG);
            b.a.load(Size::Half, VLAN, PAYLOAD, 0);
            b.a.change(Change::And, VLAN, loaded(0xfff));
            if level == 0 {
                b.a.change(Change::Set, OUTER, VLAN);
            }
            b.a.load(Size::Half, KIND, PAYLOAD, 2);
            b.a.change(Change::Add, PAYLOAD, TAG);
        }
        b.a.place(network);
        if rules.iter().any(|r| matches!(r, Rule::Port { .. })) {
            let (four, six) = (b.a.label(), b.a.label());
            b.a.jump_if(KIND, When::Equal, loaded(0x0800), four);
            b.a.jump_if(KIND, When::Equal, loaded(0x86dd), six);
            b.a.jump(pass);
            b.a.place(four);
            b.ipv4();
            b.a.place(six);
            b.ipv6();
        }
        b.a.place(pass);
        b.a.change(Change::Set, Reg::R0, XDP_PASS);
        b.a.exit();
    }
    let mut a = b.a;
    a.place(redirect);
    a.load_map(Reg::R1, map);
    a.load(Size::Word, Reg::R2, CONTEXT, RX_QUEUE_INDEX);
    // What is returned where the queue has no socket.
    a.change(Change::Set, Reg::R3, XDP_PASS);
    a.call(REDIRECT_MAP);
    a.exit();
    a.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const QUEUE: u64 = 3;
    const PACKET: u64 = 0x10_0000;
    const CONTEXT_AT: u64 = 0x20_0000;

    /// Runs a program over a frame, as the kernel would: every access to the frame must have been made sure of.
    fn run(program: &[Instruction], frame: &[u8]) -> &'static str {
        let mut registers = [0u64; 10];
        registers[1] = CONTEXT_AT;
        let mut at = 0;
        for _ in 0..10_000 {
            let i = program[at];
            let (to, from) = (usize::from(i.destination()), usize::from(i.source()));
            let constant = i64::from(i.immediate) as u64;
            let second = if i.code & 8 == 0 { constant } else { registers[from] };
            at += 1;
            let jump = |taken: bool| if taken { i64::from(i.offset) } else { 0 };
            let offset = match i.code {
                0x61 | 0x69 | 0x71 => {
                    let address = registers[from].wrapping_add_signed(i64::from(i.offset));
                    registers[to] = load(i.code, address, frame);
                    0
                }
                0x07 | 0x0f => (registers[to] = registers[to].wrapping_add(second), 0).1,
                0x57 | 0x5f => (registers[to] &= second, 0).1,
                0x67 => (registers[to] <<= second, 0).1,
                0xb7 | 0xbf => (registers[to] = second, 0).1,
                0x05 => jump(true),
                0x15 | 0x1d => jump(registers[to] == second),
                0x25 | 0x2d => jump(registers[to] > second),
                0x55 | 0x5d => jump(registers[to] != second),
                0xa5 | 0xad => jump(registers[to] < second),
                0x18 => 1,
                0x85 => {
                    assert_eq!((i.immediate, registers[2], registers[3]), (REDIRECT_MAP, QUEUE, 2));
                    registers[0] = 4;
                    0
                }
                0x95 => return if registers[0] == 4 { "redirect" } else { "pass" },
                code => panic!("instruction {code:#x}"),
            };
            at = at.checked_add_signed(offset as isize).expect("inside the program");
        }
        panic!("the program does not end");
    }

    fn load(code: u8, address: u64, frame: &[u8]) -> u64 {
        if address >= CONTEXT_AT {
            return match address - CONTEXT_AT {
                0 => PACKET,
                4 => PACKET + frame.len() as u64,
                16 => QUEUE,
                other => panic!("context at {other}"),
            };
        }
        let at = (address - PACKET) as usize;
        match code {
            0x71 => u64::from(frame[at]),
            0x69 => u64::from(u16::from_ne_bytes([frame[at], frame[at + 1]])),
            _ => panic!("four octets of the frame"),
        }
    }

    fn decide(rules: &[Rule], frame: &[u8]) -> &'static str {
        // Any descriptor: the program is not given to the kernel.
        let map = std::io::stdin();
        run(&redirect(rules, map.as_fd()).unwrap(), frame)
    }

    fn ethernet(tags: &[(u16, u16)], ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for (tpid, tci) in tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn ipv4(options: usize, flags: u16, protocol: u8, port: u16) -> Vec<u8> {
        let mut packet = vec![0; 20 + options];
        packet[0] = 0x45 + (options / 4) as u8;
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        packet[9] = protocol;
        packet.extend([0x12, 0x34]);
        packet.extend(port.to_be_bytes());
        packet
    }

    fn ipv6(next: u8, port: u16) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = next;
        packet.extend([0x12, 0x34]);
        packet.extend(port.to_be_bytes());
        packet
    }

    #[test]
    fn an_ethertype_is_found_untagged_and_behind_tags() {
        let rules = [Rule::EtherType { ethertype: 0x88b5, vlan: None }];
        for tags in [&[][..], &[(0x8100, 0xe00a)], &[(0x88a8, 5), (0x8100, 10)], &[(0x8100, 5), (0x8100, 10)]]
        {
            assert_eq!(decide(&rules, &ethernet(tags, 0x88b5, &[])), "redirect", "{tags:?}");
            assert_eq!(decide(&rules, &ethernet(tags, 0x88b6, &[0; 40])), "pass", "{tags:?}");
        }
        assert_eq!(decide(&rules, &ethernet(&[(0x8100, 1); 3], 0x88b5, &[0; 40])), "pass");
    }

    #[test]
    fn a_vlan_is_the_innermost_tag() {
        let rules = [Rule::EtherType { ethertype: 0x88b5, vlan: Some(10) }];
        for (tags, expected) in [
            (&[][..], "pass"),
            (&[(0x8100, 0xe00a)], "redirect"),
            (&[(0x8100, 0x100a)], "redirect"),
            (&[(0x8100, 11)], "pass"),
            (&[(0x88a8, 10), (0x8100, 11)], "pass"),
            (&[(0x88a8, 11), (0x8100, 10)], "redirect"),
        ] {
            assert_eq!(decide(&rules, &ethernet(tags, 0x88b5, &[0; 40])), expected, "{tags:?}");
        }
    }

    #[test]
    fn as_a_packet_socket_chooses_the_outermost_tag_counts() {
        let priority = 0x6000;
        for (tags, of_10, of_none) in [
            (&[][..], "pass", "redirect"),
            (&[(0x8100, priority)], "pass", "redirect"),
            (&[(0x8100, 0xe00a)], "redirect", "pass"),
            (&[(0x88a8, 0x100a)], "redirect", "pass"),
            (&[(0x8100, 11)], "pass", "pass"),
            (&[(0x88a8, 10), (0x8100, 11)], "redirect", "pass"),
            (&[(0x88a8, 11), (0x8100, 10)], "pass", "pass"),
            (&[(0x88a8, priority), (0x8100, 10)], "pass", "redirect"),
            (&[(0x88a8, 11), (0x8100, 0)], "pass", "pass"),
        ] {
            let rule = |vlan| [Rule::Outer { ethertype: 0x88b5, vlan }];
            let frame = ethernet(tags, 0x88b5, &[0; 40]);
            assert_eq!(decide(&rule(Vlan::Id(10)), &frame), of_10, "{tags:?}");
            assert_eq!(decide(&rule(Vlan::None), &frame), of_none, "{tags:?}");
            assert_eq!(decide(&rule(Vlan::Any), &frame), "redirect", "{tags:?}");
            for vlan in [Vlan::Id(10), Vlan::None, Vlan::Any] {
                assert_eq!(decide(&rule(vlan), &ethernet(tags, 0x88b6, &[0; 40])), "pass", "{tags:?}");
            }
        }
    }

    #[test]
    fn a_tag_can_be_asked_for_itself() {
        let rules = [Rule::EtherType { ethertype: 0x8100, vlan: None }];
        assert_eq!(decide(&rules, &ethernet(&[(0x8100, 7)], 0x0800, &[])), "redirect");
        assert_eq!(decide(&rules, &ethernet(&[], 0x0800, &[0; 40])), "pass");
    }

    #[test]
    fn a_port_is_found_behind_options_and_tags() {
        let rules = [Rule::Port { protocol: 17, port: 9000 }, Rule::Port { protocol: 6, port: 80 }];
        let tags: [&[(u16, u16)]; 3] = [&[], &[(0x8100, 1)], &[(0x88a8, 1), (0x8100, 2)]];
        for tags in tags {
            for options in [0, 4, 40] {
                let frame = |protocol, port| ethernet(tags, 0x0800, &ipv4(options, 0x4000, protocol, port));
                assert_eq!(decide(&rules, &frame(17, 9000)), "redirect");
                assert_eq!(decide(&rules, &frame(6, 80)), "redirect");
                assert_eq!(decide(&rules, &frame(6, 9000)), "pass");
                assert_eq!(decide(&rules, &frame(17, 9001)), "pass");
            }
            assert_eq!(decide(&rules, &ethernet(tags, 0x86dd, &ipv6(17, 9000))), "redirect");
            assert_eq!(decide(&rules, &ethernet(tags, 0x86dd, &ipv6(0, 9000))), "pass");
            assert_eq!(decide(&rules, &ethernet(tags, 0x0806, &ipv4(0, 0, 17, 9000))), "pass");
        }
    }

    #[test]
    fn fragments_and_impossible_headers_stay_with_the_kernel() {
        let rules = [Rule::Port { protocol: 17, port: 9000 }];
        for flags in [0x2000, 0x2001, 1, 0x1fff] {
            assert_eq!(decide(&rules, &ethernet(&[], 0x0800, &ipv4(0, flags, 17, 9000))), "pass");
        }
        let mut short = ipv4(0, 0, 17, 9000);
        short[0] = 0x44;
        assert_eq!(decide(&rules, &ethernet(&[], 0x0800, &short)), "pass");
    }

    #[test]
    fn truncated_frames_stay_with_the_kernel() {
        let rules =
            [Rule::Port { protocol: 17, port: 9000 }, Rule::EtherType { ethertype: 0x88b5, vlan: Some(1) }];
        let four = ethernet(&[(0x88a8, 1), (0x8100, 2)], 0x0800, &ipv4(40, 0, 17, 9000));
        let six = ethernet(&[(0x8100, 2)], 0x86dd, &ipv6(17, 9000));
        let other = ethernet(&[(0x8100, 1)], 0x88b5, &[]);
        for whole in [four, six, other] {
            assert_eq!(decide(&rules, &whole), "redirect");
            for len in 0..whole.len() {
                assert_eq!(decide(&rules, &whole[..len]), "pass", "{len} of {}", whole.len());
            }
        }
    }

    #[test]
    fn everything_is_everything() {
        assert_eq!(decide(&[Rule::Everything, Rule::Port { protocol: 6, port: 1 }], &[]), "redirect");
        assert_eq!(redirect(&[], std::io::stdin().as_fd()), Err(Errno::INVAL));
    }
}
