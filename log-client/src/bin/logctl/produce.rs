//! `produce`: the lines of stdin become records, one a line.
//!
//! What one read of stdin gives is appended together, a batch per partition, and is acknowledged
//! before more is read: a pipe that trickles is durable line by line, a file goes in large batches.

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::sync::mpsc;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use log_client::Acks;
use log_core::clock::{Clock, SystemClock, Timestamp};
use log_core::config::{FlushPolicy, TopicConfig};
use log_core::name::TopicName;
use log_core::offset::{Offset, OffsetRange};
use log_core::partition::Appended;
use log_core::record::{BatchBuilder, BatchLimits, Codec, Header, Record, check_records};
use log_core::store::Topic;
use serde::Serialize;

use crate::directory::Directory;
use crate::failure::{Exit, Failure, Result, note};
use crate::output::{Output, count};
use crate::progress;

const AFTER_HELP: &str = "\
Examples:
  printf 'one\\ntwo\\n' | logctl --data ./data produce orders
  echo 'o-17,paid' | logctl --data ./data produce orders --key-separator ,
  logctl --data ./data produce orders --key o-17 -H source=import < lines.txt
Each line is a record, its newline left out; an empty line is a record with an empty value.
Records with one key go to one partition, in their order. What is acknowledged is told at the
end, on stderr; with --json on stdout. Where a line is refused, those before it are stored.";

/// How much of stdin is read, and appended, at once.
const READ_BYTES: usize = 1024 * 1024;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ProduceArgs {
    /// The topic
    pub(crate) topic: String,

    /// The key of every record
    #[arg(long, conflicts_with = "key_separator")]
    key: Option<String>,

    /// Each line is KEY, this text, VALUE; it is parted at the first place that matches
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    key_separator: Option<String>,

    /// A header of every record; NAME alone is one without a value. Can be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE")]
    pub(crate) headers: Vec<String>,

    /// The partition, whatever the key
    #[arg(short, long)]
    pub(crate) partition: Option<u32>,

    /// How batches are compressed
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub(crate) compression: Compression,

    /// When a record is acknowledged; a directory knows the topic's policy alone
    #[arg(long, value_enum, default_value_t = AckLevel::Policy)]
    pub(crate) acks: AckLevel,
}

/// When a record is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AckLevel {
    /// As the topic's flush policy says
    Policy,
    /// Never: nothing is known of what became of it
    None,
    /// When it is written: it survives the death of the server's process
    Written,
    /// When it is on disk: it survives the death of the machine
    Synced,
}

impl From<AckLevel> for Acks {
    fn from(level: AckLevel) -> Acks {
        match level {
            AckLevel::Policy => Acks::Policy,
            AckLevel::None => Acks::None,
            AckLevel::Written => Acks::Written,
            AckLevel::Synced => Acks::Synced,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Compression {
    None,
    Lz4,
    Zstd,
}

impl From<Compression> for Codec {
    fn from(compression: Compression) -> Codec {
        match compression {
            Compression::None => Codec::None,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd => Codec::Zstd,
        }
    }
}

pub(crate) fn run(args: &ProduceArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    if args.acks != AckLevel::Policy {
        let why = "--acks is for servers; a directory acknowledges as the topic's policy says";
        return Err(Failure::Usage(why.to_owned()));
    }
    let name = TopicName::parse(&args.topic)?;
    let headers = parse_headers(&args.headers)?;
    let store = directory.write()?;
    let topic = store.topic(&name)?;
    let mut producer = Producer::new(args, &headers, topic)?;
    let produced = producer.run(&mut BufReader::with_capacity(READ_BYTES, io::stdin().lock()));
    producer.progress.finish_and_clear();
    // What was acknowledged is told, whatever came after it.
    let closed = store.close().map_err(Failure::from);
    let told = producer.tell(output);
    produced.and(closed).and(told).map(|()| Exit::Done)
}

pub(crate) fn parse_headers(headers: &[String]) -> Result<Vec<Header<'_>>> {
    let mut parsed = Vec::with_capacity(headers.len());
    for header in headers {
        let (name, value) = match header.split_once('=') {
            Some((name, value)) => (name, Some(value.as_bytes())),
            None => (header.as_str(), None),
        };
        if name.is_empty() {
            return Err(Failure::Usage(format!("header {header:?} has no name: write NAME=VALUE")));
        }
        parsed.push(Header { name, value });
    }
    Ok(parsed)
}

/// What goes to one partition.
#[derive(Default)]
struct Lane {
    /// Records that are not appended yet, if there are any.
    batch: Option<BatchBuilder>,
    /// What is acknowledged. Nobody else appends meanwhile, so it is one run.
    acknowledged: Option<OffsetRange>,
}

struct Producer<'a> {
    args: &'a ProduceArgs,
    headers: &'a [Header<'a>],
    topic: Topic,
    config: TopicConfig,
    limits: BatchLimits,
    lanes: Vec<Lane>,
    lines: u64,
    progress: ProgressBar,
}

