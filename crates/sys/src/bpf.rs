//! Programs for the kernel (bpf(2)): as much of it as redirects received frames to an AF_XDP socket.
//!
//! Programs are put together at run time, without a compiler, by [`Assembler`]. What is attached is attached by a link: it
//! goes when its descriptor is closed, hence also when the process is killed. All of it needs CAP_BPF and CAP_NET_ADMIN in
//! the first user namespace: root of a container or of a user namespace is not enough.

use crate::syscall::{check, syscall};
use crate::{Errno, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// enum bpf_cmd, bpf_map_type, bpf_prog_type, bpf_attach_type of linux/bpf.h
const MAP_CREATE: usize = 0;
const MAP_UPDATE_ELEM: usize = 2;
const PROG_LOAD: usize = 5;
const LINK_CREATE: usize = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// BPF_F_XDP_HAS_FRAGS (Linux 5.18): the program also gets frames that lie in several buffers.
const XDP_HAS_FRAGS: u32 = 1 << 5;
// linux/if_link.h
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// An instruction, laid out as `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u8,
    /// Destination register in one half, source in the other.
    pub registers: u8,
    /// Of a memory access or a jump.
    pub offset: i16,
    /// Constant.
    pub immediate: i32,
}

impl Instruction {
    /// The destination register's number.
    pub const fn destination(&self) -> u8 {
        if cfg!(target_endian = "little") { self.registers & 15 } else { self.registers >> 4 }
    }

    /// The source register's number.
    pub const fn source(&self) -> u8 {
        if cfg!(target_endian = "little") { self.registers >> 4 } else { self.registers & 15 }
    }
}

/// A register. R1 is the context at the start, R0 the result; calls change R0 to R5 and keep R6 to R9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "they are numbers")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
}

/// Octets of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// One.
    Byte = 0x10,
    /// Two, in this machine's byte order.
    Half = 0x08,
    /// Four, in this machine's byte order.
    Word = 0x00,
}

/// When a jump is taken. Numbers are compared without sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum When {
    /// Equal.
    Equal = 0x10,
    /// Above.
    Above = 0x20,
    /// Not equal.
    Different = 0x50,
    /// Below.
    Below = 0xa0,
}

/// What a register is changed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Change {
    /// Sum.
    Add = 0x00,
    /// Bits of both.
    And = 0x50,
    /// Shifted left.
    ShiftLeft = 0x60,
    /// Replaced.
    Set = 0xb0,
}

/// The second value of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Register(Reg),
    /// A constant, sign-extended.
    Constant(i32),
}

impl From<Reg> for Operand {
    fn from(register: Reg) -> Operand {
        Operand::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Operand {
        Operand::Constant(constant)
    }
}

/// A place in a program that can be jumped to, from before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Puts a program together.
#[derive(Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// Jumps, and the label of each.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Assembler {
        Assembler::default()
    }

    fn emit(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    /// A label that is nowhere yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label here.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// `to = *(from + offset)`.
    pub fn load(&mut self, size: Size, to: Reg, from: Reg, offset: i16) {
        self.emit(0x61 | size as u8, to as u8, from as u8, offset, 0);
    }

    /// Changes a register (64 bits).
    pub fn change(&mut self, how: Change, register: Reg, by: impl Into<Operand>) {
        match by.into() {
            Operand::Constant(n) => self.emit(0x07 | how as u8, register as u8, 0, 0, n),
            Operand::Register(from) => self.emit(0x0f | how as u8, register as u8, from as u8, 0, 0),
        }
    }

    /// Jumps if the comparison (64 bits) holds.
    pub fn jump_if(&mut self, left: Reg, when: When, right: impl Into<Operand>, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        match right.into() {
            Operand::Constant(n) => self.emit(0x05 | when as u8, left as u8, 0, 0, n),
            Operand::Register(from) => self.emit(0x0d | when as u8, left as u8, from as u8, 0, 0),
        }
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.emit(0x05, 0, 0, 0, 0);
    }

    /// `to = map`.
    pub fn load_map(&mut self, to: Reg, map: BorrowedFd<'_>) {
        /// BPF_PSEUDO_MAP_FD: the constant is a descriptor of a map.
        const MAP_FD: u8 = 1;
        self.emit(0x18, to as u8, MAP_FD, 0, map.as_raw_fd());
        self.emit(0, 0, 0, 0, 0);
    }

    /// Calls a function of the kernel by its number (`enum bpf_func_id`).
    pub fn call(&mut self, function: i32) {
        self.emit(0x85, 0, 0, 0, function);
    }

    /// Returns R0.
    pub fn exit(&mut self) {
        self.emit(0x95, 0, 0, 0, 0);
    }

    /// The program.
    ///
    /// # Errors
    /// EINVAL for a jump to a label that was not placed; E2BIG for one that is too far.
    pub fn finish(mut self) -> Result<Vec<Instruction>> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].ok_or(Errno::INVAL)?;
            let distance = target as i64 - (at as i64 + 1);
            self.instructions[at].offset = i16::try_from(distance).map_err(|_| Errno::TOOBIG)?;
        }
        Ok(self.instructions)
    }
}

