//! Who asks a service about itself, or has it do something: over its socket, as docs/netstack-service.md says.
//!
//! ```no_run
//! use bypath_netstack::service::Client;
//!
//! let lab = Client::find("lab")?;
//! for socket in lab.sockets()? {
//!     println!("{} {:?} {:?}", socket.state, socket.local, socket.remote);
//! }
//! # Ok::<(), bypath_netstack::service::QueryError>(())
//! ```

use super::rows::{
    AddressRow, Change, CounterRow, LinkRow, NeighborRow, Question, RouteRow, ServiceRow, SocketRow,
};
use crate::text::printable;
use crate::{Filter, Ping, PingEvent, TapCounts};
use bypath_shm::service::{HEADER, Header, MESSAGE, Op};
use bypath_sockets::service::place;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::process::euid;
use bypath_sys::{Errno, clock, seqpacket, unix};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer is waited for (ns).
const PATIENCE: u64 = 10_000_000_000;
/// The same where others are asked first.
const CLAIM: u64 = 20_000_000_000;

/// Octets of a list at most, and how long it may take (ns): more than any service has to tell.
const LONGEST_LIST: usize = 64 << 20;
const LIST: u64 = 60_000_000_000;

/// A question that was not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// There is no service, or it has ended.
    #[error("{}: no netstack service answers here; `bypath netstack --link ...` starts one", path.display())]
    NotThere {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// This user may not ask.
    #[error("{}: this netstack service is not for user {uid}: start it with --users {uid} (or --users all; or `users` under [limits] in the file of --config)", path.display())]
    NotAdmitted {
        /// Which service.
        path: PathBuf,
        /// Who asked.
        uid: u32,
    },
    /// It is another user's, in a folder where only services of this user and of root are believed.
    #[error("{}: the netstack service here is of user {uid}, who is not believed; if he is to be: BYPATH_NETSTACK_DIR={}", path.display(), folder(path))]
    OfAnother {
        /// Which service.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// The service knows nothing of it, or it has ended meanwhile.
    #[error("{}: the netstack service has closed the connection: it has ended, or does not know the question", path.display())]
    Closed {
        /// Which service.
        path: PathBuf,
    },
    /// Nothing came within ten seconds, or as long as was waited.
    #[error("{}: the netstack service does not answer; is its process stopped?{}", path.display(), go_on(*pid))]
    Silent {
        /// Which service.
        path: PathBuf,
        /// Its process, as far as it is known.
        pid: Option<u32>,
    },
    /// The answer is none.
    #[error("{}: what answers is no netstack service of this version", path.display())]
    Malformed {
        /// Which service.
        path: PathBuf,
    },
    /// The answer has no end: more than 64 MiB, or a minute, or as long as was waited for all of it.
    #[error("{}: what answers does not come to an end: is it a netstack service?", path.display())]
    Endless {
        /// Which service.
        path: PathBuf,
    },
    /// The service does not do it.
    #[error("{}: {why}", path.display())]
    Refused {
        /// Which service.
        path: PathBuf,
        /// As of the system call that is nearest, such as EPERM.
        errno: i32,
        /// What it says, without controls.
        why: String,
    },
    /// No service of that name is to be found.
    #[error(
        "no netstack service named {name} is to be found; `bypath netstack ls` lists those that there are"
    )]
    Nowhere {
        /// The name.
        name: String,
    },
    /// The kernel says why.
    #[error("{}: {}", path.display(), std::io::Error::from_raw_os_error(*errno))]
    Failed {
        /// Which service.
        path: PathBuf,
        /// Why.
        errno: i32,
    },
}

fn folder(path: &Path) -> std::path::Display<'_> {
    path.parent().unwrap_or(path).display()
}

/// What has a process that is stopped go on.
fn go_on(pid: Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(" If it is: kill -CONT {pid}"))
}

/// Asks the service at this path, `{"what":"sockets"}` and its like; `each` gets the rows of JSON.
///
/// # Errors
/// [`QueryError`].
pub fn query(path: &Path, question: &str, mut each: impl FnMut(&str)) -> Result<(), QueryError> {
    query_within(path, question, Duration::from_nanos(PATIENCE), &mut each)
}

