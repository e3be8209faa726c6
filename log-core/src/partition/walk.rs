//! Walk: reads the segments that may hold unsynced bytes as one sequence, and gathers what it finds.

use std::path::Path;

use super::chain::{Chain, Link};
use super::checkpoint::Checkpoint;
use super::producer_state::ProducerState;
use crate::clock::Timestamp;
use crate::disk::{Disk, FileMode};
use crate::error::{Corruption, Fault, Result};
use crate::offset::{Offset, OffsetRange};
use crate::record::{BatchHeader, BatchView, MARKER_BYTES, Marker, MarkerKind, check_header};
use crate::segment::{
    BadSpot, Found, HEADER_BYTES, SegmentHeader, SegmentIndex, SegmentName, SegmentScan, seed_at,
};

/// What the last good batch was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Nothing,
    Records,
    Marker(MarkerKind),
}

/// Bytes that could not be read, and what they cost.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    /// The link that holds them, as the walk counted.
    pub(super) link: usize,
    /// Its name.
    pub(super) segment: SegmentName,
    pub(super) bad: BadSpot,
    /// The offset of the next good batch, in this segment or a later one; `None` if none follows.
    pub(super) next: Option<Offset>,
}

/// What a walk has found.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    producers_max: usize,
    /// The highest `durable_end` that anything readable tells.
    pub(super) durable: Offset,
    pub(super) log_start: Offset,
    /// The offset after the last good batch.
    pub(super) end: Offset,
    pub(super) last: Last,
    pub(super) last_append_time: Timestamp,
    pub(super) producers: ProducerState,
    pub(super) producers_fault: Option<Corruption>,
    /// Tables of producers that could not be read, and were had from the segment before.
    pub(super) tables_rebuilt: Vec<Corruption>,
    pub(super) spots: Vec<Spot>,
    /// The name, end position, and index of each segment that was walked.
    pub(super) walked: Vec<(SegmentName, u64, SegmentIndex)>,
    pub(super) bytes: u64,
}

impl Spot {
    /// The offsets that are lost with it.
    pub(super) fn offsets(&self) -> OffsetRange {
        OffsetRange::new(self.bad.offset, self.next.unwrap_or(self.bad.offset))
    }

