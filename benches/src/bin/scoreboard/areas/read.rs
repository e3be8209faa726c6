//! The area read: policy Os, everything in the page cache.

use std::hint::black_box;

use benches::peers::{Entry, Peer};
use benches::stopwatch::Stopwatch;
use benches::work::{Payload, Random, in_batches};
use benches::{Outcome, controls, engine};
use log_core::config::FlushPolicy;
use log_core::record::BATCH_HEADER_BYTES;
use tempfile::TempDir;

use crate::contest::{CONTROL, Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

const VALUE_BYTES: usize = 100;
const AT_ONCE: usize = 100;
const SCAN_COUNT: u64 = 5_000_000;
/// Framing of a record with a key of 8 bytes and a value of 100.
const FRAMING_BYTES: u64 = 9;

const RANDOM_LOG_BYTES: u64 = 1 << 30;
const RANDOM_READS: u64 = 1_000_000;
/// Peers whose reads are slower get fewer of them.
const PEER_READS: usize = 200_000;
/// As large as a segment may be.
const ONE_SEGMENT_BYTES: u64 = 2 << 30;
/// What a turn of reading uses of memory: next to nothing.
const TURN_BYTES: u64 = 1 << 20;

/// Every record, from the first on.
pub(crate) fn scan(scene: &Scene) -> Outcome<Row> {
    let count = scene.sized(SCAN_COUNT);
    let payload = Payload::of_values(VALUE_BYTES);
    let (records, messages) = (payload.records(), payload.messages());
    let (ours_dir, control_dir) = (scene.fresh_dir()?, scene.fresh_dir()?);
    let (_, ours) = engine::append(ours_dir.path(), &records, count, AT_ONCE)?;
    let (_, control) = controls::append(&control_dir.path().join("log"), &records, count, AT_ONCE)?;
    let peers = peers_with(scene, &messages, count)?;
    let value_bytes = count * VALUE_BYTES as u64;
    let timed = |scan: &dyn Fn() -> Outcome<u64>| {
        let stopwatch = Stopwatch::start();
        let found = scan()?;
        let rate = stopwatch.rate(count);
        if found != value_bytes {
            return Err(format!("{found} bytes of values were read of {value_bytes}").into());
        }
        Outcome::Ok(vec![rate])
    };
    // Once before the clock runs: pages are mapped then.
    ours.scan()?;
    controls::scan(&control)?;
    let mut contest = Contest::default();
    contest.add(OURS, || timed(&|| ours.scan()));
    contest.add(CONTROL, || timed(&|| controls::scan(&control)));
    for (entry, peer, _dir) in &peers {
        contest.add(entry.name, move || {
            let mut seen = 0;
            let stopwatch = Stopwatch::start();
            peer.scan(&mut |message| {
                black_box(message);
                seen += 1;
            })?;
            Ok(vec![stopwatch.rate(seen)])
        });
    }
    let measured = contest.run(scene, TURN_BYTES)?;
    let bars =
        vec![Bar::at_least(0.85, Against::Control), Bar::at_least(1.0, Against::Peer("commitlog"))];
    Ok(Row::of(vec![Part::of(&measured, 0, "", "records/s", bars)]))
}

/// One record at a time, anywhere, in a log of one segment and in one of a hundred.
pub(crate) fn random(scene: &Scene) -> Outcome<Row> {
    let payload = Payload::of_values(VALUE_BYTES);
    let (records, messages) = (payload.records(), payload.messages());
    let record_bytes = payload.record_bytes() as u64 + FRAMING_BYTES;
    let batch_bytes = BATCH_HEADER_BYTES as u64 + AT_ONCE as u64 * record_bytes;
    let log_bytes = scene.sized(RANDOM_LOG_BYTES);
    let count = log_bytes / batch_bytes * AT_ONCE as u64;
    let filled = |dir: &TempDir, segment_bytes| {
        let log = engine::Log::create(dir.path(), FlushPolicy::Os, segment_bytes, 1)?;
        in_batches(&records, count, AT_ONCE, |batch| log.append(0, batch))?;
        Outcome::Ok(log)
    };
    let (one_dir, hundred_dir) = (scene.fresh_dir()?, scene.fresh_dir()?);
    let control_dir = scene.fresh_dir()?;
    let one = filled(&one_dir, ONE_SEGMENT_BYTES)?;
    let hundred = filled(&hundred_dir, log_bytes / 100)?;
    let (_, control) = controls::append(&control_dir.path().join("log"), &records, count, AT_ONCE)?;
    let positions = positions(&control)?;
    let peers = peers_with(scene, &messages, count)?;

    let reads = usize::try_from(scene.sized(RANDOM_READS))?;
    let offsets = Random::new(88_172_645_463_325_252).numbers_within(&(0..count), reads);
    let by_position = |offset: u64| {
        let batch = usize::try_from(offset / AT_ONCE as u64)?;
        controls::read_one(&control, positions[batch], offset)
    };
    let mut contest = Contest::default();
    contest.add(OURS, || {
        let rate = |log: &engine::Log| rate_of(&offsets, |offset| log.read_one(offset));
        let (one, hundred) = (rate(&one)?, rate(&hundred)?);
        Ok(vec![one, hundred, one / hundred])
    });
    contest.add(CONTROL, || {
        let rate = rate_of(&offsets, by_position)?;
        Ok(vec![rate, rate])
    });
    for (entry, peer, _dir) in &peers {
        let offsets = &offsets;
        contest.add(entry.name, move || {
            let places = &offsets[..offsets.len().min(PEER_READS)];
            let stopwatch = Stopwatch::start();
            peer.read_each(places, &mut |message| {
                black_box(message);
            })?;
            let rate = stopwatch.rate(places.len() as u64);
            Ok(vec![rate, rate])
        });
    }
    let measured = contest.run(scene, TURN_BYTES)?;
    let part = |index, name, unit, bar| Part::of(&measured, index, name, unit, vec![bar]);
    let as_redb = Bar::at_least(1.0, Against::Peer("redb"));
    Ok(Row::of(vec![
        part(0, "1 segment", "reads/s", as_redb),
        part(1, "100 segments", "reads/s", as_redb),
        part(2, "1 to 100 segments", "times", Bar::at_most(2.0, Against::Nothing)),
    ]))
}

fn rate_of(offsets: &[u64], read: impl Fn(u64) -> Outcome<usize>) -> Outcome<f64> {
    let stopwatch = Stopwatch::start();
    for &offset in offsets {
        if read(offset)? != VALUE_BYTES {
            return Err(format!("the value at offset {offset} has another length").into());
        }
    }
    Ok(stopwatch.rate(offsets.len() as u64))
}

/// Where each batch of the control's log begins.
fn positions(log: &controls::BareLog) -> Outcome<Vec<usize>> {
    let (mut positions, mut rest) = (Vec::new(), log.bytes());
    while !rest.is_empty() {
        positions.push(log.bytes().len() - rest.len());
        (_, rest) = log_core::record::BatchView::parse(rest)?;
    }
    Ok(positions)
}

type Filled = (&'static Entry, Box<dyn Peer>, TempDir);

/// The peers, with the messages in them.
fn peers_with(scene: &Scene, messages: &[&[u8]], count: u64) -> Outcome<Vec<Filled>> {
    let filled = scene.peers.iter().map(|entry| {
        let dir = scene.fresh_dir()?;
        let mut peer = (entry.open)(dir.path())?;
        in_batches(messages, count, AT_ONCE, |batch| peer.append(batch))?;
        Ok((entry, peer, dir))
    });
    filled.collect()
}
