//! `completions`: what a shell needs to complete the command.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::{Exit, Result};
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  logctl completions bash > ~/.local/share/bash-completion/completions/logctl
  logctl completions zsh  > ~/.zfunc/_logctl
  logctl completions fish > ~/.config/fish/completions/logctl.fish";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, output: &mut Output) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::Args::command(), "logctl", &mut script);
    output.bytes(&script)?;
    Ok(Exit::Done)
}
