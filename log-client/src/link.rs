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
    /// Whenever there was no answer: twice does what once does.
    Always,
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
            | RequestKind::TrimPartition
            | RequestKind::JoinGroup
            | RequestKind::Heartbeat
            | RequestKind::LeaveGroup
            | RequestKind::ReleasePartition
            | RequestKind::DescribeGroup
            | RequestKind::ListGroups
            | RequestKind::CommitOffsets
            | RequestKind::FetchOffsets => Repeat::Always,
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
        Ok(protocol::decode_body(&reply)?)
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
        loop {
            let connection = self.connection(deadline).await?;
            let failure = match connection.ask(kind, body, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            // A lost connection is let go before the next one is made.
            drop(connection);
            let error = after(failure, repeat)?;
            let wait = waits.next_wait();
            if Instant::now() + wait >= deadline {
                return Err(error);
            }
            sleep(wait).await;
        }
    }
}

/// What a failed attempt means: `Ok` with the reason if it may be made again, else what to tell.
fn after(failure: Failure, repeat: Repeat) -> Result<Error> {
    let Failure { sent, error } = failure;
    match error {
        Error::Refused(refusal) if refusal.is_retriable() => Ok(refusal.into()),
        Error::Refused(refusal) => Err(refusal.into()),
        error if sent && repeat == Repeat::IfUnsent => Err(Error::unknown(error.to_string())),
        error @ (Error::Unreachable { .. } | Error::Closed { what: "the connection" }) => Ok(error),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use log_core::protocol::{ErrorCode, Refusal};

    use super::*;

    #[test]
    fn only_what_is_harmless_is_made_again_once_it_was_sent() {
        let lost = |sent| Failure {
            sent,
            error: Error::Unreachable { address: "a".to_owned(), why: "cut".to_owned() },
        };
        assert!(after(lost(true), Repeat::Always).is_ok());
        assert!(after(lost(false), Repeat::IfUnsent).is_ok());
        let told = after(lost(true), Repeat::IfUnsent);
        assert!(matches!(told, Err(Error::OutcomeUnknown { .. })), "{told:?}");
        let refused = |code| Failure { sent: true, error: Error::from(Refusal::new(code, "no")) };
        assert!(after(refused(ErrorCode::Loading), Repeat::IfUnsent).is_ok());
        assert!(after(refused(ErrorCode::TopicExists), Repeat::Always).is_err());
    }

    #[test]
    fn what_changes_something_is_not_made_again() {
        for kind in [RequestKind::CreateTopic, RequestKind::DeleteTopic, RequestKind::ResetOffsets]
        {
            assert_eq!(Repeat::of(kind), Repeat::IfUnsent);
        }
        assert_eq!(Repeat::of(RequestKind::Produce), Repeat::IfUnsent);
        assert_eq!(Repeat::of(RequestKind::Fetch), Repeat::Always);
    }
}
