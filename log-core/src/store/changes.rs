//! Changes of topics: made, removed, given more partitions, altered; each commits in the catalog.
//!
//! Directories are made under a tombstone, and are durable before the commit that lists them takes
//! the tombstone away. Removal is the other way round: the tombstone is committed first.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::catalog::{Catalog, Tombstone, TopicEntry};
use super::catalog_file::CatalogFile;
use super::topic::{Slot, TopicShared, dir_name, partition_dir, partition_id};
use super::{Shared, parallel};
use crate::config::{PARTITIONS_LIMIT, TopicConfig};
use crate::error::{Error, Result};
use crate::name::TopicName;
use crate::partition::Partition;

/// Refuses what a user asks for one of the engine's own topics.
pub(super) fn refuse_reserved(name: &TopicName) -> Result<()> {
    if !name.is_reserved() {
        return Ok(());
    }
    let why = "names that begin with __ are the engine's own";
    Err(Error::IllegalName { kind: "topic", name: name.as_str().to_owned(), why })
}

impl Shared {
    pub(super) fn create_topic(
        &self,
        name: &TopicName,
        partitions: u32,
        config: TopicConfig,
    ) -> Result<Arc<TopicShared>> {
        config.check()?;
        check_partitions(partitions)?;
        let mut catalog = self.catalog_to_change()?;
        if catalog.current().topic(name).is_some() {
            return Err(Error::TopicExists(name.clone()));
        }
        let users = catalog.current().topics.iter().filter(|topic| !topic.name.is_reserved());
        let (actual, limit) = (users.count() as u64 + 1, self.config.topics_max as u64);
        if actual > limit && !name.is_reserved() {
            return Err(Error::TooLarge { what: "number of topics", actual, limit });
        }
        let entry =
            TopicEntry { id: random_id(&self.data)?, name: name.clone(), partitions, config };
        let doomed = Tombstone { id: entry.id, name: name.clone(), first_partition: 0 };
        let before = catalog.current().clone();
        catalog.commit(before.clone().with_tombstone(doomed.clone()))?;
        let made = self.make_topic(&entry).and_then(|topic| {
            let mut next = before;
            next.topics.push(entry);
            let committed = catalog.commit(next);
            committed.inspect_err(|_| topic.stop())?;
            Ok(Arc::new(topic))
        });
        match made {
            Ok(topic) => {
                self.topics.write().insert(Arc::clone(&topic));
                self.count_change();
                Ok(topic)
            }
            Err(error) => {
                // Where this fails, too, the tombstone stays, and the next sweep does it.
                let _ = self.bury(&mut catalog, &doomed);
                Err(error)
            }
        }
    }

    /// Makes a topic's directories and files, all synced.
    fn make_topic(&self, entry: &TopicEntry) -> Result<TopicShared> {
        let topics = self.topics_dir();
        self.disk().create_dir(&topics)?;
        self.disk().create_dir(&topics.join(dir_name(&entry.name, entry.id)))?;
        let slots = self.make_partitions(entry, 0)?;
        let topic = TopicShared::new(entry, slots);
        let synced = self.disk().sync_dir(&topics);
        synced.and_then(|()| self.disk().sync_dir(&self.data)).inspect_err(|_| topic.stop())?;
        Ok(topic)
    }

    /// Makes a topic's partitions from `first` on, synced in the topic's directory, and opens them.
    fn make_partitions(&self, entry: &TopicEntry, first: u32) -> Result<Vec<Slot>> {
        let dir = self.topics_dir().join(dir_name(&entry.name, entry.id));
        let numbers: Vec<u32> = (first..entry.partitions).collect();
        let made = parallel::for_each(&numbers, self.parallel(), |number| {
            let id = partition_id(entry, *number);
            Partition::create(&self.context, &partition_dir(&dir, *number), id)
        });
        made.into_iter().collect::<Result<()>>()?;
        self.disk().sync_dir(&dir)?;
        let wanted: Vec<_> = numbers.into_iter().map(|number| (entry, number)).collect();
        let slots = self.open_partitions(&wanted)?;
        // New ones have no excuse.
        match slots.iter().find_map(|slot| slot.as_ref().err()) {
            Some(error) => {
                slots.iter().flatten().for_each(Partition::stop);
                Err(error.clone())
            }
            None => Ok(slots),
        }
    }

