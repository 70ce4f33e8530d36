//! Received frames in a capture file, with the tags that the kernel took out where they stood on the wire.

use crate::output::Failure;
use crate::written;
use bypath::l2::{Addressed, Frame, MacAddr};
use bypath::link::losses::Losses;
use bypath::link::pcapng::writer::Frame as Block;
use bypath::link::pcapng::{Counts, Direction, Reception, Writer};
use bypath_sys::clock;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// A capture file that is written.
pub struct Capture {
    path: PathBuf,
    writer: Writer<BufWriter<Box<dyn Write>>>,
    interface: u32,
    begun: u64,
    losses: Losses,
    /// Nobody reads it any more.
    unread: bool,
    header: Vec<u8>,
}

impl Capture {
    /// Begins a file; `-` is standard output. A FIFO is waited for until `gives_up` says so.
    ///
    /// # Errors
    /// It cannot be written, is a terminal, or was given up.
    pub fn create(
        path: &Path,
        name: &str,
        mac: MacAddr,
        comment: Option<&str>,
        gives_up: impl Fn() -> bool,
    ) -> Result<Capture, Failure> {
        let failed = |e: io::Error| Failure::new(1, format_args!("cannot write {}: {e}", path.display()));
        let out: Box<dyn Write> = if path == Path::new("-") {
            if io::stdout().is_terminal() {
                let text = "standard output is a terminal, and a capture is nothing to look at; name a file: -w FILE";
                return Err(Failure::new(2, text));
            }
            Box::new(io::stdout())
        } else {
            Box::new(written::create(path, written::PRIVATE, gives_up).map_err(failed)?)
        };
        let application = concat!("bypath ", env!("CARGO_PKG_VERSION"));
        // Nothing is cut.
        let begin = |out| {
            let mut writer = Writer::new(BufWriter::new(out), application, usize::MAX)?;
            let interface = writer.interface_with(name, Some(mac), comment)?;
            writer.flush()?;
            Ok((writer, interface))
        };
        let (writer, interface) = begin(out).map_err(failed)?;
        Ok(Capture {
            path: path.to_owned(),
            writer,
            interface,
            begun: clock::realtime_ns(),
            losses: Losses::default(),
            unread: false,
            header: Vec::with_capacity(22),
        })
    }

    /// An error of writing, unless it is that nobody reads.
    fn outcome(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.unread = true;
                Ok(())
            }
            other => {
                other.map_err(|e| Failure::new(1, format_args!("cannot write {}: {e}", self.path.display())))
            }
        }
    }

    /// Whether somebody may still read it.
    pub const fn is_read(&self) -> bool {
        !self.unread
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn frame(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        if self.unread {
            return Ok(());
        }
        self.header.clear();
        self.header.extend_from_slice(&frame.destination.0);
        self.header.extend_from_slice(&frame.source.0);
        for tag in [frame.vlan, frame.inner_vlan].into_iter().flatten() {
            self.header.extend_from_slice(&tag.tpid.to_be_bytes());
            self.header.extend_from_slice(&tag.tci().to_be_bytes());
        }
        self.header.extend_from_slice(&frame.ethertype.to_be_bytes());
        let lost = self.losses.before(frame.dropped);
        let comment =
            lost.map(|n| format!("{n} frames were lost before this one: they were not taken in time"));
        let reception = match frame.addressed {
            Addressed::Host => Reception::Unicast,
            Addressed::Broadcast => Reception::Broadcast,
            Addressed::Multicast => Reception::Multicast,
            Addressed::OtherHost => Reception::Promiscuous,
            Addressed::Unknown | Addressed::Outgoing => Reception::Unknown,
        };
        let direction = if frame.addressed == Addressed::Outgoing { Direction::Out } else { Direction::In };
        let written = self.writer.frame(&Block {
            interface: self.interface,
            ns: frame.timestamp.map_or_else(clock::realtime_ns, |t| t.ns),
            pieces: [&self.header, frame.payload, &[]],
            original: None,
            direction,
            reception,
            lost,
            comment: comment.as_deref(),
        });
        self.outcome(written)
    }

    /// Hands on what is held back.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.writer.flush();
        self.outcome(flushed)
    }

    /// Ends the file with what was counted.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self, received: u64, dropped: u64) -> Result<(), Failure> {
        let end = clock::realtime_ns();
        let counts = Counts {
            start: Some(self.begun),
            end: Some(end),
            received: Some(received + dropped),
            dropped: Some(dropped),
        };
        let written = self.writer.statistics(self.interface, end, &counts).and_then(|()| self.writer.flush());
        self.outcome(written)
    }
}
