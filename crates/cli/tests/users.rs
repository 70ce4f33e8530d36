//! Other users, and trouble: who may share memory, and programs that cannot be served must run unharmed. Each
//! connection that stays on the kernel says why, by the reason code that `bypath stats` counts.

#[path = "programs/support/mod.rs"]
mod support;

#[path = "agent/programs.rs"]
#[expect(dead_code, reason = "not all of it is needed here")]
mod agents;

#[path = "users/cgroup.rs"]
mod cgroup;
#[path = "users/confined.rs"]
mod confined;
#[path = "users/datagrams.rs"]
mod datagrams;
#[path = "users/guard.rs"]
mod guard;
#[path = "users/many.rs"]
mod many;
#[path = "users/paths.rs"]
mod paths;
#[path = "users/policy.rs"]
mod policy;
#[path = "users/relatives.rs"]
mod relatives;
#[path = "users/rules.rs"]
mod rules;
#[path = "users/stage.rs"]
mod stage;
#[path = "users/strained.rs"]
mod strained;
#[path = "users/trouble.rs"]
mod trouble;
