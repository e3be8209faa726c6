//! Args: what can be typed after `logctl`; the arguments of a verb stand in the verb's own file.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::check::CheckArgs;
use crate::completions::CompletionsArgs;
use crate::consume::ConsumeArgs;
use crate::group::GroupArgs;
use crate::produce::ProduceArgs;
use crate::repair::RepairArgs;
use crate::segments::SegmentsArgs;
use crate::topic::TopicArgs;

const AFTER_HELP: &str = "\
Examples:
  logctl topic create orders --partitions 8
  echo 'o-17,paid' | logctl produce orders --key-separator ,
  logctl consume orders -o -10 --exit
  logctl group describe billing
  logctl --server db7:9190 status

The same on a directory that no server has open:
  logctl --data ./data topic create orders --partitions 8
  logctl --data ./data consume orders -o @2013-01-01:2013-01-02 --json
  logctl --data ./data check

Exit codes:
  0  done
  1  damage was found, there is something to repair, or `consume --key` matched nothing
  2  the arguments, or the lines of stdin, make no sense
  3  what was named is not there: store, topic, partition, offset, group; or no server answers
  4  another process has the store open
  5  the disk failed: I/O error, disk full, a sync that failed
  6  refused: the topic exists already, a limit, a newer format

Results go to stdout; notes, progress and errors go to stderr.";

/// The command line of the event log.
#[derive(Debug, Parser)]
#[command(name = "logctl", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// The server to talk to; without it, and without --data, the one on this machine's port 9190
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT",
        env = "LOG_SERVER",
        hide_env_values = true
    )]
    pub(crate) server: Option<String>,

    /// The data directory to work on, at rest: no server has it open
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Print JSON, an object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make, list, describe, change and delete topics
    Topic(TopicArgs),
    /// Append the lines of stdin to a topic
    Produce(ProduceArgs),
    /// Print the records of a topic
    #[command(visible_alias = "replay")]
    Consume(ConsumeArgs),
    /// List, describe, reset and delete consumer groups
    Group(GroupArgs),
    /// Say how a server is, and what it has counted
    Status,
    /// Measure a server: produce, consume, end to end
    Bench(BenchArgs),
    /// Read every byte of a directory and say what is damaged
    Check(CheckArgs),
    /// Say, or do, what is left to decide after damage
    Repair(RepairArgs),
    /// Say what is in each file of a topic
    Segments(SegmentsArgs),
    /// Print what a shell needs to complete this command
    Completions(CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Args::command().debug_assert();
    }
}
