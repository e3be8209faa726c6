//! `consume`: prints records, partition by partition, from what is there when it begins.
//!
//! The directory is opened for reading: without its lock, and without a view of what is appended
//! later. What can't be read is told, and stepped over.

use clap::Args;
use log_core::error::{Corruption, Error};
use log_core::offset::{Offset, OffsetRange, StartFrom};
use log_core::partition::Partition;
use log_core::record::RecordView;
use log_core::store::Topic;
use serde::Serialize;

use crate::directory::{Directory, topic};
use crate::failure::{Exit, Result, note};
use crate::format::{Format, LETTERS};
use crate::output::{Output, base64, printable};
use crate::range::{GRAMMAR, Place, Span};
use crate::time;

/// How much is read at once.
const READ_BYTES: usize = 1024 * 1024;

#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct ConsumeArgs {
    /// The topic
    topic: String,

    /// Which offsets: start, end, +n, -n, n, @time, or FROM:TO; see below
    #[arg(
        short,
        long,
        value_name = "OFFSETS",
        allow_hyphen_values = true,
        default_value = "start",
        hide_default_value = true
    )]
    offsets: Span,

    /// Only this partition. Can be repeated
    #[arg(short, long = "partition", value_name = "PARTITION")]
    partitions: Vec<u32>,

    /// Stop after this many records
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,

    /// Stop at the end; on a directory this is always so
    #[arg(short = 'e', long)]
    exit: bool,

    /// Only records with this key
    #[arg(long)]
    key: Option<String>,

    /// Print each record in this format; see below
    #[arg(short, long, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<Format>,
}

fn after_help() -> String {
    format!(
        "\
Examples:
  logctl --data ./data consume orders                        everything
  logctl --data ./data consume orders -o -10 -p 3            the last ten records of partition 3
  logctl --data ./data consume orders -o 100:200 -p 0 --json
  logctl --data ./data replay  orders -o @2013-01-01:2013-01-02 --key o-17
  logctl --data ./data consume orders -f '%p %o %k %s\\n' -n 5

{GRAMMAR}

{LETTERS}

Without -f and --json a line is: partition, offset, time, key, value and headers, parted by
tabs; - stands for none; what is no text, and what would control a terminal, is escaped.

With --json an object a line: topic, partition, offset, timestamp (ms), key, value, headers (name
and value, in their order). Bytes that are no UTF-8 come in base64, and key_encoding or
value_encoding beside them says \"base64\".

The directory is read at rest: partition after partition, up to the end that was there when
reading began. It takes no lock, so it works beside a process that has the store open; but it
does not follow what that appends, and may see the last of it in part. Records that are damaged
are told on stderr and stepped over; the exit code is 1 then."
    )
}

pub(crate) fn run(args: &ConsumeArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    // There is nothing to follow on a directory at rest, whether it is asked for or not.
    let _ = args.exit;
    let store = directory.read()?;
    let topic = topic(&store, &args.topic)?;
    let mut consumer = Consumer {
        args,
        topic: topic.name().as_str(),
        left: args.count.unwrap_or(u64::MAX),
        printed: 0,
        damaged: false,
        scratch: Vec::new(),
        output,
    };
    for number in chosen(args, &topic)? {
        match topic.partition(number) {
            Ok(partition) => consumer.consume(number, &partition)?,
            Err(error) => consumer.step_over(number, &error),
        }
    }
    let unmatched = args.key.is_some() && consumer.printed == 0 && args.count != Some(0);
    Ok(if consumer.damaged || unmatched { Exit::Found } else { Exit::Done })
}

