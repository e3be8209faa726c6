//! ProducerConfig: how records are gathered into batches, and how long a batch is tried.

use std::time::Duration;

use log_core::Codec;
use log_core::protocol::produce::Acks;

use super::Producer;
use crate::client::Client;
use crate::config::DURATION_MAX;
use crate::error::{Error, Result};

/// The most batches of a partition that wait for their reply: as many as the server remembers.
pub const IN_FLIGHT_LIMIT: usize = 5;

/// How records are gathered into batches, and how long a batch is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerConfig {
    /// A batch that is gathered is sent when the next record would make it longer than this,
    /// before compression. A record that is longer goes alone.
    pub batch_max_bytes: usize,
    /// How long a batch waits for more records. With zero, it is sent at once if no batch of its
    /// partition waits for its reply; else it gathers until none does.
    pub linger: Duration,
    /// How batches are compressed.
    pub codec: Codec,
    /// The most bytes of records that wait for their outcome; past it, sending waits.
    pub buffer_max_bytes: usize,
    /// The most batches of a partition that wait for their reply; five at most.
    pub in_flight_max: usize,
    /// How long a record may take, from when its batch was begun until its outcome.
    pub delivery_timeout: Duration,
    /// When an append is answered.
    pub acks: Acks,
    /// How often topics are looked at anew, for partitions that were added.
    pub metadata_every: Duration,
}

impl Default for ProducerConfig {
    fn default() -> ProducerConfig {
        ProducerConfig {
            batch_max_bytes: 256 * 1024,
            linger: Duration::ZERO,
            codec: Codec::None,
            buffer_max_bytes: 64 * 1024 * 1024,
            in_flight_max: IN_FLIGHT_LIMIT,
            delivery_timeout: Duration::from_secs(60),
            acks: Acks::Policy,
            metadata_every: Duration::from_secs(60),
        }
    }
}

impl ProducerConfig {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the setting.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.batch_max_bytes == 0 || self.batch_max_bytes > self.buffer_max_bytes {
            "batch_max_bytes must be above zero and fit into buffer_max_bytes"
        } else if !(1..=IN_FLIGHT_LIMIT).contains(&self.in_flight_max) {
            "in_flight_max must be within 1..=5"
        } else if self.delivery_timeout <= self.linger {
            "delivery_timeout must be longer than linger"
        } else if self.metadata_every.is_zero() {
            "metadata_every must be longer than zero"
        } else if self.delivery_timeout.max(self.metadata_every) > DURATION_MAX {
            "delivery_timeout and metadata_every are a year at most"
        } else {
            return Ok(());
        };
        Err(Error::invalid(wrong))
    }
}

/// Makes a [`Producer`].
#[derive(Debug, Clone)]
pub struct ProducerBuilder {
    client: Client,
    config: ProducerConfig,
}

impl ProducerBuilder {
    pub(crate) fn new(client: Client) -> ProducerBuilder {
        ProducerBuilder { client, config: ProducerConfig::default() }
    }

    /// With all these settings.
    #[must_use]
    pub fn with(self, config: ProducerConfig) -> ProducerBuilder {
        ProducerBuilder { config, ..self }
    }

    /// With batches of so many bytes.
    #[must_use]
    pub fn batch_max_bytes(mut self, bytes: usize) -> ProducerBuilder {
        self.config.batch_max_bytes = bytes;
        self
    }

    /// With batches that wait so long for more records.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> ProducerBuilder {
        self.config.linger = linger;
        self
    }

    /// With batches compressed this way.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> ProducerBuilder {
        self.config.codec = codec;
        self
    }

    /// With so many bytes of records that may wait for their outcome.
    #[must_use]
    pub fn buffer_max_bytes(mut self, bytes: usize) -> ProducerBuilder {
        self.config.buffer_max_bytes = bytes;
        self
    }

    /// With so much time for each record.
    #[must_use]
    pub fn delivery_timeout(mut self, timeout: Duration) -> ProducerBuilder {
        self.config.delivery_timeout = timeout;
        self
    }

    /// With appends answered then.
    #[must_use]
    pub fn acks(mut self, acks: Acks) -> ProducerBuilder {
        self.config.acks = acks;
        self
    }

    /// The producer, with a connection of its own.
    ///
    /// # Errors
    /// `InvalidArgument` for settings that make no sense.
    ///
    /// # Panics
    /// If it is called outside of a tokio runtime.
    pub fn build(self) -> Result<Producer> {
        self.config.check()?;
        Ok(Producer::start(&self.client, self.config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_end_are_refused() {
        assert!(ProducerConfig::default().check().is_ok());
        let endless =
            ProducerConfig { delivery_timeout: Duration::MAX, ..ProducerConfig::default() };
        assert!(matches!(endless.check(), Err(Error::InvalidArgument { .. })));
        let rare = ProducerConfig { metadata_every: Duration::MAX, ..ProducerConfig::default() };
        assert!(matches!(rare.check(), Err(Error::InvalidArgument { .. })));
    }
}
