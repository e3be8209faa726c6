//! Entries with settled ranges and grants: rules, one record, replay against a model, power cuts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{append, create, name, reopen, small};
use crate::config::{FlushPolicy, MEMBER_ID_LIMIT_BYTES, SETTLED_RANGES_LIMIT, TopicConfig};
use crate::disk::{CrashMode, FaultyDisk};
use crate::error::{Error, Result};
use crate::name::{GroupName, TopicName};
use crate::offset::{Offset, OffsetRange};
use crate::record::Record;
use crate::store::{
    Committed, EntryChange, Grant, GroupOffsets, Moves, NewPosition, OffsetCommit, Owner, Store,
};

const RECORDS: Offset = 3_000;

fn group(raw: &str) -> GroupName {
    GroupName::parse(raw).unwrap()
}

/// A store with a topic `t` of two partitions that hold 3,000 records each.
fn prepare(disk: &FaultyDisk) -> Store {
    let store = create(disk);
    let topic = store.create_topic(&name("t"), 2, small()).unwrap();
    for partition in topic.partitions() {
        let partition = partition.unwrap();
        while partition.ends().end < RECORDS {
            partition.append(&[Record::new(b"x"); 500]).unwrap();
        }
    }
    store
}

fn range(start: Offset, end: Offset) -> OffsetRange {
    OffsetRange::new(start, end)
}

fn held(epoch: u64, member: &str) -> Grant {
    Grant { epoch, owner: Some(Owner { member: Arc::from(member), incarnation: 7 }) }
}

fn released(epoch: u64) -> Grant {
    Grant { epoch, owner: None }
}

fn on(offset: Offset, settled: &[OffsetRange]) -> NewPosition<'_> {
    NewPosition { offset, settled, metadata: "", moves: Moves::Forward }
}

fn change<'a>(
    topic: &'a TopicName,
    partition: u32,
    position: Option<NewPosition<'a>>,
    grant: Option<Grant>,
) -> EntryChange<'a> {
    EntryChange { topic, topic_id: None, partition, position, grant }
}

fn fetched(offsets: &GroupOffsets, partition: u32) -> Committed {
    offsets.fetch(&group("g"), &name("t"), partition).unwrap().unwrap()
}

#[test]
fn a_grant_and_a_position_are_one_entry() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    let (offsets, g, t) = (store.group_offsets(), group("g"), name("t"));
    let only = |grant| change(&t, 0, None, Some(grant));
    let refused = offsets.write(&g, &[only(held(1, "a"))]);
    assert!(matches!(refused, Err(Error::NoPosition { partition: 0, .. })), "{refused:?}");

    offsets.write(&g, &[change(&t, 0, Some(on(5, &[])), None)]).unwrap();
    offsets.write(&g, &[only(held(1, "a"))]).unwrap();
    let settled = [range(9, 12), range(20, 21)];
    offsets.write(&g, &[change(&t, 0, Some(on(7, &settled)), None)]).unwrap();
    let found = fetched(&offsets, 0);
    assert_eq!((found.offset, &*found.settled, found.grant), (7, &settled[..], Some(held(1, "a"))));

    // The last word of a member: where it stopped, and that it is gone.
    let log = store.topic(&TopicName::offsets()).unwrap().partition(0).unwrap();
    let before = log.ends().end;
    offsets.write(&g, &[change(&t, 0, Some(on(8, &settled[1..])), Some(released(1)))]).unwrap();
    assert_eq!(log.ends().end, before + 1, "one record");
    let found = fetched(&offsets, 0);
    assert_eq!((found.offset, &*found.settled, found.grant), (8, &settled[1..], Some(released(1))));

    for stale in [held(1, "a"), held(1, "b"), held(0, "a"), released(0)] {
        let refused = offsets.write(&g, &[only(stale)]);
        assert!(matches!(refused, Err(Error::GrantWentBack { granted: 1, .. })), "{refused:?}");
    }
    // A commit of somebody who knows nothing of grants leaves the grant, and settles nothing.
    offsets.write(&g, &[only(held(4, "b"))]).unwrap();
    offsets.commit(&g, &t, 0, 30).unwrap();
    let found = fetched(&offsets, 0);
    assert_eq!((found.offset, found.settled.len(), found.grant), (30, 0, Some(held(4, "b"))));
    let given = OffsetCommit { settled: &settled, ..OffsetCommit::new(&t, 0, 3) };
    offsets.reset(&g, &[given]).unwrap();
    drop((store, offsets, log));

    let store = reopen(&disk.crash(1, CrashMode::LoseAll));
    let offsets = store.group_offsets();
    let found = fetched(&offsets, 0);
    assert_eq!((found.offset, &*found.settled, found.grant), (3, &settled[..], Some(held(4, "b"))));
    let line = &offsets.list(&g).unwrap()[0];
    assert_eq!(line.topic_id, store.topic(&t).unwrap().id());
    // What is deleted is gone with its grant, and a change of nothing is none.
    offsets.delete(&g, &t, 0).unwrap();
    offsets.write(&g, &[change(&t, 0, None, None)]).unwrap();
    assert_eq!(offsets.fetch(&g, &t, 0).unwrap(), None);
    offsets.write(&g, &[change(&t, 0, Some(on(0, &[])), Some(held(1, "a")))]).unwrap();
}

