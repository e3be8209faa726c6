//! Tampering: what tests do to files behind the engine's back.
//!
//! Published bytes never change, so maps made before keep the bytes that they had, and no longer
//! share memory with the file: close a store first, tamper, then open it again. All of it changes
//! the live and the durable image, and is not counted as calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::FaultyDisk;
use super::crash::Random;
use super::tree::SimulatedFile;

/// What `destroy_page` destroys.
const PAGE_BYTES: u64 = 4096;

impl FaultyDisk {
    /// The paths of all files, sorted.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state.lock().tree.files().into_iter().map(|(path, _)| path).collect()
    }

    /// All bytes of a file, as the page cache has them.
    ///
    /// # Panics
    /// If there is no such file.
    #[must_use]
    pub fn read(&self, path: &Path) -> Vec<u8> {
        self.file_at(path).content.lock().bytes()
    }

    /// All bytes of a file, as the platter has them: what a sync has covered.
    ///
    /// # Panics
    /// If there is no such file.
    #[must_use]
    pub fn read_durable(&self, path: &Path) -> Vec<u8> {
        self.file_at(path).content.lock().durable().to_vec()
    }

    /// Makes a directory and those above it, durably: what was there before the engine came.
    ///
    /// # Panics
    /// If a file is in the way.
    pub fn make_dirs(&self, path: &Path) {
        let mut state = self.state.lock();
        let mut dirs: Vec<&Path> = path.ancestors().collect();
        dirs.reverse();
        for pair in dirs.windows(2) {
            let made = state.tree.create_dir(pair[1]).and_then(|()| state.tree.sync_dir(pair[0]));
            made.expect("directories can be made there");
        }
    }

    /// Writes bytes; the file grows if need be.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn write_raw(&self, path: &Path, position: u64, bytes: &[u8]) {
        self.file_at(path).content.lock().tamper(bytes, position);
    }

    /// Cuts a file off; a shorter one stays as it is.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn truncate_raw(&self, path: &Path, len: u64) {
        self.file_at(path).content.lock().tamper_len(len);
    }

    /// Removes a file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn remove_raw(&self, path: &Path) {
        self.state.lock().tree.forget(path).expect("the file is there");
    }

    /// Fills a page of 4 KiB, as far as the file has it, with noise.
    ///
    /// # Panics
    /// If there is no such file, or it does not have that page.
    pub fn destroy_page(&self, path: &Path, page_index: u64) {
        let mut random = Random::new(page_index);
        self.fill_page(path, page_index, || random.byte());
    }

    /// Fills a page of 4 KiB, as far as the file has it, with zeros.
    ///
    /// # Panics
    /// If there is no such file, or it does not have that page.
    pub fn zero_page(&self, path: &Path, page_index: u64) {
        self.fill_page(path, page_index, || 0);
    }

    /// Reads all that is clean anew from the platter, for all files: what a sync that failed has
    /// lost is gone then. What is still to be written stays.
    pub fn drop_page_cache(&self) {
        for (_, file) in self.state.lock().tree.files() {
            file.content.lock().drop_clean();
        }
    }

    fn fill_page(&self, path: &Path, page_index: u64, mut byte: impl FnMut() -> u8) {
        let file = self.file_at(path);
        let mut content = file.content.lock();
        let position = page_index * PAGE_BYTES;
        assert!(position < content.len(), "the file has page {page_index}");
        let some = PAGE_BYTES.min(content.len() - position);
        let bytes: Vec<u8> = (0..some).map(|_| byte()).collect();
        content.tamper(&bytes, position);
    }

    fn file_at(&self, path: &Path) -> Arc<SimulatedFile> {
        let found = self.state.lock().tree.file(path);
        found.unwrap_or_else(|error| panic!("no file {}: {error}", path.display()))
    }
}
