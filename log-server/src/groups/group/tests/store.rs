//! Store of the model: a log of writes that become durable in their order, later.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use log_core::protocol::{ErrorCode, Refusal};
use log_core::store::Moves;

use crate::groups::group::{Change, Entry, NewGrant, Place, Position, Token};

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Line {
    pub(super) position: Option<Position>,
    pub(super) grant: Option<NewGrant>,
    /// How often it was reset: then it may go back.
    pub(super) resets: u64,
}

/// A write that is not durable yet: when it will be, and what it leads to.
#[derive(Debug)]
struct Waiting {
    token: Token,
    at: Duration,
    lines: Vec<(Place, Line)>,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    durable: BTreeMap<Place, Line>,
    latest: BTreeMap<Place, Line>,
    waiting: VecDeque<Waiting>,
}

impl Store {
    /// Writes all of it or nothing, as the engine does.
    pub(super) fn write(
        &mut self,
        token: Token,
        changes: &[Change],
        at: Duration,
    ) -> Result<(), Refusal> {
        let mut lines = Vec::new();
        for change in changes {
            let mut line = self.latest.get(&change.place).cloned().unwrap_or_default();
            if let Some(new) = &change.position {
                let before = line.position.as_ref().map_or(0, |position| position.offset);
                match new.moves {
                    Moves::Forward if new.position.offset < before => {
                        return Err(Refusal::new(ErrorCode::OffsetWentBack, "model"));
                    }
                    Moves::Forward => {}
                    Moves::Anywhere => line.resets += 1,
                }
                line.position = Some(new.position.clone());
            }
            if let Some(grant) = &change.grant {
                assert!(line.position.is_some(), "a grant without a position: {change:?}");
                if let Some(before) = &line.grant {
                    let may = grant.epoch > before.epoch
                        || grant.epoch == before.epoch && grant.owner.is_none();
                    assert!(may, "{before:?} may not become {grant:?}");
                }
                line.grant = Some(grant.clone());
            }
            lines.push((change.place, line));
        }
        self.latest.extend(lines.iter().cloned());
        let at = self.waiting.back().map_or(at, |last| last.at.max(at));
        self.waiting.push_back(Waiting { token, at, lines });
        Ok(())
    }

    /// What has become durable.
    pub(super) fn sync(&mut self, now: Duration) -> Vec<Token> {
        let mut tokens = Vec::new();
        while let Some(next) = self.waiting.pop_front_if(|next| next.at <= now) {
            self.durable.extend(next.lines);
            tokens.push(next.token);
        }
        tokens
    }

    /// The process dies: of what was not durable, the first `kept` writes are.
    pub(super) fn crash(&mut self, kept: usize) {
        let kept = kept.min(self.waiting.len());
        for next in self.waiting.drain(..kept) {
            self.durable.extend(next.lines);
        }
        self.waiting.clear();
        self.latest.clone_from(&self.durable);
    }

    pub(super) fn durable(&self, place: Place) -> Line {
        self.durable.get(&place).cloned().unwrap_or_default()
    }

    pub(super) fn resets(&self, place: Place) -> u64 {
        self.latest.get(&place).map_or(0, |line| line.resets)
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (&Place, &Line)> {
        self.durable.iter()
    }

    /// Who has the last grant that was written, durable or not.
    pub(super) fn latest_grant(&self, place: Place) -> Option<&NewGrant> {
        self.latest.get(&place)?.grant.as_ref()
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |(place, line): (&Place, &Line)| {
            let position = line.position.clone()?;
            Some(Entry { place: *place, position, grant: line.grant.clone() })
        };
        self.durable.iter().filter_map(entry).collect()
    }
}