#[test]
fn what_makes_no_sense_is_refused_with_all_that_came_with_it() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    let (offsets, g, t) = (store.group_offsets(), group("g"), name("t"));
    offsets.commit(&g, &t, 1, 50).unwrap();
    let (at, empty, past) = ([range(60, 70)], [range(80, 80)], [range(2_999, 3_001)]);
    let touching = [range(70, 80), range(80, 90)];
    let many: Vec<_> =
        (0..=SETTLED_RANGES_LIMIT as u64).map(|n| range(70 + 2 * n, 71 + 2 * n)).collect();
    let long = "m".repeat(MEMBER_ID_LIMIT_BYTES + 1);
    let refused = |position: Option<NewPosition<'_>>, grant| {
        let good = change(&t, 0, Some(on(9, &[])), Some(held(1, "a")));
        let error = offsets.write(&g, &[good, change(&t, 1, position, grant)]).unwrap_err();
        assert_eq!(offsets.fetch(&g, &t, 0).unwrap(), None, "{error}");
        assert_eq!(fetched(&offsets, 1).offset, 50, "{error}");
        error
    };
    for settled in [&at[..], &empty, &touching] {
        let error = refused(Some(on(60, settled)), None);
        assert!(matches!(error, Error::IllegalSettled { partition: 1, .. }), "{error:?}");
    }
    let error = refused(Some(on(60, &past)), None);
    assert!(
        matches!(error, Error::OffsetBeyondEnd { offset: 3_001, end: RECORDS, .. }),
        "{error:?}"
    );
    let error = refused(Some(on(60, &many)), None);
    assert!(matches!(error, Error::TooLarge { limit: 1_024, .. }), "{error:?}");
    let error = refused(None, Some(held(1, &long)));
    assert!(matches!(error, Error::TooLarge { limit: 200, .. }), "{error:?}");
    assert!(matches!(refused(Some(on(49, &[])), None), Error::OffsetWentBack { .. }));
    let (sender, receiver) = std::sync::mpsc::channel();
    let going_back = change(&t, 1, Some(on(49, &[])), None);
    offsets.write_then(&g, &[going_back], move |outcome| sender.send(outcome).unwrap());
    assert!(matches!(receiver.try_recv().unwrap(), Err(Error::OffsetWentBack { .. })));

    // As many ranges as may be, in more entries than a small batch would hold.
    let full = &many[1..];
    let all: Vec<_> =
        (0..100).map(|n| change(&t, 0, Some(on(n / 2, full)), Some(held(n, "a")))).collect();
    offsets.write(&g, &all).unwrap();
    offsets.snapshot().unwrap();
    store.close().unwrap();
    let found = fetched(&reopen(&disk).group_offsets(), 0);
    assert_eq!((found.offset, &*found.settled, found.grant), (49, full, Some(held(99, "a"))));
}

