//! Power cuts: the machine of a server loses its power under load, and what was acknowledged as
//! synced is there.

use std::time::Duration;

use integration_tests::server_process::ServerProcess;
use integration_tests::{Dice, shared_nanos};
use log_client::{Acks, Client};
use log_core::{FlushPolicy, TopicConfig};
use tokio::sync::watch;

use super::{Told, compare, in_time, produce, runtime, stored};
use crate::system::mount::{Kind, Mounted};
use crate::system::{counts, has, pause, skip, tell};

const CUTS_OF_A_LOG: u64 = 10;
/// Each with acks of its own: a sync that was asked for, and one that the topic asks for.
const TOPICS: [(&str, FlushPolicy, Acks); 2] =
    [("asked", FlushPolicy::Os, Acks::Synced), ("always", FlushPolicy::Sync, Acks::Policy)];

#[test]
fn a_server_whose_machine_loses_its_power_has_all_that_it_acknowledged_as_synced() {
    let name = "server power cuts";
    if !has("perl") {
        return skip(name, "there is no perl to cut with");
    }
    let mut dice = Dice::new(counts::seed());
    let wanted = counts::server_power_cuts();
    let (mut cuts, mut sure) = (0, 0);
    while cuts < wanted {
        let mut mounted = match Mounted::new(Kind::Ext4, 128) {
            Ok(mounted) => mounted,
            Err(why) => return skip(name, &why),
        };
        for life in 0..CUTS_OF_A_LOG.min(wanted - cuts) {
            cuts += 1;
            sure += one_life(&mut mounted, life, &mut dice);
        }
    }
    tell(&format!("{name}: {cuts}, {sure} records acknowledged as synced, 0 lost"));
}

fn one_life(mounted: &mut Mounted, life: u64, dice: &mut Dice) -> usize {
    let data = mounted.dir.join("data");
    let program = env!("CARGO_BIN_EXE_server");
    let mut server = ServerProcess::start(program, &data, &["--log", "off"]);
    let cutter = mounted.cutter();
    let runtime = runtime();
    let (stop, stopped) = watch::channel(false);
    let sends = runtime.block_on(async {
        let client = Client::connect(server.address().to_string()).await.expect("it answers");
        let mut sends = Vec::new();
        for (topic, flush, acks) in TOPICS {
            if life == 0 {
                let config = TopicConfig { flush, ..TopicConfig::default() };
                client.admin().create_topic(topic, 2, &config).await.expect("it is new");
            }
            for number in 0..2 {
                let key = format!("{topic}-{life}-{number}");
                let sent = produce(client.clone(), topic, key, acks, stopped.clone());
                sends.push((topic, tokio::spawn(sent)));
            }
        }
        sends
    });
    pause(Duration::from_millis(5 + dice.below(120)));
    let cut = shared_nanos();
    cutter.cut();
    stop.send_replace(true);
    pause(Duration::from_millis(dice.below(20)));
    server.kill();
    mounted.remount();
    // On the same port: what was under way ends there.
    server.start_again();
    let told: Vec<(&str, Told)> = runtime.block_on(async {
        let mut told = Vec::new();
        for (topic, sent) in sends {
            told.push((topic, in_time("sends", sent).await.expect("no panic")));
        }
        told
    });
    drop(runtime);
    server.terminate(Duration::from_secs(30));
    told.iter().map(|(topic, told)| compare(told, &stored(&data, topic), cut)).sum()
}
