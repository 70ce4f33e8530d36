//! Programs and services that end.

use crate::{Running, at, engine, isolated, kernels, patient};
use bypath_netstack::service::{QueryError, Service, ServiceError, Settings, query};
use bypath_stack::config::Config;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

isolated! {
    fn a_program_that_is_killed_leaves_nothing_behind() {
        let running = Running::new();
        let program = running.program();
        let (theirs, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        let mut kernel = patient(theirs.accept().expect("a connection").0);
        let (listener, here) = program.listener(at("10.9.0.2:0"));
        // Another program has them alone: what it reads of the one it writes to the other one.
        let input = OwnedFd::from(own.stream.try_clone().expect("a descriptor"));
        let output = OwnedFd::from(own.stream.try_clone().expect("a descriptor"));
        let error = OwnedFd::from(listener.stream.try_clone().expect("a descriptor"));
        let mut child = Command::new("cat")
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(error))
            .spawn()
            .expect("cat");
        drop((own, listener));
        kernel.write_all(b"echo").expect("written");
        let mut room = [0; 4];
        kernel.read_exact(&mut room).expect("octets");
        assert_eq!(&room, b"echo");
        assert_eq!(running.query("sockets").len(), 2);
        let pid = Pid::from_raw(child.id() as i32);
        kill(pid, Signal::SIGKILL).expect("a process");
        child.wait().expect("a status");
        assert_eq!(kernel.read(&mut room).expect("an end"), 0);
        drop(kernel);
        running.has_sockets(0);
        assert!(TcpStream::connect(here).is_err());
    }
}

isolated! {
    fn a_socket_that_was_opened_and_closed_is_gone() {
        let running = Running::new();
        let program = running.program();
        for _ in 0..3 {
            let socket = program.open(false).expect("a socket");
            socket.bind(at("10.9.0.2:4000")).expect("a port");
            drop(socket);
            running.has_sockets(0);
        }
    }
}

