//! The area latency: one record a send at a pace, from when it is due until a waiting consumer sees it.

use benches::Outcome;
use benches::servers::paced::Pace;
use benches::servers::{Acks, raw};
use benches::stats::Latencies;

use super::server::{MESSAGE_BYTES, entrants_and_client};
use crate::child;
use crate::contest::{CONTROL, Contest};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

/// More than elsewhere: rounds differ in which cores the two processes meet on.
const ROUNDS: usize = 9;
const QUICK_ROUNDS: usize = 3;
/// How many seconds of records are noted in a round, and which part of that comes before.
const SECONDS: u64 = 1;
const WARM_PART: u64 = 5;
/// What a turn uses of memory.
const TURN_BYTES: u64 = 16 << 20;

const REDIS: Against = Against::Peer("redis");
const NATS: Against = Against::Peer("nats");

pub(crate) fn a_thousand_a_second(scene: &Scene) -> Outcome<Row> {
    let p50 = vec![Bar::at_most(2.0, Against::Control), Bar::at_most(1.25, REDIS)];
    end_to_end(scene, 1_000, p50, vec![Bar::at_most(2.0, Against::Control)])
}

pub(crate) fn twenty_thousand_a_second(scene: &Scene) -> Outcome<Row> {
    end_to_end(scene, 20_000, vec![Bar::at_most(1.25, REDIS)], vec![Bar::at_most(0.5, NATS)])
}

fn end_to_end(scene: &Scene, a_second: u64, p50: Vec<Bar>, p99: Vec<Bar>) -> Outcome<Row> {
    let count = a_second * SECONDS;
    let pace = Pace { a_second, warm: count / WARM_PART, count };
    let mut contest = Contest::default();
    contest.add(CONTROL, move || {
        figures(raw::end_to_end(child::raw_relay(MESSAGE_BYTES)?, pace, MESSAGE_BYTES)?)
    });
    for (name, entry) in entrants_and_client(scene, Acks::Written) {
        contest.add(name, move || {
            let dir = scene.fresh_dir()?;
            let mut server = entry.start(dir.path(), Acks::Written)?;
            figures(server.end_to_end(pace, MESSAGE_BYTES)?)
        });
    }
    let rounds = if scene.is_quick() { QUICK_ROUNDS } else { ROUNDS };
    let measured = contest.run_rounds(scene, TURN_BYTES, rounds)?;
    Ok(Row::of(vec![
        Part::of(&measured, 0, "p50", "µs", p50),
        Part::of(&measured, 1, "p99", "µs", p99),
    ]))
}

fn figures(latencies: Latencies) -> Outcome<Vec<f64>> {
    let percentiles = latencies.percentiles()?;
    Ok(vec![percentiles.p50_micros, percentiles.p99_micros])
}
