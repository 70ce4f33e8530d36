use super::port::seems_up;
use super::*;
use bypath_link::pair::{End, pair};
use bypath_sys::Errno;
use bypath_wire::{FrameMeta, MacAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// An engine on a link that holds so many frames, with a socket; the other end; to whom it sends.
fn engine(most: usize) -> (Engine, End, SocketId, SocketAddr) {
    let (own, other) = pair(1500, most);
    let mut engine = Engine::with_seed(Config::default(), [1; 32]);
    let iface = engine.add_link("cable", Box::new(own)).expect("an interface");
    engine
        .stack()
        .add_address(Engine::now(), iface, "10.0.0.1/24".parse().expect("an address"))
        .expect("an address");
    let to: SocketAddr = "10.0.0.2:7".parse().expect("an address");
    engine.stack().set_neighbor(iface, to.ip(), MacAddr([2; 6]));
    let socket = engine.stack().open_udp().expect("a socket");
    (engine, other, socket, to)
}

/// Frames that came, but for announcements of addresses.
fn frames(engine: &mut Engine, other: &mut End) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..50 {
        engine.turn().expect("a link");
        let mut each = |frame: &[u8], _: &bypath_wire::FrameMeta| frames.push(frame.to_vec());
        other.receive(64, &mut each).expect("a link");
    }
    frames.retain(|frame| frame[12..14] == [8, 0]);
    frames
}

#[test]
fn what_goes_straight_is_the_frame_that_the_queue_would_have_given() {
    let (mut engine, mut other, socket, to) = engine(64);
    frames(&mut engine, &mut other);
    for len in [0, 1, 100, 1472] {
        let octets = vec![7; len];
        engine.stack().udp(socket).expect("the socket").send(&octets, Some(to)).expect("sent");
        let queued = frames(&mut engine, &mut other);
        assert!(engine.stack().udp(socket).expect("the socket").straight(Some(to)).is_some());
        engine.send(socket, &octets, Some(to)).expect("sent");
        // It is there before any turn.
        assert_eq!(other.waiting(), 1);
        assert_eq!(frames(&mut engine, &mut other), queued);
    }
    // Longer than a packet: in pieces.
    engine.send(socket, &[7; 3000], Some(to)).expect("sent");
    assert_eq!(frames(&mut engine, &mut other).len(), 3);
    engine.stack().close(socket);
    assert_eq!(engine.send(socket, b"x", Some(to)), Err(SendError::Closed));
}

/// A link whose interface can be down.
struct Shaky {
    end: End,
    down: Arc<AtomicBool>,
}

impl Shaky {
    fn end(&mut self) -> bypath_link::Result<&mut End> {
        let interface = || "cable".to_owned();
        match self.down.load(SeqCst) {
            true => Err(bypath_link::Error::Down { interface: interface() }),
            false => Ok(&mut self.end),
        }
    }
}

impl Link for Shaky {
    fn capabilities(&self) -> Capabilities {
        self.end.capabilities()
    }
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.end.descriptor()
    }
    fn receive(&mut self, most: usize, each: &mut bypath_link::Each<'_>) -> bypath_link::Result<usize> {
        self.end()?.receive(most, each)
    }
    fn send(&mut self, most: usize, next: &mut bypath_link::Next<'_>) -> bypath_link::Result<usize> {
        self.end()?.send(most, next)
    }
    fn flush(&mut self) -> bypath_link::Result<usize> {
        self.end.flush()
    }
    fn forget(&mut self) -> usize {
        self.end.forget()
    }
    fn statistics(&mut self) -> bypath_link::Statistics {
        self.end.statistics()
    }
}

#[test]
fn a_link_that_is_down_and_up_again_is_told_of_once_for_each_time() {
    let (own, mut other) = pair(1500, 64);
    let down = Arc::new(AtomicBool::new(false));
    let mut engine = Engine::with_seed(Config::default(), [1; 32]);
    let link = Shaky { end: own, down: Arc::clone(&down) };
    let iface = engine.add_link("cable", Box::new(link)).expect("an interface");
    let told = |engine: &mut Engine| {
        for _ in 0..20 {
            engine.turn().expect("a link");
        }
        let all: Vec<News> = std::iter::from_fn(|| engine.poll_event()).collect();
        [News::Down(iface), News::Up(iface)].map(|which| all.iter().filter(|news| **news == which).count())
    };
    assert_eq!(told(&mut engine), [0, 0]);
    for _ in 0..3 {
        down.store(true, SeqCst);
        assert_eq!([told(&mut engine), told(&mut engine)], [[1, 0], [0, 0]]);
        down.store(false, SeqCst);
        let mut frame = Some([0xff; 60]);
        other
            .send(1, &mut |room| {
                room[..60].copy_from_slice(&frame.take()?);
                Some((60, FrameMeta::default()))
            })
            .expect("a link");
        assert_eq!([told(&mut engine), told(&mut engine)], [[0, 1], [0, 0]]);
    }
}

#[test]
fn a_link_that_was_down_is_up_as_the_kernel_says_and_not_because_it_does_not_answer() {
    for moves in [false, true] {
        assert_eq!([true, false].map(|up| seems_up(Ok(up), moves)), [true, false]);
        assert_eq!([Errno::MFILE, Errno::NOBUFS].map(|e| seems_up(Err(e), moves)), [false, false]);
        assert_eq!(seems_up(Err(Errno::NODEV), moves), moves);
    }
}

#[test]
fn a_link_is_named_once() {
    let link = |source| Error::Link { name: "cable".into(), source }.to_string();
    let gone = bypath_link::Error::Gone { interface: "cable".into() };
    assert_eq!(link(gone.clone()), gone.to_string());
    let other = bypath_link::Error::Gone { interface: "cable2".into() };
    assert_eq!(link(other.clone()), format!("cable: {other}"));
    assert_eq!(link(bypath_link::Error::NotAllowed), format!("cable: {}", bypath_link::Error::NotAllowed));
}

#[test]
fn what_a_link_does_not_take_is_queued_and_overtaken_by_nothing() {
    let (mut engine, mut other, socket, to) = engine(2);
    frames(&mut engine, &mut other);
    for n in 0..20 {
        engine.send(socket, &[n; 10], Some(to)).expect("sent");
        if n % 7 == 6 {
            other.receive(1, &mut |frame, _| assert_eq!(frame[42], n / 7)).expect("a link");
        }
    }
    let rest: Vec<u8> = frames(&mut engine, &mut other).into_iter().map(|frame| frame[42]).collect();
    assert_eq!(rest, (2..20).collect::<Vec<u8>>());
}