#[test]
fn a_log_that_lost_its_end_takes_what_was_settled_there_and_leaves_the_grant() {
    let disk = FaultyDisk::new();
    let store = create(&disk);
    let config = TopicConfig { flush: FlushPolicy::Os, ..small() };
    let topic = store.create_topic(&name("t"), 1, config).unwrap();
    for _ in 0..50 {
        append(&topic, 0, "x").unwrap();
    }
    topic.partition(0).unwrap().sync().unwrap();
    for _ in 0..50 {
        append(&topic, 0, "x").unwrap();
    }
    let (g, t) = (group("g"), name("t"));
    let settled = [range(10, 20), range(45, 99)];
    let position = Some(on(5, &settled));
    store.group_offsets().write(&g, &[change(&t, 0, position, Some(held(3, "a")))]).unwrap();
    let crashed = disk.crash(0, CrashMode::LoseAll);

    let store = reopen(&crashed);
    let end = store.topic(&t).unwrap().partition(0).unwrap().ends().end;
    assert!((50..99).contains(&end));
    for _ in 0..10 {
        append(&store.topic(&t).unwrap(), 0, "new").unwrap();
    }
    drop(store);
    // Still so when the end has moved on: what is new was never dealt with.
    let found = fetched(&reopen(&crashed).group_offsets(), 0);
    assert_eq!((found.offset, found.clamped_from), (5, None));
    assert_eq!(&*found.settled, [range(10, 20), range(45, end)]);
    assert_eq!(found.grant, Some(held(3, "a")));
}

#[test]
fn a_position_that_may_be_old_is_not_made_new_by_a_grant() {
    let disk = FaultyDisk::new();
    let store = prepare(&disk);
    let (offsets, g, t) = (store.group_offsets(), group("g"), name("t"));
    for offset in 0..20 {
        offsets.commit(&g, &t, 0, offset).unwrap();
    }
    let dir = store.topic(&TopicName::offsets()).unwrap().partition(0).unwrap().path().to_owned();
    offsets.commit(&group("other"), &t, 0, 1).unwrap();
    store.close().unwrap();
    let files = crate::disk::Disk::list(&disk, &dir).unwrap();
    let path = dir.join(&files.iter().find(|entry| entry.name.ends_with(".log")).unwrap().name);
    let bytes = disk.read(&path);
    let key = [1_u8, 0, 0, 0, 0, 0, 0, 0, b'g'];
    let at = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&key)).nth(10).unwrap();
    disk.write_raw(&path, at as u64, b"X");

    let offsets = reopen(&disk).group_offsets();
    let grant = change(&t, 1, None, Some(held(1, "a")));
    assert!(matches!(offsets.write(&g, &[grant]), Err(Error::Corrupt(_))));
    // The damage lies before the last commits of partition 0: those are sure.
    offsets.write(&g, &[change(&t, 0, None, Some(held(1, "a")))]).unwrap();
    let both = change(&t, 1, Some(on(3, &[])), Some(held(1, "a")));
    let more = change(&t, 1, None, Some(held(2, "b")));
    offsets.write(&g, &[both, more]).unwrap();
    assert_eq!(fetched(&offsets, 1).grant, Some(held(2, "b")));
}

/// What a plain map says of entries: position, settled ranges, grant.
type Entry = (Offset, Vec<OffsetRange>, Option<Grant>);
type Model = BTreeMap<(String, u32), Entry>;

fn all(store: &Store) -> Model {
    let lines = store.group_offsets().list_all().unwrap();
    let entry = |found: &Committed| (found.offset, found.settled.to_vec(), found.grant.clone());
    lines.iter().map(|l| ((l.group.to_string(), l.partition), entry(&l.committed))).collect()
}

