//! Controls: the least that must happen, without an engine; what the engine's figures are held against.

mod append;
mod open;
mod read;
mod sync;

pub use append::{BareLog, append, append_noting};
pub use open::walk_and_sync;
pub use read::{Walked, read_one, scan, walk};
pub use sync::{BareFile, BareFiles, one_batch};
