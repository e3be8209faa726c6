//! Survey: what looking at every byte of some topics finds; `check` tells it, `repair` acts on it.

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use log_core::error::{Corruption, Error};
use log_core::offset::{Offset, OffsetRange};
use log_core::partition::{CheckReport, Partition, RecoveryReport};
use log_core::store::{Store, Topic};
use serde::{Serialize, Serializer};

use crate::failure::Result;
use crate::progress;

/// What was found, and how much was looked at.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) topics: u64,
    pub(crate) partitions: u64,
    pub(crate) looked_at: CheckReport,
    pub(crate) findings: Vec<Finding>,
}

/// One thing that is not as it should be, or that somebody may want to know.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    #[serde(rename = "finding")]
    pub(crate) kind: Kind,
    pub(crate) topic: Option<String>,
    pub(crate) partition: Option<u32>,
    #[serde(serialize_with = "lossy")]
    pub(crate) path: PathBuf,
    pub(crate) position: Option<u64>,
    /// The offsets that can't be read.
    #[serde(serialize_with = "start_and_end")]
    pub(crate) offsets: Option<OffsetRange>,
    /// Where appends can go on, if that is to be decided.
    pub(crate) goes_on_at: Option<Offset>,
    pub(crate) what: String,
}

/// What kind of thing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Stored bytes are not what was written.
    Corrupt,
    /// An index file does not fit its segment; it is derived.
    Index,
    /// A partition can't be opened at all.
    Unusable,
    /// The end of a partition can't be proven: it takes no writes.
    EndUnproven,
    /// The log was cut where an unclean stop had left it.
    Cut,
    /// A file that is no part of the log.
    Beside,
}

impl Kind {
    /// Whether it is damage; else it is only told.
    pub(crate) fn is_damage(self) -> bool {
        !matches!(self, Kind::Cut | Kind::Beside)
    }
}

impl Survey {
    /// Looks at every byte of these topics.
    pub(crate) fn of(topics: &[Topic]) -> Result<Survey> {
        let slots = || topics.iter().flat_map(Topic::partitions);
        let total = slots().flatten().map(|partition| partition.used_bytes()).sum();
        let bar = progress::bytes(total, "checking");
        let mut survey = Survey::default();
        for topic in topics {
            survey.topics += 1;
            for (number, slot) in (0..).zip(topic.partitions()) {
                survey.partitions += 1;
                let place = InTopic { topic: topic.name().as_str(), partition: number };
                match slot {
                    Ok(partition) => survey.look_at(place, &partition, &bar)?,
                    Err(error) => survey.findings.push(place.unusable(&error)),
                }
            }
        }
        bar.finish_and_clear();
        Ok(survey)
    }

    /// Adds what stands beside the topics of a store.
    pub(crate) fn add_leftovers(&mut self, store: &Store) {
        for leftover in store.leftovers() {
            self.findings.push(Finding {
                kind: Kind::Beside,
                topic: None,
                partition: None,
                path: leftover.path.clone(),
                position: None,
                offsets: None,
                goes_on_at: None,
                what: "the catalog does not list it; it was left alone".to_owned(),
            });
        }
    }

    pub(crate) fn is_sound(&self) -> bool {
        !self.findings.iter().any(|finding| finding.kind.is_damage())
    }

    fn look_at(
        &mut self,
        place: InTopic<'_>,
        partition: &Partition,
        bar: &ProgressBar,
    ) -> Result<()> {
        let report = partition.check(|bytes| bar.inc(bytes))?;
        for (kind, found) in [(Kind::Corrupt, &report.corrupt), (Kind::Index, &report.indexes)] {
            self.findings.extend(found.iter().map(|found| place.corruption(kind, found)));
        }
        self.looked_at.add(report);
        place.recovered(partition.recovery_report(), &mut self.findings);
        Ok(())
    }
}

/// The place of a finding.
#[derive(Clone, Copy)]
struct InTopic<'a> {
    topic: &'a str,
    partition: u32,
}

impl InTopic<'_> {
    fn finding(self, kind: Kind, path: PathBuf, what: String) -> Finding {
        Finding {
            kind,
            topic: Some(self.topic.to_owned()),
            partition: Some(self.partition),
            path,
            position: None,
            offsets: None,
            goes_on_at: None,
            what,
        }
    }

    fn unusable(self, error: &Error) -> Finding {
        let path = match error {
            Error::Io { path, .. } | Error::NewerFormat { path, .. } => path.clone(),
            Error::Corrupt(found) => found.path.clone(),
            _ => PathBuf::new(),
        };
        self.finding(Kind::Unusable, path, error.to_string())
    }

    fn corruption(self, kind: Kind, found: &Corruption) -> Finding {
        Finding {
            position: Some(found.position),
            offsets: (!found.offsets.is_empty()).then_some(found.offsets),
            ..self.finding(kind, found.path.clone(), found.fault.to_string())
        }
    }

    /// What opening has found, and looking at every byte does not.
    fn recovered(self, report: &RecoveryReport, findings: &mut Vec<Finding>) {
        if report.end_unproven {
            let what = "the end can't be proven, so it takes no writes until that is decided";
            let found = self.finding(Kind::EndUnproven, report.path.clone(), what.to_owned());
            findings.push(Finding { goes_on_at: Some(report.end), ..found });
        }
        if let Some(cut) = &report.cut {
            let acknowledged = if cut.possibly_acknowledged {
                "; nothing proves that what followed was synced, nor that it was not"
            } else {
                ""
            };
            let what = format!(
                "an unclean stop ended the log at offset {}: {}{acknowledged}",
                cut.offset, cut.fault
            );
            let found = self.finding(Kind::Cut, cut.path.clone(), what);
            findings.push(Finding { position: Some(cut.position), ..found });
        }
        let beside =
            |path: &PathBuf, what: &str| self.finding(Kind::Beside, path.clone(), what.to_owned());
        let hidden = "left by an unclean stop; it is no part of the log";
        findings.extend(report.hidden.iter().map(|path| beside(path, hidden)));
        let unborn = "a segment that was never begun; it is no part of the log";
        findings.extend(report.unborn.iter().map(|found| beside(&found.path, unborn)));
        let stray = "it is no file of the engine";
        findings.extend(report.strays.iter().map(|path| beside(path, stray)));
    }
}

fn lossy<S: Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// As `{"start":5,"end":9}`, or null.
pub(crate) fn start_and_end<S: Serializer>(
    range: &Option<OffsetRange>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Range {
        start: Offset,
        end: Offset,
    }
    let range = range.map(|OffsetRange { start, end }| Range { start, end });
    range.serialize(serializer)
}