isolated! {
    fn a_service_that_is_stopped_ends_connections_and_its_name() {
        let mut running = Running::new();
        let program = running.program();
        let (theirs, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        let mut kernel = patient(theirs.accept().expect("a connection").0);
        // One whose program has said that it is all, and one of which nobody knows whether it is.
        let whole = program.connect(to);
        let mut all = patient(theirs.accept().expect("a connection").0);
        for stream in [&own.stream, &whole.stream] {
            (&mut &*stream).write_all(b"last words").expect("written");
        }
        drop(whole);
        running.stop().expect("it was stopped");
        assert!(!running.path.exists());
        let mut text = String::new();
        all.read_to_string(&mut text).expect("an end");
        assert_eq!(text, "last words");
        let mut words = Vec::new();
        let cut = kernel.read_to_end(&mut words).expect_err("a reset");
        assert_eq!((&words[..], cut.kind()), (&b"last words"[..], std::io::ErrorKind::ConnectionReset));
        assert_eq!((&own.stream).read(&mut [0; 1]).expect("an end"), 0);
        assert!(program.hear().is_none());
        let gone = query(&running.path, r#"{"what":"service"}"#, |_| {});
        assert!(matches!(gone, Err(QueryError::NotThere { .. })), "{gone:?}");
    }
}

isolated! {
    fn one_service_has_a_name_and_what_was_left_behind_is_replaced() {
        let running = Running::new();
        let folder = running.path.parent().expect("a folder").to_owned();
        let settings = |name: &str| Settings { name: name.to_owned(), folder: folder.clone(), ..Settings::default() };
        let open = |settings: Settings| Service::open(bypath_netstack::Engine::new(Config::default()), settings);
        assert!(matches!(open(settings("lab")), Err(ServiceError::Exists { .. })));
        assert_eq!(running.query("service")[0]["name"], "lab");
        for wrong in ["", ".x", "a/b"] {
            assert!(matches!(open(settings(wrong)), Err(ServiceError::Name { .. })), "{wrong}");
        }
        // Its process has ended without a word.
        let _stream = UnixListener::bind(folder.join("stream")).expect("a socket");
        assert!(matches!(open(settings("stream")), Err(ServiceError::NoSocket { .. })));
        drop(bypath_sys::seqpacket::bind(&folder.join("old")).expect("a socket"));
        let service = open(settings("old")).expect("a service");
        assert!(folder.join("old").exists());
        drop(service);
        assert!(!folder.join("old").exists());
        fs::write(folder.join("file"), "x").expect("a file");
        assert!(matches!(open(settings("file")), Err(ServiceError::NoSocket { .. })));
        let missing = Settings { folder: folder.join("missing"), ..settings("lab") };
        assert!(matches!(open(missing), Err(ServiceError::Folder { .. })));
        let long = folder.join("x".repeat(100));
        fs::create_dir(&long).expect("a folder");
        assert!(matches!(open(Settings { folder: long, ..settings("lab") }), Err(ServiceError::TooLong { .. })));
    }
}

isolated! {
    fn a_service_keeps_the_folder_that_it_began_in_whatever_is_exchanged_for_it() {
        let folder = crate::folder();
        let settings = Settings { name: "lab".to_owned(), folder: folder.clone(), ..Settings::default() };
        let service = Service::open(engine(Config::default()), settings).expect("a service");
        let mode = fs::metadata(folder.join("lab")).expect("a socket").permissions().mode();
        // Whatever the mask says: who may ask is another question.
        assert_eq!(mode & 0o777, 0o666);
        let (moved, other) = (folder.with_extension("moved"), folder.join("lab"));
        fs::rename(&folder, &moved).expect("a new name");
        fs::create_dir(&folder).expect("another folder");
        fs::write(&other, "another's").expect("a file");
        drop(service);
        assert!(!moved.join("lab").exists() && other.exists());
        for path in [folder, moved] {
            fs::remove_dir_all(path).expect("a folder");
        }
    }
}

isolated! {
    fn a_link_that_goes_ends_the_service() {
        let settings = Settings { folder: crate::folder(), ..Settings::default() };
        let mut service = Service::open(engine(Config::default()), settings).expect("a service");
        bypath_sys::netns::remove("mine").expect("a device");
        let ended = service.run();
        assert!(matches!(&ended, Err(ServiceError::Link(_))), "{ended:?}");
    }
}

isolated! {
    fn a_service_with_nothing_to_do_does_nothing() {
        does_nothing(std::time::Duration::ZERO);
    }
}

isolated! {
    fn a_service_that_looks_for_work_for_a_while_sleeps_in_the_end() {
        does_nothing(std::time::Duration::from_millis(2));
    }
}

/// With two hundred connections that rest, of a service that looks for work for so long.
fn does_nothing(busy_poll: std::time::Duration) {
    let running =
        Running::with(|settings| settings.busy_poll = busy_poll, bypath_stack::config::Config::default());
    let program = running.program();
    let (listener, to) = program.listener(at("10.9.0.2:0"));
    let _all: Vec<_> =
        (0..200).map(|_| (TcpStream::connect(to).expect("a connection"), listener.accept())).collect();
    // How often the thread slept, and how long it ran, in hundredths of a second.
    let seen = || -> [u64; 2] {
        let mut all = [0; 2];
        for task in fs::read_dir("/proc/self/task").expect("threads") {
            let path = task.expect("a thread").path();
            if fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "service") {
                let read = |name: &str| fs::read_to_string(path.join(name)).expect("a file of /proc");
                let number = |text: &str| text.parse::<u64>().expect("a number");
                let (status, stat) = (read("status"), read("stat"));
                let line =
                    status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).expect("a count");
                all[0] += number(line.split_whitespace().nth(1).expect("a number"));
                let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
                all[1] += number(fields[11]) + number(fields[12]);
            }
        }
        all
    };
    // Buffers are given back and neighbours are asked for a while; then it sleeps, but for a few timers of neighbours.
    std::thread::sleep(std::time::Duration::from_millis(1000));
    let before = seen();
    assert!(before[0] > 0, "the service's thread was not found");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let after = seen();
    let (woken, ran) = (after[0] - before[0], after[1] - before[1]);
    assert!(woken < 20, "woken {woken} times");
    assert!(ran < 50, "ran for {ran} hundredths of a second");
}

isolated! {
    fn a_folder_that_others_have_locked_holds_no_service_up() {
        let folder = crate::folder();
        let held = fs::File::open(&folder).expect("a folder that may be read");
        held.lock().expect("a lock");
        let (opened, is_open) = std::sync::mpsc::channel();
        let settings = Settings { name: "lab".to_owned(), folder: folder.clone(), ..Settings::default() };
        std::thread::spawn(move || {
            let service = Service::open(engine(Config::default()), settings).expect("a service");
            opened.send(service).expect("somebody who waits");
        });
        let service = is_open.recv_timeout(crate::LONGEST).expect("it does not wait for them");
        let mut names: Vec<_> = fs::read_dir(&folder).expect("a folder").map(|file| file.expect("one").file_name()).collect();
        names.sort();
        assert_eq!(names, [".lab.key", "lab"]);
        drop((service, held));
        fs::remove_dir_all(folder).expect("a folder");
    }
}
