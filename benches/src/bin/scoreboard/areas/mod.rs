//! Areas: what can be run, by area and by row.

mod append;
mod latency;
mod memory;
mod open;
mod read;
mod server;
mod server_memory;
mod server_restart;
mod sync;
mod sync_bytes;

use std::collections::BTreeSet;

use benches::Outcome;

use crate::row::Row;
use crate::scene::Scene;

const ALL: &str = "all";
const SERVER: &str = "server";
const LATENCY: &str = "latency";

/// A row, and how it is measured.
pub(crate) struct Plan {
    pub(crate) id: &'static str,
    area: &'static str,
    pub(crate) run: fn(&Scene) -> Outcome<Row>,
}

impl Plan {
    /// Whether it is about servers: their peers are programs, not crates.
    pub(crate) fn is_of_servers(&self) -> bool {
        self.area == SERVER || self.area == LATENCY
    }
}

const PLANS: &[Plan] = &[
    Plan { id: "append-1", area: "append", run: append::one_by_one },
    Plan { id: "append-100", area: "append", run: append::hundreds },
    Plan { id: "append-100-1k", area: "append", run: append::hundreds_of_a_kibibyte },
    Plan { id: "append-tail", area: "append", run: append::tail },
    Plan { id: "read-scan", area: "read", run: read::scan },
    Plan { id: "read-random", area: "read", run: read::random },
    Plan { id: "sync-1", area: "sync", run: sync::one_thread },
    Plan { id: "sync-16", area: "sync", run: sync::sixteen_threads },
    Plan { id: "sync-64", area: "sync", run: sync::sixty_four_threads },
    Plan { id: "sync-many", area: "sync", run: sync::sixteen_partitions },
    Plan { id: "sync-bytes", area: "sync", run: sync_bytes::bytes_to_disk },
    Plan { id: "open-kill", area: "open", run: open::after_a_kill },
    Plan { id: "open-1000", area: "open", run: open::a_thousand_partitions },
    Plan { id: "memory", area: "open", run: memory::private },
    Plan { id: "produce", area: SERVER, run: server::produce },
    Plan { id: "produce-1k", area: SERVER, run: server::produce_a_kibibyte },
    Plan { id: "produce-synced", area: SERVER, run: server::produce_synced },
    Plan { id: "consume", area: SERVER, run: server::consume },
    Plan { id: "conns-16", area: SERVER, run: server::sixteen_connections },
    Plan { id: "conns-16-synced", area: SERVER, run: server::sixteen_connections_synced },
    Plan { id: "server-cpu", area: SERVER, run: server::cpu_time },
    Plan { id: "server-memory", area: SERVER, run: server_memory::private },
    Plan { id: "restart", area: SERVER, run: server_restart::to_first_fetch },
    Plan { id: "consume-restarted", area: SERVER, run: server_restart::consume },
    Plan { id: "e2e-1k", area: LATENCY, run: latency::a_thousand_a_second },
    Plan { id: "e2e-20k", area: LATENCY, run: latency::twenty_thousand_a_second },
];

/// Everything that can be asked for.
pub(crate) fn names() -> Vec<&'static str> {
    let mut areas = Vec::new();
    for plan in PLANS {
        if !areas.contains(&plan.area) {
            areas.push(plan.area);
        }
    }
    let ids = PLANS.iter().map(|plan| plan.id);
    areas.into_iter().chain([ALL]).chain(ids).collect()
}

/// The rows that were asked for, in the order of the list, each once.
pub(crate) fn chosen(asked: &[String]) -> impl Iterator<Item = &'static Plan> {
    let asked = asked.iter().cloned().collect::<BTreeSet<_>>();
    let is_asked = move |name: &str| asked.contains(name);
    PLANS.iter().filter(move |plan| is_asked(ALL) || is_asked(plan.area) || is_asked(plan.id))
}

/// Whether any of it has peers that must have been built in.
pub(crate) fn need_built_in_peers(asked: &[String]) -> bool {
    chosen(asked).any(|plan| !plan.is_of_servers())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(asked: &[&str]) -> Vec<&'static str> {
        let asked = asked.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        chosen(&asked).map(|plan| plan.id).collect()
    }

    #[test]
    fn rows_are_chosen_by_area_and_by_id_each_once() {
        assert_eq!(ids(&["read"]), ["read-scan", "read-random"]);
        assert_eq!(ids(&["sync-1", "read", "read-scan"]), ["read-scan", "read-random", "sync-1"]);
        assert_eq!(ids(&["all"]).len(), PLANS.len());
    }
}
