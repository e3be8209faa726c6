//! Tail: fetches that wait for records. One that waits costs a task and no thread; it ends at once
//! if its grants change, its peer sends nothing more, or the server stops.

use std::sync::Arc;
use std::time::Duration;

use log_core::Partition;
use log_core::partition::WaitingReader;
use log_core::protocol::Refusal;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::context::Context;
use crate::engine;
use crate::groups::WaitingForChange;
use crate::handlers::fetch::{Cold, Fetch, Gathered};
use crate::outbox::Reply;
use crate::shutdown::Phase;

/// Answers a fetch once there is enough, something is wrong, or `wait` has passed.
pub(crate) async fn wait(
    context: Arc<Context>,
    fetch: Fetch,
    first: Result<Gathered, Cold>,
    wait: Duration,
    reply: Reply,
) {
    context.metrics.fetches_parked.add(1);
    let _parked = Parked(&context);
    let deadline = Instant::now() + wait;
    let fetch = Arc::new(fetch);
    let mut gathered = match first {
        Ok(gathered) => gathered,
        Err(Cold) => match read_cold(&context, &fetch).await {
            Ok(gathered) => gathered,
            Err(refusal) => return reply.refuse(&refusal),
        },
    };
    let mut ended = context.shutdown.is_draining() || wait.is_zero();
    while !ended && !fetch.is_enough(&gathered) {
        ended = {
            let waiting = Waiting::begin(&fetch, &gathered);
            tokio::select! {
                () = waiting.signal.notified() => false,
                () = tokio::time::sleep_until(deadline) => true,
                () = context.shutdown.reached(Phase::Draining) => true,
                () = reply.peer_done() => true,
            }
        };
        gathered = match fetch.gather(context.config.fetch_max_bytes(), engine::try_read) {
            Ok(gathered) => gathered,
            Err(Cold) => match read_cold(&context, &fetch).await {
                Ok(gathered) => gathered,
                Err(refusal) => return reply.refuse(&refusal),
            },
        };
        if !ended && !fetch.is_enough(&gathered) {
            // Woken for too little, again and again, it must not keep the thread from others.
            tokio::task::yield_now().await;
        }
    }
    let correlation = reply.correlation();
    reply.send(|out| fetch.reply(&context, gathered, correlation, out));
}

async fn read_cold(context: &Context, fetch: &Arc<Fetch>) -> Result<Gathered, Refusal> {
    context.metrics.fetches_cold.add(1);
    let (fetch, most) = (Arc::clone(fetch), context.config.fetch_max_bytes());
    engine::blocking(move || {
        let read = |partition: &Partition, from, max| Some(engine::read(partition, from, max));
        Ok(fetch.gather(most, read).expect("a read that waits is never cold"))
    })
    .await
}

struct Parked<'a>(&'a Context);

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.metrics.fetches_parked.sub(1);
    }
}

/// The callbacks that a fetch waits for; they are forgotten with it.
struct Waiting<'a> {
    signal: Arc<Notify>,
    readers: Vec<(&'a Partition, WaitingReader)>,
    _grants: Option<WaitingForChange>,
}

impl<'a> Waiting<'a> {
    fn begin(fetch: &'a Fetch, gathered: &Gathered) -> Waiting<'a> {
        let signal = Arc::new(Notify::new());
        let change = fetch.grants.as_ref().map(|grants| {
            let changed = Arc::clone(&signal);
            let waiting = grants.when_changed(move || changed.notify_one());
            // They may have changed since they were looked at.
            if fetch.sources.iter().any(|source| fetch.readable(source).is_err()) {
                signal.notify_one();
            }
            waiting
        });
        let mut readers = Vec::new();
        let mut found = gathered.found.iter().peekable();
        for source in &fetch.sources {
            let entry = &source.entry;
            let same = found.next_if(|found| {
                (found.topic_id, found.partition, found.from)
                    == (entry.topic_id, entry.partition, entry.from)
            });
            let from = same.map_or(entry.from, |found| found.next);
            let Ok(partition) = &source.partition else { continue };
            let signal = Arc::clone(&signal);
            let waiting = partition.when_readable(from, move || signal.notify_one());
            readers.extend(waiting.map(|waiting| (partition, waiting)));
        }
        Waiting { signal, readers, _grants: change }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        for (partition, waiting) in self.readers.drain(..) {
            partition.forget_readable(waiting);
        }
    }
}
