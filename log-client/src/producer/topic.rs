//! Topic: what a producer knows of a topic, and which partition a record goes to.

use std::num::NonZeroU32;

use log_core::partitioner::partition_for;
use log_core::record::{BatchLimits, check_records};
use log_core::{Record, Timestamp, TopicConfig};
use tokio::time::Instant;

use super::accumulator::Accumulator;
use super::config::ProducerConfig;
use super::lane::Lane;
use crate::admin::TopicDescription;
use crate::backoff::random_number;
use crate::error::{Error, Result};

/// A topic as a producer sees it.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) id: u128,
    /// Whether it was found to be gone; it is looked for anew before more is sent.
    pub(crate) gone: bool,
    partitions: NonZeroU32,
    limits: BatchLimits,
    /// Those that can be used, for records that may go anywhere.
    usable: Vec<u32>,
    /// Where such records go until the batch is whole: an index into `usable`.
    sticky: usize,
    /// By partition; made when something is sent to it.
    pub(crate) lines: Vec<Option<Line>>,
}

/// What is gathered for a partition, and what is on its way there.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) gathering: Accumulator,
    pub(crate) lane: Lane,
    /// Whether it waits for the server's limit of produces.
    pub(crate) throttled: bool,
}

impl Line {
    /// When something is to be done, if no answer comes before.
    pub(crate) fn next_wake(&self, config: &ProducerConfig, now: Instant) -> Option<Instant> {
        let linger = config.linger;
        let gathered = self.gathering.due(linger).filter(|_| !linger.is_zero());
        let expired = self.gathering.due(config.delivery_timeout);
        let wakes = [gathered, expired, self.lane.next_wake()].into_iter().flatten();
        // What is past waits for an answer or a connection, not for time.
        wakes.filter(|wake| *wake > now).min()
    }
}

impl Topic {
    /// # Errors
    /// `Protocol` if it has no partitions.
    pub(crate) fn new(told: &TopicDescription) -> Result<Topic> {
        let mut topic = Topic {
            name: told.name.clone(),
            id: told.id,
            gone: false,
            partitions: NonZeroU32::MIN,
            limits: limits(&told.config),
            usable: Vec::new(),
            // Producers begin at different places.
            sticky: usize::try_from(random_number() >> 40).unwrap_or(0),
            lines: Vec::new(),
        };
        topic.renew(told)?;
        Ok(topic)
    }

    /// Takes what was found when it was looked at anew.
    ///
    /// # Errors
    /// `Protocol` if it has no partitions.
    pub(crate) fn renew(&mut self, told: &TopicDescription) -> Result<()> {
        let count = u32::try_from(told.partitions.len()).ok().and_then(NonZeroU32::new);
        let illegal = |value| log_core::Fault::Field { field: "partitions", value };
        self.partitions = count.ok_or_else(|| Error::Protocol(illegal(0)))?;
        (self.id, self.gone, self.limits) = (told.id, false, limits(&told.config));
        let all = 0..self.partitions.get();
        let usable = all.clone().zip(&told.partitions).filter(|(_, ends)| ends.is_ok());
        self.usable = usable.map(|(partition, _)| partition).collect();
        if self.usable.is_empty() {
            self.usable = all.collect();
        }
        self.lines.resize_with(self.lines.len().max(told.partitions.len()), || None);
        self.lines.iter_mut().flatten().for_each(|line| line.lane.renewed());
        Ok(())
    }

    /// Whether a record of so much room may be longer than the topic takes, or longer in a batch
    /// than alone.
    pub(crate) fn is_long(&self, room: usize) -> bool {
        room > bytes(self.limits.record_max_bytes)
    }

    /// The most bytes of a batch.
    pub(crate) fn batch_max_bytes(&self) -> usize {
        bytes(self.limits.batch_max_bytes)
    }

    /// Refuses a record that the topic does not take: it would take its whole batch with it.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the limit.
    pub(crate) fn check(&self, record: &Record<'_>, room: usize) -> Result<()> {
        if !self.is_long(room) && record.headers.len() <= bytes(self.limits.headers_max) {
            return Ok(());
        }
        // How long the batch is, compression may still change.
        let limits = BatchLimits { batch_max_bytes: u32::MAX, ..self.limits };
        let checked = check_records(std::slice::from_ref(record), Timestamp::MIN, &limits);
        let illegal = |error| Error::invalid(format!("topic {}: {error}", self.name));
        checked.map(drop).map_err(illegal)
    }

