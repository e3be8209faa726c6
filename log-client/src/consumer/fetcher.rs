//! Fetcher: the task that keeps the buffers filled, on a connection of its own.
//!
//! One long poll covers every partition that has room. A second, short one carries those that get
//! room meanwhile. Where a partition stands is known here alone: a connection that was lost changes
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use log_core::OffsetRange;
use log_core::protocol::fetch::{
    FETCH_PARTITIONS_MAX, FETCH_VERSION, FetchPartition, FetchReply, FetchRequest,
    FetchedPartition, GroupReader, REPLY_ENTRY_BYTES,
};
use log_core::protocol::{self, ErrorCode, Refusal, RequestKind};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep_until;

use super::event::ConsumerEvent;
use super::membership::{Event, LostReason, PartitionId};
use super::partition::Chunk;
use super::record::Source;
use super::state::{Shared, State};
use super::stop::Stop;
use crate::error::{Error, Result};
use crate::link::Link;

/// The most fetches that wait for their replies.
const IN_FLIGHT_MAX: usize = 2;
/// How long the second one waits at most: what it carries joins the first after that.
const SECOND_WAIT: Duration = Duration::from_millis(50);
/// How long after a refusal the same is asked again.
const REFUSED_WAIT: Duration = Duration::from_millis(100);
/// How long after a partition turned out to be gone.
const GONE_WAIT: Duration = Duration::from_secs(1);
/// Less than this in a reply is no backlog: what counts is how soon it is seen.
const FEW_BYTES: usize = 16 * 1024;

/// More than a reply holds beside partitions and batches.
const REPLY_AROUND_BYTES: usize = 1024;

/// What a fetch asks for, and of which generation of each partition.
struct Plan {
    request: FetchRequest,
    asked: Vec<(Source, u64)>,
}

/// What was asked for, and what came of it.
struct Fetched {
    asked: Vec<(Source, u64)>,
    reply: Result<FetchReply>,
}

/// Fetches until it is stopped.
pub(super) async fn run(shared: Arc<Shared>, link: Arc<Link>) {
    let mut in_flight: JoinSet<usize> = JoinSet::new();
    loop {
        let mut wake = None;
        while in_flight.len() < IN_FLIGHT_MAX {
            let planned = {
                let now = shared.now();
                let mut state = shared.lock();
                let first = in_flight.is_empty();
                let planned = plan(&mut state, &shared, first, now);
                wake = next_wake(&state, now);
                planned
            };
            let Some(plan) = planned else { break };
            in_flight.spawn(fetch(Arc::clone(&shared), Arc::clone(&link), plan));
        }
        let wake = shared.instant(wake.unwrap_or_else(|| shared.now() + Duration::from_secs(60)));
        tokio::select! {
            Some(done) = in_flight.join_next(), if !in_flight.is_empty() => {
                // At the end of a log few records come at once, and who reads them goes first.
                if done.is_ok_and(|bytes| bytes < FEW_BYTES) {
                    yield_now().await;
                }
            }
            () = shared.fetch.notified() => {}
            () = sleep_until(wake) => {}
        }
    }
}

/// When a partition that is left alone for now may be asked for again.
fn next_wake(state: &State, now: Duration) -> Option<Duration> {
    state.partitions.values().map(|owned| owned.not_before).filter(|at| *at > now).min()
}

fn plan(state: &mut State, shared: &Shared, first: bool, now: Duration) -> Option<Plan> {
    let settings = &shared.settings;
    if state.stopped || state.closing {
        return None;
    }
    let prefetch = usize::try_from(settings.prefetch_bytes).unwrap_or(usize::MAX);
    let partition_bytes = usize::try_from(settings.partition_bytes).unwrap_or(usize::MAX);
    let waiting = state.partitions.values().filter(|owned| owned.fetching).count();
    let buffered: usize = state.partitions.values().map(super::partition::Owned::buffered).sum();
    // What is asked for already may come.
    let room = prefetch.saturating_sub(buffered + if waiting > 0 { partition_bytes } else { 0 });
    if room == 0 {
        return None;
    }
    let reader = match (&state.membership, &shared.group) {
        (Some(membership), Some(group)) => {
            membership.lease_until()?;
            let member = membership.member();
            Some(GroupReader {
                group: group.clone(),
                member: member.member.clone(),
                incarnation: member.incarnation,
            })
        }
        _ => None,
    };
    let (mut partitions, mut asked) = (Vec::new(), Vec::new());
    for owned in state.partitions.values_mut() {
        if partitions.len() < FETCH_PARTITIONS_MAX && owned.wants_fetch(partition_bytes, now) {
            owned.fetching = true;
            asked.push((owned.source, owned.generation));
            partitions.push(FetchPartition {
                topic_id: owned.source.id.topic_id,
                partition: owned.source.id.partition,
                max_bytes: settings.partition_bytes,
                from: owned.position,
                epoch: owned.epoch,
            });
        }
    }
    if partitions.is_empty() {
        return None;
    }
    let wait = if first { settings.fetch_wait } else { settings.fetch_wait.min(SECOND_WAIT) };
    // A longer reply would be refused here, again and again.
    let around = REPLY_AROUND_BYTES + partitions.len() * REPLY_ENTRY_BYTES;
    let fits = settings.frame_max_bytes.saturating_sub(around).max(1);
    let request = FetchRequest {
        max_bytes: u32::try_from(room.min(fits)).unwrap_or(u32::MAX),
        min_bytes: 1,
        max_wait: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
        reader,
        partitions,
    };
    Some(Plan { request, asked })
}

