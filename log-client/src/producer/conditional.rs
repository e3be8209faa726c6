//! Conditional: appends that happen only if the partition ends where it is expected to.
//!
//! One at a time for each partition, numbered like all others, so that a repeated attempt is known
//! as such. They are apart from what is gathered: neither waits for the other.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use log_core::protocol::ErrorCode;
use log_core::protocol::produce::{Acks, ProduceHead, Produced};
use log_core::{Offset, Record};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::accumulator::encode;
use super::lane::Identity;
use super::outcome::Appended;
use super::sender::{PRODUCE, Sender};
use super::tasks::describe;
use crate::backoff::Backoff;
use crate::error::{Error, Result};

type Chains = HashMap<(String, u32), Arc<tokio::sync::Mutex<Chain>>>;

/// Who sends conditional appends, for each partition.
#[derive(Debug, Default)]
pub(crate) struct Conditional {
    chains: Mutex<Chains>,
}

#[derive(Debug)]
struct Chain {
    identity: Identity,
    topic_id: Option<u128>,
    /// Whether an attempt was begun whose end is not known.
    open: bool,
}

impl Conditional {
    /// Appends the records as one batch if the partition ends at `expected_end`.
    ///
    /// # Errors
    /// `Refused` with `EndConflict`; `OutcomeUnknown`; or why it was surely not appended.
    pub(crate) async fn append_at(
        &self,
        sender: &Sender,
        (topic, partition): (&str, u32),
        records: &[Record<'_>],
        expected_end: Offset,
    ) -> Result<Appended> {
        if sender.config.acks == Acks::None {
            return Err(Error::invalid("a conditional append needs an answer: acks are none"));
        }
        let batch = encode(records, sender.config.codec, sender.now())?;
        let count = u32::try_from(records.len()).map_err(|_| Error::invalid("too many records"))?;
        let deadline = Instant::now() + sender.config.delivery_timeout;
        let key = (topic.to_owned(), partition);
        let chain = Arc::clone(self.chains.lock().entry(key).or_insert_with(|| {
            let chain = Chain { identity: Identity::random(), topic_id: None, open: false };
            Arc::new(tokio::sync::Mutex::new(chain))
        }));
        let late = || Error::TimedOut { what: "the append before this one".to_owned() };
        let mut chain = timeout_at(deadline, chain.lock()).await.map_err(|_| late())?;
        if chain.open {
            chain.identity.renew();
        }
        chain.open = true;
        let attempt = Attempt { sender, topic, partition, expected_end, count, deadline };
        let appended = attempt.run(&mut chain, batch).await;
        chain.open = matches!(appended, Err(Error::OutcomeUnknown { .. }));
        appended
    }
}

struct Attempt<'a> {
    sender: &'a Sender,
    topic: &'a str,
    partition: u32,
    expected_end: Offset,
    count: u32,
    deadline: Instant,
}

impl Attempt<'_> {
    async fn run(&self, chain: &mut Chain, mut batch: Bytes) -> Result<Appended> {
        let mut waits = Backoff::new(self.sender.link.config().backoff);
        let mut maybe_appended = false;
        let mut number = chain.identity;
        number.stamp(&mut batch, self.count);
        loop {
            let (sent, error) = match self.once(chain, &batch).await {
                Ok(produced) => {
                    chain.identity = number;
                    return Ok(self.appended(produced));
                }
                Err(failed) => failed,
            };
            maybe_appended |= sent;
            let wait = waits.next_wait();
            let in_time = Instant::now() + wait < self.deadline;
            if error.code() == Some(ErrorCode::StaleTopic) {
                // What is expected is of the topic that is gone: the next append looks for the new.
                chain.topic_id = None;
            }
            match error.code() {
                // It is the oldest one, so that none before it is missing: it was forgotten.
                Some(ErrorCode::ProducerUnknown | ErrorCode::SequenceGap)
                    if in_time && !maybe_appended =>
                {
                    chain.identity.renew();
                    number = chain.identity;
                    number.stamp(&mut batch, self.count);
                }
                _ if error.is_retriable() && in_time => {}
                // The server knows its own batches before it compares ends.
                Some(ErrorCode::EndConflict) => return Err(error),
                Some(ErrorCode::OutcomeUnknown) => return Err(Error::unknown(error.to_string())),
                _ if maybe_appended => return Err(Error::unknown(error.to_string())),
                _ => return Err(error),
            }
            sleep(wait).await;
        }
    }

    /// One attempt; a failure with whether it may have been carried out.
    async fn once(
        &self,
        chain: &mut Chain,
        batch: &Bytes,
    ) -> std::result::Result<Produced, (bool, Error)> {
        let unsent = |error| (false, error);
        self.sender.check_open().map_err(unsent)?;
        let topic_id = match chain.topic_id {
            Some(topic_id) => topic_id,
            None => describe(self.sender, self.topic).await.map_err(unsent)?.id,
        };
        chain.topic_id = Some(topic_id);
        let connection = self.sender.link.connection(self.deadline).await.map_err(unsent)?;
        let head = ProduceHead {
            topic_id,
            partition: self.partition,
            acks: self.sender.config.acks,
            expected_end: Some(self.expected_end),
        };
        let body = Bytes::from([head.encode().as_slice(), batch].concat());
        match connection.ask(PRODUCE, &body, self.deadline).await {
            Ok(reply) => Produced::decode(&reply).map_err(|fault| (true, fault.into())),
            Err(failure) => {
                let refused = matches!(failure.error, Error::Refused(_));
                Err((failure.sent && !refused, failure.error))
            }
        }
    }

    fn appended(&self, produced: Produced) -> Appended {
        Appended {
            partition: self.partition,
            offset: Some(produced.base_offset),
            append_time: Some(produced.append_time),
            duplicate: produced.duplicate,
        }
    }
}
