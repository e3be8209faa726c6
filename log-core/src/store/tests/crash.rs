//! A power cut, or a failure, at each call of each change of topics.

use super::{append, create, dirs, name, open, reopen, small, values};
use crate::config::{FlushPolicy, TopicConfig};
use crate::disk::{CrashMode, Failure, FaultyDisk};
use crate::error::{Error, Result};
use crate::store::{OpenMode, Store};

const MODES: [CrashMode; 5] = [
    CrashMode::LoseAll,
    CrashMode::KeepAll,
    CrashMode::LoseData,
    CrashMode::LoseSizes,
    CrashMode::LoseNames,
];

/// What a change may leave: whether it is there or not is all that may differ.
struct Case {
    change: fn(&Store) -> Result<()>,
    /// Whether the change is there; panics if it is there in part.
    is_there: fn(&Store) -> bool,
}

const CREATE: Case = Case {
    change: |store| store.create_topic(&name("new"), 2, small()).map(drop),
    is_there: |store| match store.topic(&name("new")) {
        Ok(topic) => {
            assert_eq!(topic.partition_count(), 2);
            for partition in topic.partitions() {
                assert!(values(&partition.unwrap()).is_empty());
            }
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::UnknownTopic(_)), "{error}");
            false
        }
    },
};

const DELETE: Case = Case {
    change: |store| store.delete_topic(&name("victim")),
    is_there: |store| match store.topic(&name("victim")) {
        Ok(topic) => {
            let first = topic.partition(0).unwrap();
            assert_eq!(values(&first), ["one", "two"]);
            false
        }
        Err(error) => {
            assert!(matches!(error, Error::UnknownTopic(_)), "{error}");
            true
        }
    },
};

const ADD: Case = Case {
    change: |store| store.add_partitions(&name("base"), 4),
    is_there: |store| {
        let topic = store.topic(&name("base")).unwrap();
        let count = topic.partition_count();
        assert!(count == 2 || count == 4, "{count} partitions");
        for partition in topic.partitions() {
            partition.unwrap();
        }
        count == 4
    },
};

const ALTER: Case = Case {
    change: |store| {
        let config = TopicConfig { flush: FlushPolicy::Os, ..small() };
        store.alter_topic(&name("base"), config)
    },
    is_there: |store| store.topic(&name("base")).unwrap().config().flush == FlushPolicy::Os,
};

fn prepare(disk: &FaultyDisk) -> Store {
    // What a file may grow to is copied with each disk: it need not be much.
    disk.set_file_capacity(128 * 1024);
    let store = create(disk);
    let base = store.create_topic(&name("base"), 2, small()).unwrap();
    append(&base, 1, "kept").unwrap();
    let victim = store.create_topic(&name("victim"), 2, small()).unwrap();
    append(&victim, 0, "one").unwrap();
    append(&victim, 0, "two").unwrap();
    store
}

/// Opens, checks all that holds whatever happened, and says whether the change is there.
fn look(disk: &FaultyDisk, case: &Case) -> bool {
    let store = reopen(disk);
    let base = store.topic(&name("base")).unwrap();
    assert_eq!(values(&base.partition(1).unwrap()), ["kept"]);
    assert!(store.leftovers().is_empty(), "{:?}", store.leftovers());
    let there = (case.is_there)(&store);
    assert_eq!(dirs(disk).len(), store.all_topics().len(), "what is not listed is removed");
    // It can be done now, if it was not.
    if !there {
        (case.change)(&store).unwrap();
        assert!((case.is_there)(&store));
    }
    append(&base, 0, "goes on").unwrap();
    store.close().unwrap();
    there
}

/// Cuts the power at each call; returns how many disks were looked at.
fn cut_at_each_call(case: &Case) -> u32 {
    let mut looked_at = 0;
    for cut in 0.. {
        let disk = FaultyDisk::new();
        let store = prepare(&disk);
        let first = disk.calls();
        disk.power_off_at(first + cut);
        let outcome = (case.change)(&store);
        let mut crashed: Vec<_> = MODES.iter().map(|mode| disk.crash(cut, *mode)).collect();
        crashed.extend((0..3).map(|seed| disk.crash(seed * 1_000 + cut, CrashMode::Random)));
        crashed.push(disk.kill());
        for crashed in crashed {
            let there = look(&crashed, case);
            assert!(there || outcome.is_err(), "call {cut}: it was acknowledged");
            looked_at += 1;
        }
        if disk.calls() <= first + cut {
            outcome.unwrap();
            break;
        }
    }
    looked_at
}

