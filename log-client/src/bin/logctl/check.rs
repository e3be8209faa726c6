//! `check`: every checksum, the offsets dense, every record well-formed, the indexes right.

use clap::Args;
use serde::Serialize;

use crate::directory::{Directory, topics};
use crate::failure::{Exit, Result};
use crate::output::{Output, count};
use crate::survey::{Finding, Survey};
use crate::units::about_bytes;

const AFTER_HELP: &str = "\
Examples:
  logctl --data ./data check
  logctl --data ./data check orders --json
Nothing is changed. The store must be at rest: while another process has it open, this answers
with exit code 4. Exit code 0: all is sound, though there may be notes about what an unclean stop
has left; 1: something is damaged. With --json an object for each finding, then one with the sums.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CheckArgs {
    /// Only this topic
    topic: Option<String>,
}

#[derive(Serialize)]
struct Sums {
    sound: bool,
    topics: u64,
    partitions: u64,
    segments: u64,
    batches: u64,
    records: u64,
    bytes: u64,
}

pub(crate) fn run(args: &CheckArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    let at_rest = directory.read_at_rest()?;
    let mut survey = Survey::of(&topics(&at_rest.store, args.topic.as_deref())?)?;
    if args.topic.is_none() {
        survey.add_leftovers(&at_rest.store);
    }
    if output.is_json() {
        for finding in &survey.findings {
            output.object(finding)?;
        }
    } else if !survey.findings.is_empty() {
        output.table(&rows(&survey.findings))?;
    }
    let Survey { topics, partitions, ref looked_at, .. } = survey;
    let sums = Sums {
        sound: survey.is_sound(),
        topics,
        partitions,
        segments: looked_at.segments,
        batches: looked_at.batches,
        records: looked_at.records,
        bytes: looked_at.bytes,
    };
    output.fact(&sums, &text(&sums, survey.findings.len()))?;
    Ok(if sums.sound { Exit::Done } else { Exit::Found })
}

fn text(sums: &Sums, findings: usize) -> String {
    let verdict = match (sums.sound, findings) {
        (true, 0) => "sound",
        (true, _) => "sound, with the notes above",
        _ => "DAMAGED; what else is there can be read; `logctl repair --dry-run` says what to do",
    };
    let counts = [
        count(sums.topics, "topic"),
        count(sums.partitions, "partition"),
        count(sums.segments, "segment"),
        count(sums.batches, "batch"),
        count(sums.records, "record"),
        about_bytes(sums.bytes),
    ];
    format!("{}: {verdict}", counts.join(", "))
}

fn rows(findings: &[Finding]) -> Vec<Vec<String>> {
    let heading = ["FINDING", "TOPIC", "PARTITION", "OFFSETS", "FILE", "AT BYTE", "WHAT"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let none = || "-".to_owned();
    rows.extend(findings.iter().map(|finding| {
        let file = finding.path.file_name().map(|name| name.to_string_lossy().into_owned());
        vec![
            if finding.kind.is_damage() { "damage" } else { "note" }.to_owned(),
            finding.topic.clone().unwrap_or_else(none),
            finding.partition.map_or_else(none, |partition| partition.to_string()),
            finding.offsets.map_or_else(none, |offsets| offsets.to_string()),
            file.unwrap_or_else(none),
            finding.position.map_or_else(none, |position| position.to_string()),
            finding.what.clone(),
        ]
    }));
    rows
}
