//! Every setting and every limit, with its name, unit and default; checked once.

mod frozen;

use std::time::Duration;

use crate::error::{Error, Result};

pub use frozen::TopicConfigV1;

/// The smallest segment: room for its header and one small batch.
pub const SEGMENT_MIN_BYTES: u64 = 64 * 1024;
/// The largest segment: positions in it are 32 bits wide.
pub const SEGMENT_LIMIT_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// The largest batch that can be configured.
pub const BATCH_LIMIT_BYTES: u32 = 256 * 1024 * 1024;
/// The smallest that a topic's largest batch can be configured.
pub const BATCH_MIN_BYTES: u32 = 4096;
/// The smallest that a topic's largest record can be configured.
pub const RECORD_MIN_BYTES: u32 = 256;
/// The most that a compressed batch can be allowed to expand to.
pub const EXPANDED_LIMIT_BYTES: u32 = 1024 * 1024 * 1024;
/// The most headers that a record can be allowed.
pub const HEADERS_LIMIT: u32 = 100_000;
/// The most producers that a partition can be told to remember.
pub const PRODUCERS_LIMIT: u32 = 100_000;
/// The most partitions that a topic can have.
pub const PARTITIONS_LIMIT: u32 = 10_000;
/// The smallest window of bytes under [`FlushPolicy::Interval`].
pub const INTERVAL_MIN_BYTES: u64 = 4096;
/// The largest window of bytes under [`FlushPolicy::Interval`].
pub const INTERVAL_LIMIT_BYTES: u64 = 1024 * 1024 * 1024 * 1024;
/// The longest time between two syncs under [`FlushPolicy::Interval`], or two rounds of maintenance.
pub const EVERY_LIMIT: Duration = Duration::from_secs(3600);
/// The shortest age, expiry or time between two rounds.
pub const AGE_MIN: Duration = Duration::from_millis(1);

/// The most maps of sealed segments: the kernel's own limit is about 65,000 for a process.
pub const MAPS_LIMIT: usize = 60_000;
/// The most threads in the background.
pub const THREADS_LIMIT: usize = 1_024;
/// The most topics that a store can be allowed.
pub const TOPICS_LIMIT: usize = 1_000_000;
/// The most committed offsets that a store can be allowed.
pub const GROUP_OFFSETS_LIMIT: usize = 100_000_000;
/// The longest that a leader of a group commit can be told to linger.
pub const LINGER_LIMIT: Duration = Duration::from_millis(10);

/// The longest text that a group can keep with a committed offset.
pub const COMMIT_METADATA_LIMIT_BYTES: usize = 4096;
/// The most ranges above a committed offset that can be settled.
pub const SETTLED_RANGES_LIMIT: usize = 1_024;
/// The longest id of a member of a group.
pub const MEMBER_ID_LIMIT_BYTES: usize = 200;

/// When an append is acknowledged.
///
/// | policy | acknowledged when | lost if the process dies | lost if the machine dies |
/// |---|---|---|---|
/// | `Sync` | on disk | nothing | nothing |
/// | `Interval` | written | nothing | at most that window, always a suffix |
/// | `Os` | written | nothing | what the kernel had not written back, always a suffix |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushPolicy {
    /// Once it is written and synced; one sync serves all who wait.
    #[default]
    Sync,
    /// Once it is written; synced at the latest after `every` or `bytes`. An append waits when
    /// the sync is late, so that the window holds.
    Interval {
        /// The longest that written records stay unsynced.
        every: Duration,
        /// The most written bytes that stay unsynced.
        bytes: u64,
    },
    /// Once it is written; the operating system writes it back when it likes.
    Os,
}

/// What is removed, and when. Whole sealed segments go, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionPolicy {
    /// Remove segments whose newest record was appended longer ago than this.
    pub max_age: Option<Duration>,
    /// Remove the oldest segments while those that stay hold at least this many bytes in use, the
    /// active segment's among them.
    pub max_bytes: Option<u64>,
}

/// How a topic behaves. Every field can be altered later; bytes that are stored stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// When an append is acknowledged.
    pub flush: FlushPolicy,
    /// What is removed, and when.
    pub retention: RetentionPolicy,
    /// A segment is sealed, and a new one begun, before it grows past this. At most two segments
    /// of a partition are unsynced, so this bounds what a policy other than `Sync` leaves to the
    /// kernel before appends wait, and what opening after a crash has to walk.
    pub segment_max_bytes: u64,
    /// A segment with records in it is sealed after this time, so that retention can reach it.
    pub segment_max_age: Option<Duration>,
    /// The largest record: key, value, headers and framing.
    pub record_max_bytes: u32,
    /// The largest batch as stored, header included.
    pub batch_max_bytes: u32,
    /// The most that a compressed batch may expand to.
    pub batch_max_expanded_bytes: u32,
    /// The most headers of a record.
    pub headers_max: u32,
    /// Whether compressed batches are opened and checked when they arrive, not only when read.
    pub strict: bool,
    /// How many producers a partition remembers; past it, the one idle longest is forgotten.
    pub producers_max: u32,
    /// A producer that was idle for this long is forgotten.
    pub producer_expiry: Duration,
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            flush: FlushPolicy::Sync,
            retention: RetentionPolicy::default(),
            segment_max_bytes: 1024 * 1024 * 1024,
            segment_max_age: None,
            record_max_bytes: 1024 * 1024,
            batch_max_bytes: 8 * 1024 * 1024,
            batch_max_expanded_bytes: 64 * 1024 * 1024,
            headers_max: 1_000,
            strict: false,
            producers_max: 10_000,
            producer_expiry: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

