//! `bench`: measures a server: produce, consume, end to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use log_client::{Client, Record};
use log_core::offset::StartFrom;
use log_core::protocol::ErrorCode;
use log_core::{TopicConfig, TopicName};
use serde::Serialize;
use tokio::time::{Instant, sleep_until, timeout};

use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::produce::AckLevel;
use crate::progress;
use crate::remote::Remote;
use crate::units::parse_bytes_u32;

const AFTER_HELP: &str = "\
Examples:
  logctl bench produce --seconds 10 --connections 4
  logctl bench consume
  logctl bench e2e --rate 1000 --size 1KiB
It uses a topic of its own, logctl-bench, unless another is named, and leaves it there: remove it
with `logctl topic delete logctl-bench --yes`. Times are those of this process: what it needs for
itself, on the same machine, counts.";

const STAMP_BYTES: u32 = 8;
/// How many batches of a connection are on their way.
const WINDOW: usize = 5;
const QUIET: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    verb: Verb,
    /// The topic; it is made if it is missing
    #[arg(long, global = true, default_value = "logctl-bench")]
    topic: String,
    /// How many partitions the topic gets, if it is made
    #[arg(long, global = true, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    partitions: u32,
    /// How long, in seconds
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// How large a record is
    #[arg(long, global = true, default_value = "100", value_name = "SIZE", value_parser = parse_bytes_u32)]
    size: u32,
    /// When a record is acknowledged
    #[arg(long, global = true, value_enum, default_value_t = AckLevel::Policy)]
    acks: AckLevel,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// As many records as it takes
    Produce {
        /// How many records go in a batch
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        batch: u32,
        /// How many connections produce at once
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        connections: u32,
    },
    /// All records of the topic, from the start
    Consume,
    /// Single records at a pace, until they come out again
    E2e {
        /// How many in a second
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        rate: u64,
    },
}

/// What came of it.
#[derive(Default)]
struct Measured {
    records: u64,
    bytes: u64,
    took: Duration,
    /// Of batches until they were acknowledged, or of records until they came out; sorted.
    latencies: Vec<Duration>,
}

#[derive(Serialize)]
struct Shown {
    records: u64,
    seconds: f64,
    records_per_second: f64,
    megabytes_per_second: f64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    p999_us: Option<u64>,
}

pub(crate) fn run(args: &BenchArgs, server: &Remote, output: &mut Output) -> Result<Exit> {
    let name = TopicName::parse(&args.topic)?;
    let client = server.client()?;
    let progress = progress::records("measured");
    let measured = server.run(async {
        let (admin, config) = (client.admin(), TopicConfig::default());
        match admin.create_topic(name.as_str(), args.partitions, &config).await {
            Err(error) if error.code() != Some(ErrorCode::TopicExists) => return Err(error.into()),
            _ => {}
        }
        match args.verb {
            Verb::Produce { batch, connections } => {
                produce(args, client, batch, connections, &progress).await
            }
            Verb::Consume => consume(args, client, &progress).await,
            Verb::E2e { rate } => end_to_end(args, client, rate, &progress).await,
        }
    });
    progress.finish_and_clear();
    tell(measured?, output)
}

async fn produce(
    args: &BenchArgs,
    client: &Client,
    batch: u32,
    connections: u32,
    progress: &ProgressBar,
) -> Result<Measured> {
    let value = vec![b'x'; args.size as usize];
    let records = vec![Record::new(&value); batch as usize];
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let began = Instant::now();
    let mut connected = Vec::new();
    for _ in 0..connections {
        connected.push(client.producer().acks(args.acks.into()).build()?);
    }
    let all = connected.iter().map(|producer| async {
        let mut waiting = std::collections::VecDeque::new();
        let mut latencies = Vec::new();
        while Instant::now() < end || !waiting.is_empty() {
            if Instant::now() < end && waiting.len() < WINDOW {
                let delivery = producer.send_batch(&args.topic, None, &records).await?;
                waiting.push_back((Instant::now(), delivery));
                continue;
            }
            let Some((sent, delivery)) = waiting.pop_front() else { break };
            delivery.await?;
            latencies.push(sent.elapsed());
            progress.inc(u64::from(batch));
        }
        log_client::Result::Ok(latencies)
    });
    let mut measured = Measured::default();
    let mut running: Vec<_> = all.map(Box::pin).collect();
    // On one thread: each is looked at whenever something has come.
    let done = std::future::poll_fn(|cx| {
        let mut outcome = std::task::Poll::Ready(log_client::Result::Ok(()));
        running.retain_mut(|one| match one.as_mut().poll(cx) {
            std::task::Poll::Pending => true,
            std::task::Poll::Ready(Ok(latencies)) => {
                measured.latencies.extend(latencies);
                false
            }
            std::task::Poll::Ready(Err(error)) => {
                outcome = std::task::Poll::Ready(Err(error));
                false
            }
        });
        match outcome {
            std::task::Poll::Ready(Ok(())) if !running.is_empty() => std::task::Poll::Pending,
            outcome => outcome,
        }
    });
    done.await?;
    measured.records = measured.latencies.len() as u64 * u64::from(batch);
    measured.bytes = measured.records * u64::from(args.size);
    measured.took = began.elapsed();
    Ok(measured)
}

