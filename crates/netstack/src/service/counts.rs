//! How often the service was asked what, and how often it refused.

use bypath_shm::service::Op;

/// Kinds of questions, with the names of both counters.
const KINDS: [(Op, &str, &str); Op::ALL.len()] = [
    (Op::Hello, "asked_hello", "refused_hello"),
    (Op::Open, "asked_open", "refused_open"),
    (Op::Bind, "asked_bind", "refused_bind"),
    (Op::Listen, "asked_listen", "refused_listen"),
    (Op::Connect, "asked_connect", "refused_connect"),
    (Op::Names, "asked_names", "refused_names"),
    (Op::Set, "asked_set", "refused_set"),
    (Op::Get, "asked_get", "refused_get"),
    (Op::Error, "asked_error", "refused_error"),
    (Op::Shutdown, "asked_shutdown", "refused_shutdown"),
    (Op::Query, "asked_query", "refused_query"),
    (Op::Rings, "asked_rings", "refused_rings"),
    (Op::Reach, "asked_reach", "refused_reach"),
    (Op::Again, "asked_again", "refused_again"),
    (Op::Say, "asked_say", "refused_say"),
    (Op::Interfaces, "asked_interfaces", "refused_interfaces"),
];

/// Counters of questions.
#[derive(Debug, Default)]
pub struct Counts {
    /// In the order of [`KINDS`]: asked, refused.
    all: [[u64; 2]; KINDS.len()],
    nonsense: u64,
}

impl Counts {
    fn of(&mut self, op: Op) -> Option<&mut [u64; 2]> {
        self.all.iter_mut().zip(&KINDS).find(|(_, (kind, ..))| *kind == op).map(|(counts, _)| counts)
    }

    /// Somebody has asked this.
    pub fn asked(&mut self, op: Op) {
        if let Some(counts) = self.of(op) {
            counts[0] += 1;
        }
    }

    /// He was answered that; a connection that is under way is none that was refused.
    pub fn answered(&mut self, op: Op, errno: i32) {
        if let Some(counts) = self.of(op)
            && !matches!(errno, 0 | libc::EINPROGRESS)
        {
            counts[1] += 1;
        }
    }

    /// Somebody said what makes no sense.
    pub const fn nonsense(&mut self) {
        self.nonsense += 1;
    }

    /// All, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let each = |(counts, (_, asked, refused)): (&[u64; 2], &(Op, &'static str, &'static str))| {
            [(*asked, counts[0]), (*refused, counts[1])]
        };
        let all = self.all.iter().zip(&KINDS).flat_map(each);
        all.chain([("asked_nonsense", self.nonsense)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_and_is_counted_there() {
        let mut counts = Counts::default();
        for op in Op::ALL {
            counts.asked(op);
            counts.answered(op, libc::EINPROGRESS);
        }
        counts.answered(Op::Again, libc::EACCES);
        counts.nonsense();
        let all: Vec<_> = counts.iter().collect();
        assert!(
            all.iter()
                .all(|(name, value)| *value
                    == u64::from(name.starts_with("asked") || *name == "refused_again"))
        );
        for (op, asked, refused) in KINDS {
            let name = format!("{op:?}").to_lowercase();
            assert_eq!((asked, refused), (&*format!("asked_{name}"), &*format!("refused_{name}")));
        }
    }
}
