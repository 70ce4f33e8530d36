//! Is there such a program, and can it be preloaded? Answered from the file alone, before it is started.

use bypath_sockets::rules::ProgramNames;
use object::elf::{ET_DYN, FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What matters of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    machine: u16,
    is_64: bool,
    endian: Endianness,
    /// A shared object (or position-independent program).
    pub shared: bool,
    /// The dynamic loader it asks for; none = static.
    pub interpreter: Option<PathBuf>,
}

impl Elf {
    fn same_machine(&self, other: &Elf) -> bool {
        (self.machine, self.is_64, self.endian) == (other.machine, other.is_64, other.endian)
    }

    fn machine_name(&self) -> String {
        use object::elf;
        let name = match self.machine {
            elf::EM_386 => "x86",
            elf::EM_X86_64 => "x86-64",
            elf::EM_ARM => "ARM",
            elf::EM_AARCH64 => "AArch64",
            elf::EM_RISCV => "RISC-V",
            elf::EM_PPC64 => "PowerPC",
            elf::EM_S390 => "S/390",
            other => return format!("machine {other}"),
        };
        format!("{}-bit {name}", if self.is_64 { 64 } else { 32 })
    }
}

/// What the kernel reads of a program before it executes it: no more is read here, whatever the file says of itself. Octets of all program headers
/// (`load_elf_phdrs` in fs/binfmt_elf.c), and of the interpreter's path (PATH_MAX).
const PROGRAM_HEADERS: usize = 65536;
const LONGEST_PATH: usize = 4096;

/// Reads the ELF headers of a file; `None` if it is no ELF file (or one that the kernel does not execute).
///
/// # Errors
/// The file cannot be read.
pub fn elf_of(path: &Path) -> io::Result<Option<Elf>> {
    // What is no file is not opened: that may wait, or do something.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = File::open(path)?;
    let mut start = Vec::with_capacity(size_of::<FileHeader64<Endianness>>());
    (&file).take(start.capacity() as u64).read_to_end(&mut start)?;
    Ok(match FileKind::parse(&*start) {
        Ok(FileKind::Elf32) => headers::<FileHeader32<Endianness>>(&start, &file, false),
        Ok(FileKind::Elf64) => headers::<FileHeader64<Endianness>>(&start, &file, true),
        _ => None,
    })
}

fn headers<H: FileHeader<Endian = Endianness>>(start: &[u8], file: &File, is_64: bool) -> Option<Elf> {
    let header = H::parse(start).ok()?;
    let endian = header.endian().ok()?;
    let count = usize::from(header.e_phnum(endian));
    let len = count * size_of::<H::ProgramHeader>();
    let is_usual = usize::from(header.e_phentsize(endian)) == size_of::<H::ProgramHeader>();
    if len > PROGRAM_HEADERS || (count > 0 && !is_usual) {
        return None;
    }
    let table = part(file, header.e_phoff(endian).into(), len)?;
    let (all, _) = object::pod::slice_from_bytes::<H::ProgramHeader>(&table, count).ok()?;
    // As the kernel: the first one counts.
    let interpreter = match all.iter().find(|h| h.p_type(endian) == PT_INTERP) {
        Some(h) => {
            let len = usize::try_from(h.p_filesz(endian).into()).ok().filter(|len| *len <= LONGEST_PATH)?;
            let path = part(file, h.p_offset(endian).into(), len)?;
            let end = path.iter().position(|octet| *octet == 0)?;
            Some(PathBuf::from(OsStr::from_bytes(&path[..end])))
        }
        None => None,
    };
    Some(Elf {
        machine: header.e_machine(endian),
        is_64,
        endian,
        shared: header.e_type(endian) == ET_DYN,
        interpreter,
    })
}

fn part(file: &File, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut octets = vec![0; len];
    file.read_exact_at(&mut octets, offset).ok()?;
    Some(octets)
}

/// Why a program cannot be started; [`ProgramError::exit_code`] is what `env` and `timeout` answer.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// No such file.
    #[error("{name}: no such program{suggestion}")]
    NotFound {
        /// As given.
        name: String,
        /// Empty, or an addition that begins with a blank.
        suggestion: String,
    },
    /// There is a file, but it cannot be executed.
    #[error("{name}: cannot be executed: {reason}")]
    NotExecutable {
        /// The file.
        name: String,
        /// Why, and the remedy.
        reason: String,
    },
}

