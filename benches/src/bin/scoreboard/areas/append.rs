//! The area append: policy Os, one partition, one thread.

use benches::stats::Tail;
use benches::stopwatch::Stopwatch;
use benches::work::{Payload, in_batches};
use benches::{Outcome, controls, engine};

use crate::contest::{CONTROL, Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

const VALUE_BYTES: usize = 100;
const COUNT: u64 = 5_000_000;
const LARGE_VALUE_BYTES: usize = 1024;
const LARGE_COUNT: u64 = 1_000_000;
/// What a record takes beside its value: key and framing, and its share of a batch's header.
const OVERHEAD_BYTES: u64 = 128;

pub(crate) fn one_by_one(scene: &Scene) -> Outcome<Row> {
    let bars = [Bar::at_least(0.5, Against::Control), Bar::at_least(2.5, COMMITLOG)];
    rate(scene, VALUE_BYTES, COUNT, 1, bars)
}

pub(crate) fn hundreds(scene: &Scene) -> Outcome<Row> {
    let bars = [Bar::at_least(0.7, Against::Control), Bar::at_least(1.3, COMMITLOG)];
    rate(scene, VALUE_BYTES, COUNT, 100, bars)
}

pub(crate) fn hundreds_of_a_kibibyte(scene: &Scene) -> Outcome<Row> {
    let bars = [Bar::at_least(0.75, Against::Control), Bar::at_least(0.9, COMMITLOG)];
    rate(scene, LARGE_VALUE_BYTES, LARGE_COUNT, 100, bars)
}

const COMMITLOG: Against = Against::Peer("commitlog");

fn rate(
    scene: &Scene,
    value_bytes: usize,
    count: u64,
    at_once: usize,
    bars: [Bar; 2],
) -> Outcome<Row> {
    let count = scene.sized(count);
    let payload = Payload::of_values(value_bytes);
    let (records, messages) = (payload.records(), payload.messages());
    let mut contest = Contest::default();
    contest.add(OURS, || {
        let dir = scene.fresh_dir()?;
        let (rate, _log) = engine::append(dir.path(), &records, count, at_once)?;
        Ok(vec![rate])
    });
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        let (rate, _log) = controls::append(&dir.path().join("log"), &records, count, at_once)?;
        Ok(vec![rate])
    });
    for peer in scene.peers {
        let messages = &messages;
        contest.add(peer.name, move || {
            let dir = scene.fresh_dir()?;
            let count = count / if at_once == 1 { peer.one_by_one_in } else { peer.in_batches_in };
            let mut log = (peer.open)(dir.path())?;
            let stopwatch = Stopwatch::start();
            in_batches(messages, count, at_once, |batch| log.append(batch))?;
            Ok(vec![stopwatch.rate(count)])
        });
    }
    let measured = contest.run(scene, count * (value_bytes as u64 + OVERHEAD_BYTES))?;
    Ok(Row::of(vec![Part::of(&measured, 0, "", "records/s", bars.to_vec())]))
}

/// How long single appends take at worst.
pub(crate) fn tail(scene: &Scene) -> Outcome<Row> {
    let count = scene.sized(COUNT);
    let calls = usize::try_from(count)?;
    let payload = Payload::of_values(VALUE_BYTES);
    let records = payload.records();
    let mut contest = Contest::default();
    contest.add(OURS, || {
        let dir = scene.fresh_dir()?;
        Ok(figures(engine::append_noting(dir.path(), &records, calls)?))
    });
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        Ok(figures(controls::append_noting(&dir.path().join("log"), &records, calls)?))
    });
    let measured = contest.run(scene, count * (VALUE_BYTES as u64 + OVERHEAD_BYTES))?;
    let part = |index, name, unit| {
        Part::of(&measured, index, name, unit, vec![Bar::at_most(3.0, Against::Control)])
    };
    Ok(Row::of_worst(vec![
        part(0, "p99.99", "µs"),
        part(1, "maximum", "µs"),
        part(2, "over 1 ms", "calls per million"),
    ]))
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn figures(tail: Tail) -> Vec<f64> {
    // None at all would make every ratio infinite: it counts as one.
    let over = tail.calls_over_1_ms.max(1) as f64 * 1e6 / tail.calls as f64;
    vec![tail.p9999_micros, tail.max_micros, over]
}
