//! Power cuts: on a real file system, under load, with a list outside of what was acknowledged.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use integration_tests::{Dice, shared_nanos};

use crate::system::ledger::{Compared, Ledger, Loss, orders};
use crate::system::mount::{Kind, Mounted};
use crate::system::process::{Ack, Line, Victim, acks};
use crate::system::{PATIENCE, counts, has, pause, quiet, skip, tell};

/// After so many cuts a new log is begun.
const CUTS_OF_A_LOG: u64 = 8;
/// What the window of `Interval` is in these tests.
const WINDOW_MS: u64 = 20;
const WINDOW_BYTES: u64 = 64 * 1024;

/// What a run of cuts is like.
struct Run {
    flush: String,
    may_lose: Loss,
    settings: Vec<&'static str>,
}

fn runs() -> [Run; 4] {
    let few = vec!["threads=4", "partitions=2", "value=300"];
    let large = vec!["threads=1", "value=5000", "trim=40", "batch=3"];
    let run = |flush: &str, may_lose, settings| Run { flush: flush.to_owned(), may_lose, settings };
    [
        run("flush=sync", Loss::Nothing, few),
        run("flush=os", Loss::Suffix, vec!["threads=2", "partitions=2", "value=3000"]),
        run("flush=sync", Loss::Nothing, large),
        run(
            &format!("flush=interval:{WINDOW_MS}:{WINDOW_BYTES}"),
            Loss::Suffix,
            vec!["threads=1", "value=400"],
        ),
    ]
}

/// What has been found in all.
#[derive(Default)]
struct Sum {
    cuts: u64,
    acknowledged: u64,
    lost_under_sync: usize,
    lost_elsewhere: usize,
    longest_window_ms: u64,
    log_cuts: usize,
    unborn: usize,
    hidden: usize,
    skipped: usize,
}

#[test]
fn a12_a17_power_cuts_lose_nothing_acknowledged_as_synced_and_elsewhere_a_suffix() {
    let name = "power cuts";
    if !has("perl") {
        return skip(name, "there is no perl to cut with");
    }
    let mut dice = Dice::new(counts::seed());
    let mut sum = Sum::default();
    let wanted = counts::power_cuts();
    let runs = runs();
    let mut log = 0;
    while sum.cuts < wanted {
        let run = &runs[log % runs.len()];
        let mut mounted = match Mounted::new(Kind::Ext4, 64) {
            Ok(mounted) => mounted,
            Err(why) => return skip(name, &why),
        };
        let mut ledger = Ledger::default();
        for life in 1..=CUTS_OF_A_LOG.min(wanted - sum.cuts) {
            sum.cuts += 1;
            let what = format!("log {log}, {}, cut {life}", run.flush);
            let said = cut_under_load(&mounted, run, life, &mut dice);
            mounted.remount();
            after_cut(&mut ledger, &mounted.dir.join("log"), run, &said, &mut sum, &what);
        }
        log += 1;
    }
    tell(&format!(
        "{name}: {} cuts, {} records found as acknowledged; lost: {} under Sync, {} elsewhere \
         (at most {} ms old under Interval); {} logs cut, {} files unborn, {} hidden, {} spots \
         without records",
        sum.cuts,
        sum.acknowledged,
        sum.lost_under_sync,
        sum.lost_elsewhere,
        sum.longest_window_ms,
        sum.log_cuts,
        sum.unborn,
        sum.hidden,
        sum.skipped,
    ));
}

/// Appends until the power goes, at a moment of the dice's choice: at an acknowledgement, some
/// time after the first, or before there is any.
fn cut_under_load(mounted: &Mounted, run: &Run, life: u64, dice: &mut Dice) -> Vec<Line> {
    let cutter = mounted.cutter();
    let (flush, life) = (run.flush.clone(), format!("life={life}"));
    let mut settings = vec![flush.as_str(), &life, "count=1000000"];
    settings.extend(&run.settings);
    let victim = Victim::start("append", &mounted.dir.join("log"), &settings);
    let mut said = Vec::new();
    match dice.below(4) {
        0 => pause(Duration::from_micros(dice.below(15_000))),
        1 => {
            for _ in 0..=dice.below(30) {
                said.extend(victim.listen(PATIENCE, |line| matches!(line, Line::Ack(_))).0);
            }
        }
        _ => {
            said.extend(victim.listen(PATIENCE, |line| matches!(line, Line::Ack(_))).0);
            pause(Duration::from_micros(dice.below(60_000)));
            if dice.below(2) == 0 {
                // Some of what nobody has waited for gets to the disk all the same.
                quiet(Command::new("sync").arg("-f").arg(&mounted.dir));
                pause(Duration::from_micros(dice.below(20_000)));
            }
        }
    }
    let cut = shared_nanos();
    cutter.cut();
    let ended = if run.flush == "flush=sync" {
        // Its syncs fail now: it must say so, and live.
        victim.end(PATIENCE)
    } else {
        victim.kill()
    };
    ended.refuse_panic();
    said.extend(ended.said);
    // What is said once the cut has begun, a machine without power would not have said. The kernel
    // can answer a sync that was under way then with a success that is none.
    said.retain(|line| !matches!(line, Line::Ack(ack) if ack.ended >= cut));
    said
}

fn after_cut(ledger: &mut Ledger, dir: &Path, run: &Run, said: &[Line], sum: &mut Sum, what: &str) {
    crate::system::tell_on_panic(what, || {
        ledger.note(said);
        let (compared, store) = ledger.compare(dir, run.may_lose);
        if run.flush.starts_with("flush=interval") {
            let window = window_of(&acks(said), &compared);
            sum.longest_window_ms = sum.longest_window_ms.max(window);
        }
        sum.acknowledged += ledger.acknowledged();
        match run.may_lose {
            Loss::Nothing | Loss::Waiting => sum.lost_under_sync += compared.lost.len(),
            Loss::Suffix => sum.lost_elsewhere += compared.lost.len(),
        }
        for report in &compared.reports {
            sum.log_cuts += usize::from(report.cut.is_some());
            sum.unborn += report.unborn.len();
            sum.hidden += report.hidden.len();
            sum.skipped += report.skipped.len();
        }
        if let Ok(topic) = store.topic(&orders()) {
            ledger.append_one(&topic);
            topic.partition(0).expect("there is one").sync().expect("the disk is fine again");
        }
    });
}

/// How old the oldest acknowledged record that was lost was when the last one was appended, in
/// milliseconds: never older than the window, nor more bytes than it.
fn window_of(acks: &[Ack], compared: &Compared) -> u64 {
    let lost: HashSet<u64> = compared.lost.iter().copied().collect();
    let mut lost_acks = acks.iter().filter(|ack| lost.contains(&ack.number));
    let (Some(first), Some(last)) = (lost_acks.next(), acks.last()) else { return 0 };
    let age = Duration::from_nanos(last.began.saturating_sub(first.ended));
    let window = Duration::from_millis(WINDOW_MS);
    assert!(age <= window, "{age:?} of acknowledged records were lost, the window is {window:?}");
    // A value of these tests has at most 600 bytes.
    let bytes = (lost.len() as u64 - 1) * 200;
    assert!(bytes <= WINDOW_BYTES, "{} records were lost", lost.len());
    u64::try_from(age.as_millis()).expect("a few milliseconds")
}
