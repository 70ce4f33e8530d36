//! What goes wrong says what to do.

use crate::common::{RULE, exchange, frame, mac, open, receive, send, settled, skip, until, veth};
use bypath_link::l2::{Mode, Socket};
use bypath_link::xdp::{Config, Place, Refused, Rule, Transfer, Vlan, XdpLink};
use bypath_link::{Error, Link};
use bypath_sys::bpf::{Assembler, Change, Program, Reg, SocketMap};
use bypath_sys::xdp::program;
use bypath_sys::{Errno, netns};
use bypath_wire::FrameMeta;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

fn refused(config: &Config) -> Error {
    match XdpLink::open(config) {
        Ok(link) => panic!("opened: {:?}", link.obtained()),
        Err(e) => e,
    }
}

/// What a socket of the builder is told in place of being opened.
fn refused_to_the_builder() -> Error {
    let socket = Socket::builder("lo").ethertype(0x88b5).mode(Mode::XDP).open();
    socket.map(|_| ()).expect_err("nothing was opened")
}

fn soon(interface: &str) -> Config {
    Config { patience: Duration::from_millis(100), ..Config::new(interface, &[RULE]) }
}

apart! {
    fn two_sockets_on_one_queue_are_refused_and_the_first_goes_on() {
        veth(1500);
        let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
        let e = refused(&soon("right"));
        assert_eq!(e, Refused::QueueBusy { interface: "right".to_owned(), queue: 0 }.into());
        assert_eq!(e.code(), Errno::BUSY.raw_os_error());
        assert!(e.to_string().contains("right: queue 0 has an AF_XDP socket already; close"), "{e}");
        exchange(&mut left, &mut right, "the first", [1, 1500]);
    }
}

apart! {
    fn another_program_on_the_interface_is_told_from_another_socket() {
        veth(1500);
        let map = SocketMap::new(1).unwrap();
        let instructions = program::redirect(&[RULE], map.descriptor()).unwrap();
        let index = bypath_link::Interface::named("right").unwrap().index;
        let other = Program::load(&instructions, false).unwrap().attach(index, Place::Generic).unwrap();
        let e = refused(&soon("right"));
        assert_eq!(e, Refused::ProgramBusy { interface: "right".to_owned() }.into());
        assert!(e.to_string().contains("xdp off"), "{e}");
        drop(other);
        open("right", |_| {});
    }
}

apart! {
    fn opening_again_at_once_works() {
        veth(1500);
        let mut left = open("left", |_| {});
        for n in 0..8 {
            let mut right = open("right", |_| {});
            exchange(&mut left, &mut right, "reopened", [n + 1]);
        }
    }
}

apart! {
    fn what_is_not_there_or_makes_no_sense_is_refused() {
        veth(1500);
        let queue = Config { queue: 7, ..soon("right") };
        assert_eq!(refused(&queue), Refused::Queue { interface: "right".to_owned(), queue: 7 }.into());
        let zero = Config { transfer: Some(Transfer::ZeroCopy), ..soon("right") };
        let e = refused(&zero);
        assert!(matches!(e, Error::Xdp(Refused::Driver { .. })), "{e}");
        assert!(matches!(refused(&soon("nosuch")), Error::Unknown { .. }));
        assert!(matches!(refused(&Config::new("right", &[])), Error::Invalid(_)));
        let length = Rule::EtherType { ethertype: 0x100, vlan: None };
        assert!(matches!(refused(&Config::new("right", &[length])), Error::Invalid(_)));
        let vlan = Rule::EtherType { ethertype: 0x88b5, vlan: Some(4095) };
        assert!(matches!(refused(&Config::new("right", &[vlan])), Error::Invalid(_)));
        assert!(matches!(refused(&Config { receive: 1, ..soon("right") }), Error::Invalid(_)));
        let group = Config { groups: vec![mac("right")], ..soon("right") };
        assert!(matches!(refused(&group), Error::Invalid(_)));
        assert!(XdpLink::open_queues(&soon("right"), &[0, 0]).is_err_and(|e| matches!(e, Error::Invalid(_))));
        netns::set_up("right", false).unwrap();
        assert!(matches!(refused(&soon("right")), Error::Down { .. }));
        netns::set_up("lo", true).unwrap();
        let native = Config { place: Some(Place::Driver), ..soon("lo") };
        let e = refused(&native);
        assert!(matches!(e, Error::Xdp(Refused::Driver { .. })), "{e}");
    }
}

apart! {
    fn a_wrong_program_comes_back_with_the_verifiers_reasons() {
        let mut a = Assembler::new();
        a.change(Change::Set, Reg::R0, Reg::R9);
        a.exit();
        let rejected = Program::load(&a.finish().unwrap(), false).err().expect("a wrong program");
        assert_eq!(rejected.errno, Errno::ACCESS);
        assert!(rejected.log.contains("R9 !read_ok"), "{}", rejected.log);
    }
}

