//! A folder in which SEQPACKET sockets have names, for processes of several network namespaces: abstract names are those of
//! one. Nothing in this file waits.

use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd, turn, unix};
use std::ffi::CStr;

/// An open folder, whatever its path leads to later.
#[derive(Debug)]
pub struct Folder {
    fd: i32,
    status: libc::stat,
}

impl Drop for Folder {
    fn drop(&mut self) {
        fd::close(self.fd);
    }
}

/// A name is at most so long.
const LONGEST_NAME: usize = 48;

fn open_at(folder: i32, name: &CStr, flags: i32, floor: i32) -> Result<i32> {
    let flags = flags | libc::O_PATH | libc::O_CLOEXEC;
    turn::high(floor, || {
        // SAFETY: a NUL-terminated name.
        check(unsafe {
            syscall(libc::SYS_openat, [folder as usize, name.as_ptr() as usize, flags as usize, 0, 0, 0])
        })
        .map(|made| made as i32)
    })
}

impl Folder {
    /// Opens it, with a descriptor above `floor`.
    ///
    /// # Errors
    /// As open(2): ENOENT, ENOTDIR, EACCES, EMFILE.
    pub fn open(path: &CStr, floor: i32) -> Result<Folder> {
        let fd = open_at(libc::AT_FDCWD, path, libc::O_DIRECTORY, floor)?;
        match fd::status_of(fd) {
            Ok(status) => Ok(Folder { fd, status }),
            Err(e) => {
                fd::close(fd);
                Err(e)
            }
        }
    }

    /// Whether only `uid` and root can put names there, or, where everybody can, nobody can take away what is another's.
    pub fn is_safe(&self, uid: u32) -> bool {
        fd::is_safe(&self.status, uid)
    }

    /// Device and inode, which are the same in every namespace.
    pub fn identity(&self) -> (u64, u64) {
        (self.status.st_dev, self.status.st_ino)
    }

    /// Where it is found as long as it is open, whatever its path leads to.
    pub fn by_number(&self) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", self.fd).into()
    }

    /// `/proc/self/fd/NUMBER/name`: short enough for a socket, and in this folder for certain.
    fn path<'a>(&self, name: &[u8], room: &'a mut [u8; 107]) -> Result<&'a [u8]> {
        if name.len() > LONGEST_NAME || name.contains(&b'/') {
            return Err(Errno::NAMETOOLONG);
        }
        let front = fd_path(self.fd, room)?;
        room[front] = b'/';
        room[front + 1..front + 1 + name.len()].copy_from_slice(name);
        Ok(&room[..front + 1 + name.len()])
    }

    /// Binds a non-blocking listener to `name`. Who had the name before has it no more, as he may be dead. Also the name's inode, for
    /// [`Folder::remove`].
    ///
    /// # Errors
    /// EADDRINUSE: the name is another user's, who alone may take it away; ENOENT where there is no `/proc`; EACCES, EROFS, ENOSPC;
    /// EMFILE; EPERM under a filter.
    pub fn listen(&self, name: &[u8], floor: i32) -> Result<(i32, u64)> {
        let mut room = [0; 107];
        let path = self.path(name, &mut room)?;
        let bound = match unix::listen_at(path, floor) {
            Err(Errno::ADDRINUSE) => {
                self.unlink(name);
                unix::listen_at(path, floor)
            }
            other => other,
        }?;
        match self.inode(name) {
            Ok(inode) => Ok((bound, inode)),
            Err(e) => {
                fd::close(bound);
                Err(e)
            }
        }
    }

    /// Connects to the socket of that name, if `uid` has made it.
    ///
    /// # Errors
    /// ENOENT: there is none; ECONNREFUSED: nobody listens there any more, or it is no socket of that user's; EAGAIN: too many wait;
    /// EMFILE; EPERM, EACCES.
    pub fn connect(&self, name: &[u8], uid: u32, floor: i32) -> Result<i32> {
        let file = open_at(self.fd, c_name(name, &mut [0; LONGEST_NAME + 1])?, libc::O_NOFOLLOW, floor)?;
        let connected = fd::status_of(file).and_then(|status| {
            if status.st_mode & libc::S_IFMT != libc::S_IFSOCK || status.st_uid != uid {
                return Err(Errno::CONNREFUSED);
            }
            let mut room = [0; 107];
            let len = fd_path(file, &mut room)?;
            unix::dial_at(&room[..len], floor)
        });
        fd::close(file);
        connected
    }

    /// Takes `name` away if it is still this inode's. Nobody else's has the same number as long as its listener is open.
    pub fn remove(&self, name: &[u8], inode: u64) {
        if self.inode(name) == Ok(inode) {
            self.unlink(name);
        }
    }

    fn inode(&self, name: &[u8]) -> Result<u64> {
        let mut room = [0; LONGEST_NAME + 1];
        fd::status_at(self.fd, c_name(name, &mut room)?).map(|status| status.st_ino)
    }

    fn unlink(&self, name: &[u8]) {
        let mut room = [0; LONGEST_NAME + 1];
        let Ok(name) = c_name(name, &mut room) else { return };
        // SAFETY: a NUL-terminated name.
        unsafe { syscall(libc::SYS_unlinkat, [self.fd as usize, name.as_ptr() as usize, 0, 0, 0, 0]) };
    }
}