/// The same with another patience: how long each row is waited for.
///
/// # Errors
/// [`QueryError`].
pub fn query_within(
    path: &Path,
    question: &str,
    longest: Duration,
    mut each: impl FnMut(&str),
) -> Result<(), QueryError> {
    let patience = Patience { row: longest, whole: Duration::from_nanos(LIST) };
    Reached::at(path)?.query(question, patience, |row| {
        each(row);
        true
    })
}

/// How long an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Each row of it.
    pub row: Duration,
    /// All of it, from the question on.
    pub whole: Duration,
}

/// A service that was reached, and not asked yet: in a folder that was named, or is for all users, it may be anybody's.
#[derive(Debug)]
pub struct Reached {
    path: PathBuf,
    socket: OwnedFd,
    whose: u32,
}

impl Reached {
    /// The one whose socket is at this path, also where so many call at this moment that there is no room in its queue.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn at(path: &Path) -> Result<Reached, QueryError> {
        const LONGEST: Duration = Duration::from_secs(2);
        const PAUSE: Duration = Duration::from_millis(1);
        let until = Instant::now() + LONGEST;
        loop {
            match Reached::at_once(path) {
                Err(QueryError::Failed { errno: libc::EAGAIN, .. }) if Instant::now() < until => {
                    thread::sleep(PAUSE)
                }
                reached => return reached,
            }
        }
    }

    /// The same, but whoever has no room in his queue is not waited for.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn at_once(at: &Path) -> Result<Reached, QueryError> {
        let path = || at.to_owned();
        let failed = |e: Errno| QueryError::Failed { path: path(), errno: e.raw_os_error() };
        let socket = place::connect(at).map_err(|e| match e {
            Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR | Errno::LOOP | Errno::NOTSOCK => {
                QueryError::NotThere { path: path() }
            }
            Errno::ACCESS | Errno::PERM => QueryError::NotAdmitted { path: path(), uid: euid() },
            e => failed(e),
        })?;
        place::is_believed(&path(), socket.as_fd())
            .map_err(|uid| QueryError::OfAnother { path: path(), uid })?;
        let whose = unix::peer_credentials(socket.as_raw_fd()).map_err(failed)?.uid;
        Ok(Reached { path: path(), socket, whose })
    }

    /// The user whose process listens there.
    pub const fn whose(&self) -> u32 {
        self.whose
    }

    /// Asks as [`query`] does; `each` gets the rows of JSON until it says that it wants no more.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn query(
        self,
        question: &str,
        patience: Patience,
        mut each: impl FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        let mut list = List::new(self, question, nanoseconds(patience.whole))?;
        while let Some(row) = list.next(nanoseconds(patience.row))? {
            if !each(row) {
                break;
            }
        }
        Ok(())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A question whose answer comes to an end by itself.
struct List {
    asked: Asked,
    /// Octets that may come.
    left: usize,
    until: u64,
    /// A row has come.
    begun: bool,
}

impl List {
    /// `whole`: how long the answer may take (ns).
    fn new(service: Reached, question: &str, whole: u64) -> Result<List, QueryError> {
        let until = clock::monotonic_ns().saturating_add(whole);
        Ok(List { asked: Asked::new(service, question, None)?, left: LONGEST_LIST, until, begun: false })
    }

    /// The next row, waited for so long (ns); `None`: there are no more.
    fn next(&mut self, longest: u64) -> Result<Option<&str>, QueryError> {
        let path = self.asked.path.clone();
        let left = self.until.saturating_sub(clock::monotonic_ns());
        let row = self.asked.next(Some(longest.min(left))).map_err(|e| match e {
            QueryError::Silent { path, .. } if self.begun && left < longest => QueryError::Endless { path },
            e => e,
        })?;
        let octets = row.map_or(0, str::len);
        if octets > self.left || (row.is_some() && clock::monotonic_ns() > self.until) {
            return Err(QueryError::Endless { path });
        }
        self.left -= octets;
        self.begun = true;
        Ok(row)
    }
}

/// A question, whose answers come one by one.
#[derive(Debug)]
struct Asked {
    path: PathBuf,
    socket: OwnedFd,
    header: Header,
    room: Vec<u8>,
}

