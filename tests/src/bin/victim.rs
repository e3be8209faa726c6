//! victim: appends numbered records and says on stdout what was acknowledged, until it is killed.
//!
//! `victim append|read key=value…`, one line of stdout for each thing that happened:
//! ```text
//! open <partition> <log_start> <durable_end> <end>
//! ack <partition> <base> <end> <number of the first record> <began> <ended>, in `shared_nanos`
//! fail <partition> <variant of the error> <its text>
//! trim <partition> <offset>, before it is tried; trimmed <partition> <offset>, after
//! record <partition> <offset> <number>, by `read`
//! closed
//! ```

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use integration_tests::{Dice, key, number_of, record, shared_nanos, value};
use log_core::clock::{Clock, SystemClock};
use log_core::config::{FlushPolicy, RetentionPolicy, StoreConfig, TopicConfig};
use log_core::error::{Error, Result};
use log_core::name::TopicName;
use log_core::partition::Partition;
use log_core::record::{BatchBuilder, Codec, Record};
use log_core::store::{OpenMode, Store, Topic};

/// What was asked for; see `Settings::take` for the names.
struct Settings {
    dir: String,
    topic: String,
    flush: FlushPolicy,
    partitions: u32,
    threads: u32,
    /// Appends of each thread.
    count: u64,
    /// Records of an append.
    batch: u64,
    value_bytes: usize,
    segment_bytes: u64,
    /// Distinguishes the numbers of one process from those of others.
    life: u64,
    /// Trims to half of what there is after so many appends; zero: never.
    trim: u64,
    /// Appends as a producer with this id; zero: as none.
    producer: u64,
    first_sequence: u32,
    retention_bytes: Option<u64>,
    on_failure: OnFailure,
    last: Last,
}

/// What a thread does after an append that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnFailure {
    Stop,
    GoOn,
    /// Waits for a line of stdin, then goes on.
    Wait,
}

/// What is done at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Close,
    Exit,
    Hang,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let mut settings = Settings::default();
    for argument in arguments {
        let Some((name, text)) = argument.split_once('=') else { return usage(&argument) };
        if settings.take(name, text).is_none() {
            return usage(&argument);
        }
    }
    let outcome = match verb.as_str() {
        "append" => append(&settings),
        "read" => read(&settings),
        _ => return usage(&verb),
    };
    if let Err(error) = outcome {
        say_failure(0, &error);
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

fn usage(what: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "victim does not understand {what:?}");
    ExitCode::from(2)
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            dir: String::new(),
            topic: "orders".to_owned(),
            flush: FlushPolicy::Sync,
            partitions: 1,
            threads: 1,
            count: 100,
            batch: 1,
            value_bytes: 100,
            segment_bytes: 64 * 1024,
            life: 0,
            trim: 0,
            producer: 0,
            first_sequence: 0,
            retention_bytes: None,
            on_failure: OnFailure::Stop,
            last: Last::Close,
        }
    }
}

impl Settings {
    fn take(&mut self, name: &str, text: &str) -> Option<()> {
        match name {
            "dir" => text.clone_into(&mut self.dir),
            "topic" => text.clone_into(&mut self.topic),
            "flush" => self.flush = flush_policy(text)?,
            "partitions" => self.partitions = text.parse().ok()?,
            "threads" => self.threads = text.parse().ok()?,
            "count" => self.count = text.parse().ok()?,
            "batch" => self.batch = text.parse().ok()?,
            "value" => self.value_bytes = text.parse().ok()?,
            "segment" => self.segment_bytes = text.parse().ok()?,
            "life" => self.life = text.parse().ok()?,
            "trim" => self.trim = text.parse().ok()?,
            "producer" => self.producer = text.parse().ok()?,
            "sequence" => self.first_sequence = text.parse().ok()?,
            "retention" => self.retention_bytes = Some(text.parse().ok()?),
            "failure" => {
                self.on_failure = match text {
                    "stop" => OnFailure::Stop,
                    "go-on" => OnFailure::GoOn,
                    "wait" => OnFailure::Wait,
                    _ => return None,
                };
            }
            "last" => {
                self.last = match text {
                    "close" => Last::Close,
                    "exit" => Last::Exit,
                    "hang" => Last::Hang,
                    _ => return None,
                };
            }
            _ => return None,
        }
        Some(())
    }

    fn topic_config(&self) -> TopicConfig {
        TopicConfig {
            flush: self.flush,
            segment_max_bytes: self.segment_bytes,
            retention: RetentionPolicy { max_age: None, max_bytes: self.retention_bytes },
            ..TopicConfig::default()
        }
    }
}

/// `sync`, `os`, or `interval:<milliseconds>:<bytes>`.
fn flush_policy(text: &str) -> Option<FlushPolicy> {
    let mut parts = text.split(':');
    match parts.next()? {
        "sync" => Some(FlushPolicy::Sync),
        "os" => Some(FlushPolicy::Os),
        "interval" => Some(FlushPolicy::Interval {
            every: Duration::from_millis(parts.next()?.parse().ok()?),
            bytes: parts.next()?.parse().ok()?,
        }),
        _ => None,
    }
}

