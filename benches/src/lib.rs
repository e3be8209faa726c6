//! What the benches and the scoreboard share: the work, the controls, the peers, and the engine's side.

pub mod controls;
pub mod device;
pub mod engine;
pub mod peers;
pub mod process;
pub mod raw_map;
pub mod servers;
pub mod stats;
pub mod stopwatch;
pub mod threads;
pub mod warm;
pub mod wire;
pub mod work;

/// What any of it may fail with; it ends the run and is shown to a person.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A measurement, or why there is none.
pub type Outcome<T> = Result<T, Failure>;
