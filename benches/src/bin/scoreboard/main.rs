//! Scoreboard: the engine beside what must happen anyway, and beside other people's logs.

mod areas;
mod args;
mod child;
mod contest;
mod report;
mod row;
mod scene;

use std::io::{self, Write};
use std::process::ExitCode;

use benches::{Outcome, peers, servers};
use clap::Parser;

use args::Args;
use scene::Scene;

/// How the process ends when it was asked for something that it can't do.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    if let Some((first, rest)) = words.split_first()
        && first == child::WORD
    {
        return told(child::run(rest));
    }
    let args = Args::parse();
    if args.peers && peers::ALL.is_empty() && areas::need_built_in_peers(&args.areas) {
        let how = "cargo run --release -p benches --features peers --bin scoreboard -- ";
        eprintln!("error: --peers needs the peers built in:\n\n  {how}{}", words.join(" "));
        return ExitCode::from(USAGE);
    }
    told(run(&args))
}

fn run(args: &Args) -> Outcome<()> {
    let scene = Scene::new(args)?;
    if args.peers && areas::chosen(&args.areas).any(areas::Plan::is_of_servers) {
        for server in servers::PEERS.iter().filter(|server| server.installed().is_none()) {
            eprintln!("{server:?} is left out: it is not installed");
        }
    }
    let mut out = io::stdout().lock();
    if !args.json {
        writeln!(out, "{}", report::head())?;
    }
    for plan in areas::chosen(&args.areas) {
        let row = (plan.run)(&scene).map_err(|error| format!("{}: {error}", plan.id))?;
        let shown =
            if args.json { report::json(plan.id, &row) } else { report::lines(plan.id, &row) };
        writeln!(out, "{shown}")?;
        out.flush()?;
    }
    Ok(())
}

fn told(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