fn open(settings: &Settings) -> Result<(Store, Topic)> {
    let store = Store::open(&settings.dir, StoreConfig::default(), OpenMode::CreateIfMissing)?;
    let name = TopicName::parse(&settings.topic)?;
    let topic = match store.topic(&name) {
        Err(Error::UnknownTopic(_)) => {
            store.create_topic(&name, settings.partitions, settings.topic_config())?
        }
        found => found?,
    };
    for (number, partition) in (0..).zip(topic.partitions()) {
        let ends = partition?.ends();
        say(&format!("open {number} {} {} {}", ends.log_start, ends.durable_end, ends.end));
    }
    Ok((store, topic))
}

fn append(settings: &Settings) -> Result<()> {
    let (store, topic) = open(settings)?;
    let clock = SystemClock::new();
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..settings.threads {
            let (clock, stopped) = (&clock, &stopped);
            let number = thread % topic.partition_count();
            let topic = &topic;
            scope.spawn(move || {
                let outcome = topic.partition(number).and_then(|partition| {
                    let lane = Lane { settings, partition, number, thread, clock };
                    lane.run()
                });
                if let Err(error) = outcome {
                    say_failure(number, &error);
                    stopped.store(true, Ordering::Relaxed);
                }
            });
        }
    });
    finish(settings, &store, stopped.load(Ordering::Relaxed))
}

fn read(settings: &Settings) -> Result<()> {
    let (store, topic) = open(settings)?;
    for (number, partition) in (0..).zip(topic.partitions()) {
        let partition = partition?;
        let mut from = partition.ends().log_start;
        loop {
            let fetched = partition.read(from, 1 << 20)?;
            if fetched.is_empty() {
                break;
            }
            fetched.for_each(|record| {
                let found = number_of(&record).unwrap_or(u64::MAX);
                say(&format!("record {number} {} {found}", record.offset));
            })?;
            from = fetched.next;
        }
    }
    finish(settings, &store, false)
}

fn finish(settings: &Settings, store: &Store, failed: bool) -> Result<()> {
    match settings.last {
        Last::Close if !failed => {
            store.close()?;
            say("closed");
        }
        Last::Hang => loop {
            std::thread::park();
        },
        // What a kill leaves, without the destructors that tidy up.
        Last::Close | Last::Exit => std::process::exit(0),
    }
    Ok(())
}

/// One thread, and the partition that it appends to.
struct Lane<'a> {
    settings: &'a Settings,
    partition: Partition,
    number: u32,
    thread: u32,
    clock: &'a SystemClock,
}

impl Lane<'_> {
    fn run(&self) -> Result<()> {
        let settings = self.settings;
        let mut dice = Dice::new(settings.life ^ u64::from(self.thread));
        let mut builder = (settings.producer != 0).then(|| {
            let builder = BatchBuilder::new(Codec::None);
            builder.with_producer(settings.producer, 0, settings.first_sequence)
        });
        for turn in 0..settings.count {
            let first = self.first_number(turn);
            let len = settings.value_bytes / 2
                + usize::try_from(dice.below(settings.value_bytes as u64)).unwrap_or(0);
            let outcome = self.append(builder.as_mut(), first, len.max(8));
            match (outcome, settings.on_failure) {
                (Ok(()), _) => {}
                (Err(error), OnFailure::Stop) => return Err(error),
                (Err(error), OnFailure::GoOn) => say_failure(self.number, &error),
                (Err(error), OnFailure::Wait) => {
                    say_failure(self.number, &error);
                    let mut line = String::new();
                    let _ = io::stdin().lock().read_line(&mut line);
                }
            }
            if settings.trim > 0 && turn % settings.trim == settings.trim - 1 {
                self.trim()?;
            }
        }
        Ok(())
    }

    fn first_number(&self, turn: u64) -> u64 {
        let lane = (self.settings.life << 40) | (u64::from(self.thread) << 32);
        lane + turn * self.settings.batch
    }

    fn append(&self, builder: Option<&mut BatchBuilder>, first: u64, len: usize) -> Result<()> {
        let numbers = first..first + self.settings.batch;
        let made: Vec<_> = numbers.map(|number| (key(number), value(number, len))).collect();
        let records: Vec<Record<'_>> = made.iter().map(|(key, value)| record(key, value)).collect();
        let began = shared_nanos();
        let appended = match builder {
            Some(builder) => {
                for record in &records {
                    builder.push(record, self.clock.now())?;
                }
                self.partition.append_batch(&builder.finish()?)?
            }
            None => self.partition.append(&records)?,
        };
        let ended = shared_nanos();
        let (base, end) = (appended.base_offset, appended.end);
        say(&format!("ack {} {base} {end} {first} {began} {ended}", self.number));
        Ok(())
    }

    fn trim(&self) -> Result<()> {
        let ends = self.partition.ends();
        let to = ends.log_start + (ends.durable_end - ends.log_start) / 2;
        say(&format!("trim {} {to}", self.number));
        self.partition.trim(to)?;
        say(&format!("trimmed {} {to}", self.number));
        Ok(())
    }
}

fn say_failure(partition: u32, error: &Error) {
    let shown = format!("{error:?}");
    let variant = shown.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    say(&format!("fail {partition} {variant} {error}"));
}

/// One line by one system call, so that what was said before a kill was said whole.
fn say(line: &str) {
    let _ = io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}