impl ProgramError {
    /// 127 or 126.
    pub fn exit_code(&self) -> u8 {
        match self {
            ProgramError::NotFound { .. } => 127,
            ProgramError::NotExecutable { .. } => 126,
        }
    }
}

/// Finds the file that `execvp(3)` would execute for `name` with `path` as PATH.
///
/// # Errors
/// There is none, or none that may be executed.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    if name.as_bytes().contains(&b'/') {
        return executable(Path::new(name)).map(|()| name.into());
    }
    let mut refused = None;
    for directory in directories(path) {
        let candidate = directory.join(name);
        match executable(&candidate) {
            Ok(()) if !name.is_empty() => return Ok(candidate),
            // As execvp: a file that may not be executed counts only if no later directory has a better one.
            Err(e @ ProgramError::NotExecutable { .. }) if !candidate.is_dir() => {
                refused.get_or_insert(e);
            }
            _ => {}
        }
    }
    Err(refused.unwrap_or_else(|| ProgramError::NotFound {
        name: display(name),
        suggestion: suggestion(name, path),
    }))
}

fn directories(path: Option<&OsStr>) -> Vec<PathBuf> {
    // The C library's default.
    std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin")))
        .map(|d| if d.as_os_str().is_empty() { PathBuf::from(".") } else { d })
        .collect()
}

fn executable(path: &Path) -> Result<(), ProgramError> {
    let name = display(path.as_os_str());
    let refused = |reason: String| Err(ProgramError::NotExecutable { name: name.clone(), reason });
    match std::fs::metadata(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(ProgramError::NotFound { name, suggestion: String::new() })
        }
        Err(e) => refused(e.to_string()),
        Ok(m) if m.is_dir() => refused("it is a directory".to_owned()),
        Ok(_) => match rustix::fs::access(path, rustix::fs::Access::EXEC_OK) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::ACCESS) => {
                refused(format!("permission denied (chmod +x {name} if it is yours)"))
            }
            Err(e) => refused(io::Error::from(e).to_string()),
        },
    }
}

/// ` (did you mean ...?)` for a name that is not in PATH.
fn suggestion(name: &OsStr, path: Option<&OsStr>) -> String {
    if Path::new(name).is_file() {
        return format!("; there is one in this directory: did you mean ./{}?", display(name));
    }
    let Some(wanted) = name.to_str().filter(|n| n.len() > 1) else { return String::new() };
    // A third of the letters may differ, but in a short name no more than one.
    let limit = (wanted.chars().count() / 3).clamp(1, 3);
    directories(path)
        .into_iter()
        .filter_map(|d| std::fs::read_dir(d).ok())
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .map(|candidate| (strsim::damerau_levenshtein(wanted, &candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| format!("; did you mean {candidate}?"))
        .unwrap_or_default()
}

fn display(name: &OsStr) -> String {
    if name.is_empty() { "''".to_owned() } else { crate::output::printable(&name.to_string_lossy()) }
}

/// As whom a program is (or would be) started: decides whether set-user-id bits change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
    no_new_privileges: bool,
}

impl Identity {
    /// That of this process.
    ///
    /// # Errors
    /// The kernel knows no such privilege bit.
    pub fn own() -> io::Result<Identity> {
        Ok(Identity {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            no_new_privileges: rustix::thread::no_new_privs()?,
        })
    }

    /// The real user and group of process `pid`.
    ///
    /// # Errors
    /// There is no such process, or /proc is not mounted.
    pub fn of(pid: &str) -> io::Result<Identity> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|l| l.split_whitespace().next()?.parse::<u32>().ok())
        };
        match (field("Uid"), field("Gid")) {
            (Some(uid), Some(gid)) => {
                Ok(Identity { uid, gid, no_new_privileges: field("NoNewPrivs") == Some(1) })
            }
            _ => Err(io::Error::other("no user in /proc/PID/status")),
        }
    }
}

/// What keeps the library out of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No dynamic loader.
    Static,
    /// Built for another machine: `(program, library)`.
    Machine(String, String),
    /// Another C library's loader.
    CLibrary(PathBuf),
    /// The set-user-id bit.
    SetUid(u32),
    /// The set-group-id bit.
    SetGid(u32),
    /// File capabilities.
    Capabilities,
}

