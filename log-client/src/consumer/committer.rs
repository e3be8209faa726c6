//! Tracker: what of one partition was handed over, what is done, and so what may be committed.
//!
//! Everything below `prefix` is done. `done` holds what is done above it; `prefix` never stands in
//! a range of `done`. Everything below `frontier` was handed over, or will never be: it was settled
//! before, or is a hole. What is below `frontier` and not done is in hand.
//! Invariant: prefix <= frontier. What is produced for a commit never goes back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use log_core::protocol::offsets::PositionV1;
use log_core::{Offset, OffsetRange};

/// The most ranges that a commit tells of; what is left out is merely read again.
const RANGES_MAX: usize = 1_000;
/// Records handed over within so long of each other are of one age.
const AGE_STEP: Duration = Duration::from_millis(10);

/// Ranges that do not touch each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges(BTreeMap<Offset, Offset>);

impl Ranges {
    fn insert(&mut self, range: OffsetRange) {
        let OffsetRange { mut start, mut end } = range;
        if range.is_empty() {
            return;
        }
        // Whatever begins at or before the new end, and ends at or after the new start.
        while let Some((&other_start, &other_end)) = self.0.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            start = start.min(other_start);
            end = end.max(other_end);
            self.0.remove(&other_start);
        }
        self.0.insert(start, end);
    }

    fn containing(&self, offset: Offset) -> Option<OffsetRange> {
        let (&start, &end) = self.0.range(..=offset).next_back()?;
        (offset < end).then_some(OffsetRange::new(start, end))
    }

    fn cut_from(&mut self, offset: Offset) {
        let cut = self.0.split_off(&offset);
        drop(cut);
        if let Some((_, end)) = self.0.range_mut(..).next_back() {
            *end = (*end).min(offset);
        }
    }
}

/// The progress of one grant of a partition.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Tracker {
    prefix: Offset,
    done: Ranges,
    frontier: Offset,
    /// How far the frontier was at which time, oldest first; from the one that holds `prefix` on.
    ages: VecDeque<(Offset, Duration)>,
    max_ahead: u64,
    /// What the server has, or is about to get.
    committed: PositionV1,
}

impl Tracker {
    /// Starts where a grant says. Nothing is handed over `max_ahead` or more above what is done.
    #[must_use]
    pub fn new(position: &PositionV1, max_ahead: u64) -> Tracker {
        let mut tracker = Tracker {
            prefix: position.offset,
            done: Ranges::default(),
            frontier: position.offset,
            ages: VecDeque::new(),
            max_ahead: max_ahead.max(1),
            committed: position.clone(),
        };
        for range in position.ranges() {
            let start = range.start.max(position.offset);
            tracker.done.insert(OffsetRange::new(start, range.end));
        }
        tracker.advance();
        tracker
    }

    /// Nothing at or above this is handed over for now.
    #[must_use]
    pub fn limit(&self) -> Offset {
        self.prefix.saturating_add(self.max_ahead)
    }

    /// Everything below this is done.
    #[must_use]
    pub fn prefix(&self) -> Offset {
        self.prefix
    }

    /// Everything below this was handed over, or will never be.
    #[must_use]
    pub fn frontier(&self) -> Offset {
        self.frontier
    }

    /// The range done that holds this offset: it is not to be handed over again.
    #[must_use]
    pub fn settled(&self, offset: Offset) -> Option<OffsetRange> {
        if offset < self.prefix {
            return Some(OffsetRange::new(offset, self.prefix));
        }
        self.done.containing(offset)
    }

    /// What is done above the prefix.
    #[must_use]
    pub fn settled_ranges(&self) -> Vec<OffsetRange> {
        self.done.0.iter().map(|(start, end)| OffsetRange::new(*start, *end)).collect()
    }

    /// These are in the user's hands from `now` on. What lies between the frontier and them is a
    /// hole, or was settled before.
    pub fn hand_over(&mut self, range: OffsetRange, now: Duration) {
        if range.end <= self.frontier {
            return;
        }
        let hole = OffsetRange::new(self.frontier, range.start.max(self.frontier));
        self.frontier = range.end;
        self.done.insert(hole);
        match self.ages.back_mut() {
            Some((upto, since)) if now.saturating_sub(*since) < AGE_STEP => *upto = range.end,
            _ => self.ages.push_back((range.end, now)),
        }
        self.advance();
    }

    /// These are done. Only what was handed over can be; marking twice does no harm.
    pub fn finish(&mut self, range: OffsetRange) {
        let start = range.start.max(self.prefix);
        let end = range.end.min(self.frontier);
        // The usual case: in order, and nothing done above.
        if start == self.prefix && self.done.0.is_empty() {
            self.prefix = end.max(start);
        } else {
            self.done.insert(OffsetRange::new(start, end));
        }
        self.advance();
    }

