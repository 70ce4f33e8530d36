//! Where netstack services are found: a folder with a socket for each name.

use bypath_sys::{fd, process, seqpacket, session, unix};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::DirBuilder;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// Variable that names the only folder.
pub const VARIABLE: &str = "BYPATH_NETSTACK_DIR";
/// Longest path of an AF_UNIX socket.
pub const LONGEST_PATH: usize = 107;

/// A folder where services may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    path: PathBuf,
    /// Whose it must be alone, together with the folder that it is in: anybody may make names where that is.
    owner: Option<u32>,
    /// These two, for system calls.
    both: Option<[CString; 2]>,
    /// What both are in, if a variable says what that is: nobody else must be able to exchange them.
    session: Option<CString>,
}

impl Folder {
    fn new(path: PathBuf, owner: Option<u32>) -> Folder {
        let name = |path: Option<&Path>| CString::new(path?.as_os_str().as_bytes()).ok();
        let both = || Some([name(path.parent())?, name(Some(&path))?]);
        Folder { both: both(), path, owner, session: None }
    }

    /// Of a session of this user's, as `$XDG_RUNTIME_DIR` says.
    fn of_session(session: &Path, owner: u32) -> Folder {
        let folder = Folder::new(session.join("bypath/netstack"), Some(owner));
        Folder { session: CString::new(session.as_os_str().as_bytes()).ok(), ..folder }
    }

    /// The path of the service `name`'s socket, in `room`; `None` where the folder may be a stranger's, or the path is too
    /// long.
    pub fn socket<'a>(&self, name: &str, room: &'a mut [u8; LONGEST_PATH]) -> Option<&'a [u8]> {
        let folder = self.path.as_os_str().as_bytes();
        let len = folder.len() + 1 + name.len();
        let path = room.get_mut(..len).filter(|_| self.is_trusted())?;
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = b'/';
        path[folder.len() + 1..].copy_from_slice(name.as_bytes());
        Some(path)
    }

    /// Whether nobody else can have put names there.
    fn is_trusted(&self) -> bool {
        let Some(owner) = self.owner else { return true };
        self.session.as_ref().is_none_or(|session| fd::is_safe_directory(session, owner))
            && self
                .both
                .as_ref()
                .is_some_and(|both| both.iter().all(|path| fd::is_own_directory(path, owner)))
    }

    /// Whether a service of this user's can have its socket there: who goes by a path comes to another one if somebody exchanges what it leads through.
    pub fn has_services_of(&self, uid: u32) -> bool {
        self.owner.is_none_or(|owner| uid == owner || uid == 0)
    }

    fn make(&self) -> io::Result<()> {
        match self.owner {
            None => DirBuilder::new().recursive(true).mode(0o755).create(&self.path)?,
            Some(owner) => {
                if let Some(session) = &self.session {
                    session::check(Path::new(OsStr::from_bytes(session.as_bytes())))?;
                }
                let refused = || {
                    let text = "somebody else made it, or may write to it";
                    io::Error::new(io::ErrorKind::PermissionDenied, text)
                };
                // Nothing is made where somebody else's link leads: what is this user's alone stays what it is.
                for path in self.both.as_ref().ok_or_else(refused)? {
                    match DirBuilder::new().mode(0o700).create(OsStr::from_bytes(path.as_bytes())) {
                        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                        _ if !fd::is_own_directory(path, owner) => return Err(refused()),
                        _ => {}
                    }
                }
                if !self.is_trusted() {
                    return Err(refused());
                }
            }
        }
        // Whether a name can be made there is not told by its mode alone.
        let probe = self.path.join(format!(".{}", std::process::id()));
        fs::create_dir(&probe)?;
        fs::remove_dir(&probe)
    }
}

