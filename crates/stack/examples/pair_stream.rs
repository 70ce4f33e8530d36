//! A stream between two stacks in one process, checksums on: gigabits a second, for packets of 1500 and of 65,535 octets, and the
//! time of a round trip of one octet. `pair_stream [SECONDS]`; alone on a processor: `taskset -c 1`.

use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_wire::FrameMeta;

struct Pair {
    stacks: [(Stack, IfaceId); 2],
    sockets: [SocketId; 2],
    frame: Vec<u8>,
    begin: std::time::Instant,
    checksum: bool,
}

impl Pair {
    fn new(mtu: usize, checksum: bool) -> Pair {
        let stacks = [1, 2].map(|n| {
            let mut stack = Stack::new(Config::default(), [n; 32]);
            let shape = IfaceConfig {
                medium: Medium::Ip,
                mtu,
                offload: Offload { checksum: !checksum, segmentation: false },
            };
            let iface = stack.add_iface(shape).expect("room for an interface");
            let prefix = format!("10.0.0.{n}/24").parse().expect("an address");
            stack.add_address(Instant::ZERO, iface, prefix).expect("an address");
            (stack, iface)
        });
        let [(mut a, on_a), (mut b, on_b)] = stacks;
        let server = b.open_tcp().expect("room for a socket");
        let mut tcp = b.tcp(server).expect("it is there");
        tcp.bind("0.0.0.0:80".parse().expect("an address")).expect("a port");
        tcp.listen(1).expect("nobody else");
        let client = a.open_tcp().expect("room for a socket");
        let to = "10.0.0.2:80".parse().expect("an address");
        a.tcp(client).expect("it is there").connect(Instant::ZERO, to).expect("a way");
        let stacks = [(a, on_a), (b, on_b)];
        let begin = std::time::Instant::now();
        let mut pair = Pair { stacks, sockets: [client; 2], frame: vec![0; 65_600], begin, checksum };
        while pair.carry() {}
        let accepted = pair.stacks[1].0.tcp(server).expect("it is there").accept();
        pair.sockets[1] = accepted.expect("an open connection");
        pair
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.begin.elapsed().as_nanos() as u64)
    }

    /// Carries what there is to be sent; whether there was anything.
    fn carry(&mut self) -> bool {
        let mut any = false;
        for from in 0..2 {
            let now = self.now();
            let [a, b] = &mut self.stacks;
            let ((from, iface), (to, on)) = if from == 0 { (a, b) } else { (b, a) };
            if from.poll_timeout().is_some_and(|due| due <= now) {
                from.handle_timeout(now);
            }
            for _ in 0..64 {
                let Some((len, meta)) = from.poll_transmit(now, *iface, &mut self.frame) else { break };
                any = true;
                let checksum =
                    if self.checksum { meta.checksum } else { bypath_wire::meta::ChecksumState::Verified };
                to.handle_frame(
                    now,
                    *on,
                    &self.frame[..len],
                    &FrameMeta { checksum, ..FrameMeta::default() },
                );
            }
            while from.poll_event().is_some() {}
        }
        any
    }

    fn stream(&mut self, seconds: f64) -> f64 {
        let (octets, mut room) = (vec![7; 256 << 10], vec![0; 256 << 10]);
        let (begin, mut read) = (std::time::Instant::now(), 0u64);
        while begin.elapsed().as_secs_f64() < seconds {
            for _ in 0..16 {
                let _full = self.stacks[0].0.tcp(self.sockets[0]).expect("it is there").write(&octets);
                self.carry();
                let mut tcp = self.stacks[1].0.tcp(self.sockets[1]).expect("it is there");
                while let Ok(n) = tcp.read(&mut room) {
                    read += n as u64;
                }
            }
        }
        read as f64 * 8.0 / begin.elapsed().as_nanos() as f64
    }

    fn round_trips(&mut self, count: u32) -> f64 {
        let mut room = [0];
        let begin = std::time::Instant::now();
        for _ in 0..count {
            for side in [0, 1] {
                let _fits = self.stacks[side].0.tcp(self.sockets[side]).expect("it is there").write(&[1]);
                while self.stacks[1 - side]
                    .0
                    .tcp(self.sockets[1 - side])
                    .expect("it is there")
                    .read(&mut room)
                    .is_err()
                {
                    self.carry();
                }
            }
        }
        begin.elapsed().as_nanos() as f64 / f64::from(count)
    }
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    for (mtu, checksum) in [(1500, true), (1500, false), (65_535, true), (65_535, false)] {
        let mut pair = Pair::new(mtu, checksum);
        pair.stream(seconds / 4.0);
        println!("mtu {mtu}, checksums {checksum}: {:.1} Gb/s", pair.stream(seconds));
    }
    println!("round trip of one octet: {:.0} ns", Pair::new(1500, true).round_trips(200_000));
}
