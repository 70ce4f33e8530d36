//! What an executable file will be run by. Not what a script names, nor what binfmt_misc does.

use crate::{Errno, Result, fd};
use std::ffi::CStr;

/// `struct Elf64_Ehdr` and `Elf64_Phdr` (elf(5)): sizes, and where the fields stand that are read here.
const HEADER_SIZE: usize = 64;
const MACHINE_AT: usize = 18;
const PARTS_AT: usize = 32;
const PART_SIZE_AT: usize = 54;
const PARTS_COUNT_AT: usize = 56;
const PART_SIZE: usize = 56;
const PART_OFFSET_AT: usize = 8;
const PART_LEN_AT: usize = 32;
const PT_INTERP: u32 = 3;

/// EM_X86_64, EM_AARCH64.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// Most parts of a file that are looked at; linkers make a dozen.
const MOST_PARTS: usize = 64;
/// Octets of a loader's name at most, with its NUL.
const LONGEST_NAME: usize = 256;

/// The device and inode of an open program, if it is one of this machine whose loader is the file `loader` (device, inode), and that file gives no
/// rights of its own: a loader leaves out what is to be preloaded then.
///
/// # Errors
/// EACCES: it gives rights; ENOEXEC: it has no loader, another one, or is no program of this machine; as of pread(2): EBADF where it is not open for reading.
pub fn loaded_by(file: i32, loader: (u64, u64)) -> Result<(u64, u64)> {
    let st = fd::status_of(file)?;
    if st.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Errno::NOEXEC);
    }
    if st.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0 || fd::has_attribute(file, c"security.capability")? {
        return Err(Errno::ACCESS);
    }
    let mut name = [0; LONGEST_NAME];
    if fd::file(interpreter(file, &mut name)?)? != loader {
        return Err(Errno::NOEXEC);
    }
    Ok((st.st_dev, st.st_ino))
}

/// The loader that an ELF file names.
fn interpreter(file: i32, name: &mut [u8; LONGEST_NAME]) -> Result<&CStr> {
    let mut header = [0; HEADER_SIZE];
    fill(file, &mut header, 0)?;
    // ELFCLASS64, ELFDATA2LSB.
    let is_ours = header.starts_with(b"\x7fELF\x02\x01") && number(&header, MACHINE_AT, 2) == MACHINE.into();
    let (count, size) = (number(&header, PARTS_COUNT_AT, 2) as usize, number(&header, PART_SIZE_AT, 2));
    if !is_ours || size != PART_SIZE as u64 || count > MOST_PARTS {
        return Err(Errno::NOEXEC);
    }
    let mut parts = [0; MOST_PARTS * PART_SIZE];
    let parts = &mut parts[..count * PART_SIZE];
    fill(file, parts, number(&header, PARTS_AT, 8))?;
    // The kernel takes the first one, too.
    let part = parts.chunks_exact(PART_SIZE).find(|part| number(part, 0, 4) == PT_INTERP.into());
    let part = part.ok_or(Errno::NOEXEC)?;
    let len = usize::try_from(number(part, PART_LEN_AT, 8)).map_err(|_| Errno::NOEXEC)?;
    let name = name.get_mut(..len).ok_or(Errno::NOEXEC)?;
    fill(file, name, number(part, PART_OFFSET_AT, 8))?;
    CStr::from_bytes_until_nul(name).map_err(|_| Errno::NOEXEC)
}

/// `len` octets at `at`, the lowest first.
fn number(octets: &[u8], at: usize, len: usize) -> u64 {
    octets[at..at + len].iter().rev().fold(0, |n, octet| n << 8 | u64::from(*octet))
}