/// Where services may be, in the order in which they are looked for. `lookup` is a `getenv`; `uid` is this user, and `outside` the
/// same one outside of this user namespace: users who are root of namespaces of their own do not share a name.
pub fn folders(lookup: impl Fn(&str) -> Option<OsString>, uid: u32, outside: u32) -> Vec<Folder> {
    let set = |name| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set(VARIABLE) {
        return vec![Folder::new(path, None)];
    }
    let of_session = set("XDG_RUNTIME_DIR").filter(|path| path.is_absolute());
    let of_session = of_session.map(|path| Folder::of_session(&path, uid));
    let of_system = Folder::new("/run/bypath/netstack".into(), None);
    let temporary = Folder::new(format!("/tmp/bypath-{outside}/netstack").into(), Some(uid));
    [Some(of_system), of_session, Some(temporary)].into_iter().flatten().collect()
}

fn of_process() -> Vec<Folder> {
    folders(|name| std::env::var_os(name), process::euid(), process::euid_outside())
}

/// No folder for a service.
#[derive(Debug)]
pub struct PlaceError(Vec<(PathBuf, io::Error)>);

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no folder for the service's socket")?;
        for (path, error) in &self.0 {
            write!(f, "; {}: {error}", path.display())?;
        }
        write!(f, " (name one with {VARIABLE}=FOLDER)")
    }
}

impl std::error::Error for PlaceError {}

/// The folder where a service of this process puts its socket, which is made if need be.
///
/// # Errors
/// None of the folders can be made, or written to, or is this user's alone.
pub fn folder_to_serve() -> Result<PathBuf, PlaceError> {
    first_made(of_process())
}

fn first_made(folders: Vec<Folder>) -> Result<PathBuf, PlaceError> {
    let mut refused = Vec::new();
    for folder in folders {
        match folder.make() {
            Ok(()) => return Ok(folder.path),
            Err(e) => refused.push((folder.path, e)),
        }
    }
    Err(PlaceError(refused))
}

/// The socket of the service `name`, if one is there for this process.
pub fn find(name: &str) -> Option<PathBuf> {
    first_found(&of_process(), name)
}

/// Name of the socket that is there while the service `name` is about to be: no service can have it.
pub fn starting_name(name: &str) -> String {
    format!(".{name}.starting")
}

/// Names of one other user, and of all of them, that are told of: in a folder that was named, or is for all users, anybody may have as many as he likes.
const OF_USER: usize = 16;
const OF_USERS: usize = 64;

/// A name of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The service's.
    pub name: String,
    /// Its socket.
    pub path: PathBuf,
    /// Who made the name; who listens there may be somebody else.
    pub owner: u32,
}

/// Services that are found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct All {
    /// Names of root and this user first, then those of others, users in turn; each by name.
    pub services: Vec<Named>,
    /// Names of others that are not among them.
    pub left_out: usize,
}

/// Every service that this process finds. Some may have been left behind.
pub fn all() -> All {
    all_of(&of_process(), process::euid(), |file| Some(file))
}

/// Every service that is said to be about to be there, with the socket that says so. Some may have been left behind.
pub fn all_starting() -> All {
    all_of(&of_process(), process::euid(), |file| file.strip_prefix('.')?.strip_suffix(".starting"))
}

