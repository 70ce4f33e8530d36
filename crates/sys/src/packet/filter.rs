//! Classic BPF programs that choose frames in the kernel, before they are copied or queued.
//!
//! The kernel takes the outermost VLAN tag out of a received frame and remembers it beside the bytes; frames in other
//! places, and a second tag, have it in the bytes. The programs made here look at both.

/// One instruction, laid out as `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u16,
    then: u8,
    otherwise: u8,
    value: u32,
}

/// The most EtherTypes, and the most groups, of one [`Choice`].
pub const MOST: usize = 50;

/// Which VLANs' frames pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vlan {
    /// Tagged or not.
    #[default]
    Any,
    /// Frames without a tag, or with a priority tag (VLAN 0).
    None,
    /// Frames whose outermost tag is of this VLAN.
    Id(u16),
}

/// Which frames pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice<'a> {
    /// EtherTypes behind at most two tags; empty: all.
    pub ethertypes: &'a [u16],
    /// By VLAN.
    pub vlan: Vlan,
    /// Frames to other hosts, too.
    pub foreign: bool,
    /// Of frames to groups only those to these, and to everybody; `None`: all.
    pub groups: Option<&'a [[u8; 6]]>,
}

// linux/bpf_common.h
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
// linux/filter.h: facts beside the frame's bytes.
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
const TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32;
const TAG_PRESENT: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;
/// Where a frame's EtherType, or the first tag in its bytes, stands.
const TYPE: u32 = 12;
const TAGS: [u32; 2] = [0x8100, 0x88a8];

/// A place in the program that is not known yet.
#[derive(Clone, Copy)]
struct Label(usize);

#[derive(Default)]
struct Program {
    code: Vec<Instruction>,
    /// Jumps to be filled in: index of the instruction, label, and whether it is its `otherwise`.
    jumps: Vec<(usize, usize, bool)>,
    /// Where the labels are.
    places: Vec<usize>,
}

impl Program {
    fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    fn here(&mut self, label: Label) {
        self.places[label.0] = self.code.len();
    }

    fn put(&mut self, code: u16, value: u32) {
        self.code.push(Instruction { code, then: 0, otherwise: 0, value });
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to.0, false));
        self.put(JUMP, 0);
    }

    fn if_equal(&mut self, value: u32, to: Label) {
        self.jumps.push((self.code.len(), to.0, false));
        self.put(JUMP_EQUAL, value);
    }

    fn if_other(&mut self, value: u32, to: Label) {
        self.jumps.push((self.code.len(), to.0, true));
        self.put(JUMP_EQUAL, value);
    }

    fn drop(&mut self) {
        self.put(RETURN, 0);
    }

    fn finish(mut self) -> Vec<Instruction> {
        // The whole frame, however long.
        self.put(RETURN, u32::MAX);
        for (at, label, otherwise) in self.jumps {
            let distance = self.places[label] - at - 1;
            let instruction = &mut self.code[at];
            if instruction.code == JUMP {
                instruction.value = distance as u32;
                continue;
            }
            // `MOST` keeps every section short enough.
            let short = u8::try_from(distance).expect("a section of fewer than 256 instructions");
            if otherwise {
                instruction.otherwise = short;
            } else {
                instruction.then = short;
            }
        }
        self.code
    }
}

/// The program for a choice.
///
/// # Panics
/// Beyond [`MOST`] EtherTypes or groups.
pub fn compile(choice: &Choice<'_>) -> Vec<Instruction> {
    assert!(choice.ethertypes.len() <= MOST && choice.groups.is_none_or(|g| g.len() <= MOST));
    let mut p = Program::default();
    addressed(&mut p, choice);
    vlan(&mut p, choice.vlan);
    ethertype(&mut p, choice.ethertypes);
    p.finish()
}

/// The program that lets nothing pass.
pub fn nothing() -> [Instruction; 1] {
    [Instruction { code: RETURN, then: 0, otherwise: 0, value: 0 }]
}

