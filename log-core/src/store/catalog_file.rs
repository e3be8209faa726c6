//! CatalogFile: reads the catalog, and replaces it as a whole or not at all.
//!
//! The new bytes go to `catalog.tmp`, which is synced, then renamed, then the directory is synced.
//! A failure before the rename changes nothing. After it, which catalog a power cut would leave is
//! unknown: then no change of topics is taken until the store is opened again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::catalog::{CATALOG_LIMIT_BYTES, CATALOG_VERSION, Catalog, Unreadable};
use crate::disk::{Disk, FileMode, is_not_found};
use crate::error::{Error, Fault, Result};

pub(super) const CATALOG_FILE: &str = "catalog";
const NEW_FILE: &str = "catalog.tmp";

#[derive(Debug)]
pub(super) struct CatalogFile {
    disk: Arc<dyn Disk>,
    data: PathBuf,
    /// What was committed last.
    current: Catalog,
    /// Why it is unknown what a power cut would leave.
    latch: Option<Error>,
}

impl CatalogFile {
    /// One that holds `current` already.
    pub(super) fn new(disk: Arc<dyn Disk>, data: &Path, current: Catalog) -> CatalogFile {
        CatalogFile { disk, data: data.to_path_buf(), current, latch: None }
    }

    /// Reads the catalog of a data directory; `None` if there is no such file.
    ///
    /// # Errors
    /// `CatalogDamaged`; `NewerFormat`; `Io`.
    pub(super) fn read(disk: &dyn Disk, data: &Path) -> Result<Option<Catalog>> {
        let path = data.join(CATALOG_FILE);
        let file = match disk.open(&path, FileMode::Read) {
            Err(error) if is_not_found(&error) => return Ok(None),
            opened => opened?,
        };
        let size = file.size()?;
        let Some(len) = usize::try_from(size).ok().filter(|len| *len <= CATALOG_LIMIT_BYTES) else {
            let fault = Fault::Field { field: "file length", value: size.cast_signed() };
            return Err(Error::CatalogDamaged { path, fault });
        };
        let mut bytes = vec![0; len];
        let read = file.read_at(&mut bytes, 0)?;
        match Catalog::decode(&bytes[..read]) {
            Ok(catalog) => Ok(Some(catalog)),
            Err(Unreadable::Damaged(fault)) => Err(Error::CatalogDamaged { path, fault }),
            Err(Unreadable::Newer { version: found }) => {
                Err(Error::NewerFormat { path, found, supported: CATALOG_VERSION })
            }
        }
    }

    pub(super) fn current(&self) -> &Catalog {
        &self.current
    }

    /// Whether it is unknown which catalog is on disk.
    pub(super) fn is_latched(&self) -> bool {
        self.latch.is_some()
    }

    /// Replaces the catalog, durably.
    ///
    /// # Errors
    /// `Io` or `DiskFull` if nothing was changed; `SyncFailed` if the outcome is unknown.
    pub(super) fn commit(&mut self, next: Catalog) -> Result<()> {
        if let Some(error) = &self.latch {
            return Err(error.clone());
        }
        let new = self.data.join(NEW_FILE);
        if let Err(error) = self.write_new(&new, &next.encode()) {
            // The next commit empties it anyway; on a full disk its space is welcome before.
            let _ = self.disk.remove_file(&new);
            return Err(error);
        }
        let path = self.data.join(CATALOG_FILE);
        let renamed = self.disk.rename(&new, &path);
        let replaced = match renamed {
            Err(error @ Error::DiskFull { .. }) => return Err(error),
            renamed => renamed.and_then(|()| self.disk.sync_dir(&self.data)),
        };
        if let Err(error) = replaced {
            let error = outcome_unknown(path, error);
            self.latch = Some(error.clone());
            return Err(error);
        }
        self.current = next;
        Ok(())
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let file = self.disk.open(path, FileMode::Create)?;
        file.write_at(bytes, 0)?;
        file.sync()
    }
}

fn outcome_unknown(path: PathBuf, error: Error) -> Error {
    match error {
        Error::Io { source, .. } => Error::SyncFailed { path, source },
        other => {
            let source = Arc::new(std::io::Error::other(other.to_string()));
            Error::SyncFailed { path, source }
        }
    }
}
