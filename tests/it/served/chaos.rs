//! A group in chaos: eight members that are killed, cut off, paused, stopped and started, while
//! records keep coming. Nothing is lost, each owner sees a partition in order from where the one
//! before it stopped, and what is repeated is what a killed member had not committed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_tests::Dice;
use integration_tests::fault_proxy::{Fault, FaultProxy, Faults};
use integration_tests::server_process::ServerProcess;
use log_client::{Acks, Client, CommitMode, Consumer, ConsumerEvent, Error};
use log_core::{FlushPolicy, StartFrom, TopicConfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{PATIENCE, Told, in_time, produce, runtime};
use crate::system::{counts, tell};

const TOPIC: &str = "busy";
const GROUP: &str = "chaotic";
const PARTITIONS: u32 = 12;
const MEMBERS: usize = 8;
const KEYS: u32 = 6;
const SESSION: Duration = Duration::from_millis(800);
const COMMIT_EVERY: Duration = Duration::from_millis(50);

/// What one run of a member has done with a partition.
#[derive(Default)]
struct Stay {
    /// Offsets in the order in which they were handed over.
    offsets: Vec<u64>,
    /// Where its assignments began, as it was told.
    assigned: Vec<u64>,
}

type Stays = Arc<Mutex<BTreeMap<u32, Stay>>>;

/// A run of a member.
struct Run {
    proxy: Arc<FaultProxy>,
    stays: Stays,
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

/// All that members have done, of runs that have ended.
#[derive(Default)]
struct Sum {
    stays: Vec<Stays>,
    kills: u64,
    pauses: u64,
    stops: u64,
    /// What killed members had in hand: handed over and not committed.
    uncommitted: u64,
    forced: u64,
}

#[test]
fn d17_a_group_in_chaos_loses_nothing_and_keeps_its_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut server = ServerProcess::start(env!("CARGO_BIN_EXE_server"), &data, &["--log", "error"]);
    let runtime = runtime();
    let (told, sum) = runtime.block_on(run(&server));
    drop(runtime);
    server.terminate(Duration::from_secs(30));
    judge(&told, &sum);
}

async fn run(server: &ServerProcess) -> (Vec<Told>, Sum) {
    let client = Client::connect(server.address().to_string()).await.expect("it answers");
    let config = TopicConfig { flush: FlushPolicy::Os, ..TopicConfig::default() };
    client.admin().create_topic(TOPIC, PARTITIONS, &config).await.expect("it is new");
    let (stop, stopped) = watch::channel(false);
    let sends = (0..KEYS).map(|key| {
        let key = format!("key-{key}");
        tokio::spawn(produce(client.clone(), TOPIC, key, Acks::Written, stopped.clone()))
    });
    let sends = sends.collect::<Vec<_>>();
    let mut sum = Sum::default();
    let mut runs = Vec::new();
    for number in 0..MEMBERS {
        runs.push(start(server, number).await);
    }
    let mut dice = Dice::new(counts::seed());
    let end = Instant::now() + Duration::from_secs(counts::chaos_seconds());
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20 + dice.below(300))).await;
        let number = usize::try_from(dice.below(MEMBERS as u64)).expect("few");
        match dice.below(5) {
            0 | 1 => kill(&client, &mut runs[number], &mut sum).await,
            2 => pause(&runs[number], dice.below(1_500), &mut sum),
            3 => {
                runs[number].proxy.drop_all();
                continue;
            }
            _ => leave(&mut runs[number], &mut sum).await,
        }
        if runs[number].task.is_finished() {
            runs[number] = start(server, number).await;
        }
    }
    stop.send_replace(true);
    let mut told = Vec::new();
    for sent in sends {
        told.push(in_time("the sends", sent).await.expect("no panic"));
    }
    settle(&client, &runs).await;
    sum.forced = client.admin().describe_group(GROUP).await.expect("it is there").forced;
    for run in &mut runs {
        leave(run, &mut sum).await;
    }
    (told, sum)
}

async fn start(server: &ServerProcess, number: usize) -> Run {
    let proxy = Arc::new(FaultProxy::start(server.address()).expect("a port is free"));
    let client = in_time("a connection", Client::connect(proxy.address().to_string())).await;
    let consumer = client.expect("nothing is in the way").consumer().group(GROUP).topics([TOPIC]);
    let consumer = consumer.start(StartFrom::Earliest).member_id(format!("member-{number}"));
    let consumer = consumer.session_timeout(SESSION).drain_timeout(Duration::from_secs(2));
    let consumer = consumer.commit(CommitMode::Automatic { every: COMMIT_EVERY });
    let consumer = in_time("a join", consumer.build()).await.expect("the group takes it in");
    let stays = Stays::default();
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(consume(consumer, Arc::clone(&stays), stopped));
    Run { proxy, stays, task, stop }
}

