//! The row server-memory: what the server's process keeps for itself.

use benches::Outcome;
use benches::servers::{Acks, Server};

use super::server::{COUNT, MESSAGE_BYTES, Work, entrants};
use crate::contest::{Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

/// Resident memory that is not of files: idle, after a part of the records that peers take too,
/// and, for ours alone, after all of them.
pub(crate) fn private(scene: &Scene) -> Outcome<Row> {
    let all = Work::of(MESSAGE_BYTES, scene.sized(COUNT));
    let part = Work::of(MESSAGE_BYTES, scene.sized(COUNT / 10));
    let mut contest = Contest::default();
    for (name, entry) in entrants(scene, Acks::Written) {
        let (all, part) = (&all, &part);
        contest.add(name, move || {
            let dir = scene.fresh_dir()?;
            let mut server = entry.start(dir.path(), Acks::Written)?;
            let idle = mebibytes(&*server)?;
            part.produce_whole(&mut *server)?;
            let mut figures = vec![idle, mebibytes(&*server)?];
            if name == OURS {
                all.produce_whole(&mut *server)?;
                figures.push(mebibytes(&*server)?);
            }
            Ok(figures)
        });
    }
    let measured = contest.run(scene, all.memory_bytes())?;
    let bar = |most| vec![Bar::at_most(most, Against::Nothing)];
    Ok(Row::of(vec![
        Part::of(&measured, 0, "idle", "MiB", bar(16.0)),
        Part::of(&measured, 1, "after a tenth", "MiB", Vec::new()),
        Part::of(&measured, 2, "after all", "MiB", bar(48.0)),
    ]))
}

#[expect(clippy::cast_precision_loss, reason = "it is far below 2^52")]
fn mebibytes(server: &dyn Server) -> Outcome<f64> {
    Ok(server.process().private_bytes()? as f64 / f64::from(1 << 20))
}