    /// Everything that was handed over is done.
    pub fn finish_all(&mut self) {
        self.finish(OffsetRange::new(self.prefix, self.frontier));
    }

    /// The next to be handed over is `to`. Forward: what is between is skipped, as if it were done.
    /// Back: records are handed over again, and what of them was done before stays committed.
    pub fn seek(&mut self, to: Offset) {
        if to >= self.frontier {
            self.done.insert(OffsetRange::new(self.frontier, to));
            self.frontier = to;
        } else {
            self.frontier = to;
            self.done.cut_from(to);
            self.prefix = self.prefix.min(to);
            while self.ages.len() > 1 && self.ages[self.ages.len() - 2].0 >= to {
                self.ages.pop_back();
            }
            if let Some((upto, _)) = self.ages.back_mut() {
                *upto = (*upto).min(to);
            }
        }
        self.advance();
    }

    /// The log has lost what is at and above `to`, and with it what was committed there.
    pub fn restart(&mut self, to: Offset) {
        *self = Tracker::new(&PositionV1::at(to), self.max_ahead);
    }

    /// Whether something was handed over and is not done.
    #[must_use]
    pub fn has_in_hand(&self) -> bool {
        self.prefix < self.frontier
    }

    /// Since when the oldest record has been in hand.
    #[must_use]
    pub fn oldest(&self) -> Option<Duration> {
        self.ages.front().map(|(_, since)| *since)
    }

    /// What there is to commit: none if the server has it already, or more.
    #[must_use]
    pub fn to_commit(&self) -> Option<PositionV1> {
        let position = self.position();
        let ahead = position.offset > self.committed.offset
            || position.offset == self.committed.offset && self.tells_more(&position);
        ahead.then_some(position)
    }

    /// Ranges are only ever added above an offset; after a seek back, some may be missing.
    fn tells_more(&self, position: &PositionV1) -> bool {
        let sum = |position: &PositionV1| -> u64 {
            let lengths = position.ranges().into_iter().map(OffsetRange::len);
            // A grant may tell of any ranges.
            lengths.fold(0, u64::saturating_add)
        };
        sum(position) > sum(&self.committed)
    }

    /// The position that a release carries: never below what was committed.
    #[must_use]
    pub fn final_position(&self) -> PositionV1 {
        self.to_commit().unwrap_or_else(|| self.committed.clone())
    }

    /// The server has it.
    pub fn committed(&mut self, position: PositionV1) {
        if position.offset >= self.committed.offset {
            self.committed = position;
        }
    }

    /// The next offset to read of what was committed last.
    #[must_use]
    pub fn committed_offset(&self) -> Offset {
        self.committed.offset
    }

    fn position(&self) -> PositionV1 {
        let above = self.done.0.iter().take(RANGES_MAX);
        PositionV1 {
            offset: self.prefix,
            settled: above.map(|(start, end)| (*start, *end)).collect(),
        }
    }

