//! Capture files out.

use crate::boundary::{Outcome, guarded, octets, read, text, write};
use crate::capture::{BYPATH_LINK_TYPE_ETHERNET, bypath_capture_frame, to_direction, to_reception};
use crate::handle::{self, Handle};
use crate::mac::bypath_mac;
use crate::options::unknown;
use crate::status::{BYPATH_E_SYSTEM, Failure, bypath_error, bypath_status};
use crate::types::{BYPATH_TIMESTAMP_SOFTWARE, BYPATH_TO_OUTGOING, BYPATH_TO_UNKNOWN, bypath_l2_frame};
use bypath_link::MacAddr;
use bypath_link::pcapng::writer::{Frame, Interface};
use bypath_link::pcapng::{Direction, Writer};
use std::ffi::{c_char, c_void};
use std::fs::File;
use std::io::{self, BufWriter};

/// What capture file is wanted. Fill it by `bypath_capture_options_init`, then change what should differ. It may be thrown
/// away when `bypath_capture_create` has returned.
#[repr(C)]
pub struct bypath_capture_options {
    /// Octets of this structure: set by `bypath_capture_options_init`, by which the library knows what it was given.
    pub size: usize,
    /// A remark about the interface, for people; NULL, as it is unless changed: none.
    pub comment: *const c_char,
    /// Octets that are written of each frame at most; 0, as it is unless changed: all.
    pub snap: u32,
    /// What frames begin with: `BYPATH_LINK_TYPE_ETHERNET` unless changed.
    pub link_type: u16,
    /// The interface's hardware address; zeroes, as it is unless changed: not told.
    pub mac: bypath_mac,
}

impl bypath_capture_options {
    const USUAL: bypath_capture_options = bypath_capture_options {
        size: size_of::<bypath_capture_options>(),
        comment: std::ptr::null(),
        snap: 0,
        link_type: BYPATH_LINK_TYPE_ETHERNET,
        mac: bypath_mac { octets: [0; 6] },
    };
}

/// Fills options with the usual values.
///
/// Fails with `BYPATH_E_INVALID` if `options` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_options_init(
    options: *mut bypath_capture_options,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(options, "options", bypath_capture_options::USUAL))
}

/// A capture file that is written. Only pointers to it are of use.
pub struct bypath_capture_writer {
    handle: Handle<Capture>,
}

handle::held!(bypath_capture_writer, Capture);

/// A file, and what went wrong with it.
pub struct Capture {
    writer: Writer<BufWriter<File>>,
    path: String,
    failed: Option<Failure>,
}

impl Capture {
    /// What `f` does with the file. After an error the file may end inside a block: nothing is written any more.
    fn go_on(&mut self, f: impl FnOnce(&mut Writer<BufWriter<File>>) -> io::Result<()>) -> Outcome {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        f(&mut self.writer).map_err(|e| {
            if e.kind() == io::ErrorKind::InvalidInput && e.raw_os_error().is_none() {
                return Failure::invalid("a frame of 4 GiB or more cannot be written");
            }
            let failure = trouble("write", &self.path, &e);
            self.failed = Some(failure.clone());
            failure
        })
    }

    /// Writes one frame, which is in these pieces.
    fn frame(&mut self, about: &bypath_capture_frame, pieces: [&[u8]; 3]) -> Outcome {
        let direction = to_direction(about.direction).ok_or_else(|| unknown("direction", about.direction))?;
        let reception = to_reception(about.addressed).ok_or_else(|| unknown("addressed", about.addressed))?;
        let there: usize = pieces.iter().map(|p| p.len()).sum();
        let original = match about.whole {
            0 => None,
            whole if whole < there => {
                return Err(Failure::invalid(format!("`whole` is {whole}, and {there} octets are given")));
            }
            whole => Some(
                u32::try_from(whole).map_err(|_| Failure::invalid("`whole` is more than any frame has"))?,
            ),
        };
        let lost = (about.lost != 0).then_some(about.lost);
        let frame =
            Frame { interface: 0, ns: about.ns, pieces, original, direction, reception, lost, comment: None };
        self.go_on(|writer| writer.frame(&frame))
    }
}

/// What the system said about a file.
pub fn trouble(doing: &str, path: &str, e: &io::Error) -> Failure {
    // asm-generic/errno-base.h; for what comes without a number.
    const EIO: i32 = 5;
    Failure {
        status: BYPATH_E_SYSTEM,
        system: e.raw_os_error().unwrap_or(EIO),
        text: format!("could not {doing} {path}: {e}").into(),
    }
}