apart! {
    fn every_kind_of_rule_passes_the_verifier() {
        let map = SocketMap::new(1).unwrap();
        let mut all: Vec<_> = (0..100).map(|n| Rule::Port { protocol: 6 + n % 2 * 11, port: 1000 + u16::from(n) }).collect();
        all.extend((0..100).map(|n| Rule::EtherType { ethertype: 0x9000 + n, vlan: (n % 3 > 0).then_some(n) }));
        let vlan = |n| [Vlan::Any, Vlan::None, Vlan::Id(n)][usize::from(n) % 3];
        all.extend((0..50).map(|n| Rule::Outer { ethertype: 0xa000 + n, vlan: vlan(n) }));
        let each = all.iter().map(std::slice::from_ref);
        for rules in each.chain([&all[..], &[Rule::Everything]]) {
            let instructions = program::redirect(rules, map.descriptor()).unwrap();
            for fragments in [false, true] {
                if let Err(r) = Program::load(&instructions, fragments) {
                    panic!("{} rules: {}: {}", rules.len(), r.errno, r.log);
                }
            }
        }
    }
}

apart! {
    fn an_interface_that_goes_down_is_reported_once_and_serves_again() {
        veth(1500);
        let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
        exchange(&mut left, &mut right, "before", [100]);
        netns::set_up("right", false).unwrap();
        let mut reports = 0;
        for _ in 0..1000 {
            match right.receive(10, &mut |_, _| unreachable!()) {
                Ok(0) => {}
                Err(e) => {
                    assert_eq!(e, Error::Down { interface: "right".to_owned() });
                    reports += 1;
                }
                Ok(n) => panic!("{n} frames"),
            }
        }
        assert_eq!(reports, 1);
        let one = right.send(1, &mut |slot| {
            slot[..60].fill(1);
            Some((60, FrameMeta::default()))
        });
        assert_eq!(one, Err(Error::Down { interface: "right".to_owned() }));
        netns::set_up("right", true).unwrap();
        settled();
        exchange(&mut left, &mut right, "after", [100]);
    }
}

apart! {
    fn an_interface_that_is_removed_is_gone_for_ever() {
        veth(1500);
        let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
        exchange(&mut left, &mut right, "before", [100]);
        netns::remove("left").unwrap();
        let gone = Error::Gone { interface: "right".to_owned() };
        until("news", || right.receive(10, &mut |_, _| unreachable!()).is_err_and(|e| e == gone));
        assert_eq!(right.receive(10, &mut |_, _| unreachable!()), Err(gone.clone()));
        assert_eq!(right.send(1, &mut |_| unreachable!()), Err(gone.clone()));
        assert_eq!(right.flush(), Err(gone));
        veth(1500);
        let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
        exchange(&mut left, &mut right, "new ones", [100]);
    }
}

apart! {
    fn a_changed_mtu_is_learnt() {
        veth(1500);
        let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
        for name in ["left", "right"] {
            netns::set_mtu(name, 3000).unwrap();
        }
        let one = |left: &mut XdpLink, payload: usize| {
            let bytes = frame(mac("right"), mac("left"), 3, payload);
            let mut once = true;
            left.send(1, &mut |slot| {
                let len = bytes.len().min(slot.len());
                slot[..len].copy_from_slice(&bytes[..len]);
                std::mem::take(&mut once).then_some((bytes.len(), FrameMeta::default()))
            })
        };
        let grown = Error::Grown { interface: "left".to_owned(), payload: 2500, room: 1500 };
        assert_eq!(one(&mut left, 2500), Err(grown));
        netns::set_mtu("left", 1000).unwrap();
        let long = Error::TooLong { interface: "left".to_owned(), payload: 1200, mtu: 1000 };
        until("the MTU", || match one(&mut left, 1200) {
            Ok(_) => {
                receive(&mut right, 1);
                false
            }
            Err(e) => e == long,
        });
        send(&mut left, &[frame(mac("right"), mac("left"), 3, 1000)]);
        assert_eq!(receive(&mut right, 1)[0].0.len(), 1014);
    }
}

/// Runs this test program again, with `test` doing what is inside, in a process that `prepare` has changed.
fn in_process(test: &str, inside: &str, prepare: impl FnOnce(&mut Command)) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(inside, "1");
    prepare(&mut command);
    match command.output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            None
        }
        Err(e) => Some(e.to_string()),
    }
}

