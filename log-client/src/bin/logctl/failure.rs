//! Failure: why a verb could not do its work, and the exit code that tells it to a script.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use log_core::error::Error;
use log_core::protocol::ErrorCode;

/// `Result` with what ends a verb early.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// How a run ended, as scripts see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Found = 1,
    Usage = 2,
    Missing = 3,
    Locked = 4,
    Disk = 5,
    Refused = 6,
}

/// What ends a verb early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine refused, or failed.
    Engine(Error),
    /// The client failed, or the server refused.
    Client(log_client::Error),
    /// The arguments, or a line of stdin, make no sense; the text says what to do instead.
    Usage(String),
    /// Stdin can't be read.
    Input(io::Error),
    /// Stdout can't be written. If it is a pipe that nobody reads any more, that is no failure.
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

impl From<log_client::Error> for Failure {
    fn from(error: log_client::Error) -> Failure {
        Failure::Client(error)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl Failure {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Engine(error) => exit_for(error),
            Failure::Client(error) => exit_for_client(error),
            Failure::Usage(_) => Exit::Usage,
            Failure::Output(error) if error.kind() == ErrorKind::BrokenPipe => Exit::Done,
            Failure::Input(_) | Failure::Output(_) => Exit::Disk,
        }
    }

    /// Tells a person, on stderr.
    pub(crate) fn tell(&self) -> Exit {
        match self {
            Failure::Output(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Failure::Output(error) => note(&format!("cannot write to stdout: {error}")),
            Failure::Input(error) => note(&format!("cannot read stdin: {error}")),
            Failure::Usage(text) => note(text),
            Failure::Client(error) => {
                note(&error.to_string());
                if let Some(step) = next_step_with_server(error) {
                    note(step);
                }
            }
            Failure::Engine(error) => {
                note(&error.to_string());
                if let Some(step) = next_step(error) {
                    note(step);
                }
            }
        }
        self.exit()
    }
}

/// A line on stderr. That it can't be written is nothing that could be told.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "logctl: {text}");
}

fn exit_for(error: &Error) -> Exit {
    match error {
        Error::Corrupt(_) | Error::CatalogDamaged { .. } | Error::EndUnproven { .. } => Exit::Found,
        Error::IllegalName { .. } | Error::IllegalConfig { .. } => Exit::Usage,
        Error::NoStore { .. }
        | Error::UnknownTopic(_)
        | Error::UnknownPartition { .. }
        | Error::OffsetOutOfRange { .. } => Exit::Missing,
        Error::Locked { .. } => Exit::Locked,
        Error::Io { .. } | Error::DiskFull { .. } | Error::SyncFailed { .. } => Exit::Disk,
        _ => Exit::Refused,
    }
}

/// The same codes as for a directory, so that a script need not know which it talks to.
fn exit_for_client(error: &log_client::Error) -> Exit {
    use ErrorCode as Code;
    use log_client::Error as Client;
    match error {
        Client::InvalidArgument { .. } => Exit::Usage,
        Client::Unreachable { .. } => Exit::Missing,
        Client::TimedOut { .. }
        | Client::OutcomeUnknown { .. }
        | Client::Protocol(_)
        | Client::Closed { .. } => Exit::Disk,
        error => match error.code() {
            Some(Code::Corrupt | Code::EndUnproven) => Exit::Found,
            Some(Code::IllegalName | Code::IllegalConfig) => Exit::Usage,
            Some(
                Code::UnknownTopic
                | Code::StaleTopic
                | Code::UnknownPartition
                | Code::UnknownGroup
                | Code::OffsetOutOfRange,
            ) => Exit::Missing,
            Some(Code::Io | Code::DiskFull | Code::OutcomeUnknown) => Exit::Disk,
            _ => Exit::Refused,
        },
    }
}

fn next_step_with_server(error: &log_client::Error) -> Option<&'static str> {
    if matches!(error, log_client::Error::Unreachable { .. }) {
        return Some(
            "start one with `log-server --data DIR`, say where it is with --server HOST:PORT, or \
             name a directory at rest with --data DIR",
        );
    }
    match error.code()? {
        ErrorCode::UnknownTopic => Some("`logctl topic list` shows the topics that there are"),
        ErrorCode::UnknownPartition => Some("`logctl topic describe` shows the partitions"),
        ErrorCode::TopicExists => Some("`logctl topic alter` changes its settings"),
        ErrorCode::UnknownGroup => Some("`logctl group list` shows the groups that there are"),
        ErrorCode::GroupInUse => Some("stop its members first: `logctl group describe` lists them"),
        ErrorCode::Corrupt => {
            Some("stop the server, then `logctl --data DIR check` lists all that is damaged")
        }
        _ => None,
    }
}

fn next_step(error: &Error) -> Option<&'static str> {
    match error {
        Error::NoStore { .. } => {
            Some("`logctl --data DIR topic create NAME --partitions N` makes a store and a topic")
        }
        Error::UnknownTopic(_) => Some("`logctl topic list` shows the topics that there are"),
        Error::UnknownPartition { .. } => Some("`logctl topic describe` shows the partitions"),
        Error::TopicExists(_) => Some("`logctl topic alter` changes its settings"),
        Error::OffsetOutOfRange { .. } => {
            Some("`start`, `end`, `+n` and `-n` are always in range: see `logctl consume --help`")
        }
        Error::Locked { .. } => Some(
            "stop that process, then try again; `consume`, `segments`, `topic list` and \
             `topic describe` need no lock",
        ),
        Error::Corrupt(_) => Some("`logctl check` lists all that is damaged"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        assert_eq!(Failure::Output(ErrorKind::BrokenPipe.into()).exit(), Exit::Done);
        assert_eq!(Failure::Output(ErrorKind::StorageFull.into()).exit(), Exit::Disk);
    }
}
