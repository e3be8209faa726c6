//! The area server: produce and consume over loopback, with the server in a process of its own.

use std::iter;
use std::time::Duration;

use benches::servers::exchange::Exchanged;
use benches::servers::{self, Acks, Entry, Produce, raw};
use benches::stopwatch::{Stopwatch, per_second};
use benches::work::Payload;
use benches::{Outcome, controls};
use log_core::record::Record;

use crate::child;
use crate::contest::{CONTROL, Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

pub(super) const MESSAGE_BYTES: usize = 100;
pub(super) const COUNT: u64 = 5_000_000;
const LARGE_MESSAGE_BYTES: usize = 1024;
const LARGE_COUNT: u64 = 1_000_000;
const SYNCED_COUNT: u64 = 2_000_000;
const AT_ONCE: usize = 1_000;
/// What a record takes beside its message: framing, and its share of a batch's header.
const OVERHEAD_BYTES: u64 = 16;
/// What a turn of small requests uses of memory.
const EXCHANGE_BYTES: u64 = 64 << 20;
const EXCHANGE_MILLIS: u64 = 1_500;
const CONNECTIONS: usize = 16;
/// More than elsewhere: the figures of disks and of fresh memory differ much from round to round.
const ROUNDS: usize = 5;

const RECORDS_A_SECOND: &str = "records/s";
const REDIS: Against = Against::Peer("redis");

/// The same records for everybody.
pub(super) struct Work {
    payload: Payload,
    count: u64,
}

impl Work {
    pub(super) fn of(message_bytes: usize, count: u64) -> Work {
        Work { payload: Payload::of_messages(message_bytes), count }
    }

    /// A server's share of it.
    pub(super) fn produce_to(
        &self,
        entry: &Entry,
        server: &mut dyn servers::Server,
    ) -> Outcome<f64> {
        self.produce(self.count_of(entry), server)
    }

    /// All of it, whoever it is.
    pub(super) fn produce_whole(&self, server: &mut dyn servers::Server) -> Outcome<f64> {
        self.produce(self.count, server)
    }

    fn produce(&self, count: u64, server: &mut dyn servers::Server) -> Outcome<f64> {
        let messages = self.payload.messages();
        let work = Produce { messages: &messages, count, at_once: AT_ONCE };
        Ok(per_second(count, server.produce(&work)?))
    }

    pub(super) fn count_of(&self, entry: &Entry) -> u64 {
        self.count / entry.in_batches_in
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.count * (self.payload.record_bytes() as u64 + OVERHEAD_BYTES)
    }

    /// The batches that everything is sent in where there is no server.
    fn batches(&self) -> Vec<Vec<u8>> {
        let messages = self.payload.messages();
        let records = messages.into_iter().map(Record::new).collect::<Vec<_>>();
        records.chunks_exact(AT_ONCE).map(controls::one_batch).collect()
    }

    fn batch_count(&self) -> u64 {
        self.count / AT_ONCE as u64
    }

    fn one_record(&self) -> Vec<u8> {
        controls::one_batch(&[Record::new(self.payload.messages()[0])])
    }
}

/// Ours and the peers that can acknowledge so.
pub(super) fn entrants(
    scene: &Scene,
    acks: Acks,
) -> impl Iterator<Item = (&'static str, &'static Entry)> {
    let peers = scene.servers.iter().map(|entry| (entry.name, *entry));
    let peers = peers.filter(move |(_, entry)| acks == Acks::Written || entry.can_sync);
    iter::once((OURS, &servers::OURS)).chain(peers)
}

/// The same, and ours by way of its client beside them.
pub(super) fn entrants_and_client(
    scene: &Scene,
    acks: Acks,
) -> impl Iterator<Item = (&'static str, &'static Entry)> {
    const BY_CLIENT: &Entry = &servers::BY_CLIENT;
    entrants(scene, acks).chain(iter::once((BY_CLIENT.name, BY_CLIENT)))
}

pub(crate) fn produce(scene: &Scene) -> Outcome<Row> {
    let bars = [Bar::at_least(0.6, Against::Control), Bar::at_least(10.0, REDIS)];
    written(scene, &Work::of(MESSAGE_BYTES, scene.sized(COUNT)), bars)
}

pub(crate) fn produce_a_kibibyte(scene: &Scene) -> Outcome<Row> {
    let bars = [Bar::at_least(0.7, Against::Control), Bar::at_least(6.0, REDIS)];
    written(scene, &Work::of(LARGE_MESSAGE_BYTES, scene.sized(LARGE_COUNT)), bars)
}

/// Beside a process that copies the same batches into a map.
fn written(scene: &Scene, work: &Work, bars: [Bar; 2]) -> Outcome<Row> {
    let batches = work.batches();
    let mut contest = Contest::default();
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        let mut store = raw::Store::start(child::raw_store(dir.path())?)?;
        Ok(vec![per_second(work.count, store.produce(&batches, work.batch_count())?)])
    });
    add_producers(&mut contest, scene, work, Acks::Written);
    let measured = contest.run_rounds(scene, work.memory_bytes(), ROUNDS)?;
    Ok(Row::of(vec![Part::of(&measured, 0, "", RECORDS_A_SECOND, bars.to_vec())]))
}

