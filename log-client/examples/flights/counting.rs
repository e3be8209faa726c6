//! Counting: what consumers have seen of each aircraft, and whether that was in order.

use std::collections::HashMap;

use log_client::ConsumerRecord;

use crate::Result;
use crate::events::{Flight, number_of};

/// What all consumers together have seen.
#[derive(Default)]
pub(crate) struct Count {
    /// Of each aircraft, the number of the flight that comes next.
    next: HashMap<Vec<u8>, u64>,
    /// Flights seen, each once.
    pub(crate) seen: u64,
    /// Flights seen again.
    pub(crate) repeated: u64,
    /// Flights that came before one that should have come first.
    pub(crate) early: u64,
}

impl Count {
    /// Counts a flight.
    pub(crate) fn add(&mut self, record: &ConsumerRecord) -> Result<()> {
        let aircraft = record.key.as_deref().ok_or("a flight without an aircraft")?;
        let number = number_of(record.value.as_deref().unwrap_or_default())?;
        let next = self.next.entry(aircraft.to_vec()).or_default();
        if number < *next {
            self.repeated += 1;
        } else {
            self.early += u64::from(number > *next);
            self.seen += 1;
            *next = number + 1;
        }
        Ok(())
    }

    /// Whether the flights that were seen are those of the file: as many of each aircraft.
    pub(crate) fn is_all_of(&self, flights: &[Flight]) -> bool {
        let mut expected: HashMap<Vec<u8>, u64> = HashMap::new();
        for flight in flights {
            *expected.entry(flight.aircraft.as_bytes().to_vec()).or_default() += 1;
        }
        self.next == expected
    }
}
