//! What carries the bytes, and how a measured program is started on it.

use crate::bench::args::{Case, SubjectName};
use crate::bench::child::Child;
use crate::bench::context::{Context, Trouble};
use crate::bench::record::Figure;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name in records.
    pub name: SubjectName,
    /// Congestion control that its sockets ask for; `None` = what the system gives.
    pub cc: Option<&'static str>,
    /// Congestion control in the record.
    cc_name: Option<String>,
    /// The plain C ring, or why there is none.
    pub plain_ring: Option<Result<PathBuf, String>>,
    /// Its programs send datagrams, not streams.
    datagrams: bool,
}

impl Subject {
    /// The rows of a name: kernel TCP also with the system's congestion control, the floor also in C.
    pub fn all(name: SubjectName, context: &Context, ring: &Result<PathBuf, String>) -> Vec<Subject> {
        let default_cc = context.machine.default_cc.clone();
        let plain = Subject { name, cc: None, cc_name: None, plain_ring: None, datagrams: false };
        let tcp = Subject {
            cc: context.cc,
            cc_name: context.cc.map(str::to_owned).or(default_cc.clone()),
            ..plain.clone()
        };
        match name {
            SubjectName::KernelTcp if tcp.cc_name != default_cc => {
                vec![tcp, Subject { cc_name: default_cc, ..plain }]
            }
            SubjectName::KernelTcp | SubjectName::Bypath => vec![tcp],
            SubjectName::Floor => {
                vec![plain.clone(), Subject { plain_ring: Some(ring.clone()), ..plain }]
            }
            SubjectName::KernelUdp | SubjectName::Unix | SubjectName::Pipe | SubjectName::Channel => {
                vec![plain]
            }
        }
    }

    /// The same with datagrams.
    pub fn by_datagrams(self) -> Subject {
        Subject { cc: None, cc_name: None, datagrams: true, ..self }
    }

    /// A further row of a subject that has its main one already.
    pub fn is_extra_row(&self) -> bool {
        self.plain_ring.is_some()
            || (self.name == SubjectName::KernelTcp && self.cc.is_none() && self.cc_name.is_some())
    }

    /// Whether the case makes sense.
    pub fn can(&self, case: Case, spin: bool) -> bool {
        match case {
            // The bare ring never sleeps: beside blocking programs its spinning figure stands.
            Case::Pingpong => spin || self.name != SubjectName::Floor,
            Case::UdpPingpong => (spin || self.name != SubjectName::Floor) && !self.is_extra_row(),
            Case::Stream | Case::Bulk => true,
            _ => !self.is_extra_row(),
        }
    }

    /// A figure of this subject.
    pub fn figure(&self, context: &Context, case: Case, metric: &'static str) -> Figure {
        Figure {
            bench: "loopback",
            case: case.name().into(),
            subject: self.name.name(),
            link: self.link().map(Into::into),
            mode: None,
            size: None,
            burst: None,
            profile: (self.name == SubjectName::Bypath).then(|| context.profile.clone()),
            cc: self.cc_name.clone(),
            metric,
        }
    }

    fn link(&self) -> Option<&'static str> {
        match self.name {
            SubjectName::KernelTcp | SubjectName::KernelUdp | SubjectName::Bypath => Some("lo"),
            SubjectName::Floor if self.plain_ring.is_some() => Some("shm-c"),
            SubjectName::Floor => Some("shm"),
            SubjectName::Unix | SubjectName::Pipe | SubjectName::Channel => None,
        }
    }

    /// For the progress line.
    pub fn title(&self) -> String {
        match (&self.cc_name, self.link()) {
            (Some(cc), _) => format!("{} ({cc})", self.name.name()),
            (None, Some("shm-c")) => "floor (C)".into(),
            _ => self.name.name().into(),
        }
    }

    fn transport(&self) -> &'static str {
        match self.name {
            SubjectName::Bypath if self.datagrams => "udp",
            SubjectName::KernelTcp | SubjectName::Bypath => "tcp",
            SubjectName::KernelUdp => "udp",
            SubjectName::Unix => "unix",
            SubjectName::Pipe => "pipe",
            SubjectName::Channel if self.datagrams => "channel-datagrams",
            SubjectName::Channel => "channel",
            SubjectName::Floor => "ring",
        }
    }

    /// Where a server is told to wait.
    pub fn address(&self, context: &Context) -> Result<String, Trouble> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        match self.name {
            // Every loopback address, for the case that goes round them.
            SubjectName::KernelTcp | SubjectName::KernelUdp | SubjectName::Bypath => Ok("127.0.0.1:0".into()),
            SubjectName::Unix => Ok(text(context.scratch.fresh("socket"))),
            SubjectName::Channel => Ok(text(context.scratch.fresh("channel"))),
            SubjectName::Floor => Ok(text(context.scratch.fresh("ring"))),
            SubjectName::Pipe => {
                let folder = context.scratch.fresh("pipes");
                std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
                Ok(text(folder))
            }
        }
    }

    /// Starts a measured program on this subject: the same program for all of them but the C ring.
    pub fn start(
        &self,
        context: &Context,
        stats: Option<&Path>,
        name: &str,
        args: &[String],
    ) -> Result<Child, Trouble> {
        let mut command = match self.name {
            SubjectName::Bypath => {
                let mut command = context.under_bypath(stats);
                command.arg(&context.exe);
                command
            }
            _ => Command::new(&context.exe),
        };
        command.args(["bench", "peer", "--transport", self.transport()]).args(args);
        if let Some(cc) = self.cc {
            command.args(["--cc", cc]);
        }
        Ok(Child::spawn(command, name)?)
    }
}