/// Beside a loop that writes and syncs the same batches, with no server.
pub(crate) fn produce_synced(scene: &Scene) -> Outcome<Row> {
    let work = Work::of(MESSAGE_BYTES, scene.sized(SYNCED_COUNT));
    let batches = work.batches();
    let mut contest = Contest::default();
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        let batch_count = work.batch_count();
        let mut files = controls::BareFiles::create(dir.path(), work.memory_bytes())?;
        let stopwatch = Stopwatch::start();
        for (batch, _) in batches.iter().cycle().zip(0..batch_count) {
            files.append(batch)?;
        }
        Ok(vec![stopwatch.rate(work.count)])
    });
    add_producers(&mut contest, scene, &work, Acks::Synced);
    let measured = contest.run_rounds(scene, work.memory_bytes(), ROUNDS)?;
    let bars = vec![Bar::at_least(0.6, Against::Control), Bar::at_least(8.0, REDIS)];
    Ok(Row::of(vec![Part::of(&measured, 0, "", RECORDS_A_SECOND, bars)]))
}

fn add_producers<'a>(contest: &mut Contest<'a>, scene: &'a Scene, work: &'a Work, acks: Acks) {
    for (name, entry) in entrants_and_client(scene, acks) {
        contest.add(name, move || {
            let dir = scene.fresh_dir()?;
            let mut server = entry.start(dir.path(), acks)?;
            Ok(vec![work.produce_to(entry, &mut *server)?])
        });
    }
}

/// Everything from the start, beside the same bytes from a map and the same walk.
pub(crate) fn consume(scene: &Scene) -> Outcome<Row> {
    let work = Work::of(MESSAGE_BYTES, scene.sized(COUNT));
    let batches = work.batches();
    let mut contest = Contest::default();
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        let mut store = raw::Store::start(child::raw_store(dir.path())?)?;
        store.produce(&batches, work.batch_count())?;
        Ok(vec![per_second(work.count, store.consume(work.count)?)])
    });
    for (name, entry) in entrants(scene, Acks::Written) {
        let work = &work;
        contest.add(name, move || {
            let dir = scene.fresh_dir()?;
            let mut server = entry.start(dir.path(), Acks::Written)?;
            work.produce_to(entry, &mut *server)?;
            let count = work.count_of(entry);
            Ok(vec![per_second(count, server.consume(count)?)])
        });
    }
    let measured = contest.run_rounds(scene, work.memory_bytes(), ROUNDS)?;
    let bars = vec![Bar::at_least(0.6, Against::Control), Bar::at_least(7.0, REDIS)];
    Ok(Row::of(vec![Part::of(&measured, 0, "", RECORDS_A_SECOND, bars)]))
}

