//! Criterion bench of the area read: batches of 100, in the page cache, beside its control.

use benches::work::{Payload, Random};
use benches::{controls, engine};
use criterion::{Criterion, Throughput};

const RECORDS: u64 = 1_000_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let payload = Payload::of_values(100);
    let records = payload.records();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (ours_dir, control_path) = (dir.path().join("ours"), dir.path().join("control"));
    std::fs::create_dir(&ours_dir).expect("a directory");
    let (_, ours) = engine::append(&ours_dir, &records, RECORDS, 100).expect("room for a log");
    let (_, control) =
        controls::append(&control_path, &records, RECORDS, 100).expect("room for a log");

    let mut group = criterion.benchmark_group("read-scan");
    group.throughput(Throughput::Elements(RECORDS));
    group.bench_function("ours", |bencher| bencher.iter(|| ours.scan().expect("whole")));
    group.bench_function("control", |bencher| {
        bencher.iter(|| controls::scan(&control).expect("whole"));
    });
    group.finish();

    let mut random = Random::new(88_172_645_463_325_252);
    criterion.bench_function("read-random/ours", |bencher| {
        bencher.iter(|| ours.read_one(random.next_number() % RECORDS).expect("there"));
    });
    criterion.final_summary();
}