fn addressed(p: &mut Program, choice: &Choice<'_>) {
    if choice.foreign && choice.groups.is_none() {
        return;
    }
    let passed = p.label();
    p.put(LOAD_WORD, PACKET_TYPE);
    if !choice.foreign {
        let not_foreign = p.label();
        p.if_other(u32::from(libc::PACKET_OTHERHOST), not_foreign);
        p.drop();
        p.here(not_foreign);
    }
    if let Some(groups) = choice.groups {
        p.if_other(u32::from(libc::PACKET_MULTICAST), passed);
        // The kernel knows everybody's address by that of the device, and loopback has none.
        for &[a, b, c, d, e, f] in [[0xff; 6]].iter().chain(groups) {
            let next = p.label();
            p.put(LOAD_WORD, 0);
            p.if_other(u32::from_be_bytes([a, b, c, d]), next);
            p.put(LOAD_HALF, 4);
            p.if_equal(u32::from(u16::from_be_bytes([e, f])), passed);
            p.here(next);
        }
        p.drop();
    }
    p.here(passed);
}

fn vlan(p: &mut Program, vlan: Vlan) {
    let id = match vlan {
        Vlan::Any => return,
        Vlan::None => 0,
        Vlan::Id(id) => u32::from(id & 0xfff),
    };
    let (in_bytes, tagged, compare, passed) = (p.label(), p.label(), p.label(), p.label());
    p.put(LOAD_WORD, TAG_PRESENT);
    p.if_equal(0, in_bytes);
    p.put(LOAD_WORD, TAG);
    p.jump(compare);
    p.here(in_bytes);
    p.put(LOAD_HALF, TYPE);
    for tag in TAGS {
        p.if_equal(tag, tagged);
    }
    if vlan == Vlan::None {
        p.jump(passed);
    } else {
        p.drop();
    }
    p.here(tagged);
    p.put(LOAD_HALF, TYPE + 2);
    p.here(compare);
    p.put(AND, 0xfff);
    p.if_equal(id, passed);
    p.drop();
    p.here(passed);
}

