//! The event log behind TCP.

mod context;
#[doc(hidden)]
pub mod groups;
mod handlers;
