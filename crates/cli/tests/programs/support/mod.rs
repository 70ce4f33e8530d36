//! What every test of a real program needs: which sides run under Bypath, processes that cannot outlive
//! their test, skips that are seen, and the proof from `bypath stats`.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "several test targets share this module; each uses a part"
)]

pub mod http;
mod library;
mod process;
mod sample;
mod scene;
mod skip;
mod stats;

pub use library::{bypath, preload_library};
pub use process::{Outcome, Process};
pub use sample::{assert_same, sample};
pub use scene::{Program, Scene, Way, launcher, ring_required};
pub use skip::{find_program, missing, skip};
pub use stats::Totals;

/// One test per line and way: `name needs ["program", ...] => function(&Scene)`.
macro_rules! ways {
    ($($name:ident needs [$($tool:expr),* $(,)?] => $body:expr;)*) => {$(
        mod $name {
            use super::*;
            use $crate::support::{Scene, Way};

            fn run(test: &str, way: Way) {
                let test = format!("{}::{test}", module_path!());
                Scene::play(&test, way, &[$($tool),*], $body);
            }

            #[test]
            fn both_sides() {
                run("both_sides", Way::Both);
            }

            #[test]
            fn only_server() {
                run("only_server", Way::OnlyServer);
            }

            #[test]
            fn only_client() {
                run("only_client", Way::OnlyClient);
            }
        }
    )*};
}
pub(crate) use ways;
