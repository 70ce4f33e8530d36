//! Which received frame is the first one after a loss.
//!
//! A queue that is full drops what comes, so a loss lies behind everything that waited when it was counted. A link whose
//! frames tell how many were dropped before them ([`FrameMeta::dropped`](bypath_wire::FrameMeta::dropped)) is believed.
//! Of other links the counter is read while there are frames, and the loss is known to be past when the link was found
//! empty after that: no frame before a loss is ever named, but where the link is not found empty in between, some of those
//! after it go unnamed.

/// Follows a link's losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// The link's counter when it was last read.
    counted: u64,
    /// What of it lies before every frame that is still to come.
    past: u64,
    /// What frames were named for.
    told: u64,
}

impl Losses {
    /// A frame was received, with what it tells: how many were lost between it and the one that was last asked about, as
    /// far as that is known.
    pub fn before(&mut self, dropped: Option<u64>) -> Option<u64> {
        let known = dropped.unwrap_or(self.past);
        let lost = known.saturating_sub(self.told);
        self.told = self.told.max(known);
        (lost > 0).then_some(lost)
    }

    /// The link gave frames, and its counter ([`Statistics::dropped`](crate::Statistics::dropped)) was read after that.
    pub const fn counted(&mut self, dropped: u64) {
        self.counted = dropped;
    }

    /// The link was asked for frames and had none.
    pub const fn empty(&mut self) {
        self.past = self.counted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_tell_are_believed() {
        let mut losses = Losses::default();
        losses.counted(9);
        losses.empty();
        let told = [0, 0, 3, 3, 9, 5, 9, 10].map(|n| losses.before(Some(n)));
        assert_eq!(told, [None, None, Some(3), None, Some(6), None, None, Some(1)]);
    }

    #[test]
    fn others_are_named_when_what_waited_at_the_count_is_gone() {
        let mut losses = Losses::default();
        assert_eq!(losses.before(None), None);
        losses.counted(7);
        // These may have waited when the seven were lost.
        assert_eq!(losses.before(None), None);
        losses.empty();
        assert_eq!([losses.before(None), losses.before(None)], [Some(7), None]);
        losses.counted(8);
        losses.counted(12);
        losses.empty();
        losses.empty();
        assert_eq!([losses.before(None), losses.before(None)], [Some(5), None]);
    }
}
