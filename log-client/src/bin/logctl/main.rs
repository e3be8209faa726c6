//! logctl: the command line of the event log, on a server or on a data directory at rest.

mod args;
mod bench;
mod catalog;
mod check;
mod completions;
mod consume;
mod directory;
mod failure;
mod follow;
mod format;
mod group;
mod output;
mod produce;
mod progress;
mod range;
mod remote;
mod repair;
mod segments;
mod send;
mod settings;
mod shown;
mod status;
mod survey;
mod target;
mod time;
mod topic;
mod units;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command};
use self::failure::{Exit, Result};
use self::output::Output;
use self::target::Target;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut output = Output::new(args.json);
    let outcome = run(args, &mut output).and_then(|exit| output.flush().map(|()| exit));
    outcome.unwrap_or_else(|failure| failure.tell()).into()
}

fn run(args: Args, output: &mut Output) -> Result<Exit> {
    if let Command::Completions(completions) = &args.command {
        return completions::run(completions, output);
    }
    let target = Target::new(args.data, args.server)?;
    match args.command {
        Command::Topic(topic) => topic::run(topic, &target, output),
        Command::Produce(produce) => match &target {
            Target::Directory(directory) => produce::run(&produce, directory, output),
            Target::Server(server) => send::run(&produce, server, output),
        },
        Command::Consume(consume) => match &target {
            Target::Directory(directory) => consume::run(&consume, directory, output),
            Target::Server(server) => follow::run(&consume, server, output),
        },
        Command::Group(group) => group::run(group, &target, output),
        Command::Status => status::run(target.server("status")?, output),
        Command::Bench(bench) => bench::run(&bench, target.server("bench")?, output),
        Command::Check(check) => check::run(&check, target.at_rest("check")?, output),
        Command::Repair(repair) => repair::run(&repair, target.at_rest("repair")?, output),
        Command::Segments(segments) => {
            segments::run(&segments, target.at_rest("segments")?, output)
        }
        Command::Completions(_) => unreachable!("done above"),
    }
}
