//! How long is spent on what processes of one user show: they say themselves how much that is.

use crate::connections::is_trusted;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What was spent in one look, in which each other user is given `OF_USER` ms, and all of them together `OF_USERS` ms.
#[derive(Debug, Default)]
pub struct Effort<const OF_USER: u64, const OF_USERS: u64> {
    of_user: HashMap<u32, Duration>,
    of_users: Duration,
}

impl<const OF_USER: u64, const OF_USERS: u64> Effort<OF_USER, OF_USERS> {
    /// How long this user is looked at still; `None`: as long as it takes.
    pub fn left(&self, user: u32) -> Option<Duration> {
        let of_user = Duration::from_millis(OF_USER).saturating_sub(self.spent(user));
        let of_users = Duration::from_millis(OF_USERS).saturating_sub(self.of_users);
        (!is_trusted(user)).then(|| of_user.min(of_users))
    }

    /// Whether there is no more for this user: what is left is not found.
    pub fn is_over(&self, user: u32) -> bool {
        self.left(user) == Some(Duration::ZERO)
    }

    /// How long this user was looked at.
    pub fn spent(&self, user: u32) -> Duration {
        self.of_user.get(&user).copied().unwrap_or_default()
    }

    /// Does something for a user.
    pub fn on<R>(&mut self, user: u32, f: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = f();
        self.spend(user, begun.elapsed());
        result
    }

    /// So long was spent on him.
    pub fn spend(&mut self, user: u32, time: Duration) {
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
        let mut effort = Effort::<50, 200>::default();
        effort.spend(stranger(0), Duration::from_millis(30));
        assert_eq!(effort.left(stranger(0)), Some(Duration::from_millis(20)));
        effort.spend(stranger(0), Duration::from_millis(20));
        assert!(effort.is_over(stranger(0)) && !effort.is_over(stranger(1)));
        (0..10).for_each(|n| effort.spend(stranger(n), Duration::from_millis(50)));
        assert!(effort.is_over(stranger(11)) && !effort.is_over(0));
        effort.spend(0, Duration::from_secs(20));
        assert!(!effort.is_over(0) && effort.left(bypath_sys::process::euid()).is_none());
    }
}