/// `bpf(command, attributes, size)`.
///
/// # Safety
/// Addresses among the attributes are of memory that the command may read, or write, at the lengths given beside them.
unsafe fn bpf(command: usize, attributes: &[u8]) -> Result<usize> {
    let address = attributes.as_ptr() as usize;
    // SAFETY: the kernel reads the attributes at their length; what they point to is the caller's contract.
    check(unsafe { syscall(libc::SYS_bpf, [command, address, attributes.len(), 0, 0, 0]) })
}

/// The beginning of `union bpf_attr`, zeroed.
struct Attributes([u64; 10]);

impl Attributes {
    /// Four octets at `at`, which is a multiple of four.
    fn word(mut self, at: usize, value: u32) -> Attributes {
        let mut octets = self.0[at / 8].to_ne_bytes();
        octets[at % 8..at % 8 + 4].copy_from_slice(&value.to_ne_bytes());
        self.0[at / 8] = u64::from_ne_bytes(octets);
        self
    }

    /// Eight octets at `at`, which is a multiple of eight.
    fn long(mut self, at: usize, value: u64) -> Attributes {
        self.0[at / 8] = value;
        self
    }

    fn octets(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

fn owned(descriptor: usize) -> OwnedFd {
    // SAFETY: the kernel made this descriptor for us just now (close-on-exec: all of bpf(2)'s are).
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}

/// A map from queue numbers to AF_XDP sockets.
pub struct SocketMap(OwnedFd);

impl SocketMap {
    /// For the queues 0 to `entries - 1`.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_NET_ADMIN; EINVAL or ENOSYS where the kernel has no such maps.
    pub fn new(entries: u32) -> Result<SocketMap> {
        let how = Attributes([0; 10]).word(0, MAP_TYPE_XSKMAP).word(4, 4).word(8, 4).word(12, entries);
        // SAFETY: no addresses.
        Ok(SocketMap(owned(unsafe { bpf(MAP_CREATE, &how.octets()) }?)))
    }

    /// Frames of `queue` are redirected to `socket` from now on.
    ///
    /// # Errors
    /// E2BIG beyond the entries; EOPNOTSUPP for another kind of socket.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        let (key, value) = (queue, socket.as_raw_fd());
        let how = Attributes([0; 10])
            .word(0, self.0.as_raw_fd() as u32)
            .long(8, &raw const key as u64)
            .long(16, &raw const value as u64);
        // SAFETY: key and value are locals of the map's sizes.
        unsafe { bpf(MAP_UPDATE_ELEM, &how.octets()) }.map(|_| ())
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

/// A program that the kernel did not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// EPERM without CAP_BPF and CAP_NET_ADMIN; EACCES or EINVAL for a wrong program; EINVAL also where the kernel does not
    /// know a flag.
    pub errno: Errno,
    /// What the kernel's verifier said, if it came that far.
    pub log: String,
}

/// A program for received frames (XDP), checked and translated by the kernel.
pub struct Program(OwnedFd);

impl Program {
    /// Loads it. `fragments`: it also gets frames that lie in several buffers.
    ///
    /// # Errors
    /// [`Rejected`], with the verifier's reasons.
    pub fn load(instructions: &[Instruction], fragments: bool) -> std::result::Result<Program, Rejected> {
        let attempt = |log: &mut [u8]| {
            let how = Attributes([0; 10])
                .word(0, PROG_TYPE_XDP)
                .word(4, instructions.len() as u32)
                .long(8, instructions.as_ptr() as u64)
                .long(16, c"Dual MIT/GPL".as_ptr() as u64)
                .word(24, u32::from(!log.is_empty()))
                .word(28, log.len() as u32)
                .long(32, if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 })
                .word(44, if fragments { XDP_HAS_FRAGS } else { 0 })
                .long(48, u64::from_ne_bytes(*b"bypath_x"))
                .word(68, ATTACH_XDP);
            // SAFETY: instructions, licence and log are live at their lengths.
            unsafe { bpf(PROG_LOAD, &how.octets()) }
        };
        match attempt(&mut []) {
            Ok(descriptor) => Ok(Program(owned(descriptor))),
            Err(Errno::PERM) => Err(Rejected { errno: Errno::PERM, log: String::new() }),
            Err(errno) => {
                let mut log = vec![0u8; 64 * 1024];
                match attempt(&mut log) {
                    Ok(descriptor) => Ok(Program(owned(descriptor))),
                    Err(_) => {
                        let text = log.split(|&b| b == 0).next().unwrap_or_default();
                        Err(Rejected { errno, log: String::from_utf8_lossy(text).trim_end().to_owned() })
                    }
                }
            }
        }
    }

    /// Lets it see what the interface `index` receives, until the attachment is dropped or this process ends.
    ///
    /// # Errors
    /// EBUSY or EEXIST where a program is attached already; EOPNOTSUPP for [`Place::Driver`] where the driver cannot;
    /// EINVAL, ERANGE or EOPNOTSUPP where it cannot with the interface's present MTU or settings; ENODEV; EPERM.
    pub fn attach(&self, index: u32, place: Place) -> Result<Attachment> {
        let mode = match place {
            Place::Driver => XDP_FLAGS_DRV_MODE,
            Place::Generic => XDP_FLAGS_SKB_MODE,
        };
        let how = Attributes([0; 10])
            .word(0, self.0.as_raw_fd() as u32)
            .word(4, index)
            .word(8, ATTACH_XDP)
            .word(12, mode);
        // SAFETY: no addresses.
        Ok(Attachment { _link: owned(unsafe { bpf(LINK_CREATE, &how.octets()) }?) })
    }
}

/// Where a program sees frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the driver, before the kernel makes a packet of its own of each frame ("native").
    Driver,
    /// Behind it: works with every interface, costs more ("generic", "skb").
    Generic,
}

