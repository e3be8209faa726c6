//! Link: a connection that comes back. It is made when it is needed, and anew when it was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use log_core::codec;
use log_core::protocol::{self, Call, RequestKind};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::backoff::Backoff;
use crate::config::ClientConfig;
use crate::connection::{Connection, Failure};
use crate::error::{Error, Result};

/// When a request may be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Whenever there was no answer: it only reads.
    Always,
    /// Whenever there was no answer: twice does what once does. What was sent may be done.
    Harmless,
    /// Only if the server surely has not acted on it.
    IfUnsent,
}

impl Repeat {
    /// How it is for this kind of request.
    pub(crate) fn of(kind: RequestKind) -> Repeat {
        match kind {
            RequestKind::Hello
            | RequestKind::Metrics
            | RequestKind::Fetch
            | RequestKind::ResolveOffset
            | RequestKind::ListTopics
            | RequestKind::DescribeTopic
            | RequestKind::DescribeGroup
            | RequestKind::ListGroups
            | RequestKind::FetchOffsets => Repeat::Always,
            RequestKind::TrimPartition
            | RequestKind::JoinGroup
            | RequestKind::Heartbeat
            | RequestKind::LeaveGroup
            | RequestKind::ReleasePartition
            | RequestKind::CommitOffsets => Repeat::Harmless,
            _ => Repeat::IfUnsent,
        }
    }
}

/// A connection that comes back.
#[derive(Debug)]
pub(crate) struct Link {
    config: Arc<ClientConfig>,
    current: Mutex<Option<Connection>>,
    /// Held by the one who connects, with the waits between attempts.
    dial: tokio::sync::Mutex<Backoff>,
    /// Of the server last connected to; 0 before the first.
    boot_id: AtomicU64,
}

impl Link {
    pub(crate) fn new(config: Arc<ClientConfig>) -> Link {
        let dial = tokio::sync::Mutex::new(Backoff::new(config.backoff));
        Link { config, current: Mutex::new(None), dial, boot_id: AtomicU64::new(0) }
    }

    pub(crate) fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// When a call that begins now must have ended.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.config.request_timeout
    }

    /// Which run of the server was connected to last. Another one than before means that it was
    /// restarted: what it kept in memory alone is gone.
    pub(crate) fn boot_id(&self) -> Option<u64> {
        let boot_id = self.boot_id.load(Ordering::Acquire);
        (boot_id != 0).then_some(boot_id)
    }

    /// The connection, if there is one.
    pub(crate) fn current(&self) -> Option<Connection> {
        self.current.lock().as_ref().filter(|current| !current.is_over()).cloned()
    }

    /// Closes the connection; the next call makes another one.
    pub(crate) fn close(&self) {
        let closed = self.current.lock().take();
        drop(closed);
    }

    /// The connection, made if there is none: again and again until the deadline.
    ///
    /// # Errors
    /// `Unreachable`, `TimedOut`; `Refused` or `Protocol` if it makes no sense to try on.
    pub(crate) async fn connection(&self, deadline: Instant) -> Result<Connection> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let late = || Error::TimedOut { what: format!("connecting to {}", self.config.address) };
        let dial = timeout_at(deadline, self.dial.lock());
        let mut backoff = dial.await.map_err(|_| late())?;
        loop {
            // Another one may have connected while this one waited for its turn.
            if let Some(current) = self.current() {
                return Ok(current);
            }
            let attempt = deadline.min(Instant::now() + self.config.connect_timeout);
            let error = match Connection::open(&self.config, attempt).await {
                Ok(connection) => {
                    backoff.reset();
                    self.boot_id.store(connection.hello().boot_id, Ordering::Release);
                    let old = self.current.lock().replace(connection.clone());
                    drop(old);
                    return Ok(connection);
                }
                Err(error) => error,
            };
            let wait = backoff.next_wait();
            let over = Instant::now() + wait >= deadline;
            if over || !(error.is_retriable() || matches!(error, Error::Closed { .. })) {
                return Err(error);
            }
            sleep(wait).await;
        }
    }

    /// A control call, made again as its kind allows.
    ///
    /// # Errors
    /// The refusal; `OutcomeUnknown`; or why there was no answer until the deadline.
    pub(crate) async fn call<C: Call>(&self, call: &C, deadline: Instant) -> Result<C::Reply> {
        self.call_as(call, Repeat::of(C::KIND), deadline).await
    }

    /// A control call, made again as `repeat` allows.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub(crate) async fn call_as<C: Call>(
        &self,
        call: &C,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<C::Reply> {
        let body = Bytes::from(codec::encode(call));
        let reply = self.ask((C::KIND.number(), C::VERSION), &body, repeat, deadline).await?;
        protocol::decode_body(&reply).map_err(|fault| repeat.failed(true, fault.into()))
    }

    /// A request, given as its body, made again as `repeat` allows; returns the reply's body.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub(crate) async fn ask(
        &self,
        kind: (u16, u16),
        body: &Bytes,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<Bytes> {
        let mut waits = Backoff::new(self.config.backoff);
        let mut maybe_done = false;
        loop {
            let connection = self.connection(deadline).await;
            let connection = connection.map_err(|error| repeat.failed(maybe_done, error))?;
            let Failure { sent, error } = match connection.ask(kind, body, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            // A lost connection is let go before the next one is made.
            drop(connection);
            let refused = matches!(error, Error::Refused(_));
            maybe_done |= sent && !refused;
            let wait = waits.next_wait();
            if !repeat.allows(maybe_done, &error) || Instant::now() + wait >= deadline {
                return Err(repeat.failed(maybe_done, error));
            }
            sleep(wait).await;
        }
    }
}

