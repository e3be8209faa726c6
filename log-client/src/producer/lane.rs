//! Lane: the batches of one partition on their way, in order. Pure: it is given answers and the
//! time, and says what to send and what has ended.
//!
//! Batches are numbered when they are first sent, and keep number and order over retries. Once an
//! attempt failed, nothing more is sent until all that is under way has been answered; then all
//! that is left is sent again, in order. A number that can't be used any more (a batch before it
//! is missing, or the server has forgotten) is replaced under a new epoch of the producer, which
//! also fences what an old connection may still deliver; never for a batch that may be appended.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use log_core::protocol::produce::Produced;
use log_core::protocol::{ErrorCode, Refusal};
use log_core::record::BatchHeader;
use tokio::time::Instant;

use super::accumulator::Batch;
use super::outcome::BatchResult;
use crate::backoff::{Backoff, random_number};
use crate::error::Error;

/// Without a linger, a record goes at once while fewer batches than this are on their way: with one,
/// every second record of a steady trickle waited for the answer to the one before it; with as many
/// as may be in flight, a flood was sent in crumbs.
const EAGER_BATCHES: usize = 2;

/// Who sends, and the number of the next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) producer_id: u64,
    pub(crate) epoch: u16,
    pub(crate) next_sequence: u32,
}

impl Identity {
    pub(crate) fn random() -> Identity {
        Identity { producer_id: random_number(), epoch: 0, next_sequence: 0 }
    }

    /// Begins to count anew; what was sent before and has not arrived will be refused.
    pub(crate) fn renew(&mut self) {
        match self.epoch.checked_add(1) {
            Some(epoch) => *self = Identity { epoch, next_sequence: 0, ..*self },
            None => *self = Identity::random(),
        }
    }

    /// The batch, marked as the next of this sender.
    pub(crate) fn stamp(&mut self, batch: &mut Bytes, count: u32) {
        // Copied only if an earlier attempt still holds it.
        let mut bytes = Vec::from(std::mem::take(batch));
        if let (Ok(header), Some(front)) = (BatchHeader::decode(&bytes), bytes.first_chunk_mut()) {
            let header = BatchHeader {
                producer_id: self.producer_id,
                producer_epoch: self.epoch,
                base_sequence: self.next_sequence,
                ..header
            };
            header.encode(front);
        }
        *batch = Bytes::from(bytes);
        self.next_sequence = self.next_sequence.wrapping_add(count);
    }
}

/// What an attempt to send a batch ended with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is appended.
    Appended(Produced),
    /// The socket has it, and nothing more was asked for.
    Told,
    /// The server has refused it.
    Refused(Refusal),
    /// There will be no answer. If it was not sent, it is surely not appended by this attempt.
    Lost { sent: bool, why: Error },
}

/// A batch that has ended, and how.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) batch: Batch,
    pub(crate) result: BatchResult,
}

/// What to send.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) ticket: u64,
    pub(crate) bytes: Bytes,
}

/// The batches of one partition.
#[derive(Debug)]
pub(crate) struct Lane {
    queue: VecDeque<Queued>,
    /// None if nothing is numbered, because nothing is answered.
    identity: Option<Identity>,
    in_flight_max: usize,
    delivery_timeout: Duration,
    backoff: Backoff,
    next_ticket: u64,
    /// Attempts without an answer yet, those of batches that have ended among them.
    unanswered: usize,
    /// Whether all must be answered before something is sent again, …
    recovering: bool,
    /// … and when.
    resume_at: Option<Instant>,
    /// Whether the topic must be looked at anew first.
    stale: bool,
    /// Why the last attempt failed.
    last_failure: Option<Error>,
}

#[derive(Debug)]
struct Queued {
    batch: Batch,
    /// Whether it has its number.
    numbered: bool,
    /// The attempt under way.
    ticket: Option<u64>,
    /// Whether an attempt without an answer may have appended it.
    maybe_appended: bool,
}

impl Lane {
    pub(crate) fn new(
        identity: Option<Identity>,
        in_flight_max: usize,
        delivery_timeout: Duration,
        backoff: Backoff,
    ) -> Lane {
        Lane {
            queue: VecDeque::new(),
            identity,
            in_flight_max,
            delivery_timeout,
            backoff,
            next_ticket: 0,
            unanswered: 0,
            recovering: false,
            resume_at: None,
            stale: false,
            last_failure: None,
        }
    }

    /// Adds a batch at the end.
    pub(crate) fn push(&mut self, batch: Batch) {
        self.queue.push_back(Queued {
            batch,
            numbered: false,
            ticket: None,
            maybe_appended: false,
        });
    }

    /// Whether no batch is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether so few batches are on their way that a record need not wait for others.
    pub(crate) fn is_calm(&self) -> bool {
        self.queue.len() < EAGER_BATCHES
    }

    /// Whether the topic must be looked at anew.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// The topic was looked at anew.
    pub(crate) fn renewed(&mut self) {
        self.stale = false;
    }

