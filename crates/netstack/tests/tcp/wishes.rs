//! What connections want, one by one.

use crate::{at, host, pair};
use bypath_netstack::{TcpListener, TcpStream};
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::{Keepalive, MtuProbing};
use std::io::ErrorKind;
use std::time::Duration;

#[test]
fn what_is_wanted_is_what_is_said() {
    let host = host();
    let (client, _server) = pair(&host);
    let seconds = |n| Some(Duration::from_secs(n));
    assert_eq!((client.nodelay().unwrap(), client.cork().unwrap()), (false, false));
    client.set_nodelay(true).unwrap();
    client.set_cork(true).unwrap();
    assert_eq!((client.nodelay().unwrap(), client.cork().unwrap()), (true, true));
    assert!(client.out_of_band_inline().unwrap());
    client.set_out_of_band_inline(false).unwrap();
    assert!(!client.out_of_band_inline().unwrap());
    let probes = Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(5), probes: 3 };
    assert_eq!(client.keepalive().unwrap(), None);
    client.set_keepalive(Some(probes)).unwrap();
    assert_eq!(client.keepalive().unwrap(), Some(probes));
    for wrong in [
        Keepalive { probes: 0, ..probes },
        Keepalive { idle: Duration::ZERO, ..probes },
        Keepalive { interval: Duration::ZERO, ..probes },
    ] {
        assert_eq!(client.set_keepalive(Some(wrong)).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!((client.linger().unwrap(), client.user_timeout().unwrap()), (None, None));
    client.set_linger(seconds(3)).unwrap();
    client.set_user_timeout(seconds(7)).unwrap();
    assert_eq!((client.linger().unwrap(), client.user_timeout().unwrap()), (seconds(3), seconds(7)));
    assert_eq!((client.mtu_probing().unwrap(), client.base_mss().unwrap()), (MtuProbing::Off, 1024));
    client.set_mtu_probing(MtuProbing::AfterTimeouts).unwrap();
    client.set_base_mss(512).unwrap();
    assert_eq!((client.mtu_probing().unwrap(), client.base_mss().unwrap()), (MtuProbing::AfterTimeouts, 512));
    assert_eq!(client.set_base_mss(47).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.congestion_control().unwrap(), Algorithm::Cubic);
    client.set_congestion_control(Algorithm::Reno).unwrap();
    assert_eq!(client.congestion_control().unwrap(), Algorithm::Reno);
    assert_eq!(client.statistics().unwrap().algorithm, Algorithm::Reno);
    client.set_send_buffer_size(10_000).unwrap();
    client.set_recv_buffer_size(20_000).unwrap();
    assert_eq!((client.send_buffer_size().unwrap(), client.recv_buffer_size().unwrap()), (10_000, 20_000));
    assert_eq!(client.set_send_buffer_size(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.set_recv_buffer_size(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    client.set_hop_limit(Some(5)).unwrap();
    assert_eq!(client.hop_limit().unwrap(), Some(5));
    assert_eq!(client.set_hop_limit(Some(0)).unwrap_err().kind(), ErrorKind::InvalidInput);
    // No more than that is written without being acknowledged.
    client.set_nonblocking(true).unwrap();
    let mut written = 0;
    while written < 100_000 {
        match client.send(&[0; 1_000_000]) {
            Ok(n) => written += n,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
        assert!(client.statistics().unwrap().unacknowledged <= 10_000);
    }
}

#[test]
fn connections_have_what_their_listener_wanted() {
    let host = host();
    let listener = TcpListener::bind_with(&host, at("127.0.0.1:80"), 5, |options, settings| {
        options.linger = Some(Duration::ZERO);
        settings.nodelay = true;
        settings.sack = false;
        settings.algorithm = Algorithm::Reno;
    })
    .unwrap();
    let client = TcpStream::connect(&host, at("127.0.0.1:80")).unwrap();
    let (server, _) = listener.accept().unwrap();
    assert_eq!((server.nodelay().unwrap(), server.linger().unwrap()), (true, Some(Duration::ZERO)));
    assert_eq!(server.congestion_control().unwrap(), Algorithm::Reno);
    assert_eq!(client.congestion_control().unwrap(), Algorithm::Cubic);
    assert!(!client.statistics().unwrap().sack && client.statistics().unwrap().timestamps);
    // Without time to linger it is reset.
    drop(server);
    assert_eq!(client.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(host);
    assert_eq!(client.set_nodelay(false).unwrap_err().kind(), ErrorKind::BrokenPipe);
}