fn c_name<'a>(name: &[u8], room: &'a mut [u8; LONGEST_NAME + 1]) -> Result<&'a CStr> {
    if name.len() > LONGEST_NAME || name.contains(&b'/') {
        return Err(Errno::NAMETOOLONG);
    }
    room[..name.len()].copy_from_slice(name);
    CStr::from_bytes_until_nul(room).map_err(|_| Errno::INVAL)
}

/// Writes `/proc/self/fd/NUMBER`; returns its length.
fn fd_path(number: i32, room: &mut [u8; 107]) -> Result<usize> {
    const FRONT: &[u8] = b"/proc/self/fd/";
    let mut digits = [0u8; 32];
    let number = u32::try_from(number).map_err(|_| Errno::BADF)?;
    let shown = crate::process::proc_path(&mut digits, number, b"\0").ok_or(Errno::BADF)?.to_bytes();
    let shown = &shown[b"/proc/".len()..];
    room[..FRONT.len()].copy_from_slice(FRONT);
    room[FRONT.len()..FRONT.len() + shown.len()].copy_from_slice(shown);
    Ok(FRONT.len() + shown.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
    use std::path::PathBuf;

    fn scratch(name: &str) -> (PathBuf, Folder) {
        let path = std::env::temp_dir().join(format!("bypath-folder-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        let folder = open(&path);
        (path, folder)
    }

    fn open(path: &std::path::Path) -> Folder {
        Folder::open(&CString::new(path.to_str().unwrap()).unwrap(), 3).unwrap()
    }

    #[test]
    fn a_name_is_listened_to_connected_to_and_removed() {
        let uid = crate::process::euid();
        let (path, folder) = scratch("name");
        assert_eq!(folder.connect(b"a", uid, 3), Err(Errno::NOENT));
        let (listener, inode) = folder.listen(b"a", 3).unwrap();
        let caller = folder.connect(b"a", uid, 3).unwrap();
        let called = unix::accept(listener, 3).unwrap().unwrap();
        unix::send(caller, b"x", &[]).unwrap();
        assert_eq!(unix::recv(called, &mut [0; 4], 3).unwrap().unwrap().len, 1);
        assert_eq!(folder.connect(b"a", uid + 1, 3), Err(Errno::CONNREFUSED));
        folder.remove(b"a", inode + 1);
        assert!(path.join("a").exists());
        folder.remove(b"a", inode);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        for open in [listener, caller, called] {
            fd::close(open);
        }
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_name_that_was_left_behind_is_taken_over() {
        let uid = crate::process::euid();
        let (path, folder) = scratch("left");
        let (first, _) = folder.listen(b"a", 3).unwrap();
        fd::close(first);
        assert_eq!(folder.connect(b"a", uid, 3), Err(Errno::CONNREFUSED));
        let (second, inode) = folder.listen(b"a", 3).unwrap();
        let (third, _) = folder.listen(b"a", 3).unwrap();
        // Who had it before does not remove his successor's.
        folder.remove(b"a", inode);
        fd::close(folder.connect(b"a", uid, 3).unwrap());
        assert_eq!(unix::accept(second, 3), Ok(None));
        assert!(unix::accept(third, 3).unwrap().is_some_and(|called| fd::is_cloexec(called) == Ok(true)));
        for open in [second, third] {
            fd::close(open);
        }
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_is_no_socket_in_the_folder_is_not_followed() {
        let uid = crate::process::euid();
        let (path, folder) = scratch("links");
        let (listener, _) = folder.listen(b"real", 3).unwrap();
        symlink(path.join("real"), path.join("link")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        for name in [&b"link"[..], b"file"] {
            assert_eq!(folder.connect(name, uid, 3), Err(Errno::CONNREFUSED));
        }
        assert_eq!(folder.connect(b"../a", uid, 3), Err(Errno::NAMETOOLONG));
        assert_eq!(folder.listen(&[b'x'; 49], 3).err(), Some(Errno::NAMETOOLONG));
        fd::close(listener);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_folder_is_safe_where_names_of_others_stay_theirs() {
        let uid = crate::process::euid();
        let (path, folder) = scratch("safe");
        assert!(folder.is_safe(uid) && (uid == 0 || !folder.is_safe(uid + 1)));
        for (mode, is_safe) in [(0o755, true), (0o775, false), (0o777, false), (0o1777, true), (0o1770, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open(&path).is_safe(uid), is_safe, "{mode:o}");
        }
        assert!(Folder::open(c"/proc/self/exe", 3).is_err());
        fs::remove_dir_all(path).unwrap();
    }
}
