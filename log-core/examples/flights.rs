//! The flights of 2013, from a file to a durable log and back: append, replay one aircraft, check.
//!
//! `cargo run --release -p log-core --example flights [-- FILE.csv[.gz]] [--data DIR]`. Without a
//! file it takes the first week of January, which comes with the sources.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use log_core::clock::{Clock, SystemClock};
use log_core::config::{StoreConfig, TopicConfig};
use log_core::name::TopicName;
use log_core::offset::Offset;
use log_core::partition::Partition;
use log_core::record::{BatchBuilder, Codec, Record, RecordView};
use log_core::store::{OpenMode, Store, Topic};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PARTITIONS: u32 = 8;
/// How many events are appended before they are waited for.
const ROUND: u64 = 20_000;
const READ_BYTES: usize = 1024 * 1024;
const AIRCRAFT: &str = "N725MQ";
/// How much of a journey is printed: from its front, and from its end.
const SHOWN: (usize, usize) = (12, 5);

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(Verdict::AsCounted) => ExitCode::SUCCESS,
        Ok(Verdict::Mismatch) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "flights: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    file: PathBuf,
    data: Option<PathBuf>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options> {
        let sample = "../tests/data/flights-week1.csv.gz";
        let mut options =
            Options { file: Path::new(env!("CARGO_MANIFEST_DIR")).join(sample), data: None };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--data" => options.data = Some(args.next().ok_or("--data DIR")?.into()),
                flag if flag.starts_with('-') => {
                    return Err("usage: flights [FILE.csv[.gz]] [--data DIR]".into());
                }
                file => options.file = file.into(),
            }
        }
        Ok(options)
    }
}

enum Verdict {
    AsCounted,
    Mismatch,
}

fn run(options: &Options) -> Result<Verdict> {
    let clock = SystemClock::new();
    let scratch = tempfile::tempdir()?;
    let data = options.data.as_deref().unwrap_or(scratch.path());
    let store = Store::open(data, StoreConfig::default(), OpenMode::CreateIfMissing)?;
    // Under the default policy an append is acknowledged once it is on disk.
    let topic =
        store.create_topic(&TopicName::parse("flights")?, PARTITIONS, TopicConfig::default())?;
    let mut out = io::stdout().lock();

    let began = clock.monotonic();
    let counted = append_all(&options.file, &topic)?;
    let took = clock.monotonic() - began;
    writeln!(
        out,
        "appended {} events to {PARTITIONS} partitions, durably: {took:.2?}",
        counted.total
    )?;

    let began = clock.monotonic();
    let stored = count_stored(&topic)?;
    let took = clock.monotonic() - began;
    writeln!(out, "replayed all of them: {took:.2?}")?;

    let aircraft = counted.aircraft_to_follow();
    print_journey(&topic, aircraft, &counted, &mut out, &clock)?;
    replay_from_the_middle(&topic, 0, &mut out)?;
    store.close()?;

    let verdict = compare(&counted, &stored, &mut out)?;
    Ok(verdict)
}

/// Events by aircraft.
#[derive(Default, PartialEq, Eq)]
struct Counts {
    total: u64,
    by_aircraft: HashMap<Vec<u8>, u64>,
}

impl Counts {
    fn add(&mut self, aircraft: &[u8]) {
        self.total += 1;
        match self.by_aircraft.get_mut(aircraft) {
            Some(count) => *count += 1,
            None => {
                self.by_aircraft.insert(aircraft.to_vec(), 1);
            }
        }
    }

    fn of(&self, aircraft: &[u8]) -> u64 {
        self.by_aircraft.get(aircraft).copied().unwrap_or(0)
    }

    /// N725MQ, or the one with the most events whose number is known.
    fn aircraft_to_follow(&self) -> &[u8] {
        if self.of(AIRCRAFT.as_bytes()) > 0 {
            return AIRCRAFT.as_bytes();
        }
        let known = self.by_aircraft.iter().filter(|(aircraft, _)| *aircraft != b"NA");
        known.max_by_key(|(aircraft, count)| (**count, *aircraft)).map_or(b"NA", |(most, _)| most)
    }
}

/// Appends every line of the file, keyed by tail number: the flights of one aircraft share a
/// partition, and keep their order. Returns what the file holds.
fn append_all(file: &Path, topic: &Topic) -> Result<Counts> {
    let mut lines = open(file)?;
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let tailnum = column(&line, "tailnum")?;
    let clock = SystemClock::new();
    let mut counts = Counts::default();
    let mut batches: Vec<_> = (0..PARTITIONS).map(|_| BatchBuilder::new(Codec::None)).collect();
    loop {
        line.clear();
        let more = lines.read_line(&mut line)? > 0;
        if more {
            let event = line.trim_end();
            let aircraft = field(event, tailnum).ok_or("a line has too few columns")?;
            counts.add(aircraft.as_bytes());
            let number = topic.partition_of_key(aircraft.as_bytes());
            let record = Record::new(event.as_bytes()).with_key(aircraft.as_bytes());
            batches[number as usize].push(&record, clock.now())?;
        }
        if !more || counts.total % ROUND == 0 {
            append_round(topic, &mut batches)?;
            tell_progress(counts.total);
        }
        if !more {
            return Ok(counts);
        }
    }
}

