//! Where links are: interfaces and what they tell, namespaces, links of other kinds, threads and signals.

use crate::common::{LONG, MODES, both, builder, exchange, settled, until, veth};
use bypath_link::l2::{Error, MacAddr, Mode, Settings, Socket};
use bypath_link::pair;
use bypath_sys::netns::{self, Namespace};

isolated! {
    fn interfaces_are_listed_with_what_is_known_of_them() {
        veth();
        netns::set_mtu("left", 4000).unwrap();
        let all = bypath_link::l2::interfaces().unwrap();
        assert_eq!(all.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["lo", "right", "left"]);
        assert!(all.windows(2).all(|w| w[0].index < w[1].index) && all.iter().all(|i| i.ethernet));
        let [lo, right, left] = &all[..] else { panic!("{all:?}") };
        assert!(lo.loopback && !lo.up && lo.mac == MacAddr::UNSPECIFIED && lo.speed().is_none(), "{lo:?}");
        assert_eq!((left.mtu, right.mtu, left.up, left.carrier), (4000, 1500, true, Some(true)));
        assert!(left.mac != right.mac && !left.mac.is_multicast() && left.mac != MacAddr::UNSPECIFIED);
        // What veth says of itself.
        assert_eq!((left.speed(), left.queueing.as_str()), (Some(10_000), "noqueue"));
        netns::set_up("right", false).unwrap();
        let left = bypath_link::Interface::named("left").unwrap();
        assert_eq!((left.up, left.carrier), (true, Some(false)));
        assert_eq!(bypath_link::Interface::named("right").unwrap().carrier, None);
    }
}

isolated! {
    fn an_interface_that_carries_no_ethernet_is_refused() {
        // A tunnel of the kernel's, where it has one.
        let made = std::process::Command::new("ip").args(["tuntap", "add", "tun0", "mode", "tun"]).output();
        if !made.is_ok_and(|o| o.status.success()) {
            return crate::common::skip(
                "place::an_interface_that_carries_no_ethernet_is_refused",
                "no TUN device can be made (/dev/net/tun is not writable, or no `ip`)",
            );
        }
        let error = Socket::builder("tun0").open().map(|_| ()).unwrap_err();
        assert_eq!(error, Error::NotEthernet { interface: "tun0".into() });
    }
}

isolated! {
    fn sockets_of_two_namespaces_talk_through_a_pair_of_interfaces() {
        let there = Namespace::new().unwrap();
        netns::veth("left", "right", Some(&there)).unwrap();
        netns::set_up("left", true).unwrap();
        assert!(matches!(Socket::builder("right").open(), Err(Error::Unknown { .. })));
        let right = there.run(|| {
            netns::set_up("right", true).unwrap();
            settled();
            builder("right", Mode::MMSG).open().unwrap()
        });
        // A socket stays in its namespace; the thread that uses it may be anywhere.
        let mut right = right.unwrap();
        settled();
        let mut left = builder("left", Mode::RING).open().unwrap();
        exchange(&mut left, &mut right, "between namespaces", (46..1500).step_by(111));
        exchange(&mut right, &mut left, "between namespaces", (46..1500).step_by(111));
        there.run(|| netns::add_address("right", "10.1.0.2".parse().unwrap(), 24)).unwrap().unwrap();
        netns::add_address("left", "10.1.0.1".parse().unwrap(), 24).unwrap();
        // The kernels at both ends agree that there is a network.
        let answer = there.run(|| std::net::TcpListener::bind("10.1.0.2:0").map(|l| (l.local_addr(), l))).unwrap();
        let (address, listener) = answer.unwrap();
        let client = std::net::TcpStream::connect_timeout(&address.unwrap(), LONG).unwrap();
        assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
        assert!(there.run(|| panic!("inside")).is_err());
        drop((left, right, client, listener, there));
        // A namespace ends with the last of what was in it, and the pair with it.
        until("an end of both interfaces", || bypath_link::Interface::named("left").is_err());
    }
}

#[test]
fn a_socket_works_over_any_link() {
    let (a, b) = pair::pair(1500, 4);
    let settings = Settings { ethertype: Some(0x88b5), ..Settings::default() };
    let (mut a, mut b) = (Socket::over(a, settings), Socket::over(b, settings));
    let payloads: [&[u8]; 6] = [&[1; 46], &[2; 1500], &[3; 100], &[4; 46], &[5; 46], &[6; 46]];
    // As many as the queue holds; nothing tells when there is room, so it does not wait.
    assert_eq!(a.send_batch(b.mac(), payloads), Ok(4));
    let mut got = Vec::new();
    assert_eq!(b.receive_batch(9, |f| got.push(f.payload.to_vec())), Ok(4));
    assert_eq!(got, payloads[..4]);
    assert_eq!(b.receive(&mut [0; 9]).map(|_| ()), Err(Error::WouldBlock));
    assert_eq!(a.send(b.mac(), &[0; 1501]).map_err(|e| e.code()), Err(libc::EMSGSIZE));
    assert_eq!(a.statistics().sent - a.statistics().refused, 4);
}

isolated! {
    fn a_signal_ends_a_wait_and_the_socket_goes_on() {
        veth();
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing; no flags, so that calls are not restarted.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        for (what, mode) in MODES {
            let (mut left, right) = both(mode, |b| b);
            let (tell, told) = std::sync::mpsc::channel();
            let waiting = std::thread::spawn(move || {
                let mut right = right;
                // SAFETY: no arguments.
                tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
                let outcome = right.receive(&mut [0; 60]).map(|_| ());
                (right, outcome)
            });
            let thread = told.recv().unwrap();
            until("the end of the wait", || {
                // SAFETY: the thread was not joined, so its handle is good.
                unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) };
                waiting.is_finished()
            });
            let (mut right, outcome) = waiting.join().unwrap();
            assert_eq!(outcome, Err(Error::Interrupted), "{what}");
            exchange(&mut left, &mut right, what, [100]);
        }
    }
}
