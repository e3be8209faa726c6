//! Fetch: batches from many partitions; their bytes go from the log's map to the socket.

use std::sync::Arc;

use log_core::protocol::fetch::{
    FETCH_PARTITIONS_MAX, FetchPartition, FetchReply, FetchRequest, FetchedPartition,
    REPLY_ENTRY_BYTES,
};
use log_core::protocol::frame::ReplyHead;
use log_core::protocol::{ErrorCode, Outgoing, Refusal};
use log_core::{Error, Fetched, Partition};

use crate::config::FRAME_OVERHEAD_BYTES;
use crate::context::Context;
use crate::engine;
use crate::groups::MemberGrants;
use crate::outbox::Waits;
use crate::session::Session;
use crate::tail;

/// Batches up to this size are copied behind the reply's head: that costs less than to share them.
const COPIED_MAX_BYTES: usize = 2_048;

/// What is left of a frame for refusals, beside the batches: heads and entries take the rest.
const REFUSALS_MAX_BYTES: usize =
    FRAME_OVERHEAD_BYTES - FETCH_PARTITIONS_MAX * REPLY_ENTRY_BYTES - 1_024;

/// A partition to read from, or why it can't be.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) entry: FetchPartition,
    pub(crate) partition: Result<Partition, Refusal>,
}

/// A fetch as it is carried out.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) sources: Vec<Source>,
    pub(crate) grants: Option<Arc<MemberGrants>>,
    pub(crate) max_bytes: usize,
    pub(crate) min_bytes: usize,
}

/// What a fetch has found so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) found: Vec<FetchedPartition>,
    pub(crate) bytes: usize,
    /// Whether some partition has something wrong to tell.
    pub(crate) refused: bool,
    refusal_bytes: usize,
    /// Whether some partition has more than it could give: waiting brings nothing.
    pub(crate) cut_short: bool,
}

/// Some of what was asked for may have to come from the disk.
#[derive(Debug)]
pub(crate) struct Cold;

/// Handles one request: its reply is in the session's outgoing bytes, or comes later.
pub(crate) fn fetch(session: &mut Session, correlation: u32, body: &[u8]) {
    let request = match FetchRequest::decode(body) {
        Ok(request) => request,
        Err(fault) => return session.refuse_malformed(&fault, correlation),
    };
    if let Err(refusal) = begin(session, &request, correlation) {
        session.refuse(&refusal, correlation);
    }
}

fn begin(session: &mut Session, request: &FetchRequest, correlation: u32) -> Result<(), Refusal> {
    let Session { context, partitions, outbox, out, tasks, .. } = session;
    let limit = context.config.fetch_in_flight_max;
    if outbox.waiting(Waits::Fetch) >= limit {
        let why = format!("{limit} fetches of this connection wait already");
        return Err(Refusal::new(ErrorCode::LimitReached, why));
    }
    let reader = request.reader.as_ref();
    let grants = reader.map(|reader| context.coordinator.reader(reader)).transpose()?;
    let sources = request.partitions.iter().map(|entry| {
        let slot = partitions.slot(&context.store, entry.topic_id, entry.partition);
        let partition = slot.map(|slot| slot.partition.clone());
        Source { entry: *entry, partition: partition.map_err(|e| engine::refusal_by_id(&e)) }
    });
    let most = context.config.fetch_max_bytes();
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(usize::MAX).min(most);
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(usize::MAX).min(max_bytes);
    let fetch = Fetch { sources: sources.collect(), grants, max_bytes, min_bytes };
    let wait = std::time::Duration::from_millis(u64::from(request.max_wait));
    let wait = wait.min(context.config.fetch_wait_max);
    let gathered = fetch.gather(most, engine::try_read);
    if let Ok(gathered) = &gathered
        && (fetch.is_enough(gathered) || wait.is_zero())
    {
        // Those that are gone are looked up again next time.
        let stale = ErrorCode::StaleTopic.number();
        for gone in gathered.found.iter().filter(|found| found.code == stale) {
            partitions.forget(gone.topic_id, gone.partition);
        }
    }
    match gathered {
        Ok(gathered) if fetch.is_enough(&gathered) || wait.is_zero() => {
            fetch.reply(context, gathered, correlation, out);
        }
        gathered => {
            let reply = outbox.begin(Waits::Fetch, correlation, limit);
            let reply = reply.expect("looked at above");
            let context = Arc::clone(context);
            tasks.spawn_local(tail::wait(context, fetch, gathered, wait, reply));
        }
    }
    Ok(())
}

