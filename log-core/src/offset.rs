//! Offsets: where a record stands in its partition, and where a reader wants to start.

use std::fmt;

use crate::clock::Timestamp;

/// A record's place in its partition: 0, 1, 2, … in append order.
pub type Offset = u64;

/// A run of offsets; the end is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffsetRange {
    /// The first offset of the run.
    pub start: Offset,
    /// One past the last offset of the run.
    pub end: Offset,
}

impl OffsetRange {
    /// The run from `start` up to, and without, `end`.
    #[must_use]
    pub fn new(start: Offset, end: Offset) -> OffsetRange {
        OffsetRange { start, end }
    }

    /// Whether `offset` lies in the run.
    #[must_use]
    pub fn contains(self, offset: Offset) -> bool {
        self.start <= offset && offset < self.end
    }

    /// How many offsets the run spans.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the run spans nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// Where a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// At the oldest record that retention has left.
    Earliest,
    /// After the newest record: only what is appended from now on.
    Latest,
    /// At this offset.
    Offset(Offset),
    /// At the first record, in log order, whose timestamp is at or after this one.
    Time(Timestamp),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_half_open() {
        let range = OffsetRange::new(3, 5);
        assert!(!range.contains(2) && range.contains(3) && range.contains(4));
        assert!(!range.contains(5));
        assert_eq!((range.len(), range.to_string()), (2, "3..5".to_owned()));
        assert!(OffsetRange::new(5, 5).is_empty());
    }
}