/// What follows a line.
#[derive(PartialEq, Eq)]
enum After {
    /// The next line, which is there already.
    Line,
    /// A flush: a batch is full, or what was read is used up.
    Flush,
    /// Nothing: stdin has ended.
    End,
}

impl<'a> Producer<'a> {
    fn new(args: &'a ProduceArgs, headers: &'a [Header<'a>], topic: Topic) -> Result<Producer<'a>> {
        if let Some(number) = args.partition {
            topic.partition(number)?;
        }
        let config = topic.config();
        let limits = BatchLimits {
            record_max_bytes: config.record_max_bytes,
            batch_max_bytes: config.batch_max_bytes,
            expanded_max: config.batch_max_expanded_bytes,
            headers_max: config.headers_max,
            strict: config.strict,
        };
        Ok(Producer {
            args,
            headers,
            lanes: (0..topic.partition_count()).map(|_| Lane::default()).collect(),
            topic,
            config,
            limits,
            lines: 0,
            // Where lines are typed, it would stand in the way.
            progress: match io::stdin().is_terminal() {
                true => ProgressBar::hidden(),
                false => progress::records("appended"),
            },
        })
    }

    fn run(&mut self, input: &mut BufReader<impl Read>) -> Result<()> {
        let clock = SystemClock::new();
        let mut line = Vec::new();
        loop {
            let after = match self.take(input, &mut line, clock.now()) {
                Ok(After::Line) => continue,
                Ok(after) => after,
                Err(failure) => {
                    // Those before a line that is refused are stored all the same.
                    self.flush()?;
                    let line = self.lines;
                    note(&format!("line {line} was not appended, nor what follows it"));
                    return Err(failure);
                }
            };
            self.flush()?;
            if after == After::End {
                return Ok(());
            }
        }
    }

    /// Takes a line into the batch of its partition.
    fn take(
        &mut self,
        input: &mut BufReader<impl Read>,
        line: &mut Vec<u8>,
        now: Timestamp,
    ) -> Result<After> {
        line.clear();
        // A line that is too long is not read to its end, which may never come.
        let most = u64::from(self.config.record_max_bytes) + 1;
        self.lines += 1;
        let read = input.by_ref().take(most).read_until(b'\n', line).map_err(Failure::Input)?;
        if read == 0 {
            return Ok(After::End);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let record = parse_line(self.args, self.headers, line, self.lines)?;
        check_records(std::slice::from_ref(&record), now, &self.limits)?;
        let number = self.args.partition.unwrap_or_else(|| self.topic.choose(&record));
        let full = self.push(number, &record, now)?;
        Ok(if full || input.buffer().is_empty() { After::Flush } else { After::Line })
    }

    /// Returns whether the batch could not take every record that may come.
    fn push(&mut self, number: u32, record: &Record<'_>, now: Timestamp) -> Result<bool> {
        let codec = Codec::from(self.args.compression);
        let lane = &mut self.lanes[number as usize];
        let batch = lane.batch.get_or_insert_with(|| BatchBuilder::new(codec));
        batch.push(record, now)?;
        let most = self.config.batch_max_bytes - self.config.record_max_bytes;
        Ok(batch.encoded_bytes() >= most as usize)
    }

    /// Appends what was taken, to all partitions, then waits for all of them. Where one fails, what
    /// the others have acknowledged counts.
    fn flush(&mut self) -> Result<()> {
        let (sender, acknowledged) = mpsc::channel();
        let mut outcome = Ok(());
        for (number, lane) in (0..).zip(&mut self.lanes) {
            let Some(mut batch) = lane.batch.take() else { continue };
            let written = self.topic.partition(number).and_then(|partition| {
                let appended = partition.write_batch(&batch.finish()?, None)?;
                Ok((partition, appended))
            });
            match written {
                Ok((partition, appended)) if self.config.flush == FlushPolicy::Sync => {
                    let sender = sender.clone();
                    partition.when_durable(appended.end, move |durable| {
                        // The receiver waits for all of them.
                        let _ = sender.send((number, durable.map(|()| appended)));
                    });
                }
                written => {
                    let written = written.map(|(_, appended)| appended);
                    let _ = sender.send((number, written));
                }
            }
        }
        drop(sender);
        for (number, appended) in acknowledged {
            match appended {
                Ok(appended) => self.acknowledge(number, &appended),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        Ok(outcome?)
    }

    fn acknowledge(&mut self, number: u32, appended: &Appended) {
        let lane = &mut self.lanes[number as usize];
        let start = lane.acknowledged.map_or(appended.base_offset, |range| range.start);
        lane.acknowledged = Some(OffsetRange::new(start, appended.end));
        self.progress.inc(appended.end - appended.base_offset);
    }

    fn tell(&self, output: &mut Output) -> Result<()> {
        let lanes = (0..).zip(&self.lanes);
        let partitions: Vec<Produced> = lanes
            .filter_map(|(partition, lane)| {
                let OffsetRange { start: first, end } = lane.acknowledged?;
                Some(Produced { partition, records: end - first, first, end })
            })
            .collect();
        tell(self.topic.name().as_str(), partitions, output)
    }
}

/// Tells what was acknowledged.
pub(crate) fn tell(topic: &str, partitions: Vec<Produced>, output: &mut Output) -> Result<()> {
    let records = partitions.iter().map(|partition| partition.records).sum();
    if output.is_json() {
        return output.object(&Acknowledged { topic, records, partitions });
    }
    note(&format!("appended {} to topic {topic}", count(records, "record")));
    for Produced { partition, records, first, end } in partitions {
        let records = count(records, "record");
        note(&format!("  partition {partition}: {records}, offsets {first}..{end}"));
    }
    Ok(())
}

#[derive(Serialize)]
struct Acknowledged<'a> {
    topic: &'a str,
    records: u64,
    partitions: Vec<Produced>,
}

/// What was acknowledged of a partition.
#[derive(Serialize)]
pub(crate) struct Produced {
    pub(crate) partition: u32,
    pub(crate) records: u64,
    /// The first offset, and one past the last.
    pub(crate) first: Offset,
    pub(crate) end: Offset,
}

/// The record that a line means.
pub(crate) fn parse_line<'a>(
    args: &'a ProduceArgs,
    headers: &'a [Header<'a>],
    line: &'a [u8],
    number: u64,
) -> Result<Record<'a>> {
    let record = Record::new(line).with_headers(headers);
    if let Some(key) = &args.key {
        return Ok(record.with_key(key.as_bytes()));
    }
    let Some(separator) = &args.key_separator else { return Ok(record) };
    let Some(at) = find(line, separator.as_bytes()) else {
        // Without its key it would go to any partition, out of the order of its key.
        let text = format!("line {number} has no {separator:?} behind its key");
        return Err(Failure::Usage(text));
    };
    let (key, value) = (&line[..at], &line[at + separator.len()..]);
    Ok(Record { value: Some(value), ..record.with_key(key) })
}

/// Where `part` is first found in `bytes`.
fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