async fn consume(mut consumer: Consumer, stays: Stays, mut stopped: watch::Receiver<bool>) {
    let handle = consumer.handle();
    let told = Arc::clone(&stays);
    // It ends with the consumer.
    let events = tokio::spawn(async move {
        while let Some(event) = handle.next_event().await {
            if let ConsumerEvent::Assigned { of, position } = event {
                let mut stays = told.lock().expect("no panic");
                stays.entry(of.partition).or_default().assigned.push(position);
            }
        }
    });
    loop {
        let record = tokio::select! {
            record = consumer.next() => record.expect("it goes on").expect("nobody stops it"),
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        let mut stays = stays.lock().expect("no panic");
        stays.entry(record.partition).or_default().offsets.push(record.offset);
    }
    match consumer.close().await {
        // Whoever was cut off for too long can't know whether its last commit has arrived.
        Ok(()) | Err(Error::OutcomeUnknown { .. }) => {}
        Err(error) => panic!("it is closed in order: {error}"),
    }
    events.abort();
}

/// Ends a member as a crash does.
async fn kill(client: &Client, run: &mut Run, sum: &mut Sum) {
    run.task.abort();
    let _ = (&mut run.task).await;
    // Nothing of it gets through any more; what did may just be written.
    run.proxy.refuse(true);
    run.proxy.drop_all();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let committed =
        client.admin().committed_offsets(GROUP, Some(TOPIC)).await.expect("they are there");
    let committed: HashMap<u32, u64> =
        committed.iter().map(|entry| (entry.partition, entry.position.offset)).collect();
    for (partition, stay) in &*run.stays.lock().expect("no panic") {
        let next = stay.offsets.iter().max().map_or(0, |last| last + 1);
        sum.uncommitted += next.saturating_sub(committed.get(partition).copied().unwrap_or(0));
    }
    sum.kills += 1;
    sum.stays.push(Arc::clone(&run.stays));
}

/// Holds up what a member sends, for a while that may be longer than its session.
fn pause(run: &Run, millis: u64, sum: &mut Sum) {
    let proxy = Arc::clone(&run.proxy);
    proxy.set(Faults::requests(Fault::Pause));
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        proxy.set(Faults::NONE);
    });
    sum.pauses += 1;
}

async fn leave(run: &mut Run, sum: &mut Sum) {
    run.proxy.set(Faults::NONE);
    run.stop.send_replace(true);
    in_time("a stop", &mut run.task).await.expect("no panic");
    sum.stops += 1;
    sum.stays.push(Arc::clone(&run.stays));
}

/// Waits until the group has come to the end of every partition.
async fn settle(client: &Client, runs: &[Run]) {
    for run in runs {
        run.proxy.set(Faults::NONE);
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let group = client.admin().describe_group(GROUP).await.expect("it is there");
        let at_end = |at: &log_client::GroupPartition| {
            at.end == 0 || at.committed.as_ref().is_some_and(|position| position.offset == at.end)
        };
        if group.partitions.len() == PARTITIONS as usize && group.partitions.iter().all(at_end) {
            return;
        }
        assert!(Instant::now() < deadline, "the group does not come to the end: {group:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn judge(told: &[Told], sum: &Sum) {
    let sent: usize = told.iter().map(|told| told.sends.len()).sum();
    let mut times: HashMap<(u32, u64), u64> = HashMap::new();
    for stays in &sum.stays {
        for (partition, stay) in &*stays.lock().expect("no panic") {
            in_order(*partition, stay);
            for offset in &stay.offsets {
                *times.entry((*partition, *offset)).or_default() += 1;
            }
        }
    }
    let repeated: u64 = times.values().map(|times| times - 1).sum();
    tell(&format!(
        "group chaos: {sent} records, {} seen, {repeated} repeated; {} kills with {} in hand, {} \
         pauses, {} stops, {} forced hand-overs",
        times.len(),
        sum.kills,
        sum.uncommitted,
        sum.pauses,
        sum.stops,
        sum.forced
    ));
    assert_eq!(times.len(), sent, "every record was seen");
    if sum.pauses == 0 {
        assert!(repeated <= sum.uncommitted, "only what killed members had in hand is repeated");
    }
}

/// Each assignment is read in order, from where it began.
fn in_order(partition: u32, stay: &Stay) {
    let mut jumps = 0;
    let mut next = None;
    for offset in &stay.offsets {
        if next != Some(*offset) {
            jumps += 1;
            let told = stay.assigned.contains(offset);
            assert!(told, "{partition}: at {offset}, and not at {next:?}; {:?}", stay.assigned);
        }
        next = Some(offset + 1);
    }
    assert!(jumps <= stay.assigned.len(), "{partition}: {jumps} jumps, {:?}", stay.assigned);
}
