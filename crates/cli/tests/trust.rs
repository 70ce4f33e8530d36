//! Peers that mean harm: what docs/security.md and docs/security-claims.md say of them is tried here on programs that know nothing of it.

#[path = "agent/programs.rs"]
#[expect(dead_code, reason = "for tests of data")]
mod programs;

#[path = "trust/allowed.rs"]
mod allowed;
#[path = "trust/attack.rs"]
mod attack;
#[path = "trust/costs.rs"]
mod costs;
#[path = "trust/dice.rs"]
mod dice;
#[path = "trust/fake.rs"]
mod fake;
#[path = "trust/fuzz.rs"]
mod fuzz;
#[path = "trust/known.rs"]
mod known;
#[path = "trust/late.rs"]
mod late;
#[path = "trust/mail.rs"]
mod mail;
#[path = "trust/peer.rs"]
mod peer;
#[path = "trust/posts.rs"]
mod posts;
#[path = "trust/victim.rs"]
mod victim;