    /// The batches on their way.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.queue.iter().map(|queued| &queued.batch)
    }

    /// The next batch to send, if one may be sent now.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Outbound> {
        if self.stale || self.resume_at.is_some_and(|at| now < at) {
            return None;
        }
        if self.recovering && self.unanswered == 0 {
            (self.recovering, self.resume_at) = (false, None);
        }
        if self.recovering || self.unanswered >= self.in_flight_max {
            return None;
        }
        let queued = self.queue.iter_mut().find(|queued| queued.ticket.is_none())?;
        if let (Some(identity), false) = (&mut self.identity, queued.numbered) {
            identity.stamp(&mut queued.batch.bytes, queued.batch.count);
            queued.numbered = true;
        }
        self.next_ticket += 1;
        self.unanswered += 1;
        queued.ticket = Some(self.next_ticket);
        Some(Outbound { ticket: self.next_ticket, bytes: queued.batch.bytes.clone() })
    }

    /// An attempt has ended. Returns the batch, if it has ended with it.
    pub(crate) fn answered(
        &mut self,
        ticket: u64,
        answer: Answer,
        now: Instant,
    ) -> Option<Settled> {
        self.unanswered -= 1;
        let at = self.position(ticket)?;
        self.queue[at].ticket = None;
        match answer {
            Answer::Appended(produced) => {
                self.backoff.reset();
                self.last_failure = None;
                self.end(at, Ok(Some(produced)))
            }
            Answer::Told => {
                self.backoff.reset();
                self.last_failure = None;
                self.end(at, Ok(None))
            }
            Answer::Lost { sent, why } => {
                self.queue[at].maybe_appended |= sent;
                self.last_failure = Some(why);
                self.recover_later(now);
                None
            }
            Answer::Refused(refusal) => self.refused(at, refusal, now),
        }
    }

    fn refused(&mut self, at: usize, refusal: Refusal, now: Instant) -> Option<Settled> {
        self.recovering = true;
        let code = refusal.error_code();
        let numbered = self.identity.is_some();
        match code {
            Some(code) if code.is_retriable() => {
                self.last_failure = Some(refusal.into());
                self.recover_later(now);
                None
            }
            Some(ErrorCode::StaleTopic | ErrorCode::UnknownTopic) => {
                self.last_failure = Some(refusal.into());
                self.stale = true;
                self.recover_later(now);
                None
            }
            // A batch before it is not there either: they are sent again together.
            Some(ErrorCode::SequenceGap | ErrorCode::ProducerUnknown) if numbered && at > 0 => None,
            // The oldest one comes after one that was given up, or that the server has lost. What an
            // old connection carries may still arrive, so one that was sent on it stays unknown.
            Some(
                ErrorCode::SequenceGap | ErrorCode::ProducerUnknown | ErrorCode::ProducerFenced,
            ) if numbered && !self.queue[at].maybe_appended => {
                self.renumber(now);
                None
            }
            Some(ErrorCode::OutcomeUnknown) => {
                self.end(at, Err(Error::unknown(refusal.to_string())))
            }
            _ => {
                let maybe = self.queue[at].maybe_appended;
                let error = Error::from(refusal);
                self.end(at, Err(if maybe { Error::unknown(error.to_string()) } else { error }))
            }
        }
    }

    /// What is left gets new numbers when it is sent next.
    fn renumber(&mut self, now: Instant) {
        if let Some(identity) = &mut self.identity {
            identity.renew();
        }
        self.queue.iter_mut().for_each(|queued| queued.numbered = false);
        self.recover_later(now);
    }

    fn recover_later(&mut self, now: Instant) {
        self.recovering = true;
        if self.resume_at.is_none() {
            self.resume_at = Some(now + self.backoff.next_wait());
        }
    }

    /// Ends what has taken too long.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Settled> {
        let mut ended = Vec::new();
        // Batches are begun in order, so the oldest is the first to expire.
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            let why = self.last_failure.clone();
            let error = why.unwrap_or_else(|| Error::TimedOut { what: "the delivery".to_owned() });
            ended.extend(self.give_up(0, error));
        }
        ended
    }

    /// Ends everything: as `error` says if it is surely not appended.
    pub(crate) fn abort(&mut self, error: &Error) -> Vec<Settled> {
        let ended = (0..self.queue.len()).filter_map(|_| self.give_up(0, error.clone()));
        ended.collect()
    }

    fn give_up(&mut self, at: usize, error: Error) -> Option<Settled> {
        let queued = self.queue.get(at)?;
        let maybe = queued.maybe_appended || queued.ticket.is_some();
        self.end(at, Err(if maybe { Error::unknown(error.to_string()) } else { error }))
    }

    /// When the oldest batch has taken too long.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.queue.front().map(|queued| queued.batch.began + self.delivery_timeout)
    }

    /// When something is to be done, if no answer comes before.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        [self.deadline(), self.resume_at].into_iter().flatten().min()
    }

    fn position(&self, ticket: u64) -> Option<usize> {
        self.queue.iter().position(|queued| queued.ticket == Some(ticket))
    }

    fn end(&mut self, at: usize, result: BatchResult) -> Option<Settled> {
        let queued = self.queue.remove(at)?;
        Some(Settled { batch: queued.batch, result })
    }
}

#[cfg(test)]
mod tests;
