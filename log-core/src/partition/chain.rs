//! Chain: which files make up the log, told by their headers; what else lies in the directory.

use std::collections::BTreeMap;
use std::path::Path;

use crate::disk::{Disk, FileMode, is_not_found};
use crate::error::{Corruption, Error, Fault, Result};
use crate::offset::{Offset, OffsetRange};
use crate::segment::{PartitionId, SegmentHeader, SegmentName};

/// A segment of the log, as found.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: SegmentName,
    /// What its header says; or that its file is missing, or what is wrong with the header.
    pub(super) header: std::result::Result<SegmentHeader, Fault>,
    /// Where its part of the log ends, as its successor's header says; not known of the last one,
    /// and of one whose successor's header can't be read.
    pub(super) end_position: Option<u64>,
}

/// The segments of the log, the oldest first, and the files that are no part of it.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    /// Segments that an unclean stop has left behind: a newer epoch went on before them.
    pub(super) hidden: Vec<SegmentName>,
    /// The newest files, if their headers can't be read: either a crash came while they were
    /// begun, or they are damaged.
    pub(super) unborn: Vec<(SegmentName, Fault)>,
    /// Damage to one of the two copies of a header: it cost nothing.
    pub(super) damaged_copies: Vec<Corruption>,
    /// Files that are not ours.
    pub(super) strays: Vec<String>,
    /// Files that are left from work that was not finished.
    pub(super) leftovers: Vec<String>,
    /// The highest epoch in any name.
    pub(super) epoch_max: u32,
}

type Headers = BTreeMap<SegmentName, std::result::Result<SegmentHeader, Fault>>;

impl Chain {
    /// Reads the directory of a partition and the header of every segment in it. One that is
    /// missing holds nothing.
    pub(super) fn read(disk: &dyn Disk, dir: &Path, id: &PartitionId) -> Result<Chain> {
        let mut chain = Chain::default();
        let (mut found, mut indexes) = (Headers::new(), Vec::new());
        let entries = match disk.list(dir) {
            Err(error) if is_not_found(&error) => Vec::new(),
            entries => entries?,
        };
        for entry in entries {
            if let Some(name) = SegmentName::parse_log(&entry.name) {
                chain.epoch_max = chain.epoch_max.max(name.epoch);
                let header = chain.read_header(disk, &dir.join(&entry.name), name, id)?;
                found.insert(name, header);
            } else if let Some(name) = SegmentName::parse_index(&entry.name) {
                indexes.push(name);
            } else if entry.name.ends_with(".tmp") {
                chain.leftovers.push(entry.name);
            } else if entry.name != super::checkpoint::CHECKPOINT_FILE {
                chain.strays.push(entry.name);
            }
        }
        let orphans = indexes.into_iter().filter(|name| !found.contains_key(name));
        chain.leftovers.extend(orphans.map(SegmentName::index_file));
        chain.link(found, dir)?;
        Ok(chain)
    }

    fn read_header(
        &mut self,
        disk: &dyn Disk,
        path: &Path,
        name: SegmentName,
        id: &PartitionId,
    ) -> Result<std::result::Result<SegmentHeader, Fault>> {
        let file = disk.open(path, FileMode::Read)?;
        let found = match SegmentHeader::read(&*file)? {
            Ok(found) => found,
            Err(fault) => return Ok(Err(fault)),
        };
        if let Some((position, fault)) = found.damaged_copy {
            let (path, offsets) = (path.to_path_buf(), OffsetRange::new(name.base, name.base));
            self.damaged_copies.push(Corruption { path, position, offsets, fault });
        }
        let header = found.header;
        let ours = header.id.topic_id == id.topic_id && header.id.partition == id.partition;
        if !ours || header.name != name {
            let value = i64::from(header.id.partition);
            return Ok(Err(Fault::Field { field: "segment's partition or name", value }));
        }
        Ok(Ok(header))
    }

    /// Follows the headers from the newest segment back to the first.
    fn link(&mut self, mut found: Headers, dir: &Path) -> Result<()> {
        while let Some((name, header)) = found.pop_last() {
            match header {
                Ok(header) => {
                    let newest = Link { name, header: Ok(header), end_position: None };
                    self.follow(newest, &mut found, dir)?;
                    break;
                }
                Err(fault) => self.unborn.push((name, fault)),
            }
        }
        self.unborn.reverse();
        self.links.reverse();
        self.hidden.extend(found.into_keys());
        Ok(())
    }

    fn follow(&mut self, newest: Link, found: &mut Headers, dir: &Path) -> Result<()> {
        let mut next = Some(newest);
        while let Some(link) = next.take() {
            let (before, end_position) = match &link.header {
                Ok(header) => match header.predecessor {
                    Some(before) => (Some(before.name), Some(u64::from(before.end_position))),
                    None => (None, None),
                },
                // A header that can't be read names nobody: the next older file is taken, unless
                // this was the first segment of all.
                Err(_) if link.name.base == 0 => (None, None),
                Err(_) => (nearest_before(found, link.name), None),
            };
            if let Some(name) = before {
                if name >= link.name || name.base > link.name.base {
                    return Err(out_of_order(&link, name, dir));
                }
                let header = found.remove(&name).unwrap_or(Err(Fault::FileMissing));
                next = Some(Link { name, header, end_position });
            }
            self.links.push(link);
        }
        Ok(())
    }

    /// Whether a link that has lost its header is proven to have had one: it is the first of its
    /// epoch, and those are durable before anything in them is visible. What it held is damaged
    /// then; no crash could do that.
    pub(super) fn had_header(&self, link: usize) -> bool {
        let Some(lost) = self.links.get(link).filter(|link| link.header.is_err()) else {
            return false;
        };
        let before = link.checked_sub(1).and_then(|before| self.links.get(before));
        before.map_or(lost.name.base == 0, |before| before.name.epoch < lost.name.epoch)
    }

    /// Drops the links up to the last one whose file retention has removed: they lie below
    /// `log_start`. What was found in place of older ones is a file that an unclean stop has left
    /// behind, and no part of the log; it is returned.
    pub(super) fn forget_below(&mut self, log_start: Offset) -> Vec<Link> {
        let removed = self.links.windows(2).rposition(|pair| {
            pair[1].name.base <= log_start && pair[0].header == Err(Fault::FileMissing)
        });
        let mut gone: Vec<_> = self.links.drain(..removed.map_or(0, |at| at + 1)).collect();
        gone.retain(|link| link.header != Err(Fault::FileMissing));
        gone
    }
}

/// The youngest segment that is older than `name`.
fn nearest_before(found: &Headers, name: SegmentName) -> Option<SegmentName> {
    found.range(..name).rev().map(|(older, _)| *older).find(|older| older.base <= name.base)
}

fn out_of_order(link: &Link, before: SegmentName, dir: &Path) -> Error {
    let fault = Fault::OffsetJump { found: link.name.base, expected: before.base };
    let offsets = OffsetRange::new(link.name.base, link.name.base);
    let path = dir.join(link.name.log_file());
    Error::Corrupt(Corruption { path, position: 0, offsets, fault })
}