/// Fails each call; returns how many were failed.
fn fail_each_call(case: &Case, failure: Failure) -> u32 {
    let mut failed = 0;
    for at in 0.. {
        let disk = FaultyDisk::new();
        let store = prepare(&disk);
        let first = disk.calls();
        disk.fail_at(first + at, failure);
        let outcome = (case.change)(&store);
        if disk.calls() <= first + at {
            break;
        }
        failed += 1;
        disk.stop_failing();
        let there = (case.is_there)(&store);
        let unknown = matches!(outcome, Err(Error::SyncFailed { .. }));
        assert!(there == outcome.is_ok() || unknown, "call {at}: {outcome:?}");
        let base = store.topic(&name("base")).unwrap();
        append(&base, 1, "others go on").unwrap();
        if outcome.is_err() {
            // Nothing stands in the way of another attempt; after a failed sync, of an opening.
            let again = (case.change)(&store);
            assert_eq!(again.is_err(), unknown, "call {at}: {outcome:?}, then {again:?}");
        }
        drop((base, store));
        let store = open(&disk, OpenMode::MustExist).unwrap();
        assert!((case.is_there)(&store) || unknown, "call {at}: {outcome:?}");
        assert!(store.leftovers().is_empty());
        assert_eq!(dirs(&disk).len(), store.all_topics().len());
    }
    failed
}

#[test]
fn power_may_go_at_any_call_of_a_creation() {
    assert!(cut_at_each_call(&CREATE) > 200);
}

#[test]
fn power_may_go_at_any_call_of_a_deletion() {
    assert!(cut_at_each_call(&DELETE) > 100);
}

#[test]
fn power_may_go_at_any_call_while_partitions_are_added() {
    assert!(cut_at_each_call(&ADD) > 100);
}

#[test]
fn power_may_go_at_any_call_of_an_alteration() {
    assert!(cut_at_each_call(&ALTER) > 30);
}

#[test]
fn any_call_of_a_change_may_fail() {
    for failure in [Failure::Io, Failure::DiskFull, Failure::ShortWrite { bytes: 3 }] {
        for (case, least) in [(CREATE, 20), (DELETE, 10), (ADD, 15), (ALTER, 5)] {
            assert!(fail_each_call(&case, failure) >= least, "{failure:?}");
        }
    }
}

#[test]
fn power_may_go_while_a_store_is_made() {
    for cut in 0.. {
        let disk = FaultyDisk::new();
        disk.power_off_at(cut);
        let outcome = open(&disk, OpenMode::CreateIfMissing).map(drop);
        for seed in 0..20 {
            let crashed = disk.crash(seed, CrashMode::Random);
            if outcome.is_ok() {
                reopen(&crashed);
            }
            let store = create(&crashed);
            store.create_topic(&name("a"), 1, small()).unwrap();
            store.close().unwrap();
            assert_eq!(reopen(&crashed).topics().len(), 1);
        }
        if disk.calls() <= cut {
            outcome.unwrap();
            break;
        }
    }
}

#[test]
fn power_may_go_while_what_was_begun_is_finished() {
    // A deletion is cut after its commit, and the opening that goes on with it at each call.
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    disk.fail_calls(crate::disk::Call::RemoveFile, 0, u64::MAX, Failure::Io);
    (DELETE.change)(&store).unwrap();
    disk.stop_failing();
    drop(store);
    let half = disk.crash(0, CrashMode::LoseAll);
    assert_eq!(dirs(&half).len(), 2);
    for cut in 0.. {
        let disk = half.kill();
        disk.power_off_at(cut);
        let outcome = open(&disk, OpenMode::MustExist).map(drop);
        for seed in 0..4 {
            assert!(look(&disk.crash(seed, CrashMode::Random), &DELETE));
        }
        if disk.calls() <= cut {
            outcome.unwrap();
            break;
        }
    }
}

#[test]
fn files_that_stay_are_removed_later() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    disk.fail_calls(crate::disk::Call::RemoveFile, 0, 3, Failure::Io);
    store.delete_topic(&name("victim")).unwrap();
    assert_eq!(dirs(&disk).len(), 2);
    disk.stop_failing();
    let _ = store.maintain();
    assert_eq!(dirs(&disk).len(), 1);
    assert_eq!(store.metrics().maintenance_failures.value(), 1);
}
