//! The program that is killed: started, listened to, killed, waited for.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::{now, pause};

/// What was acknowledged: batches of records with numbers that follow on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) partition: u32,
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) number: u64,
    /// When, in `shared_nanos`.
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// What the process said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Open { partition: u32, log_start: u64, durable_end: u64, end: u64 },
    Ack(Ack),
    Fail { partition: u32, variant: String, text: String },
    Trim { partition: u32, to: u64 },
    Trimmed { partition: u32, to: u64 },
    Record { partition: u32, offset: u64, number: u64 },
    Closed,
}

impl Line {
    fn failure(&self) -> Option<(&str, &str)> {
        match self {
            Line::Fail { variant, text, .. } => Some((variant, text)),
            _ => None,
        }
    }
}

/// A running victim.
pub(crate) struct Victim {
    child: Child,
    lines: Receiver<Line>,
    stderr: File,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What it said since it was last asked.
    pub(crate) said: Vec<Line>,
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
}

impl Victim {
    /// Starts it.
    pub(crate) fn start(verb: &str, dir: &Path, settings: &[impl AsRef<OsStr>]) -> Victim {
        Victim::start_as(Command::new(env!("CARGO_BIN_EXE_victim")), verb, dir, settings)
    }

    /// Starts it under strace, which meddles with system calls as these arguments say.
    pub(crate) fn start_traced(
        strace: &[&str],
        verb: &str,
        dir: &Path,
        settings: &[impl AsRef<OsStr>],
    ) -> Victim {
        let mut command = Command::new("strace");
        // The last `-o` counts.
        command.args(["-f", "-qq", "-o", "/dev/null"]).args(strace);
        command.arg(env!("CARGO_BIN_EXE_victim"));
        Victim::start_as(command, verb, dir, settings)
    }

    fn start_as(
        mut command: Command,
        verb: &str,
        dir: &Path,
        settings: &[impl AsRef<OsStr>],
    ) -> Victim {
        let stderr = tempfile::tempfile().expect("a place for what it says on stderr");
        command.arg(verb).arg(format!("dir={}", dir.display())).args(settings);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(stderr.try_clone().expect("another handle"));
        let mut child = command.spawn().expect("the victim starts");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                // A line that a kill has cut short was not said.
                if let Some(line) = parse(&text)
                    && sender.send(line).is_err()
                {
                    return;
                }
            }
        });
        Victim { child, lines, stderr }
    }

    /// Listens until it says something that is `wanted`; returns all that it said, and whether it
    /// came to that.
    pub(crate) fn listen(
        &self,
        patience: Duration,
        wanted: impl Fn(&Line) -> bool,
    ) -> (Vec<Line>, bool) {
        let deadline = now() + patience;
        let mut said = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let found = wanted(&line);
                    said.push(line);
                    if found {
                        return (said, true);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return (said, false);
                }
            }
        }
    }

    /// Answers whoever waits for a line, as often as this.
    pub(crate) fn answer(&mut self, times: usize) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        for _ in 0..times {
            stdin.write_all(b"go on\n").expect("it listens");
        }
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(mut self) -> Ended {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.wait(Duration::from_secs(30)).expect("a killed process ends")
    }

    /// Waits for its end; kills it and panics with what it said if that takes too long.
    pub(crate) fn end(mut self, patience: Duration) -> Ended {
        match self.wait(patience) {
            Some(ended) => ended,
            None => {
                let ended = self.kill();
                panic!("it hangs: {:?}, {}", ended.said.last(), ended.stderr);
            }
        }
    }

    fn wait(&mut self, patience: Duration) -> Option<Ended> {
        let deadline = now() + patience;
        let status = loop {
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => break status,
                None if now() > deadline => return None,
                None => pause(Duration::from_millis(1)),
            }
        };
        let said = self.lines.iter().collect();
        let mut stderr = String::new();
        let _ = self.stderr.rewind().and_then(|()| self.stderr.read_to_string(&mut stderr));
        Some(Ended { said, status, stderr })
    }
}

impl Ended {
    /// Panics if it did: whatever happens to it, it should not.
    pub(crate) fn refuse_panic(&self) -> &Ended {
        use std::os::unix::process::ExitStatusExt;
        const SIGKILL: i32 = 9;
        let fine = match self.status.signal() {
            Some(signal) => signal == SIGKILL,
            None => self.status.code() != Some(101),
        };
        let last = self.said.last();
        assert!(fine, "it died: {}, {last:?}, {}", self.status, self.stderr);
        self
    }
}

/// The variants and texts of the errors among what was said.
pub(crate) fn failures(said: &[Line]) -> Vec<(&str, &str)> {
    said.iter().filter_map(Line::failure).collect()
}

/// What was acknowledged among what was said.
pub(crate) fn acks(said: &[Line]) -> Vec<Ack> {
    let ack = |line: &Line| if let Line::Ack(ack) = line { Some(*ack) } else { None };
    said.iter().filter_map(ack).collect()
}

fn parse(text: &str) -> Option<Line> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    if word == "closed" {
        return Some(Line::Closed);
    }
    if word == "fail" {
        let mut parts = rest.splitn(3, ' ');
        let partition = parts.next()?.parse().ok()?;
        let (variant, text) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        return Some(Line::Fail { partition, variant, text });
    }
    let numbers: Vec<u64> = rest.split(' ').filter_map(|number| number.parse().ok()).collect();
    let partition = u32::try_from(*numbers.first()?).ok()?;
    Some(match (word, &numbers[1..]) {
        ("open", [log_start, durable_end, end]) => {
            let (log_start, durable_end, end) = (*log_start, *durable_end, *end);
            Line::Open { partition, log_start, durable_end, end }
        }
        ("ack", [base, end, number, began, ended]) => {
            let (base, end, number, began, ended) = (*base, *end, *number, *began, *ended);
            Line::Ack(Ack { partition, base, end, number, began, ended })
        }
        ("trim", [to]) => Line::Trim { partition, to: *to },
        ("trimmed", [to]) => Line::Trimmed { partition, to: *to },
        ("record", [offset, number]) => {
            Line::Record { partition, offset: *offset, number: *number }
        }
        _ => return None,
    })
}
