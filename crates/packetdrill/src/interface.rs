//! The table of functions that packetdrill calls, and its errno.

use crate::address;
use crate::file::Kind;
use crate::flags::Flags;
use crate::host::Host;
use crate::io::Received;
use crate::memory::{address_out, copy_in, copy_out, gather, pieces, scatter, value_in, value_out};
use bypath_stack::linux::errno::Result;
use libc::{c_char, c_int, c_longlong, c_ulong, c_void, iovec, msghdr, sockaddr, socklen_t, ssize_t};
use std::ffi::CStr;
use std::time::Duration;

/// A level of getsockopt of our own, as the table has no getsockname and no getpeername: the own end, and the other one.
const NAMES: c_int = 0x4259;
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
    receive_pieces(ud, fd, &[iovec { iov_base: to, iov_len: most }], flags)
}

fn receive_pieces(ud: UserData, fd: c_int, to: &[iovec], flags: c_int) -> Result<Received> {
    let most = to.iter().map(|piece| piece.iov_len).sum();
    let is_stream =
        host(ud).call(|machine| machine.files.get(fd).is_ok_and(|file| matches!(file.kind, Kind::Tcp)));
    host(ud).receive_into(fd, most, flags, |begin, octets| {
        // tcp(7): what is truncated is thrown away.
        if is_stream && flags & libc::MSG_TRUNC != 0 { Ok(()) } else { scatter(octets, begin, to) }
    })
}

/// How many octets came, or how many the datagram had (MSG_TRUNC).
fn length(received: &Received, flags: c_int) -> usize {
    if flags & libc::MSG_TRUNC != 0 { received.len } else { received.octets.len() }
}

/// Unlike recv(2), read(2) of nothing never waits.
fn read_pieces(ud: UserData, fd: c_int, to: &[iovec]) -> Result<usize> {
    if to.iter().all(|piece| piece.iov_len == 0) {
        return host(ud).call(|machine| machine.files.get(fd).map(|_| 0));
    }
    Ok(receive_pieces(ud, fd, to, 0)?.octets.len())
}

extern "C" fn read(ud: UserData, fd: c_int, to: *mut c_void, most: usize) -> ssize_t {
    told(read_pieces(ud, fd, &[iovec { iov_base: to, iov_len: most }]))
}

extern "C" fn readv(ud: UserData, fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
    told(
        usize::try_from(count)
            .map_err(|_| libc::EINVAL)
            .and_then(|count| read_pieces(ud, fd, &pieces(to, count)?)),
    )
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
        let received = receive_pieces(ud, fd, &pieces, flags)?;
        let v6 = host(ud).call(|machine| machine.files.socket(fd).map(|s| s.v6)).unwrap_or_default();
        let from = received.from.map_or(Vec::new(), |from| address::write(from, v6));
        if !header.msg_name.is_null() {
            copy_out(&from[..from.len().min(header.msg_namelen as usize)], header.msg_name)?;
            header.msg_namelen = from.len() as socklen_t;
        }
        header.msg_flags = if received.len > received.octets.len() { libc::MSG_TRUNC } else { 0 };
        let mut used = 0;
        if let Some(left) = received.inq {
            // struct cmsghdr: length, level, type; and an int. What does not fit is cut off.
            let (room, head) = (header.msg_controllen, size_of::<libc::cmsghdr>());
            let len = room.min(head + 4);
            if len < head + 4 {
                header.msg_flags |= libc::MSG_CTRUNC;
            }
            if len >= head {
                let mut control = len.to_ne_bytes().to_vec();
                control.extend([libc::IPPROTO_TCP, TCP_CM_INQ, left].map(c_int::to_ne_bytes).concat());
                // Nobody is told of a place that is none.
                let told = copy_out(&control[..len], header.msg_control).is_ok();
                used = if told { room.min(head + 8) } else { 0 };
            }
        }
        header.msg_controllen = used;
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
        let value = match level {
            NAMES => host(ud).name(fd, name != 0)?,
            _ => host(ud).option(fd, level, name)?,
        };
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
