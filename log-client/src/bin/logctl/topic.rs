//! `topic`: make, list, describe, alter, extend, trim and delete topics.

use clap::{Args, Subcommand};
use log_core::config::{PARTITIONS_LIMIT, TopicConfig};
use log_core::name::TopicName;
use log_core::offset::Offset;
use log_core::partition::Partition;
use log_core::store::Topic;
use serde::Serialize;

use crate::directory::{Directory, topic};
use crate::failure::{Exit, Failure, Result};
use crate::output::{Output, count};
use crate::settings::{Settings, ShownConfig, show_config};
use crate::units::about_bytes;

const CREATE_HELP: &str = "\
Examples:
  logctl --data ./data topic create orders --partitions 8
  logctl --data ./data topic create clicks --partitions 4 --flush interval:200ms:1MiB \\
      --retention-age 7d --retention-bytes 10GiB --segment-age 1d
A directory that holds no store yet becomes one.";

const ALTER_HELP: &str = "\
Example:
  logctl --data ./data topic alter clicks --retention-age none --flush sync
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

pub(crate) fn run(args: TopicArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    match args.verb {
        Verb::Create { name, partitions, settings } => {
            let name = TopicName::parse(&name)?;
            let config = settings.apply(TopicConfig::default());
            config.check()?;
            directory.change_or_create(|store| {
                Ok(store.create_topic(&name, partitions, config).map(drop)?)
            })?;
            changed(output, "created", &name)
        }
        Verb::List { all } => {
            let store = directory.read()?;
            list(if all { store.all_topics() } else { store.topics() }, output)
        }
        Verb::Describe { name } => describe(&topic(&directory.read()?, &name)?, output),
        Verb::Alter { name, settings } => {
            if settings == Settings::default() {
                let why = "what is to be altered? See `logctl topic alter --help`";
                return Err(Failure::Usage(why.to_owned()));
            }
            let name = TopicName::parse(&name)?;
            directory.change(|store| {
                let config = settings.apply(store.topic(&name)?.config());
                Ok(store.alter_topic(&name, config)?)
            })?;
            changed(output, "altered", &name)
        }
        Verb::Delete { name, yes } => delete(directory, &TopicName::parse(&name)?, yes, output),
        Verb::AddPartitions { name, total } => {
            let name = TopicName::parse(&name)?;
            directory.change(|store| Ok(store.add_partitions(&name, total)?))?;
            changed(output, "extended", &name)
        }
        Verb::Trim { name, partition, offset } => {
            trim(directory, &TopicName::parse(&name)?, partition, offset, output)
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

fn delete(directory: &Directory, name: &TopicName, yes: bool, output: &mut Output) -> Result<Exit> {
    if !yes {
        let found = topic(&directory.read()?, name.as_str())?;
        let records: u64 = found.partitions().iter().flatten().map(records).sum();
        return Err(Failure::Usage(format!(
            "topic {name} holds {} in {}; say --yes to delete it",
            count(records, "record"),
            count(found.partition_count().into(), "partition")
        )));
    }
    directory.change(|store| Ok(store.delete_topic(name)?))?;
    changed(output, "deleted", name)
}

#[derive(Serialize)]
struct Trimmed<'a> {
    topic: &'a str,
    done: &'a str,
    partition: u32,
    log_start: Offset,
    removed_segments: usize,
    removed_bytes: u64,
}

fn trim(
    directory: &Directory,
    name: &TopicName,
    number: u32,
    offset: Offset,
    output: &mut Output,
) -> Result<Exit> {
    let (removed, log_start) = directory.change(|store| {
        let partition = store.topic(name)?.partition(number)?;
        let removed = partition.trim(offset)?;
        Ok((removed, partition.ends().log_start))
    })?;
    let (removed_segments, removed_bytes) =
        (removed.len(), removed.iter().map(|segment| segment.bytes).sum());
    let topic = name.as_str();
    let fact = Trimmed {
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
        count(removed_segments as u64, "segment"),
        about_bytes(removed_bytes)
    );
    output.fact(&fact, &text)?;
    Ok(Exit::Done)
}

fn records(partition: &Partition) -> u64 {
    let ends = partition.ends();
    ends.end - ends.log_start
}

#[derive(Serialize)]
struct Listed<'a> {
    topic: &'a str,
    id: String,
    partitions: u32,
    records: u64,
    bytes: u64,
    flush: String,
    unusable_partitions: usize,
}

fn list(topics: Vec<Topic>, output: &mut Output) -> Result<Exit> {
    let heading = ["TOPIC", "PARTITIONS", "RECORDS", "BYTES", "FLUSH"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for topic in topics {
        let slots = topic.partitions();
        let usable = || slots.iter().flatten();
        let listed = Listed {
            topic: topic.name().as_str(),
            id: format!("{:032x}", topic.id()),
            partitions: topic.partition_count(),
            records: usable().map(records).sum(),
            bytes: usable().map(Partition::used_bytes).sum(),
            flush: crate::settings::show_flush(topic.config().flush),
            unusable_partitions: slots.len() - usable().count(),
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
    segments: Option<usize>,
    error: Option<String>,
}

fn describe(topic: &Topic, output: &mut Output) -> Result<Exit> {
    let config = topic.config();
    let slots = topic.partitions().into_iter().enumerate();
    let described = Described {
        topic: topic.name().as_str(),
        id: format!("{:032x}", topic.id()),
        config: ShownConfig::from(&config),
        partitions: slots.map(|(number, slot)| describe_partition(number, slot)).collect(),
    };
    if output.is_json() {
        output.object(&described)?;
        return Ok(Exit::Done);
    }
    output.line(&format!("topic {}  id {}", described.topic, described.id))?;
    for (option, value) in show_config(&config) {
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
    slot: std::result::Result<Partition, log_core::error::Error>,
) -> DescribedPartition {
    let usable = slot.as_ref().ok();
    let ends = usable.map(Partition::ends);
    DescribedPartition {
        partition: number,
        log_start: ends.map(|ends| ends.log_start),
        durable_end: ends.map(|ends| ends.durable_end),
        end: ends.map(|ends| ends.end),
        bytes: usable.map(Partition::used_bytes),
        segments: usable.map(|partition| partition.segments().len()),
        error: slot.as_ref().err().map(ToString::to_string),
    }
}
