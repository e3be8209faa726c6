//! logctl as its users run it: every verb, what it prints, and the exit code.
#![expect(clippy::disallowed_methods, reason = "tests look at files, and damage them, directly")]
#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod damage;
mod documentation;
mod online;
mod records;
mod refusals;
mod topics;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

struct Logctl {
    dir: TempDir,
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Logctl {
    fn new() -> Logctl {
        Logctl { dir: tempfile::tempdir().unwrap() }
    }

    /// A store with topic `orders`: three keys, two records each, in three partitions.
    fn with_orders() -> Logctl {
        let logctl = Logctl::new();
        logctl.ok("topic create orders --partitions 3");
        let lines = "a,1\nb,2\nc,3\na,4\nb,5\nc,6\n";
        let produced = logctl.produce(&["produce", "orders", "--key-separator", ","], lines);
        assert_eq!(produced.code, 0, "{}", produced.err);
        logctl
    }

    /// A store with topic `small`: one partition in several segments, 300 records.
    fn with_segments() -> Logctl {
        let logctl = Logctl::new();
        let limits = "--segment-bytes 64KiB --batch-max-bytes 16KiB --record-max-bytes 8KiB";
        logctl.ok(&format!("topic create small --partitions 1 {limits}"));
        let lines = format!("{}\n", "x".repeat(1000)).repeat(300);
        assert_eq!(logctl.produce(&["produce", "small"], lines).code, 0);
        logctl
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_logctl"));
        command.arg("--data").arg(self.data()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn produce(&self, args: &[&str], stdin: impl AsRef<[u8]>) -> Ran {
        let mut child = self.command(args).spawn().unwrap();
        // One that refuses its arguments does not read.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_ref());
        Ran::from(child.wait_with_output().unwrap())
    }

    /// Runs with arguments that have no spaces in them.
    fn run(&self, line: &str) -> Ran {
        self.produce(&line.split_whitespace().collect::<Vec<_>>(), "")
    }

    fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
        ran.out
    }

    fn fails(&self, line: &str, code: i32, says: &str) {
        let ran = self.run(line);
        assert_eq!(ran.code, code, "{line}: {}{}", ran.out, ran.err);
        let said = ran.err.contains(says);
        assert!(said && !ran.err.contains("panicked"), "{line}: {says:?} is not in {}", ran.err);
    }

    fn json(&self, line: &str) -> Vec<Value> {
        let ran = self.run(&format!("{line} --json"));
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Values of `consume`, in the order in which they were printed.
    fn values(&self, line: &str) -> Vec<String> {
        let text = |record: &Value| record["value"].as_str().unwrap().to_owned();
        self.json(line).iter().map(text).collect()
    }

    /// The segments of a topic's partition, the oldest first.
    fn segments(&self, topic: &str, partition: u64) -> Vec<PathBuf> {
        let described = self.json(&format!("segments {topic} -p {partition}"));
        described.iter().map(|segment| PathBuf::from(segment["path"].as_str().unwrap())).collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
