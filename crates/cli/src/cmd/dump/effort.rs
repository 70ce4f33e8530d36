//! How long is spent on what processes of one user map: they say themselves how much that is.

use crate::connections::is_trusted;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// On one other user's, in one look for connections.
const OF_USER: Duration = Duration::from_millis(50);
/// On all other users'.
const OF_USERS: Duration = Duration::from_millis(200);

/// What was spent in this look.
#[derive(Debug, Default)]
pub struct Effort {
    of_user: HashMap<u32, Duration>,
    of_users: Duration,
}

impl Effort {
    /// Whether there is no more for this user: what is left is not found.
    pub fn is_over(&self, user: u32) -> bool {
        let spent = self.of_user.get(&user).copied().unwrap_or_default();
        !is_trusted(user) && (spent >= OF_USER || self.of_users >= OF_USERS)
    }

    /// Does something for a user.
    pub fn on<R>(&mut self, user: u32, f: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = f();
        self.spend(user, begun.elapsed());
        result
    }

    fn spend(&mut self, user: u32, time: Duration) {
        if !is_trusted(user) {
            *self.of_user.entry(user).or_default() += time;
            self.of_users += time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_does_not_spend_what_is_for_others() {
        let stranger = |n: u32| bypath_sys::process::euid() + 1000 + n;
        let mut effort = Effort::default();
        effort.spend(stranger(0), OF_USER);
        assert!(effort.is_over(stranger(0)) && !effort.is_over(stranger(1)));
        (0..10).for_each(|n| effort.spend(stranger(n), OF_USER));
        assert!(effort.is_over(stranger(11)) && !effort.is_over(0));
        effort.spend(0, 100 * OF_USERS);
        assert!(!effort.is_over(0) && !effort.is_over(bypath_sys::process::euid()));
    }
}
