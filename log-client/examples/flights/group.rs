//! Group: three consumers share the partitions. One closes half way, one is lost; what it had not
//! committed is handed over again, and that is all that is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use log_client::{Client, CommitMode, Consumer};
use log_core::StartFrom;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::counting::Count;
use crate::events::Flight;
use crate::{Result, say};

const GROUP: &str = "counters";
/// How soon a lost member is missed.
const SESSION: Duration = Duration::from_secs(2);
const COMMIT_EVERY: Duration = Duration::from_millis(200);
/// So that there is something left to do when one stops: about so many pauses in all.
const PAUSES: usize = 3_000;
const PAUSE: Duration = Duration::from_millis(1);
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the consumers share.
struct Board {
    count: Mutex<Count>,
    seen: watch::Sender<u64>,
    pause_every: u64,
}

/// A consumer at work. It gives the consumer back when it is told to stop.
struct Counter {
    name: &'static str,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(Consumer, Progress)>>,
}

/// Of each partition, the offset after the last one that was counted.
type Progress = HashMap<u32, u64>;

/// Reads all flights, and proves what there is to prove.
pub(crate) async fn read(client: &Client, topic: &str, flights: &[Flight]) -> Result<bool> {
    let total = flights.len() as u64;
    let board = Arc::new(Board {
        count: Mutex::default(),
        seen: watch::Sender::new(0),
        pause_every: (flights.len() / PAUSES).max(1) as u64,
    });
    let mut counters = Vec::new();
    for name in ["anna", "bert", "carl"] {
        counters.push(start(client, topic, name, &board).await?);
    }
    say(format_args!("\nanna, bert and carl count them together, as group {GROUP}"))?;

    let (carl, bert) = (counters.pop(), counters.pop());
    until(&board, total / 2).await?;
    stop(bert.ok_or("there is no bert")?).await?;
    until(&board, total * 2 / 3).await?;
    let in_flight = lose(carl.ok_or("there is no carl")?, client, topic).await?;
    until(&board, total).await?;
    for counter in counters {
        let name = counter.name;
        finish(counter).await?.0.close().await?;
        say(format_args!("{name} has seen the last one"))?;
    }
    verdict(&board, flights, in_flight)
}

async fn start(
    client: &Client,
    topic: &str,
    name: &'static str,
    board: &Arc<Board>,
) -> Result<Counter> {
    let consumer = client.consumer().group(group_of(topic)).topics([topic]).member_id(name);
    let consumer = consumer.start(StartFrom::Earliest).session_timeout(SESSION);
    let consumer = consumer.commit(CommitMode::Automatic { every: COMMIT_EVERY }).build().await?;
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(count(consumer, Arc::clone(board), stopped));
    Ok(Counter { name, stop, task })
}

/// A group for each run: its members are gone with it.
fn group_of(topic: &str) -> String {
    format!("{GROUP}-of-{topic}")
}

/// Counts what is handed over, until it is told to stop.
async fn count(
    mut consumer: Consumer,
    board: Arc<Board>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(Consumer, Progress)> {
    let mut progress = Progress::new();
    let mut counted = 0;
    loop {
        let record = tokio::select! {
            record = consumer.next() => record?.ok_or("nobody has stopped the consumer")?,
            _ = stopped.wait_for(|stopped| *stopped) => return Ok((consumer, progress)),
        };
        let seen = {
            let mut count = board.count.lock().unwrap_or_else(PoisonError::into_inner);
            count.add(&record)?;
            count.seen
        };
        progress.insert(record.partition, record.offset + 1);
        board.seen.send_replace(seen);
        counted += 1;
        if counted % board.pause_every == 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Waits until so many flights were seen.
async fn until(board: &Board, count: u64) -> Result<()> {
    let mut seen = board.seen.subscribe();
    let reached = seen.wait_for(|seen| *seen >= count);
    let reached = tokio::time::timeout(PATIENCE, reached).await;
    reached.map_err(|_| format!("after {PATIENCE:?}, {count} flights were not yet seen"))??;
    Ok(())
}

async fn finish(counter: Counter) -> Result<(Consumer, Progress)> {
    counter.stop.send_replace(true);
    counter.task.await?
}

/// It stops as one should: it commits what it has counted, and gives its partitions back.
async fn stop(counter: Counter) -> Result<()> {
    let name = counter.name;
    let (consumer, progress) = finish(counter).await?;
    consumer.close().await?;
    let partitions = progress.len();
    say(format_args!("{name} stopped half way: {partitions} partitions committed, given back"))
}

/// It is gone from one moment to the next. Returns how many flights it had counted and not
/// committed.
async fn lose(counter: Counter, client: &Client, topic: &str) -> Result<u64> {
    let name = counter.name;
    let (consumer, progress) = finish(counter).await?;
    drop(consumer);
    let committed = client.admin().committed_offsets(&group_of(topic), Some(topic)).await?;
    let uncommitted = committed.iter().map(|entry| {
        let counted = progress.get(&entry.partition).copied().unwrap_or(0);
        counted.saturating_sub(entry.position.offset)
    });
    let uncommitted = uncommitted.sum();
    say(format_args!("{name} died with {uncommitted} flights counted and not committed"))?;
    Ok(uncommitted)
}

fn verdict(board: &Board, flights: &[Flight], in_flight: u64) -> Result<bool> {
    let count = board.count.lock().unwrap_or_else(PoisonError::into_inner);
    let (seen, repeated, early) = (count.seen, count.repeated, count.early);
    let proofs = [
        (count.is_all_of(flights), format!("every flight was counted: {seen}")),
        (early == 0, format!("in order for each aircraft: {early} came too early")),
        (
            repeated <= in_flight,
            format!("{repeated} were counted again, of {in_flight} that were in flight"),
        ),
    ];
    say(format_args!(""))?;
    for (holds, what) in &proofs {
        say(format_args!("{}{what}", if *holds { "proven: " } else { "NOT SO: " }))?;
    }
    Ok(proofs.iter().all(|(holds, _)| *holds))
}
