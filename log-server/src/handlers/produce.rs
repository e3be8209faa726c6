//! Produce: a batch is appended where it was read, stored as it came, and answered when it is as
//! durable as was asked for.
//!
//! A batch that has to wait (for a sync that is late, for the disk) is copied once and goes to a
//! *lane*: a thread that appends what a connection has for a partition, in order. Whatever the
//! connection sends for that partition then goes behind it, until the lane is empty.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use log_core::protocol::frame::{FRAME_HEAD_BYTES, ReplyHead};
use log_core::protocol::produce::{Acks, PRODUCED_BYTES, ProduceHead, Produced};
use log_core::protocol::{ErrorCode, Outgoing, Refusal};
use log_core::{Appended, Error, Offset, Partition, Result};
use parking_lot::Mutex;

use crate::engine;
use crate::metrics::Metrics;
use crate::outbox::{Reply, Waits};
use crate::session::Session;

/// Handles one request: its reply is in the session's outgoing bytes, or comes later.
pub(crate) fn produce(session: &mut Session, correlation: u32, body: &[u8]) {
    let (head, batch) = match ProduceHead::decode(body) {
        Ok(decoded) => decoded,
        Err(fault) => return session.refuse_malformed(&fault, correlation),
    };
    if let Err(refusal) = append(session, head, batch, correlation) {
        if head.acks == Acks::None {
            session.context.metrics.refusal(refusal.code);
        } else {
            session.refuse(&refusal, correlation);
        }
    }
}

fn append(
    session: &mut Session,
    head: ProduceHead,
    batch: &[u8],
    correlation: u32,
) -> std::result::Result<(), Refusal> {
    let Session { context, partitions, outbox, out, .. } = session;
    let limit = context.config.produce_in_flight_max;
    if outbox.waiting(Waits::Produce) >= limit {
        let why = format!("{limit} produces of this connection wait already");
        return Err(Refusal::new(ErrorCode::LimitReached, why));
    }
    let slot = partitions.slot(&context.store, head.topic_id, head.partition);
    let slot = slot.map_err(|error| engine::refusal_by_id(&error))?;
    let written = if slot.is_awaited() {
        None
    } else {
        engine::try_write(&slot.partition, batch, head.expected_end)
    };
    let Some(written) = written else {
        let total = context.config.produce_waiting_total_max_bytes as u64;
        if context.metrics.produce_waiting_bytes.value() + batch.len() as u64 > total {
            let why = "too many bytes of produces wait to be appended; send again later";
            return Err(Refusal::new(ErrorCode::LimitReached, why));
        }
        let reply = outbox.begin(Waits::Produce, correlation, limit);
        let mut reply = reply.expect("looked at above");
        reply.hold_bytes(batch.len());
        context.metrics.produced_late.add(1);
        let batch = Bytes::copy_from_slice(batch);
        let waiting = Waiting { head, batch, reply, metrics: Arc::clone(&context.metrics) };
        Lane::take(&mut slot.lane, &slot.partition, waiting);
        return Ok(());
    };
    count(&context.metrics, &written, batch);
    if matches!(written, Err(Error::Closed { .. })) {
        let error = written.map(drop).map_err(|error| engine::refusal_by_id(&error));
        partitions.forget(head.topic_id, head.partition);
        return error;
    }
    match rests_on(&slot.partition, head.acks, &written) {
        Some(end) => {
            let reply = outbox.begin(Waits::Produce, correlation, limit);
            answer_durable(&slot.partition, end, written, reply.expect("looked at above"));
            Ok(())
        }
        None => match written {
            Ok(_) if head.acks == Acks::None => Ok(()),
            Ok(appended) => {
                out.put(&encode(&appended, correlation));
                Ok(())
            }
            Err(error) => Err(engine::refusal_by_id(&error)),
        },
    }
}

fn count(metrics: &Metrics, written: &Result<Appended>, batch: &[u8]) {
    match written {
        Ok(appended) if appended.duplicate => metrics.produced_duplicates.add(1),
        Ok(appended) => {
            metrics.produced_batches.add(1);
            metrics.produced_records.add(appended.end - appended.base_offset);
            metrics.produced_bytes.add(batch.len() as u64);
        }
        Err(_) => {}
    }
}

/// What must be durable before the answer; `None` if it can be given now. On a `Sync` topic a sync
/// is asked for, whatever the answer waits for.
fn rests_on(partition: &Partition, acks: Acks, written: &Result<Appended>) -> Option<Offset> {
    let end = match written {
        Ok(appended) => appended.end,
        Err(Error::EndConflict { actual, .. }) => *actual,
        Err(_) => return None,
    };
    let syncs = partition.acknowledges_durable();
    let waits = acks == Acks::Synced || acks == Acks::Policy && syncs;
    if !waits && !syncs || partition.ends().durable_end >= end {
        return None;
    }
    if !waits {
        engine::ask_for_sync(partition, end);
        return None;
    }
    Some(end)
}

