//! What a user has of another one's sockets: nothing, whatever he is bound or connected to, and whom the settings name no more.

use crate::datagrams::Dgram;
use crate::program::{Program, Sock};
use crate::{Running, SILENT, at, engine, folder, users};
use bypath_netstack::service::{Service, Settings};
use bypath_shm::service::Op;
use bypath_stack::config::Config;
use std::net::UdpSocket;

const ONE: u32 = 65_031;
const OTHER: u32 = 65_032;
const LATE: u32 = 65_033;

users! {
    fn who_is_bound_to_many_and_connects_gets_nothing_of_another_users_partner() {
        let running = Running::with(|settings| settings.users = None, Config::default());
        let [one, other] = [ONE, OTHER].map(|uid| Program::of(&running.path, uid));
        for (many, own, partner) in [
            ("224.0.0.1", "10.9.0.2:0", "10.9.0.1:0"),
            ("10.9.0.255", "10.9.0.2:0", "10.9.0.1:0"),
            ("[ff05::1234]", "[fd09::2]:0", "[fd09::1]:0"),
        ] {
            let partner = UdpSocket::bind(at(partner)).expect("a socket of the kernel");
            let from = partner.local_addr().expect("an address");
            for is_connected in [false, true] {
                let victim = Dgram::new(&one, from.is_ipv6());
                let own = victim.bind(own).expect("a port");
                if is_connected {
                    assert_eq!(victim.connect(from), 0);
                }
                let greedy = Dgram::new(&other, from.is_ipv6());
                let bound = greedy.bind(&format!("{many}:{}", own.port())).expect("as Linux has it");
                assert_eq!(greedy.connect(from), 0);
                assert_eq!(greedy.names(), (Some(bound), Some(from)), "as Linux has it");
                partner.send_to(b"secret", own).expect("sent");
                assert_eq!(victim.headed_or_naked().1, b"secret", "{many} {is_connected}");
                assert!(!greedy.is_readable(50), "{many} {is_connected}");
            }
        }
    }
}

users! {
    fn what_a_socket_has_again_without_its_partner_no_other_user_comes_to() {
        let running = Running::with(|settings| settings.users = None, Config::default());
        let [one, other] = [ONE, OTHER].map(|uid| Program::of(&running.path, uid));
        let only_v6 = |socket: &Dgram<'_>| {
            assert_eq!(socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1i32.to_ne_bytes()), 0);
        };
        let narrowed = Dgram::new(&one, true);
        let port = narrowed.bind("[::]:0").expect("a port").port();
        drop(narrowed);
        let narrowed = Dgram::new(&one, true);
        narrowed.bind(&format!("[::]:{port}")).expect("free again");
        assert_eq!(narrowed.connect(at("[::ffff:10.9.0.1]:9")), 0);
        let binds = |program: &Program, is_of_v6_alone: bool, to: &str| {
            let socket = Dgram::new(program, true);
            if is_of_v6_alone {
                only_v6(&socket);
            }
            socket.bind(&format!("{to}:{port}")).err()
        };
        assert_eq!(binds(&other, true, "[::]"), Some(libc::EADDRINUSE));
        assert_eq!(binds(&other, false, "[fd09::2]"), Some(libc::EADDRINUSE));
        assert_eq!(binds(&one, false, "[fd09::2]"), None, "as Linux has it");
    }
}

/// What a program gets that asks for a socket of datagrams.
fn asks(program: &Program) -> i32 {
    let body = [libc::AF_INET, libc::SOCK_DGRAM, 0].map(i32::to_ne_bytes).concat();
    program.ask(Op::Open, 0, &body).errno
}

users! {
    fn whom_the_settings_name_no_more_asks_for_nothing_more() {
        let settings =
            |users: &[u32]| Settings { users: Some(users.to_vec()), folder: folder(), ..Settings::default() };
        let named = settings(&[ONE, OTHER]);
        let path = named.folder.join(&named.name);
        let mut service = Service::open(engine(Config::default()), named).expect("a service");
        // What these are answered while it runs.
        let answers = |service: &mut Service, programs: &[&Program]| -> Vec<i32> {
            let stopper = service.stopper();
            std::thread::scope(|scope| {
                scope.spawn(|| service.run().expect("a service that runs"));
                let all = programs.iter().map(|program| asks(program)).collect();
                stopper.stop();
                all
            })
        };
        let [one, other, late] = [ONE, OTHER, LATE].map(|uid| Program::of(&path, uid));
        assert_eq!(answers(&mut service, &[&one, &other]), [0, 0]);
        service.set_limits(&settings(&[ONE, LATE]));
        assert_eq!(answers(&mut service, &[&one, &other, &late]), [0, libc::EACCES, 0]);
        service.finish(std::time::Duration::from_secs(5));
    }
}

users! {
    fn a_port_from_which_another_user_calls_is_not_shared() {
        let running = Running::with(|settings| settings.users = None, Config::default());
        let [one, other] = [ONE, OTHER].map(|uid| Program::of(&running.path, uid));
        let sharing = |program| -> Sock<'_> {
            let socket = Program::socket(program, at(SILENT));
            assert_eq!(socket.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, &1i32.to_ne_bytes()), 0);
            socket
        };
        let caller = sharing(&other);
        let local = caller.bind(at("10.9.0.2:0")).expect("a port");
        assert_eq!(caller.begin(at(SILENT)), libc::EINPROGRESS);
        assert_eq!(sharing(&one).bind(local), Err(libc::EADDRINUSE));
        let own = sharing(&other);
        assert_eq!((own.bind(local), own.listen(1)), (Ok(local), 0));

        let (caller, listener) = (other.socket(local), one.socket(local));
        let port = caller.bind(at("10.9.0.255:0")).expect("a port").port();
        listener.bind(at(&format!("10.9.0.2:{port}"))).expect("another address");
        assert_eq!(caller.begin(at(SILENT)), libc::EINPROGRESS);
        assert_eq!(listener.listen(1), libc::EADDRINUSE);

        // By one that nobody has bound: both have to say that they share it, and who calls is not to be met all the same.
        for says_so in [0i32, 1] {
            let caller = other.socket(local);
            assert_eq!(caller.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, &says_so.to_ne_bytes()), 0);
            assert_eq!(caller.begin(at(SILENT)), libc::EINPROGRESS);
            let local = caller.names().0.expect("an address");
            let listener = one.socket(local);
            assert_eq!(listener.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes()), 0);
            assert_eq!(listener.bind(local).err(), (says_so == 0).then_some(libc::EADDRINUSE));
            if says_so == 1 {
                assert_eq!(listener.listen(1), libc::EADDRINUSE);
            }
        }
    }
}
