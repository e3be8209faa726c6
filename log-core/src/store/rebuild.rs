//! Rebuild: the way out where the catalog is lost. What the directories of topics tell is taken for
//! the truth: names, ids, numbers of partitions. Settings are not told, so the defaults take their
//! place: they sync each append, and remove nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Store;
use super::catalog::{Catalog, TopicEntry};
use super::catalog_file::{CATALOG_FILE, CatalogFile};
use super::group_offsets::offsets_config;
use super::open::{LOCK_FILE, TOPICS_DIR};
use crate::config::{PARTITIONS_LIMIT, TopicConfig};
use crate::disk::{Disk, is_not_found};
use crate::error::{Error, Result};
use crate::name::TopicName;

/// The name that the old catalog gets.
const DAMAGED_FILE: &str = "catalog.damaged";

/// Whether a rebuilt catalog is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// Only say what it would hold.
    DryRun,
    /// Write it, unless something is unclear.
    Apply,
}

/// A catalog as the directories have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltCatalog {
    /// The topics: name, id, number of partitions.
    pub topics: Vec<(TopicName, u128, u32)>,
    /// Directories that can't all be right: several of one name (one may be of a topic that was
    /// deleted), or without a partition. Move away what should not come back, then try again.
    pub unclear: Vec<PathBuf>,
    /// Whether it was written.
    pub applied: bool,
}

impl Store {
    /// Makes the catalog of `dir` anew from the directories of its topics. `None` if there is
    /// nothing to do: the catalog can be read. The damaged one stays as `catalog.damaged`.
    ///
    /// # Errors
    /// `NoStore`; `Locked`; `NewerFormat`: a newer release can read the catalog; `Io`; `DiskFull`.
    pub fn rebuild_catalog(
        dir: impl AsRef<Path>,
        disk: &Arc<dyn Disk>,
        how: Rebuild,
    ) -> Result<Option<RebuiltCatalog>> {
        let data = dir.as_ref();
        let topics = data.join(TOPICS_DIR);
        let listed = match disk.list(&topics) {
            Err(error) if is_not_found(&error) => {
                return Err(Error::NoStore { path: data.to_path_buf() });
            }
            listed => listed?,
        };
        let _lock = match how {
            Rebuild::DryRun => None,
            Rebuild::Apply => Some(disk.lock(&data.join(LOCK_FILE))?),
        };
        match CatalogFile::read(&**disk, data) {
            Ok(Some(_)) => return Ok(None),
            Ok(None) | Err(Error::CatalogDamaged { .. }) => {}
            Err(error) => return Err(error),
        }
        let names = listed.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name);
        let mut rebuilt = survey(&**disk, &topics, names)?;
        if how == Rebuild::Apply && rebuilt.unclear.is_empty() {
            write(disk, data, &rebuilt.topics)?;
            rebuilt.applied = true;
        }
        Ok(Some(rebuilt))
    }
}

fn survey(
    disk: &dyn Disk,
    topics: &Path,
    names: impl Iterator<Item = String>,
) -> Result<RebuiltCatalog> {
    let mut by_name: BTreeMap<TopicName, Vec<(u128, u32, PathBuf)>> = BTreeMap::new();
    for dir in names {
        // What has not the name of a topic's directory is none: it is told as a leftover later.
        let Some((name, id)) = parse_dir_name(&dir) else { continue };
        let path = topics.join(dir);
        let partitions = count_partitions(disk, &path)?;
        by_name.entry(name).or_default().push((id, partitions, path));
    }
    let mut rebuilt = RebuiltCatalog { topics: Vec::new(), unclear: Vec::new(), applied: false };
    for (name, found) in by_name {
        match found.as_slice() {
            [(id, partitions @ 1.., _)] => rebuilt.topics.push((name, *id, *partitions)),
            _ => rebuilt.unclear.extend(found.into_iter().map(|(_, _, path)| path)),
        }
    }
    Ok(rebuilt)
}

/// The number of partitions that the highest directory tells; one that is missing below is told
/// when it is opened.
fn count_partitions(disk: &dyn Disk, topic: &Path) -> Result<u32> {
    let entries = disk.list(topic)?.into_iter().filter(|entry| entry.is_dir);
    let numbers = entries.filter_map(|entry| entry.name.parse::<u32>().ok());
    let legal = numbers.filter(|number| *number < PARTITIONS_LIMIT);
    Ok(legal.max().map_or(0, |highest| highest + 1))
}

fn parse_dir_name(dir: &str) -> Option<(TopicName, u128)> {
    let (name, id) = dir.rsplit_once('-')?;
    let id = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32)?;
    Some((TopicName::parse_any(name).ok()?, id))
}

fn write(disk: &Arc<dyn Disk>, data: &Path, topics: &[(TopicName, u128, u32)]) -> Result<()> {
    let entry = |(name, id, partitions): &(TopicName, u128, u32)| {
        let config = match name.is_reserved() {
            true => offsets_config(),
            false => TopicConfig::default(),
        };
        TopicEntry { id: *id, name: name.clone(), partitions: *partitions, config }
    };
    let catalog = Catalog { topics: topics.iter().map(entry).collect(), tombstones: Vec::new() };
    match disk.rename(&data.join(CATALOG_FILE), &data.join(DAMAGED_FILE)) {
        Err(error) if is_not_found(&error) => {}
        renamed => renamed?,
    }
    CatalogFile::new(Arc::clone(disk), data, Catalog::default()).commit(catalog)
}
