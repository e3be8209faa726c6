//! FaultyDisk: a disk in memory that does to the engine what disks do, on demand.
//!
//! It keeps two images: the live one (the page cache, which maps share) and the durable one (the
//! platter). A file's bytes and length become durable by its `sync`, names by `sync_dir` of their
//! directory, each without the other. [`FaultyDisk::crash`] gives the disk as a power cut may leave
//! it, [`FaultyDisk::kill`] as the death of the process does.
//!
//! A sync that fails loses what it covered, as kernels do: the bytes can still be read, they are
//! not on the platter, and the next sync succeeds without writing them; only what is written again
//! is (stored into a map: only what is *changed* there). [`FaultyDisk::drop_page_cache`] shows it.
//!
//! Calls are numbered from 0, all together and by kind. Everything is decided by seeds and numbers:
//! the same calls from one thread give the same disk.

mod content;
mod crash;
mod handle;
mod script;
mod tamper;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use self::handle::Handle;
use self::script::Script;
use self::tree::{SimulatedFile, Tree};
use super::{DirEntry, Disk, DiskFile, FileMode};
use crate::error::{Error, Result};

pub use self::crash::CrashMode;
pub use self::script::{Call, Failure};

/// How long a file can become, unless told otherwise.
const FILE_CAPACITY: u64 = 4 * 1024 * 1024;

/// A disk that lies; a handle, so that clones are the same disk. See the head of this file.
#[derive(Clone)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    tree: Tree,
    script: Script,
    settings: Settings,
    /// The lock files that are held, by their ids.
    locked: BTreeSet<u64>,
}

/// What crashes leave as it is.
#[derive(Debug, Clone, Copy)]
struct Settings {
    file_capacity: u64,
    capacity: Option<u64>,
    can_store_into_maps: bool,
}

impl FaultyDisk {
    /// An empty disk; its root directory exists. Relative paths begin there, too.
    #[must_use]
    pub fn new() -> FaultyDisk {
        let settings =
            Settings { file_capacity: FILE_CAPACITY, capacity: None, can_store_into_maps: true };
        FaultyDisk::of(Tree::new(), settings)
    }

    fn of(tree: Tree, settings: Settings) -> FaultyDisk {
        let (script, locked) = (Script::default(), BTreeSet::new());
        FaultyDisk { state: Arc::new(Mutex::new(State { tree, script, settings, locked })) }
    }

    /// How long files that are made from now on can become: a write past it finds the disk full.
    /// Each file that is mapped for writing takes that much memory. A longer map makes room for
    /// itself, if it is the file's first.
    pub fn set_file_capacity(&self, bytes: u64) {
        self.state.lock().settings.file_capacity = bytes;
    }

    /// How many bytes all files may have together; what would go beyond finds the disk full.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().settings.capacity = bytes;
    }

    /// How many bytes all files have together.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state.lock().used()
    }

    /// What `Disk::can_store_into_maps` answers.
    pub fn set_can_store_into_maps(&self, can: bool) {
        self.state.lock().settings.can_store_into_maps = can;
    }

    /// How many calls were made: the number of the next one.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.lock().script.calls()
    }

    /// How many calls of that kind were made: the number of the next one.
    #[must_use]
    pub fn calls_of(&self, call: Call) -> u64 {
        self.state.lock().script.calls_of(call)
    }

    /// Call `number`, of whatever kind, will fail.
    pub fn fail_at(&self, number: u64, failure: Failure) {
        self.state.lock().script.fail_at(number, failure);
    }

    /// The calls `[from, from + count)` of that kind will fail.
    pub fn fail_calls(&self, call: Call, from: u64, count: u64, failure: Failure) {
        self.state.lock().script.fail_calls(call, from, count, failure);
    }

    /// Call `number` and all later ones will fail and do nothing.
    pub fn power_off_at(&self, number: u64) {
        self.state.lock().script.power_off_at(number);
    }

    /// Nothing will fail any more, and the power is on.
    pub fn stop_failing(&self) {
        self.state.lock().script.clear();
    }

    /// Counts a call, and fails it if it is to fail.
    fn enter(
        &self,
        call: Call,
        action: &'static str,
        path: &Path,
    ) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        state.script.enter(call).check().map_err(|error| Error::io(action, path, error))?;
        Ok(state)
    }
}

impl State {
    fn used(&self) -> u64 {
        self.tree.files().iter().map(|(_, file)| file.content.lock().len()).sum()
    }

    /// How long this file may become.
    fn longest(&self, file: &SimulatedFile) -> u64 {
        let free = self.settings.capacity.map(|capacity| capacity.saturating_sub(self.used()));
        let content = file.content.lock();
        free.map_or(content.longest(), |free| content.longest().min(content.len() + free))
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: FileMode) -> Result<Arc<dyn DiskFile>> {
        let action = if mode == FileMode::Create { "create" } else { "open" };
        let mut state = self.enter(Call::Open, action, path)?;
        let capacity = state.settings.file_capacity;
        let found = match state.tree.file(path) {
            Err(error) if mode == FileMode::Create && error.kind() == NOT_FOUND => {
                state.tree.create_file(path, capacity)
            }
            found => found.inspect(|file| {
                if mode == FileMode::Create {
                    file.content.lock().truncate();
                }
            }),
        };
        let file = found.map_err(|error| Error::io(action, path, error))?;
        Ok(Arc::new(Handle::new(self.clone(), file, path, mode != FileMode::Read)))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.enter(Call::CreateDir, "create directory", path)?;
        state.tree.create_dir(path).map_err(|error| Error::io("create directory", path, error))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let state = self.enter(Call::List, "list", path)?;
        state.tree.list(path).map_err(|error| Error::io("list", path, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.enter(Call::Rename, "rename", from)?;
        state.tree.rename(from, to).map_err(|error| Error::io("rename", from, error))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut state = self.enter(Call::RemoveFile, "remove", path)?;
        state.tree.remove_file(path).map_err(|error| Error::io("remove", path, error))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.enter(Call::RemoveDir, "remove directory", path)?;
        state.tree.remove_dir(path).map_err(|error| Error::io("remove directory", path, error))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.enter(Call::SyncDir, "sync directory", path)?;
        state.tree.sync_dir(path).map_err(|error| Error::io("sync directory", path, error))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        let mut state = self.enter(Call::Lock, "lock", path)?;
        let found = match state.tree.file(path) {
            Err(error) if error.kind() == NOT_FOUND => state.tree.create_file(path, 1),
            found => found,
        };
        let file_id = found.map_err(|error| Error::io("open", path, error))?.id;
        if !state.locked.insert(file_id) {
            return Err(Error::Locked { path: path.parent().unwrap_or(path).to_path_buf() });
        }
        Ok(Box::new(Lock { disk: self.clone(), file_id }))
    }

    fn can_store_into_maps(&self, _dir: &Path) -> bool {
        self.state.lock().settings.can_store_into_maps
    }
}

const NOT_FOUND: std::io::ErrorKind = std::io::ErrorKind::NotFound;

/// Held until dropped.
struct Lock {
    disk: FaultyDisk,
    file_id: u64,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.disk.state.lock().locked.remove(&self.file_id);
    }
}

impl Default for FaultyDisk {
    fn default() -> FaultyDisk {
        FaultyDisk::new()
    }
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without waiting: an assertion may print it while a call is under way.
        match self.state.try_lock() {
            Some(state) => write!(f, "FaultyDisk {{ calls: {} }}", state.script.calls()),
            None => write!(f, "FaultyDisk"),
        }
    }
}
