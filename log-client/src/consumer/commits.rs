//! Commits: the task that persists what is done: one commit of the consumer is on its way at a time.
//!
//! Every commit that is asked for is answered, once: by what the server said, or after
//! `commit_timeout`.

use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::offsets::{CommitOffsetsReplyV1, CommitOffsetsV1, CommitV1};
use log_core::protocol::{ErrorCode, Refusal};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::membership::Event;
use super::record::Source;
use super::settings::CommitMode;
use super::state::{Shared, State};
use crate::error::{Error, Result};
use crate::link::Link;

/// How long after a commit of which a part may succeed later.
const RETRY_AFTER: Duration = Duration::from_millis(50);

struct Round {
    call: CommitOffsetsV1,
    sources: Vec<Source>,
}

/// Commits until it is stopped.
pub(super) async fn run(shared: Arc<Shared>, link: Arc<Link>) {
    let every = match shared.settings.mode {
        CommitMode::Automatic { every } => every,
        _ => Duration::from_secs(3600),
    };
    let mut next = Instant::now() + every;
    loop {
        tokio::select! {
            () = shared.commit.notified() => {}
            () = sleep_until(next) => {}
        }
        let waiters = std::mem::take(&mut shared.lock().commit_waiters);
        let due = next <= Instant::now();
        if due {
            next = Instant::now() + every;
        }
        let asked = !waiters.is_empty();
        if asked || due && matches!(shared.settings.mode, CommitMode::Automatic { .. }) {
            commit(&shared, &link, waiters).await;
        }
    }
}

async fn commit(shared: &Shared, link: &Link, waiters: Vec<oneshot::Sender<Result<()>>>) {
    let deadline = Instant::now() + shared.settings.commit_timeout;
    let mut refused = None;
    let outcome = loop {
        let Some(round) = gather(&mut shared.lock(), shared.group.as_deref()) else {
            break Ok(());
        };
        let reply = link.call(&round.call, deadline).await;
        let (again, refusal) = settle(shared, round, reply.as_ref());
        refused = refused.or(refusal);
        match reply {
            Err(error) => break Err(error),
            Ok(_) if !again => break Ok(()),
            Ok(_) if Instant::now() + RETRY_AFTER < deadline => sleep(RETRY_AFTER).await,
            Ok(_) => break Err(Error::TimedOut { what: "the commit".to_owned() }),
        }
    };
    let outcome = outcome.and(refused.map_or(Ok(()), |refusal| Err(Error::Refused(refusal))));
    for waiter in waiters {
        // Who has gone wants no answer.
        drop(waiter.send(outcome.clone()));
    }
}

fn gather(state: &mut State, group: Option<&str>) -> Option<Round> {
    let group = group?;
    let member = state.membership.as_ref().map(|membership| {
        let member = membership.member();
        (member.member.clone(), member.incarnation)
    });
    let (mut commits, mut sources) = (Vec::new(), Vec::new());
    for owned in state.partitions.values_mut() {
        if let Some(position) = owned.tracker.to_commit() {
            owned.committing = true;
            sources.push(owned.source);
            commits.push(CommitV1 {
                topic_id: owned.source.id.topic_id,
                partition: owned.source.id.partition,
                epoch: owned.epoch,
                position,
                metadata: String::new(),
            });
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
        suspect |= reply.is_err_and(|error| matches!(error, Error::Refused(_)));
        if suspect {
            state.on(Event::Suspect, now);
        }
    }
    shared.session.notify_one();
    (again, refused)
}