#[test]
fn root_of_a_user_namespace_is_told_what_is_missing() {
    const INSIDE: &str = "BYPATH_TEST_XDP_USER_NAMESPACE";
    const NAME: &str = "trouble::root_of_a_user_namespace_is_told_what_is_missing";
    if std::env::var_os(INSIDE).is_some() {
        netns::set_up("lo", true).unwrap();
        let e = refused(&soon("lo"));
        assert_eq!(e, Refused::Program.into());
        assert_eq!(e.code(), Errno::PERM.raw_os_error());
        assert!(e.to_string().contains("setcap cap_net_raw,cap_net_admin,cap_bpf+ep"), "{e}");
        assert!(e.to_string().contains("mode RING"), "{e}");
        assert_eq!(refused_to_the_builder(), e);
        return;
    }
    if !in_user_namespace() {
        return skip(NAME, "no user namespaces");
    }
    let refusal = in_process(NAME, INSIDE, |c| {
        netns::isolated(c);
    });
    if let Some(reason) = refusal {
        skip(NAME, &format!("no user and network namespaces: {reason}"));
    }
}

/// Whether `netns::isolated` gives a user namespace, and not only a network's.
fn in_user_namespace() -> bool {
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    let mut command = Command::new("readlink");
    command.arg("/proc/self/ns/user");
    let output = netns::isolated(&mut command).output();
    output.is_ok_and(|o| {
        !o.stdout.is_empty() && String::from_utf8_lossy(&o.stdout).trim() != own.to_string_lossy()
    })
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    const INSIDE: &str = "BYPATH_TEST_XDP_USER";
    const NAME: &str = "trouble::an_ordinary_user_is_told_what_is_missing";
    if std::env::var_os(INSIDE).is_some() || bypath_sys::process::euid() != 0 {
        let e = refused(&soon("lo"));
        assert_eq!(e, Refused::Socket.into());
        assert!(e.to_string().contains("CAP_NET_RAW: run as root"), "{e}");
        assert_eq!(refused_to_the_builder(), e);
        return;
    }
    // The program may lie where only root can read: it is started first, and gives its rights away then.
    let refusal = in_process(NAME, INSIDE, |c| {
        let drop_rights = || {
            // No capability survives the next execve, not even root's.
            for capability in 0..64 {
                // SAFETY: integers only.
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            }
            Ok(())
        };
        // SAFETY: after the fork it makes system calls only.
        unsafe { c.pre_exec(drop_rights) };
    });
    assert_eq!(refusal, None);
}

#[test]
fn memory_that_may_not_be_locked_is_told() {
    const INSIDE: &str = "BYPATH_TEST_XDP_MEMORY";
    const NAME: &str = "trouble::memory_that_may_not_be_locked_is_told";
    if std::env::var_os(INSIDE).is_some() {
        crate::common::in_namespace(concat!(module_path!(), "::inside"), || {
            veth(1500);
            let e = refused(&soon("right"));
            let octets = 2048 * (2048 + 512);
            assert_eq!(e, Refused::Memory { octets }.into());
            assert!(e.to_string().contains("ulimit -l 5120"), "{e}");
            // The kernel counts for all processes of a user together: other runs of this test fit beside.
            open("right", |c| (c.receive, c.send) = (64, 16));
        });
        return;
    }
    if let Err(e) = SocketMap::new(1) {
        return skip(NAME, &format!("no programs for received frames ({e}): needs root of the machine"));
    }
    let refusal = in_process(NAME, INSIDE, |c| {
        let limit = || {
            const CAP_IPC_LOCK: i32 = 14;
            let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            // SAFETY: integers, and a local that is read.
            unsafe {
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
                libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit);
            }
            Ok(())
        };
        // SAFETY: after the fork it makes system calls only.
        unsafe { c.pre_exec(limit) };
    });
    assert_eq!(refusal, None);
}

#[test]
fn a_kernel_without_af_xdp_is_told() {
    const INSIDE: &str = "BYPATH_TEST_XDP_NONE";
    const NAME: &str = "trouble::a_kernel_without_af_xdp_is_told";
    if std::env::var_os(INSIDE).is_some() {
        let e = refused(&soon("lo"));
        assert_eq!(e, Refused::Unsupported.into());
        assert!(e.to_string().contains("use a packet link (mode RING moves the most)"), "{e}");
        assert_eq!(refused_to_the_builder(), e);
        return;
    }
    let refusal = in_process(NAME, INSIDE, |c| {
        // SAFETY: after the fork it makes system calls only.
        unsafe { c.pre_exec(without_af_xdp) };
    });
    assert_eq!(refusal, None);
}

/// From now on socket(AF_XDP, ...) answers as a kernel that does not have it.
fn without_af_xdp() -> std::io::Result<()> {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, ret) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET,
    );
    // struct seccomp_data: number at 0, the low half of the first argument at 16.
    let mut filter = [
        statement(load, 0, 0, 0),
        statement(equal, libc::SYS_socket as u32, 0, 3),
        statement(load, 16, 0, 0),
        statement(equal, libc::AF_XDP as u32, 0, 1),
        statement(ret, libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32, 0, 0),
        statement(ret, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its instructions are locals.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
