//! Opening: finds or makes the store, takes its LOCK, finishes what was begun, opens partitions.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, RwLock};

use super::catalog::{Catalog, TopicEntry};
use super::catalog_file::{CATALOG_FILE, CatalogFile};
use super::group_offsets::OffsetsShared;
use super::sweep::find_leftovers;
use super::topic::{Slot, TopicShared, dir_name, partition_dir, partition_id};
use super::topics::Topics;
use super::{OpenMode, Shared, parallel};
use crate::background::Background;
use crate::clock::Clock;
use crate::config::StoreConfig;
use crate::disk::{Disk, is_not_found};
use crate::error::{Error, Fault, Result};
use crate::metrics::Metrics;
use crate::partition::{Access, Partition, PartitionContext, SealedMaps};

pub(super) const TOPICS_DIR: &str = "topics";
pub(super) const LOCK_FILE: &str = "LOCK";

/// The most partitions that are opened at once: a disk gains little from more.
const PARALLEL_MAX: usize = 8;

type Lock = Option<Box<dyn Send + Sync>>;

pub(super) fn open(
    data: &Path,
    config: StoreConfig,
    mode: OpenMode,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    background: Background,
) -> Result<Shared> {
    let (lock, catalog) = find_or_make(data, mode, &disk)?;
    let metrics = Arc::new(Metrics::default());
    let context = PartitionContext {
        disk: Arc::clone(&disk),
        clock,
        background,
        maps: SealedMaps::new(config.sealed_maps_max, Arc::clone(&metrics)),
        metrics,
        linger: config.group_commit_linger,
    };
    let read_only = mode == OpenMode::ReadOnly;
    let mut shared = Shared {
        data: data.to_path_buf(),
        read_only,
        config,
        context,
        catalog: Mutex::new(CatalogFile::new(disk, data, catalog)),
        topics: RwLock::new(Topics::default()),
        topics_version: AtomicU64::new(0),
        sweeping: Mutex::new(()),
        offsets: OffsetsShared::default(),
        leftovers: Vec::new(),
        closed: AtomicBool::new(false),
        lock: Mutex::new(lock),
    };
    if !read_only {
        // What can't be removed now (the disk may be full) keeps its tombstone.
        let _ = shared.sweep();
    }
    let catalog = shared.catalog.lock().current().clone();
    shared.leftovers = find_leftovers(shared.disk(), &shared.topics_dir(), &catalog)?;
    shared.topics = RwLock::new(open_topics(&shared, &catalog)?);
    shared.load_offsets();
    Ok(shared)
}

/// The store's lock, and its catalog.
fn find_or_make(data: &Path, mode: OpenMode, shared: &Arc<dyn Disk>) -> Result<(Lock, Catalog)> {
    let disk = &**shared;
    let found = look(data, disk)?;
    if !found.is_store() && mode != OpenMode::CreateIfMissing {
        return Err(Error::NoStore { path: data.to_path_buf() });
    }
    if !found.dir_exists {
        create_dirs(data, disk)?;
    }
    let lock = match mode {
        OpenMode::ReadOnly => None,
        _ => Some(disk.lock(&data.join(LOCK_FILE))?),
    };
    if let Some(catalog) = CatalogFile::read(disk, data)? {
        if lock.is_some() {
            // The last writer may have died between renaming the catalog and syncing that.
            disk.sync_dir(data)?;
        }
        return Ok((lock, catalog));
    }
    // Looked at again, now that nobody else can be making it.
    if look(data, disk)?.has_topics {
        let path = data.join(CATALOG_FILE);
        return Err(Error::CatalogDamaged { path, fault: Fault::FileMissing });
    }
    if lock.is_none() {
        return Err(Error::NoStore { path: data.to_path_buf() });
    }
    Ok((lock, make_store(data, shared)?))
}

/// What there is before anything is touched.
struct Found {
    dir_exists: bool,
    has_catalog: bool,
    has_topics: bool,
}

impl Found {
    fn is_store(&self) -> bool {
        self.has_catalog || self.has_topics
    }
}