/// `name_of`: the service's, of a file's.
fn all_of(folders: &[Folder], own: u32, name_of: impl Fn(&str) -> Option<&str>) -> All {
    let trusted = folders.iter().filter(|folder| folder.is_trusted());
    let entries = trusted.filter_map(|folder| fs::read_dir(&folder.path).ok()).flatten().flatten();
    let files = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found = BTreeMap::new();
    let (mut of_user, mut of_users, mut left_out) = (BTreeMap::<u32, usize>::new(), 0, 0);
    let mut may = |owner: u32| {
        let its = of_user.entry(owner).or_default();
        let fits = *its < OF_USER && of_users < OF_USERS;
        (*its, of_users) = (*its + usize::from(fits), of_users + usize::from(fits));
        left_out += usize::from(!fits);
        fits
    };
    for file in files {
        let name = name_of(&file).filter(|name| bypath_shm::service::is_name(name));
        let Some(name) = name.filter(|name| !found.contains_key(*name)).map(str::to_owned) else { continue };
        if let Some((path, owner)) = first_of(folders, own, &file, &mut may) {
            found.insert(name.clone(), Named { name, path, owner });
        }
    }
    let mut turns = BTreeMap::<u32, usize>::new();
    let turn = |service: Named| {
        let turn = turns.entry(service.owner).or_default();
        *turn += usize::from(is_other(service.owner, own));
        (*turn, service)
    };
    let mut services: Vec<(usize, Named)> = found.into_values().map(turn).collect();
    services.sort_by_key(|(turn, _)| *turn);
    All { services: services.into_iter().map(|(_, service)| service).collect(), left_out }
}

/// Whether who listens at the other end of a connection to this path may be believed: in a folder of the own user's it is his or root's, whatever the path
/// leads through. Who names a folder says whom he trusts.
///
/// # Errors
/// Whose it is.
pub fn is_believed(path: &Path, connected: BorrowedFd<'_>) -> Result<(), u32> {
    is_of(&of_process(), path, connected)
}

/// Whether the pair that `end` is of was made by the process that listens where this connection leads; `None`: nobody knows, as one of them has ended, or the kernel
/// has no numbers of processes (before Linux 6.9).
pub fn has_made(connected: bypath_sys::Result<OwnedFd>, end: i32) -> Option<bool> {
    let maker = unix::peer_process(end)?;
    let service = connected.ok().and_then(|service| unix::peer_process(service.as_raw_fd()))?;
    Some(maker == service)
}

fn is_of(folders: &[Folder], path: &Path, connected: BorrowedFd<'_>) -> Result<(), u32> {
    let peer = unix::peer_credentials(connected.as_raw_fd()).map_or(process::OVERFLOW_UID, |peer| peer.uid);
    let mut its = folders.iter().filter(|folder| path.parent() == Some(&folder.path));
    if its.all(|folder| folder.has_services_of(peer)) { Ok(()) } else { Err(peer) }
}

fn first_found(folders: &[Folder], name: &str) -> Option<PathBuf> {
    first_of(folders, process::euid(), name, &mut |_| true).map(|(path, _)| path)
}

/// The first socket of this name, and who made the name; `may`: whether another user's counts. It is asked before the name is looked at any closer: a link of
/// another user's, which may lead through a file system that he serves, is followed nowhere.
fn first_of(
    folders: &[Folder],
    own: u32,
    name: &str,
    may: &mut dyn FnMut(u32) -> bool,
) -> Option<(PathBuf, u32)> {
    let mut room = [0; LONGEST_PATH];
    folders.iter().find_map(|folder| {
        let path = PathBuf::from(OsStr::from_bytes(folder.socket(name, &mut room)?));
        let standing = seqpacket::Standing::at(&path).ok()?;
        let leads = |to: &PathBuf| fs::metadata(to).is_ok_and(|m| m.file_type().is_socket());
        let is_socket = if is_other(standing.owner, own) {
            standing.is_socket && may(standing.owner)
        } else {
            standing.is_socket || standing.link.as_ref().is_some_and(leads)
        };
        is_socket.then_some((path, standing.owner))
    })
}

/// Connects to a socket that was found: to what stands there by now, and through links of root and this user alone.
///
/// # Errors
/// Those of [`seqpacket::connect_led`].
pub fn connect(path: &Path) -> bypath_sys::Result<OwnedFd> {
    let own = process::euid();
    seqpacket::connect_led(path, |owner| !is_other(owner, own))
}

