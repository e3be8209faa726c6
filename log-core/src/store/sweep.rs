//! Sweep: removes the directories that tombstones name; tells of others that nobody knows.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::Shared;
use super::catalog::{Catalog, Tombstone};
use super::catalog_file::CatalogFile;
use super::topic::dir_name;
use crate::disk::{Disk, is_not_found};
use crate::error::Result;

/// Something in the place of topics that the catalog does not list. It is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Where it is. Move it away if it is not wanted; if it is a topic that should be there, the
    /// catalog is older than it: put back the right one.
    pub path: PathBuf,
}

impl Shared {
    /// Removes what tombstones name, and then the tombstones.
    ///
    /// # Errors
    /// The first failure; the others are tried. The tombstones of what could not be removed stay.
    pub(super) fn sweep(&self) -> Result<()> {
        let _sweeping = self.sweeping.lock();
        let tombstones = {
            let catalog = self.catalog.lock();
            // Where it is unknown which catalog is on disk, it may list what the tombstone names.
            if catalog.is_latched() || self.is_closed() || self.read_only {
                return Ok(());
            }
            catalog.current().tombstones.clone()
        };
        // A topic's id never comes back, so its files need no lock while they go, which may take
        // long. A partition's number does come back.
        let topics = tombstones.iter().filter(|tombstone| tombstone.first_partition == 0);
        let mut outcome = Ok(());
        for tombstone in topics {
            outcome = outcome.and(self.remove_topic_dir(tombstone));
        }
        let mut catalog = self.catalog.lock();
        if self.is_closed() {
            return Ok(());
        }
        for tombstone in &tombstones {
            outcome = outcome.and(self.bury(&mut catalog, tombstone));
        }
        outcome
    }

    /// Removes what a tombstone names, and the tombstone.
    pub(super) fn bury(&self, catalog: &mut CatalogFile, tombstone: &Tombstone) -> Result<()> {
        if catalog.is_latched() || !catalog.current().tombstones.contains(tombstone) {
            return Ok(());
        }
        if tombstone.first_partition == 0 {
            self.remove_topic_dir(tombstone)?;
            self.disk().sync_dir(&self.topics_dir())?;
        } else {
            self.remove_partition_dirs(tombstone)?;
        }
        let mut next = catalog.current().clone();
        next.tombstones.retain(|other| other != tombstone);
        catalog.commit(next)
    }

    fn remove_topic_dir(&self, tombstone: &Tombstone) -> Result<()> {
        remove_tree(self.disk(), &self.topics_dir().join(dir_name(&tombstone.name, tombstone.id)))
    }

    fn remove_partition_dirs(&self, tombstone: &Tombstone) -> Result<()> {
        let topic = self.topics_dir().join(dir_name(&tombstone.name, tombstone.id));
        for entry in self.disk().list(&topic)? {
            let number = entry.name.parse::<u32>();
            if number.is_ok_and(|number| number >= tombstone.first_partition) {
                remove_tree(self.disk(), &topic.join(&entry.name))?;
            }
        }
        self.disk().sync_dir(&topic)
    }
}

/// Removes a directory with all that is in it; none at all is fine.
fn remove_tree(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let entries = match disk.list(dir) {
        Err(error) if is_not_found(&error) => return Ok(()),
        listed => listed?,
    };
    for entry in entries {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            remove_tree(disk, &path)?;
        } else {
            disk.remove_file(&path)?;
        }
    }
    disk.remove_dir(dir)
}

/// What is beside the topics and partitions that the catalog lists or has tombstones for.
pub(super) fn find_leftovers(
    disk: &dyn Disk,
    topics: &Path,
    catalog: &Catalog,
) -> Result<Vec<Leftover>> {
    let mut found = Vec::new();
    let listed = catalog.topics.iter().map(|entry| dir_name(&entry.name, entry.id));
    let doomed = catalog.tombstones.iter().map(|doomed| dir_name(&doomed.name, doomed.id));
    let known: HashSet<String> = listed.chain(doomed).collect();
    let half_made = |id: u128| catalog.tombstones.iter().any(|tombstone| tombstone.id == id);
    for name in names(disk, topics)? {
        if !known.contains(&name) {
            found.push(Leftover { path: topics.join(name) });
        }
    }
    for entry in catalog.topics.iter().filter(|entry| !half_made(entry.id)) {
        let topic = topics.join(dir_name(&entry.name, entry.id));
        for name in names(disk, &topic)? {
            if !name.parse::<u32>().is_ok_and(|number| number < entry.partitions) {
                found.push(Leftover { path: topic.join(name) });
            }
        }
    }
    Ok(found)
}

/// The names in a directory; a missing one has none.
fn names(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    match disk.list(dir) {
        Err(error) if is_not_found(&error) => Ok(Vec::new()),
        listed => Ok(listed?.into_iter().map(|entry| entry.name).collect()),
    }
}
