//! Settings: a topic's configuration as options of a verb, and as it is shown.

use std::time::Duration;

use clap::Args;
use log_core::config::{FlushPolicy, TopicConfig};
use serde::Serialize;

use crate::units::{
    OrNone, exact_bytes, exact_duration, parse_bytes, parse_bytes_or_none, parse_bytes_u32,
    parse_duration, parse_duration_or_none,
};

/// What of a topic's configuration is to be otherwise.
#[derive(Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct Settings {
    /// When an append is acknowledged: sync (on disk), os (written), or interval:EVERY:BYTES
    /// (written, and synced after at most that, as in interval:200ms:1MiB)
    #[arg(long, value_name = "POLICY", value_parser = parse_flush)]
    flush: Option<FlushPolicy>,

    /// Remove sealed segments when their newest record is older than this, as in 7d; or none
    #[arg(long, value_name = "AGE", value_parser = parse_duration_or_none)]
    retention_age: Option<OrNone<Duration>>,

    /// Remove the oldest sealed segments while this much stays, per partition, as in 1GiB; or none
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes_or_none)]
    retention_bytes: Option<OrNone<u64>>,

    /// Begin a new segment before one grows past this
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    segment_bytes: Option<u64>,

    /// Begin a new segment when one with records in it is this old, as in 1d; or none
    #[arg(long, value_name = "AGE", value_parser = parse_duration_or_none)]
    segment_age: Option<OrNone<Duration>>,

    /// The largest record: key, value, headers and framing
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes_u32)]
    record_max_bytes: Option<u32>,

    /// The largest batch as stored
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes_u32)]
    batch_max_bytes: Option<u32>,

    /// The most that a compressed batch may expand to
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes_u32)]
    batch_max_expanded_bytes: Option<u32>,

    /// The most headers of a record
    #[arg(long, value_name = "COUNT")]
    headers_max: Option<u32>,

    /// Whether compressed batches are opened and checked when they arrive
    #[arg(long, value_name = "BOOL")]
    strict: Option<bool>,

    /// How many producers a partition remembers
    #[arg(long, value_name = "COUNT")]
    producers_max: Option<u32>,

    /// Forget a producer that was idle for this long
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    producer_expiry: Option<Duration>,
}

impl Settings {
    /// `config`, with what was asked for in its place.
    pub(crate) fn apply(&self, mut config: TopicConfig) -> TopicConfig {
        set(&mut config.flush, self.flush);
        set(&mut config.retention.max_age, self.retention_age.map(|age| age.0));
        set(&mut config.retention.max_bytes, self.retention_bytes.map(|bytes| bytes.0));
        set(&mut config.segment_max_bytes, self.segment_bytes);
        set(&mut config.segment_max_age, self.segment_age.map(|age| age.0));
        set(&mut config.record_max_bytes, self.record_max_bytes);
        set(&mut config.batch_max_bytes, self.batch_max_bytes);
        set(&mut config.batch_max_expanded_bytes, self.batch_max_expanded_bytes);
        set(&mut config.headers_max, self.headers_max);
        set(&mut config.strict, self.strict);
        set(&mut config.producers_max, self.producers_max);
        set(&mut config.producer_expiry, self.producer_expiry);
        config
    }
}

fn set<T>(setting: &mut T, wanted: Option<T>) {
    if let Some(wanted) = wanted {
        *setting = wanted;
    }
}

fn parse_flush(text: &str) -> Result<FlushPolicy, String> {
    match text.split(':').collect::<Vec<_>>()[..] {
        ["sync"] => Ok(FlushPolicy::Sync),
        ["os"] => Ok(FlushPolicy::Os),
        ["interval", every, bytes] => {
            Ok(FlushPolicy::Interval { every: parse_duration(every)?, bytes: parse_bytes(bytes)? })
        }
        _ => Err("write sync, os or interval:EVERY:BYTES, as in interval:200ms:1MiB".to_owned()),
    }
}

pub(crate) fn show_flush(flush: FlushPolicy) -> String {
    match flush {
        FlushPolicy::Sync => "sync".to_owned(),
        FlushPolicy::Os => "os".to_owned(),
        FlushPolicy::Interval { every, bytes } => {
            format!("interval:{}:{}", exact_duration(every), exact_bytes(bytes))
        }
    }
}

/// A topic's configuration as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct ShownConfig {
    flush: String,
    retention_max_age_ms: Option<u64>,
    retention_max_bytes: Option<u64>,
    segment_max_bytes: u64,
    segment_max_age_ms: Option<u64>,
    record_max_bytes: u32,
    batch_max_bytes: u32,
    batch_max_expanded_bytes: u32,
    headers_max: u32,
    strict: bool,
    producers_max: u32,
    producer_expiry_ms: u64,
}

impl From<&TopicConfig> for ShownConfig {
    fn from(config: &TopicConfig) -> ShownConfig {
        ShownConfig {
            flush: show_flush(config.flush),
            retention_max_age_ms: config.retention.max_age.map(millis),
            retention_max_bytes: config.retention.max_bytes,
            segment_max_bytes: config.segment_max_bytes,
            segment_max_age_ms: config.segment_max_age.map(millis),
            record_max_bytes: config.record_max_bytes,
            batch_max_bytes: config.batch_max_bytes,
            batch_max_expanded_bytes: config.batch_max_expanded_bytes,
            headers_max: config.headers_max,
            strict: config.strict,
            producers_max: config.producers_max,
            producer_expiry_ms: millis(config.producer_expiry),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A topic's configuration in words that `topic alter` takes: option and value.
pub(crate) fn show_config(config: &TopicConfig) -> Vec<(&'static str, String)> {
    let age = |age: Option<Duration>| age.map_or("none".to_owned(), exact_duration);
    let bytes = |bytes: Option<u64>| bytes.map_or("none".to_owned(), exact_bytes);
    vec![
        ("flush", show_flush(config.flush)),
        ("retention-age", age(config.retention.max_age)),
        ("retention-bytes", bytes(config.retention.max_bytes)),
        ("segment-bytes", exact_bytes(config.segment_max_bytes)),
        ("segment-age", age(config.segment_max_age)),
        ("record-max-bytes", exact_bytes(config.record_max_bytes.into())),
        ("batch-max-bytes", exact_bytes(config.batch_max_bytes.into())),
        ("batch-max-expanded-bytes", exact_bytes(config.batch_max_expanded_bytes.into())),
        ("headers-max", config.headers_max.to_string()),
        ("strict", config.strict.to_string()),
        ("producers-max", config.producers_max.to_string()),
        ("producer-expiry", exact_duration(config.producer_expiry)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_shown_as_it_was_typed() {
        for text in ["sync", "os", "interval:200ms:1MiB"] {
            assert_eq!(show_flush(parse_flush(text).unwrap()), text);
        }
        for text in ["", "fsync", "interval", "interval:5:1MiB", "interval:5s:1MiB:2", "sync:"] {
            assert!(parse_flush(text).is_err(), "{text}");
        }
    }
}
