//! `consume`: prints records, partition by partition, from what is there when it begins.
//!
//! The directory is opened for reading: without its lock, and without a view of what is appended
//! later. What can't be read is told, and stepped over. From a server: `follow.rs`.

use clap::Args;
use log_client::ConsumerRecord;
use log_core::error::{Corruption, Error};
use log_core::offset::{Offset, OffsetRange, StartFrom};
use log_core::partition::Partition;
use log_core::record::{BatchView, Header, Record, RecordView, encode_into, encoded_len};
use log_core::store::Topic;

use crate::directory::{Directory, topic};
use crate::failure::{Exit, Failure, Result, note};
use crate::format::{Format, LETTERS};
use crate::output::Output;
use crate::range::{GRAMMAR, Place, Span};
use crate::shown::{Shown, line};

/// How much is read at once.
const READ_BYTES: usize = 1024 * 1024;

#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct ConsumeArgs {
    /// The topic
    pub(crate) topic: String,

    /// Which offsets: start, end, +n, -n, n, @time, or FROM:TO; see below
    #[arg(
        short,
        long,
        value_name = "OFFSETS",
        allow_hyphen_values = true,
        default_value = "start",
        hide_default_value = true
    )]
    pub(crate) offsets: Span,

    /// Only this partition. Can be repeated
    #[arg(short, long = "partition", value_name = "PARTITION")]
    pub(crate) partitions: Vec<u32>,

    /// Stop after this many records
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,

    /// Stop at the end that was there at the beginning; on a directory this is always so
    #[arg(short = 'e', long)]
    pub(crate) exit: bool,

    /// Only records with this key
    #[arg(long)]
    pub(crate) key: Option<String>,

    /// Read as a member of this group: from where it has come, committing what was printed. Servers
    /// only; with --exit, until nothing has come for two seconds
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["offsets", "partitions"])]
    pub(crate) group: Option<String>,

    /// Print each record in this format; see below
    #[arg(short, long, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) format: Option<Format>,
}

fn after_help() -> String {
    format!(
        "\
Examples:
  logctl consume orders                                      everything, and what comes then
  logctl consume orders --group billing                      as a member of a group
  logctl --data ./data consume orders                        everything in a directory
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

From a server, without --exit and without an end in -o, what is appended later is printed, too,
until you stop it (ctrl-C): a group's offsets are committed then, and its partitions given back.

A directory (--data) is read at rest: partition after partition, up to the end that was there when
reading began. It takes no lock, so it works beside a process that has the store open; but it
does not follow what that appends, and may see the last of it in part. Records that are damaged
are told on stderr and stepped over; the exit code is 1 then."
    )
}

pub(crate) fn run(args: &ConsumeArgs, directory: &Directory, output: &mut Output) -> Result<Exit> {
    if args.group.is_some() {
        return Err(Failure::Usage("groups live on servers: say --server HOST:PORT".to_owned()));
    }
    let store = directory.read()?;
    let topic = topic(&store, &args.topic)?;
    let printer = Printer::new(args, output);
    let mut consumer = Consumer { args, topic: topic.name().as_str(), damaged: false, printer };
    for number in chosen(args, &topic)? {
        match topic.partition(number) {
            Ok(partition) => consumer.consume(number, &partition)?,
            Err(error) => consumer.step_over(number, &error),
        }
    }
    Ok(if consumer.damaged { Exit::Found } else { consumer.printer.exit() })
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
    damaged: bool,
    printer: Printer<'a>,
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
        while next < range.end && self.printer.left > 0 {
            let read = partition.read(next, READ_BYTES);
            let printed = match read {
                Ok(fetched) if fetched.is_empty() => break,
                Ok(fetched) => {
                    let mut failed = Ok(());
                    let walked = fetched.for_each(|record| {
                        if failed.is_ok() && record.offset < range.end && self.printer.left > 0 {
                            failed = self.printer.take(number, &record);
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
}

/// Prints what is wanted of the records that it is shown.
pub(crate) struct Printer<'a> {
    args: &'a ConsumeArgs,
    /// How many more are wanted.
    pub(crate) left: u64,
    pub(crate) printed: u64,
    scratch: Vec<u8>,
    pub(crate) output: &'a mut Output,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(args: &'a ConsumeArgs, output: &'a mut Output) -> Printer<'a> {
        let left = args.count.unwrap_or(u64::MAX);
        Printer { args, left, printed: 0, scratch: Vec::new(), output }
    }

    pub(crate) fn take(&mut self, partition: u32, record: &RecordView<'_>) -> Result<()> {
        if self.args.key.as_ref().is_some_and(|key| record.key != Some(key.as_bytes())) {
            return Ok(());
        }
        self.left -= 1;
        self.printed += 1;
        let topic = &self.args.topic;
        if self.output.is_json() {
            return self.output.object(&Shown::new(topic, partition, record));
        }
        self.scratch.clear();
        match &self.args.format {
            Some(format) => format.write(topic, partition, record, &mut self.scratch),
            None => self.scratch.extend_from_slice(line(partition, record).as_bytes()),
        }
        self.output.bytes(&self.scratch)
    }

    /// The same for a record of its own: it is put back into the form in which it is stored.
    pub(crate) fn take_owned(&mut self, record: &ConsumerRecord) -> Result<()> {
        let headers = record.headers.iter();
        let headers = headers.map(|of| Header { name: &of.name, value: of.value.as_deref() });
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let (headers, timestamp) = (headers.collect::<Vec<_>>(), Some(record.timestamp));
        let alone = [Record { key, value, headers: &headers, timestamp }];
        let mut batch = vec![0; encoded_len(&alone, record.timestamp)];
        encode_into(&mut batch, &alone, record.timestamp);
        let (batch, _) = BatchView::parse(&batch).map_err(Error::Malformed)?;
        let body = batch.open(0).map_err(Error::Malformed)?;
        for view in body.records() {
            let view = view.map_err(Error::Malformed)?;
            self.take(record.partition, &RecordView { offset: record.offset, ..view })?;
        }
        Ok(())
    }

    /// How the run ends, if nothing went wrong.
    pub(crate) fn exit(&self) -> Exit {
        let unmatched = self.args.key.is_some() && self.printed == 0 && self.args.count != Some(0);
        if unmatched { Exit::Found } else { Exit::Done }
    }
}
