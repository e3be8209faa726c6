//! Damage: flipped bits, destroyed pages, lost and replaced files. Never wrong bytes, never a
//! panic; it is named, everything else can be read, appends go on, and nothing is removed.
//!
//! `LOG_FLIPS` says how many random bits of a larger log are flipped; set, it also has every byte
//! of the small one flipped, and not only a part of the zeros in its headers.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use log_core::clock::{Clock, Timestamp};
use log_core::config::FlushPolicy;
use log_core::disk::FaultyDisk;
use log_core::error::Error;
use log_core::record::Codec;

use crate::support::damaged::{Known, Verdict, Writing};
use crate::support::reading::read_everything;
use crate::support::{DIR, POLICIES, Random, setting, tell};

/// The name that a checkpoint has.
const CHECKPOINT: &str = "/p/checkpoint";

/// Two segments, a table of producers in the second one's header, a compressed batch in each.
fn small(flush: FlushPolicy) -> Writing {
    let mut log = Writing::new(flush);
    log.append(&[20]);
    log.produce(9, Codec::Lz4);
    log.append(&[30, 8, 50]);
    log.roll();
    log.append(&[40]);
    log.produce(10, Codec::Zstd);
    log.append(&[10, 200]);
    log
}

/// Several segments of two epochs, with batches within and across pages.
fn large(flush: FlushPolicy) -> Writing {
    let mut log = Writing::new(flush);
    let mut random = Random::new(4);
    for step in 0..70 {
        let len = random.pick(&[30, 300, 900, 2_500, 5_000, 9_000]);
        log.append(&[len, 20]);
        if step == 30 {
            log.bench.background.run_pending();
            log.kill();
        }
        if step == 45 {
            log.roll();
        }
        log.bench.background.run_pending();
    }
    log
}

/// The records that may be missing are those of the damaged batches; whatever else the log lost
/// was cut, and the cut says that it may have been acknowledged.
fn assert_isolated(known: &Known, verdict: &Verdict, hit: &BTreeSet<u64>, story: &str) {
    let report = &verdict.report;
    for offset in verdict.missing.iter().filter(|offset| !hit.contains(offset)) {
        let cut = report.cut.as_ref().is_some_and(|cut| cut.possibly_acknowledged);
        let told = *offset >= verdict.end && (cut || report.end_unproven);
        assert!(told && !report.clean, "{story}: {offset} is lost, too: {report:?}");
    }
    let end = known.values.len() as u64;
    assert!(verdict.end <= end, "{story}: ends at {}, not {end}", verdict.end);
}

#[test]
fn every_flipped_byte_of_a_small_log_is_found_and_isolated() {
    let (mut flips, mut lost) = (0_u64, 0_u64);
    let all = env::var("LOG_FLIPS").is_ok();
    for known in [small(FlushPolicy::Sync).close(), small(FlushPolicy::Os).leave()] {
        for (path, (used, _)) in &known.segments {
            for at in 0..*used {
                let in_header = at < 8192;
                let zeros = at % 4096 > 120 && at % 4096 < 4090;
                let sampled = if in_header { zeros && at % 397 != 0 } else { at % 5 != 0 };
                if !all && sampled {
                    continue;
                }
                let story = format!("{} flipped at {at}", path.display());
                let disk = known.disk.kill();
                flip(&disk, path, at, u32::try_from(at % 8).expect("small"));
                if at % 2 == 0 && disk.paths().contains(&PathBuf::from(CHECKPOINT)) {
                    disk.remove_raw(Path::new(CHECKPOINT));
                }
                let verdict = known.judge(disk, &story);
                let hit = known.offsets_in(path, at, at + 1);
                assert_isolated(&known, &verdict, &hit, &story);
                assert!(verdict.named, "{story} is not named: {:?}", verdict.report);
                assert!(verdict.missing.is_superset(&hit), "{story}: {hit:?} was read");
                flips += 1;
                lost += u64::from(!verdict.missing.is_empty());
            }
        }
    }
    tell(&format!("damage: {flips} flipped bytes of a small log, {lost} in records: all named"));
}

#[test]
fn random_flipped_bits_of_a_larger_log_are_found_and_isolated() {
    let mut random = Random::new(setting("LOG_SEED", 1));
    let wanted = setting("LOG_FLIPS", 150);
    let logs = [large(FlushPolicy::Sync).close(), large(FlushPolicy::Os).leave()];
    for flip_number in 0..wanted {
        let known = &logs[usize::try_from(flip_number % 2).expect("0 or 1")];
        let paths: Vec<_> = known.segments.keys().collect();
        let path = paths[usize::try_from(random.below(paths.len() as u64)).expect("an index")];
        let at = random.below(known.segments[path].0);
        let bit = u32::try_from(random.below(8)).expect("small");
        let story = format!("flip {flip_number}: bit {bit} of byte {at} of {}", path.display());
        let disk = known.disk.kill();
        flip(&disk, path, at, bit);
        let verdict = known.judge(disk, &story);
        let hit = known.offsets_in(path, at, at + 1);
        assert_isolated(known, &verdict, &hit, &story);
        assert!(verdict.named, "{story} is not named: {:?}", verdict.report);
    }
    tell(&format!("damage: {wanted} flipped bits of a larger log: all named"));
}

