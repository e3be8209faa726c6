//! The area sync: policy Sync, one record a call, one thread and many.

use std::sync::Mutex;

use benches::stopwatch::{Stopwatch, per_second};
use benches::threads::on_threads;
use benches::work::{Payload, in_batches};
use benches::{Outcome, controls, engine};
use log_core::config::FlushPolicy;

use crate::contest::{CONTROL, Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

const VALUE_BYTES: usize = 100;
/// Appends of one thread in a round: over half a second of them.
const ALONE: u64 = 5_000;
/// Appends of each of many threads in a round.
const OF_MANY: u64 = 1_500;
/// What a turn uses of memory.
const TURN_BYTES: u64 = 16 << 20;

const RECORDS_A_SECOND: &str = "records/s";

/// One thread, beside bare writes and syncs.
pub(crate) fn one_thread(scene: &Scene) -> Outcome<Row> {
    let count = scene.sized(ALONE);
    let payload = Payload::of_values(VALUE_BYTES);
    let mut contest = Contest::default();
    contest.add(OURS, || Ok(vec![ours_alone(scene, &payload, count)?]));
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        let mut file = controls::BareFile::create(&dir.path().join("log"))?;
        let batch = controls::one_batch(&payload.records()[..1]);
        let stopwatch = Stopwatch::start();
        for _ in 0..count {
            file.append(&batch)?;
        }
        Ok(vec![stopwatch.rate(count)])
    });
    add_peers(&mut contest, scene, &payload, 1, count);
    let measured = contest.run(scene, TURN_BYTES)?;
    let bars = vec![Bar::at_least(0.85, Against::Control)];
    Ok(Row::of(vec![Part::of(&measured, 0, "", RECORDS_A_SECOND, bars)]))
}

/// Sixteen threads, beside one of ours.
pub(crate) fn sixteen_threads(scene: &Scene) -> Outcome<Row> {
    let rate = vec![Bar::at_least(1.0, Against::Peer("raft-engine"))];
    let shared = vec![Bar::at_least(12.0, Against::Nothing)];
    threads_beside_one(scene, 16, rate, shared)
}

/// Sixty-four threads, beside one of ours.
pub(crate) fn sixty_four_threads(scene: &Scene) -> Outcome<Row> {
    threads_beside_one(scene, 64, vec![Bar::at_least(12.0, Against::Control)], Vec::new())
}

fn threads_beside_one(
    scene: &Scene,
    threads: usize,
    rate: Vec<Bar>,
    shared: Vec<Bar>,
) -> Outcome<Row> {
    let each = scene.sized(OF_MANY);
    let payload = Payload::of_values(VALUE_BYTES);
    let mut contest = Contest::default();
    contest.add(OURS, || {
        let dir = scene.fresh_dir()?;
        let log =
            engine::Log::create(dir.path(), FlushPolicy::Sync, engine::default_segment_bytes(), 1)?;
        let syncs = log.syncs();
        let records = payload.records();
        let append = |_| in_batches(&records, each, 1, |record| log.append(0, record));
        let took = on_threads(threads, append)?;
        let count = each * threads as u64;
        Ok(vec![per_second(count, took), ratio(count, log.syncs() - syncs)])
    });
    contest.add(CONTROL, || Ok(vec![ours_alone(scene, &payload, scene.sized(ALONE))?]));
    add_peers(&mut contest, scene, &payload, threads, each);
    let measured = contest.run(scene, TURN_BYTES)?;
    Ok(Row::of(vec![
        Part::of(&measured, 0, "", RECORDS_A_SECOND, rate),
        Part::of(&measured, 1, "shared", "records/sync", shared),
    ]))
}

/// Sixteen partitions with a thread each, beside as many bare files.
pub(crate) fn sixteen_partitions(scene: &Scene) -> Outcome<Row> {
    const PARTITIONS: usize = 16;
    let each = scene.sized(OF_MANY);
    let count = each * PARTITIONS as u64;
    let payload = Payload::of_values(VALUE_BYTES);
    let records = payload.records();
    let mut contest = Contest::default();
    contest.add(OURS, || {
        let dir = scene.fresh_dir()?;
        let partitions = u32::try_from(PARTITIONS)?;
        let log = engine::Log::create(
            dir.path(),
            FlushPolicy::Sync,
            engine::default_segment_bytes(),
            partitions,
        )?;
        let append = |number| in_batches(&records, each, 1, |record| log.append(number, record));
        Ok(vec![per_second(count, on_threads(PARTITIONS, append)?)])
    });
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        let create = |number: usize| {
            let file = controls::BareFile::create(&dir.path().join(number.to_string()))?;
            Outcome::Ok(Mutex::new(file))
        };
        let files = (0..PARTITIONS).map(create).collect::<Outcome<Vec<_>>>()?;
        let batch = controls::one_batch(&records[..1]);
        let append = |number: usize| {
            let mut file = files[number].lock().expect("no thread panicked");
            (0..each).try_for_each(|_| file.append(&batch))
        };
        Ok(vec![per_second(count, on_threads(PARTITIONS, append)?)])
    });
    let measured = contest.run(scene, TURN_BYTES)?;
    let bars = vec![Bar::at_least(0.8, Against::Control)];
    Ok(Row::of(vec![Part::of(&measured, 0, "", RECORDS_A_SECOND, bars)]))
}

fn ours_alone(scene: &Scene, payload: &Payload, count: u64) -> Outcome<f64> {
    let dir = scene.fresh_dir()?;
    let log =
        engine::Log::create(dir.path(), FlushPolicy::Sync, engine::default_segment_bytes(), 1)?;
    let records = payload.records();
    let stopwatch = Stopwatch::start();
    in_batches(&records, count, 1, |record| log.append(0, record))?;
    Ok(stopwatch.rate(count))
}

fn add_peers<'a>(
    contest: &mut Contest<'a>,
    scene: &'a Scene,
    payload: &'a Payload,
    threads: usize,
    each: u64,
) {
    for peer in scene.peers.iter().filter(|peer| peer.is_durable) {
        contest.add(peer.name, move || {
            let dir = scene.fresh_dir()?;
            let log = (peer.open)(dir.path())?;
            let messages = payload.messages();
            let took = on_threads(threads, |number| {
                in_batches(&messages, each, 1, |message| {
                    log.append_durably(number as u64, message[0])
                })
            })?;
            Ok(vec![per_second(each * threads as u64, took)])
        });
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of as f64
}