impl Asked {
    fn new(service: Reached, question: &str, with: Option<BorrowedFd<'_>>) -> Result<Asked, QueryError> {
        let Reached { path, socket, .. } = service;
        let header = Header { op: Op::Query, serial: 1, socket: 0, errno: 0 };
        let message = [&header.encode()[..], question.as_bytes()].concat();
        if message.len() > MESSAGE {
            return Err(QueryError::Failed { path, errno: libc::EMSGSIZE });
        }
        let asked = Asked { path, socket, header, room: vec![0; MESSAGE] };
        seqpacket::ask(asked.socket.as_fd(), &message, with).map_err(|_| asked.closed())?;
        Ok(asked)
    }

    fn closed(&self) -> QueryError {
        QueryError::Closed { path: self.path.clone() }
    }

    /// The next row, waited for so long (ns); `None`: there are no more.
    fn next(&mut self, longest: Option<u64>) -> Result<Option<&str>, QueryError> {
        let path = || self.path.clone();
        let len = loop {
            match seqpacket::receive_octets(self.socket.as_fd(), &mut self.room) {
                Ok(None) => {
                    let mut wait = [PollFd { fd: self.socket.as_raw_fd(), events: 1, revents: 0 }];
                    if ppoll(&mut wait, longest, 0) == Ok(0) {
                        let pid = unix::peer_credentials(self.socket.as_raw_fd()).ok().map(|who| who.pid);
                        return Err(QueryError::Silent { path: path(), pid });
                    }
                }
                Ok(Some(0)) | Err(_) => return Err(self.closed()),
                Ok(Some(len)) => break len,
            }
        };
        let malformed = || QueryError::Malformed { path: path() };
        let (answer, body) = Header::decode(&self.room[..len]).ok_or_else(malformed)?;
        if (Header { errno: 0, ..answer }) != self.header {
            return Err(malformed());
        }
        if answer.errno == libc::EACCES && body.is_empty() {
            return Err(QueryError::NotAdmitted { path: path(), uid: euid() });
        }
        if answer.errno != 0 {
            let said: Value = serde_json::from_slice(body).unwrap_or_default();
            let why = said["error"]
                .as_str()
                .map_or_else(|| std::io::Error::from_raw_os_error(answer.errno).to_string(), str::to_owned);
            return Err(QueryError::Refused { path: path(), errno: answer.errno, why: printable(&why) });
        }
        if body.is_empty() {
            return Ok(None);
        }
        std::str::from_utf8(body).map(Some).map_err(|_| malformed())
    }

    /// It is to end what it does, and to tell what has come of it.
    fn stop(&self) {
        let message = [&self.header.encode()[..], br#"{"what":"stop"}"#].concat();
        // A service that has gone has stopped.
        let _ = seqpacket::ask(self.socket.as_fd(), &message, None);
    }
}

/// A service that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// The service of this name that this process finds, as programs do.
    ///
    /// # Errors
    /// [`QueryError::Nowhere`]. Whether somebody answers there, the first question tells.
    pub fn find(name: &str) -> Result<Client, QueryError> {
        let path = place::find(name).ok_or_else(|| QueryError::Nowhere { name: name.to_owned() })?;
        Ok(Client { path })
    }

    /// The one whose socket is at this path.
    pub fn at(path: &Path) -> Client {
        Client { path: path.to_owned() }
    }

