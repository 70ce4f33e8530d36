//! Once warm, packets take no memory: sent in every mode, cut into fragments, received, and put together.

use crate::common::{device, kernel, ours, over, payload};
use bypath_link::tun::Mode;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting what this thread takes.
struct Counting;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> u64 {
    let before = TAKEN.get();
    run();
    TAKEN.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| {}), 0);
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))), 1);
}

isolated! {
    fn no_packet_takes_memory() {
        let mut udp = over(device(9000).open().unwrap(), 0, |b| b);
        let socket = kernel(0);
        let to = socket.local_addr().unwrap();
        let short = payload(1, 1000);
        let many = payload(2, 60_000);
        let mut buffer = vec![0; 65_536];
        let mut round = |mode| {
            udp.set_mode(mode).unwrap();
            udp.send(to, &short).unwrap();
            assert_eq!(socket.recv(&mut buffer).unwrap(), 1000);
            assert_eq!(udp.send_batch(to, many.chunks(2000)), Ok(30));
            (0..30).for_each(|_| assert_eq!(socket.recv(&mut buffer).unwrap(), 2000));
            // Fragments, which the kernel puts together; and such as it sends, which we do.
            udp.send(to, &many).unwrap();
            assert_eq!(socket.recv(&mut buffer).unwrap(), 60_000);
            socket.send_to(&many, ours(0)).unwrap();
            socket.send_to(&short, ours(0)).unwrap();
            let mut got = 0;
            while got < 2 {
                got += udp.receive_batch(2, |d| assert!(!d.payload.is_empty())).unwrap();
            }
        };
        let all = [Mode::Assemble, Mode::Pieces, Mode::Super];
        all.into_iter().for_each(&mut round);
        assert_eq!(allocations(|| (0..100).for_each(|_| all.into_iter().for_each(&mut round))), 0);
    }
}
