//! `topic`: make, list, describe, alter, extend, trim and delete topics.

use clap::{Args, Subcommand};
use log_core::config::{PARTITIONS_LIMIT, TopicConfig};
use log_core::name::TopicName;
use log_core::offset::Offset;
use log_core::protocol::topics::PartitionEndsV1;
use serde::Serialize;

use crate::failure::{Exit, Failure, Result};
use crate::output::{Output, count};
use crate::settings::{Settings, ShownConfig, show_config};
use crate::target::{Target, TopicFacts, Trimmed};
use crate::units::about_bytes;

const CREATE_HELP: &str = "\
Examples:
  logctl topic create orders --partitions 8
  logctl --data ./data topic create clicks --partitions 4 --flush interval:200ms:1MiB \\
      --retention-age 7d --retention-bytes 10GiB --segment-age 1d
A directory (--data) that holds no store yet becomes one.";

const ALTER_HELP: &str = "\
Example:
  logctl topic alter clicks --retention-age none --flush sync
What is not named stays as it is. Stored records stay as they are.";

#[derive(Debug, Args)]
pub(crate) struct TopicArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a topic
    #[command(after_help = CREATE_HELP)]
    Create {
        /// Its name: ASCII letters, digits, '.', '_' and '-'
        name: String,
        /// How many partitions it has; more can be added later, none taken away
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTITIONS_LIMIT)))]
        partitions: u32,
        #[command(flatten)]
        settings: Settings,
    },
    /// List the topics
    List {
        /// The engine's own topics, too
        #[arg(long)]
        all: bool,
    },
    /// Say how a topic behaves, and where its partitions begin and end
    Describe {
        /// The topic
        name: String,
    },
    /// Make a topic behave otherwise from now on
    #[command(after_help = ALTER_HELP)]
    Alter {
        /// The topic
        name: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Delete a topic with all its records, and what groups have committed for it
    Delete {
        /// The topic
        name: String,
        /// Yes, delete it
        #[arg(long)]
        yes: bool,
    },
    /// Give a topic more partitions; records of a key may go to another one from then on
    AddPartitions {
        /// The topic
        name: String,
        /// How many it has then
        #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTITIONS_LIMIT)))]
        total: u32,
    },
    /// Give up the records of a partition below an offset
    Trim {
        /// The topic
        name: String,
        /// The partition
        partition: u32,
        /// The first offset that is kept
        offset: Offset,
    },
}

pub(crate) fn run(args: TopicArgs, target: &Target, output: &mut Output) -> Result<Exit> {
    match args.verb {
        Verb::Create { name, partitions, settings } => {
            let name = TopicName::parse(&name)?;
            let config = settings.apply(TopicConfig::default());
            config.check()?;
            target.create_topic(&name, partitions, config)?;
            changed(output, "created", &name)
        }
        Verb::List { all } => list(&target.topics(all)?, output),
        Verb::Describe { name } => describe(&target.topic(&name)?, output),
        Verb::Alter { name, settings } => {
            if settings == Settings::default() {
                let why = "what is to be altered? See `logctl topic alter --help`";
                return Err(Failure::Usage(why.to_owned()));
            }
            let name = TopicName::parse(&name)?;
            target.alter_topic(&name, |config| settings.apply(config))?;
            changed(output, "altered", &name)
        }
        Verb::Delete { name, yes } => delete(target, &TopicName::parse(&name)?, yes, output),
        Verb::AddPartitions { name, total } => {
            let name = TopicName::parse(&name)?;
            target.add_partitions(&name, total)?;
            changed(output, "extended", &name)
        }
        Verb::Trim { name, partition, offset } => {
            trim(target, &TopicName::parse(&name)?, partition, offset, output)
        }
    }
}

#[derive(Serialize)]
struct Changed<'a> {
    topic: &'a str,
    done: &'a str,
}

fn changed(output: &mut Output, done: &str, name: &TopicName) -> Result<Exit> {
    output.fact(&Changed { topic: name.as_str(), done }, &format!("{done} topic {name}"))?;
    Ok(Exit::Done)
}

fn delete(target: &Target, name: &TopicName, yes: bool, output: &mut Output) -> Result<Exit> {
    if !yes {
        let found = target.topic(name.as_str())?;
        let records: u64 = found.partitions.iter().flatten().map(records).sum();
        return Err(Failure::Usage(format!(
            "topic {name} holds {} in {}; say --yes to delete it",
            count(records, "record"),
            count(found.partitions.len() as u64, "partition")
        )));
    }
    target.delete_topic(name)?;
    changed(output, "deleted", name)
}

#[derive(Serialize)]
struct ShownTrim<'a> {
    topic: &'a str,
    done: &'a str,
    partition: u32,
    log_start: Offset,
    removed_segments: u64,
    removed_bytes: u64,
}

