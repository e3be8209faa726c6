//! Metrics: what a server has counted since it started.

use std::sync::atomic::{AtomicU64, Ordering};

use log_core::metrics::Counter;
use log_core::protocol::metrics::MetricV1;
use log_core::protocol::{ErrorCode, RequestKind};

/// Room for every number of a request's kind, and of an error code.
const NUMBERS: usize = 64;

/// Why a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The peer has closed it.
    PeerClosed,
    /// Reading or writing failed.
    Broken,
    /// No hello came in time.
    HelloTimeout,
    /// A frame did not go on.
    FrameTimeout,
    /// Nothing was asked for a long time.
    Idle,
    /// The peer did not take what was sent.
    SlowReader,
    /// A frame was too long, or no frame at all.
    Framing,
    /// The server stops.
    Stopped,
    /// A bug of ours.
    Panicked,
}

impl Ending {
    const ALL: [(Ending, &str); 9] = [
        (Ending::PeerClosed, "peer_closed"),
        (Ending::Broken, "broken"),
        (Ending::HelloTimeout, "hello_timeout"),
        (Ending::FrameTimeout, "frame_timeout"),
        (Ending::Idle, "idle"),
        (Ending::SlowReader, "slow_reader"),
        (Ending::Framing, "framing"),
        (Ending::Stopped, "stopped"),
        (Ending::Panicked, "panicked"),
    ];

    /// Its name in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        let mut all = Ending::ALL.into_iter();
        all.find(|(ending, _)| *ending == self).map_or("unknown", |(_, name)| name)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    /// Adds to it; returns what it is then.
    pub(crate) fn add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Ordering::AcqRel) + amount
    }

    /// Takes away what was added before; returns what it is then.
    pub(crate) fn sub(&self, amount: u64) -> u64 {
        self.0.fetch_sub(amount, Ordering::AcqRel) - amount
    }

    /// What it is.
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// What is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) connections: Gauge,
    pub(crate) connections_accepted: Counter,
    pub(crate) connections_refused: Counter,
    ended: [Counter; Ending::ALL.len()],
    requests: [Counter; NUMBERS],
    requests_unknown: Counter,
    refusals: [Counter; NUMBERS],
    pub(crate) produced_batches: Counter,
    pub(crate) produced_records: Counter,
    pub(crate) produced_bytes: Counter,
    pub(crate) produced_duplicates: Counter,
    /// Batches that could not be appended where they were read, and went to a thread of their own.
    pub(crate) produced_late: Counter,
    /// Bytes of such batches that wait.
    pub(crate) produce_waiting_bytes: Gauge,
    pub(crate) fetched_bytes: Counter,
    pub(crate) fetches_cold: Counter,
    pub(crate) fetches_parked: Gauge,
    /// Bytes that sockets did not take yet.
    pub(crate) outgoing_bytes: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics {
            connections: Gauge::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            ended: std::array::from_fn(|_| Counter::default()),
            requests: std::array::from_fn(|_| Counter::default()),
            requests_unknown: Counter::default(),
            refusals: std::array::from_fn(|_| Counter::default()),
            produced_batches: Counter::default(),
            produced_records: Counter::default(),
            produced_bytes: Counter::default(),
            produced_duplicates: Counter::default(),
            produced_late: Counter::default(),
            produce_waiting_bytes: Gauge::default(),
            fetched_bytes: Counter::default(),
            fetches_cold: Counter::default(),
            fetches_parked: Gauge::default(),
            outgoing_bytes: Gauge::default(),
        }
    }

    /// Counts a request of this kind, known or not.
    pub(crate) fn request(&self, kind: Option<RequestKind>) {
        let counter = kind.and_then(|kind| self.requests.get(usize::from(kind.number())));
        counter.unwrap_or(&self.requests_unknown).add(1);
    }

    /// Counts a refusal with this code.
    pub(crate) fn refusal(&self, code: u16) {
        if let Some(counter) = self.refusals.get(usize::from(code)) {
            counter.add(1);
        }
    }

    /// Counts the end of a connection.
    pub(crate) fn ended(&self, ending: Ending) {
        let counted = Ending::ALL.iter().zip(&self.ended);
        counted.filter(|((other, _), _)| *other == ending).for_each(|(_, counter)| counter.add(1));
    }

    /// All numbers, with those of the engine, sorted by name.
    pub(crate) fn report(&self, engine: &log_core::metrics::Metrics) -> Vec<MetricV1> {
        let mut all: Vec<(String, u64)> = [
            ("connections_open", self.connections.value()),
            ("connections_accepted", self.connections_accepted.value()),
            ("connections_refused", self.connections_refused.value()),
            ("requests_unknown", self.requests_unknown.value()),
            ("produced_batches", self.produced_batches.value()),
            ("produced_records", self.produced_records.value()),
            ("produced_bytes", self.produced_bytes.value()),
            ("produced_duplicates", self.produced_duplicates.value()),
            ("produced_late", self.produced_late.value()),
            ("produce_waiting_bytes", self.produce_waiting_bytes.value()),
            ("fetched_bytes", self.fetched_bytes.value()),
            ("fetches_cold", self.fetches_cold.value()),
            ("fetches_parked", self.fetches_parked.value()),
            ("outgoing_bytes", self.outgoing_bytes.value()),
            ("engine_syncs", engine.syncs.value()),
            ("engine_segments_rolled", engine.segments_rolled.value()),
            ("engine_segments_removed", engine.segments_removed.value()),
            ("engine_corrupt_reads", engine.corrupt_reads.value()),
            ("engine_maintenance_failures", engine.maintenance_failures.value()),
            ("engine_maps_made", engine.maps_made.value()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for ((_, name), counter) in Ending::ALL.iter().zip(&self.ended) {
            all.push((format!("connections_ended_{name}"), counter.value()));
        }
        for kind in RequestKind::ALL {
            let counter = &self.requests[usize::from(kind.number())];
            all.push((format!("requests_{}", snake_case(&format!("{kind:?}"))), counter.value()));
        }
        for code in ErrorCode::ALL.into_iter().filter(|code| *code != ErrorCode::Ok) {
            let counter = &self.refusals[usize::from(code.number())];
            all.push((format!("refusals_{}", snake_case(&format!("{code:?}"))), counter.value()));
        }
        all.sort();
        all.into_iter().map(|(name, value)| MetricV1 { name, value }).collect()
    }
}

fn snake_case(camel: &str) -> String {
    let mut snake = String::new();
    for letter in camel.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_counter_and_a_name() {
        let metrics = Metrics::new();
        for kind in RequestKind::ALL {
            metrics.request(Some(kind));
        }
        for code in ErrorCode::ALL {
            metrics.refusal(code.number());
        }
        metrics.request(None);
        metrics.ended(Ending::SlowReader);
        let report = metrics.report(&log_core::metrics::Metrics::default());
        let counted = |prefix: &str| {
            let ours = report.iter().filter(|metric| metric.name.starts_with(prefix));
            ours.map(|metric| metric.value).sum::<u64>()
        };
        assert_eq!(counted("requests_"), RequestKind::ALL.len() as u64 + 1);
        assert_eq!(counted("refusals_"), ErrorCode::ALL.len() as u64 - 1);
        assert_eq!(counted("connections_ended_slow_reader"), 1);
        assert!(report.is_sorted_by(|one, next| one.name < next.name));
        assert!(report.iter().any(|metric| metric.name == "refusals_end_conflict"));
    }
}