fn flip(disk: &FaultyDisk, path: &Path, at: u64, bit: u32) {
    let old = disk.read(path)[usize::try_from(at).expect("small")];
    disk.write_raw(path, at, &[old ^ (1 << bit)]);
}

#[test]
fn every_destroyed_page_is_reported() {
    let all = env::var("LOG_FLIPS").is_ok();
    let mut pages = 0;
    for flush in POLICIES {
        for (known, closed) in [(large(flush).close(), true), (large(flush).leave(), false)] {
            for (path, (used, stands)) in &known.segments {
                for page in 0..used.div_ceil(4096) {
                    for zeros in [false, true] {
                        if !all && zeros != (page + used).is_multiple_of(2) {
                            continue;
                        }
                        let story =
                            format!("{flush:?}: page {page} of {}, {zeros}", path.display());
                        let disk = known.disk.kill();
                        if zeros {
                            disk.zero_page(path, page);
                        } else {
                            disk.destroy_page(path, page);
                        }
                        let verdict = known.judge(disk, &story);
                        let (start, end) = (page * 4096, page * 4096 + 4096);
                        let hit = known.offsets_in(path, start, end);
                        assert_isolated(&known, &verdict, &hit, &story);
                        // Zeros where a batch began look as if nothing had been appended.
                        let at_edge = zeros && stands.iter().any(|stand| stand.start == start);
                        let told = verdict.named || (at_edge && !verdict.report.clean);
                        assert!(told, "{story} is not named: {:?}", verdict.report);
                        if flush == FlushPolicy::Sync || closed {
                            let isolated = verdict.missing.is_subset(&hit);
                            assert!(isolated, "{story}: {:?}", verdict.report);
                        }
                        pages += 1;
                    }
                }
            }
        }
    }
    tell(&format!("damage: {pages} destroyed pages: all named"));
}

#[test]
fn a_lost_segment_file_costs_only_its_own_records() {
    let mut files = 0;
    for flush in POLICIES {
        for (known, closed) in [(large(flush).close(), true), (large(flush).leave(), false)] {
            for (path, (used, _)) in &known.segments {
                for way in ["removed", "empty", "zeros", "noise", "two header pages"] {
                    let story = format!("{flush:?}: {} is {way}", path.display());
                    let disk = known.disk.kill();
                    lose(&disk, path, way);
                    let verdict = known.judge(disk, &story);
                    let hit = known.offsets_of(path);
                    assert_isolated(&known, &verdict, &hit, &story);
                    let newest = known.segments.keys().next_back() == Some(path);
                    let told = verdict.named || (newest && !verdict.report.clean);
                    assert!(told, "{story} is not named: {:?}", verdict.report);
                    assert!(*used > 0 && verdict.missing.is_superset(&hit));
                    if closed || !newest {
                        let isolated = verdict.missing.is_subset(&hit);
                        assert!(isolated, "{story}: {:?}", verdict.report);
                    }
                    files += 1;
                }
            }
        }
    }
    tell(&format!("damage: {files} lost segments: all named"));
}

fn lose(disk: &FaultyDisk, path: &Path, way: &str) {
    let len = disk.read(path).len() as u64;
    match way {
        "removed" => disk.remove_raw(path),
        "empty" => disk.truncate_raw(path, 0),
        "zeros" => (0..len.div_ceil(4096)).for_each(|page| disk.zero_page(path, page)),
        "noise" => (0..len.div_ceil(4096)).for_each(|page| disk.destroy_page(path, page)),
        _ => (0..2).for_each(|page| disk.destroy_page(path, page)),
    }
}

#[test]
fn a_log_inside_a_payload_changes_nothing() {
    for flush in POLICIES {
        let mut log = small(flush);
        let paths: Vec<_> =
            log.partition.segments().into_iter().map(|s| (s.path, s.bytes)).collect();
        for (path, used) in &paths {
            let mut image = log.bench.disk.read(path);
            image.truncate(usize::try_from(*used).expect("small"));
            log.append_values(vec![image.clone()]);
            // Batches alone, too, at once behind a batch header.
            log.append_values(vec![image[8192..].to_vec(), image[..8192].to_vec()]);
        }
        log.append(&[33]);
        let known = log.leave();
        let verdict = known.judge(known.disk.kill(), "nothing was done");
        assert!(verdict.missing.is_empty() && verdict.report.damage.is_empty(), "{verdict:?}");
        // With the header of such a batch gone, the search for the next one goes through it.
        for (path, (_, stands)) in &known.segments {
            for stand in stands.iter().filter(|stand| stand.end - stand.start > 400) {
                let story = format!("{flush:?}: {stand:?} of {}", path.display());
                let disk = known.disk.kill();
                disk.write_raw(path, stand.start, &[0xEE; 104]);
                let verdict = known.judge(disk, &story);
                let hit = known.offsets_in(path, stand.start, stand.end);
                assert_isolated(&known, &verdict, &hit, &story);
                assert!(verdict.named, "{story}");
            }
        }
    }
}

