//! Contest: several sides do the same work by turns, so that each sees the machine as the others do.

use benches::stats::Figure;
use benches::{Outcome, warm};

use crate::scene::{ROUNDS, Scene};

pub(crate) const OURS: &str = "ours";
pub(crate) const CONTROL: &str = "control";

type Run<'a> = Box<dyn FnMut() -> Outcome<Vec<f64>> + 'a>;

/// The sides, each of which measures the same figures in the same order.
#[derive(Default)]
pub(crate) struct Contest<'a> {
    sides: Vec<(&'static str, Run<'a>)>,
}

/// What each side's rounds measured.
pub(crate) struct Measured {
    sides: Vec<(&'static str, Vec<Vec<f64>>)>,
}

impl<'a> Contest<'a> {
    pub(crate) fn add(&mut self, name: &'static str, run: impl FnMut() -> Outcome<Vec<f64>> + 'a) {
        self.sides.push((name, Box::new(run)));
    }

    /// Runs the rounds. Before each turn, as much memory is touched and freed as it will use.
    pub(crate) fn run(self, scene: &Scene, memory_bytes: u64) -> Outcome<Measured> {
        self.run_rounds(scene, memory_bytes, ROUNDS)
    }

    /// The same with another number of rounds.
    pub(crate) fn run_rounds(
        mut self,
        scene: &Scene,
        memory_bytes: u64,
        rounds: usize,
    ) -> Outcome<Measured> {
        let mut sides = self.sides.iter().map(|(name, _)| (*name, Vec::new())).collect::<Vec<_>>();
        let count = self.sides.len();
        for round in 0..rounds {
            // Another one begins each time.
            for turn in 0..count {
                let which = (round + turn) % count;
                warm::warm(scene.dir(), usize::try_from(memory_bytes)?)?;
                let (name, run) = &mut self.sides[which];
                sides[which].1.push(run().map_err(|error| format!("{name}: {error}"))?);
            }
        }
        Ok(Measured { sides })
    }
}

impl Measured {
    /// One of the figures that a side measured.
    pub(crate) fn figure(&self, side: &str, index: usize) -> Option<Figure> {
        let (_, rounds) = self.sides.iter().find(|(name, _)| *name == side)?;
        let figures = rounds.iter().filter_map(|figures| figures.get(index).copied());
        Figure::of(&figures.collect::<Vec<_>>())
    }

    /// The same of all sides but ours and the control.
    pub(crate) fn peers(&self, index: usize) -> Vec<(&'static str, Figure)> {
        let names = self.sides.iter().map(|(name, _)| *name);
        let peers = names.filter(|name| *name != OURS && *name != CONTROL);
        peers.filter_map(|name| Some((name, self.figure(name, index)?))).collect()
    }
}