fn look(data: &Path, disk: &dyn Disk) -> Result<Found> {
    let entries = match disk.list(data) {
        Err(error) if is_not_found(&error) => {
            return Ok(Found { dir_exists: false, has_catalog: false, has_topics: false });
        }
        listed => listed?,
    };
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let has_topics = has(TOPICS_DIR) && !disk.list(&data.join(TOPICS_DIR))?.is_empty();
    Ok(Found { dir_exists: true, has_catalog: has(CATALOG_FILE), has_topics })
}

fn make_store(data: &Path, disk: &Arc<dyn Disk>) -> Result<Catalog> {
    // The directory itself may be new, made by us or by one who died before this.
    match sync_parent(data, &**disk) {
        // One that was given to us, in a place that we can't read, is not ours to make durable.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {}
        synced => synced?,
    }
    disk.create_dir(&data.join(TOPICS_DIR))?;
    disk.sync_dir(data)?;
    let mut file = CatalogFile::new(Arc::clone(disk), data, Catalog::default());
    file.commit(Catalog::default())?;
    Ok(Catalog::default())
}

/// Makes a directory and those above it that are missing, durably.
fn create_dirs(dir: &Path, disk: &dyn Disk) -> Result<()> {
    match disk.create_dir(dir) {
        Err(error) if is_not_found(&error) => {
            let Some(parent) = parent(dir) else { return Err(error) };
            create_dirs(parent, disk)?;
            disk.create_dir(dir)?;
        }
        created => created?,
    }
    sync_parent(dir, disk)
}

fn sync_parent(dir: &Path, disk: &dyn Disk) -> Result<()> {
    parent(dir).map_or(Ok(()), |parent| disk.sync_dir(parent))
}

fn parent(dir: &Path) -> Option<&Path> {
    let parent = dir.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// How many threads work on partitions at once; one if nothing may happen by itself.
pub(super) fn parallel(background: &Background, config: &StoreConfig) -> usize {
    if background.has_threads() { PARALLEL_MAX.min(config.background_threads_max) } else { 1 }
}

fn open_topics(shared: &Shared, catalog: &Catalog) -> Result<Topics> {
    let mut all = Vec::new();
    for entry in &catalog.topics {
        all.extend((0..entry.partitions).map(|number| (entry, number)));
    }
    let mut slots = shared.open_partitions(&all)?.into_iter();
    let mut topics = Topics::default();
    for entry in &catalog.topics {
        let own = slots.by_ref().take(entry.partitions as usize).collect();
        topics.insert(Arc::new(TopicShared::new(entry, own)));
    }
    Ok(topics)
}

impl Shared {
    /// Opens partitions, several at once.
    ///
    /// # Errors
    /// What would keep any partition from being opened: then those that were opened are stopped.
    /// What is wrong with one partition is in its slot.
    pub(super) fn open_partitions(&self, wanted: &[(&TopicEntry, u32)]) -> Result<Vec<Slot>> {
        let topics = self.topics_dir();
        let access = if self.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let opened = parallel::for_each(wanted, self.parallel(), |(entry, number)| {
            let dir = partition_dir(&topics.join(dir_name(&entry.name, entry.id)), *number);
            let (id, config) = (partition_id(entry, *number), entry.config.clone());
            Partition::open(&self.context, &dir, id, config, access)
        });
        let failed = opened.iter().find_map(|slot| slot.as_ref().err().filter(|e| is_general(e)));
        if let Some(error) = failed.cloned() {
            opened.iter().flatten().for_each(Partition::stop);
            return Err(error);
        }
        Ok(opened)
    }
}

/// Whether an error says something about more than the partition that met it.
fn is_general(error: &Error) -> bool {
    use ErrorKind::{NotADirectory, NotFound, PermissionDenied, UnexpectedEof};
    let Error::Io { source, .. } = error else {
        return matches!(error, Error::DiskFull { .. } | Error::Closed { .. });
    };
    let bad_sector = source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    let own = [NotFound, NotADirectory, PermissionDenied, UnexpectedEof];
    !bad_sector && !own.contains(&source.kind())
}
