//! Replay: builds the state from `__offsets` when the store is opened, and clamps committed offsets.

use std::collections::HashSet;
use std::sync::Arc;

use super::entry::Committed;
use super::state::{Doubt, Place, Shown, State};
use super::stored::{OFFSETS_VERSION, Stored, Unusable, decode};
use super::write::CHUNK_BYTES;
use crate::error::{Corruption, Error, Result};
use crate::name::{GroupName, TopicName};
use crate::offset::{Offset, OffsetRange};
use crate::partition::Partition;
use crate::record::RecordView;
use crate::store::Shared;

const READ_BYTES: usize = 1024 * 1024;

/// An entry that was moved back.
type Clamped = (GroupName, Place, Arc<Committed>);

impl Shared {
    /// Reads what was committed. A log of it that can't be read is no reason not to open the
    /// store: whoever asks for a committed offset is told.
    pub(in crate::store) fn load_offsets(&self) {
        let Ok(topic) = self.topic(&TopicName::offsets()) else { return };
        let known: HashSet<u128> = self.all_topics().iter().map(|topic| topic.id).collect();
        let loaded = topic.partition(0).and_then(|log| {
            let mut state = replay(&log, &known)?;
            let clamped = self.clamp(&mut state);
            if !clamped.is_empty() {
                state.unwritten = !self.read_only && self.write_clamped(&log, &clamped).is_err();
            }
            state.log = Some(log);
            Ok(state)
        });
        let loaded = loaded.unwrap_or_else(State::refusing);
        *self.offsets.state.lock() = loaded;
    }

    /// Moves committed offsets past the end of their partition back to it.
    fn clamp(&self, state: &mut State) -> Vec<Clamped> {
        let mut clamped = Vec::new();
        for (group, place, shown) in state.all_shown() {
            let topic = self.topic_by_id(place.0).ok();
            let cut = topic.and_then(|topic| topic.clamped(&shown.commit, place.1));
            clamped.extend(cut.map(|cut| (group.clone(), place, Arc::new(cut))));
        }
        for (group, place, commit) in &clamped {
            let recorded = state.shown(group, *place).map_or(0, |shown: &Shown| shown.recorded_end);
            state.show(group, *place, Some(Arc::clone(commit)), recorded);
        }
        clamped
    }

    /// Makes it durable, before anything is appended that the old ones would skip.
    fn write_clamped(&self, log: &Partition, mut clamped: &[Clamped]) -> Result<()> {
        while !clamped.is_empty() {
            let mut bytes = 0;
            let fit = clamped.iter().take_while(|(group, _, commit)| {
                let fits = bytes < CHUNK_BYTES;
                bytes += commit.stored_bytes(group);
                fits
            });
            let (chunk, rest) = clamped.split_at(fit.count());
            let entries =
                chunk.iter().map(|(group, place, commit)| (group, *place, Some(&**commit)));
            let (end, _) = self.append_entries(log, entries)?;
            log.wait_durable(end)?;
            clamped = rest;
        }
        Ok(())
    }
}

fn replay(log: &Partition, known: &HashSet<u128>) -> Result<State> {
    let mut state = State::default();
    let mut from = log.ends().log_start;
    let end = log.readable_end();
    while from < end {
        let mut unusable = None;
        let fetched = log.read(from, READ_BYTES).and_then(|fetched| {
            fetched.for_each(|record| {
                if let Err(error) = apply(&mut state, log, known, &record) {
                    unusable.get_or_insert(error);
                }
            })?;
            Ok(fetched)
        });
        match (fetched, unusable) {
            (_, Some(error @ Error::NewerFormat { .. })) => return Err(error),
            (Ok(fetched), None) if fetched.next > from => {
                state.appended_bytes += fetched.bytes.len() as u64;
                from = fetched.next;
            }
            (Ok(_), None) => break,
            (Ok(fetched), Some(Error::Corrupt(corruption))) => {
                doubt(&mut state, corruption);
                from = fetched.next;
            }
            (Err(Error::Corrupt(corruption)), _) if corruption.offsets.end > from => {
                from = corruption.offsets.end;
                doubt(&mut state, corruption);
            }
            (Err(error), _) | (_, Some(error)) => return Err(error),
        }
    }
    if log.recovery_report().end_unproven {
        let error = Error::EndUnproven { path: log.path().to_path_buf(), at_least: end };
        state.doubt = Some(Doubt { error, sure_from: Offset::MAX });
    }
    Ok(state)
}

fn doubt(state: &mut State, corruption: Corruption) {
    let sure_from = corruption.offsets.end;
    state.doubt = Some(Doubt { error: Error::Corrupt(corruption), sure_from });
}

fn apply(
    state: &mut State,
    log: &Partition,
    known: &HashSet<u128>,
    record: &RecordView<'_>,
) -> Result<()> {
    let path = log.path().to_path_buf();
    match decode(record) {
        Ok(Stored { group, place, commit }) => {
            // Topics that are gone have left their entries here until the next snapshot.
            if known.contains(&place.0) {
                state.show(&group, place, commit.map(Arc::new), record.offset + 1);
            }
            Ok(())
        }
        Err(Unusable::Newer(version)) => Err(Error::NewerFormat {
            path,
            found: u32::from(version),
            supported: u32::from(OFFSETS_VERSION),
        }),
        Err(Unusable::Malformed(fault)) => {
            let offsets = OffsetRange::new(record.offset, record.offset + 1);
            Err(Error::Corrupt(Corruption { path, position: 0, offsets, fault }))
        }
    }
}
