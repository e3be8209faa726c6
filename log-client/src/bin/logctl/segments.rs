//! `segments`: what is in each file of a topic.

use clap::Args;
use log_core::partition::SegmentDescription;
use serde::Serialize;

use crate::directory::{Directory, topic};
use crate::failure::{Exit, Result, note};
use crate::output::Output;
use crate::time;
use crate::units::about_bytes;

const AFTER_HELP: &str = "\
Examples:
  logctl --data ./data segments orders
  logctl --data ./data segments orders -p 3 --json
The epoch grows with each unclean stop. A sealed segment takes no more records. Bytes are those
in use; files are preallocated, and larger.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SegmentsArgs {
    /// The topic
    topic: String,

    /// Only this partition
    #[arg(short, long)]
    partition: Option<u32>,
}

#[derive(Serialize)]
struct Shown<'a> {
    topic: &'a str,
    partition: u32,
    path: String,
    start: u64,
    end: u64,
    epoch: u32,
    bytes: u64,
    first_append_time: Option<i64>,
    last_append_time: Option<i64>,
    sealed: bool,
    fault: Option<String>,
}

pub(crate) fn run(args: &SegmentsArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    let store = directory.read()?;
    let topic = topic(&store, &args.topic)?;
    let numbers = match args.partition {
        Some(number) => {
            topic.partition(number)?;
            number..number + 1
        }
        None => 0..topic.partition_count(),
    };
    let heading = [
        "PARTITION",
        "FILE",
        "OFFSETS",
        "EPOCH",
        "BYTES",
        "FIRST APPENDED",
        "LAST APPENDED",
        "STATE",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut exit = Exit::Done;
    for partition in numbers {
        let found = match topic.partition(partition) {
            Ok(found) => found,
            Err(error) => {
                note(&format!("topic {} partition {partition}: {error}", topic.name()));
                exit = Exit::Found;
                continue;
            }
        };
        for segment in found.segments() {
            if segment.fault.is_some() {
                exit = Exit::Found;
            }
            if output.is_json() {
                output.object(&shown(topic.name().as_str(), partition, &segment))?;
            } else {
                rows.push(row(partition, &segment));
            }
        }
    }
    if !output.is_json() {
        output.table(&rows)?;
    }
    Ok(exit)
}

fn shown<'a>(topic: &'a str, partition: u32, segment: &SegmentDescription) -> Shown<'a> {
    Shown {
        topic,
        partition,
        path: segment.path.display().to_string(),
        start: segment.offsets.start,
        end: segment.offsets.end,
        epoch: segment.epoch,
        bytes: segment.bytes,
        first_append_time: segment.first_append_time.map(|time| time.as_millis()),
        last_append_time: segment.last_append_time.map(|time| time.as_millis()),
        sealed: segment.sealed,
        fault: segment.fault.as_ref().map(ToString::to_string),
    }
}

fn row(partition: u32, segment: &SegmentDescription) -> Vec<String> {
    let file = segment.path.file_name().map(|name| name.to_string_lossy().into_owned());
    let at = |time| Option::map_or(time, "-".to_owned(), time::show);
    let state = match &segment.fault {
        Some(fault) => format!("can't be read: {fault}"),
        None if segment.sealed => "sealed".to_owned(),
        None => "active".to_owned(),
    };
    vec![
        partition.to_string(),
        file.unwrap_or_default(),
        segment.offsets.to_string(),
        segment.epoch.to_string(),
        about_bytes(segment.bytes),
        at(segment.first_append_time),
        at(segment.last_append_time),
        state,
    ]
}
