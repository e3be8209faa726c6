//! Topic: a named log in partitions; picks the partition that a record goes to.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::Store;
use super::catalog::TopicEntry;
use crate::config::TopicConfig;
use crate::error::{Error, Result};
use crate::name::TopicName;
use crate::partition::{Appended, Partition, PartitionId};
use crate::partitioner::partition_for;
use crate::record::Record;

/// Records without a key go to one partition until it got this many bytes, then to the next one:
/// batches stay large, and the partitions equal.
const STICKY_BYTES: u64 = 16 * 1024;

/// A handle to a topic; clones share it. It keeps the store open.
///
/// The number of partitions can grow. Records of a key keep their order only among those that were
/// appended while the number stayed the same: with another number, another partition is theirs.
#[derive(Clone)]
pub struct Topic {
    pub(super) shared: Arc<TopicShared>,
    pub(super) store: Store,
}

/// What the handles of a topic share.
#[derive(Debug)]
pub(super) struct TopicShared {
    pub(super) name: TopicName,
    pub(super) id: u128,
    state: RwLock<State>,
    sticky: Sticky,
}

#[derive(Debug)]
struct State {
    config: TopicConfig,
    partitions: Vec<Slot>,
    deleted: bool,
}

/// A partition, or why it could not be opened: one that is damaged does not keep others closed.
pub(super) type Slot = Result<Partition>;

impl Topic {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.shared.name
    }

    /// Its id: random, and never that of another topic, whatever name that has.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.shared.id
    }

    /// The store that it is in.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How it behaves at present.
    #[must_use]
    pub fn config(&self) -> TopicConfig {
        self.shared.config()
    }

    /// How many partitions it has.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        self.shared.partition_count()
    }

    /// Each of its partitions, in order, or why it can't be had.
    #[must_use]
    pub fn partitions(&self) -> Vec<Result<Partition>> {
        self.shared.slots()
    }

    /// One of its partitions.
    ///
    /// # Errors
    /// `UnknownPartition`; `Closed` if the topic was deleted; what kept it from being opened.
    pub fn partition(&self, number: u32) -> Result<Partition> {
        self.shared.partition(number)
    }

    /// The partition that the records with this key are in.
    #[must_use]
    pub fn partition_of_key(&self, key: &[u8]) -> u32 {
        partition_for(key, self.shared.count())
    }

    /// Appends a record to the partition that its key chooses; without a key, to the one that such
    /// records go to at present. Returns the partition, and what the append did.
    ///
    /// # Errors
    /// As [`Topic::partition`] and [`Partition::append`].
    pub fn append(&self, record: &Record<'_>) -> Result<(u32, Appended)> {
        let number = self.choose(record);
        let appended = self.partition(number)?.append(std::slice::from_ref(record))?;
        Ok((number, appended))
    }

    /// The partition that [`Topic::append`] would take for this record: for those who append
    /// batches of their own. A record without a key counts as appended.
    #[must_use]
    pub fn choose(&self, record: &Record<'_>) -> u32 {
        match record.key {
            Some(key) => self.partition_of_key(key),
            None => self.shared.sticky_partition(record.value.map_or(0, <[u8]>::len) as u64),
        }
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic {{ name: {}, id: {:032x} }}", self.shared.name, self.shared.id)
    }
}

impl TopicShared {
    pub(super) fn new(entry: &TopicEntry, partitions: Vec<Slot>) -> TopicShared {
        TopicShared {
            name: entry.name.clone(),
            id: entry.id,
            state: RwLock::new(State { config: entry.config.clone(), partitions, deleted: false }),
            sticky: Sticky::default(),
        }
    }

    pub(super) fn config(&self) -> TopicConfig {
        self.state.read().config.clone()
    }

    pub(super) fn partition_count(&self) -> u32 {
        u32::try_from(self.state.read().partitions.len()).expect("partitions are limited")
    }

    fn count(&self) -> NonZeroU32 {
        NonZeroU32::new(self.partition_count()).expect("no topic is made without partitions")
    }

    pub(super) fn slots(&self) -> Vec<Slot> {
        self.state.read().partitions.clone()
    }