impl Obstacle {
    /// Whether LD_PRELOAD may stay for the children of such a program. Loaders of other machines and C
    /// libraries would complain about it or refuse to start.
    pub fn tolerates_preload(&self) -> bool {
        !matches!(self, Obstacle::Machine(..) | Obstacle::CLibrary(_))
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Static => {
                f.write_str("it is statically linked, and only the dynamic loader preloads libraries")
            }
            Obstacle::Machine(program, library) => {
                write!(f, "it is a {program} program and the library is a {library} one")
            }
            Obstacle::CLibrary(loader) => {
                let loader = display(loader.as_os_str());
                write!(f, "it uses another C library (loader {loader}) than the preload library")
            }
            Obstacle::SetUid(uid) => {
                write!(
                    f,
                    "it is set-user-id {uid}, and the dynamic loader preloads nothing across a change of user"
                )
            }
            Obstacle::SetGid(gid) => {
                write!(
                    f,
                    "it is set-group-id {gid}, and the dynamic loader preloads nothing across a change of group"
                )
            }
            Obstacle::Capabilities => f.write_str(
                "it has file capabilities, and the dynamic loader preloads nothing into such programs",
            ),
        }
    }
}

/// Interpreters of interpreters that the kernel follows.
const SCRIPT_DEPTH: usize = 5;

/// Whether the program at `path` can be preloaded with a library built as `library`; the answer names the file
/// that it is about, which for a script is its interpreter.
///
/// A file that cannot be read, or that is neither ELF nor a script (the kernel may know it by binfmt_misc),
/// meets no obstacle that can be seen here.
pub fn obstacle(path: &Path, library: &Elf, identity: Identity) -> Option<(PathBuf, Obstacle)> {
    let mut path = path.to_owned();
    for _ in 0..=SCRIPT_DEPTH {
        match interpreter(&path) {
            Some(next) => path = next,
            None => {
                let found =
                    privileges(&path, identity).or_else(|| machine(&path, library, || is_loader(&path)))?;
                return Some((path, found));
            }
        }
    }
    None
}

/// The same of a program that runs already, whose file is at `path` and was called `name`: none that it names is looked at.
pub fn obstacle_of_running(path: &Path, name: &Path, library: &Elf, identity: Identity) -> Option<Obstacle> {
    let is_loader = || file_name_starts_with(name, LOADERS);
    privileges(path, identity).or_else(|| machine(path, library, is_loader))
}

fn machine(path: &Path, library: &Elf, is_loader: impl FnOnce() -> bool) -> Option<Obstacle> {
    let elf = elf_of(path).ok()??;
    if !elf.same_machine(library) {
        return Some(Obstacle::Machine(elf.machine_name(), library.machine_name()));
    }
    match &elf.interpreter {
        // The loader itself, called by name to load a program, preloads.
        None if is_loader() => None,
        None => Some(Obstacle::Static),
        Some(loader) if is_foreign_loader(loader) => Some(Obstacle::CLibrary(loader.clone())),
        Some(_) => None,
    }
}

fn file_name_starts_with(path: &Path, prefixes: &[&str]) -> bool {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    prefixes.iter().any(|p| name.starts_with(p.as_bytes()))
}

/// How the names of dynamic loaders begin.
const LOADERS: &[&str] = &["ld-", "ld.so"];

fn is_loader(path: &Path) -> bool {
    let real = path.canonicalize();
    [Some(path), real.as_deref().ok()].into_iter().flatten().any(|p| file_name_starts_with(p, LOADERS))
}

/// musl and bionic.
fn is_foreign_loader(loader: &Path) -> bool {
    file_name_starts_with(loader, &["ld-musl", "linker"])
}

fn privileges(path: &Path, identity: Identity) -> Option<Obstacle> {
    const SET_UID: u32 = 0o4000;
    // Without the group's execute bit it once meant mandatory locking.
    const SET_GID: u32 = 0o2010;
    if identity.no_new_privileges || on_nosuid_mount(path) {
        return None;
    }
    let file = std::fs::metadata(path).ok()?;
    if file.mode() & SET_UID != 0 && file.uid() != identity.uid {
        return Some(Obstacle::SetUid(file.uid()));
    }
    if file.mode() & SET_GID == SET_GID && file.gid() != identity.gid {
        return Some(Obstacle::SetGid(file.gid()));
    }
    let capabilities = rustix::fs::getxattr(path, c"security.capability", &mut [0u8; 64][..]);
    (identity.uid != 0 && capabilities.is_ok_and(|n| n > 0)).then_some(Obstacle::Capabilities)
}