impl TopicConfig {
    /// Refuses settings that make no sense, rather than mending them.
    ///
    /// # Errors
    /// `IllegalConfig`, naming the setting and what it may be.
    pub fn check(&self) -> Result<()> {
        let segment = SEGMENT_MIN_BYTES..=SEGMENT_LIMIT_BYTES;
        within("segment_max_bytes", self.segment_max_bytes, segment)?;
        let batch = u64::from(BATCH_MIN_BYTES)..=u64::from(BATCH_LIMIT_BYTES);
        within("batch_max_bytes", u64::from(self.batch_max_bytes), batch)?;
        let record = u64::from(RECORD_MIN_BYTES)..=u64::from(self.batch_max_bytes);
        within("record_max_bytes", u64::from(self.record_max_bytes), record)?;
        let expanded = u64::from(self.batch_max_bytes)..=u64::from(EXPANDED_LIMIT_BYTES);
        within("batch_max_expanded_bytes", u64::from(self.batch_max_expanded_bytes), expanded)?;
        within("headers_max", u64::from(self.headers_max), 0..=u64::from(HEADERS_LIMIT))?;
        within("producers_max", u64::from(self.producers_max), 1..=u64::from(PRODUCERS_LIMIT))?;
        if let FlushPolicy::Interval { every, bytes } = self.flush {
            let legal = millis(AGE_MIN)..=millis(EVERY_LIMIT);
            within("flush.every in milliseconds", millis(every), legal)?;
            within("flush.bytes", bytes, INTERVAL_MIN_BYTES..=INTERVAL_LIMIT_BYTES)?;
        }
        for (setting, age) in [
            ("segment_max_age", self.segment_max_age),
            ("retention.max_age", self.retention.max_age),
            ("producer_expiry", Some(self.producer_expiry)),
        ] {
            if age.is_some_and(|age| age < AGE_MIN) {
                let why = "it must be at least a millisecond".to_owned();
                return Err(Error::IllegalConfig { setting, why });
            }
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn within(setting: &'static str, value: u64, range: std::ops::RangeInclusive<u64>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let why = format!("{value} is not within {}..={}", range.start(), range.end());
    Err(Error::IllegalConfig { setting, why })
}

/// How a store behaves: limits that all its topics share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The most sealed segments that are mapped at once; what readers hold beyond that is not
    /// counted. The kernel allows a process about 65,000 maps (`vm.max_map_count`).
    pub sealed_maps_max: usize,
    /// The most threads that sync, prepare and seal in the background.
    pub background_threads_max: usize,
    /// How often retention, age rolls and idle markers are looked at.
    pub maintenance_every: Duration,
    /// The most topics.
    pub topics_max: usize,
    /// The most committed offsets: groups times partitions.
    pub group_offsets_max: usize,
    /// How long a leader of a group commit waits for as many followers as it had last time, sixteen
    /// at most.
    pub group_commit_linger: Duration,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            sealed_maps_max: 4_096,
            background_threads_max: 16,
            maintenance_every: Duration::from_millis(500),
            topics_max: 10_000,
            group_offsets_max: 1_000_000,
            group_commit_linger: Duration::from_micros(60),
        }
    }
}

impl StoreConfig {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// `IllegalConfig`, naming the setting and what it may be.
    pub fn check(&self) -> Result<()> {
        within("sealed_maps_max", self.sealed_maps_max as u64, 1..=MAPS_LIMIT as u64)?;
        let (threads, limit) = (self.background_threads_max as u64, THREADS_LIMIT as u64);
        within("background_threads_max", threads, 1..=limit)?;
        within("topics_max", self.topics_max as u64, 1..=TOPICS_LIMIT as u64)?;
        let (offsets, limit) = (self.group_offsets_max as u64, GROUP_OFFSETS_LIMIT as u64);
        within("group_offsets_max", offsets, 1..=limit)?;
        let (every, legal) =
            (millis(self.maintenance_every), millis(AGE_MIN)..=millis(EVERY_LIMIT));
        within("maintenance_every in milliseconds", every, legal)?;
        let linger = micros(self.group_commit_linger);
        within("group_commit_linger in microseconds", linger, 0..=micros(LINGER_LIMIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_legal_and_nonsense_is_refused() {
        TopicConfig::default().check().unwrap();
        StoreConfig::default().check().unwrap();
        let bad = [
            TopicConfig { segment_max_bytes: 1, ..TopicConfig::default() },
            TopicConfig { record_max_bytes: 9 << 20, ..TopicConfig::default() },
            TopicConfig { segment_max_age: Some(Duration::ZERO), ..TopicConfig::default() },
            TopicConfig {
                flush: FlushPolicy::Interval { every: Duration::ZERO, bytes: 1 << 20 },
                ..TopicConfig::default()
            },
        ];
        for config in bad {
            assert!(matches!(config.check(), Err(Error::IllegalConfig { .. })), "{config:?}");
        }
    }
}
