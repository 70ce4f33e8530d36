//! Where frames travel: loopback and a veth pair in private namespaces, or an interface with a peer; and the two programs
//! at the ends.

use super::order::{Answer, Order, Place, Run};
use super::remote::Remote;
use crate::bench::child::interrupted;
use crate::bench::context::{Context, Trouble};
use crate::raw;
use bypath_sys::{Errno, netns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::{Cell, RefCell};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest time between two looks at whether the user pressed Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Payload of the veth pair's frames: jumbo frames of real networks.
const VETH_MTU: u32 = 9000;
/// Names of the veth pair's ends, each in a namespace of its own, and their addresses (RFC 5737).
const VETH: [&str; 2] = ["near", "far"];
const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))];

/// Starts this command anew in private namespaces, and waits for it. Ctrl-C is passed on.
pub fn inside_namespaces() -> Result<ExitCode, String> {
    use std::os::unix::process::CommandExt as _;
    crate::bench::child::catch_interrupts().map_err(|e| format!("cannot catch signals: {e}"))?;
    let exe = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut command = Command::new(exe);
    // In a group of its own: Ctrl-C comes once, from here.
    command.args(std::env::args_os().skip(1)).arg("--inside").process_group(0);
    let mut child = netns::apart(&mut command).spawn().map_err(|e| match e.raw_os_error() {
        Some(code) if [libc_eperm(), libc_enospc(), libc_einval()].contains(&code) => format!(
            "no private network namespaces ({e}): run as root, or let users make them: \
             sysctl -w user.max_user_namespaces=1000; sysctl -w kernel.unprivileged_userns_clone=1 (Debian), \
             kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
        ),
        _ => format!("cannot start in private namespaces: {e}"),
    })?;
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("not 0");
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(|e| format!("waiting for the bench: {e}"))?;
    let mut told = false;
    loop {
        let timeout = Timespec::try_from(LOOK_EVERY).map_err(|e| e.to_string())?;
        // An error is a signal.
        if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) == Ok(1) {
            break;
        }
        if interrupted() && !told {
            told = true;
            // An error means that it has ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    // Without a status it was killed: by what came from here, before it was ready to catch it, or by somebody else.
    let killed = if told { raw::LOST } else { 1 };
    Ok(ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(killed)))
}

fn libc_eperm() -> i32 {
    Errno::PERM.raw_os_error()
}

fn libc_enospc() -> i32 {
    Errno::NOSPC.raw_os_error()
}

fn libc_einval() -> i32 {
    Errno::INVAL.raw_os_error()
}

/// A program at one end, and the conversation with it. Dropping it ends it.
pub struct End {
    name: String,
    child: Option<Child>,
    orders: Box<dyn Write>,
    answers: mpsc::Receiver<String>,
    /// The connection to another host: closed by hanging up, as the thread that reads from it has it, too.
    connection: Option<TcpStream>,
}

impl End {
    fn over(name: &str, orders: Box<dyn Write>, answers: impl Read + Send + 'static) -> End {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        End { name: name.to_owned(), child: None, orders, answers: receive, connection: None }
    }