/// Sixteen connections with one record in flight each, beside as many that are only answered.
pub(crate) fn sixteen_connections(scene: &Scene) -> Outcome<Row> {
    let batch = Work::of(MESSAGE_BYTES, 1).one_record();
    let time = exchange_time(scene);
    let mut contest = Contest::default();
    contest.add(CONTROL, || {
        let command = child::raw_exchange(CONNECTIONS, raw::frame_bytes(&batch))?;
        figures(raw::exchange(command, CONNECTIONS, &batch, time)?)
    });
    add_exchangers(&mut contest, scene, Acks::Written);
    let measured = contest.run(scene, EXCHANGE_BYTES)?;
    let rate = vec![Bar::at_least(0.5, Against::Control), Bar::at_least(1.1, REDIS)];
    Ok(Row::of(vec![
        Part::of(&measured, 0, "", RECORDS_A_SECOND, rate),
        Part::of(&measured, 1, "p50", "µs", Vec::new()),
        Part::of(&measured, 2, "p99", "µs", vec![Bar::at_most(1.0, REDIS)]),
    ]))
}

/// The same with synced records, beside one connection of ours.
pub(crate) fn sixteen_connections_synced(scene: &Scene) -> Outcome<Row> {
    let mut contest = Contest::default();
    contest.add(CONTROL, || exchanged(scene, &servers::OURS, 1, Acks::Synced));
    add_exchangers(&mut contest, scene, Acks::Synced);
    let measured = contest.run(scene, EXCHANGE_BYTES)?;
    let rate = vec![Bar::at_least(5.0, Against::Control), Bar::at_least(1.2, REDIS)];
    Ok(Row::of(vec![
        Part::of(&measured, 0, "", RECORDS_A_SECOND, rate),
        Part::of(&measured, 1, "p50", "µs", Vec::new()),
        Part::of(&measured, 2, "p99", "µs", Vec::new()),
    ]))
}

fn add_exchangers<'a>(contest: &mut Contest<'a>, scene: &'a Scene, acks: Acks) {
    for (name, entry) in entrants(scene, acks) {
        contest.add(name, move || exchanged(scene, entry, CONNECTIONS, acks));
    }
}

fn exchanged(scene: &Scene, entry: &Entry, connections: usize, acks: Acks) -> Outcome<Vec<f64>> {
    let dir = scene.fresh_dir()?;
    let mut server = entry.start(dir.path(), acks)?;
    let payload = Payload::of_messages(MESSAGE_BYTES);
    figures(server.exchange(connections, payload.messages()[0], exchange_time(scene))?)
}

fn exchange_time(scene: &Scene) -> Duration {
    Duration::from_millis(scene.sized(EXCHANGE_MILLIS))
}

fn figures(exchanged: Exchanged) -> Outcome<Vec<f64>> {
    let percentiles = exchanged.latencies.percentiles()?;
    Ok(vec![exchanged.a_second, percentiles.p50_micros, percentiles.p99_micros])
}

/// What the server spends on five million records, in batches; whoever takes fewer is scaled up.
pub(crate) fn cpu_time(scene: &Scene) -> Outcome<Row> {
    let work = Work::of(MESSAGE_BYTES, scene.sized(COUNT));
    let batches = work.batches();
    let mut contest = Contest::default();
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        let mut store = raw::Store::start(child::raw_store(dir.path())?)?;
        let before = store.process().cpu_time()?;
        store.produce(&batches, work.batch_count())?;
        Ok(vec![of_all(store.process().cpu_time()? - before, work.count)])
    });
    for (name, entry) in entrants(scene, Acks::Written) {
        let work = &work;
        contest.add(name, move || {
            let dir = scene.fresh_dir()?;
            let mut server = entry.start(dir.path(), Acks::Written)?;
            let before = server.process().cpu_time()?;
            work.produce_to(entry, &mut *server)?;
            Ok(vec![of_all(server.process().cpu_time()? - before, work.count_of(entry))])
        });
    }
    let measured = contest.run_rounds(scene, work.memory_bytes(), ROUNDS)?;
    let bars = vec![Bar::at_most(1.5, Against::Control)];
    Ok(Row::of(vec![Part::of(&measured, 0, "", "CPU s/5M records", bars)]))
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn of_all(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * COUNT as f64 / count as f64
}