fn on_nosuid_mount(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|fs| fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID))
}

/// The interpreter that a script names, looking through `env`; `None` if the file is no script.
pub fn interpreter(path: &Path) -> Option<PathBuf> {
    // What the kernel reads of a file to find out how to execute it (BINPRM_BUF_SIZE).
    let mut start = Vec::with_capacity(256);
    let file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(256).read_to_end(&mut start).ok()?;
    let (program, argument) = parse_shebang(&start)?;
    if Path::new(&program).file_name() == Some(OsStr::new("env")) {
        let named = through_env(&argument).and_then(|n| find(&n, std::env::var_os("PATH").as_deref()).ok());
        return Some(named.unwrap_or_else(|| program.into()));
    }
    Some(program.into())
}

/// The names that a process will have which executes the file at `path`, for rules: see [`ProgramNames`].
pub fn names(path: &Path) -> ProgramNames {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let executed = |path: &Path| text(&path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    match interpreter(path) {
        None => ProgramNames { file: executed(path), invoked: text(path) },
        Some(interpreter) => {
            // `env` executes the interpreter anew: the script's name is gone.
            let invoked = if starts_with_env(path) { text(&interpreter) } else { text(path) };
            ProgramNames { file: executed(&interpreter), invoked }
        }
    }
}

fn starts_with_env(script: &Path) -> bool {
    let mut start = Vec::with_capacity(256);
    let read = File::open(script).and_then(|f| f.take(256).read_to_end(&mut start));
    read.is_ok()
        && parse_shebang(&start).is_some_and(|(p, _)| Path::new(&p).file_name() == Some(OsStr::new("env")))
}

/// `#! program argument` as the kernel reads it.
fn parse_shebang(start: &[u8]) -> Option<(OsString, OsString)> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|b| matches!(b, b'\n' | 0)).next()?.trim_ascii();
    let end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let (program, argument) = (&line[..end], line[end..].trim_ascii());
    (!program.is_empty()).then(|| (os(program), os(argument)))
}

