//! The peer raft-engine: an append-only log with group commit and an index in memory.

use std::path::Path;

use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

use super::Peer;
use crate::Outcome;

/// The region for appends that are not synced; those that are have one for each thread.
const REGION: u64 = 1;
const SCAN_ENTRIES: u64 = 1_000;
const INDEX_BYTES: usize = size_of::<u64>();

struct RaftEngine {
    engine: Engine,
    batch: LogBatch,
    next: u64,
}

/// Its entries must say their own index: it goes in front of the message.
struct Indexed;

impl MessageExt for Indexed {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        let index = entry.value.first_chunk().expect("entries are made by `entry`");
        u64::from_le_bytes(*index)
    }
}

pub(super) fn open(dir: &Path) -> Outcome<Box<dyn Peer>> {
    let dir = dir.to_str().ok_or("the directory's name is not UTF-8")?.to_owned();
    // The records do not compress.
    let batch_compression_threshold = ReadableSize(0);
    let config = Config { dir, batch_compression_threshold, ..Config::default() };
    let engine = Engine::open(config)?;
    Ok(Box::new(RaftEngine { engine, batch: LogBatch::default(), next: 1 }))
}

fn entry(index: u64, message: &[u8]) -> BytesValue {
    let mut entry = BytesValue::new();
    entry.value = [&index.to_le_bytes(), message].concat();
    entry
}

impl Peer for RaftEngine {
    fn append(&mut self, messages: &[&[u8]]) -> Outcome<()> {
        let entries = messages.iter().zip(self.next..);
        let entries = entries.map(|(message, index)| entry(index, message)).collect::<Vec<_>>();
        self.batch.add_entries::<Indexed>(REGION, &entries)?;
        self.engine.write(&mut self.batch, false)?;
        self.next += messages.len() as u64;
        Ok(())
    }

    fn append_durably(&self, thread: u64, message: &[u8]) -> Outcome<()> {
        // The entries of a region must follow one another.
        let region = REGION + 1 + thread;
        let index = self.engine.last_index(region).unwrap_or(0) + 1;
        let mut batch = LogBatch::default();
        batch.add_entries::<Indexed>(region, &[entry(index, message)])?;
        self.engine.write(&mut batch, true)?;
        Ok(())
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        let (mut entries, mut next) = (Vec::new(), 1);
        while next < self.next {
            entries.clear();
            let until = self.next.min(next + SCAN_ENTRIES);
            let engine = &self.engine;
            engine.fetch_entries_to::<Indexed>(REGION, next, until, None, &mut entries)?;
            for entry in &entries {
                visit(&entry.value[INDEX_BYTES..]);
            }
            next = until;
        }
        Ok(())
    }

    fn read_each(&self, places: &[u64], visit: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        for &place in places {
            let entry = self.engine.get_entry::<Indexed>(REGION, place + 1)?;
            visit(&entry.ok_or("it is not there")?.value[INDEX_BYTES..]);
        }
        Ok(())
    }
}