    fn advance(&mut self) {
        while let Some(range) = self.done.containing(self.prefix) {
            self.done.0.remove(&range.start);
            self.prefix = range.end;
        }
        self.frontier = self.frontier.max(self.prefix);
        while self.ages.front().is_some_and(|(upto, _)| *upto <= self.prefix) {
            self.ages.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const AT: Duration = Duration::from_secs(1);

    fn range(start: Offset, end: Offset) -> OffsetRange {
        OffsetRange::new(start, end)
    }

    #[test]
    fn a_commit_is_the_next_offset_to_read() {
        let mut tracker = Tracker::new(&PositionV1::at(10), 100);
        assert_eq!(tracker.to_commit(), None);
        tracker.hand_over(range(10, 11), AT);
        assert_eq!((tracker.to_commit(), tracker.has_in_hand()), (None, true));
        tracker.finish(range(10, 11));
        assert_eq!((tracker.to_commit(), tracker.has_in_hand()), (Some(PositionV1::at(11)), false));
        tracker.committed(PositionV1::at(11));
        assert_eq!(tracker.to_commit(), None);
    }

    #[test]
    fn what_is_done_out_of_order_is_told_as_ranges() {
        let mut tracker = Tracker::new(&PositionV1::at(0), 100);
        tracker.hand_over(range(0, 10), AT);
        tracker.finish(range(3, 4));
        tracker.finish(range(6, 8));
        assert_eq!(
            tracker.to_commit(),
            Some(PositionV1 { offset: 0, settled: vec![(3, 4), (6, 8)] })
        );
        tracker.finish(range(0, 3));
        assert_eq!(tracker.to_commit(), Some(PositionV1 { offset: 4, settled: vec![(6, 8)] }));
        assert_eq!(tracker.limit(), 104);
    }

    #[test]
    fn what_a_grant_says_is_settled_is_not_handed_over_again() {
        let position = PositionV1 { offset: 5, settled: vec![(5, 6), (8, 10)] };
        let mut tracker = Tracker::new(&position, 100);
        assert_eq!(
            (tracker.prefix(), tracker.settled(7), tracker.settled(9)),
            (6, None, Some(range(8, 10)))
        );
        tracker.hand_over(range(6, 8), AT);
        tracker.hand_over(range(10, 11), AT);
        tracker.finish_all();
        assert_eq!(tracker.to_commit(), Some(PositionV1::at(11)));
    }

    #[test]
    fn ranges_that_make_no_sense_do_no_harm() {
        let settled = vec![(5, u64::MAX), (7, u64::MAX), (3, 2)];
        let mut tracker = Tracker::new(&PositionV1 { offset: 1, settled }, 100);
        assert_eq!((tracker.prefix(), tracker.to_commit()), (1, None));
        tracker.hand_over(range(1, 5), AT);
        tracker.finish_all();
        assert_eq!(tracker.to_commit(), Some(PositionV1::at(u64::MAX)));
    }

    #[test]
    fn a_seek_back_reads_again_and_commits_nothing_until_it_is_past() {
        let mut tracker = Tracker::new(&PositionV1::at(0), 100);
        tracker.hand_over(range(0, 10), AT);
        tracker.finish_all();
        tracker.committed(tracker.to_commit().unwrap());
        tracker.seek(4);
        tracker.hand_over(range(4, 9), AT);
        tracker.finish_all();
        assert_eq!((tracker.to_commit(), tracker.final_position()), (None, PositionV1::at(10)));
        tracker.hand_over(range(9, 12), AT);
        tracker.finish_all();
        assert_eq!(tracker.to_commit(), Some(PositionV1::at(12)));
        tracker.seek(20);
        assert_eq!(tracker.to_commit(), Some(PositionV1::at(20)), "what is sought past is skipped");
    }

    #[test]
    fn the_oldest_in_hand_is_told() {
        let mut tracker = Tracker::new(&PositionV1::at(0), 100);
        tracker.hand_over(range(0, 1), AT);
        tracker.hand_over(range(1, 2), 2 * AT);
        tracker.finish(range(1, 2));
        assert_eq!(tracker.oldest(), Some(AT));
        tracker.finish(range(0, 1));
        assert_eq!(tracker.oldest(), None);
    }

    #[derive(Debug, Clone)]
    enum Op {
        HandOver(u64, u64),
        Finish(u64, u64),
        Commit,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..3_u64, 1..5_u64).prop_map(|(hole, count)| Op::HandOver(hole, count)),
            (0..40_u64, 1..6_u64).prop_map(|(start, count)| Op::Finish(start, count)),
            Just(Op::Commit),
        ]
    }

    proptest! {
        /// Against a set of the offsets that are done.
        #[test]
        fn it_is_what_a_set_of_offsets_says(
            start in 0..5_u64,
            settled in proptest::collection::btree_set(0..20_u64, 0..6),
            ops in proptest::collection::vec(op(), 0..60),
        ) {
            let ranges = settled.iter().filter(|offset| **offset >= start);
            let mut done: BTreeSet<u64> = (0..start).chain(settled.iter().copied()).collect();
            let mut apart = Ranges::default();
            ranges.for_each(|offset| apart.insert(range(*offset, offset + 1)));
            let position = PositionV1 { offset: start, settled: apart.0.into_iter().collect() };
            let mut tracker = Tracker::new(&position, 1_000);
            let mut frontier = start;
            let mut last = (0, 0);
            for op in ops {
                match op {
                    Op::HandOver(hole, count) => {
                        frontier = frontier.max(tracker.frontier());
                        let from = frontier + hole;
                        done.extend(frontier..from);
                        frontier = from + count;
                        tracker.hand_over(range(from, frontier), AT);
                    }
                    Op::Finish(from, count) => {
                        done.extend(from..(from + count).min(frontier));
                        tracker.finish(range(from, from + count));
                    }
                    Op::Commit => {
                        if let Some(position) = tracker.to_commit() {
                            let told: u64 = position.ranges().iter().map(|run| run.len()).sum();
                            prop_assert!((position.offset, told) > last, "{position:?} {last:?}");
                            last = (position.offset, told);
                            tracker.committed(position);
                        }
                    }
                }
                let prefix = (0..).find(|offset| !done.contains(offset)).unwrap();
                prop_assert_eq!(tracker.prefix(), prefix);
                let above: Vec<u64> = done.range(prefix..).copied().collect();
                let told: Vec<u64> =
                    tracker.settled_ranges().iter().flat_map(|run| run.start..run.end).collect();
                prop_assert_eq!(told, above);
                prop_assert_eq!(tracker.has_in_hand(), (prefix..frontier).any(|o| !done.contains(&o)));
            }
        }
    }
}
