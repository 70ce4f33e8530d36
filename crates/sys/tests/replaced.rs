//! A program that puts something at the lowest number that is free (dup2) while the library makes descriptors of its own. A program of its own: what other tests
//! open takes that number.

use bypath_sys::turn::Replacing;
use bypath_sys::{Errno, changes, eventfd, fd, handle, memfd, open_files, sock, sockdiag, timerfd, unix};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const FLOOR: i32 = 700;
const FAMILY: i32 = libc::AF_INET;
const LONG: Duration = Duration::from_millis(400);

fn made(kind: usize) -> Result<i32, Errno> {
    match kind {
        0 => memfd::create(c"test", 4096, FLOOR),
        1 => eventfd::create(FLOOR),
        2 => timerfd::create(FLOOR, 1, 0),
        3 => sock::datagrams(FAMILY, 0, FLOOR),
        4 => sockdiag::open(FLOOR),
        5 => changes::watch(FLOOR),
        6 => unix::unnamed(FLOOR),
        _ => {
            let memory = memfd::create(c"test", 4096, FLOOR)?;
            let made = handle::make(memory, FLOOR);
            fd::close(memory);
            made
        }
    }
}

#[test]
fn what_is_put_at_a_low_number_while_something_is_made_stays_there() {
    let file = std::fs::File::open("/proc/self/exe").expect("this program");
    let (own, number) = (fd::identity(file.as_raw_fd()).expect("a file"), file.as_raw_fd());
    // The next one that is free.
    let free = (3..).find(|free| fd::identity(*free).is_err()).expect("a free number");
    let over = AtomicBool::new(false);
    for kind in 0..9 {
        over.store(false, Relaxed);
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let mut count = 0;
                while !over.load(Relaxed) {
                    if kind == 8 {
                        assert_eq!(open_files::any(b"nothing", FLOOR, |_| true), Ok(false));
                    } else {
                        let one = made(kind).expect("a descriptor");
                        assert!(one >= FLOOR);
                        assert_ne!(
                            fd::identity(one),
                            Ok(own),
                            "the program's file was taken for one of ours"
                        );
                        fd::close(one);
                    }
                    count += 1;
                }
                count
            });
            let (begun, mut puts, mut stays) = (Instant::now(), 0, true);
            while begun.elapsed() < LONG && stays {
                let replacing = Replacing::begin();
                fd::replace(number, free, true).expect("dup3");
                drop(replacing);
                stays = (0..20).all(|_| fd::identity(free) == Ok(own));
                fd::close(free);
                puts += 1;
            }
            over.store(true, Relaxed);
            let count = maker.join().expect("the maker");
            assert!(stays, "of kind {kind} one stood there, put {puts}");
            assert!(count > 20 && puts > 20, "{count} made, {puts} put");
        });
    }
}
