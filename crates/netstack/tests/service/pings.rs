//! Ping sockets.

use crate::datagrams::Dgram;
use crate::{Running, at, isolated};
use bypath_shm::datagram::Header;
use bypath_shm::service::Address;

isolated! {
    fn who_pings_hears_his_own_replies() {
        let running = Running::new();
        let program = running.program();
        for (v6, protocol, to, request, reply) in [
            (false, libc::IPPROTO_ICMP, "10.9.0.1:0", 8, 0),
            (true, libc::IPPROTO_ICMPV6, "[fd09::1]:0", 128, 129),
        ] {
            let (one, two) = (Dgram::of(&program, v6, protocol), Dgram::of(&program, v6, protocol));
            let (one, two) = (one.expect("a socket"), two.expect("a socket"));
            let message = |n: u8| [request, 0, 0, 0, 0xff, 0xff, 0, n, b'p', b'i', b'n', b'g'];
            let peer = Header::datagram(Address(Some(at(to))));
            for n in 1..4 {
                one.say(&peer, &message(n));
                two.say(&peer, &message(n + 100));
                for (socket, n) in [(&one, n), (&two, n + 100)] {
                    let (header, came) = socket.headed();
                    assert_eq!(header.peer.0, Some(at(to)));
                    assert_eq!((came[0], came[7], &came[8..]), (reply, n, &b"ping"[..]));
                    let ident = socket.names().0.expect("an identifier").port();
                    assert_eq!(came[4..6], ident.to_be_bytes());
                }
            }
            // What is no request is not sent.
            assert_eq!(one.connect(at(to)), 0);
            one.say(&Header::datagram(Address(None)), &[reply; 12]);
            assert_eq!(one.headed().0.kind, bypath_shm::datagram::Kind::Error);
            one.end.send(&message(9)).expect("sent");
            assert_eq!(one.record()[7], 9);
        }
    }
}

isolated! {
    fn nobody_pings_in_the_name_of_another_host() {
        let running = Running::new();
        let program = running.program();
        for (v6, protocol, own, others) in [
            (false, libc::IPPROTO_ICMP, "10.9.0.2:0", &["10.9.0.77:0", "8.8.8.8:0", "10.9.0.255:0", "224.0.0.1:0"][..]),
            (true, libc::IPPROTO_ICMPV6, "[fd09::2]:0", &["[fd09::99]:0", "[ff02::1]:0"][..]),
        ] {
            for other in others {
                let ping = Dgram::of(&program, v6, protocol).expect("a socket");
                assert_eq!(ping.bind(other), Err(libc::EADDRNOTAVAIL), "{other}");
            }
            let ping = Dgram::of(&program, v6, protocol).expect("a socket");
            ping.bind(own).expect("its own address");
        }
    }
}
