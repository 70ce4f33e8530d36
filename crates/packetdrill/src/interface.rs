//! The table of functions that packetdrill calls, and its errno.
//!
//! What a caller points at is copied by the kernel (process_vm_readv(2)), which says EFAULT where nothing is there, as it does for
//! a system call.

use crate::address;
use crate::errors::Result;
use crate::flags::Flags;
use crate::host::Host;
use crate::io::Received;
use libc::{c_char, c_int, c_longlong, c_ulong, c_void, iovec, msghdr, sockaddr, socklen_t, ssize_t};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Pieces that a call gathers or scatters at most: UIO_MAXIOV.
const MOST_PIECES: usize = 1024;
/// Control messages: TCP_INQ's.
const TCP_CM_INQ: c_int = 36;

type UserData = *mut c_void;

/// What [`packetdrill_interface_init`] fills in.
#[repr(C)]
pub struct Interface {
    userdata: UserData,
    free: extern "C" fn(UserData),
    socket: extern "C" fn(UserData, c_int, c_int, c_int) -> c_int,
    bind: extern "C" fn(UserData, c_int, *const sockaddr, socklen_t) -> c_int,
    listen: extern "C" fn(UserData, c_int, c_int) -> c_int,
    accept: extern "C" fn(UserData, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    connect: extern "C" fn(UserData, c_int, *const sockaddr, socklen_t) -> c_int,
    read: extern "C" fn(UserData, c_int, *mut c_void, usize) -> ssize_t,
    readv: extern "C" fn(UserData, c_int, *const iovec, c_int) -> ssize_t,
    recv: extern "C" fn(UserData, c_int, *mut c_void, usize, c_int) -> ssize_t,
    recvfrom:
        extern "C" fn(UserData, c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
    recvmsg: extern "C" fn(UserData, c_int, *mut msghdr, c_int) -> ssize_t,
    write: extern "C" fn(UserData, c_int, *const c_void, usize) -> ssize_t,
    writev: extern "C" fn(UserData, c_int, *const iovec, c_int) -> ssize_t,
    send: extern "C" fn(UserData, c_int, *const c_void, usize, c_int) -> ssize_t,
    sendto:
        extern "C" fn(UserData, c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> ssize_t,
    sendmsg: extern "C" fn(UserData, c_int, *const msghdr, c_int) -> ssize_t,
    fcntl: extern "C" fn(UserData, c_int, c_int, usize) -> c_int,
    ioctl: extern "C" fn(UserData, c_int, c_ulong, usize) -> c_int,
    close: extern "C" fn(UserData, c_int) -> c_int,
    shutdown: extern "C" fn(UserData, c_int, c_int) -> c_int,
    getsockopt: extern "C" fn(UserData, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    setsockopt: extern "C" fn(UserData, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    poll: extern "C" fn(UserData, *mut libc::pollfd, libc::nfds_t, c_int) -> c_int,
    netdev_send: extern "C" fn(UserData, *const c_void, usize) -> c_int,
    netdev_receive: extern "C" fn(UserData, *mut c_void, *mut usize, *mut c_longlong) -> c_int,
    usleep: extern "C" fn(UserData, libc::useconds_t) -> c_int,
    gettimeofday: extern "C" fn(UserData, *mut libc::timeval, *mut c_void) -> c_int,
    epoll_create: extern "C" fn(UserData, c_int) -> c_int,
    epoll_ctl: extern "C" fn(UserData, c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    epoll_wait: extern "C" fn(UserData, c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
    pipe: extern "C" fn(UserData, *mut c_int) -> c_int,
    splice:
        extern "C" fn(UserData, c_int, *mut libc::loff_t, c_int, *mut libc::loff_t, usize, u32) -> ssize_t,
}

// A variadic call passes one word as a call of fixed arity does.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("fcntl and ioctl are variadic in the interface");

/// Fills in the table for a new machine that is as the flags say. Ends the process where they cannot be.
///
/// # Safety
/// `flags` is a string or null; `out` has room for the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, out: *mut Interface) {
    let text = match flags.is_null() {
        true => String::new(),
        // SAFETY: not null, hence a string, as the caller says.
        false => unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned(),
    };
    let host = match Flags::parse(&text).and_then(Host::new) {
        Ok(host) => host,
        Err(error) => leave(&format!("flags of the plug-in: {error}")),
    };
    host.call(|machine| machine.files.real = true);
    let table = Interface {
        userdata: Box::into_raw(Box::new(host)).cast(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: the caller has room for it.
    unsafe { out.write(table) };
}

fn leave(why: &str) -> ! {
    eprintln!("bypath: {why}");
    std::process::exit(1)
}

fn host<'a>(userdata: UserData) -> &'a Host {
    // SAFETY: it is what `packetdrill_interface_init` put there, until `free`.
    unsafe { &*userdata.cast::<Host>() }
}

/// What a call gives back: -1 and errno where it failed.
fn told<T: TryInto<ssize_t>>(result: Result<T>) -> ssize_t {
    match result {
        Ok(value) => value.try_into().unwrap_or(ssize_t::MAX),
        Err(errno) => {
            // SAFETY: the place of this thread's errno.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}

fn done(result: Result<()>) -> c_int {
    told(result.map(|()| 0i32)) as c_int
}

fn number(result: Result<c_int>) -> c_int {
    told(result) as c_int
}

/// Copies octets from where the caller says.
fn copy_in(from: *const c_void, len: usize) -> Result<Vec<u8>> {
    let mut octets = vec![0; len];
    if len > 0 {
        let own = iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: len };
        let other = iovec { iov_base: from.cast_mut(), iov_len: len };
        // SAFETY: the kernel writes to `octets`, as long as that is, and checks the other side.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &own, 1, &other, 1, 0) };
        if copied != len as ssize_t {
            return Err(libc::EFAULT);
        }
    }
    Ok(octets)
}

/// Copies octets to where the caller says.
fn copy_out(octets: &[u8], to: *mut c_void) -> Result<()> {
    if octets.is_empty() {
        return Ok(());
    }
    let own = iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    let other = iovec { iov_base: to, iov_len: octets.len() };
    // SAFETY: the kernel reads `octets`, as long as that is, and checks the other side.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &own, 1, &other, 1, 0) };
    if copied == octets.len() as ssize_t { Ok(()) } else { Err(libc::EFAULT) }
}

/// Copies a structure of plain numbers and addresses from where the caller says.
fn value_in<T: Copy>(from: *const T) -> Result<T> {
    let octets = copy_in(from.cast(), size_of::<T>())?;
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: as many octets as it has; those of the C structures in use here mean something whatever they are.
    unsafe {
        std::ptr::copy_nonoverlapping(octets.as_ptr(), value.as_mut_ptr().cast(), octets.len());
        Ok(value.assume_init())
    }
}

/// Copies a value to where the caller says.
fn value_out<T: Copy>(value: &T, to: *mut T) -> Result<()> {
    // SAFETY: the octets of a value that is there; padding is given to nobody but its own process.
    let octets = unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
    copy_out(octets, to.cast())
}

/// An address that the caller has room for.
fn address_out(address: &[u8], to: *mut sockaddr, len: *mut socklen_t) -> Result<()> {
    if to.is_null() || len.is_null() {
        return Ok(());
    }
    let room = value_in(len)? as usize;
    copy_out(&address[..address.len().min(room)], to.cast())?;
    value_out(&(address.len() as socklen_t), len)
}

fn pieces(of: *const iovec, count: usize) -> Result<Vec<iovec>> {
    if count > MOST_PIECES {
        return Err(libc::EINVAL);
    }
    (0..count).map(|n| value_in(of.wrapping_add(n))).collect()
}

fn gather(of: *const iovec, count: usize) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for piece in pieces(of, count)? {
        all.extend(copy_in(piece.iov_base, piece.iov_len)?);
    }
    Ok(all)
}

fn scatter(octets: &[u8], to: &[iovec]) -> Result<()> {
    let mut rest = octets;
    for piece in to {
        let (now, later) = rest.split_at(piece.iov_len.min(rest.len()));
        copy_out(now, piece.iov_base)?;
        rest = later;
    }
    Ok(())
}

extern "C" fn free(userdata: UserData) {
    // SAFETY: it came from a box, and nobody uses it any more.
    drop(unsafe { Box::from_raw(userdata.cast::<Host>()) });
}

extern "C" fn socket(ud: UserData, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    number(host(ud).socket(domain, kind, protocol))
}

extern "C" fn bind(ud: UserData, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    done(copy_in(to.cast(), len as usize).and_then(|to| host(ud).bind(fd, &to)))
}

extern "C" fn listen(ud: UserData, fd: c_int, backlog: c_int) -> c_int {
    done(host(ud).listen(fd, backlog))
}

extern "C" fn accept(ud: UserData, fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int {
    number(host(ud).accept(fd).and_then(|(fd, remote)| address_out(&remote, to, len).map(|()| fd)))
}

extern "C" fn connect(ud: UserData, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    done(copy_in(to.cast(), len as usize).and_then(|to| host(ud).connect(fd, &to)))
}

fn receive(ud: UserData, fd: c_int, to: *mut c_void, most: usize, flags: c_int) -> Result<Received> {
    if copy_in(to, most).is_err() {
        // Whether there is something is looked at first, and it stays.
        host(ud).receive(fd, most, flags | libc::MSG_PEEK)?;
        return Err(libc::EFAULT);
    }
    let received = host(ud).receive(fd, most, flags)?;
    copy_out(&received.octets, to)?;
    Ok(received)
}

/// How many octets came, or how many the datagram had (MSG_TRUNC).
fn length(received: &Received, flags: c_int) -> usize {
    if flags & libc::MSG_TRUNC != 0 { received.len } else { received.octets.len() }
}

extern "C" fn read(ud: UserData, fd: c_int, to: *mut c_void, most: usize) -> ssize_t {
    told(receive(ud, fd, to, most, 0).map(|received| received.octets.len()))
}

extern "C" fn readv(ud: UserData, fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
    told(usize::try_from(count).map_err(|_| libc::EINVAL).and_then(|count| {
        let pieces = pieces(to, count)?;
        let most = pieces.iter().map(|piece| piece.iov_len).sum();
        let received = host(ud).receive(fd, most, 0)?;
        scatter(&received.octets, &pieces)?;
        Ok(received.octets.len())
    }))
}

extern "C" fn recv(ud: UserData, fd: c_int, to: *mut c_void, most: usize, flags: c_int) -> ssize_t {
    told(receive(ud, fd, to, most, flags).map(|received| length(&received, flags)))
}

extern "C" fn recvfrom(
    ud: UserData,
    fd: c_int,
    to: *mut c_void,
    most: usize,
    flags: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    told(receive(ud, fd, to, most, flags).and_then(|received| {
        let v6 = host(ud).call(|machine| machine.files.socket(fd).map(|s| s.v6)).unwrap_or_default();
        let address = received.from.map_or(Vec::new(), |from| address::write(from, v6));
        address_out(&address, from, len)?;
        Ok(length(&received, flags))
    }))
}

extern "C" fn recvmsg(ud: UserData, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    told(value_in(message).and_then(|mut header| {
        let pieces = pieces(header.msg_iov, header.msg_iovlen)?;
        let most = pieces.iter().map(|piece| piece.iov_len).sum();
        let received = host(ud).receive(fd, most, flags)?;
        scatter(&received.octets, &pieces)?;
        let v6 = host(ud).call(|machine| machine.files.socket(fd).map(|s| s.v6)).unwrap_or_default();
        let from = received.from.map_or(Vec::new(), |from| address::write(from, v6));
        if !header.msg_name.is_null() {
            copy_out(&from[..from.len().min(header.msg_namelen as usize)], header.msg_name)?;
            header.msg_namelen = from.len() as socklen_t;
        }
        header.msg_flags = if received.len > received.octets.len() { libc::MSG_TRUNC } else { 0 };
        let mut control = Vec::new();
        if let Some(left) = received.inq {
            // struct cmsghdr: length, level, type; and an int.
            control.extend((size_of::<libc::cmsghdr>() + 4).to_ne_bytes());
            control.extend([libc::IPPROTO_TCP, TCP_CM_INQ, left].map(c_int::to_ne_bytes).concat());
            control.resize(size_of::<libc::cmsghdr>() + 8, 0);
        }
        if header.msg_controllen >= control.len() && !control.is_empty() {
            copy_out(&control, header.msg_control)?;
            header.msg_controllen = control.len();
        } else {
            header.msg_controllen = 0;
        }
        value_out(&header, message)?;
        Ok(length(&received, flags))
    }))
}

extern "C" fn write(ud: UserData, fd: c_int, from: *const c_void, len: usize) -> ssize_t {
    told(copy_in(from, len).and_then(|octets| host(ud).send(fd, &octets, 0, None)))
}

extern "C" fn writev(ud: UserData, fd: c_int, from: *const iovec, count: c_int) -> ssize_t {
    told(usize::try_from(count).map_err(|_| libc::EINVAL).and_then(|count| {
        let octets = gather(from, count)?;
        host(ud).send(fd, &octets, 0, None)
    }))
}

extern "C" fn send(ud: UserData, fd: c_int, from: *const c_void, len: usize, flags: c_int) -> ssize_t {
    told(copy_in(from, len).and_then(|octets| host(ud).send(fd, &octets, flags, None)))
}

extern "C" fn sendto(
    ud: UserData,
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    told(copy_in(from, len).and_then(|octets| {
        let to = if to.is_null() { None } else { Some(copy_in(to.cast(), to_len as usize)?) };
        host(ud).send(fd, &octets, flags, to.as_deref())
    }))
}

extern "C" fn sendmsg(ud: UserData, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    told(value_in(message).and_then(|header| {
        let octets = gather(header.msg_iov, header.msg_iovlen)?;
        let to = match header.msg_name.is_null() || header.msg_namelen == 0 {
            true => None,
            false => Some(copy_in(header.msg_name, header.msg_namelen as usize)?),
        };
        host(ud).send(fd, &octets, flags, to.as_deref())
    }))
}

extern "C" fn fcntl(ud: UserData, fd: c_int, command: c_int, value: usize) -> c_int {
    number(host(ud).fcntl(fd, command, value as c_int))
}

extern "C" fn ioctl(ud: UserData, fd: c_int, request: c_ulong, value: usize) -> c_int {
    let to = value as *mut c_int;
    done(if request == libc::FIONBIO {
        value_in(to.cast_const()).and_then(|on| {
            let flags = if on == 0 { 0 } else { libc::O_NONBLOCK };
            host(ud).fcntl(fd, libc::F_SETFL, flags).map(|_| ())
        })
    } else {
        host(ud).ioctl(fd, request).and_then(|n| value_out(&n, to))
    })
}

extern "C" fn close(ud: UserData, fd: c_int) -> c_int {
    done(host(ud).close(fd))
}

extern "C" fn shutdown(ud: UserData, fd: c_int, how: c_int) -> c_int {
    done(host(ud).shutdown(fd, how))
}

extern "C" fn getsockopt(
    ud: UserData,
    fd: c_int,
    level: c_int,
    name: c_int,
    to: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    done(value_in(len.cast_const()).and_then(|room| {
        let value = host(ud).option(fd, level, name)?;
        let n = value.len().min(room as usize);
        copy_out(&value[..n], to)?;
        value_out(&(n as socklen_t), len)
    }))
}

extern "C" fn setsockopt(
    ud: UserData,
    fd: c_int,
    level: c_int,
    name: c_int,
    from: *const c_void,
    len: socklen_t,
) -> c_int {
    done(copy_in(from, len as usize).and_then(|value| host(ud).set_option(fd, level, name, &value)))
}

extern "C" fn poll(ud: UserData, fds: *mut libc::pollfd, count: libc::nfds_t, most: c_int) -> c_int {
    let all = (0..count as usize).map(|n| value_in(fds.cast_const().wrapping_add(n)));
    told(all.collect::<Result<Vec<_>>>().and_then(|mut all| {
        let ready = host(ud).poll(&mut all, most)?;
        for (n, fd) in all.iter().enumerate() {
            value_out(fd, fds.wrapping_add(n))?;
        }
        Ok(ready)
    })) as c_int
}

extern "C" fn netdev_send(ud: UserData, packet: *const c_void, len: usize) -> c_int {
    done(copy_in(packet, len).map(|packet| host(ud).netdev_send(&packet)))
}

extern "C" fn netdev_receive(ud: UserData, to: *mut c_void, len: *mut usize, at: *mut c_longlong) -> c_int {
    let Ok((packet, time)) = host(ud).netdev_receive() else {
        leave("no packet has left the stack, and none will");
    };
    done(value_in(len.cast_const()).and_then(|room| {
        let n = packet.len().min(room);
        copy_out(&packet[..n], to)?;
        value_out(&n, len)?;
        value_out(&time, at)
    }))
}

extern "C" fn usleep(ud: UserData, micros: libc::useconds_t) -> c_int {
    host(ud).usleep(Duration::from_micros(micros.into()));
    0
}

extern "C" fn gettimeofday(ud: UserData, to: *mut libc::timeval, _zone: *mut c_void) -> c_int {
    let wall = host(ud).wall();
    done(value_out(&libc::timeval { tv_sec: wall / 1_000_000, tv_usec: wall % 1_000_000 }, to))
}

extern "C" fn epoll_create(ud: UserData, size: c_int) -> c_int {
    number(if size <= 0 { Err(libc::EINVAL) } else { Ok(host(ud).epoll_create()) })
}

extern "C" fn epoll_ctl(
    ud: UserData,
    epfd: c_int,
    what: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    let event = match what {
        libc::EPOLL_CTL_DEL => Ok(None),
        _ => value_in(event.cast_const()).map(|event| Some((event.events, event.u64))),
    };
    done(event.and_then(|event| host(ud).epoll_ctl(epfd, what, fd, event)))
}

extern "C" fn epoll_wait(
    ud: UserData,
    epfd: c_int,
    to: *mut libc::epoll_event,
    events: c_int,
    most: c_int,
) -> c_int {
    let events = usize::try_from(events).map_err(|_| libc::EINVAL);
    told(events.and_then(|events| {
        let told = host(ud).epoll_wait(epfd, events, most)?;
        for (n, (events, data)) in told.iter().enumerate() {
            value_out(&libc::epoll_event { events: *events, u64: *data }, to.wrapping_add(n))?;
        }
        Ok(told.len())
    })) as c_int
}

extern "C" fn pipe(ud: UserData, to: *mut c_int) -> c_int {
    let (reads, writes) = host(ud).pipe();
    done(value_out(&[reads, writes], to.cast()))
}

extern "C" fn splice(
    ud: UserData,
    from: c_int,
    _from_offset: *mut libc::loff_t,
    to: c_int,
    _to_offset: *mut libc::loff_t,
    len: usize,
    flags: u32,
) -> ssize_t {
    told(host(ud).splice(from, to, len, flags))
}
