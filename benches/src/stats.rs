//! Figures: the median of a few rounds with its spread, and percentiles of many calls.

use std::time::Duration;

use crate::Outcome;

/// A measured figure: the median of its rounds, and the lowest and highest of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// The middle round.
    pub median: f64,
    /// The lowest round.
    pub low: f64,
    /// The highest round.
    pub high: f64,
}

impl Figure {
    /// The figure of these rounds; none without rounds.
    #[must_use]
    pub fn of(rounds: &[f64]) -> Option<Figure> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Figure { median: f64::midpoint(sorted[lower], sorted[upper]), low, high })
    }
}

/// How long each of many calls took.
#[derive(Debug)]
pub struct Latencies {
    nanos: Vec<u32>,
}

impl Latencies {
    /// Room for `calls` of them. Its memory is touched here, so that noting one faults nothing.
    #[must_use]
    pub fn with_room(calls: usize) -> Latencies {
        let mut nanos = vec![u32::MAX; calls];
        nanos.clear();
        Latencies { nanos }
    }

    /// Notes one; past four seconds they are all the same.
    #[inline]
    pub fn note(&mut self, took: Duration) {
        self.nanos.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
    }

    /// What the middle and the hundredth slowest took.
    ///
    /// # Errors
    /// If none was noted.
    pub fn percentiles(mut self) -> Outcome<Percentiles> {
        self.nanos.sort_unstable();
        let last = self.nanos.len().checked_sub(1).ok_or("no call was noted")?;
        let micros = |at: usize| f64::from(self.nanos[at]) / 1e3;
        Ok(Percentiles { p50_micros: micros(last / 2), p99_micros: micros(last - last / 100) })
    }

    /// What the tail looks like.
    ///
    /// # Panics
    /// If none was noted.
    #[must_use]
    pub fn tail(mut self) -> Tail {
        assert!(!self.nanos.is_empty(), "there is no tail of nothing");
        self.nanos.sort_unstable();
        let last = self.nanos.len() - 1;
        let at = last - last / 10_000;
        let over = self.nanos.len() - self.nanos.partition_point(|&nanos| nanos <= 1_000_000);
        let micros = |nanos: u32| f64::from(nanos) / 1e3;
        Tail {
            p9999_micros: micros(self.nanos[at]),
            max_micros: micros(self.nanos[last]),
            calls_over_1_ms: over,
            calls: self.nanos.len(),
        }
    }
}

/// What most calls stayed below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    /// Half of the calls took no longer.
    pub p50_micros: f64,
    /// All but one of a hundred took no longer.
    pub p99_micros: f64,
}

/// The slowest of many calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    /// One call of ten thousand took longer than this.
    pub p9999_micros: f64,
    /// The slowest call.
    pub max_micros: f64,
    /// How many took over a millisecond.
    pub calls_over_1_ms: usize,
    /// How many calls there were.
    pub calls: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let of = |rounds: &[f64]| Figure::of(rounds).map(|figure| figure.median);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(Figure::of(&[7.0]), Some(Figure { median: 7.0, low: 7.0, high: 7.0 }));
    }

    #[test]
    fn percentiles_are_of_all_calls() {
        let mut latencies = Latencies::with_room(101);
        for micros in (0..=100).rev() {
            latencies.note(Duration::from_micros(micros));
        }
        let percentiles = latencies.percentiles().unwrap();
        assert_eq!((percentiles.p50_micros, percentiles.p99_micros), (50.0, 99.0));
        assert!(Latencies::with_room(1).percentiles().is_err());
    }

    #[test]
    fn a_tail_counts_what_is_slow() {
        let mut latencies = Latencies::with_room(20_000);
        for _ in 0..19_997 {
            latencies.note(Duration::from_nanos(100));
        }
        latencies.note(Duration::from_micros(7));
        latencies.note(Duration::from_micros(900));
        latencies.note(Duration::from_millis(2));
        let tail = latencies.tail();
        assert_eq!((tail.p9999_micros, tail.max_micros), (900.0, 2_000.0));
        assert_eq!((tail.calls_over_1_ms, tail.calls), (1, 20_000));
    }
}
