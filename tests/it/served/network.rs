//! A network that loses, delays, repeats and cuts: every send ends once and in time, and what was
//! told of it is true.

use std::time::Duration;

use integration_tests::fault_proxy::{Fault, FaultProxy, Faults};
use integration_tests::server_process::ServerProcess;
use log_client::{Acks, BackoffPolicy, Client, ClientConfig};
use log_core::{FlushPolicy, TopicConfig};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Outcome, Told, compare, in_time, produce_with, runtime, stored};
use crate::system::{counts, tell};

const TOPIC: &str = "flaky";
const TIMEOUT: Duration = Duration::from_secs(3);
/// How much later than its deadline a call may end on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn faults() -> [Faults; 6] {
    [
        Faults::requests(Fault::Cut { after: 3_000 }),
        Faults::replies(Fault::Cut { after: 700 }),
        Faults::requests(Fault::Duplicate { frame: 3 }),
        Faults::replies(Fault::Delay(Duration::from_millis(40))),
        Faults::requests(Fault::BlackHole { after: 5_000 }),
        Faults::replies(Fault::BlackHole { after: 900 }),
    ]
}

#[test]
fn g24_over_a_faulty_network_each_send_ends_once_and_is_told_truly() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut server = ServerProcess::start(env!("CARGO_BIN_EXE_server"), &data, &["--log", "error"]);
    let proxy = FaultProxy::start(server.address()).expect("a port is free");
    let runtime = runtime();
    let direct = runtime.block_on(Client::connect(server.address().to_string()));
    let config = TopicConfig { flush: FlushPolicy::Os, ..TopicConfig::default() };
    let direct = direct.expect("it answers");
    runtime.block_on(direct.admin().create_topic(TOPIC, 2, &config)).expect("it is new");

    let mut told = Vec::new();
    for round in 0..counts::network_faults() {
        told.push(runtime.block_on(one_round(&proxy, round)));
    }
    drop((direct, runtime));
    server.terminate(Duration::from_secs(30));
    let stored = stored(&data, TOPIC);
    let appended: usize = told.iter().map(|told| compare(told, &stored, u64::MAX)).sum();
    let unknown: usize = told.iter().map(|told| told.count(Outcome::Unknown)).sum();
    let not: usize = told.iter().map(|told| told.count(Outcome::NotAppended)).sum();
    tell(&format!(
        "faulty network: {} rounds, {appended} sends appended, {not} not, {unknown} unknown",
        told.len()
    ));
    assert!(appended > 0);
}

/// A producer behind the proxy, whose connections meet faults one after the other.
async fn one_round(proxy: &FaultProxy, round: u64) -> Told {
    proxy.set(Faults::NONE);
    let backoff =
        BackoffPolicy { first: Duration::from_millis(5), most: Duration::from_millis(50) };
    let config = ClientConfig { backoff, ..ClientConfig::at(proxy.address().to_string()) };
    let client = Client::with(config).await.expect("nothing is in the way yet");
    let producer = client.producer().acks(Acks::Written).delivery_timeout(TIMEOUT);
    let producer = producer.build().expect("the settings are fine");
    let (stop, stopped) = watch::channel(false);
    let key = format!("round-{round}");
    proxy.drop_all();
    let kinds = faults();
    let of_round = kinds.iter().cycle().skip(usize::try_from(round).expect("few")).take(4);
    let script: Vec<Faults> = of_round.copied().collect();
    proxy.script(&script);
    let sends = tokio::spawn(async move { produce_with(&producer, TOPIC, key, stopped).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.send_replace(true);
    let began = Instant::now();
    let told = in_time("the sends", sends).await.expect("no panic");
    let took = began.elapsed();
    assert!(took < TIMEOUT + SLACK, "round {round}: the last outcome came after {took:?}");
    proxy.drop_all();
    told
}
