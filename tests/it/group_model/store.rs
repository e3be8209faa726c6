//! Store of the model: writes become durable in their order, later; a crash loses those that are not.

use std::collections::{BTreeMap, VecDeque};

use log_core::protocol::{ErrorCode, Refusal};
use log_core::store::Moves;
use log_server::groups::group::{Change, Entry, NewGrant, Place, Position, Token};

/// What is written of a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) position: Option<Position>,
    pub(crate) grant: Option<NewGrant>,
}

/// A write that is not durable yet.
#[derive(Debug, Clone)]
struct Waiting {
    token: Token,
    /// Its outcome was told: too early, or as a failure.
    told: bool,
    lines: Vec<(Place, Line)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Store {
    durable: BTreeMap<Place, Line>,
    latest: BTreeMap<Place, Line>,
    waiting: VecDeque<Waiting>,
    /// It is full: writes are refused, and leave nothing.
    pub(crate) full: bool,
    /// A sync has failed: nothing becomes durable any more but by chance, in a crash.
    pub(crate) latched: bool,
}

impl Store {
    /// Writes all of it or nothing, as the engine does.
    pub(crate) fn write(&mut self, token: Token, changes: &[Change]) -> Result<(), Refusal> {
        if self.full {
            return Err(Refusal::new(ErrorCode::DiskFull, "model"));
        }
        let mut lines = Vec::new();
        for change in changes {
            let mut line = self.latest.get(&change.place).cloned().unwrap_or_default();
            if let Some(new) = &change.position {
                let before = line.position.as_ref().map_or(0, |position| position.offset);
                if new.moves == Moves::Forward && new.position.offset < before {
                    return Err(Refusal::new(ErrorCode::OffsetWentBack, "model"));
                }
                line.position = Some(new.position.clone());
            }
            if let Some(grant) = &change.grant {
                line.grant = Some(grant.clone());
            }
            lines.push((change.place, line));
        }
        self.latest.extend(lines.iter().cloned());
        self.waiting.push_back(Waiting { token, told: self.latched, lines });
        if self.latched {
            return Err(Refusal::new(ErrorCode::OutcomeUnknown, "model"));
        }
        Ok(())
    }

    /// The last write counts as told.
    pub(crate) fn note_told(&mut self) {
        if let Some(last) = self.waiting.back_mut() {
            last.told = true;
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.latched && !self.waiting.is_empty()
    }

    /// The next write becomes durable; its token, if that is to be told.
    pub(crate) fn sync(&mut self) -> Option<Token> {
        if self.latched {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.durable.extend(next.lines);
        (!next.told).then_some(next.token)
    }

    /// A sync fails, and so does all that waits for it; what is told of it.
    pub(crate) fn latch(&mut self) -> Vec<Token> {
        self.latched = true;
        let untold = self.waiting.iter_mut().filter(|next| !next.told);
        untold
            .map(|next| {
                next.told = true;
                next.token
            })
            .collect()
    }

    /// The process dies: of what was not durable, the first `kept` writes are.
    pub(crate) fn crash(&mut self, kept: usize) {
        let kept = kept.min(self.waiting.len());
        for next in self.waiting.drain(..kept) {
            self.durable.extend(next.lines);
        }
        self.waiting.clear();
        self.latest.clone_from(&self.durable);
        (self.full, self.latched) = (false, false);
    }

    pub(crate) fn durable(&self) -> &BTreeMap<Place, Line> {
        &self.durable
    }

    pub(crate) fn durable_offset(&self, place: Place) -> u64 {
        let line = self.durable.get(&place);
        line.and_then(|line| line.position.as_ref()).map_or(0, |position| position.offset)
    }

    /// Who has the last grant that was written, durable or not.
    pub(crate) fn latest_grant(&self, place: Place) -> Option<&NewGrant> {
        self.latest.get(&place)?.grant.as_ref()
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        let entry = |(place, line): (&Place, &Line)| {
            let position = line.position.clone()?;
            Some(Entry { place: *place, position, grant: line.grant.clone() })
        };
        self.durable.iter().filter_map(entry).collect()
    }
}
