//! Sockets that a later service makes anew, as their maker's, for whoever holds what is left of them: a server that has given up its rights keeps
//! its port. Nothing is kept of them here. The service says of each socket whose it is, and proves that it has said so by a keyed hash
//! (SipHash-2-4, 128 bits) over owner, kind, address and SO_COOKIE; its key, which only its user can read, outlives it. Who says the same to a
//! later one and shows that he holds the socket with this cookie, of which there is no other in this boot, is believed.

use super::Settings;
use super::listener::FIRST_FREE;
use super::question::{Answer, Asks};
use super::slab::Key;
use super::socket::{Hub, Phase, outward};
use bypath_shm::service::{Address, Body, Claim, Wanted, of_end_name};
use bypath_stack::Stack;
use bypath_stack::linux::errno::Result;
use bypath_sys::{pair, process, unix};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Octets of a key.
const KEY: usize = 16;

/// A socket in place of one of an earlier service: it can be where that was, and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Who asked for it.
    by: u32,
    local: Address,
    /// SO_COOKIE of that one.
    before: u64,
    is_bound: bool,
}

impl Again {
    /// Whether this is where it may be.
    pub fn may_be(&self, there: Address) -> bool {
        self.local == there
    }

    /// The cookie of the one in whose place it is.
    pub const fn before(&self) -> u64 {
        self.before
    }

    /// Whether it is where it is to be: nothing else is done before.
    pub const fn is_there(&self) -> bool {
        self.is_bound
    }
}

/// What services of one name and user say, and nobody else can.
pub struct Claims {
    key: [u8; KEY],
    /// Which boot this is.
    boot: Vec<u8>,
    name: String,
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

/// The key that is kept there.
///
/// # Errors
/// There is none that nobody else can have written or read.
fn kept(path: &Path) -> io::Result<[u8; KEY]> {
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let of = file.metadata()?;
    let is_own = of.is_file() && of.uid() == process::euid() && of.mode() & 0o077 == 0 && of.nlink() == 1;
    let mut key = [0; KEY];
    if !is_own || of.len() != KEY as u64 {
        return Err(ErrorKind::InvalidData.into());
    }
    file.read_exact(&mut key)?;
    Ok(key)
}

impl Claims {
    /// With the key in the folder of services, or a new one. Where none can be kept there, what is said is believed by this service alone.
    pub fn new(folder: &Path, name: &str) -> Claims {
        Claims::of_boot(folder, name, fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default())
    }

    /// The same in this boot.
    fn of_boot(folder: &Path, name: &str, boot: Vec<u8>) -> Claims {
        let path = folder.join(format!(".{name}.key"));
        let key = kept(&path).unwrap_or_else(|e| {
            let mut new = [0; KEY];
            for half in new.chunks_exact_mut(8) {
                half.copy_from_slice(&process::random_u64().to_ne_bytes());
            }
            // One that cannot be read now may be good.
            if e.kind() == ErrorKind::InvalidData || e.raw_os_error() == Some(libc::ELOOP) {
                let _ = fs::remove_file(&path);
            }
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let _ = made.and_then(|mut file: File| file.write_all(&new));
            new
        });
        Claims { key, boot, name: name.to_owned() }
    }

    /// What is said of a socket of this user, at this address, in this boot: cookies begin anew with the next one, where the key may be kept. `kind`: domain and type.
    fn of(&self, uid: u32, cookie: u64, kind: [i32; 2], local: Address) -> Claim {
        let mut hash = SipHasher24::new_with_key(&self.key);
        hash.write(&uid.to_ne_bytes());
        hash.write(&cookie.to_ne_bytes());
        kind.iter().for_each(|number| hash.write(&number.to_ne_bytes()));
        hash.write(&local.encode());
        hash.write(&self.boot);
        hash.write(self.name.as_bytes());
        Claim { uid, proof: hash.finish128().as_bytes() }
    }

