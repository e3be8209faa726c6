//! Directory: the data directory that a verb works on, opened the way that the verb needs it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use log_core::config::StoreConfig;
use log_core::disk::{Disk, OsDisk};
use log_core::error::Error;
use log_core::name::TopicName;
use log_core::store::{OpenMode, Store, Topic};

use crate::failure::Result;

/// A data directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
}

/// Keeps writers out as long as it lives, where the directory lets it.
pub(crate) struct AtRest {
    pub(crate) store: Store,
    _lock: Option<Box<dyn Send + Sync>>,
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Directory {
        Directory { path }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// To read. Nothing is written and no lock is taken: the view is that of now.
    pub(crate) fn read(&self) -> Result<Store> {
        self.open(OpenMode::ReadOnly)
    }

    /// To read what nobody else may be writing meanwhile.
    pub(crate) fn read_at_rest(&self) -> Result<AtRest> {
        let lock = self.lock()?;
        Ok(AtRest { store: self.read()?, _lock: lock })
    }

    /// To write into a store that is there.
    pub(crate) fn write(&self) -> Result<Store> {
        self.open(OpenMode::MustExist)
    }

    /// Changes a store, and closes it whatever came of that.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        Directory::close_after(&self.write()?, change)
    }

    /// The same; where there is no store, one is made.
    pub(crate) fn change_or_create<T>(
        &self,
        change: impl FnOnce(&Store) -> Result<T>,
    ) -> Result<T> {
        Directory::close_after(&self.open(OpenMode::CreateIfMissing)?, change)
    }

    fn close_after<T>(store: &Store, change: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        let changed = change(store);
        let closed = store.close();
        let value = changed?;
        closed?;
        Ok(value)
    }

    fn open(&self, mode: OpenMode) -> Result<Store> {
        Ok(Store::open(&self.path, StoreConfig::default(), mode)?)
    }

    /// The store's lock; `None` where no writer has ever been, or none can be: on read-only media.
    fn lock(&self) -> Result<Option<Box<dyn Send + Sync>>> {
        let listed = OsDisk.list(&self.path);
        if !listed.is_ok_and(|entries| entries.iter().any(|entry| entry.name == "LOCK")) {
            return Ok(None);
        }
        match OsDisk.lock(&self.path.join("LOCK")) {
            Ok(lock) => Ok(Some(lock)),
            Err(Error::Io { source, .. })
                if matches!(
                    source.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The topic of that name; the engine's own can be looked at, too.
pub(crate) fn topic(store: &Store, name: &str) -> Result<Topic> {
    Ok(store.topic(&TopicName::parse_any(name)?)?)
}

/// The topic of that name, or all that there are.
pub(crate) fn topics(store: &Store, name: Option<&str>) -> Result<Vec<Topic>> {
    match name {
        Some(name) => Ok(vec![topic(store, name)?]),
        None => Ok(store.all_topics()),
    }
}
