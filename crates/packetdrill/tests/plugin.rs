//! The shared library as packetdrill opens it.

use libc::{c_char, c_int, c_void};
use object::{Object, ObjectSymbol};
use std::ffi::CString;
use std::path::PathBuf;

/// Where cargo puts it beside the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.with_file_name("libbypath_packetdrill.so")
}

#[test]
fn it_exports_one_function() {
    let octets = std::fs::read(library()).expect("the library");
    let file = object::File::parse(&*octets).expect("an ELF file");
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let names: Vec<_> = defined.filter_map(|symbol| symbol.name().ok()).collect();
    assert_eq!(names, ["packetdrill_interface_init"]);
}

/// Places in the table: the first word is the data of the machine.
const FREE: usize = 1;
const SOCKET: usize = 2;
const WRITE: usize = 12;
const IOCTL: usize = 18;
const NETDEV_SEND: usize = 24;
const NETDEV_RECEIVE: usize = 25;
const GETTIMEOFDAY: usize = 27;
const WORDS: usize = 33;

type Init = unsafe extern "C" fn(*const c_char, *mut usize);
type Free = extern "C" fn(usize);
type Socket = extern "C" fn(usize, c_int, c_int, c_int) -> c_int;
type Write = extern "C" fn(usize, c_int, *const c_void, usize) -> isize;
type Ioctl = extern "C" fn(usize, c_int, u64, usize) -> c_int;
type Send = extern "C" fn(usize, *const c_void, usize) -> c_int;
type Receive = extern "C" fn(usize, *mut c_void, *mut usize, *mut i64) -> c_int;
type Time = extern "C" fn(usize, *mut libc::timeval, *mut c_void) -> c_int;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[test]
fn its_table_has_each_function_in_its_place() {
    let path = CString::new(library().into_os_string().into_encoded_bytes()).expect("a path");
    let flags = CString::new("local=192.168.0.1/16,time=virtual").expect("flags");
    let mut table = [0usize; WORDS];
    // SAFETY: the types are those of the interface; the table has room for it.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        let init = libc::dlsym(library, c"packetdrill_interface_init".as_ptr());
        assert!(!init.is_null());
        std::mem::transmute::<*mut c_void, Init>(init)(flags.as_ptr(), table.as_mut_ptr());
        assert!(table.iter().all(|word| *word != 0), "{table:?}");
        let data = table[0];
        let socket: Socket = std::mem::transmute(table[SOCKET]);
        assert_eq!((socket(data, 99, libc::SOCK_STREAM, 0), errno()), (-1, libc::EAFNOSUPPORT));
        let fd = socket(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(fd >= 0);
        let write: Write = std::mem::transmute(table[WRITE]);
        assert_eq!((write(data, fd, std::ptr::null(), 9), errno()), (-1, libc::EFAULT));
        assert_eq!((write(data, fd, (&raw const fd).cast(), 4), errno()), (-1, libc::EPIPE));
        let ioctl: Ioctl = std::mem::transmute(table[IOCTL]);
        let mut n = -1;
        assert_eq!((ioctl(data, fd, libc::FIONREAD, (&raw mut n) as usize), n), (0, 0));

        // An echo request, and its answer.
        let mut ping = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 192, 168, 0, 9, 192, 168, 0, 1];
        sum_up(&mut ping, 10);
        let mut echo = vec![8, 0, 0, 0, 0, 7, 0, 1];
        sum_up(&mut echo, 2);
        ping.extend(echo);
        let send: Send = std::mem::transmute(table[NETDEV_SEND]);
        assert_eq!(send(data, ping.as_ptr().cast(), ping.len()), 0);
        let receive: Receive = std::mem::transmute(table[NETDEV_RECEIVE]);
        let (mut room, mut len, mut at) = ([0u8; 100], 100, 0);
        assert_eq!(receive(data, room.as_mut_ptr().cast(), &mut len, &mut at), 0);
        assert_eq!((len, room[20], &room[12..20]), (28, 0, &[192, 168, 0, 1, 192, 168, 0, 9][..]));
        let time: Time = std::mem::transmute(table[GETTIMEOFDAY]);
        let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
        assert_eq!(time(data, &mut now, std::ptr::null_mut()), 0);
        assert!((0..10).contains(&(now.tv_sec * 1_000_000 + now.tv_usec - at)), "{at}");
        std::mem::transmute::<usize, Free>(table[FREE])(data);
    }
}

/// RFC 1071.
fn sum_up(octets: &mut [u8], at: usize) {
    let sum: u32 = octets.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    octets[at..at + 2].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}