    /// Whether that was said of the socket with this cookie.
    fn is_said(&self, cookie: u64, wanted: &Wanted) -> bool {
        let [domain, kind, _] = wanted.kind;
        let said = self.of(wanted.claim.uid, cookie, [domain, kind], wanted.local);
        // All octets are looked at, whichever differ.
        let differ = said.proof.iter().zip(wanted.claim.proof).fold(0, |all, (a, b)| all | (a ^ b));
        differ == 0
    }
}

impl Asks<'_> {
    /// A socket in place of one of an earlier service, which he has shown that he holds: by `left`, what is left of it. Those who held it together
    /// get the same one.
    pub fn again(&mut self, wanted: &Wanted, left: Option<&OwnedFd>) -> Result<Answer> {
        if !self.holds {
            return Err(libc::EACCES);
        }
        Hub::may_be_again(self.settings, wanted)?;
        if let Some(known) = self.inherited()? {
            return Ok(known);
        }
        // Whatever others do, half of what its maker may have is left to himself.
        let (by, maker) = (self.uid, wanted.claim.uid);
        if by != maker && by != 0 && self.hub.again_by_others(maker) >= self.settings.sockets_per_user / 2 {
            return Err(libc::EMFILE);
        }
        self.uid = maker;
        let [domain, kind, protocol] = wanted.kind;
        let answer = self.open((domain, kind, protocol))?;
        let key = *self.hub.by_cookie.get(&answer.socket).ok_or(libc::EBADF)?;
        if let Some(socket) = self.hub.sockets.get_mut(key) {
            socket.again = Some(Again { by, local: wanted.local, before: self.socket, is_bound: false });
        }
        self.hub.has_heirs(self.socket, key, &answer, left);
        Ok(answer)
    }
}

impl Hub {
    /// What is said of a socket that listens, or of datagrams that has a port; nothing of others.
    pub fn claim(&self, stack: &mut Stack, key: Key) -> Vec<u8> {
        let mut claim = || {
            let socket = self.sockets.get(key)?;
            let kind = match &socket.phase {
                Phase::Listening(_) => libc::SOCK_STREAM,
                Phase::Datagrams(of) if of.ping.is_none() => libc::SOCK_DGRAM,
                _ => return None,
            };
            let local = socket.ends(stack).0.filter(|local| local.port() != 0)?;
            let domain = if socket.v6 { libc::AF_INET6 } else { libc::AF_INET };
            let local = Address(Some(outward(socket.v6, local)));
            Some(self.claims.of(socket.uid, socket.cookie, [domain, kind], local))
        };
        claim().map_or_else(Vec::new, |claim| claim.encode().to_vec())
    }

    /// Whether that was said of this socket, which was an earlier service's, and whoever says it holds it.
    pub fn is_claimed(&self, cookie: u64, mut body: Body<'_>, fds: &[OwnedFd]) -> bool {
        // Before Linux 5.4 cookies are those of one network namespace: whoever makes one in his own is not this user, or it is not called so.
        let is_pairs = |end: &OwnedFd| {
            let (end, mut room) = (end.as_raw_fd(), [0; 110]);
            // Asked first: a socket of TCP has no maker, and getpeername(2) would wait for its lock, which its owner may hold.
            unix::peer_credentials(end).is_ok_and(|maker| maker.uid == process::euid()) && {
                let name = unix::peer_name(end, &mut room).and_then(of_end_name);
                name.is_some_and(|(name, of)| name == self.claims.name && of == cookie)
            }
        };
        let is_held = fds.first().is_some_and(|end| pair::cookie(end.as_fd()) == Ok(cookie) && is_pairs(end));
        is_held
            && !self.by_cookie.contains_key(&cookie)
            && !self.graves.has(cookie)
            && Wanted::decode(&mut body).is_some_and(|wanted| self.claims.is_said(cookie, &wanted))
    }

    /// Whether a socket may be made anew that was said to be a user's.
    ///
    /// # Errors
    /// EACCES: that user might not be there himself.
    fn may_be_again(settings: &Settings, wanted: &Wanted) -> Result<()> {
        let uid = wanted.claim.uid;
        let port = wanted.local.0.ok_or(libc::EACCES)?.port();
        let is_known = matches!(wanted.kind[2], 0 | libc::IPPROTO_TCP | libc::IPPROTO_UDP);
        let is_his = settings.admits(uid) && (port >= FIRST_FREE || settings.may_low(uid));
        if is_known && is_his { Ok(()) } else { Err(libc::EACCES) }
    }

