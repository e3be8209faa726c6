//! Every setting and every limit, with its name, unit and default; checked once.

use std::time::Duration;

use crate::error::{Error, Result};

/// The smallest segment: room for its header and one small batch.
pub const SEGMENT_MIN_BYTES: u64 = 64 * 1024;
/// The largest segment: positions in it are 32 bits wide.
pub const SEGMENT_LIMIT_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// The largest batch that can be configured.
pub const BATCH_LIMIT_BYTES: u32 = 256 * 1024 * 1024;
/// The most partitions that a topic can have.
pub const PARTITIONS_LIMIT: u32 = 10_000;

/// The longest text that a group can keep with a committed offset.
pub const COMMIT_METADATA_LIMIT_BYTES: usize = 4096;

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
    /// Remove the oldest segments while those that stay hold at least this many bytes.
    pub max_bytes: Option<u64>,
}

/// How a topic behaves. Every field but none of the stored bytes can be altered later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// When an append is acknowledged.
    pub flush: FlushPolicy,
    /// What is removed, and when.
    pub retention: RetentionPolicy,
    /// A segment is closed, and a new one begun, before it grows past this. At most two segments
    /// of a partition are unsynced, so this bounds what a policy other than `Sync` leaves to the
    /// kernel before appends wait, and what opening after a crash has to walk.
    pub segment_max_bytes: u64,
    /// A segment with records in it is closed after this time, so that retention can reach it.
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
        let batch = 4096..=u64::from(BATCH_LIMIT_BYTES);
        within("batch_max_bytes", u64::from(self.batch_max_bytes), batch)?;
        let record = 256..=u64::from(self.batch_max_bytes);
        within("record_max_bytes", u64::from(self.record_max_bytes), record)?;
        let expanded = u64::from(self.batch_max_bytes)..=1 << 30;
        within("batch_max_expanded_bytes", u64::from(self.batch_max_expanded_bytes), expanded)?;
        within("headers_max", u64::from(self.headers_max), 0..=100_000)?;
        within("producers_max", u64::from(self.producers_max), 1..=100_000)?;
        if let FlushPolicy::Interval { every, bytes } = self.flush {
            let every = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
            within("flush.every in milliseconds", every, 1..=3_600_000)?;
            within("flush.bytes", bytes, 4096..=1 << 40)?;
        }
        for (setting, age) in [
            ("segment_max_age", self.segment_max_age),
            ("retention.max_age", self.retention.max_age),
            ("producer_expiry", Some(self.producer_expiry)),
        ] {
            if age.is_some_and(|age| age < Duration::from_millis(1)) {
                let why = "it must be at least a millisecond".to_owned();
                return Err(Error::IllegalConfig { setting, why });
            }
        }
        Ok(())
    }
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
    /// The most sealed segments that are mapped at once; the kernel allows about 65,000 maps.
    pub sealed_maps_max: usize,
    /// The most threads that sync, prepare and seal in the background.
    pub background_threads_max: usize,
    /// How often retention, age rolls and idle markers are looked at.
    pub maintenance_every: Duration,
    /// The most topics.
    pub topics_max: usize,
    /// The most committed offsets: groups times partitions.
    pub group_offsets_max: usize,
    /// How long a leader of a group commit waits for as many followers as it had last time.
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
        within("sealed_maps_max", self.sealed_maps_max as u64, 1..=60_000)?;
        within("background_threads_max", self.background_threads_max as u64, 1..=1_024)?;
        within("topics_max", self.topics_max as u64, 1..=1_000_000)?;
        within("group_offsets_max", self.group_offsets_max as u64, 1..=100_000_000)?;
        let every = u64::try_from(self.maintenance_every.as_millis()).unwrap_or(u64::MAX);
        within("maintenance_every in milliseconds", every, 1..=3_600_000)?;
        let linger = u64::try_from(self.group_commit_linger.as_micros()).unwrap_or(u64::MAX);
        within("group_commit_linger in microseconds", linger, 0..=10_000)
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