/// What a partition answers, side files apart.
fn answers(known: &Known, disk: &FaultyDisk, story: &str) -> String {
    let bench = known.bench.next(disk.kill());
    let partition = bench.open().unwrap_or_else(|error| panic!("{story}: {error}"));
    let verdict = known.look(&partition, story);
    assert!(verdict.missing.is_empty() && verdict.report.damage.is_empty(), "{story}: {verdict:?}");
    let now = bench.clock.now().as_millis();
    let times: Vec<_> = (-40_000..=1_000_i64)
        .step_by(1_000)
        .map(|ago| partition.offset_for_time(Timestamp::from_millis(now + ago)).expect("readable"))
        .collect();
    let (ends, segments) = (partition.ends(), partition.segments());
    let clean = verdict.report.clean;
    format!("{ends:?} {clean} {times:?} {segments:?}")
}

#[test]
fn side_files_may_be_lost_zeroed_or_old() {
    let mut changed = 0;
    for flush in POLICIES {
        let mut log = small(flush);
        log.partition.close().expect("closed");
        let old = log.bench.disk.kill();
        log.kill();
        log.append(&[50]);
        log.roll();
        log.append(&[60, 70]);
        let known = log.close();
        let expected = answers(&known, &known.disk, "nothing was done");
        let side = known.disk.paths().into_iter();
        let side: Vec<_> =
            side.filter(|path| path.extension().is_none_or(|e| e != "log")).collect();
        assert!(side.iter().any(|path| path.ends_with("checkpoint")), "{side:?}");
        assert!(side.iter().any(|path| path.extension().is_some_and(|e| e == "index")), "{side:?}");
        for path in &side {
            let bytes = known.disk.read(path);
            let aged = if old.paths().contains(path) { old.read(path) } else { Vec::new() };
            let other = side.iter().find(|other| *other != path).expect("there are several");
            let versions = [
                ("removed", None),
                ("empty", Some(Vec::new())),
                ("zeros", Some(vec![0; bytes.len()])),
                ("noise", Some(vec![0xA5; bytes.len()])),
                ("half", Some(bytes[..bytes.len() / 2].to_vec())),
                ("old", Some(aged)),
                ("that of another", Some(known.disk.read(other))),
            ];
            for (way, version) in versions {
                let story = format!("{flush:?}: {} is {way}", path.display());
                let disk = known.disk.kill();
                replace(&disk, path, version.as_deref());
                assert_eq!(answers(&known, &disk, &story), expected, "{story}");
                let verdict = known.judge(disk, &story);
                assert!(verdict.missing.is_empty(), "{story}: {verdict:?}");
                changed += 1;
            }
        }
        spare_file_is_no_segment(&known, &expected);
    }
    tell(&format!("damage: {changed} side files lost, zeroed, old: same answers"));
}

fn replace(disk: &FaultyDisk, path: &Path, bytes: Option<&[u8]>) {
    match bytes {
        None => disk.remove_raw(path),
        Some(bytes) => {
            disk.truncate_raw(path, 0);
            disk.write_raw(path, 0, bytes);
        }
    }
}

/// A file that waited to become a segment is nothing, whatever is in it.
fn spare_file_is_no_segment(known: &Known, expected: &str) {
    use log_core::disk::{Disk, FileMode};
    let newest = known.segments.keys().next_back().expect("segments");
    for bytes in [Vec::new(), vec![0; 9_000], known.disk.read(newest)] {
        let disk = known.disk.kill();
        let path = Path::new(DIR).join("spare.tmp");
        disk.open(&path, FileMode::Create).expect("no faults").write_at(&bytes, 0).expect("room");
        assert_eq!(answers(known, &disk, "with a spare file"), expected);
        known.judge(disk, "with a spare file");
    }
}

