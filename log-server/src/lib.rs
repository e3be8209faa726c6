//! The event log behind TCP: a store, served to clients.
//!
//! The binary `log-server` runs one. A program can have one in its own process:
//!
//! ```
//! use log_server::{Server, ServerConfig};
//! use std::time::Duration;
//!
//! # let dir = tempfile::tempdir()?;
//! # let data = dir.path();
//! let server = Server::bind(ServerConfig::local(data))?;
//! println!("listening on {}", server.address());
//! // The store is there for use in the same process, too.
//! assert!(server.store().topics().is_empty());
//! server.stop(Duration::from_secs(10))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it speaks is `log_core::protocol`. Each I/O thread serves its connections alone: a produce
//! is appended where it was read, and a fetch that waits for it is answered on the same thread.
//! What can block runs elsewhere.

mod config;
mod connection;
mod context;
mod engine;
mod error;
#[doc(hidden)]
pub mod groups;
mod handlers;
mod listener;
mod logging;
mod metrics;
mod outbox;
mod partitions;
mod server;
mod session;
mod shutdown;
mod tail;

pub use config::{Launch, LogFormat, ServerConfig};
pub use error::ServerError;
pub use groups::GroupLimits;
pub use logging::start_logging;
pub use server::Server;
