//! Tree: the directories of a simulated disk, as they are and as they are on the platter.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::content::Content;
use crate::disk::DirEntry;

/// A file, whatever its names.
#[derive(Debug)]
pub(super) struct SimulatedFile {
    pub(super) id: u64,
    /// Taken after the disk's state, one file at a time.
    pub(super) content: Mutex<Content>,
}

/// What a name stands for.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Which one of `Tree::dirs`.
    Dir(usize),
    File(Arc<SimulatedFile>),
}

impl Node {
    fn is(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::Dir(one), Node::Dir(two)) => one == two,
            (Node::File(one), Node::File(two)) => one.id == two.id,
            _ => false,
        }
    }
}

/// A change of a directory that is not durable yet.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Create { name: String, node: Node },
    Rename { from: String, to: String },
    Remove { name: String },
}

impl Change {
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Change::Create { name, .. } | Change::Remove { name } => vec![name],
            Change::Rename { from, to } => vec![from, to],
        }
    }

    pub(super) fn apply(&self, entries: &mut BTreeMap<String, Node>) {
        match self {
            Change::Create { name, node } => {
                entries.insert(name.clone(), node.clone());
            }
            Change::Rename { from, to } => {
                if let Some(node) = entries.remove(from) {
                    entries.insert(to.clone(), node);
                }
            }
            Change::Remove { name } => {
                entries.remove(name);
            }
        }
    }
}

/// A directory. `durable` with all of `pending` applied is `live`.
#[derive(Debug, Default)]
pub(super) struct Dir {
    pub(super) live: BTreeMap<String, Node>,
    pub(super) durable: BTreeMap<String, Node>,
    pub(super) pending: Vec<Change>,
}

impl Dir {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    /// Takes a name away, live and durable, and whatever would bring its file back.
    fn forget(&mut self, name: &str) {
        let node = self.live.remove(name);
        let is_it = |other: &Node| node.as_ref().is_some_and(|node| node.is(other));
        self.durable.retain(|other, node| other != name && !is_it(node));
        self.pending.retain(|change| {
            let creates_it = matches!(change, Change::Create { node, .. } if is_it(node));
            !creates_it && !change.names().contains(&name)
        });
    }
}

#[derive(Debug)]
pub(super) struct Tree {
    /// The first one is the root. Removed ones stay, empty.
    pub(super) dirs: Vec<Dir>,
    pub(super) files_made: u64,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree { dirs: vec![Dir::default()], files_made: 0 }
    }

    pub(super) fn new_file(&mut self, content: Content) -> Arc<SimulatedFile> {
        self.files_made += 1;
        Arc::new(SimulatedFile { id: self.files_made, content: Mutex::new(content) })
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<SimulatedFile>> {
        let (dir, name) = self.place(path)?;
        match self.dirs[dir].live.get(&name) {
            Some(Node::File(file)) => Ok(Arc::clone(file)),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn create_file(
        &mut self,
        path: &Path,
        capacity: u64,
    ) -> io::Result<Arc<SimulatedFile>> {
        let (dir, name) = self.place(path)?;
        let file = self.new_file(Content::empty(capacity));
        let node = Node::File(Arc::clone(&file));
        self.dirs[dir].change(Change::Create { name, node });
        Ok(file)
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let Some((dir, name)) = self.place_or_root(path)? else { return Ok(()) };
        match self.dirs[dir].live.get(&name) {
            // As `OsDisk` has it: using what is no directory as one fails later.
            Some(_) => Ok(()),
            None => {
                let node = Node::Dir(self.dirs.len());
                self.dirs.push(Dir::default());
                self.dirs[dir].change(Change::Create { name, node });
                Ok(())
            }
        }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let dir = &self.dirs[self.dir(path)?];
        // A BTreeMap is sorted by name.
        let entries = dir.live.iter().map(|(name, node)| DirEntry {
            name: name.clone(),
            is_dir: matches!(node, Node::Dir(_)),
        });
        Ok(entries.collect())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (dir, old_name) = self.place(from)?;
        let (new_dir, new_name) = self.place(to)?;
        if dir != new_dir {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the engine renames within a directory only",
            ));
        }
        if !self.dirs[dir].live.contains_key(&old_name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if let Some(Node::Dir(_)) = self.dirs[dir].live.get(&new_name) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if old_name != new_name {
            self.dirs[dir].change(Change::Rename { from: old_name, to: new_name });
        }
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        let (dir, name) = self.place(path)?;
        self.dirs[dir].change(Change::Remove { name });
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let removed = self.dir(path)?;
        let (dir, name) = self.place(path)?;
        if !self.dirs[removed].live.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.dirs[dir].change(Change::Remove { name });
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.dir(path)?;
        let dir = &mut self.dirs[dir];
        dir.durable = dir.live.clone();
        dir.pending.clear();
        Ok(())
    }

    /// Removes a file, live and durable.
    pub(super) fn forget(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        let (dir, name) = self.place(path)?;
        self.dirs[dir].forget(&name);
        Ok(())
    }

    /// All files with their paths, sorted.
    pub(super) fn files(&self) -> Vec<(PathBuf, Arc<SimulatedFile>)> {
        let mut found = Vec::new();
        let mut ahead = vec![(PathBuf::from("/"), 0)];
        while let Some((path, dir)) = ahead.pop() {
            for (name, node) in &self.dirs[dir].live {
                match node {
                    Node::Dir(dir) => ahead.push((path.join(name), *dir)),
                    Node::File(file) => found.push((path.join(name), Arc::clone(file))),
                }
            }
        }
        found.sort_by(|(one, _), (two, _)| one.cmp(two));
        found
    }

    /// The directory at `path`.
    fn dir(&self, path: &Path) -> io::Result<usize> {
        let mut dir = 0;
        for name in names(path)? {
            dir = match self.dirs[dir].live.get(name) {
                Some(Node::Dir(next)) => *next,
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            };
        }
        Ok(dir)
    }

    /// The directory that `path` lies in, and its name there.
    fn place(&self, path: &Path) -> io::Result<(usize, String)> {
        self.place_or_root(path)?.ok_or_else(|| io::ErrorKind::IsADirectory.into())
    }

    fn place_or_root(&self, path: &Path) -> io::Result<Option<(usize, String)>> {
        let names = names(path)?;
        let Some((name, above)) = names.split_last() else { return Ok(None) };
        let above: PathBuf = above.iter().collect();
        Ok(Some((self.dir(&above)?, (*name).to_owned())))
    }
}

/// The names along a path; relative paths begin at the root, too.
fn names(path: &Path) -> io::Result<Vec<&str>> {
    let illegal = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(OsStr::to_str(name).ok_or_else(illegal)?),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(illegal()),
        }
    }
    Ok(names)
}