fn trim(
    target: &Target,
    name: &TopicName,
    number: u32,
    offset: Offset,
    output: &mut Output,
) -> Result<Exit> {
    let Trimmed { log_start, removed_segments, removed_bytes } =
        target.trim(name, number, offset)?;
    let topic = name.as_str();
    let fact = ShownTrim {
        topic,
        done: "trimmed",
        partition: number,
        log_start,
        removed_segments,
        removed_bytes,
    };
    let text = format!(
        "trimmed topic {name} partition {number}: it starts at offset {log_start}; \
         {} removed, {}",
        count(removed_segments, "segment"),
        about_bytes(removed_bytes)
    );
    output.fact(&fact, &text)?;
    Ok(Exit::Done)
}

fn records(ends: &PartitionEndsV1) -> u64 {
    ends.end - ends.log_start
}

#[derive(Serialize)]
struct Listed<'a> {
    topic: &'a str,
    id: String,
    partitions: usize,
    records: u64,
    bytes: u64,
    flush: String,
    unusable_partitions: usize,
}

fn list(topics: &[TopicFacts], output: &mut Output) -> Result<Exit> {
    let heading = ["TOPIC", "PARTITIONS", "RECORDS", "BYTES", "FLUSH"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for topic in topics {
        let usable = || topic.partitions.iter().flatten();
        let listed = Listed {
            topic: &topic.name,
            id: format!("{:032x}", topic.id),
            partitions: topic.partitions.len(),
            records: usable().map(records).sum(),
            bytes: usable().map(|ends| ends.bytes).sum(),
            flush: crate::settings::show_flush(topic.config.flush),
            unusable_partitions: topic.partitions.len() - usable().count(),
        };
        if output.is_json() {
            output.object(&listed)?;
            continue;
        }
        let mut flush = listed.flush;
        if listed.unusable_partitions > 0 {
            flush += &format!(
                "  (can't be read: {})",
                count(listed.unusable_partitions as u64, "partition")
            );
        }
        rows.push(vec![
            listed.topic.to_owned(),
            listed.partitions.to_string(),
            listed.records.to_string(),
            about_bytes(listed.bytes),
            flush,
        ]);
    }
    if !output.is_json() {
        output.table(&rows)?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Described<'a> {
    topic: &'a str,
    id: String,
    config: ShownConfig,
    partitions: Vec<DescribedPartition>,
}

#[derive(Serialize)]
struct DescribedPartition {
    partition: usize,
    log_start: Option<Offset>,
    durable_end: Option<Offset>,
    end: Option<Offset>,
    bytes: Option<u64>,
    segments: Option<u32>,
    error: Option<String>,
}

fn describe(topic: &TopicFacts, output: &mut Output) -> Result<Exit> {
    let slots = topic.partitions.iter().enumerate();
    let described = Described {
        topic: &topic.name,
        id: format!("{:032x}", topic.id),
        config: ShownConfig::from(&topic.config),
        partitions: slots.map(|(number, slot)| describe_partition(number, slot)).collect(),
    };
    if output.is_json() {
        output.object(&described)?;
        return Ok(Exit::Done);
    }
    output.line(&format!("topic {}  id {}", described.topic, described.id))?;
    for (option, value) in show_config(&topic.config) {
        output.line(&format!("  {option:<25} {value}"))?;
    }
    let heading = ["PARTITION", "START", "DURABLE END", "END", "BYTES", "SEGMENTS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for partition in &described.partitions {
        let mut row = vec![partition.partition.to_string()];
        match &partition.error {
            Some(_) => row.push("can't be read".to_owned()),
            None => {
                let ends = [partition.log_start, partition.durable_end, partition.end];
                row.extend(ends.iter().flatten().map(u64::to_string));
                row.push(partition.bytes.map(about_bytes).unwrap_or_default());
                row.push(partition.segments.unwrap_or_default().to_string());
            }
        }
        rows.push(row);
    }
    output.table(&rows)?;
    for partition in &described.partitions {
        if let Some(error) = &partition.error {
            output.line(&format!("partition {}: {error}", partition.partition))?;
        }
    }
    Ok(Exit::Done)
}

fn describe_partition(
    number: usize,
    slot: &std::result::Result<PartitionEndsV1, String>,
) -> DescribedPartition {
    let ends = slot.as_ref().ok();
    DescribedPartition {
        partition: number,
        log_start: ends.map(|ends| ends.log_start),
        durable_end: ends.map(|ends| ends.durable_end),
        end: ends.map(|ends| ends.end),
        bytes: ends.map(|ends| ends.bytes),
        segments: ends.map(|ends| ends.segments),
        error: slot.as_ref().err().cloned(),
    }
}
