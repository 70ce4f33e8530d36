//! Capture files in.

use crate::boundary::{guarded, octets_mut, text, writable, write};
use crate::capture::{bypath_capture_frame, of_direction, of_reception};
use crate::capture_writer::trouble;
use crate::handle::{self, Handle};
use crate::mac::bypath_mac;
use crate::status::{BYPATH_E_END, BYPATH_E_FORMAT, Failure, bypath_error, bypath_status};
use crate::types::fixed;
use bypath_link::pcapng::Reader;
use bypath_link::pcapng::reader::{Block, Error, Frame};
use std::ffi::{c_char, c_void};
use std::fs::File;
use std::io::BufReader;

/// Octets of the name of an interface in a capture file, terminating zero included. Longer ones are cut.
pub const BYPATH_CAPTURE_NAME: usize = 128;

/// What a capture file says about an interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_capture_interface {
    /// Octets that were written of each frame at most; 0: all.
    pub snap: u32,
    /// What its frames begin with, such as `BYPATH_LINK_TYPE_ETHERNET`.
    pub link_type: u16,
    /// Its hardware address; zeroes: not told.
    pub mac: bypath_mac,
    /// Its name; empty: not told.
    pub name: [c_char; BYPATH_CAPTURE_NAME],
}

/// A capture file that is read. Only pointers to it are of use.
pub struct bypath_capture_reader {
    handle: Handle<Capture>,
}

handle::held!(bypath_capture_reader, Capture);

/// A file as far as it was read.
pub struct Capture {
    reader: Reader<BufReader<File>>,
    path: String,
    /// Interfaces of the section.
    interfaces: Vec<bypath_capture_interface>,
    /// Why nothing more is read.
    over: Option<Failure>,
}

impl Capture {
    /// The next frame.
    fn frame(&mut self) -> Result<Frame, Failure> {
        if let Some(over) = &self.over {
            return Err(over.clone());
        }
        loop {
            let failure = match self.reader.next() {
                Ok(Some(Block::Frame(frame))) => return Ok(frame),
                Ok(Some(Block::Section { .. })) => {
                    self.interfaces.clear();
                    continue;
                }
                Ok(Some(Block::Interface { link_type, snap, name, mac })) => {
                    self.interfaces.push(bypath_capture_interface {
                        snap,
                        link_type,
                        mac: mac.map_or(bypath_mac { octets: [0; 6] }, Into::into),
                        name: fixed(&name.unwrap_or_default()),
                    });
                    continue;
                }
                Ok(Some(Block::Statistics { .. } | Block::Other(_))) => continue,
                Ok(None) => self.told(BYPATH_E_END, "there are no more frames in this file"),
                Err(Error::Io(e)) => trouble("read", &self.path, &e),
                Err(e) => self.told(BYPATH_E_FORMAT, &e.to_string()),
            };
            self.over = Some(failure.clone());
            return Err(failure);
        }
    }

    fn told(&self, status: i32, what: &str) -> Failure {
        Failure { status, ..Failure::invalid(format!("{}: {what}", self.path)) }
    }
}

/// Opens a capture file (pcapng). End it by `bypath_capture_close`.
///
/// When it fails, `*reader` is NULL. Fails with `BYPATH_E_INVALID`, and with `BYPATH_E_SYSTEM` where the file cannot be
/// read. Whether it is such a file the first `bypath_capture_read` tells.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_open(
    path: *const c_char,
    reader: *mut *mut bypath_capture_reader,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(reader, "reader", std::ptr::null_mut())?;
        let path = text(path, "path")?;
        let file = File::open(path).map_err(|e| trouble("open", path, &e))?;
        let capture = Capture {
            reader: Reader::new(BufReader::new(file)),
            path: path.to_owned(),
            interfaces: Vec::new(),
            over: None,
        };
        write(reader, "reader", handle::begin(capture))
    })
}

/// Reads the next frame into `buffer`, as much as fits, and what the file says about it into `frame`.
///
/// Fails with `BYPATH_E_END` behind the last frame, `BYPATH_E_FORMAT` for what the format does not allow (frames before it
/// are good), `BYPATH_E_SYSTEM`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`. After one of the first three every further call
/// answers the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_read(
    reader: *mut bypath_capture_reader,
    frame: *mut bypath_capture_frame,
    buffer: *mut c_void,
    capacity: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(frame, "frame")?;
        let buffer = octets_mut(buffer, capacity, "buffer")?;
        let read = handle::with(reader, "reader", Capture::frame)?;
        let len = read.bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&read.bytes[..len]);
        let known = bypath_capture_frame {
            ns: read.ns,
            lost: read.lost.unwrap_or(0),
            len,
            kept: read.bytes.len(),
            whole: read.original as usize,
            interface: read.interface,
            direction: of_direction(read.direction),
            addressed: of_reception(read.reception),
        };
        write(frame, "frame", known)
    })
}

/// What the file says about an interface, by its number in the frame that was read last.
///
/// Fails with `BYPATH_E_INVALID` for a number that no frame until now has had, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_interface_of(
    reader: *mut bypath_capture_reader,
    number: u32,
    interface: *mut bypath_capture_interface,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(interface, "interface")?;
        let found = handle::with(reader, "reader", |r| {
            let none = || Failure::invalid(format!("no frame read until now has an interface {number}"));
            r.interfaces.get(number as usize).copied().ok_or_else(none)
        })?;
        write(interface, "interface", found)
    })
}

/// Closes a capture file that was read. NULL is left alone.
///
/// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY`, and then nothing is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_capture_close(
    reader: *mut bypath_capture_reader,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || handle::end(reader, "reader").map(drop))
}
