//! Criterion bench of the area sync: one thread, policy Sync, beside bare writes and syncs.

use benches::work::Payload;
use benches::{controls, engine};
use criterion::Criterion;
use log_core::config::FlushPolicy;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let payload = Payload::of_values(100);
    let records = payload.records();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (ours_dir, control_path) = (dir.path().join("ours"), dir.path().join("control"));
    std::fs::create_dir(&ours_dir).expect("a directory");
    let segment_bytes = engine::default_segment_bytes();
    let ours = engine::Log::create(&ours_dir, FlushPolicy::Sync, segment_bytes, 1).expect("a log");
    let mut control = controls::BareFile::create(&control_path).expect("room for a file");
    let batch = controls::one_batch(&records[..1]);

    let mut group = criterion.benchmark_group("sync-1");
    group.bench_function("ours", |bencher| {
        bencher.iter(|| ours.append(0, &records[..1]).expect("room for a record"));
    });
    group.bench_function("control", |bencher| {
        bencher.iter(|| control.append(&batch).expect("room for a record"));
    });
    group.finish();
    criterion.final_summary();
}