    /// Talks to a program on another host.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn afar(name: &str, stream: TcpStream) -> std::io::Result<End> {
        let mut end = End::over(name, Box::new(stream.try_clone()?), stream.try_clone()?);
        end.connection = Some(stream);
        Ok(end)
    }

    fn start(command: &mut Command, name: &str) -> Result<End, String> {
        let fail = |e| format!("{name}: cannot start: {e}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(fail).map(|c| End::of(name, c))
    }

    /// Talks to a child.
    fn of(name: &str, mut child: Child) -> End {
        let (orders, answers) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut end = End::over(name, Box::new(orders), answers);
        end.child = Some(child);
        end
    }

    /// Gives an order.
    ///
    /// # Errors
    /// It is gone.
    pub fn order(&mut self, order: &Order) -> Result<(), String> {
        let mut text = serde_json::to_string(order).expect("plain data");
        text.push('\n');
        let written = self.orders.write_all(text.as_bytes()).and_then(|()| self.orders.flush());
        written.map_err(|e| format!("{}: it has gone away ({e})", self.name))
    }

    /// The next answer.
    ///
    /// # Errors
    /// None came in time; the end could not do what was ordered.
    pub fn answer(&mut self, deadline: Instant) -> Result<Answer, Trouble> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(line) => {
                    return match serde_json::from_str(&line) {
                        Ok(Answer::Error(e)) => Err(Trouble::Failed(format!("{}: {e}", self.name))),
                        Ok(Answer::Impossible(why)) => Err(Trouble::Skipped(why)),
                        Ok(answer) => Ok(answer),
                        Err(e) => Err(format!("{}: unexpected {line:?}: {e}", self.name).into()),
                    };
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(format!("{}: it has gone away", self.name).into());
                }
                Err(mpsc::RecvTimeoutError::Timeout) if interrupted() => {
                    return Err("interrupted".to_owned().into());
                }
                Err(mpsc::RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(format!("{}: no answer in time", self.name).into());
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Where it waits, and what it did not obtain.
    ///
    /// # Errors
    /// Those of [`answer`](End::answer).
    pub fn ready(&mut self, deadline: Instant) -> Result<(Place, Vec<String>), Trouble> {
        match self.answer(deadline)? {
            Answer::Ready { place, notes } => Ok((place, notes)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// An answer that does not fit.
    pub fn unexpected(&self, answer: &Answer) -> Trouble {
        Trouble::Failed(format!("{}: unexpected {answer:?}", self.name))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Errors mean that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(connection) = &self.connection {
            // An error means that the other side has hung up.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// How the ends of a road are reached.
enum How {
    Loopback,
    /// The far end is in this namespace.
    Veth(netns::Namespace),
    Peer(Remote),
}

/// A link with two ends.
pub struct Road {
    /// Its name in records.
    pub name: &'static str,
    /// Largest payload of its frames.
    pub mtu: usize,
    how: How,
    ends: RefCell<Option<Pair>>,
    runs: Cell<u32>,
}

/// Both ends.
pub struct Pair {
    /// Drives the measurement.
    pub near: End,
    /// Answers.
    pub far: End,
}

impl Road {
    /// Loopback of this namespace.
    pub fn loopback() -> Result<Road, String> {
        netns::set_up("lo", true).map_err(|e| format!("cannot switch lo on: {e}"))?;
        Ok(Road::new("lo", 65_536, How::Loopback))
    }

    /// A veth pair from this namespace to another, made for it.
    pub fn veth() -> Result<Road, String> {
        let fail = |what: &str, e: Errno| format!("cannot {what}: {e}");
        let far = netns::Namespace::new().map_err(|e| fail("make a second network namespace", e))?;
        netns::veth(VETH[0], VETH[1], Some(&far)).map_err(|e| fail("make a veth pair", e))?;
        let prepare = |end: usize| {
            netns::set_mtu(VETH[end], VETH_MTU)?;
            netns::set_up(VETH[end], true)?;
            netns::add_address(VETH[end], ADDRESSES[end], 24)
        };
        prepare(0).map_err(|e| fail("set up the veth pair", e))?;
        let inside = far.run(|| netns::set_up("lo", true).and_then(|()| prepare(1)));
        inside.and_then(|r| r).map_err(|e| fail("set up the veth pair's far end", e))?;
        Ok(Road::new("veth", VETH_MTU as usize, How::Veth(far)))
    }

    /// To another host.
    pub fn peer(remote: Remote, mtu: usize) -> Road {
        Road::new("peer", mtu, How::Peer(remote))
    }

    fn new(name: &'static str, mtu: usize, how: How) -> Road {
        // Frames of another bench on the same network have other numbers.
        let first = std::process::id() << 16;
        Road { name, mtu, how, ends: RefCell::new(None), runs: Cell::new(first) }
    }

    /// The far end's namespace, where it is private.
    pub fn far_namespace(&self) -> Option<&netns::Namespace> {
        match &self.how {
            How::Veth(namespace) => Some(namespace),
            _ => None,
        }
    }

    /// Names of the interfaces at the near and the far end, where both are ours.
    pub fn interfaces(&self) -> Option<[&str; 2]> {
        match &self.how {
            How::Loopback => Some(["lo", "lo"]),
            How::Veth(_) => Some(VETH),
            How::Peer(_) => None,
        }
    }

    /// A run with a number of its own.
    pub fn numbered(&self, run: Run) -> Run {
        self.runs.set(self.runs.get().wrapping_add(1));
        Run { number: self.runs.get(), ..run }
    }

    /// Has the two ends do something. After an error they are started anew the next time.
    pub fn with<R>(
        &self,
        context: &Context,
        f: impl FnOnce(&mut Pair) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        let mut ends = self.ends.borrow_mut();
        if ends.is_none() {
            *ends = Some(self.start(context)?);
        }
        let result = f(ends.as_mut().expect("started above"));
        if result.is_err() {
            *ends = None;
        }
        result
    }

    fn start(&self, context: &Context) -> Result<Pair, Trouble> {
        let command = |which: usize, iface: &str, ip: IpAddr| {
            let mut command = Command::new(&context.exe);
            command.args(["bench", "end", "--iface", iface, "--ip", &ip.to_string()]);
            if let Some(core) = context.core(which) {
                command.args(["--cpu", &core.to_string()]);
            }
            if which == 1 {
                command.arg("--far");
            }
            command
        };
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (near, far) = match &self.how {
            How::Loopback => {
                let near = End::start(&mut command(0, "lo", localhost), "near end");
                (near, End::start(&mut command(1, "lo", localhost), "far end"))
            }
            How::Veth(namespace) => {
                let mut there = command(1, VETH[1], ADDRESSES[1]);
                let far = namespace.run(|| there.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn());
                let far = far.map_err(|e| format!("cannot enter the far end's namespace: {e}"))?;
                let far = far.map_err(|e| format!("far end: cannot start: {e}"))?;
                let near = End::start(&mut command(0, VETH[0], ADDRESSES[0]), "near end");
                (near, Ok(End::of("far end", far)))
            }
            How::Peer(remote) => {
                let far = remote.connect()?;
                let near = End::start(&mut command(0, &remote.iface, remote.own), "near end");
                (near, Ok(far))
            }
        };
        let mut pair = Pair { near: near?, far: far? };
        for end in [&mut pair.near, &mut pair.far] {
            end.order(&Order::Where)?;
            end.ready(context.deadline(0.0))?;
        }
        Ok(pair)
    }
}