/// Fetches once; what comes is taken in by the connection's task, so that nothing stands between
/// it and who waits for it. Returns how many bytes came.
async fn fetch(shared: Arc<Shared>, link: Arc<Link>, plan: Plan) -> usize {
    let Plan { request, asked } = plan;
    let of_task = (Arc::clone(&shared), asked.clone());
    let fetched = async {
        let deadline = link.deadline() + shared.settings.fetch_wait;
        let connection = link.connection(deadline).await?;
        let body = Bytes::from(request.encode());
        let kind = (RequestKind::Fetch.number(), FETCH_VERSION);
        let take_reply = move |body: Bytes| {
            let (bytes, (shared, asked)) = (body.len(), of_task);
            let reply = FetchReply::decode(body).map_err(Error::from);
            take(&shared, Fetched { asked, reply });
            bytes
        };
        let taken = connection.ask_and_take(kind, &body, deadline, take_reply).await;
        taken.map_err(|failed| {
            // Nobody may be at the other end any more; the next fetch must not go there, too.
            if matches!(failed.error, Error::TimedOut { .. }) {
                connection.give_up();
            }
            failed.error
        })
    };
    fetched.await.unwrap_or_else(|error| {
        take(&shared, Fetched { asked, reply: Err(error) });
        0
    })
}

fn take(shared: &Shared, fetched: Fetched) {
    let now = shared.now();
    let mut suspect = false;
    {
        let mut state = shared.lock();
        for (source, generation) in &fetched.asked {
            if let Some(owned) = state.owned(*source, *generation) {
                owned.fetching = false;
            }
        }
        match fetched.reply {
            Ok(reply) => {
                state.fetch_fails = false;
                for partition in reply.partitions {
                    let id = PartitionId {
                        topic_id: partition.topic_id,
                        partition: partition.partition,
                    };
                    let asked = fetched.asked.iter().find(|(source, _)| source.id == id);
                    if let Some((source, generation)) = asked
                        && state.owned(*source, *generation).is_some()
                    {
                        suspect |= take_partition(&mut state, id, partition, now);
                    }
                }
            }
            Err(error) => {
                suspect = matches!(error, Error::Refused(_));
                for (source, generation) in fetched.asked {
                    if let Some(owned) = state.owned(source, generation) {
                        owned.not_before = now + REFUSED_WAIT;
                    }
                }
                let useless = [ErrorCode::UnsupportedRequest, ErrorCode::UnsupportedVersion];
                if error.code().is_some_and(|code| useless.contains(&code)) {
                    state.fatal = Some(error);
                } else if is_told(&error) && !std::mem::replace(&mut state.fetch_fails, true) {
                    state.errors.push_back(error);
                }
            }
        }
        if suspect {
            state.on(Event::Suspect, now);
        }
    }
    if suspect {
        shared.session.notify_one();
    }
    shared.ready.notify_one();
    shared.changed.notify_waiters();
}

/// Whether a failed fetch is for the user to know: it may well fail again, and it is not the
/// membership that is in doubt.
fn is_told(error: &Error) -> bool {
    use ErrorCode::{Fenced, StaleGrant, UnknownGroup, UnknownMember};
    match error {
        Error::Refused(refusal) => {
            let of_group = [Fenced, StaleGrant, UnknownGroup, UnknownMember];
            let code = refusal.error_code();
            !refusal.is_retriable() && !code.is_some_and(|code| of_group.contains(&code))
        }
        Error::Protocol(_) => true,
        _ => false,
    }
}

/// Takes what a fetch says of one partition; returns whether the membership is in doubt.
fn take_partition(
    state: &mut State,
    id: PartitionId,
    fetched: FetchedPartition,
    now: Duration,
) -> bool {
    let Some(owned) = state.partitions.get_mut(&id) else { return false };
    if fetched.code == ErrorCode::Ok.number() {
        let FetchedPartition { bytes, from, next, .. } = fetched;
        if from == owned.position && next >= from {
            owned.fetched(Chunk { bytes, from, next });
        } else {
            owned.not_before = now + REFUSED_WAIT;
        }
        return false;
    }
    let refusal = match protocol::decode_body::<Refusal>(&fetched.bytes) {
        Ok(refusal) => refusal,
        Err(fault) => {
            owned.stop(Stop::Failed(Error::Protocol(fault)));
            return false;
        }
    };
    match refusal.error_code() {
        Some(ErrorCode::OffsetOutOfRange) => {
            let FetchedPartition { log_start, readable_end, .. } = fetched;
            owned.stop(Stop::OutOfRange { log_start, readable_end, refusal });
            false
        }
        Some(ErrorCode::Corrupt) => {
            let position = owned.position;
            let offsets = refusal.corrupt_offsets();
            let offsets = offsets.unwrap_or_else(|| OffsetRange::new(position, position));
            owned.stop(Stop::Corrupt(offsets, refusal));
            false
        }
        Some(ErrorCode::StaleTopic | ErrorCode::UnknownTopic | ErrorCode::UnknownPartition) => {
            owned.not_before = now + GONE_WAIT;
            if state.membership.is_none()
                && let Some(owned) = state.partitions.remove(&id)
            {
                let (of, reason) = (owned.named(), LostReason::Taken);
                state.events.push(ConsumerEvent::Lost { of, reason });
                state.errors.push_back(Error::Refused(refusal));
            }
            true
        }
        Some(ErrorCode::StaleGrant | ErrorCode::UnknownMember | ErrorCode::Fenced) => {
            owned.not_before = now + REFUSED_WAIT;
            true
        }
        _ if refusal.is_retriable() => {
            owned.not_before = now + REFUSED_WAIT;
            false
        }
        _ => {
            owned.stop(Stop::Failed(Error::Refused(refusal)));
            false
        }
    }
}
