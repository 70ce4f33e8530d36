//! What every measurement of a bench shares: where the programs are, for how long, on which cores.

use super::args::Common;
use super::child::interrupted;
use super::machine::{Machine, may_use_cc};
use super::progress::Progress;
use super::record::{Figure, Results, Sample, Status};
use super::scratch::Scratch;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A bench with `--quick` starts nothing after this; what runs then ends within the remaining seconds.
const QUICK_LIMIT: Duration = Duration::from_secs(24);
/// Children get this much longer than their measurement.
const GRACE: Duration = Duration::from_secs(15);
const QUICK_GRACE: Duration = Duration::from_secs(5);

/// The congestion control that the kernel's figures are measured with first: it is the best on loopback.
pub const CUBIC: &str = "cubic";

/// Shared by all measurements.
pub struct Context {
    /// This program.
    pub exe: PathBuf,
    /// Files of the bench.
    pub scratch: Scratch,
    /// The machine.
    pub machine: Machine,
    /// Profile under Bypath.
    pub profile: String,
    /// Fewer and shorter runs.
    pub quick: bool,
    /// Rounds.
    pub rounds: u32,
    /// Seconds of a run.
    pub seconds: f64,
    /// Congestion control for the main figures; `None` if only the default may be used.
    pub cc: Option<&'static str>,
    started: Instant,
}

/// Why a figure was not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Not possible here.
    Skipped(String),
    /// It went wrong.
    Failed(String),
}

impl From<String> for Trouble {
    fn from(reason: String) -> Trouble {
        Trouble::Failed(reason)
    }
}

/// Numbers of one run, by metric, and what a reader should know about them.
pub struct Outcome {
    /// What was measured, and the numbers.
    pub figures: Vec<(Figure, Sample)>,
    /// See [`Results::add`].
    pub note: Option<String>,
}

/// One subject in one case: something that can be run again and again.
pub trait Job {
    /// For the progress line.
    fn title(&self) -> String;
    /// What it would measure, for the record of a failure.
    fn figures(&self, context: &Context) -> Vec<Figure>;
    /// One run.
    fn run(&self, context: &Context) -> Result<Outcome, Trouble>;
}

impl Context {
    /// Looks at the machine and makes a folder for files.
    pub fn new(common: &Common) -> Result<Context, String> {
        super::child::catch_interrupts().map_err(|e| format!("cannot catch signals: {e}"))?;
        Ok(Context {
            exe: std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?,
            scratch: Scratch::new().map_err(|e| format!("cannot create a folder for files: {e}"))?,
            machine: Machine::look(),
            profile: common.profile.clone(),
            quick: common.quick,
            rounds: common.rounds.unwrap_or(if common.quick { 3 } else { 5 }),
            seconds: common.seconds.unwrap_or(if common.quick { 0.04 } else { 0.5 }),
            cc: may_use_cc(CUBIC).then_some(CUBIC),
            started: Instant::now(),
        })
    }

    /// When a child that measures for `seconds` must have ended.
    pub fn deadline(&self, seconds: f64) -> Instant {
        let grace = if self.quick { QUICK_GRACE } else { GRACE };
        Instant::now() + Duration::from_secs_f64(seconds) + grace
    }

    /// `bypath run`, writing its counters to `stats`; the program is to be added.
    pub fn under_bypath(&self, stats: Option<&Path>) -> Command {
        self.under_copy(&self.exe, stats)
    }

    /// The same with a copy of this program, beside which a copy of the library is.
    pub fn under_copy(&self, exe: &Path, stats: Option<&Path>) -> Command {
        let mut command = Command::new(exe);
        // What a user has configured is not what is measured.
        command.args(["run", "--config", "none", "--profile", &self.profile]);
        if let Some(stats) = stats {
            command.arg("--stats").arg(stats);
        }
        command.arg("--");
        command
    }

    /// The core of the server (0) or the client (1).
    pub fn core(&self, which: usize) -> Option<usize> {
        self.machine.pinned.map(|cores| cores[which])
    }

    /// Keeps this process, and those that it starts from now on, on the client's core.
    pub fn stay_on_one_core(&self) {
        if let Some(core) = self.core(1) {
            let mut set = nix::sched::CpuSet::new();
            if set.set(core).is_ok() {
                // Where it is not allowed figures are less steady, not wrong.
                let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
            }
        }
    }

    /// Runs groups of jobs: in each round every group, in each group every job once, one after another.
    pub fn measure(&self, groups: &[Vec<Box<dyn Job>>]) -> Results {
        let mut results = Results::default();
        let total: usize = groups.iter().map(|g| g.len() * self.rounds as usize).sum();
        let mut progress = Progress::new(total);
        let mut given_up: Vec<Vec<bool>> = groups.iter().map(|g| vec![false; g.len()]).collect();
        // Rounds outermost: a figure's runs are spread over the whole bench, and what --quick cuts off is rounds.
        for _ in 0..self.rounds {
            for (group, given_up) in groups.iter().zip(&mut given_up) {
                for (job, given_up) in group.iter().zip(given_up) {
                    progress.step(&job.title());
                    if !*given_up {
                        *given_up = !self.one_run(job.as_ref(), &mut results);
                    }
                }
            }
        }
        drop(progress);
        results
    }

    /// Whether the job may be run again.
    fn one_run(&self, job: &dyn Job, results: &mut Results) -> bool {
        let outcome = if interrupted() {
            Err(Trouble::Skipped("interrupted".into()))
        } else if self.quick && self.started.elapsed() > QUICK_LIMIT {
            Err(Trouble::Skipped("the time of --quick was used up".into()))
        } else {
            job.run(self)
        };
        match outcome {
            Ok(outcome) => {
                for (figure, sample) in outcome.figures {
                    results.add(figure, sample, outcome.note.clone());
                }
                true
            }
            Err(trouble) => {
                let (status, reason) = match trouble {
                    Trouble::Failed(_) if interrupted() => (Status::Skipped, "interrupted".into()),
                    Trouble::Skipped(reason) => (Status::Skipped, reason),
                    Trouble::Failed(reason) => (Status::Failed, reason),
                };
                for figure in job.figures(self) {
                    results.trouble(figure, status, &reason);
                }
                false
            }
        }
    }
}
