//! SegmentName: what a segment's file name says, base offset and epoch.

use std::fmt;

use crate::offset::Offset;

/// What names a segment within its partition. Sorted by epoch, then by base offset: the order in
/// which segments were begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The partition's epoch when the segment was begun.
    pub epoch: u32,
    /// The offset of its first record.
    pub base: Offset,
}

impl SegmentName {
    /// The name of the segment's file.
    #[must_use]
    pub fn log_file(self) -> String {
        format!("{self}.log")
    }

    /// The name of its index file.
    #[must_use]
    pub fn index_file(self) -> String {
        format!("{self}.index")
    }

    /// Reads a file name; `None` if it is not that of a segment.
    #[must_use]
    pub fn parse_log(file: &str) -> Option<SegmentName> {
        SegmentName::parse(file.strip_suffix(".log")?)
    }

    /// Reads the file name of an index; `None` if it is not one.
    #[must_use]
    pub fn parse_index(file: &str) -> Option<SegmentName> {
        SegmentName::parse(file.strip_suffix(".index")?)
    }

    fn parse(stem: &str) -> Option<SegmentName> {
        let (base, epoch) = stem.split_once('-')?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        // Epochs that outgrow their eight digits get more.
        let widths = base.len() == 20 && (8..=10).contains(&epoch.len());
        if !widths || !digits(base) || !digits(epoch) {
            return None;
        }
        Some(SegmentName { base: base.parse().ok()?, epoch: epoch.parse().ok()? })
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{:08}", self.base, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_strangers_are_not_ours() {
        let late = SegmentName { base: u64::MAX, epoch: u32::MAX };
        assert_eq!(SegmentName::parse_log(&late.log_file()), Some(late));
        let name = SegmentName { base: 4096, epoch: 7 };
        assert_eq!(name.log_file(), "00000000000000004096-00000007.log");
        assert_eq!(SegmentName::parse_log(&name.log_file()), Some(name));
        assert_eq!(SegmentName::parse_index(&name.index_file()), Some(name));
        for stranger in ["x.log", "1-1.log", "0000000000000000409+-00000007.log", "checkpoint"] {
            assert_eq!(SegmentName::parse_log(stranger), None);
        }
    }
}
