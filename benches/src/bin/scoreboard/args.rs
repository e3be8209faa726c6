//! Args: what was typed.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::areas;

const EXAMPLES: &str = "\
Examples:
  cargo run --release -p benches --bin scoreboard -- append read
  cargo run --release -p benches --bin scoreboard -- all --quick
  cargo run --release -p benches --bin scoreboard -- sync-16 --json
  cargo run --release -p benches --features peers --bin scoreboard -- append --peers
  cargo run --release -p benches --bin scoreboard -- server latency --peers

Every row runs three rounds (those of servers up to nine), the sides by turns, and shows the median
(lowest-highest). The ratio is that of the medians, ours to the control's.";

/// Runs the engine beside a control (the least that must happen, with no engine around it) and,
/// with --peers, beside other people's logs, on the same work in the same process run.
#[derive(Debug, Parser)]
#[command(name = "scoreboard", after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to run: an area (append, read, sync, open, server, latency), all, or single rows by their id.
    #[arg(required = true, value_name = "AREA", value_parser = PossibleValuesParser::new(areas::names()))]
    pub(crate) areas: Vec<String>,
    /// A tenth of the records: for a look, not for a record.
    #[arg(long)]
    pub(crate) quick: bool,
    /// One JSON object a line, for programs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run others too: beside the engine commitlog, raft-engine and redb, which need the feature
    /// `peers`; beside the server those of redis-server and nats-server that are installed.
    #[arg(long)]
    pub(crate) peers: bool,
    /// Where the files go for the time of the run. [default: ./target]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
