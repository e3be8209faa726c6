//! What tests of a partition on a simulated disk share: the bench, numbers from seeds, settings.

pub(crate) mod damaged;
pub(crate) mod log;
pub(crate) mod oracle;
pub(crate) mod reading;
pub(crate) mod stores;

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use log_core::background::Background;
use log_core::clock::{Clock, ManualClock, Timestamp};
use log_core::config::{FlushPolicy, TopicConfig};
use log_core::disk::{Disk, FaultyDisk};
use log_core::error::Result;
use log_core::metrics::Metrics;
use log_core::partition::{Access, Partition, PartitionContext, PartitionId};
use log_core::segment::SealedMaps;

/// Where the partition of a bench is.
pub(crate) const DIR: &str = "/p";
/// The smallest segments: they roll often.
pub(crate) const SEGMENT_BYTES: u64 = 64 * 1024;
/// The window of `Interval` in these tests.
pub(crate) const WINDOW: FlushPolicy =
    FlushPolicy::Interval { every: Duration::from_millis(200), bytes: 16 * 1024 };
/// All policies.
pub(crate) const POLICIES: [FlushPolicy; 3] = [FlushPolicy::Sync, FlushPolicy::Os, WINDOW];

/// A simulated disk and what else a partition needs: one life of a process.
pub(crate) struct Bench {
    pub(crate) disk: FaultyDisk,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) background: Background,
    pub(crate) context: PartitionContext,
    pub(crate) config: TopicConfig,
}

impl Bench {
    /// A process that finds this disk.
    pub(crate) fn on(disk: FaultyDisk, clock: Arc<ManualClock>, config: TopicConfig) -> Bench {
        let metrics = Arc::new(Metrics::default());
        let background = Background::manual();
        let context = PartitionContext {
            disk: Arc::new(disk.clone()),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            background: background.clone(),
            maps: SealedMaps::new(4, Arc::clone(&metrics)),
            metrics,
            linger: Duration::ZERO,
        };
        Bench { disk, clock, background, context, config }
    }

    /// A process on a new disk with an empty partition.
    pub(crate) fn new(flush: FlushPolicy) -> Bench {
        let disk = FaultyDisk::new();
        disk.set_file_capacity(256 * 1024);
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        let bench = Bench::on(disk, clock, config(flush));
        bench.create().expect("a disk without faults");
        bench
    }

    /// Makes the partition, as a store does.
    pub(crate) fn create(&self) -> Result<()> {
        Partition::create(&self.context, Path::new(DIR), id())?;
        self.disk.sync_dir(Path::new("/"))
    }

    /// Opens the partition to append and read.
    pub(crate) fn open(&self) -> Result<Partition> {
        self.open_as(Access::ReadWrite)
    }

    pub(crate) fn open_as(&self, access: Access) -> Result<Partition> {
        Partition::open(&self.context, Path::new(DIR), id(), self.config.clone(), access)
    }

    /// The next process, which finds this disk.
    pub(crate) fn next(&self, disk: FaultyDisk) -> Bench {
        Bench::on(disk, Arc::clone(&self.clock), self.config.clone())
    }

    /// The files of the partition whose name ends like this, sorted.
    pub(crate) fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let ends = |path: &PathBuf| path.to_string_lossy().ends_with(suffix);
        self.disk.paths().into_iter().filter(ends).collect()
    }
}

pub(crate) fn id() -> PartitionId {
    PartitionId { topic_id: 7, topic: "orders".into(), partition: 3 }
}

pub(crate) fn config(flush: FlushPolicy) -> TopicConfig {
    TopicConfig { flush, segment_max_bytes: SEGMENT_BYTES, ..TopicConfig::default() }
}

/// Numbers that a seed determines (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Whether something happens that does so in that many of a hundred cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let at = usize::try_from(self.below(from.len() as u64)).expect("an index");
        from[at]
    }
}

/// A number from the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")),
        Err(_) => default,
    }
}

/// The seed to replay, if one is asked for.
pub(crate) fn replayed_seed() -> Option<u64> {
    env::var("LOG_SEED").is_ok().then(|| setting("LOG_SEED", 0))
}

/// Tells a count, past the test runner, which swallows what tests print.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
