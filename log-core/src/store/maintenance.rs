//! Maintenance: what is due on each partition, all the time, on a thread of its own.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle, current};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Shared;
use crate::error::Result;
use crate::name::TopicName;
use crate::partition::{Maintained, Partition};

/// What maintenance did to a partition.
#[derive(Debug, Clone)]
pub struct PartitionMaintenance {
    /// Its topic.
    pub topic: TopicName,
    /// Its number.
    pub partition: u32,
    /// What was done, or what failed; it is tried again.
    pub outcome: Result<Maintained>,
}

/// The thread, if the store has threads.
pub(super) struct MaintenanceThread {
    stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl MaintenanceThread {
    pub(super) fn start(shared: &Arc<Shared>) -> MaintenanceThread {
        let stop = Arc::new(Stop::default());
        let runs = shared.context.background.has_threads() && !shared.read_only;
        let thread = runs.then(|| {
            let (stop, shared) = (Arc::clone(&stop), Arc::clone(shared));
            Builder::new().name("log-core-maintain".to_owned()).spawn(move || run(&shared, &stop))
        });
        // Where no thread can be had, the owner's own calls of `maintain` remain.
        MaintenanceThread { stop, thread: Mutex::new(thread.and_then(std::io::Result::ok)) }
    }

    /// Ends the thread, and waits for what it is doing.
    pub(super) fn stop(&self) {
        *self.stop.stopped.lock() = true;
        self.stop.changed.notify_all();
        // The last handle of a store may go on this very thread.
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Stop {
    /// Waits; `true` if it is time to end.
    fn wait(&self, timeout: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, timeout);
        }
        *stopped
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.lock()
    }
}

/// All partitions every `maintenance_every`; those that want it sooner, sooner.
fn run(shared: &Shared, stop: &Stop) {
    let every = shared.config.maintenance_every;
    let mut next_round = shared.context.clock.monotonic() + every;
    loop {
        let soonest = shared.partitions_in_use().iter().filter_map(Partition::tick).min();
        let until_round = next_round.saturating_sub(shared.context.clock.monotonic());
        if stop.wait(soonest.map_or(until_round, |tick| tick.min(until_round))) {
            return;
        }
        let now = shared.context.clock.monotonic();
        let is_round = now >= next_round;
        if is_round {
            next_round = now + every;
            shared.sweep_and_snapshot();
        }
        for partition in shared.partitions_in_use() {
            if stop.is_stopped() {
                return;
            }
            if is_round || partition.tick().is_some() {
                let _ = shared.count(partition.maintain());
            }
        }
    }
}

impl Shared {
    pub(super) fn maintain_all(&self) -> Vec<PartitionMaintenance> {
        if self.read_only || self.is_closed() {
            return Vec::new();
        }
        let mut done = Vec::new();
        for topic in self.all_topics() {
            for (partition, open) in topic.open_partitions() {
                let outcome = self.count(open.maintain());
                done.push(PartitionMaintenance { topic: topic.name.clone(), partition, outcome });
            }
        }
        self.sweep_and_snapshot();
        done
    }

    pub(super) fn partitions_in_use(&self) -> Vec<Partition> {
        let topics = self.all_topics();
        let open = topics.iter().flat_map(|topic| topic.open_partitions());
        open.map(|(_, partition)| partition).collect()
    }

    fn sweep_and_snapshot(&self) {
        for done in [self.sweep(), self.snapshot_offsets_if_due()] {
            if done.is_err() {
                self.context.metrics.maintenance_failures.add(1);
            }
        }
    }

    fn count(&self, outcome: Result<Maintained>) -> Result<Maintained> {
        // One that was closed or deleted meanwhile has not failed.
        outcome.inspect_err(|error| {
            if !matches!(error, crate::error::Error::Closed { .. }) {
                self.context.metrics.maintenance_failures.add(1);
            }
        })
    }
}