fn fill(file: i32, octets: &mut [u8], at: u64) -> Result<()> {
    let len = octets.len();
    if fd::read_at(file, octets, at)? == len { Ok(()) } else { Err(Errno::NOEXEC) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    /// This program, which has a loader, and the name of that.
    fn dynamic() -> (Vec<u8>, String) {
        let file = File::open("/proc/self/exe").expect("this program");
        let mut name = [0; LONGEST_NAME];
        let name = interpreter(file.as_raw_fd(), &mut name).expect("a loader");
        (fs::read("/proc/self/exe").expect("this program"), name.to_str().expect("a path").to_owned())
    }

    fn identity(path: impl AsRef<Path>) -> (u64, u64) {
        let of = fs::metadata(path).expect("a file");
        (of.dev(), of.ino())
    }

    /// What is said of a file of these octets.
    fn said(name: &str, octets: &[u8], mode: u32, loader: (u64, u64)) -> Result<()> {
        let path = std::env::temp_dir().join(format!("bypath-image-{name}-{}", std::process::id()));
        fs::write(&path, octets).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        let (file, wanted) = (File::open(&path).expect("the file"), identity(&path));
        fs::remove_file(&path).expect("the file");
        loaded_by(file.as_raw_fd(), loader).map(|found| assert_eq!(found, wanted))
    }

    #[test]
    fn a_program_with_the_own_loader_is_told_from_others() {
        let (octets, name) = dynamic();
        let loader = identity(&name);
        assert_eq!(said("own", &octets, 0o755, loader), Ok(()));
        assert_eq!(said("other", &octets, 0o755, identity("/proc/self/exe")), Err(Errno::NOEXEC));
        assert_eq!(said("setuid", &octets, 0o4755, loader), Err(Errno::ACCESS));
        assert_eq!(said("setgid", &octets, 0o2755, loader), Err(Errno::ACCESS));
        // A static one.
        let mut bare = octets.clone();
        let first = number(&bare, PARTS_AT, 8) as usize;
        let count = number(&bare, PARTS_COUNT_AT, 2) as usize;
        for part in bare[first..].chunks_exact_mut(PART_SIZE).take(count) {
            if number(part, 0, 4) == PT_INTERP.into() {
                part[..4].fill(0);
            }
        }
        assert_eq!(said("bare", &bare, 0o755, loader), Err(Errno::NOEXEC));
    }

    #[test]
    fn what_is_broken_or_no_program_has_no_loader() {
        let (octets, name) = dynamic();
        let loader = identity(&name);
        for (i, octets) in
            [&b""[..], b"#!/bin/sh\n", &[0; 100], &octets[..63], &octets[..100]].iter().enumerate()
        {
            assert_eq!(said(&format!("short{i}"), octets, 0o755, loader), Err(Errno::NOEXEC));
        }
        let first = number(&octets, PARTS_AT, 8) as usize;
        let at = octets[first..].chunks_exact(PART_SIZE).position(|p| number(p, 0, 4) == PT_INTERP.into());
        let part = first + at.expect("a loader") * PART_SIZE;
        // Class, order of octets, machine, place and size and number of the parts; place and length of the name.
        let places = [
            4,
            5,
            MACHINE_AT,
            PARTS_AT + 7,
            PART_SIZE_AT,
            PARTS_COUNT_AT + 1,
            part + PART_OFFSET_AT + 7,
            part + PART_LEN_AT + 7,
        ];
        for place in places {
            let mut broken = octets.clone();
            broken[place] ^= 0x40;
            let told = said(&format!("broken{place}"), &broken, 0o755, loader);
            assert!(matches!(told, Err(Errno::NOEXEC | Errno::INVAL)), "{place}: {told:?}");
        }
        // An empty name, and one without an end.
        for len in [0, name.len() as u8] {
            let mut broken = octets.clone();
            broken[part + PART_LEN_AT..part + PART_LEN_AT + 8].copy_from_slice(&u64::from(len).to_le_bytes());
            assert_eq!(said(&format!("name{len}"), &broken, 0o755, loader), Err(Errno::NOEXEC));
        }
        let folder = File::open("/").expect("a folder");
        assert_eq!(loaded_by(folder.as_raw_fd(), loader), Err(Errno::NOEXEC));
    }
}