    /// Refuses a batch that the topic does not take.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the limit.
    pub(crate) fn check_batch(&self, length: usize) -> Result<()> {
        let limit = self.batch_max_bytes();
        if length <= limit {
            return Ok(());
        }
        let name = &self.name;
        Err(Error::invalid(format!("topic {name}: a batch of {length} bytes, more than {limit}")))
    }

    /// The partition for a record: the one asked for, its key's, or the one whose turn it is.
    ///
    /// # Errors
    /// `InvalidArgument` for a partition that there is not.
    pub(crate) fn choose(&self, asked: Option<u32>, key: Option<&[u8]>) -> Result<u32> {
        match (asked, key) {
            (Some(asked), _) if asked < self.partitions.get() => Ok(asked),
            (Some(asked), _) => {
                let (name, count) = (&self.name, self.partitions);
                let what = format!("topic {name} has {count} partitions, and none is {asked}");
                Err(Error::invalid(what))
            }
            (None, Some(key)) => Ok(partition_for(key, self.partitions)),
            (None, None) => Ok(self.usable[self.sticky % self.usable.len()]),
        }
    }

    /// A batch of this partition is whole: what may go anywhere goes to another one.
    pub(crate) fn turn(&mut self, partition: u32) {
        if self.usable[self.sticky % self.usable.len()] == partition {
            self.sticky = self.sticky.wrapping_add(1);
        }
    }
}

fn limits(config: &TopicConfig) -> BatchLimits {
    BatchLimits {
        record_max_bytes: config.record_max_bytes,
        batch_max_bytes: config.batch_max_bytes,
        expanded_max: config.batch_max_expanded_bytes,
        headers_max: config.headers_max,
        strict: config.strict,
    }
}

fn bytes(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use log_core::protocol::topics::PartitionEndsV1;
    use log_core::protocol::{ErrorCode, Refusal};

    use super::*;

    fn told(usable: &[bool]) -> TopicDescription {
        let ends = PartitionEndsV1 {
            log_start: 0,
            durable_end: 0,
            readable_end: 0,
            end: 0,
            bytes: 0,
            segments: 1,
        };
        let refused = || Refusal::new(ErrorCode::EndUnproven, "damaged");
        TopicDescription {
            name: "orders".to_owned(),
            id: 1,
            config: TopicConfig::default(),
            partitions: usable.iter().map(|ok| ok.then_some(ends).ok_or_else(refused)).collect(),
        }
    }

    #[test]
    fn keys_choose_and_the_rest_goes_round_over_what_can_be_used() {
        let mut topic = Topic::new(&told(&[true, false, true])).unwrap();
        let three = NonZeroU32::new(3).unwrap();
        assert_eq!(topic.choose(None, Some(b"k")).unwrap(), partition_for(b"k", three));
        assert_eq!(topic.choose(Some(1), Some(b"k")).unwrap(), 1);
        assert!(matches!(topic.choose(Some(3), None), Err(Error::InvalidArgument { .. })));
        let first = topic.choose(None, None).unwrap();
        topic.turn(first + 1);
        assert_eq!(topic.choose(None, None).unwrap(), first, "another batch turns nothing");
        topic.turn(first);
        let second = topic.choose(None, None).unwrap();
        assert_eq!(first + second, 2);
        topic.turn(second);
        assert_eq!(topic.choose(None, None).unwrap(), first);
    }

    #[test]
    fn partitions_that_were_added_are_used_and_a_topic_without_any_is_refused() {
        let mut topic = Topic::new(&told(&[true])).unwrap();
        assert!(topic.choose(Some(1), None).is_err());
        topic.renew(&told(&[true, true])).unwrap();
        assert_eq!(topic.choose(Some(1), None).unwrap(), 1);
        assert!(matches!(Topic::new(&told(&[])), Err(Error::Protocol(_))));
    }
}
