//! The rows of a restart: how soon the server answers, and how fast it then reads.

use benches::Outcome;
use benches::servers::{self, Acks, Stop};
use benches::stopwatch::per_second;

use super::server::{COUNT, MESSAGE_BYTES, Work, entrants};
use crate::contest::{Contest, OURS};
use crate::row::{Against, Bar, Part, Row};
use crate::scene::Scene;

/// After SIGKILL, with all records in place (peers: their share), until the first is fetched.
pub(crate) fn to_first_fetch(scene: &Scene) -> Outcome<Row> {
    let work = Work::of(MESSAGE_BYTES, scene.sized(COUNT));
    let mut contest = Contest::default();
    for (name, entry) in entrants(scene, Acks::Written) {
        let work = &work;
        contest.add(name, move || {
            let dir = scene.fresh_dir()?;
            let mut server = entry.start(dir.path(), Acks::Written)?;
            work.produce_to(entry, &mut *server)?;
            Ok(vec![server.restart(Stop::Kill)?.as_secs_f64() * 1e3])
        });
    }
    let measured = contest.run(scene, work.memory_bytes())?;
    let bars = vec![Bar::at_most(60.0, Against::Nothing)];
    Ok(Row::of(vec![Part::of(&measured, 0, "", "ms", bars)]))
}

/// Everything from the start: before a restart, after a clean one, and after SIGKILL.
pub(crate) fn consume(scene: &Scene) -> Outcome<Row> {
    let work = Work::of(MESSAGE_BYTES, scene.sized(COUNT));
    let mut contest = Contest::default();
    let ours = &work;
    contest.add(OURS, move || {
        let (work, entry, dir) = (ours, &servers::OURS, scene.fresh_dir()?);
        let mut server = entry.start(dir.path(), Acks::Written)?;
        work.produce_to(entry, &mut *server)?;
        let count = work.count_of(entry);
        let mut figures = vec![per_second(count, server.consume(count)?)];
        for stop in [Stop::Cleanly, Stop::Kill] {
            server.restart(stop)?;
            figures.push(per_second(count, server.consume(count)?));
        }
        Ok(figures)
    });
    let measured = contest.run(scene, work.memory_bytes())?;
    let part = |index, name| Part {
        // Its control is itself, before.
        control: measured.figure(OURS, 0),
        ..Part::of(&measured, index, name, "records/s", vec![Bar::at_least(0.9, Against::Control)])
    };
    Ok(Row::of(vec![part(1, "clean"), part(2, "killed")]))
}
