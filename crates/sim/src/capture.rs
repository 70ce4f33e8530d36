//! Runs as capture files for Wireshark, and where a run that failed leaves its own.

use crate::Simulation;
use bypath_link::pcapng::{Writer, writer};
use std::path::PathBuf;
use std::{env, fs, io};

/// Octets of a frame that are written.
const SNAP: usize = 65_553;

impl Simulation {
    /// The run as a capture file: an interface for each link, virtual time, and remarks where a frame did not arrive as it
    /// was sent.
    ///
    /// # Errors
    /// None that a vector has; those of the writer.
    pub fn pcapng(&self) -> io::Result<Vec<u8>> {
        let mut file = Vec::new();
        let mut out = Writer::new(&mut file, "bypath-sim", SNAP)?;
        for name in self.link_names() {
            out.interface(name, None)?;
        }
        for sent in self.record().frames() {
            out.frame(&writer::Frame {
                interface: sent.link.0 as u32,
                ns: sent.at.as_nanos(),
                pieces: [&sent.frame, &[], &[]],
                comment: Some(sent.remark.as_str()).filter(|remark| !remark.is_empty()),
                ..writer::Frame::default()
            })?;
        }
        drop(out);
        Ok(file)
    }

    /// Writes the run to a file in `BYPATH_SIM_DIR`, or in a folder of that name below the one for temporary files.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_pcapng(&self) -> io::Result<PathBuf> {
        let folder =
            env::var_os("BYPATH_SIM_DIR").map_or_else(|| env::temp_dir().join("bypath-sim"), PathBuf::from);
        fs::create_dir_all(&folder)?;
        let name: String =
            self.name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let path = folder.join(format!("{name}-{:016x}.pcapng", self.seed()));
        fs::write(&path, self.pcapng()?)?;
        Ok(path)
    }

    /// Says how to repeat a run that failed, and where its frames are.
    pub(crate) fn tell_how_to_repeat(&self) {
        let package = env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
        let frames = match self.write_pcapng() {
            Ok(path) => format!("its frames are in {}", path.display()),
            Err(error) => format!("its frames could not be written: {error}"),
        };
        eprintln!(
            "simulation failed at {:?}; again: BYPATH_SIM_SEED={} cargo test{package} {}; {frames}",
            self.now(),
            self.seed(),
            self.name()
        );
    }
}
