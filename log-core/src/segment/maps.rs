//! SealedMaps: how many sealed segments are mapped at once, over all partitions of a store.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Segment;
use crate::metrics::Metrics;

/// Keeps the number of maps of sealed segments under a cap, letting go of those that were not
/// read lately (second chance). What readers hold lives on until they let go.
#[derive(Debug)]
pub struct SealedMaps {
    max: usize,
    metrics: Arc<Metrics>,
    mapped: Mutex<VecDeque<Weak<Segment>>>,
}

impl SealedMaps {
    /// At most `max` maps.
    #[must_use]
    pub fn new(max: usize, metrics: Arc<Metrics>) -> Arc<SealedMaps> {
        Arc::new(SealedMaps { max, metrics, mapped: Mutex::new(VecDeque::new()) })
    }

    /// Notes that `segment` was mapped, and unmaps others if there are too many.
    pub(super) fn mapped(&self, segment: &Arc<Segment>) {
        self.metrics.maps_made.add(1);
        self.loaded(segment);
    }

    /// Notes that `segment` holds a map or an index, and has others let go if there are too many.
    pub(super) fn loaded(&self, segment: &Arc<Segment>) {
        if segment.is_listed() {
            return;
        }
        let mut let_go = Vec::new();
        {
            let mut mapped = self.mapped.lock();
            mapped.push_back(Arc::downgrade(segment));
            let mut chances = mapped.len();
            while mapped.len() > self.max {
                let Some(oldest) = mapped.pop_front() else { break };
                let Some(oldest) = oldest.upgrade() else { continue };
                chances = chances.saturating_sub(1);
                if chances > 0 && oldest.was_read_lately() {
                    mapped.push_back(Arc::downgrade(&oldest));
                } else {
                    let_go.push(oldest);
                }
            }
        }
        // Outside the lock: unmapping takes time, and takes the segment's own lock.
        for segment in let_go {
            segment.unmap();
        }
    }
}
