//! Stop: why a partition can't be read further, and what comes of that: it stands still, or goes
//! on elsewhere. It counts once all that was fetched before is handed over.

use log_core::protocol::{ErrorCode, Refusal};
use log_core::{Offset, OffsetRange};

use super::event::{ConsumerEvent, SkipReason};
use super::membership::PartitionId;
use super::record::Damage;
use super::settings::{OnCorrupt, OutOfRange};
use super::state::State;
use crate::error::Error;

/// Why a partition can't be read further.
#[derive(Debug)]
pub(super) enum Stop {
    /// Batches are not what was written.
    Damaged(Damage),
    /// The server can't read these.
    Corrupt(OffsetRange, Refusal),
    /// The next offset is not in the log, which begins and ends here.
    OutOfRange { log_start: Offset, readable_end: Offset, refusal: Refusal },
    /// Asking again would end the same way.
    Failed(Error),
}

impl State {
    /// All that comes before is handed over.
    pub(super) fn stopped_at(&mut self, id: PartitionId, stop: Stop) {
        match stop {
            Stop::Damaged(damage) => self.damaged(id, damage),
            Stop::Corrupt(offsets, refusal) => self.corrupt(id, offsets, refusal),
            Stop::OutOfRange { log_start, readable_end, refusal } => {
                self.out_of_range(id, (log_start, readable_end), refusal);
            }
            Stop::Failed(error) => self.halt(id, error),
        }
    }

    fn damaged(&mut self, id: PartitionId, damage: Damage) {
        let Some(owned) = self.partitions.get_mut(&id) else { return };
        let Damage { offsets, fault } = damage;
        let message = format!(
            "records {offsets} of {}/{} can't be read ({fault}): seek behind them, or choose to skip",
            owned.topic, id.partition
        );
        let refusal = Refusal::new(ErrorCode::Corrupt, message);
        self.corrupt(id, offsets, refusal.with_numbers(&[offsets.start, offsets.end]));
    }

    fn corrupt(&mut self, id: PartitionId, offsets: OffsetRange, refusal: Refusal) {
        let Some(owned) = self.partitions.get_mut(&id) else { return };
        // A range that ends where it is read would be met again, for ever.
        if self.settings.on_corrupt == OnCorrupt::Error || offsets.end <= owned.tracker.frontier() {
            self.halt(id, Error::Refused(refusal));
            return;
        }
        let of = owned.named();
        owned.jump(offsets.end);
        self.events.push(ConsumerEvent::Skipped { of, offsets, reason: SkipReason::Corrupt });
    }

    fn out_of_range(
        &mut self,
        id: PartitionId,
        (log_start, readable_end): (Offset, Offset),
        refusal: Refusal,
    ) {
        let Some(owned) = self.partitions.get_mut(&id) else { return };
        let from = owned.tracker.frontier();
        // The refusal is the truth of that moment; a reply may leave the ends out.
        let (log_start, end) = match refusal.numbers.as_slice() {
            &[_, log_start, end] => (log_start, end),
            _ => (log_start, readable_end),
        };
        let below = from < log_start;
        let (to, reason) = match self.settings.out_of_range {
            OutOfRange::Error => {
                self.halt(id, Error::Refused(refusal));
                return;
            }
            OutOfRange::Earliest if below => (log_start, SkipReason::Trimmed),
            OutOfRange::Latest if below => (readable_end.max(log_start), SkipReason::ToLatest),
            // The log has lost its end: what will be appended there was never read.
            OutOfRange::Earliest | OutOfRange::Latest => {
                (end.min(readable_end.max(log_start)).min(from), SkipReason::ToLatest)
            }
        };
        let of = owned.named();
        owned.jump(to);
        if to > from {
            let offsets = OffsetRange::new(from, to);
            self.events.push(ConsumerEvent::Skipped { of, offsets, reason });
        } else if to < from {
            self.events.push(ConsumerEvent::WentBack { of, from, to });
        }
    }

    /// The partition stands still; the user is told why, once.
    fn halt(&mut self, id: PartitionId, error: Error) {
        if let Some(owned) = self.partitions.get_mut(&id) {
            owned.halted = true;
            self.errors.push_back(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use log_core::protocol::offsets::PositionV1;

    use super::super::partition::tests::chunk;
    use super::super::partition::{Owned, Run};
    use super::super::record::ConsumerRecord;
    use super::super::record::tests::{LIMITS, source};
    use super::super::settings::Settings;
    use super::super::state::{Next, Shared};
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    /// Reads records 0, 1, 2, which are buffered, and then stops.
    fn stopped(settings: Settings, stop: Stop) -> Arc<Shared> {
        let shared = Shared::new(settings, None, None);
        {
            let mut state = shared.lock();
            state.assign(Arc::from("orders"), source().id, 1, &PositionV1::at(0));
            let owned = state.partitions.get_mut(&source().id).unwrap();
            owned.fetched(chunk(&[(0, 3)]));
            owned.stop(stop);
            assert!(!owned.wants_fetch(1 << 20, NOW));
        }
        shared
    }

    /// The offsets that are handed over, up to an error or a wait.
    fn read(state: &mut State) -> (Vec<Offset>, Option<Error>) {
        let mut seen = Vec::new();
        let span = |record: &ConsumerRecord| {
            (record.source, OffsetRange::new(record.offset, record.offset + 1))
        };
        loop {
            match state.next(NOW, Owned::take_record, span) {
                Next::Found(record) => seen.push(record.offset),
                Next::Closed(source, generation, chunk) => {
                    state.owned(source, generation).unwrap().opened(Run::open(&chunk, LIMITS));
                }
                Next::Failed(error) => return (seen, Some(error)),
                Next::Wait | Next::End => return (seen, None),
            }
        }
    }

    fn corrupt() -> Stop {
        Stop::Corrupt(OffsetRange::new(3, 10), Refusal::new(ErrorCode::Corrupt, "bad"))
    }

    fn trimmed() -> Stop {
        let refusal = Refusal::new(ErrorCode::OffsetOutOfRange, "gone");
        Stop::OutOfRange { log_start: 10, readable_end: 20, refusal }
    }

    #[test]
    fn what_stands_before_a_stop_is_handed_over_first() {
        for (stop, code) in
            [(corrupt(), ErrorCode::Corrupt), (trimmed(), ErrorCode::OffsetOutOfRange)]
        {
            let shared = stopped(Settings::default(), stop);
            let mut state = shared.lock();
            let (seen, error) = read(&mut state);
            assert_eq!((seen, error.unwrap().code()), (vec![0, 1, 2], Some(code)));
            assert!(matches!(read(&mut state), (seen, None) if seen.is_empty()), "told once");
        }
    }

    #[test]
    fn what_is_skipped_begins_behind_what_was_handed_over() {
        let skip = Settings { on_corrupt: OnCorrupt::Skip, ..Settings::default() };
        let earliest = Settings { out_of_range: OutOfRange::Earliest, ..Settings::default() };
        for (settings, stop) in [(skip, corrupt()), (earliest, trimmed())] {
            let shared = stopped(settings, stop);
            let mut state = shared.lock();
            assert!(matches!(read(&mut state), (seen, None) if seen == [0, 1, 2]));
            drop(state.events.pop());
            let skipped = state.events.pop();
            let Some(ConsumerEvent::Skipped { offsets, .. }) = skipped else {
                panic!("{skipped:?}")
            };
            assert_eq!(offsets, OffsetRange::new(3, 10));
            let owned = &state.partitions[&source().id];
            assert_eq!((owned.position, owned.tracker.prefix()), (10, 0), "they are in hand still");
        }
    }
}
