//! What tests with real processes and real file systems share: counts, skips, waiting.

pub(crate) mod ledger;
pub(crate) mod mount;
pub(crate) mod process;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take that should not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How much the tests try: small by default, more by the environment.
pub(crate) mod counts {
    /// Power cuts under load: `LOG_POWER_CUTS`.
    pub(crate) fn power_cuts() -> u64 {
        setting("LOG_POWER_CUTS", 24)
    }

    /// How many of a run's system calls a kill hits, one after the other: `LOG_KILL_CALLS`.
    pub(crate) fn kill_calls() -> u64 {
        setting("LOG_KILL_CALLS", 48)
    }

    /// Kills at random instants: `LOG_KILL_INSTANTS`.
    pub(crate) fn kill_instants() -> u64 {
        setting("LOG_KILL_INSTANTS", 40)
    }

    /// Kills of a server under load: `LOG_SERVER_KILLS`.
    pub(crate) fn server_kills() -> u64 {
        setting("LOG_SERVER_KILLS", 6)
    }

    /// Power cuts of a server under load: `LOG_SERVER_POWER_CUTS`.
    pub(crate) fn server_power_cuts() -> u64 {
        setting("LOG_SERVER_POWER_CUTS", 6)
    }

    /// How long a group is in chaos, in seconds: `LOG_CHAOS_SECONDS`.
    pub(crate) fn chaos_seconds() -> u64 {
        setting("LOG_CHAOS_SECONDS", 8)
    }

    /// Connections with faults: `LOG_NETWORK_FAULTS`.
    pub(crate) fn network_faults() -> u64 {
        setting("LOG_NETWORK_FAULTS", 24)
    }

    /// Where random choices begin: `LOG_SYSTEM_SEED`.
    pub(crate) fn seed() -> u64 {
        setting("LOG_SYSTEM_SEED", 1)
    }

    fn setting(name: &str, default: u64) -> u64 {
        match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")),
            Err(_) => default,
        }
    }
}

/// Tells a line past the test runner, which swallows what tests print.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Says that a test can't be done here, and why.
pub(crate) fn skip(test: &str, why: &str) {
    tell(&format!("{test}: skipped: {why}"));
}

/// Whether a program is there.
pub(crate) fn has(program: &str) -> bool {
    let mut found = Command::new("sh");
    quiet(found.arg("-c").arg(format!("command -v {program}")))
}

/// Runs a command without its noise; whether it went well.
pub(crate) fn quiet(command: &mut Command) -> bool {
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

/// The instant.
#[expect(clippy::disallowed_methods, reason = "tests of real processes take real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "tests of real processes take real time")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Removes a file, as a person would.
#[expect(clippy::disallowed_methods, reason = "the file is none of a store's")]
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    std::fs::remove_file(path)
}

/// Copies a directory with all that is in it, holes kept.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--sparse=always"]).arg(from).arg(to);
    assert!(quiet(&mut copy), "cp -a {} {}", from.display(), to.display());
}

/// Runs it; if it panics, says first where that was.
pub(crate) fn tell_on_panic<T>(what: &str, run: impl FnOnce() -> T) -> T {
    struct Teller<'a>(&'a str);
    impl Drop for Teller<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                tell(self.0);
            }
        }
    }
    let _teller = Teller(what);
    run()
}
