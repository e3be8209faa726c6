//! Threads: the same work on several threads at once.

use std::sync::Barrier;
use std::time::Duration;

use crate::Outcome;
use crate::stopwatch::Stopwatch;

/// Runs `work` on each thread with its number; returns how long it took from when all were ready
/// until the last was done.
///
/// # Errors
/// The first that any of them returns.
///
/// # Panics
/// If one of them does.
pub fn on_threads(count: usize, work: impl Fn(usize) -> Outcome<()> + Sync) -> Outcome<Duration> {
    let ready = Barrier::new(count + 1);
    let (ready, work) = (&ready, &work);
    std::thread::scope(|scope| {
        let threads = (0..count).map(|number| {
            scope.spawn(move || {
                ready.wait();
                work(number)
            })
        });
        let threads = threads.collect::<Vec<_>>();
        ready.wait();
        let stopwatch = Stopwatch::start();
        let outcomes = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        let failed = outcomes.filter_map(Result::err).last();
        let took = stopwatch.elapsed();
        failed.map_or(Ok(took), Err)
    })
}