/// A change as a model makes it: whether it is legal, and what it leads to.
fn expected(before: Option<&Entry>, change: &EntryChange<'_>) -> Option<Option<Entry>> {
    let mut after = before.cloned();
    if let Some(position) = change.position {
        let back = before.is_some_and(|before| position.offset < before.0);
        if back && position.moves == Moves::Forward {
            return None;
        }
        let grant = before.and_then(|before| before.2.clone());
        after = Some((position.offset, position.settled.to_vec(), grant));
    }
    if let Some(next) = &change.grant {
        let entry = after.as_mut()?;
        if let Some(held) = &entry.2 {
            let leaves = next.epoch == held.epoch && (next.owner.is_none() || next == held);
            if next.epoch <= held.epoch && !leaves {
                return None;
            }
        }
        entry.2 = Some(next.clone());
    }
    Some(after)
}

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x5eed);
        (self.0 >> 33) % below
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// Makes a change in the store and in the model; whether both took it.
fn change_both(dice: &mut Dice, store: &Store, model: &mut Model, key: (String, u32)) -> bool {
    let offset = dice.below(40);
    let settled = [range(offset + 1 + dice.below(5), offset + 9)];
    let position = NewPosition {
        offset,
        settled: dice.pick(&[&[][..], &settled]),
        metadata: "",
        moves: dice.pick(&[Moves::Forward, Moves::Anywhere]),
    };
    let grant = match dice.below(3) {
        0 => None,
        1 => Some(released(dice.below(20))),
        _ => Some(held(dice.below(20), dice.pick(&["x", "y"]))),
    };
    let (t, position) = (name("t"), (dice.below(3) > 0).then_some(position));
    let change = change(&t, key.1, position, grant);
    let outcome = store.group_offsets().write(&group(&key.0), std::slice::from_ref(&change));
    match expected(model.get(&key), &change) {
        Some(after) => {
            outcome.unwrap();
            model.extend(after.map(|after| (key, after)));
            true
        }
        None => {
            outcome.unwrap_err();
            false
        }
    }
}

#[test]
fn any_changes_lead_where_a_plain_map_says_and_replay_says_the_same() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 1..=8 {
        let mut dice = Dice(seed);
        let disk = FaultyDisk::new();
        let mut store = prepare(&disk);
        let mut model = Model::new();
        for _ in 0..150 {
            let key = (dice.pick(&["a", "b"]).to_owned(), dice.pick(&[0, 1]));
            match dice.below(30) {
                0 => {
                    store.close().unwrap();
                    store = reopen(&disk);
                }
                1 => store.group_offsets().snapshot().unwrap(),
                2 => {
                    store.group_offsets().delete(&group(&key.0), &name("t"), key.1).unwrap();
                    model.remove(&key);
                }
                _ if change_both(&mut dice, &store, &mut model, key) => taken += 1,
                _ => refused += 1,
            }
            assert_eq!(all(&store), model);
        }
        drop(store);
        assert_eq!(all(&reopen(&disk.crash(seed, CrashMode::Random))), model);
    }
    assert!(taken > 300 && refused > 100, "{taken} taken, {refused} refused");
}

/// Grants, commits and releases, as a group makes them; stops at the first failure. What was
/// acknowledged, and what the step that failed would have led to.
fn hand_over(store: &Store) -> (Model, Option<Model>) {
    let (offsets, t) = (store.group_offsets(), name("t"));
    let mut sure = Model::new();
    for step in 0..12_u64 {
        let settled = vec![range(10 * step + 2, 10 * step + 4)];
        let position = Some(on(10 * step, &settled));
        let epoch = step / 3 + 1;
        let (position, grant) = match step % 3 {
            0 => (position, Some(held(epoch, "a"))),
            1 => (position, None),
            _ => (position, Some(released(epoch))),
        };
        let both = [change(&t, 0, position, grant.clone()), change(&t, 1, position, grant)];
        let mut next = sure.clone();
        for change in &both {
            let key = ("g".to_owned(), change.partition);
            let after = expected(sure.get(&key), change).expect("a legal step");
            next.extend(after.map(|after| (key, after)));
        }
        if step == 7 && offsets.snapshot().is_err() {
            return (sure.clone(), Some(sure));
        }
        let outcome: Result<()> = offsets.write(&group("g"), &both);
        if outcome.is_err() {
            return (sure, Some(next));
        }
        sure = next;
    }
    (sure, None)
}

#[test]
fn power_may_go_at_any_call_of_a_hand_over() {
    for cut in 0.. {
        let disk = FaultyDisk::new();
        let store = prepare(&disk);
        let first = disk.calls();
        disk.power_off_at(first + cut);
        let (sure, next) = hand_over(&store);
        for crashed in [disk.crash(cut, CrashMode::Random), disk.kill()] {
            let found = all(&reopen(&crashed));
            let fine = found == sure || next.as_ref().is_some_and(|next| found == *next);
            assert!(fine, "call {cut}: {found:?}, expected {sure:?} or {next:?}");
        }
        if disk.calls() <= first + cut {
            assert!(next.is_none() && cut > 30);
            break;
        }
    }
}