/// A program at its interface. Dropping it takes the program away.
pub struct Attachment {
    _link: OwnedFd,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let mut a = Assembler::new();
        let end = a.label();
        a.jump_if(Reg::R1, When::Equal, 5, end);
        a.change(Change::Set, Reg::R0, 1);
        a.jump(end);
        a.place(end);
        a.exit();
        let program = a.finish().unwrap();
        let offsets: Vec<_> = program.iter().map(|i| (i.code, i.offset)).collect();
        assert_eq!(offsets, [(0x15, 2), (0xb7, 0), (0x05, 0), (0x95, 0)]);
    }

    #[test]
    fn a_label_without_a_place_is_refused() {
        let mut a = Assembler::new();
        let nowhere = a.label();
        a.jump(nowhere);
        assert_eq!(a.finish(), Err(Errno::INVAL));
    }

    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        // linux/bpf.h: BPF_LDX|BPF_MEM|BPF_H, BPF_ALU64|BPF_MOV|BPF_X, BPF_JMP|BPF_JGT|BPF_X, BPF_ALU64|BPF_LSH|BPF_K.
        let mut a = Assembler::new();
        let end = a.label();
        a.load(Size::Half, Reg::R5, Reg::R2, 12);
        a.change(Change::Set, Reg::R4, Reg::R2);
        a.jump_if(Reg::R4, When::Above, Reg::R3, end);
        a.change(Change::ShiftLeft, Reg::R4, 2);
        a.place(end);
        a.exit();
        let program = a.finish().unwrap();
        assert_eq!(program.iter().map(|i| i.code).collect::<Vec<_>>(), [0x69, 0xbf, 0x2d, 0x67, 0x95]);
        assert_eq!((program[0].destination(), program[0].source(), program[0].offset), (5, 2, 12));
        assert_eq!((program[3].destination(), program[3].immediate), (4, 2));
    }
}