    pub(super) fn delete_topic(&self, name: &TopicName) -> Result<()> {
        {
            let mut catalog = self.catalog_to_change()?;
            let topic = self.topic(name)?;
            let doomed = Tombstone { id: topic.id, name: name.clone(), first_partition: 0 };
            let mut next = catalog.current().clone();
            next.topics.retain(|entry| entry.id != topic.id);
            next.tombstones.retain(|tombstone| tombstone.id != topic.id);
            let committed = catalog.commit(next.with_tombstone(doomed));
            if committed.is_ok() || catalog.is_latched() {
                // Also where the outcome is unknown: what it may lose takes no more records.
                self.topics.write().remove(name);
                self.count_change();
                topic.stop();
            }
            committed?;
            self.offsets.forget_topic(topic.id);
        }
        if self.sweep().is_err() {
            self.context.metrics.maintenance_failures.add(1);
        }
        Ok(())
    }

    pub(super) fn add_partitions(&self, name: &TopicName, total: u32) -> Result<()> {
        check_partitions(total)?;
        let mut catalog = self.catalog_to_change()?;
        let topic = self.topic(name)?;
        let listed = catalog.current().topic(name).cloned();
        let mut entry = listed.ok_or_else(|| Error::UnknownTopic(name.clone()))?;
        let first = entry.partitions;
        if total < first {
            let why = format!("topic {name} has {first}, and partitions can't be taken away");
            return Err(Error::IllegalConfig { setting: "partitions", why });
        }
        if total == first {
            return Ok(());
        }
        // What an attempt before this one has left must go first.
        let left = catalog.current().tombstones.iter().find(|left| left.id == entry.id).cloned();
        if let Some(left) = left {
            self.bury(&mut catalog, &left)?;
        }
        self.refuse_strangers(&entry)?;
        entry.partitions = total;
        let doomed = Tombstone { id: entry.id, name: name.clone(), first_partition: first };
        let before = catalog.current().clone();
        catalog.commit(before.clone().with_tombstone(doomed.clone()))?;
        let made = self.make_partitions(&entry, first).and_then(|slots| {
            let committed = catalog.commit(before.with_entry(entry));
            committed.inspect_err(|_| slots.iter().flatten().for_each(Partition::stop))?;
            Ok(slots)
        });
        match made {
            Ok(slots) => {
                topic.add(slots);
                self.count_change();
            }
            Err(error) => {
                let _ = self.bury(&mut catalog, &doomed);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Refuses to go on where there is a directory of a partition that the topic does not have: a
    /// tombstone would name it.
    fn refuse_strangers(&self, entry: &TopicEntry) -> Result<()> {
        let dir = self.topics_dir().join(dir_name(&entry.name, entry.id));
        for present in self.disk().list(&dir)? {
            if present.name.parse::<u32>().is_ok_and(|number| number >= entry.partitions) {
                let exists = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(Error::io("add partitions beside", &dir.join(present.name), exists));
            }
        }
        Ok(())
    }

    pub(super) fn alter_topic(&self, name: &TopicName, config: TopicConfig) -> Result<()> {
        config.check()?;
        let mut catalog = self.catalog_to_change()?;
        let topic = self.topic(name)?;
        let listed = catalog.current().topic(name).cloned();
        let entry = listed.ok_or_else(|| Error::UnknownTopic(name.clone()))?;
        let altered = TopicEntry { config: config.clone(), ..entry };
        let next = catalog.current().clone().with_entry(altered);
        catalog.commit(next)?;
        topic.alter(&config);
        Ok(())
    }

    /// For those who look at the version: the change is there to be seen.
    fn count_change(&self) {
        self.topics_version.fetch_add(1, Ordering::AcqRel);
    }

    /// The catalog, locked for a change.
    fn catalog_to_change(&self) -> Result<MutexGuard<'_, CatalogFile>> {
        if self.read_only {
            return Err(Error::ReadOnly { path: self.data.clone() });
        }
        let catalog = self.catalog.lock();
        // Looked at under the lock, which closing takes.
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed { what: "store" });
        }
        Ok(catalog)
    }
}

impl Catalog {
    fn with_tombstone(mut self, tombstone: Tombstone) -> Catalog {
        self.tombstones.push(tombstone);
        self
    }

    /// With this entry in the place of the one that has its id.
    fn with_entry(mut self, entry: TopicEntry) -> Catalog {
        self.topics.retain(|other| other.id != entry.id);
        self.topics.push(entry);
        self
    }
}

fn check_partitions(partitions: u32) -> Result<()> {
    if (1..=PARTITIONS_LIMIT).contains(&partitions) {
        return Ok(());
    }
    let why = format!("{partitions} is not within 1..={PARTITIONS_LIMIT}");
    Err(Error::IllegalConfig { setting: "partitions", why })
}

fn random_id(data: &Path) -> Result<u128> {
    let mut bytes = [0; size_of::<u128>()];
    let filled = getrandom::fill(&mut bytes);
    let failed = |error: getrandom::Error| io::Error::other(error.to_string());
    filled.map_err(|error| Error::io("take a random id for a topic in", data, failed(error)))?;
    Ok(u128::from_le_bytes(bytes))
}