fn chosen(args: &ConsumeArgs, topic: &Topic) -> Result<Vec<u32>> {
    let (mut numbers, partitions) = (args.partitions.clone(), topic.partition_count());
    if let Some(unknown) = numbers.iter().find(|number| **number >= partitions) {
        let (topic, partition) = (topic.name().clone(), *unknown);
        return Err(Error::UnknownPartition { topic, partition, partitions }.into());
    }
    if numbers.is_empty() {
        numbers.extend(0..partitions);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

struct Consumer<'a> {
    args: &'a ConsumeArgs,
    topic: &'a str,
    left: u64,
    printed: u64,
    damaged: bool,
    scratch: Vec<u8>,
    output: &'a mut Output,
}

impl Consumer<'_> {
    fn consume(&mut self, number: u32, partition: &Partition) -> Result<()> {
        let range = match self.resolve(partition) {
            Ok(range) => range,
            Err(error @ Error::Corrupt(_)) => {
                self.step_over(number, &error);
                return Ok(());
            }
            Err(error) => {
                note(&format!("topic {} partition {number}:", self.topic));
                return Err(error.into());
            }
        };
        let mut next = range.start;
        while next < range.end && self.left > 0 {
            let read = partition.read(next, READ_BYTES);
            let printed = match read {
                Ok(fetched) if fetched.is_empty() => break,
                Ok(fetched) => {
                    let mut failed = Ok(());
                    let walked = fetched.for_each(|record| {
                        if failed.is_ok() && record.offset < range.end && self.left > 0 {
                            failed = self.take(number, &record);
                        }
                    });
                    failed?;
                    walked.map(|()| fetched.next)
                }
                Err(error) => Err(error),
            };
            next = match printed {
                Ok(after) => after,
                Err(error) => match self.after_damage(number, next, error)? {
                    Some(after) => after,
                    None => break,
                },
            };
        }
        Ok(())
    }

    fn resolve(&self, partition: &Partition) -> std::result::Result<OffsetRange, Error> {
        let span = self.args.offsets;
        if let Place::At(offset) = span.from {
            partition.resolve(StartFrom::Offset(offset))?;
        }
        span.resolve(partition.ends(), |time| partition.resolve(StartFrom::Time(time)))
    }

    /// Where to go on behind bytes that can't be read; anything else ends the run.
    fn after_damage(&mut self, number: u32, at: Offset, error: Error) -> Result<Option<Offset>> {
        let Error::Corrupt(Corruption { offsets, .. }) = &error else { return Err(error.into()) };
        let after = (offsets.end > at).then_some(offsets.end);
        self.step_over(number, &error);
        Ok(after)
    }

    fn step_over(&mut self, number: u32, error: &Error) {
        self.damaged = true;
        note(&format!("topic {} partition {number}: {error}", self.topic));
    }

    fn take(&mut self, partition: u32, record: &RecordView<'_>) -> Result<()> {
        if self.args.key.as_ref().is_some_and(|key| record.key != Some(key.as_bytes())) {
            return Ok(());
        }
        self.left -= 1;
        self.printed += 1;
        if self.output.is_json() {
            return self.output.object(&Shown::new(self.topic, partition, record));
        }
        self.scratch.clear();
        match &self.args.format {
            Some(format) => format.write(self.topic, partition, record, &mut self.scratch),
            None => self.scratch.extend_from_slice(line(partition, record).as_bytes()),
        }
        self.output.bytes(&self.scratch)
    }
}

fn line(partition: u32, record: &RecordView<'_>) -> String {
    let field = |field: Option<&[u8]>| field.map_or("-".to_owned(), printable);
    let (offset, at) = (record.offset, time::show(record.timestamp));
    let mut line =
        format!("{partition}\t{offset}\t{at}\t{}\t{}", field(record.key), field(record.value));
    for header in record.headers {
        line += &format!("\t{}={}", printable(header.name.as_bytes()), field(header.value));
    }
    line.push('\n');
    line
}

/// A record as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    topic: &'a str,
    partition: u32,
    offset: Offset,
    timestamp: i64,
    key: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_encoding: Option<&'static str>,
    value: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_encoding: Option<&'static str>,
    headers: Vec<ShownHeader<'a>>,
}

#[derive(Serialize)]
struct ShownHeader<'a> {
    name: &'a str,
    value: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_encoding: Option<&'static str>,
}

/// Bytes as JSON can hold them.
#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Utf8(&'a str),
    Base64(String),
}

impl<'a> Shown<'a> {
    fn new(topic: &'a str, partition: u32, record: &RecordView<'a>) -> Shown<'a> {
        let (key, key_encoding) = Text::of(record.key);
        let (value, value_encoding) = Text::of(record.value);
        let headers = record.headers.map(|header| {
            let (value, value_encoding) = Text::of(header.value);
            ShownHeader { name: header.name, value, value_encoding }
        });
        Shown {
            topic,
            partition,
            offset: record.offset,
            timestamp: record.timestamp.as_millis(),
            key,
            key_encoding,
            value,
            value_encoding,
            headers: headers.collect(),
        }
    }
}

impl Text<'_> {
    /// The text, and the marker that tells it from plain text.
    fn of(field: Option<&[u8]>) -> (Option<Text<'_>>, Option<&'static str>) {
        match field.map(|bytes| (bytes, str::from_utf8(bytes))) {
            None => (None, None),
            Some((_, Ok(text))) => (Some(Text::Utf8(text)), None),
            Some((bytes, Err(_))) => (Some(Text::Base64(base64(bytes))), Some("base64")),
        }
    }
}
