//! Commits: the task that persists what is done: one commit of the consumer is on its way at a time.
//!
//! Every commit that is asked for is answered, once: by what the server said, or after
//! `commit_timeout`.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::offsets::{CommitOffsetsReplyV1, CommitOffsetsV1, CommitV1};
use log_core::protocol::{ErrorCode, Refusal};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::event::ConsumerEvent;
use super::membership::{Event, PartitionId};
use super::record::Source;
use super::settings::CommitMode;
use super::state::{Shared, State};
use crate::error::{Error, Result};
use crate::link::Link;

/// The most partitions of one commit: with all the ranges that each may tell of, it is within the
/// limit of a control request.
const PARTITIONS_MAX: usize = 200;
/// How long after a commit of which a part may succeed later.
const RETRY_AFTER: Duration = Duration::from_millis(50);

struct Round {
    call: CommitOffsetsV1,
    sources: Vec<Source>,
}

/// Commits until it is stopped.
pub(super) async fn run(shared: Arc<Shared>, link: Arc<Link>) {
    // Whoever waits is told even if this task is stopped in the middle.
    let _teller = Teller(&shared);
    let every = match shared.settings.mode {
        CommitMode::Automatic { every } => every,
        _ => Duration::from_secs(3600),
    };
    let mut next = Instant::now() + every;
    let mut failing = false;
    loop {
        tokio::select! {
            () = shared.commit.notified() => {}
            () = sleep_until(next) => {}
        }
        let Some(waiters) = shared.lock().commit_waiters.as_mut().map(std::mem::take) else {
            return;
        };
        let due = next <= Instant::now();
        if due {
            next = Instant::now() + every;
        }
        let asked = !waiters.is_empty();
        if asked || due && matches!(shared.settings.mode, CommitMode::Automatic { .. }) {
            let outcome = commit(&shared, &link, waiters).await;
            // Whoever asked is told; nobody has asked for one that was due.
            if let Err(error) = &outcome
                && !asked
                && !failing
            {
                let error = error.clone();
                shared.lock().events.push(ConsumerEvent::CommitFailed { error });
                shared.changed.notify_waiters();
            }
            failing = outcome.is_err();
        }
    }
}

/// Answers those who wait for a commit that will not begin.
struct Teller<'a>(&'a Shared);

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        let waiters = self.0.lock().commit_waiters.take();
        drop(waiters);
    }
}

async fn commit(
    shared: &Shared,
    link: &Link,
    waiters: Vec<oneshot::Sender<Result<()>>>,
) -> Result<()> {
    let outcome = commit_all(shared, link).await;
    for waiter in waiters {
        // Who has gone wants no answer.
        drop(waiter.send(outcome.clone()));
    }
    outcome
}

/// Commits what is done, so many partitions at a time.
async fn commit_all(shared: &Shared, link: &Link) -> Result<()> {
    let deadline = Instant::now() + shared.settings.commit_timeout;
    let mut refused = None;
    let mut after = None;
    loop {
        let Some(round) = gather(&mut shared.lock(), shared.group.as_deref(), after) else {
            return refused.map_or(Ok(()), |refusal| Err(Error::Refused(refusal)));
        };
        let last = round.sources.last().map(|source| source.id);
        let (reply, asked) = (link.call(&round.call, deadline).await, round.sources.len());
        let reply = reply.and_then(|reply| match reply.outcomes.len() {
            told if told == asked => Ok(reply),
            told => Err(Error::unknown(format!("{told} outcomes were told of {asked} commits"))),
        });
        let (again, refusal) = settle(shared, round, reply.as_ref());
        refused = refused.or(refusal);
        reply?;
        if !again {
            after = last;
        } else if Instant::now() + RETRY_AFTER < deadline {
            sleep(RETRY_AFTER).await;
        } else {
            return Err(Error::TimedOut { what: "the commit".to_owned() });
        }
    }
}

/// What there is to commit for the partitions after this one.
fn gather(state: &mut State, group: Option<&str>, after: Option<PartitionId>) -> Option<Round> {
    let group = group?;
    let member = state.membership.as_ref().map(|membership| {
        let member = membership.member();
        (member.member.clone(), member.incarnation)
    });
    let (mut commits, mut sources) = (Vec::new(), Vec::new());
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    for (id, owned) in state.partitions.range_mut((from, Bound::Unbounded)) {
        let Some(position) = owned.tracker.to_commit() else { continue };
        owned.committing = true;
        sources.push(owned.source);
        commits.push(CommitV1 {
            topic_id: id.topic_id,
            partition: id.partition,
            epoch: owned.epoch,
            position,
            metadata: String::new(),
        });
        if sources.len() == PARTITIONS_MAX {
            break;
        }
    }
    let call = CommitOffsetsV1 { group: group.to_owned(), member, commits };
    (!sources.is_empty()).then_some(Round { call, sources })
}

/// Takes what became of a commit; returns whether a part of it may succeed later, and the first
/// refusal of one that will not.
fn settle(
    shared: &Shared,
    round: Round,
    reply: std::result::Result<&CommitOffsetsReplyV1, &Error>,
) -> (bool, Option<Refusal>) {
    let now = shared.now();
    let (mut again, mut refused, mut suspect) = (false, None, false);
    {
        let mut state = shared.lock();
        let outcomes = reply.map(|reply| reply.outcomes.as_slice()).unwrap_or_default();
        for (index, (source, commit)) in round.sources.iter().zip(round.call.commits).enumerate() {
            let outcome = outcomes.get(index);
            if let Some(owned) = state.partitions.get_mut(&source.id)
                && owned.source == *source
            {
                owned.committing = false;
                if outcome == Some(&None) {
                    owned.tracker.committed(commit.position);
                }
            }
            if let Some(Some(refusal)) = outcome {
                if refusal.is_retriable() {
                    again = true;
                } else {
                    refused.get_or_insert_with(|| refusal.clone());
                    suspect |= refusal.error_code() == Some(ErrorCode::StaleGrant);
                }
            }
            state.check_drained(source.id, now);
        }
        suspect |= reply
            .is_err_and(|error| matches!(error, Error::Refused(_) | Error::OutcomeUnknown { .. }));
        if suspect {
            state.on(Event::Suspect, now);
        }
    }
    shared.session.notify_one();
    (again, refused)
}