    /// Where its socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn rows<T: DeserializeOwned>(&self, what: &str) -> Result<Vec<T>, QueryError> {
        let mut all = Vec::new();
        let mut list = List::new(Reached::at(&self.path)?, &json!({ "what": what }).to_string(), LIST)?;
        while let Some(row) = list.next(PATIENCE)? {
            all.push(self.read(row)?);
        }
        Ok(all)
    }

    fn read<T: DeserializeOwned>(&self, row: &str) -> Result<T, QueryError> {
        serde_json::from_str(row).map_err(|_| QueryError::Malformed { path: self.path.clone() })
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn service(&self) -> Result<ServiceRow, QueryError> {
        self.rows("service")?.pop().ok_or_else(|| QueryError::Malformed { path: self.path.clone() })
    }

    /// Its sockets.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn sockets(&self) -> Result<Vec<SocketRow>, QueryError> {
        self.rows("sockets")
    }

    /// What its stack has counted.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn counters(&self) -> Result<Vec<CounterRow>, QueryError> {
        self.rows("stats")
    }

    /// Its addresses.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn addresses(&self) -> Result<Vec<AddressRow>, QueryError> {
        self.rows("addresses")
    }

    /// Its routes.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn routes(&self) -> Result<Vec<RouteRow>, QueryError> {
        self.rows("routes")
    }

    /// Its neighbours.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn neighbors(&self) -> Result<Vec<NeighborRow>, QueryError> {
        self.rows("neighbors")
    }

    /// Its links, and what they have counted.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn links(&self) -> Result<Vec<LinkRow>, QueryError> {
        self.rows("links")
    }

    fn question(question: &Question) -> String {
        json!(question).to_string()
    }

    /// Changes its addresses, routes or neighbours; what was done. An address that is claimed takes seconds. For root, and the user who runs the service.
    ///
    /// # Errors
    /// [`QueryError`]; `Refused` says why it is not done.
    pub fn change(&self, change: Change) -> Result<String, QueryError> {
        let mut done = String::new();
        let claims = matches!(change, Change::AddAddress { claim: true, .. });
        let longest = Duration::from_nanos(if claims { CLAIM } else { PATIENCE });
        query_within(&self.path, &Client::question(&Question::Change(change)), longest, |row| {
            let row: Value = serde_json::from_str(row).unwrap_or_default();
            done = row["done"].as_str().unwrap_or_default().to_owned();
        })?;
        Ok(done)
    }

    /// Has it ask for answers; events come one by one, [`PingEvent::Ended`] last. For root, and the user who runs the service.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn ping(&self, ping: Ping) -> Result<Pings, QueryError> {
        let patience = PATIENCE.saturating_add(ping.timeout_ns.max(ping.interval_ns));
        Ok(Pings {
            asked: Asked::new(Reached::at(&self.path)?, &Client::question(&Question::Ping(ping)), None)?,
            patience,
        })
    }

    /// Begins a capture of its frames (pcapng). For root, and the user who runs the service. It does not wait for who reads slowly: what does
    /// not fit into 8 MiB is dropped, and counted.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn capture(
        &self,
        interface: Option<&str>,
        count: Option<u64>,
        snap: Option<usize>,
        filter: Filter,
    ) -> Result<CaptureStream, QueryError> {
        let failed = |e: std::io::Error| QueryError::Failed {
            path: self.path.clone(),
            errno: e.raw_os_error().unwrap_or(libc::EIO),
        };
        let (own, other) = UnixStream::pair().map_err(failed)?;
        let interface = interface.map(str::to_owned);
        let question = Client::question(&Question::Capture { interface, count, snap, filter });
        let asked = Asked::new(Reached::at(&self.path)?, &question, Some(other.as_fd()))?;
        Ok(CaptureStream { asked, frames: own })
    }
}

/// Echo requests that a service sends.
#[derive(Debug)]
pub struct Pings {
    asked: Asked,
    /// Longest time without an event (ns).
    patience: u64,
}

impl Pings {
    /// What happens next, waited for; `None`: it has ended.
    ///
    /// # Errors
    /// [`QueryError`]; `Refused`: there is no way there.
    pub fn event(&mut self) -> Result<Option<PingEvent>, QueryError> {
        let path = self.asked.path.clone();
        let Some(row) = self.asked.next(Some(self.patience))? else { return Ok(None) };
        let row: Value =
            serde_json::from_str(row).map_err(|_| QueryError::Malformed { path: path.clone() })?;
        if row["event"] == "failed" {
            let why = printable(row["error"].as_str().unwrap_or("it cannot be sent"));
            return Err(QueryError::Refused { path, errno: libc::ENETUNREACH, why });
        }
        serde_json::from_value(row).map(Some).map_err(|_| QueryError::Malformed { path })
    }

    /// It is to end: [`PingEvent::Ended`] follows.
    pub fn stop(&self) {
        self.asked.stop();
    }

    /// Readable when something happens.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.asked.socket.as_fd()
    }
}