// Damaged batches were stepped over in silence when a time was looked up: a consumer that began
// there would have missed them without being told.
#[test]
fn a_time_is_not_answered_past_damage_in_silence() {
    let mut asked = 0;
    for closed in [true, false] {
        let mut log = Writing::new(FlushPolicy::Sync);
        let begun = log.bench.clock.now().as_millis();
        for at in 0..12 {
            log.append(&[100 + at]);
            log.bench.clock.advance(Duration::from_secs(1));
            if at == 6 {
                log.roll();
            }
        }
        let known = if closed { log.close() } else { log.leave() };
        let stamps = timestamps(&known);
        for (path, stand) in known.stands() {
            for (start, len) in [(stand.start, 40), (stand.end - 20, 10)] {
                let disk = known.disk.kill();
                disk.write_raw(&path, start, &[0xEE; 40][..len]);
                let partition = known.bench.next(disk).open().expect("opens");
                for time in (begun..begun + 20_000).step_by(500) {
                    let answer = partition.offset_for_time(Timestamp::from_millis(time));
                    let right = (0_u64..).zip(&stamps).find(|(_, stamp)| **stamp >= time);
                    let right = right.map(|(offset, _)| offset);
                    let told = match &answer {
                        Ok(found) if *found == right => true,
                        Err(Error::Corrupt(found)) => found.offsets.contains(stand.first),
                        // It was cut, and the report says so.
                        Ok(None) => right >= Some(partition.ends().end),
                        _ => false,
                    };
                    let story = format!("{closed}, {stand:?} at {start}, since {time}");
                    assert!(told, "{story}: {answer:?}, not {right:?}");
                    asked += 1;
                }
            }
        }
    }
    tell(&format!("damage: {asked} times looked up past damage"));
}

fn timestamps(known: &Known) -> Vec<i64> {
    let partition = known.bench.next(known.disk.kill()).open().expect("opens");
    let found = read_everything(&partition, 10_000).expect("sound");
    found.records.iter().map(|record| record.timestamp).collect()
}

#[test]
fn several_damages_at_once_are_found_and_isolated() {
    let mut random = Random::new(setting("LOG_SEED", 2));
    let trials = setting("LOG_FLIPS", 200) / 2;
    let logs = [
        large(FlushPolicy::Sync).close(),
        large(FlushPolicy::Sync).leave(),
        large(FlushPolicy::Os).close(),
        large(FlushPolicy::Os).leave(),
    ];
    for trial in 0..trials {
        let known = &logs[usize::try_from(trial % 4).expect("small")];
        let (disk, mut hit) = (known.disk.kill(), BTreeSet::new());
        let mut story = format!("trial {trial}:");
        for _ in 0..random.between(2, 5) {
            let at = usize::try_from(random.below(known.segments.len() as u64)).expect("small");
            let (path, (used, _)) = known.segments.iter().nth(at).expect("an index");
            let position = random.below(*used);
            let page = position / 4096;
            if !disk.paths().contains(path) || disk.read(path).len() as u64 <= position {
                continue;
            }
            story += &format!(" {} at {position},", path.display());
            match random.below(10) {
                0 => {
                    lose(&disk, path, random.pick(&["removed", "empty", "zeros", "noise", ""]));
                    hit.extend(known.offsets_of(path));
                }
                1..4 => {
                    disk.destroy_page(path, page);
                    hit.extend(known.offsets_in(path, page * 4096, page * 4096 + 4096));
                    if page < 2 {
                        hit.extend(known.offsets_of(path));
                    }
                }
                _ => {
                    flip(&disk, path, position, 3);
                    hit.extend(known.offsets_in(path, position, position + 1));
                    // Both copies of a header may be hit.
                    if page < 2 {
                        hit.extend(known.offsets_of(path));
                    }
                }
            }
        }
        let verdict = known.judge(disk, &story);
        assert_isolated(known, &verdict, &hit, &story);
    }
    tell(&format!("damage: {trials} logs damaged in several places"));
}

// A table of producers that no walk began with was looked at by nobody: the damage was found only
// when, after more loss, it was needed.
#[test]
fn a_damaged_table_of_producers_is_found_by_check() {
    let known = small(FlushPolicy::Sync).close();
    let newest = known.segments.keys().next_back().expect("segments");
    let disk = known.disk.kill();
    flip(&disk, newest, 8192 + 9, 0);
    let partition = known.bench.next(disk).open().expect("opens");
    let report = partition.check(|_| {}).expect("readable");
    let found = report.corrupt.iter().any(|found| found.path == *newest && found.position == 8192);
    assert!(found, "{report:?}");
}

// What recovery had found missing before the oldest segment is told under that segment's name; if
// that one's header was damaged too, check told of this alone.
#[test]
fn check_tells_of_what_is_missing_before_a_damaged_segment() {
    let mut log = small(FlushPolicy::Sync);
    log.roll();
    log.append(&[10]);
    let known = log.close();
    let disk = known.disk.kill();
    let paths: Vec<_> = known.segments.keys().collect();
    lose(&disk, paths[0], "removed");
    lose(&disk, paths[1], "two header pages");
    let verdict = known.judge(disk, "the first is gone, the second is damaged");
    assert_eq!(verdict.missing.len(), 13, "{verdict:?}");
}
