//! Sealing: what a segment says of its successor is true whenever the power goes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use log_core::background::Background;
use log_core::clock::{Clock, SystemClock};
use log_core::config::{FlushPolicy, TopicConfig};
use log_core::disk::{CrashMode, Disk, FaultyDisk};
use log_core::metrics::Metrics;
use log_core::partition::{Access, Partition, PartitionContext, PartitionId};
use log_core::record::Record;
use log_core::segment::SealedMaps;

use crate::system::tell;

const DIR: &str = "/p";
const CUTS: u64 = 120;

fn context(disk: &FaultyDisk, background: Background) -> PartitionContext {
    let metrics = Arc::new(Metrics::default());
    PartitionContext {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(SystemClock::new()) as Arc<dyn Clock>,
        background,
        maps: SealedMaps::new(16, Arc::clone(&metrics)),
        metrics,
        linger: Duration::ZERO,
    }
}

fn id() -> PartitionId {
    PartitionId { topic_id: 7, topic: "orders".into(), partition: 0 }
}

/// Ends the load, also where a cut has found something.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A real power cut had found it: a roll that came while the background sealed the segment before
/// added a successor which that seal had not synced, and which it vouched for all the same. So a
/// power cut under `Os` left a partition whose end could not be proven.
#[test]
fn a_segment_begun_during_a_seal_is_not_vouched_for_before_it_is_synced() {
    let disk = FaultyDisk::new();
    disk.set_file_capacity(128 * 1024);
    let background = Background::threads(2);
    let context_now = context(&disk, background.clone());
    let config = TopicConfig {
        flush: FlushPolicy::Os,
        segment_max_bytes: 64 * 1024,
        ..TopicConfig::default()
    };
    Partition::create(&context_now, Path::new(DIR), id()).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let open = |context: &PartitionContext| {
        Partition::open(context, Path::new(DIR), id(), config.clone(), Access::ReadWrite).unwrap()
    };
    let partition = open(&context_now);
    let stop = AtomicBool::new(false);
    let mut rolled = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let value = vec![7; 20_000];
            while !stop.load(Ordering::Relaxed) {
                let end = partition.append(&[Record::new(&value)]).unwrap().end;
                if end % 64 == 0 {
                    partition.trim(end - 8).unwrap();
                }
            }
        });
        let _stopper = Stopper(&stop);
        for seed in 0..CUTS {
            let after = disk.crash(seed, CrashMode::LoseData);
            let found = open(&context(&after, Background::manual()));
            let report = found.recovery_report();
            assert!(!report.needs_attention(), "cut {seed}: {report:?}");
        }
        rolled = context_now.metrics.segments_rolled.value();
    });
    background.close();
    tell(&format!("sealing: {CUTS} cuts while {rolled} segments rolled"));
}
