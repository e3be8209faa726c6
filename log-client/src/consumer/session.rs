//! Session: the task that carries out what the membership decides, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use log_core::protocol::Call;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::membership::{Action, Event, Failure, Membership, PartitionId};
use super::state::Shared;
use crate::error::Error;
use crate::link::Link;

/// How often it looks at what is in hand, if nothing else wakes it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps up the membership until it is over.
pub(super) async fn run(shared: Arc<Shared>, link: Arc<Link>) {
    let mut calls: JoinSet<Event> = JoinSet::new();
    loop {
        let (deadline, over) = {
            let now = shared.now();
            let mut state = shared.lock();
            let oldest = state.oldest_in_hand();
            state.on(Event::InHand(oldest), now);
            state.on(Event::Tick, now);
            for action in std::mem::take(&mut state.outbox) {
                calls.spawn(send(Arc::clone(&link), action, shared.settings.session_timeout));
            }
            let deadline = state.membership.as_ref().and_then(Membership::deadline);
            (deadline, state.over)
        };
        if over {
            shared.wake_all();
            shared.commit.notify_one();
            return;
        }
        let look = shared.now() + LOOK_EVERY;
        let wake = shared.instant(deadline.map_or(look, |at| at.min(look)));
        tokio::select! {
            Some(done) = calls.join_next(), if !calls.is_empty() => {
                if let Ok(event) = done {
                    shared.on(event);
                }
            }
            () = shared.session.notified() => {}
            () = sleep_until(wake) => {}
        }
    }
}

/// Sends what an action says, once; returns the event that tells how it ended.
async fn send(link: Arc<Link>, action: Action, session_timeout: Duration) -> Event {
    let half = session_timeout / 2;
    match action {
        Action::Join(call, join) => match ask(&link, &join, half).await {
            Ok(reply) => Event::Joined(call, reply),
            Err(failure) => Event::JoinFailed(call, failure),
        },
        Action::Heartbeat(call, heartbeat) => {
            let patience = Duration::from_millis(heartbeat.max_wait) + half;
            match ask(&link, &heartbeat, patience).await {
                Ok(reply) => Event::HeartbeatAnswered(call, reply),
                Err(failure) => Event::HeartbeatFailed(call, failure),
            }
        }
        Action::Release(release) => {
            let id = PartitionId { topic_id: release.topic_id, partition: release.partition };
            match ask(&link, &release, half).await {
                Ok(_) => Event::Released(id, release.epoch),
                Err(failure) => Event::ReleaseFailed(id, release.epoch, failure),
            }
        }
        Action::Leave(call, leave) => match ask(&link, &leave, half).await {
            Ok(_) => Event::Left(call),
            Err(failure) => Event::LeaveFailed(call, failure),
        },
        // Everything else was carried out where it was decided.
        _ => Event::Tick,
    }
}

async fn ask<C: Call>(link: &Link, call: &C, patience: Duration) -> Result<C::Reply, Failure> {
    let deadline = tokio::time::Instant::now() + patience;
    let reply = match link.connection(deadline).await {
        Ok(connection) => {
            let called = connection.call(call, deadline).await.map_err(|failed| failed.error);
            // Nobody may be at the other end any more; the next attempt must not go there, too.
            if matches!(called, Err(Error::TimedOut { .. })) {
                connection.give_up();
            }
            called
        }
        Err(error) => Err(error),
    };
    reply.map_err(|error| match error {
        Error::Refused(refusal) => Failure::Refused(refusal),
        _ => Failure::NoAnswer,
    })
}
