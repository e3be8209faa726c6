//! ServerError: why a server did not start, or did not stop as it should.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What went wrong, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A setting makes no sense.
    #[error("illegal value for {setting}: {why}")]
    IllegalSetting {
        /// The setting's name.
        setting: &'static str,
        /// What is wrong with its value, and what it may be.
        why: String,
    },
    /// The file with the settings can't be used.
    #[error("cannot use the settings in {}: {why}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where in it.
        why: String,
    },
    /// The address can't be listened on.
    #[error("cannot listen on {address}: {source}; is another server running there?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The operating system gave no thread, or nothing to wait for sockets with.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The store could not be opened, or not be closed in order.
    #[error(transparent)]
    Store(#[from] log_core::Error),
    /// Connections were still open at the deadline of a stop; they were cut off. The store was
    /// closed in order.
    #[error(
        "{connections} connections had not ended at the deadline of the stop, and were cut off"
    )]
    StopDeadline {
        /// How many.
        connections: usize,
    },
}
