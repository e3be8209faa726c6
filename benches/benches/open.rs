//! Criterion bench of the area open: a store of a hundred partitions, cleanly closed.

use benches::engine;
use criterion::Criterion;
use log_core::config::FlushPolicy;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let log = engine::Log::create(dir.path(), FlushPolicy::Sync, 1 << 20, 100).expect("a store");
    log.close().expect("a clean stop");
    criterion.bench_function("open-100/ours", |bencher| {
        bencher.iter_with_large_drop(|| {
            let log = engine::Log::open(dir.path()).expect("a store");
            log.close().expect("a clean stop");
        });
    });
    criterion.final_summary();
}
