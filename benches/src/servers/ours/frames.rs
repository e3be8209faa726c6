//! In frames: the same small clients on bare connections that the peers are measured with.

use std::net::SocketAddr;
use std::time::Duration;

use log_core::protocol::decode_body;
use log_core::protocol::fetch::{FETCH_VERSION, FetchPartition, FetchReply, FetchRequest};
use log_core::protocol::frame::FRAME_HEAD_BYTES;
use log_core::protocol::{Refusal, RequestKind};
use log_core::record::{BatchView, Record};

use super::{Ours, Pace, Sender, Tail, batch_of, greeted, paced, reply_len, request};
use crate::Outcome;
use crate::servers::{Produce, WINDOW};
use crate::stats::Latencies;
use crate::wire::{Pipeline, Wire, pipelined};

/// How much a fetch asks for, as log-client does.
const FETCH_BYTES: u32 = 1 << 20;
/// How long one may wait.
const WAIT_MILLIS: u32 = 10_000;

pub(super) fn produce(ours: &Ours, work: &Produce<'_>) -> Outcome<Duration> {
    let batches = work.messages.chunks_exact(work.at_once).map(|batch| {
        let records = batch.iter().map(|message| Record::new(message)).collect::<Vec<_>>();
        ours.produce_frame(&batch_of(&records))
    });
    let frames = batches.collect::<Vec<_>>();
    let count = work.count / work.at_once as u64;
    let work = Pipeline { frames: &frames, count, replies: 1, reply_len, window: WINDOW };
    pipelined(&mut greeted(ours.address)?, &work)
}

pub(super) fn end_to_end(ours: &Ours, pace: Pace, message_bytes: usize) -> Outcome<Latencies> {
    let mut adder = Adder { wire: greeted(ours.address)?, ours };
    let mut reader = Reader::connect(ours.address, ours.topic_id)?;
    paced(pace, message_bytes, &mut adder, &mut reader)
}

/// Reads the partition from its start, and waits at its end.
pub(super) struct Reader {
    wire: Wire,
    topic_id: u128,
    /// Where the next request starts, if its reply brings all that it asks for.
    from: u64,
    asked: usize,
}

impl Reader {
    pub(super) fn connect(address: SocketAddr, topic_id: u128) -> Outcome<Reader> {
        Ok(Reader { wire: greeted(address)?, topic_id, from: 0, asked: 0 })
    }

    fn ask(&mut self) -> Outcome<()> {
        let partition = FetchPartition {
            topic_id: self.topic_id,
            partition: 0,
            max_bytes: FETCH_BYTES,
            from: self.from,
            epoch: 0,
        };
        let fetch = FetchRequest {
            max_bytes: FETCH_BYTES,
            min_bytes: 1,
            max_wait: WAIT_MILLIS,
            reader: None,
            partitions: vec![partition],
        };
        self.wire.send(&request(RequestKind::Fetch, FETCH_VERSION, &[&fetch.encode()]))?;
        self.asked += 1;
        Ok(())
    }
}

impl Tail for Reader {
    fn wait(&mut self, seen: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        if self.asked == 0 {
            self.ask()?;
        }
        let len = self.wire.reply(reply_len)?;
        self.asked -= 1;
        let body = bytes::Bytes::copy_from_slice(&self.wire.received()[FRAME_HEAD_BYTES..len]);
        self.wire.take(len);
        let reply = FetchReply::decode(body)?;
        let found = reply.partitions.first().ok_or("no partition in the reply")?;
        if found.code != 0 {
            return Err(decode_body::<Refusal>(&found.bytes)?.into());
        }
        if found.bytes.is_empty() {
            return Err("the partition has no more records".into());
        }
        self.from = found.next;
        self.ask()?;
        let mut rest = &found.bytes[..];
        while !rest.is_empty() {
            let (batch, after) = BatchView::parse(rest)?;
            rest = after;
            if batch.header.is_marker() {
                continue;
            }
            batch.check_body()?;
            for record in batch.open(0)?.records() {
                let record = record?;
                if record.offset >= found.from {
                    seen(record.value.unwrap_or_default());
                }
            }
        }
        Ok(())
    }
}

/// Appends one record at a time.
struct Adder<'a> {
    wire: Wire,
    ours: &'a Ours,
}

impl Sender for Adder<'_> {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        let frame = self.ours.produce_frame(&batch_of(&[Record::new(message)]));
        self.wire.send(&frame)?;
        self.wire.take_replies_that_are_there(reply_len)?;
        Ok(())
    }
}
