//! The same ends again and again.

use super::{Net, Wire, kernel_calls, kernel_socket, nothing_is_left, read_all, set, write_all};
use crate::{LONGEST, at, isolated};
use bypath_link::tun::Offloads;
use bypath_netstack::{TcpListener, TcpStream};
use bypath_stack::config::Config;
use std::net::{Shutdown, TcpListener as KernelListener};

isolated! {
    fn the_kernel_may_call_again_from_the_port_that_we_keep_in_time_wait() {
        let net = Net::open(Wire::Tap(Offloads::ALL), 1500, None, Config::default()).expect("a link");
        for timestamps in ["1", "0"] {
            assert!(set("tcp_timestamps", timestamps), "timestamps");
            let listener = TcpListener::bind(net.host(), at("10.9.0.2:80")).expect("a listener");
            listener.set_timeout(Some(LONGEST));
            for n in 0..100 {
                let kernel = kernel_calls(kernel_socket(at("10.9.0.1:4000")), at("10.9.0.2:80"));
                kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
                let (own, _) = listener.accept().expect("a connection");
                own.set_timeout(Some(LONGEST));
                // We are the first to end: TIME-WAIT is ours.
                write_all(&own, n * 10, 1000);
                own.shutdown(Shutdown::Write).expect("a connection");
                read_all(&kernel, n * 10);
                drop(kernel);
                read_all(&own, 0);
            }
            let usage = net.host().with(|engine| engine.stack().usage());
            assert!(usage.time_wait <= 1, "{usage:?}");
        }
    }
}

isolated! {
    fn we_may_call_again_where_the_kernel_is_in_time_wait() {
        let net = Net::open(Wire::Tap(Offloads::ALL), 1500, None, Config::default()).expect("a link");
        for timestamps in ["1", "0"] {
            assert!(set("tcp_timestamps", timestamps), "timestamps");
            let listener = KernelListener::bind(at("10.9.0.1:81")).expect("a listener");
            for n in 0..100 {
                let from = Some(at("10.9.0.2:4000"));
                let own = TcpStream::connect_with(net.host(), at("10.9.0.1:81"), from, Some(LONGEST), |o, _| {
                    o.reuse_address = true;
                });
                let own = own.expect("a connection");
                own.set_timeout(Some(LONGEST));
                let (kernel, _) = listener.accept().expect("a connection");
                kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
                write_all(&kernel, n * 10, 1000);
                kernel.shutdown(Shutdown::Write).expect("a connection");
                read_all(&own, n * 10);
                drop(own);
                read_all(&kernel, 0);
                // Our port is free once our end has been acknowledged.
                nothing_is_left(net.host(), 0);
            }
        }
    }
}

isolated! {
    fn a_kernel_of_few_ports_takes_them_again_after_a_second() {
        let net = Net::open(Wire::Tap(Offloads::ALL), 1500, None, Config::default()).expect("a link");
        assert!(set("tcp_tw_reuse", "1") && set("ip_local_port_range", "40000 40007"), "settings");
        let listener = TcpListener::bind(net.host(), at("10.9.0.2:80")).expect("a listener");
        listener.set_timeout(Some(LONGEST));
        let begin = std::time::Instant::now();
        let end = begin + LONGEST;
        let mut waited = false;
        for n in 0..24 {
            // The kernel ends first, and keeps the ports.
            let kernel = loop {
                match std::net::TcpStream::connect(at("10.9.0.2:80")) {
                    Ok(kernel) => break kernel,
                    Err(e) if e.kind() == std::io::ErrorKind::AddrNotAvailable => waited = true,
                    Err(e) => panic!("{e}"),
                }
                assert!(std::time::Instant::now() < end, "no port again");
                std::thread::sleep(std::time::Duration::from_millis(20));
            };
            let (own, from) = listener.accept().expect("a connection");
            assert!((40_000..40_008).contains(&from.port()), "{from}");
            own.set_timeout(Some(LONGEST));
            write_all(&kernel, n * 100, 1000);
            kernel.shutdown(Shutdown::Write).expect("a connection");
            read_all(&own, n * 100);
        }
        // A machine that is slow enough finds ports that are free again.
        assert!(waited || begin.elapsed() > std::time::Duration::from_millis(900), "ports in TIME-WAIT were taken at once");
    }
}
