//! Stores on a simulated disk, where nothing happens by itself.

use std::sync::Arc;

use log_core::background::Background;
use log_core::clock::{Clock, ManualClock};
use log_core::disk::FaultyDisk;
use log_core::store::{OpenMode, Store};
use log_core::{FlushPolicy, GroupName, StoreConfig, TopicConfig, TopicName};

use super::SEGMENT_BYTES;

/// Where the stores are.
pub(crate) const DATA: &str = "/data";

pub(crate) fn open_store(disk: &FaultyDisk, mode: OpenMode) -> log_core::Result<Store> {
    open_store_at(disk, mode, Arc::new(ManualClock::default()))
}

pub(crate) fn open_store_at(
    disk: &FaultyDisk,
    mode: OpenMode,
    clock: Arc<dyn Clock>,
) -> log_core::Result<Store> {
    let (config, background) = (StoreConfig::default(), Background::manual());
    Store::open_with(DATA, config, mode, Arc::new(disk.clone()), clock, background)
}

pub(crate) fn create_store(disk: &FaultyDisk) -> Store {
    open_store(disk, OpenMode::CreateIfMissing).expect("a store")
}

pub(crate) fn name(raw: &str) -> TopicName {
    TopicName::parse(raw).expect("a legal name")
}

pub(crate) fn group(raw: &str) -> GroupName {
    GroupName::parse(raw).expect("a legal name")
}

/// Segments that roll often.
pub(crate) fn small(flush: FlushPolicy) -> TopicConfig {
    TopicConfig { flush, segment_max_bytes: SEGMENT_BYTES, ..TopicConfig::default() }
}
