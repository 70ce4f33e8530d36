//! One file per subcommand: its arguments and what it does.

pub mod chat;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod dump;
pub mod ipc;
pub mod l2;
pub mod man;
pub mod metrics;
pub mod netstack;
pub mod paths;
pub mod roce;
pub mod run;
pub mod ss;
pub mod stats;
pub mod top;
pub mod tun;
pub mod why;
