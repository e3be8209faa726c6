//! Kill: at each system call of a short run, and at random instants; nothing acknowledged is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use integration_tests::Dice;

use crate::system::ledger::{Ledger, Loss};
use crate::system::process::Victim;
use crate::system::{PATIENCE, copy_tree, counts, has, pause, skip, tell, tell_on_panic};

/// What may change a file, or finds one, or makes memory of it.
const CALLS: &str =
    "pwrite64,fdatasync,fsync,fallocate,rename,unlink,openat,mkdir,mmap,madvise,pread64,flock";

/// A run of some records that rolls, trims, and closes.
const SHORT: [&str; 4] = ["count=40", "value=6000", "trim=15", "batch=2"];

/// The policies, and whether a run begins with nothing or with what a killed process has left.
const RUNS: [(&str, bool); 4] = [
    ("flush=sync", false),
    ("flush=sync", true),
    ("flush=os", true),
    ("flush=interval:20:16384", false),
];

#[test]
fn a_kill_at_any_system_call_loses_nothing_acknowledged() {
    let name = "kill at each system call";
    if !has("strace") {
        return skip(name, "there is no strace");
    }
    let home = tempfile::tempdir().expect("a directory");
    let (mut kills, mut acknowledged) = (0, 0);
    for (policy, goes_on) in RUNS {
        let left = home.path().join("left");
        let mut before = Ledger::default();
        if goes_on {
            let settings = [&SHORT[..], &[policy, "life=1", "last=exit"]].concat();
            before.note(&Victim::start("append", &left, &settings).end(PATIENCE).said);
        }
        let dir = home.path().join("killed");
        for (call, nth) in points(&left, &dir, policy) {
            start_with(&left, &dir);
            let mut ledger = before.clone();
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let traced = Victim::start_traced(&["-e", &inject], "append", &dir, &life(policy, 2));
            let ended = traced.end(PATIENCE);
            ledger.note(&ended.refuse_panic().said);
            kills += u64::from(!ended.status.success());
            acknowledged += ledger.acknowledged();
            survives(&mut ledger, &dir, &format!("{policy}, {call} {nth}"));
        }
        let _ = fs::remove_dir_all(&left);
    }
    tell(&format!("{name}: {kills} kills, {acknowledged} records acknowledged, 0 lost"));
}

#[test]
fn a_kill_at_any_instant_loses_nothing_acknowledged() {
    let mut dice = Dice::new(counts::seed());
    let home = tempfile::tempdir().expect("a directory");
    let (mut acknowledged, mut unacknowledged) = (0, 0);
    let kills = counts::kill_instants();
    let mut ledger = Ledger::default();
    let mut dir = home.path().join("0");
    for kill in 0..kills {
        if kill % 20 == 0 {
            // A log that grows for ever is read again for ever.
            dir = home.path().join(kill.to_string());
            ledger = Ledger::default();
        }
        let (policy, _) = RUNS[usize::try_from(kill / 20 % 4).expect("an index")];
        let life = format!("life={}", kill + 1);
        let settings = [policy, &life, "count=1000000", "threads=3", "partitions=2", "value=500"];
        let victim = Victim::start("append", &dir, &settings);
        let (said, _) = if dice.below(3) == 0 {
            (Vec::new(), false)
        } else {
            victim.listen(PATIENCE, |line| matches!(line, crate::system::process::Line::Ack(_)))
        };
        pause(Duration::from_micros(dice.below(20_000)));
        ledger.note(&said);
        ledger.note(&victim.kill().refuse_panic().said);
        acknowledged += ledger.acknowledged();
        unacknowledged += survives(&mut ledger, &dir, &format!("{policy}, kill {kill}"));
    }
    tell(&format!(
        "kill at random instants: {kills} kills, {acknowledged} records found as acknowledged, \
         0 lost, {unacknowledged} there without having been acknowledged"
    ));
}

fn life(policy: &str, life: u64) -> Vec<String> {
    let mut settings: Vec<String> = SHORT.iter().map(ToString::to_string).collect();
    settings.extend([policy.to_owned(), format!("life={life}"), "last=close".to_owned()]);
    settings
}

/// Makes the directory what it was before the run.
fn start_with(left: &Path, dir: &Path) {
    let _ = fs::remove_dir_all(dir);
    if left.is_dir() {
        copy_tree(left, dir);
    }
}

/// The system calls of a run, in order, each as the n-th of its kind in its thread: the first so
/// many; or fewer, spread over them.
fn points(left: &Path, dir: &Path, policy: &str) -> Vec<(String, u64)> {
    const FIRST: usize = 300;
    start_with(left, dir);
    let log = dir.with_extension("strace");
    let shown = log.display().to_string();
    let trace = format!("trace={CALLS}");
    let arguments = ["-o", &shown, "-e", &trace];
    Victim::start_traced(&arguments, "append", dir, &life(policy, 2)).end(PATIENCE);
    let text = fs::read_to_string(&log).expect("what strace wrote");
    let mut seen: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let (mut points, mut begun) = (Vec::new(), false);
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(char::is_whitespace) else { continue };
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        if !call.chars().all(|c| c.is_ascii_alphanumeric()) {
            continue;
        }
        let count = seen.entry((thread, call)).or_default();
        *count += 1;
        // What comes before is the loader's.
        begun |= rest.contains(&dir.display().to_string());
        if begun {
            points.push((call.to_owned(), *count));
        }
    }
    points.truncate(FIRST);
    let wanted = usize::try_from(counts::kill_calls()).expect("a count");
    let step = points.len().div_ceil(wanted.max(1));
    // Not always the same ones.
    let from = usize::try_from(counts::seed()).expect("a seed") % step;
    points.into_iter().skip(from).step_by(step).collect()
}

/// Everything is there, and the log goes on. Returns how many records nobody was told of.
fn survives(ledger: &mut Ledger, dir: &Path, what: &str) -> u64 {
    tell_on_panic(what, || {
        let (compared, store) = ledger.compare(dir, Loss::Nothing);
        if let Ok(topic) = store.topic(&crate::system::ledger::orders()) {
            ledger.append_one(&topic);
        }
        drop(store);
        compared.unacknowledged
    })
}