/// Frames of a service on their way here.
#[derive(Debug)]
pub struct CaptureStream {
    asked: Asked,
    frames: UnixStream,
}

impl CaptureStream {
    /// Where the octets of the file come, up to the end: they are to be read for as long as it takes. A refusal ends them at once.
    pub const fn octets(&self) -> &UnixStream {
        &self.frames
    }

    /// It is to end: what was seen is still to be read.
    pub fn stop(&self) {
        self.asked.stop();
    }

    /// What was counted, once all octets were read.
    ///
    /// # Errors
    /// [`QueryError`]; `Refused`: it did not begin.
    pub fn counts(mut self) -> Result<TapCounts, QueryError> {
        let path = self.asked.path.clone();
        let row = self.asked.next(Some(PATIENCE))?.map(str::to_owned);
        let row = row.ok_or_else(|| QueryError::Malformed { path: path.clone() })?;
        serde_json::from_str(&row).map_err(|_| QueryError::Malformed { path })
    }
}

const _: () = assert!(HEADER < MESSAGE);

#[cfg(test)]
mod tests {
    use super::*;

    /// A question, and its answers of so many octets each.
    fn answered(rows: usize, octets: usize, errno: i32) -> (Asked, OwnedFd) {
        let (socket, service) = seqpacket::pair().unwrap();
        let header = Header { op: Op::Query, serial: 1, socket: 0, errno };
        let row = [&header.encode()[..], &vec![b'1'; octets]].concat();
        for _ in 0..rows {
            seqpacket::send(service.as_fd(), &row, None).unwrap();
        }
        let header = Header { errno: 0, ..header };
        (Asked { path: PathBuf::from("/here"), socket, header, room: vec![0; MESSAGE] }, service)
    }

    #[test]
    fn a_service_in_whose_queue_others_stand_is_reached_when_it_has_taken_them() {
        let folder = std::env::temp_dir().join(format!("bypath-queue-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("service");
        let service = seqpacket::bind(&path).unwrap();
        seqpacket::listen(service.as_fd(), 0).unwrap();
        let _first = Reached::at_once(&path).expect("room for one");
        assert!(matches!(Reached::at_once(&path), Err(QueryError::Failed { errno: libc::EAGAIN, .. })));
        std::thread::scope(|threads| {
            threads.spawn(|| seqpacket::accept(service.as_fd()).unwrap().expect("the first one"));
            Reached::at(&path).expect("room again");
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_list_without_end_is_left() {
        let (asked, _service) = answered(20, 100, 0);
        let mut list = List { asked, left: 1000, until: u64::MAX, begun: false };
        let all = (0..20).take_while(|_| list.next(PATIENCE).is_ok()).count();
        assert_eq!(all, 10);
        let (asked, _service) = answered(2, 100, 0);
        let mut list = List { asked, left: 1000, until: 0, begun: false };
        assert!(matches!(list.next(PATIENCE), Err(QueryError::Endless { .. })));
    }

    #[test]
    fn a_list_that_begins_and_does_not_end_in_its_time_is_told_from_silence() {
        for rows in [0, 1] {
            let (asked, _service) = answered(rows, 100, 0);
            let mut list = List { asked, left: 1000, until: clock::monotonic_ns() + PATIENCE, begun: false };
            (0..rows).for_each(|_| assert!(list.next(PATIENCE).is_ok()));
            list.until = 0;
            match list.next(PATIENCE) {
                Err(QueryError::Silent { .. }) => assert_eq!(rows, 0),
                Err(QueryError::Endless { .. }) => assert_eq!(rows, 1),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_a_service_says_steers_no_terminal() {
        let (mut asked, service) = answered(0, 0, 0);
        let header = Header { errno: libc::EPERM, ..asked.header }.encode();
        let said = json!({ "error": "no\u{1b}[2J \u{202e}\u{2066}\u{200b}ay" }).to_string();
        seqpacket::send(service.as_fd(), &[&header[..], said.as_bytes()].concat(), None).unwrap();
        let told = asked.next(Some(PATIENCE)).unwrap_err();
        assert_eq!(told.to_string(), "/here: no?[2J ???ay");
    }
}