fn is_other(owner: u32, own: u32) -> bool {
    owner != 0 && owner != own
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("bypath-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    }

    #[test]
    fn the_variable_names_the_only_folder() {
        let one = folders(|name| (name == VARIABLE).then(|| "/x".into()), 7, 7);
        assert_eq!(one, [Folder::new("/x".into(), None)]);
        let all = folders(|name| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into()), 0, 7);
        let paths: Vec<_> = all.iter().map(|f| f.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/run/bypath/netstack", "/run/user/7/bypath/netstack", "/tmp/bypath-7/netstack"]);
        assert_eq!(all[2].owner, Some(0));
        assert_eq!(all[1].session.as_deref(), Some(c"/run/user/7"));
        assert_eq!(folders(|_| Some("".into()), 7, 7).len(), 2);
    }

    #[test]
    fn the_first_folder_that_can_be_made_is_taken() {
        let top = scratch("made");
        fs::write(top.join("file"), "").unwrap();
        let first = Folder::new(top.join("file/netstack"), None);
        let second = Folder::new(top.join("a/netstack"), Some(process::euid()));
        assert_eq!(first_made(vec![first.clone(), second.clone()]).unwrap(), second.path);
        assert_eq!(fs::read_dir(&second.path).unwrap().count(), 0);
        let error = first_made(vec![first]).unwrap_err().to_string();
        assert!(error.contains("file/netstack") && error.contains(VARIABLE), "{error}");
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_neither_used_nor_believed() {
        let top = scratch("open");
        let folder = Folder::new(top.join("a/netstack"), Some(process::euid()));
        folder.make().unwrap();
        let listener = UnixListener::bind(folder.path.join("lab")).unwrap();
        fs::write(folder.path.join("file"), "").unwrap();
        assert_eq!(first_found(std::slice::from_ref(&folder), "lab"), Some(folder.path.join("lab")));
        assert_eq!(first_found(std::slice::from_ref(&folder), "file"), None);
        let again = [folder.clone(), folder.clone()];
        let lab = Named { name: "lab".to_owned(), path: folder.path.join("lab"), owner: process::euid() };
        assert_eq!(
            all_of(&again, process::euid(), |file| Some(file)),
            All { services: vec![lab], left_out: 0 }
        );
        assert_eq!(first_found(std::slice::from_ref(&folder), &"x".repeat(100)), None);
        fs::set_permissions(top.join("a"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(first_found(std::slice::from_ref(&folder), "lab"), None);
        assert!(folder.make().is_err());
        let stranger = Folder { owner: Some(process::euid() + 1), ..folder };
        assert_eq!(first_found(&[stranger], "lab"), None);
        drop(listener);
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn nothing_is_made_where_a_link_leads() {
        let top = scratch("link");
        fs::create_dir(top.join("private")).unwrap();
        std::os::unix::fs::symlink("private", top.join("a")).unwrap();
        let folder = Folder::new(top.join("a/netstack"), Some(process::euid()));
        let told = folder.make().unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::PermissionDenied, "{told}");
        assert_eq!(fs::read_dir(top.join("private")).unwrap().count(), 0);
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_session_in_which_others_exchange_names_is_neither_used_nor_believed() {
        let top = scratch("session");
        let own = process::euid();
        let folder = Folder::of_session(&top, own);
        folder.make().unwrap();
        let _listener = UnixListener::bind(folder.path.join("lab")).unwrap();
        let found = || first_found(std::slice::from_ref(&folder), "lab");
        let told = || folder.make().unwrap_err().to_string();
        assert!(found().is_some());
        fs::set_permissions(&top, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(found(), None);
        assert!(
            told().contains("others may write") && told().contains("env -u XDG_RUNTIME_DIR"),
            "{}",
            told()
        );
        // As in /tmp, where nobody exchanges what is another's.
        fs::set_permissions(&top, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(found().is_some());
        fs::set_permissions(&top, fs::Permissions::from_mode(0o700)).unwrap();
        // Only root can give it away.
        if own == 0 {
            std::os::unix::fs::chown(&top, Some(12345), None).unwrap();
            assert_eq!(found(), None);
            assert!(told().contains("user 12345's") && told().contains("sudo -i"), "{}", told());
        }
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn services_of_strangers_are_those_of_folders_that_were_named() {
        let own = Folder::new("/tmp/bypath-7/netstack".into(), Some(7));
        assert_eq!([0, 7, 8].map(|uid| own.has_services_of(uid)), [true, true, false]);
        assert!(Folder::new("/x".into(), None).has_services_of(8));
    }

    #[test]
    fn names_of_others_come_last_and_are_bounded() {
        let own = process::euid();
        if own != 0 {
            // Only root can give names away. The summary of the whole test command names it.
            if let Some(file) = std::env::var_os("BYPATH_TEST_SKIPS") {
                let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
                let line = "sockets::place::names_of_others\tneeds root to give names away\n";
                io::Write::write_all(&mut file, line.as_bytes()).unwrap();
            }
            return;
        }
        let top = scratch("names");
        let listens = |name: &str, owner: u32| {
            let listener = UnixListener::bind(top.join(name)).unwrap();
            std::os::unix::fs::chown(top.join(name), Some(owner), None).unwrap();
            listener
        };
        let mut kept: Vec<_> = (10..40).map(|n| listens(&format!("a{n}"), 7)).collect();
        kept.extend([listens("b", 8), listens("x", 9), listens("y", 0)]);
        // His name for what is root's, and root's for what is his.
        for (name, to, owner) in [("c", "y", 8), ("z", "b", 0)] {
            std::os::unix::fs::symlink(top.join(to), top.join(name)).unwrap();
            std::os::unix::fs::lchown(top.join(name), Some(owner), None).unwrap();
        }
        let folder = [Folder::new(top.clone(), None)];
        let all = all_of(&folder, 9, |file| Some(file));
        let found: Vec<_> = all.services.iter().map(|s| (s.name.as_str(), s.owner)).collect();
        assert_eq!(found[..3], [("x", 9), ("y", 0), ("z", 0)]);
        assert_eq!((found[3].1, found[4], found[5].1), (7, ("b", 8), 7));
        assert_eq!((found.len(), all.left_out), (4 + OF_USER, 30 - OF_USER));
        assert_eq!(first_found(&folder, "c"), None);
        assert!(first_found(&folder, "b").is_some() && first_found(&folder, "z").is_some());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn who_listens_in_an_own_folder_is_believed_if_it_is_the_own_user() {
        let top = scratch("believed");
        let socket = top.join("lab");
        let _listener = UnixListener::bind(&socket).unwrap();
        let end = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let own = process::euid();
        let of = |owner| is_of(&[Folder::new(top.clone(), owner)], &socket, end.as_fd());
        assert_eq!([Some(own), None].map(of), [Ok(()); 2]);
        let stranger = Folder::new(top.clone(), Some(own + 1));
        let expected = if own == 0 { Ok(()) } else { Err(own) };
        assert_eq!(is_of(std::slice::from_ref(&stranger), &socket, end.as_fd()), expected);
        assert_eq!(is_of(&[stranger], Path::new("/elsewhere/lab"), end.as_fd()), Ok(()));
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_folder_to_which_a_link_of_proc_leads_is_neither_used_nor_believed() {
        let top = scratch("led");
        let own = process::euid();
        let folder = |top: &Path| Folder::of_session(top, own);
        folder(&top).make().unwrap();
        let led = Path::new("/proc/self/root").join(top.strip_prefix("/").unwrap());
        assert!(led.join("bypath/netstack").is_dir() && folder(&top).is_trusted());
        assert!(!folder(&led).is_trusted());
        let told = folder(&led).make().unwrap_err().to_string();
        assert!(told.contains("link of /proc") && told.contains("env -u XDG_RUNTIME_DIR"), "{told}");
        fs::remove_dir_all(top).unwrap();
    }
}