/// Begins a capture file (pcapng) for one interface, such as `eth0`; the name is what the file says. A file that is there
/// already is emptied. End it by `bypath_capture_finish`.
///
/// `options` may be NULL for the usual ones. When it fails, `*writer` is NULL. Fails with `BYPATH_E_INVALID`, and with
/// `BYPATH_E_SYSTEM` where the file cannot be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_create(
    path: *const c_char,
    interface: *const c_char,
    options: *const bypath_capture_options,
    writer: *mut *mut bypath_capture_writer,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(writer, "writer", std::ptr::null_mut())?;
        let path = text(path, "path")?;
        let name = text(interface, "interface")?;
        let usual = bypath_capture_options::USUAL;
        let options = if options.is_null() { &usual } else { read(options, "options")? };
        if options.size != usual.size {
            return Err(Failure::invalid(format!(
                "these options have a size of {}, this library's have {}: fill them by bypath_capture_options_init, and \
                 compile against the header of the library that runs",
                options.size, usual.size
            )));
        }
        let comment = if options.comment.is_null() { None } else { Some(text(options.comment, "comment")?) };
        let mac = MacAddr::from(options.mac);
        let interface = Interface {
            name,
            link_type: options.link_type,
            mac: (mac != MacAddr::UNSPECIFIED).then_some(mac),
            comment,
        };
        let snap = if options.snap == 0 { usize::MAX } else { options.snap as usize };
        let file = File::create(path).map_err(|e| trouble("create", path, &e))?;
        let begun = Writer::new(BufWriter::new(file), concat!("bypath ", env!("CARGO_PKG_VERSION")), snap);
        let opened = begun.and_then(|mut w| w.describe(&interface).map(|_| w));
        let opened = opened.map_err(|e| trouble("write", path, &e))?;
        let capture = Capture { writer: opened, path: path.to_owned(), failed: None };
        write(writer, "writer", handle::begin(capture))
    })
}

/// Writes one frame, header included, with the time at which it was captured, in ns since 1970.
///
/// What is written is held back until there is enough of it: see `bypath_capture_flush`. Fails with `BYPATH_E_INVALID`,
/// `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`. After `BYPATH_E_SYSTEM` nothing is written any more, and every further call answers
/// the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_write(
    writer: *mut bypath_capture_writer,
    ns: u64,
    frame: *const c_void,
    len: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let frame = octets(frame, len, "frame")?;
        handle::with(writer, "writer", |w| w.frame(&nothing_known(ns), [frame, &[], &[]]))
    })
}

const fn nothing_known(ns: u64) -> bypath_capture_frame {
    bypath_capture_frame {
        ns,
        lost: 0,
        len: 0,
        kept: 0,
        whole: 0,
        interface: 0,
        direction: 0,
        addressed: BYPATH_TO_UNKNOWN,
    }
}

/// Writes one frame, and what is known of it. Fails as `bypath_capture_write` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_write_with(
    writer: *mut bypath_capture_writer,
    about: *const bypath_capture_frame,
    frame: *const c_void,
    len: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let about = read(about, "about")?;
        let frame = octets(frame, len, "frame")?;
        handle::with(writer, "writer", |w| w.frame(about, [frame, &[], &[]]))
    })
}

/// Writes one frame as a function such as `bypath_l2_receive` gave it: `payload` has `frame->len` octets. Header and tags are
/// put in front as they were on the wire.
///
/// Its time is the kernel's, where the kernel took it; otherwise, as with `BYPATH_MODE_XDP`, it is `ns`, since 1970. Fails as
/// `bypath_capture_write` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_write_received(
    writer: *mut bypath_capture_writer,
    frame: *const bypath_l2_frame,
    payload: *const c_void,
    ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let frame = read(frame, "frame")?;
        let payload = octets(payload, frame.len, "payload")?;
        let mut header = Vec::with_capacity(22);
        header.extend_from_slice(&frame.destination.octets);
        header.extend_from_slice(&frame.source.octets);
        for tag in [frame.vlan.checked()?, frame.inner_vlan.checked()?].into_iter().flatten() {
            header.extend_from_slice(&tag.tpid.to_be_bytes());
            header.extend_from_slice(&tag.tci().to_be_bytes());
        }
        header.extend_from_slice(&frame.ethertype.to_be_bytes());
        let outgoing = frame.addressed == BYPATH_TO_OUTGOING;
        let direction = if outgoing { Direction::Out } else { Direction::In };
        let about = bypath_capture_frame {
            whole: header.len().saturating_add(frame.whole),
            direction: crate::capture::of_direction(direction),
            addressed: if outgoing { BYPATH_TO_UNKNOWN } else { frame.addressed },
            ..nothing_known(if frame.timestamp_source == BYPATH_TIMESTAMP_SOFTWARE {
                frame.timestamp_ns
            } else {
                ns
            })
        };
        handle::with(writer, "writer", |w| w.frame(&about, [&header, payload, &[]]))
    })
}

/// Hands the operating system what is held back, so that whoever reads the file sees it: whole frames. Fails as
/// `bypath_capture_write` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_flush(
    writer: *mut bypath_capture_writer,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || handle::with(writer, "writer", |w| w.go_on(Writer::flush)))
}

/// Ends a capture file: what is held back is written, and the file is closed. NULL is left alone.
///
/// The pointer must not be used afterwards, unless it fails with `BYPATH_E_BUSY`, where nothing is closed. Fails also as
/// `bypath_capture_write` does: the file is closed then, and what is in it may end early.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_finish(
    writer: *mut bypath_capture_writer,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || match handle::end(writer, "writer")? {
        Some(mut capture) => {
            let last = capture.go_on(Writer::flush);
            // Dropping the buffer would try once more what failed.
            let _rest = capture.writer.into_inner().into_parts();
            last
        }
        None => Ok(()),
    })
}