    /// The partitions that could be opened.
    pub(super) fn open_partitions(&self) -> Vec<(u32, Partition)> {
        let numbered = (0..).zip(self.slots());
        numbered.filter_map(|(number, slot)| Some((number, slot.ok()?))).collect()
    }

    pub(super) fn partition(&self, number: u32) -> Result<Partition> {
        let state = self.state.read();
        if state.deleted {
            return Err(Error::Closed { what: "topic" });
        }
        let slot = usize::try_from(number).ok().and_then(|index| state.partitions.get(index));
        slot.cloned().unwrap_or_else(|| Err(self.unknown(number, state.partitions.len())))
    }

    /// Refuses a number that the topic has no partition for, usable or not.
    pub(super) fn check_partition(&self, number: u32) -> Result<()> {
        let count = self.partition_count();
        if number < count { Ok(()) } else { Err(self.unknown(number, count as usize)) }
    }

    fn unknown(&self, partition: u32, count: usize) -> Error {
        let partitions = u32::try_from(count).unwrap_or(u32::MAX);
        Error::UnknownPartition { topic: self.name.clone(), partition, partitions }
    }

    pub(super) fn alter(&self, config: &TopicConfig) {
        let mut state = self.state.write();
        state.config = config.clone();
        let partitions = state.partitions.clone();
        // A partition may be at its disk: who looks for one must not wait for that.
        drop(state);
        for partition in partitions.iter().flatten() {
            partition.alter(config.clone());
        }
    }

    pub(super) fn add(&self, more: Vec<Slot>) {
        self.state.write().partitions.extend(more);
    }

    /// Refuses all use from here on, of handles that are out, too.
    pub(super) fn stop(&self) {
        let mut state = self.state.write();
        state.deleted = true;
        let partitions = state.partitions.clone();
        drop(state);
        for partition in partitions.iter().flatten() {
            partition.stop();
        }
    }

    fn sticky_partition(&self, bytes: u64) -> u32 {
        let count = self.count();
        let first = self.sticky.choose(bytes, count);
        // One that can't be written to is stepped over: any partition will do.
        let state = self.state.read();
        let usable = |number: &u32| {
            let index = usize::try_from(*number).expect("partitions are limited");
            state.partitions.get(index).is_some_and(Result::is_ok)
        };
        (first..count.get()).chain(0..first).find(usable).unwrap_or(first)
    }
}

/// Counts the bytes of records without a key.
#[derive(Debug, Default)]
struct Sticky(AtomicU64);

impl Sticky {
    fn choose(&self, bytes: u64, partitions: NonZeroU32) -> u32 {
        // Even empty records move it on.
        let so_far = self.0.fetch_add(bytes + 1, Ordering::Relaxed);
        let turn = (so_far / STICKY_BYTES) % u64::from(partitions.get());
        u32::try_from(turn).expect("less than the number of partitions")
    }
}

/// The directory of a topic, in `topics`.
pub(super) fn dir_name(name: &TopicName, id: u128) -> String {
    format!("{name}-{id:032x}")
}

/// The directory of a partition, in that of its topic.
pub(super) fn partition_dir(topic: &Path, number: u32) -> PathBuf {
    topic.join(number.to_string())
}

pub(super) fn partition_id(entry: &TopicEntry, partition: u32) -> PartitionId {
    PartitionId { topic_id: entry.id, topic: entry.name.as_str().to_owned(), partition }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_without_a_key_stay_a_while_and_then_move_on() {
        let sticky = Sticky::default();
        let three = NonZeroU32::new(3).unwrap();
        let chosen: Vec<u32> = (0..64).map(|_| sticky.choose(1023, three)).collect();
        for (turn, run) in chosen.chunks(16).enumerate() {
            assert!(run.iter().all(|number| *number as usize == turn % 3), "{chosen:?}");
        }
    }

    #[test]
    fn directories_are_named_by_topic_and_id() {
        let name = TopicName::parse("a-b").unwrap();
        assert_eq!(dir_name(&name, 0xff), "a-b-000000000000000000000000000000ff");
        let longest = TopicName::parse(&"x".repeat(crate::name::NAME_MAX_BYTES)).unwrap();
        assert!(dir_name(&longest, u128::MAX).len() <= 255);
    }
}