/// The program that `env ARGUMENT` starts, for the forms seen in scripts: `NAME`, `-S [V=X] NAME ARGS`.
fn through_env(argument: &OsStr) -> Option<OsString> {
    argument
        .as_bytes()
        .split(|b| matches!(b, b' ' | b'\t'))
        .map(|word| word.strip_prefix(b"-S").unwrap_or(word))
        .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='))
        .map(os)
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn shebang(line: &str) -> Option<(String, String)> {
        parse_shebang(line.as_bytes()).map(|(p, a)| (p.into_string().unwrap(), a.into_string().unwrap()))
    }

    #[test]
    fn shebang_lines() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(shebang("#!/bin/sh\nx"), pair("/bin/sh", ""));
        assert_eq!(shebang("#! \t/bin/sh -e -x \n"), pair("/bin/sh", "-e -x"));
        assert_eq!(shebang("#!\n"), None);
        assert_eq!(shebang("#"), None);
        assert_eq!(shebang("\x7fELF"), None);
    }

    #[test]
    fn env_is_looked_through() {
        let named = |a: &str| through_env(OsStr::new(a)).map(|n| n.into_string().unwrap());
        assert_eq!(named("python3").as_deref(), Some("python3"));
        assert_eq!(named("-S python3 -u").as_deref(), Some("python3"));
        assert_eq!(named("-SA=b node --x").as_deref(), Some("node"));
        assert_eq!(named(""), None);
    }

    #[test]
    fn this_test_is_a_dynamic_program_for_this_machine() {
        let elf = elf_of(Path::new("/proc/self/exe")).unwrap().unwrap();
        assert!(elf.interpreter.is_some());
        let me = Identity::own().unwrap();
        assert_eq!(obstacle(Path::new("/proc/self/exe"), &elf, me), None);
    }

    /// An ELF file of this machine: what is at which place, and how long the rest makes it, of which nothing is on the disk.
    fn file_of(name: &str, parts: &[(u64, &[u8])], len: u64) -> PathBuf {
        let path = std::env::temp_dir().join(format!("bypath-elf-{}-{name}", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut header = [0; 64];
        File::open("/proc/self/exe").unwrap().read_exact(&mut header).unwrap();
        file.write_all_at(&header, 0).unwrap();
        for (place, octets) in parts {
            file.write_all_at(octets, *place).unwrap();
        }
        file.set_len(len).unwrap();
        path
    }

    /// Octets that this thread has read by now.
    fn read_by_now() -> u64 {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).unwrap()
    }

    #[test]
    fn no_more_is_read_of_a_program_than_the_kernel_reads() {
        const HEADERS: u16 = 65534;
        let le = |n: u64| n.to_le_bytes();
        let at = |place: u64, octets: &[u8]| (place, octets.to_vec());
        // A number of headers that section 0 has.
        let by_section = [
            at(32, &le(4096)),
            at(40, &le(64)),
            at(56, &u16::MAX.to_le_bytes()),
            at(58, &64u16.to_le_bytes()),
            at(60, &1u16.to_le_bytes()),
            at(64 + 44, &3_000_000u32.to_le_bytes()),
        ];
        // An interpreter in each of very many headers, whose path has no end.
        let header = [&3u32.to_le_bytes()[..], &[0; 4], &le(8 << 20), &[0; 16], &le(4096), &[0; 16]].concat();
        let interpreters =
            [at(32, &le(4096)), at(56, &HEADERS.to_le_bytes()), at(4096, &header.repeat(HEADERS.into()))];
        // One that is as long as the file is.
        let long = [&3u32.to_le_bytes()[..], &[0; 12], &[0; 16], &le(64 << 20), &[0; 16]].concat();
        let long = [at(32, &le(4096)), at(56, &1u16.to_le_bytes()), at(4096, &long)];
        for (name, parts) in
            [("section", &by_section[..]), ("interpreters", &interpreters[..]), ("long", &long[..])]
        {
            let parts: Vec<_> = parts.iter().map(|(place, octets)| (*place, &octets[..])).collect();
            let path = file_of(name, &parts, 300 << 20);
            let before = read_by_now();
            let found = elf_of(&path).unwrap();
            let read = read_by_now() - before;
            std::fs::remove_file(&path).unwrap();
            assert!(read < 100_000, "{name}: {read} octets were read");
            assert_eq!(found, None, "{name}");
        }
    }

    #[test]
    fn own_identity_is_the_one_in_proc() {
        assert_eq!(Identity::own().unwrap(), Identity::of(&std::process::id().to_string()).unwrap());
    }

    #[test]
    fn other_machine_is_an_obstacle_that_drops_the_preload() {
        let exe = Path::new("/proc/self/exe");
        let mut library = elf_of(exe).unwrap().unwrap();
        library.is_64 = false;
        let (_, found) = obstacle(exe, &library, Identity::own().unwrap()).unwrap();
        assert!(matches!(found, Obstacle::Machine(..)) && !found.tolerates_preload(), "{found}");
    }

    #[test]
    fn changes_of_user_are_obstacles_only_if_they_are_changes() {
        let path = std::env::temp_dir().join(format!("bypath-setid-{}", std::process::id()));
        std::fs::copy("/proc/self/exe", &path).unwrap();
        let owner = std::fs::metadata(&path).unwrap();
        let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let same = Identity { uid: owner.uid(), gid: owner.gid(), no_new_privileges: false };
        let other = Identity { uid: owner.uid() + 1, gid: owner.gid() + 1, no_new_privileges: false };
        // On a nosuid mount the bits mean nothing.
        let effective = |o| if on_nosuid_mount(&path) { None } else { Some(o) };

        set_mode(0o4755);
        assert_eq!(privileges(&path, same), None);
        assert_eq!(privileges(&path, other), effective(Obstacle::SetUid(owner.uid())));
        assert_eq!(privileges(&path, Identity { no_new_privileges: true, ..other }), None);
        set_mode(0o2755);
        assert_eq!(privileges(&path, same), None);
        assert_eq!(privileges(&path, other), effective(Obstacle::SetGid(owner.gid())));
        set_mode(0o755);
        assert_eq!(privileges(&path, other), None);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn loaders_are_known_by_name() {
        assert!(is_foreign_loader(Path::new("/lib/ld-musl-x86_64.so.1")));
        assert!(!is_foreign_loader(Path::new("/lib64/ld-linux-x86-64.so.2")));
        assert!(is_loader(Path::new("/lib64/ld-linux-x86-64.so.2")));
    }

    #[test]
    fn default_search_path_is_the_c_librarys() {
        assert_eq!(directories(None), [PathBuf::from("/bin"), PathBuf::from("/usr/bin")]);
        assert_eq!(directories(Some(OsStr::new(":/x"))), [PathBuf::from("."), PathBuf::from("/x")]);
    }
}
