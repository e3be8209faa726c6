//! Areas: what can be run, by area and by row.

mod append;
mod memory;
mod open;
mod read;
mod sync;
mod sync_bytes;

use std::collections::BTreeSet;

use benches::Outcome;

use crate::row::Row;
use crate::scene::Scene;

const ALL: &str = "all";

/// A row, and how it is measured.
pub(crate) struct Plan {
    pub(crate) id: &'static str,
    area: &'static str,
    pub(crate) run: fn(&Scene) -> Outcome<Row>,
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
