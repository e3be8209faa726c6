//! TopicConfigV1: a topic's settings as numbers, for the catalog on disk and for the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FlushPolicy, RetentionPolicy, TopicConfig, millis};
use crate::error::Fault;

/// A topic's settings; durations are milliseconds. Frozen: a change is a `TopicConfigV2`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicConfigV1 {
    /// 0 `Sync`, 1 `Interval`, 2 `Os`; the next two are for `Interval`, else 0.
    flush: u8,
    flush_every: u64,
    flush_bytes: u64,
    retention_max_age: Option<u64>,
    retention_max_bytes: Option<u64>,
    segment_max_bytes: u64,
    segment_max_age: Option<u64>,
    record_max_bytes: u32,
    batch_max_bytes: u32,
    batch_max_expanded_bytes: u32,
    headers_max: u32,
    strict: bool,
    producers_max: u32,
    producer_expiry: u64,
}

impl From<&TopicConfig> for TopicConfigV1 {
    fn from(config: &TopicConfig) -> TopicConfigV1 {
        let (flush, flush_every, flush_bytes) = match config.flush {
            FlushPolicy::Sync => (0, 0, 0),
            FlushPolicy::Interval { every, bytes } => (1, millis(every), bytes),
            FlushPolicy::Os => (2, 0, 0),
        };
        TopicConfigV1 {
            flush,
            flush_every,
            flush_bytes,
            retention_max_age: config.retention.max_age.map(millis),
            retention_max_bytes: config.retention.max_bytes,
            segment_max_bytes: config.segment_max_bytes,
            segment_max_age: config.segment_max_age.map(millis),
            record_max_bytes: config.record_max_bytes,
            batch_max_bytes: config.batch_max_bytes,
            batch_max_expanded_bytes: config.batch_max_expanded_bytes,
            headers_max: config.headers_max,
            strict: config.strict,
            producers_max: config.producers_max,
            producer_expiry: millis(config.producer_expiry),
        }
    }
}

impl TryFrom<TopicConfigV1> for TopicConfig {
    type Error = Fault;

    fn try_from(stored: TopicConfigV1) -> Result<TopicConfig, Fault> {
        let flush = match stored.flush {
            0 => FlushPolicy::Sync,
            1 => FlushPolicy::Interval {
                every: Duration::from_millis(stored.flush_every),
                bytes: stored.flush_bytes,
            },
            2 => FlushPolicy::Os,
            other => return Err(Fault::Field { field: "flush policy", value: i64::from(other) }),
        };
        let config = TopicConfig {
            flush,
            retention: RetentionPolicy {
                max_age: stored.retention_max_age.map(Duration::from_millis),
                max_bytes: stored.retention_max_bytes,
            },
            segment_max_bytes: stored.segment_max_bytes,
            segment_max_age: stored.segment_max_age.map(Duration::from_millis),
            record_max_bytes: stored.record_max_bytes,
            batch_max_bytes: stored.batch_max_bytes,
            batch_max_expanded_bytes: stored.batch_max_expanded_bytes,
            headers_max: stored.headers_max,
            strict: stored.strict,
            producers_max: stored.producers_max,
            producer_expiry: Duration::from_millis(stored.producer_expiry),
        };
        let checked = config.check();
        checked.map_err(|error| Fault::Structure { what: error.to_string() })?;
        Ok(config)
    }
}
