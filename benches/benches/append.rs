//! Criterion bench of the area append: policy Os, one partition, beside its control.

use std::path::Path;
use std::time::Duration;

use benches::work::Payload;
use benches::{Outcome, controls, engine};
use criterion::{Criterion, Throughput};

/// Criterion asks for millions of records at a time; a log takes so many, then comes a fresh one.
const LOG_RECORDS: u64 = 500_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let payload = Payload::of_values(100);
    let records = payload.records();
    for at_once in [1, 100] {
        let mut group = criterion.benchmark_group(format!("append-{at_once}"));
        group.throughput(Throughput::Elements(1));
        group.bench_function("ours", |bencher| {
            let append = |dir: &Path, count| Ok(engine::append(dir, &records, count, at_once)?.0);
            bencher.iter_custom(|count| in_fresh_logs(count, append));
        });
        group.bench_function("control", |bencher| {
            let append = |dir: &Path, count| {
                Ok(controls::append(&dir.join("log"), &records, count, at_once)?.0)
            };
            bencher.iter_custom(|count| in_fresh_logs(count, append));
        });
    }
    criterion.final_summary();
}

/// How long it takes to append `count` records, by a function that returns how many went in a
/// second.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn in_fresh_logs(count: u64, append: impl Fn(&Path, u64) -> Outcome<f64>) -> Duration {
    let (mut left, mut took) = (count, Duration::ZERO);
    while left > 0 {
        let some = left.min(LOG_RECORDS);
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let rate = append(dir.path(), some).expect("room for a log");
        took += Duration::from_secs_f64(some as f64 / rate);
        left -= some;
    }
    took
}
