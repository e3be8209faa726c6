//! The row memory: what a process that appends and reads much keeps for itself.

use benches::Outcome;

use crate::child;
use crate::contest::{Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

const LOG_BYTES: u64 = 1 << 30;

/// The most resident memory that is not of files, while a gibibyte is appended and then read.
pub(crate) fn private(scene: &Scene) -> Outcome<Row> {
    let log_bytes = scene.sized(LOG_BYTES);
    let mut contest = Contest::default();
    contest.add(OURS, || {
        let dir = scene.fresh_dir()?;
        Ok(vec![child::private_mebibytes(dir.path(), log_bytes)?])
    });
    let measured = contest.run(scene, log_bytes)?;
    let bars = vec![Bar::at_most(32.0, Against::Nothing)];
    Ok(Row::of(vec![Part::of(&measured, 0, "", "MiB", bars)]))
}