impl Fetch {
    /// Whether the reply need not wait any longer.
    pub(crate) fn is_enough(&self, gathered: &Gathered) -> bool {
        let enough = gathered.bytes >= self.min_bytes.max(1);
        enough || gathered.refused || gathered.cut_short
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// `Cold` if `read` answers that it may have to wait.
    pub(crate) fn gather(
        &self,
        frame_max: usize,
        read: impl Fn(&Partition, u64, usize) -> Option<log_core::Result<Fetched>>,
    ) -> Result<Gathered, Cold> {
        let mut gathered = Gathered::default();
        for source in &self.sources {
            let left = self.max_bytes.saturating_sub(gathered.bytes);
            if left == 0 && gathered.bytes > 0 {
                break;
            }
            let entry = &source.entry;
            let asked = usize::try_from(entry.max_bytes).unwrap_or(usize::MAX);
            let fetched = match self.readable(source) {
                Ok(partition) => match read(partition, entry.from, asked.min(left)) {
                    Some(fetched) => fetched.map_err(|error| engine::refusal_by_id(&error)),
                    None => return Err(Cold),
                },
                Err(refusal) => Err(refusal),
            };
            let fetched = fetched.and_then(|fetched| fits(fetched, frame_max));
            match fetched {
                Ok(fetched) if fetched.bytes.is_empty() => {}
                // One batch is read whatever its size; the next fetch begins with it. To wait for
                // more would be to wait for what is there.
                Ok(fetched) if gathered.bytes > 0 && fetched.bytes.len() > left => {
                    gathered.cut_short = true;
                }
                Ok(fetched) => gathered.add(source, fetched),
                Err(refusal) => gathered.refuse(source, &refusal),
            }
        }
        Ok(gathered)
    }

    /// The partition, if it is there and may be read.
    pub(crate) fn readable<'a>(&self, source: &'a Source) -> Result<&'a Partition, Refusal> {
        if let Some(grants) = &self.grants {
            let FetchPartition { topic_id, partition, epoch, .. } = source.entry;
            grants.check(topic_id, partition, epoch)?;
        }
        let partition = source.partition.as_ref().map_err(Refusal::clone)?;
        // What is left of a topic that was deleted is not shown.
        if partition.is_closed() {
            return Err(engine::refusal_by_id(&Error::Closed { what: "topic" }));
        }
        Ok(partition)
    }

    /// Puts the reply into `out`.
    pub(crate) fn reply(
        &self,
        context: &Context,
        gathered: Gathered,
        correlation: u32,
        out: &mut Outgoing,
    ) {
        let mut partitions = gathered.found;
        if partitions.is_empty() {
            let nothing = |source| entry(source, 0, source.entry.from, bytes::Bytes::new());
            partitions = self.sources.iter().map(nothing).collect();
        }
        for refused in partitions.iter().filter(|found| found.code != ErrorCode::Ok.number()) {
            context.metrics.refusal(refused.code);
        }
        context.metrics.fetched_bytes.add(gathered.bytes as u64);
        let reply = FetchReply { server_time: context.now(), partitions };
        let head = ReplyHead { correlation, code: ErrorCode::Ok.number() };
        out.put(&head.encode(reply.body_bytes()));
        out.put(&reply.encode_head());
        for found in reply.partitions {
            if found.bytes.len() <= COPIED_MAX_BYTES {
                out.put(&found.bytes);
            } else {
                out.put_shared(found.bytes);
            }
        }
    }
}

impl Gathered {
    fn add(&mut self, source: &Source, fetched: Fetched) {
        self.bytes += fetched.bytes.len();
        let more = |partition: &Partition| fetched.next < partition.readable_end();
        self.cut_short |= source.partition.as_ref().is_ok_and(more);
        self.found.push(entry(source, 0, fetched.next, fetched.bytes));
    }

    fn refuse(&mut self, source: &Source, refusal: &Refusal) {
        self.refused = true;
        let bytes = bytes::Bytes::from(refusal.encode());
        if self.refusal_bytes + bytes.len() > REFUSALS_MAX_BYTES {
            // It is told by the next fetch that asks for it, if it is still so.
            return;
        }
        self.refusal_bytes += bytes.len();
        self.found.push(entry(source, refusal.code, source.entry.from, bytes));
    }
}

/// Refuses a batch that no reply can hold.
fn fits(fetched: Fetched, frame_max: usize) -> Result<Fetched, Refusal> {
    let (actual, limit) = (fetched.bytes.len() as u64, frame_max as u64);
    if actual <= limit {
        return Ok(fetched);
    }
    let error =
        Error::TooLarge { what: "batch (raise the server's frame_max_bytes)", actual, limit };
    Err(Refusal::from(&error))
}

fn entry(source: &Source, code: u16, next: u64, bytes: bytes::Bytes) -> FetchedPartition {
    let (log_start, readable_end) = match &source.partition {
        // The end first: the beginning never passes an end that was seen before it.
        Ok(partition) => {
            let readable_end = partition.readable_end();
            (partition.ends().log_start, readable_end)
        }
        Err(_) => (0, 0),
    };
    FetchedPartition {
        topic_id: source.entry.topic_id,
        partition: source.entry.partition,
        code,
        from: source.entry.from,
        next,
        log_start,
        readable_end,
        bytes,
    }
}