impl Repeat {
    /// Whether a failed attempt may be made again.
    fn allows(self, maybe_done: bool, error: &Error) -> bool {
        match error {
            Error::Refused(refusal) => refusal.is_retriable(),
            Error::Unreachable { .. } | Error::Closed { what: "the connection" } => {
                !maybe_done || self != Repeat::IfUnsent
            }
            _ => false,
        }
    }

    /// What to tell of a call that has failed at last.
    fn failed(self, maybe_done: bool, error: Error) -> Error {
        if maybe_done && self != Repeat::Always { Error::unknown(error.to_string()) } else { error }
    }
}

#[cfg(test)]
mod tests {
    use log_core::protocol::{ErrorCode, Refusal};

    use super::*;

    #[test]
    fn only_what_is_harmless_is_made_again_once_it_was_sent() {
        let lost = Error::Unreachable { address: "a".to_owned(), why: "cut".to_owned() };
        let late = Error::TimedOut { what: "a reply".to_owned() };
        let unknown = |error| matches!(error, Error::OutcomeUnknown { .. });
        for repeat in [Repeat::Always, Repeat::Harmless, Repeat::IfUnsent] {
            assert!(repeat.allows(false, &lost) && !repeat.allows(false, &late));
            assert_eq!(repeat.allows(true, &lost), repeat != Repeat::IfUnsent);
            assert!(!unknown(repeat.failed(false, late.clone())));
            assert_eq!(unknown(repeat.failed(true, late.clone())), repeat != Repeat::Always);
        }
        let refused = |code| Error::from(Refusal::new(code, "no"));
        assert!(Repeat::IfUnsent.allows(false, &refused(ErrorCode::Loading)));
        assert!(!Repeat::Always.allows(false, &refused(ErrorCode::TopicExists)));
    }

    #[test]
    fn what_changes_something_is_not_made_again() {
        for kind in [RequestKind::CreateTopic, RequestKind::DeleteTopic, RequestKind::ResetOffsets]
        {
            assert_eq!(Repeat::of(kind), Repeat::IfUnsent);
        }
        assert_eq!(Repeat::of(RequestKind::Produce), Repeat::IfUnsent);
        assert_eq!(Repeat::of(RequestKind::TrimPartition), Repeat::Harmless);
        assert_eq!(Repeat::of(RequestKind::Fetch), Repeat::Always);
    }
}
