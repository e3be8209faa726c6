//! logctl: the command line of the event log, on a data directory at rest.

mod args;
mod catalog;
mod check;
mod consume;
mod directory;
mod failure;
mod format;
mod output;
mod produce;
mod progress;
mod range;
mod repair;
mod segments;
mod settings;
mod survey;
mod time;
mod topic;
mod units;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command};
use self::directory::Directory;
use self::failure::{Exit, Result};
use self::output::Output;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut output = Output::new(args.json);
    let outcome = run(args, &mut output).and_then(|exit| output.flush().map(|()| exit));
    outcome.unwrap_or_else(|failure| failure.tell()).into()
}

fn run(args: Args, output: &mut Output) -> Result<Exit> {
    let directory = Directory::new(args.data)?;
    match args.command {
        Command::Topic(topic) => topic::run(topic, &directory, output),
        Command::Produce(produce) => produce::run(&produce, &directory, output),
        Command::Consume(consume) => consume::run(&consume, &directory, output),
        Command::Check(check) => check::run(&check, &directory, output),
        Command::Repair(repair) => repair::run(&repair, &directory, output),
        Command::Segments(segments) => segments::run(&segments, &directory, output),
    }
}
