//! The area open: how long it takes to open a store, after a kill and with many partitions.

use benches::stopwatch::Stopwatch;
use benches::{Outcome, controls, engine};
use log_core::config::FlushPolicy;

use crate::child;
use crate::contest::{CONTROL, Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

const SEGMENTS: u64 = 8;
const SEGMENT_BYTES: u64 = 128 << 20;
const TURN_BYTES: u64 = 64 << 20;
const PARTITION_SEGMENT_BYTES: u64 = 1 << 20;

/// 1 GiB in eight segments, killed while it appended to the last.
pub(crate) fn after_a_kill(scene: &Scene) -> Outcome<Row> {
    let segment_bytes = scene.sized(SEGMENT_BYTES);
    // Killed when the last segment is nearly full: the most that has to be walked.
    let until = segment_bytes * SEGMENTS - segment_bytes / 8;
    let mut contest = Contest::default();
    contest.add(OURS, || {
        let dir = scene.fresh_dir()?;
        child::fill_and_kill(dir.path(), segment_bytes, until)?;
        let stopwatch = Stopwatch::start();
        let log = engine::Log::open(dir.path())?;
        let took = millis(stopwatch);
        drop(log);
        Ok(vec![took])
    });
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        child::fill_and_kill(dir.path(), segment_bytes, until)?;
        let files = engine::Log::segment_files(dir.path())?;
        let last = files.last().ok_or("the child made no segment")?;
        let stopwatch = Stopwatch::start();
        let walked = controls::walk_and_sync(last)?;
        let took = millis(stopwatch);
        // Less would mean that the walk ended early, and was no measure of anything.
        if walked < segment_bytes / 2 || files.len() as u64 != SEGMENTS {
            let found = files.len();
            return Err(format!("{walked} bytes in the last of {found} segments").into());
        }
        Ok(vec![took])
    });
    let measured = contest.run(scene, TURN_BYTES)?;
    let bars = vec![Bar::at_most(1.5, Against::Control)];
    Ok(Row::of(vec![Part::of(&measured, 0, "", "ms", bars)]))
}

/// A thousand partitions, beside two thousand: after a close, and after a kill.
pub(crate) fn a_thousand_partitions(scene: &Scene) -> Outcome<Row> {
    let mut contest = Contest::default();
    for (side, partitions) in [(OURS, 1_000), (CONTROL, 2_000)] {
        let dir = scene.fresh_dir()?;
        let partitions = u32::try_from(scene.sized(partitions))?;
        engine::Log::create(dir.path(), FlushPolicy::Sync, PARTITION_SEGMENT_BYTES, partitions)?
            .close()?;
        contest.add(side, move || {
            child::touch_and_kill(dir.path())?;
            let stopwatch = Stopwatch::start();
            let log = engine::Log::open(dir.path())?;
            let unclean = millis(stopwatch);
            log.close()?;
            let stopwatch = Stopwatch::start();
            let log = engine::Log::open(dir.path())?;
            let clean = millis(stopwatch);
            log.close()?;
            Ok(vec![clean, unclean])
        });
    }
    let measured = contest.run(scene, TURN_BYTES)?;
    // t(2000) <= 2.3 t(1000), as a ratio of ours to the control.
    let linear = Bar::at_least(1.0 / 2.3, Against::Control);
    let clean = vec![Bar::at_most(1_000.0, Against::Nothing), linear];
    Ok(Row::of(vec![
        Part::of(&measured, 0, "clean", "ms", clean),
        Part::of(&measured, 1, "unclean", "ms", vec![linear]),
    ]))
}

fn millis(stopwatch: Stopwatch) -> f64 {
    stopwatch.elapsed().as_secs_f64() * 1e3
}