fn ethertype(p: &mut Program, types: &[u16]) {
    if types.is_empty() {
        return;
    }
    let (second, third, compare, passed) = (p.label(), p.label(), p.label(), p.label());
    p.put(LOAD_HALF, TYPE);
    for tag in TAGS {
        p.if_equal(tag, second);
    }
    p.jump(compare);
    p.here(second);
    p.put(LOAD_HALF, TYPE + 4);
    for tag in TAGS {
        p.if_equal(tag, third);
    }
    p.jump(compare);
    p.here(third);
    p.put(LOAD_HALF, TYPE + 8);
    p.here(compare);
    for &kind in types {
        p.if_equal(u32::from(kind), passed);
    }
    p.drop();
    p.here(passed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as the kernel shows it to a filter.
    struct Shown<'a> {
        bytes: &'a [u8],
        kind: u8,
        tag: Option<u16>,
    }

    /// Runs a program as the kernel does: a load beyond the frame drops it.
    fn passes(program: &[Instruction], frame: &Shown<'_>) -> bool {
        let (mut at, mut a) = (0, 0u32);
        loop {
            let Instruction { code, then, otherwise, value } = program[at];
            at += 1;
            match code {
                RETURN => return value != 0,
                JUMP => at += value as usize,
                JUMP_EQUAL => at += usize::from(if a == value { then } else { otherwise }),
                AND => a &= value,
                LOAD_WORD if value == PACKET_TYPE => a = u32::from(frame.kind),
                LOAD_WORD if value == TAG => a = u32::from(frame.tag.unwrap_or(0)),
                LOAD_WORD if value == TAG_PRESENT => a = u32::from(frame.tag.is_some()),
                LOAD_WORD | LOAD_HALF => {
                    let size = if code == LOAD_WORD { 4 } else { 2 };
                    let Some(bytes) = frame.bytes.get(value as usize..value as usize + size) else {
                        return false;
                    };
                    a = bytes.iter().fold(0, |sum, &b| sum << 8 | u32::from(b));
                }
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// A frame to `destination` with these sixteen-bit words behind the addresses.
    fn frame(destination: [u8; 6], words: &[u16]) -> Vec<u8> {
        let mut bytes = destination.to_vec();
        bytes.extend_from_slice(&[2, 0, 0, 0, 0, 1]);
        bytes.extend(words.iter().flat_map(|w| w.to_be_bytes()));
        bytes
    }

    const ME: [u8; 6] = [2, 0, 0, 0, 0, 9];

    #[test]
    fn ethertypes_pass_behind_no_one_or_two_tags() {
        let program = compile(&Choice { ethertypes: &[0x88b5, 0xaaaa], foreign: true, ..Choice::default() });
        let passes = |words: &[u16], tag| {
            passes(&program, &Shown { bytes: &frame(ME, words), kind: libc::PACKET_HOST, tag })
        };
        for kind in [0x88b5, 0xaaaa] {
            assert!(passes(&[kind], None));
            assert!(passes(&[kind, 0], Some(10)));
            assert!(passes(&[0x8100, 10, kind], None));
            assert!(passes(&[0x8100, 10, kind], Some(5)));
            assert!(passes(&[0x88a8, 10, 0x8100, 5, kind], None));
        }
        assert!(!passes(&[0x0800, 0x88b5, 0x88b5, 0x88b5, 0x88b5], None));
        assert!(!passes(&[0x8100, 0x88b5, 0x0800, 0x88b5, 0x88b5], None));
        assert!(!passes(&[], None) && !passes(&[0x8100, 10], None));
    }

    #[test]
    fn the_outermost_tag_decides_about_the_vlan() {
        let check = |vlan, words: &[u16], tag| {
            let program = compile(&Choice { vlan, foreign: true, ..Choice::default() });
            passes(&program, &Shown { bytes: &frame(ME, words), kind: libc::PACKET_HOST, tag })
        };
        assert!(check(Vlan::Id(10), &[0x88b5], Some(0xe00a)));
        assert!(check(Vlan::Id(10), &[0x8100, 0xe00a, 0x88b5], None));
        assert!(!check(Vlan::Id(10), &[0x88b5], None));
        assert!(!check(Vlan::Id(10), &[0x8100, 0xe00a, 0x88b5], Some(11)));
        assert!(!check(Vlan::Id(10), &[0x88b5], Some(11)));
        assert!(check(Vlan::None, &[0x88b5], None));
        assert!(check(Vlan::None, &[0x88b5], Some(0xe000)));
        assert!(check(Vlan::None, &[0x8100, 0xe000, 0x88b5], None));
        assert!(!check(Vlan::None, &[0x88b5], Some(0xe00a)));
        assert!(!check(Vlan::None, &[0x88a8, 10, 0x88b5], None));
        assert!(check(Vlan::Any, &[], Some(7)) && check(Vlan::Any, &[], None));
    }

    #[test]
    fn foreign_frames_and_other_groups_are_left_out() {
        let groups = [[1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]];
        let check = |foreign, groups: Option<&[[u8; 6]]>, destination, kind| {
            let program = compile(&Choice { foreign, groups, ..Choice::default() });
            passes(&program, &Shown { bytes: &frame(destination, &[0x88b5]), kind, tag: None })
        };
        use libc::{PACKET_BROADCAST, PACKET_HOST, PACKET_MULTICAST, PACKET_OTHERHOST};
        assert!(check(false, None, ME, PACKET_HOST) && check(false, Some(&[]), ME, PACKET_HOST));
        assert!(!check(false, None, ME, PACKET_OTHERHOST) && check(true, None, ME, PACKET_OTHERHOST));
        assert!(check(true, Some(&[]), ME, PACKET_OTHERHOST));
        assert!(check(false, Some(&groups), [0xff; 6], PACKET_BROADCAST));
        assert!(check(false, Some(&[]), [0xff; 6], PACKET_MULTICAST));
        for group in groups {
            assert!(check(false, Some(&groups), group, PACKET_MULTICAST));
            assert!(!check(false, Some(&[]), group, PACKET_MULTICAST));
            assert!(check(false, None, group, PACKET_MULTICAST));
        }
        assert!(!check(false, Some(&groups), [1, 0, 0x5e, 0, 0, 2], PACKET_MULTICAST));
        assert!(!check(false, Some(&groups), [1, 0, 0x5e, 1, 0, 1], PACKET_MULTICAST));
    }

    #[test]
    fn the_longest_program_is_one() {
        let types: Vec<u16> = (0..MOST as u16).map(|n| 0x9000 + n).collect();
        let groups: Vec<[u8; 6]> = (0..MOST as u8).map(|n| [1, 0, 0x5e, 0, 0, n]).collect();
        let choice =
            Choice { ethertypes: &types, vlan: Vlan::Id(4094), foreign: false, groups: Some(&groups) };
        let program = compile(&choice);
        for (kind, group) in types.iter().zip(&groups) {
            let bytes = frame(*group, &[*kind]);
            assert!(passes(
                &program,
                &Shown { bytes: &bytes, kind: libc::PACKET_MULTICAST, tag: Some(4094) }
            ));
        }
        assert!(!passes(&nothing(), &Shown { bytes: &frame(ME, &[0x9000]), kind: 0, tag: None }));
    }
}
