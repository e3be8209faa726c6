//! Tests of the group: rules one by one, and a small world of clients, a lossy network, a store that
//! fails, restarts and two processes with one id, in which what must always hold is checked.

mod client;
mod rules;
mod store;
mod world;

use std::time::Duration;

use world::World;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs the world of each seed; a failure names its seed.
fn run(seeds: std::ops::Range<u64>, chaos: world::Chaos) {
    let mut sums = world::Counts::default();
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, chaos);
            world.run_wild(1_500);
            world.settle();
            world.counts
        });
        match outcome {
            Ok(counts) => sums.add(counts),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                panic!("seed {seed} of {chaos:?}: {text}");
            }
        }
    }
    // A world in which nothing happens proves nothing.
    sums.check(chaos);
}

#[test]
fn what_must_hold_holds_in_a_calm_world() {
    run(0..60, world::Chaos { loss: false, restarts: false, failures: false });
}

#[test]
fn what_must_hold_holds_when_messages_are_lost_late_and_repeated() {
    run(1_000..1_060, world::Chaos { loss: true, restarts: false, failures: false });
}

#[test]
fn what_must_hold_holds_over_restarts_and_failing_writes() {
    run(2_000..2_100, world::Chaos { loss: true, restarts: true, failures: true });
}
