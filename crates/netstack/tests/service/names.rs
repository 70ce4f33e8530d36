//! Names of the service's ends that somebody takes before the service does.

use crate::program::Sock;
use crate::{Running, at, isolated, on_one_processor, patient};
use bypath_shm::service::of_end_name;
use bypath_sys::pair;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::HashSet;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

/// SO_COOKIE is counted up by each processor on its own, which takes so many numbers at once.
const BATCH: u64 = 4096;
/// Descriptors that are left to the service and its programs.
const LEFT: u64 = 400;
/// How often it is tried whether a cookie is one of those that were foreseen: other programs count up, too.
const ATTEMPTS: usize = 8;

fn name_of(socket: &Sock<'_>) -> String {
    let peer = socket.stream.peer_addr().expect("a name");
    String::from_utf8(peer.as_abstract_name().expect("an abstract one").to_vec()).expect("letters")
}

/// What he holds who knows the next cookies, and has seen the name of an earlier end.
struct Taken {
    cookies: HashSet<u64>,
    /// Of the same type: the names of other types are others.
    _holders: Vec<UnixListener>,
}

impl Taken {
    /// Of so many descriptors.
    fn new(seen: &str, its: u64, most: u64) -> Taken {
        let count = (most / 2).min(BATCH / 2);
        let next = || pair::cookie(UnixDatagram::unbound().expect("a socket").as_fd()).expect("a cookie");
        let of_batch = (0..BATCH).map(|_| next()).find(|cookie| cookie % BATCH < BATCH - count);
        let from = of_batch.expect("the beginning of a batch") + 1;
        let cookies: HashSet<u64> = (from..from + count).collect();
        let plain = cookies.iter().map(|cookie| format!("bypath/netstack/lab/{cookie:016x}"));
        let like_seen =
            cookies.iter().map(|cookie| seen.replace(&format!("{its:016x}"), &format!("{cookie:016x}")));
        let names: HashSet<String> = plain.chain(like_seen).collect();
        let take = |name: &String| {
            let address = SocketAddr::from_abstract_name(name).expect("a name that fits");
            UnixListener::bind_addr(&address).expect("a name that nobody has")
        };
        let holders = names.iter().map(take).collect();
        Taken { cookies, _holders: holders }
    }
}

isolated! {
    fn who_takes_all_names_that_he_can_know_beforehand_keeps_nobody_from_a_socket() {
        // The service's thread, too, and so the cookies of one processor.
        on_one_processor();
        let hard = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit").1;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("a limit");

        let running = Running::new();
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        let earlier = program.open(false).expect("a socket");
        let (mut opened, mut accepted) = (0, 0);
        for _ in 0..ATTEMPTS {
            let taken = Taken::new(&name_of(&earlier), earlier.cookie, hard.saturating_sub(LEFT));
            let own = program.open(false).expect("a socket");
            opened += usize::from(taken.cookies.contains(&own.cookie));
            let _kernel = patient(TcpStream::connect(to).expect("a connection"));
            let (called, _) = listener.accept();
            accepted += usize::from(taken.cookies.contains(&called.cookie));
            for socket in [&own, &called] {
                assert_eq!(of_end_name(name_of(socket).as_bytes()), Some(("lab", socket.cookie)));
            }
        }
        assert!(opened > 0 && accepted > 0, "cookies that were foreseen: {opened} and {accepted}");
    }
}