async fn consume(args: &BenchArgs, client: &Client, progress: &ProgressBar) -> Result<Measured> {
    let topic = client.admin().describe_topic(&args.topic).await?;
    let partitions = (0..).zip(&topic.partitions);
    let starts = partitions.map(|(number, _)| (&*args.topic, number, StartFrom::Earliest));
    let mut consumer = client.consumer().assign(starts).build().await?;
    let wanted = topic.partitions.iter().flatten().map(|ends| ends.readable_end - ends.log_start);
    let wanted: u64 = wanted.sum();
    let began = Instant::now();
    let end = began + Duration::from_secs(args.seconds);
    let mut measured = Measured::default();
    while measured.records < wanted && Instant::now() < end {
        let Ok(records) = timeout(QUIET, consumer.next_batch()).await else { break };
        let Some(records) = records? else { break };
        let before = measured.records;
        for record in records.iter() {
            let record = record?;
            measured.records += 1;
            measured.bytes += record.value.map_or(0, <[u8]>::len) as u64;
        }
        progress.inc(measured.records - before);
    }
    measured.took = began.elapsed();
    Ok(measured)
}

async fn end_to_end(
    args: &BenchArgs,
    client: &Client,
    rate: u64,
    progress: &ProgressBar,
) -> Result<Measured> {
    if args.size < STAMP_BYTES {
        let why = format!("--size must be at least {STAMP_BYTES}: a record carries its time");
        return Err(Failure::Usage(why));
    }
    let topic = client.admin().describe_topic(&args.topic).await?;
    let starts = (0..).zip(&topic.partitions);
    let starts = starts.map(|(number, _)| (&*args.topic, number, StartFrom::Latest));
    let mut consumer = client.consumer().assign(starts).build().await?;
    let producer = client.producer().acks(args.acks.into()).build()?;
    let (began, count) = (Instant::now(), rate * args.seconds);
    let due = move |number: u64| began + Duration::from_nanos(number * 1_000_000_000 / rate);
    let done = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    let (stopped, counted) = (Arc::clone(&done), Arc::clone(&sent));
    let (name, size) = (args.topic.clone(), args.size as usize);
    let sending = tokio::spawn(async move {
        let mut value = vec![b'x'; size];
        for number in 0..count {
            sleep_until(due(number)).await;
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            value[..STAMP_BYTES as usize].copy_from_slice(&number.to_le_bytes());
            // What became of it shows at the other end.
            drop(producer.send(&name, &Record::new(&value)).await?);
            counted.store(number + 1, Ordering::Relaxed);
        }
        producer.close().await
    });
    let mut measured = Measured::default();
    while measured.records < count {
        let Ok(records) = timeout(QUIET, consumer.next_batch()).await else { break };
        let Some(records) = records? else { break };
        let now = Instant::now();
        for record in records.iter() {
            let value = record?.value.unwrap_or_default();
            let Some(number) = value.first_chunk().map(|number| u64::from_le_bytes(*number)) else {
                continue;
            };
            measured.latencies.push(now.saturating_duration_since(due(number)));
            measured.records += 1;
            measured.bytes += value.len() as u64;
        }
        progress.set_position(measured.records);
    }
    measured.took = began.elapsed();
    done.store(true, Ordering::Relaxed);
    let told = sending.await;
    told.map_err(|error| Failure::Usage(error.to_string()))??;
    let lost = sent.load(Ordering::Relaxed).saturating_sub(measured.records);
    if lost > 0 {
        return Err(Failure::Usage(format!("{lost} records did not come out in {QUIET:?}")));
    }
    Ok(measured)
}

fn tell(mut measured: Measured, output: &mut Output) -> Result<Exit> {
    measured.latencies.sort_unstable();
    let latencies = &measured.latencies;
    let percentile = |of_ten_thousand: usize| {
        let at = (latencies.len() * of_ten_thousand / 10_000).min(latencies.len().checked_sub(1)?);
        u64::try_from(latencies[at].as_micros()).ok()
    };
    let seconds = measured.took.as_secs_f64().max(f64::MIN_POSITIVE);
    let rate = |amount: u64| {
        let whole = u32::try_from(amount / 1_000).map_or(f64::MAX, f64::from);
        (whole * 1_000.0 + f64::from(u16::try_from(amount % 1_000).unwrap_or(0))) / seconds
    };
    let shown = Shown {
        records: measured.records,
        seconds,
        records_per_second: rate(measured.records),
        megabytes_per_second: rate(measured.bytes) / 1_000_000.0,
        p50_us: percentile(5_000),
        p99_us: percentile(9_900),
        p999_us: percentile(9_990),
    };
    let mut text = format!(
        "{} records in {:.2} s: {:.0} records/s, {:.1} MB/s",
        shown.records, shown.seconds, shown.records_per_second, shown.megabytes_per_second
    );
    if let (Some(p50), Some(p99), Some(p999)) = (shown.p50_us, shown.p99_us, shown.p999_us) {
        text += &format!("; latency in µs: p50 {p50}, p99 {p99}, p99.9 {p999}");
    }
    output.fact(&shown, &text)?;
    Ok(Exit::Done)
}
