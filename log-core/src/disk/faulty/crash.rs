//! Crash: what a power cut, or the death of the process, leaves of a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::content::{Content, SECTOR, to_usize};
use super::tree::{Change, Dir, Node, SimulatedFile, Tree};
use super::{FaultyDisk, Settings};

/// What a power cut does to what was not durable. Bytes that a failed sync lost were no longer to
/// be written: only `Random` may find them on the platter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashMode {
    /// Each sector is old, new or torn (its head new, its tail old), each file's length is old,
    /// new or in between, each change of a directory is there or not (of several on one name, the
    /// first ones are): all by themselves.
    Random,
    /// Only what was durable is there.
    LoseAll,
    /// The platter had caught up.
    KeepAll,
    /// Sectors are old, lengths new, names new: new bytes read as zeros.
    LoseData,
    /// Sectors and names are new, lengths old.
    LoseSizes,
    /// Sectors and lengths are new, names old.
    LoseNames,
}

impl FaultyDisk {
    /// The disk as it is found after a power cut. This one and its open files go on as if nothing
    /// had happened, and share nothing with the new one, where nothing is locked, nothing is set
    /// to fail, and calls count from 0.
    #[must_use]
    pub fn crash(&self, seed: u64, mode: CrashMode) -> FaultyDisk {
        let state = self.state.lock();
        let mut cut = PowerCut::new(seed, mode, state.settings);
        cut.dir_after(&state.tree, 0);
        FaultyDisk::of(cut.found, state.settings)
    }

    /// The disk as it is found after the process died: the page cache is still there, and what was
    /// not durable still is not. Else as [`FaultyDisk::crash`].
    #[must_use]
    pub fn kill(&self) -> FaultyDisk {
        let state = self.state.lock();
        let mut copies = Copies::default();
        let dirs = state.tree.dirs.iter().map(|dir| copies.dir(dir)).collect();
        let tree = Tree { dirs, files_made: state.tree.files_made };
        FaultyDisk::of(tree, state.settings)
    }
}

struct PowerCut {
    random: Random,
    mode: CrashMode,
    /// Of 100 sectors or changes, how many are kept under `Random`.
    kept: u64,
    settings: Settings,
    found: Tree,
}

impl PowerCut {
    fn new(seed: u64, mode: CrashMode, settings: Settings) -> PowerCut {
        let mut random = Random::new(seed);
        // Always half and half would hardly ever lose, or keep, just one of many.
        let kept = [10, 50, 90][to_usize(random.below(3))];
        let found = Tree { dirs: Vec::new(), files_made: 0 };
        PowerCut { random, mode, kept, settings, found }
    }

    /// Builds a directory with all that is in it.
    fn dir_after(&mut self, old: &Tree, dir: usize) -> usize {
        let index = self.found.dirs.len();
        self.found.dirs.push(Dir::default());
        let mut entries = self.entries_after(&old.dirs[dir]);
        for node in entries.values_mut() {
            *node = match node {
                Node::Dir(below) => Node::Dir(self.dir_after(old, *below)),
                Node::File(file) => {
                    let content = self.file_after(&mut file.content.lock());
                    Node::File(self.found.new_file(content))
                }
            };
        }
        self.found.dirs[index] =
            Dir { live: entries.clone(), durable: entries, pending: Vec::new() };
        index
    }

    fn entries_after(&mut self, dir: &Dir) -> BTreeMap<String, Node> {
        let mut entries = dir.durable.clone();
        // Once a change of a name is lost, later ones of that name can't be there.
        let mut lost: BTreeSet<&str> = BTreeSet::new();
        for change in &dir.pending {
            let names = change.names();
            let possible = !names.iter().any(|name| lost.contains(name));
            if possible && self.keeps_change() {
                change.apply(&mut entries);
            } else {
                lost.extend(names);
            }
        }
        entries
    }

    fn keeps_change(&mut self) -> bool {
        match self.mode {
            CrashMode::Random => self.random.below(100) < self.kept,
            CrashMode::LoseAll | CrashMode::LoseNames => false,
            CrashMode::KeepAll | CrashMode::LoseData | CrashMode::LoseSizes => true,
        }
    }

    fn file_after(&mut self, content: &mut Content) -> Content {
        let size = self.size_after(content.durable().len() as u64, content.len());
        let mut bytes = content.durable().to_vec();
        // Room for every sector, since sectors and length go their own ways.
        let longest = size.max(content.len()).max(bytes.len() as u64);
        bytes.resize(to_usize(longest.next_multiple_of(SECTOR)), 0);
        for sector in content.sectors_not_durable() {
            let start = to_usize(sector * SECTOR);
            let new = content.live_sector(sector);
            let some = self.new_bytes(content.is_dirty(sector));
            bytes[start..start + some].copy_from_slice(&new[..some]);
        }
        bytes.truncate(to_usize(size));
        Content::durable_bytes(bytes, self.settings.file_capacity.max(content.capacity()))
    }

    fn size_after(&mut self, old: u64, new: u64) -> u64 {
        match self.mode {
            CrashMode::LoseAll | CrashMode::LoseSizes => old,
            CrashMode::KeepAll | CrashMode::LoseData | CrashMode::LoseNames => new,
            CrashMode::Random => match self.random.below(8) {
                0..3 => old,
                3..6 => new,
                _ => old.min(new) + self.random.below(old.abs_diff(new) + 1),
            },
        }
    }

    /// How many bytes at the head of a sector are new.
    fn new_bytes(&mut self, is_dirty: bool) -> usize {
        let new = match self.mode {
            CrashMode::LoseAll | CrashMode::LoseData => 0,
            CrashMode::Random if self.random.below(8) == 0 => 1 + self.random.below(SECTOR - 1),
            CrashMode::Random if self.random.below(100) < self.kept => SECTOR,
            CrashMode::Random => 0,
            CrashMode::KeepAll | CrashMode::LoseSizes | CrashMode::LoseNames if is_dirty => SECTOR,
            CrashMode::KeepAll | CrashMode::LoseSizes | CrashMode::LoseNames => 0,
        };
        to_usize(new)
    }
}

/// Copies of files, one for each, whatever its names.
#[derive(Default)]
struct Copies {
    files: BTreeMap<u64, Arc<SimulatedFile>>,
}

impl Copies {
    fn dir(&mut self, dir: &Dir) -> Dir {
        Dir {
            live: self.entries(&dir.live),
            durable: self.entries(&dir.durable),
            pending: dir.pending.iter().map(|change| self.change(change)).collect(),
        }
    }

    fn entries(&mut self, entries: &BTreeMap<String, Node>) -> BTreeMap<String, Node> {
        entries.iter().map(|(name, node)| (name.clone(), self.node(node))).collect()
    }

    fn change(&mut self, change: &Change) -> Change {
        match change {
            Change::Create { name, node } => {
                Change::Create { name: name.clone(), node: self.node(node) }
            }
            Change::Rename { .. } | Change::Remove { .. } => change.clone(),
        }
    }

    fn node(&mut self, node: &Node) -> Node {
        // Directories keep their place in the tree.
        let Node::File(file) = node else { return node.clone() };
        let copy = self.files.entry(file.id).or_insert_with(|| {
            let content = Mutex::new(file.content.lock().duplicate());
            Arc::new(SimulatedFile { id: file.id, content })
        });
        Node::File(Arc::clone(copy))
    }
}

/// Numbers that a seed determines (splitmix64).
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; the bias of a remainder does not matter here.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}
