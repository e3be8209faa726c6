//! The client of the event log.