/// Answers once everything below `end` is durable, or can't become so.
fn answer_durable(partition: &Partition, end: Offset, written: Result<Appended>, reply: Reply) {
    partition.when_durable(end, move |synced| answer(synced.and(written), reply));
}

fn answer(outcome: Result<Appended>, reply: Reply) {
    match outcome {
        Ok(appended) => {
            let frame = encode(&appended, reply.correlation());
            reply.send(|out: &mut Outgoing| out.put(&frame));
        }
        Err(error) => reply.refuse(&engine::refusal_by_id(&error)),
    }
}

/// A reply as a whole frame.
fn encode(appended: &Appended, correlation: u32) -> [u8; FRAME_HEAD_BYTES + PRODUCED_BYTES] {
    let produced = Produced {
        base_offset: appended.base_offset,
        end: appended.end,
        append_time: appended.append_time,
        duplicate: appended.duplicate,
    };
    let mut frame = [0; FRAME_HEAD_BYTES + PRODUCED_BYTES];
    let head = ReplyHead { correlation, code: ErrorCode::Ok.number() };
    frame[..FRAME_HEAD_BYTES].copy_from_slice(&head.encode(PRODUCED_BYTES));
    frame[FRAME_HEAD_BYTES..].copy_from_slice(&produced.encode());
    frame
}

/// A batch that waits to be appended.
#[derive(Debug)]
struct Waiting {
    head: ProduceHead,
    batch: Bytes,
    reply: Reply,
    metrics: Arc<Metrics>,
}

/// The batches of a connection that wait for a partition, in order; `None` once it is over.
#[derive(Debug)]
pub(crate) struct Lane(Mutex<Option<VecDeque<Waiting>>>);

impl Lane {
    /// Whether nothing waits any more.
    pub(crate) fn is_over(&self) -> bool {
        self.0.lock().is_none()
    }

    /// Puts a batch behind those that wait, or on a lane of its own.
    fn take(lane: &mut Option<Arc<Lane>>, partition: &Partition, waiting: Waiting) {
        let mut waiting = Some(waiting);
        if let Some(lane) = lane
            && let Some(queue) = &mut *lane.0.lock()
        {
            queue.extend(waiting.take());
            return;
        }
        let begun = Arc::new(Lane(Mutex::new(Some(waiting.into_iter().collect()))));
        *lane = Some(Arc::clone(&begun));
        let partition = partition.clone();
        tokio::task::spawn_blocking(move || begun.run(&partition));
    }

    fn next(&self) -> Option<Waiting> {
        let mut queue = self.0.lock();
        let next = queue.as_mut().and_then(VecDeque::pop_front);
        if next.is_none() {
            *queue = None;
        }
        next
    }

    fn run(&self, partition: &Partition) {
        let _over = Over(self);
        while let Some(Waiting { head, batch, mut reply, metrics }) = self.next() {
            let written = engine::write(partition, &batch, head.expected_end);
            count(&metrics, &written, &batch);
            drop(batch);
            reply.release_bytes();
            match rests_on(partition, head.acks, &written) {
                Some(end) => answer_durable(partition, end, written, reply),
                None if head.acks == Acks::None => reply.forget(),
                None => answer(written, reply),
            }
        }
    }
}

/// Ends a lane, by a panic, too: what still waits there is answered, and nothing is put behind it.
struct Over<'a>(&'a Lane);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let left = self.0.0.lock().take();
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log_core::{OpenMode, Store, StoreConfig, TopicConfig, TopicName};

    use crate::partitions::Partitions;

    #[test]
    fn a_partition_that_is_forgotten_keeps_the_lane_in_which_produces_wait() {
        let dir = tempfile::tempdir().unwrap();
        let mode = OpenMode::CreateIfMissing;
        let store = Store::open(dir.path(), StoreConfig::default(), mode).unwrap();
        let name = TopicName::parse("t").unwrap();
        let id = store.create_topic(&name, 1, TopicConfig::default()).unwrap().id();
        let mut partitions = Partitions::default();
        let lane = Arc::new(Lane(Mutex::new(Some(VecDeque::new()))));
        partitions.slot(&store, id, 0).unwrap().lane = Some(Arc::clone(&lane));
        partitions.forget(id, 0);
        assert!(partitions.slot(&store, id, 0).unwrap().is_awaited());
        assert!(lane.next().is_none() && lane.is_over());
        partitions.forget(id, 0);
        assert!(partitions.slot(&store, id, 0).unwrap().lane.is_none());
    }
}