    fn again_by_others(&self, uid: u32) -> usize {
        let (mut at, mut count) = (0, 0);
        while let Some((place, socket)) = self.sockets.next(at) {
            at = place + 1;
            count += usize::from(socket.uid == uid && socket.again.is_some_and(|again| again.by != uid));
        }
        count
    }

    /// It has its address.
    pub fn is_there_again(&mut self, key: Key) {
        if let Some(again) = self.sockets.get_mut(key).and_then(|socket| socket.again.as_mut()) {
            again.is_bound = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("bypath-claims-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn wanted(claims: &Claims, cookie: u64) -> Wanted {
        let local = Address(Some("10.0.0.1:80".parse().unwrap()));
        let claim = claims.of(0, cookie, [libc::AF_INET, libc::SOCK_STREAM], local);
        Wanted { kind: [libc::AF_INET, libc::SOCK_STREAM, 0], local, claim }
    }

    #[test]
    fn what_one_service_says_the_next_one_believes_word_for_word() {
        let folder = folder("said");
        let wanted = wanted(&Claims::new(&folder, "lab"), 9);
        let later = Claims::new(&folder, "lab");
        assert!(later.is_said(9, &wanted) && !later.is_said(8, &wanted));
        let other = |change: fn(&mut Wanted)| {
            let mut other = wanted;
            change(&mut other);
            other
        };
        for lie in [
            other(|w| w.claim.uid = 1),
            other(|w| w.claim.proof[15] ^= 1),
            other(|w| w.kind[0] = libc::AF_INET6),
            other(|w| w.kind[1] = libc::SOCK_DGRAM),
            other(|w| w.local = Address(Some("10.0.0.1:81".parse().unwrap()))),
            other(|w| w.local = Address(Some("10.0.0.2:80".parse().unwrap()))),
        ] {
            assert!(!later.is_said(9, &lie), "{lie:?}");
        }
        assert!(!Claims::new(&folder, "other").is_said(9, &wanted));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_said_before_the_machine_was_started_anew_is_of_other_sockets() {
        let folder = folder("boots");
        let boots = [b"one", b"two"].map(|boot: &[u8; 3]| Claims::of_boot(&folder, "lab", boot.to_vec()));
        assert_eq!(boots[0].key, boots[1].key);
        let wanted = wanted(&boots[0], 9);
        assert!(boots[0].is_said(9, &wanted) && !boots[1].is_said(9, &wanted));
        let unknown = Claims::of_boot(&folder, "lab", Vec::new());
        assert!(!unknown.is_said(9, &wanted));
        // The one that is read is the kernel's.
        let own = fs::read("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(!own.is_empty() && Claims::new(&folder, "lab").boot == own);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_key_that_somebody_else_may_know_is_none() {
        let folder = folder("known");
        let path = folder.join(".lab.key");
        let first = Claims::new(&folder, "lab").key;
        assert_eq!(
            (Claims::new(&folder, "lab").key, fs::metadata(&path).unwrap().mode() & 0o777),
            (first, 0o600)
        );
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let second = Claims::new(&folder, "lab").key;
        fs::hard_link(&path, folder.join("link")).unwrap();
        let third = Claims::new(&folder, "lab").key;
        fs::rename(&path, folder.join("elsewhere")).unwrap();
        symlink(folder.join("elsewhere"), &path).unwrap();
        let fourth = Claims::new(&folder, "lab").key;
        fs::write(&path, "short").unwrap();
        let fifth = Claims::new(&folder, "lab").key;
        let mut all = [first, second, third, fourth, fifth];
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]) && fs::metadata(&path).unwrap().is_file());
        assert_eq!(Claims::new(&folder, "lab").key, fifth);
        fs::remove_dir_all(folder).unwrap();
    }
}