fn tell_progress(appended: u64) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r{appended} events appended\r");
    }
}

/// Appends a batch to each partition, then waits until all of them are on disk.
fn append_round(topic: &Topic, batches: &mut [BatchBuilder]) -> Result<()> {
    let mut written = Vec::new();
    for (number, batch) in (0..).zip(batches) {
        if !batch.is_empty() {
            let partition = topic.partition(number)?;
            let appended = partition.write_batch(&batch.finish()?, None)?;
            written.push((partition, appended.end));
        }
    }
    for (partition, end) in written {
        partition.wait_durable(end)?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the file is the user's, not the engine's")]
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    let reader = BufReader::with_capacity(256 * 1024, file);
    let unpacked: Box<dyn Read> =
        if packed { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) };
    Ok(Box::new(BufReader::with_capacity(256 * 1024, unpacked)))
}

/// The column of that name. The data has no quotes, so that a comma always parts two fields.
fn column(heading: &str, name: &str) -> Result<usize> {
    let found = heading.trim_end().split(',').position(|column| column == name);
    Ok(found.ok_or_else(|| format!("the first line names no column {name}"))?)
}

fn field(event: &str, column: usize) -> Option<&str> {
    event.split(',').nth(column)
}

/// Visits the records of a partition from an offset to its end.
fn replay(
    partition: &Partition,
    from: Offset,
    mut visit: impl FnMut(RecordView<'_>),
) -> Result<()> {
    let mut next = from;
    while next < partition.readable_end() {
        let fetched = partition.read(next, READ_BYTES)?;
        fetched.for_each(&mut visit)?;
        next = fetched.next;
    }
    Ok(())
}

fn count_stored(topic: &Topic) -> Result<Counts> {
    let mut counts = Counts::default();
    for partition in topic.partitions() {
        replay(&partition?, 0, |record| counts.add(record.key.unwrap_or_default()))?;
    }
    Ok(counts)
}

/// Replays the partition that one aircraft's flights are in, and prints where it went.
fn print_journey(
    topic: &Topic,
    aircraft: &[u8],
    counted: &Counts,
    out: &mut impl Write,
    clock: &SystemClock,
) -> Result<()> {
    let number = topic.partition_of_key(aircraft);
    let began = clock.monotonic();
    let mut flights = Vec::new();
    replay(&topic.partition(number)?, 0, |record| {
        if record.key == Some(aircraft) {
            let event = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
            flights.push((record.offset, event));
        }
    })?;
    let took: Duration = clock.monotonic() - began;
    let name = String::from_utf8_lossy(aircraft);
    writeln!(
        out,
        "\n{name}: {} flights, replayed from partition {number} in {took:.2?} (the file has {})",
        flights.len(),
        counted.of(aircraft)
    )?;
    writeln!(out, "  offset  date        departed  from  to   flight    miles")?;
    let hidden = SHOWN.0..flights.len().saturating_sub(SHOWN.1);
    for (at, (offset, event)) in flights.iter().enumerate() {
        if !hidden.contains(&at) {
            writeln!(out, "{}", row(*offset, event))?;
        } else if at == hidden.start {
            writeln!(out, "     ...  {} more", hidden.len())?;
        }
    }
    Ok(())
}

/// A flight as a line of the table. The columns are those of nycflights13.
fn row(offset: Offset, event: &str) -> String {
    let of = |column| field(event, column).unwrap_or("?");
    let departed = match of(3) {
        "NA" => "cancelled".to_owned(),
        time => format!("{:0>4}", time),
    };
    format!(
        "{offset:>8}  {}-{:0>2}-{:0>2}  {departed:<9} {:<4}  {:<4} {:<2}{:<6} {:>6}",
        of(0),
        of(1),
        of(2),
        of(12),
        of(13),
        of(9),
        of(10),
        of(15)
    )
}

fn replay_from_the_middle(topic: &Topic, number: u32, out: &mut impl Write) -> Result<()> {
    let partition = topic.partition(number)?;
    let end = partition.readable_end();
    let from = end / 2;
    let (mut first, mut visited) = (None, 0_u64);
    replay(&partition, from, |record| {
        first.get_or_insert(record.offset);
        visited += 1;
    })?;
    writeln!(out, "\npartition {number} from offset {from} to its end {end}: {visited} events")?;
    if visited != end - from || first.is_some_and(|first| first != from) {
        return Err("a replay from an offset did not begin there, or left something out".into());
    }
    Ok(())
}

fn compare(counted: &Counts, stored: &Counts, out: &mut impl Write) -> Result<Verdict> {
    let aircraft = counted.by_aircraft.len();
    if counted == stored {
        writeln!(
            out,
            "\nthe log holds what the file does: {} events of {aircraft} tail numbers",
            stored.total
        )?;
        return Ok(Verdict::AsCounted);
    }
    writeln!(out, "\nMISMATCH: the file has {} events, the log {}", counted.total, stored.total)?;
    let differing = counted.by_aircraft.iter().filter(|(name, count)| stored.of(name) != **count);
    for (name, count) in differing.take(20) {
        let shown = String::from_utf8_lossy(name);
        writeln!(out, "  {shown}: {count} in the file, {} in the log", stored.of(name))?;
    }
    Ok(Verdict::Mismatch)
}
