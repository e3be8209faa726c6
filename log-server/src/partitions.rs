//! Partitions: those that a connection has used, so that a request finds its own with one look.

use std::collections::HashMap;
use std::sync::Arc;

use log_core::{Error, Partition, Result, Store};

use crate::handlers::produce::Lane;

/// Past so many, all are looked up anew.
const REMEMBERED_MAX: usize = 4_096;

/// A partition, and the produces of the connection that wait for it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) partition: Partition,
    pub(crate) lane: Option<Arc<Lane>>,
}

/// The partitions that a connection has used.
#[derive(Debug, Default)]
pub(crate) struct Partitions(HashMap<(u128, u32), Slot>);

impl Partitions {
    /// A partition of the topic that has this id.
    ///
    /// # Errors
    /// `UnknownTopicId`; `UnknownPartition`; why the partition can't be used.
    #[inline]
    pub(crate) fn slot(&mut self, store: &Store, id: u128, number: u32) -> Result<&mut Slot> {
        if !self.0.contains_key(&(id, number)) {
            self.look_up(store, id, number)?;
        }
        self.0.get_mut(&(id, number)).ok_or(Error::UnknownTopicId(id))
    }

    #[cold]
    fn look_up(&mut self, store: &Store, id: u128, number: u32) -> Result<()> {
        let partition = store.topic_by_id(id)?.partition(number)?;
        if self.0.len() >= REMEMBERED_MAX {
            self.forget_all();
        }
        self.0.insert((id, number), Slot { partition, lane: None });
        Ok(())
    }

    /// Forgets one that answers no more, unless produces wait for it.
    pub(crate) fn forget(&mut self, id: u128, number: u32) {
        if self.0.get(&(id, number)).is_some_and(|slot| !slot.is_awaited()) {
            self.0.remove(&(id, number));
        }
    }

    /// Forgets all for which nothing waits: what is deleted meanwhile is not kept.
    pub(crate) fn forget_all(&mut self) {
        self.0.retain(|_, slot| slot.is_awaited());
    }
}

impl Slot {
    /// Whether produces wait: those that come now must go behind them.
    pub(crate) fn is_awaited(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| !lane.is_over())
    }
}
