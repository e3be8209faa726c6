//! The event log behind TCP.