    /// Whether it held, or may have held, records.
    pub(super) fn loses_records(&self) -> bool {
        self.next.is_none_or(|next| next > self.bad.offset)
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        dir: &'a Path,
        chain: &Chain,
        producers_max: usize,
    ) -> Walk<'a> {
        let headers = || chain.links.iter().filter_map(|link| link.header.as_ref().ok());
        Walk {
            disk,
            dir,
            producers_max,
            durable: headers().map(|header| header.durable_end).max().unwrap_or(0),
            log_start: headers().map(|header| header.log_start).max().unwrap_or(0),
            end: 0,
            last: Last::Nothing,
            // A segment is begun no earlier than the last append before it.
            last_append_time: headers().map(|h| h.created).max().unwrap_or(Timestamp::MIN),
            producers: ProducerState::default(),
            producers_fault: None,
            tables_rebuilt: Vec::new(),
            spots: Vec::new(),
            walked: Vec::new(),
            bytes: 0,
        }
    }

    /// Walks the links from the one that holds the first offset not proven durable by any header,
    /// up to the position `stop` in a link, or to the end.
    pub(super) fn run(
        &mut self,
        chain: &Chain,
        checkpoint: Option<&Checkpoint>,
        stop: Option<(usize, u64)>,
    ) -> Result<()> {
        let links = &chain.links;
        self.learn_from_rolls(links)?;
        let first = self.first_with_producers(links)?;
        self.end = links[first].name.base;
        let until = stop.map_or(links.len(), |(link, _)| link + 1);
        for at in first..until {
            // A segment that is lost, or was removed by retention, tells of no producers: the
            // next one knows them all.
            let untold = at == first || links[at - 1].header.is_err();
            if let (true, Ok(header)) = (untold, &links[at].header) {
                self.producers_fault = self.load_producers(header)?;
            }
            let shortcut = checkpoint.filter(|_| at + 1 == links.len());
            let limit = stop.filter(|(link, _)| *link == at).map(|(_, position)| position);
            self.walk_link(at, &links[at], shortcut, limit)?;
            if let Some(next) = links.get(at + 1).filter(|_| limit.is_none()) {
                self.join(at, links[at].name, next.name.base);
            }
        }
        Ok(())
    }

    /// A marker behind a segment's end says that the segment was synced, and spares its walk.
    fn learn_from_rolls(&mut self, links: &[Link]) -> Result<()> {
        for (link, next) in links.iter().zip(links.iter().skip(1)).rev() {
            let (Ok(header), Some(position)) = (&link.header, link.end_position) else { continue };
            if next.name.base <= self.durable {
                return Ok(());
            }
            let file = self.disk.open(&self.dir.join(link.name.log_file()), FileMode::Read)?;
            let mut bytes = [0; MARKER_BYTES];
            let read = file.read_at(&mut bytes, position)?;
            let found = check_header(&bytes[..read], seed_at(header.seed(), position));
            let marker = found.ok().filter(|found| found.is_marker());
            if let Some(marker) = marker.filter(|found| found.base_offset == next.name.base) {
                self.durable = self.durable.max(marker.durable_end.min(marker.base_offset));
            }
        }
        Ok(())
    }

    /// Everything before it is durable: a later header says so.
    fn first_unsynced(&self, links: &[Link]) -> usize {
        let bases = links.iter().skip(1).map(|next| next.name.base);
        bases.take_while(|base| *base <= self.durable).count()
    }

    /// Where to begin: a crash may have kept the header of a new segment and lost its table of
    /// producers; the segment before it gives the same table, once it is walked.
    fn first_with_producers(&mut self, links: &[Link]) -> Result<usize> {
        let mut first = self.first_unsynced(links);
        while let (Ok(header), true) = (&links[first].header, first > 0) {
            let Some(fault) = self.load_producers(header)? else { break };
            self.tables_rebuilt.push(fault);
            first -= 1;
        }
        Ok(first)
    }

    /// Returns what is wrong with the table, if it can't be read.
    fn load_producers(&mut self, header: &SegmentHeader) -> Result<Option<Corruption>> {
        if header.producers_length == 0 {
            return Ok(None);
        }
        let path = self.dir.join(header.name.log_file());
        let file = self.disk.open(&path, FileMode::Read)?;
        // What the header says of the length is taken for as much as the file can hold.
        let most = usize::try_from(file.size()?).unwrap_or(usize::MAX);
        let mut bytes = vec![0_u8; (header.producers_length as usize).min(most)];
        let read = file.read_at(&mut bytes, HEADER_BYTES as u64)?;
        let found = crc32fast::hash(&bytes[..read]);
        let decoded = if found == header.producers_crc {
            ProducerState::decode(&bytes[..read])
        } else {
            let (what, expected) = ("producer table", header.producers_crc);
            Err(Fault::Checksum { what, found, expected })
        };
        match decoded {
            Ok(producers) => self.producers = producers,
            Err(fault) => {
                let offsets = OffsetRange::new(header.name.base, header.name.base);
                let position = HEADER_BYTES as u64;
                return Ok(Some(Corruption { path, position, offsets, fault }));
            }
        }
        Ok(None)
    }

    fn walk_link(
        &mut self,
        at: usize,
        link: &Link,
        shortcut: Option<&Checkpoint>,
        limit: Option<u64>,
    ) -> Result<()> {
        let header = match &link.header {
            Ok(header) => header,
            Err(fault) => {
                self.lose_link(at, link.name, fault.clone());
                return Ok(());
            }
        };
        let file = self.disk.open(&self.dir.join(link.name.log_file()), FileMode::Read)?;
        file.advise_random();
        let known_end = limit.or(link.end_position);
        let region_end = match known_end {
            Some(end) => end,
            None => file.size()?,
        };
        let mut start = (u64::from(header.data_start), header.name.base);
        let mut index = SegmentIndex::new(header.name.base, start.0);
        if let Some(checkpoint) = shortcut.filter(|found| found.marker_position < region_end) {
            start = (checkpoint.marker_position, checkpoint.end);
            index = checkpoint.index.clone();
            self.producers = checkpoint.producers.clone();
            self.last_append_time = self.last_append_time.max(checkpoint.last_append_time);
            self.log_start = self.log_start.max(checkpoint.log_start);
        }
        let mut scan = SegmentScan::new(file, header, start, region_end, known_end.is_none());
        while let Some(found) = scan.step()? {
            match found {
                Found::Batch { header, position } => {
                    index.add(&header, position);
                    let marker = if header.is_marker() {
                        let bytes = scan.bytes_of(&header, position)?;
                        let batch = BatchView::parse(bytes);
                        batch.ok().and_then(|(batch, _)| Marker::decode(&batch).ok())
                    } else {
                        None
                    };
                    self.note(&header, marker);
                }
                Found::Bad(bad) => {
                    if bad.next_offset != Some(bad.offset) {
                        index.add_unreadable();
                    }
                    let next = bad.next_offset;
                    self.spots.push(Spot { link: at, segment: link.name, bad, next });
                }
            }
        }
        self.end = scan.expected();
        self.bytes += scan.position() - start.0;
        let end_position = if known_end.is_some() { region_end } else { scan.position() };
        self.walked.push((link.name, end_position, index));
        Ok(())
    }

    fn note(&mut self, header: &BatchHeader, marker: Option<Marker>) {
        // What a batch says was durable lay before it.
        self.durable = self.durable.max(header.durable_end.min(header.base_offset));
        self.last_append_time = self.last_append_time.max(header.append_time);
        if let Some(marker) = marker {
            self.log_start = self.log_start.max(marker.log_start.min(header.base_offset));
            self.last = Last::Marker(marker.kind);
        } else {
            self.producers.note(header, self.producers_max);
            self.last = Last::Records;
        }
    }

    /// A whole segment that can't be read.
    fn lose_link(&mut self, at: usize, segment: SegmentName, fault: Fault) {
        let (offset, zero) = (self.end, false);
        let bad = BadSpot { position: 0, end: 0, offset, next_offset: None, fault, zero };
        self.spots.push(Spot { link: at, segment, bad, next: None });
    }

    /// Goes over to the next segment, which begins at `base`.
    fn join(&mut self, at: usize, segment: SegmentName, base: Offset) {
        let tail = self.spots.last_mut().filter(|spot| spot.link == at && spot.next.is_none());
        if let Some(spot) = tail {
            spot.next = Some(base.max(spot.bad.offset));
        } else if self.end != base {
            let position = self.walked.last().map_or(0, |(_, end, _)| *end);
            let fault = Fault::OffsetJump { found: base, expected: self.end };
            let (offset, end) = (self.end.min(base), position);
            let bad = BadSpot { position, end, offset, next_offset: None, fault, zero: false };
            self.spots.push(Spot { link: at, segment, bad, next: Some(base) });
        }
        self.end = base;
    }
}
