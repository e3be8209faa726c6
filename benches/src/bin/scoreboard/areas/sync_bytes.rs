//! The row sync-bytes: how much a durable append of a small record writes to the disk.

use std::path::Path;

use benches::device::Device;
use benches::work::{Payload, in_batches};
use benches::{Outcome, controls, engine, warm};
use log_core::config::FlushPolicy;

use crate::child;
use crate::contest::{CONTROL, Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

const VALUE_BYTES: usize = 100;
const APPENDS: u64 = 1_000;
/// How much was appended before the second case.
const BEFORE_BYTES: u64 = 32 << 20;
const BEFORE_AT_ONCE: usize = 1_000;
const TURN_BYTES: u64 = 64 << 20;

/// Of a fresh log; of one with much in it; of one whose process was killed.
pub(crate) fn bytes_to_disk(scene: &Scene) -> Outcome<Row> {
    let device = Device::under(scene.dir())?;
    let payload = Payload::of_values(VALUE_BYTES);
    let mut contest = Contest::default();
    contest.add(OURS, || {
        Ok(vec![
            of_a_fresh_log(scene, &device, &payload)?,
            of_a_long_log(scene, &device, &payload)?,
            of_a_killed_log(scene, &device, &payload)?,
        ])
    });
    contest.add(CONTROL, || {
        let dir = scene.fresh_dir()?;
        let mut file = controls::BareFile::create(&dir.path().join("log"))?;
        let batch = controls::one_batch(&payload.records()[..1]);
        let appends = scene.sized(APPENDS);
        let append = || (0..appends).try_for_each(|_| file.append(&batch));
        let bytes = bytes_each(scene, &device, appends, append)?;
        Ok(vec![bytes; 3])
    });
    let measured = contest.run(scene, TURN_BYTES)?;
    let part = |index, name| {
        let bars = vec![Bar::at_most(1.5, Against::Control)];
        Part::of(&measured, index, name, "bytes/append", bars)
    };
    let parts = vec![part(0, "fresh"), part(1, "after 32 MiB"), part(2, "after a kill")];
    Ok(Row::of_worst(parts))
}

fn of_a_fresh_log(scene: &Scene, device: &Device, payload: &Payload) -> Outcome<f64> {
    let dir = scene.fresh_dir()?;
    let log = create(dir.path())?;
    appended(scene, device, &log, payload)
}

fn of_a_long_log(scene: &Scene, device: &Device, payload: &Payload) -> Outcome<f64> {
    let dir = scene.fresh_dir()?;
    let log = create(dir.path())?;
    let records = payload.records();
    let count = BEFORE_BYTES / payload.record_bytes() as u64;
    in_batches(&records, count, BEFORE_AT_ONCE, |batch| log.append(0, batch))?;
    appended(scene, device, &log, payload)
}

fn of_a_killed_log(scene: &Scene, device: &Device, payload: &Payload) -> Outcome<f64> {
    let dir = scene.fresh_dir()?;
    child::fill_and_kill(dir.path(), engine::default_segment_bytes(), BEFORE_BYTES)?;
    let log = engine::Log::open(dir.path())?;
    appended(scene, device, &log, payload)
}

fn create(dir: &Path) -> Outcome<engine::Log> {
    engine::Log::create(dir, FlushPolicy::Sync, engine::default_segment_bytes(), 1)
}

fn appended(scene: &Scene, device: &Device, log: &engine::Log, payload: &Payload) -> Outcome<f64> {
    let (records, appends) = (payload.records(), scene.sized(APPENDS));
    let append = || in_batches(&records, appends, 1, |record| log.append(0, record));
    bytes_each(scene, device, appends, append)
}

/// How many bytes the device writes for each of the appends, with nobody's leftovers among them.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn bytes_each(
    scene: &Scene,
    device: &Device,
    appends: u64,
    mut append: impl FnMut() -> Outcome<()>,
) -> Outcome<f64> {
    warm::settle(scene.dir())?;
    let before = device.written_bytes()?;
    append()?;
    Ok((device.written_bytes()? - before) as f64 / appends as f64)
}
