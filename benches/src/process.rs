//! Process: another one, killed when it is dropped; its CPU time and its memory.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Outcome;

/// Behind the name, which may hold anything, and its parenthesis: state, ten others, then the
/// ticks of user and of system time.
const USER_TICKS_AT: usize = 11;

/// A process that was started here.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// If that fails.
    pub fn start(command: &mut Command) -> Outcome<Process> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        Ok(Process { child })
    }

    /// For its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// SIGKILL: nothing of it gets to run again.
    ///
    /// # Errors
    /// If it can't be waited for.
    pub fn kill(&mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits until it has ended.
    ///
    /// # Errors
    /// If it can't be told or waited for, or ends with a failure.
    pub fn stop(&mut self) -> Outcome<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let ended = self.child.wait()?;
        if ended.success() { Ok(()) } else { Err(format!("it was told to stop: {ended}").into()) }
    }

    /// The CPU time of all its threads, of user and of system, to a tick (10 ms).
    ///
    /// # Errors
    /// If the kernel does not say: it has ended.
    pub fn cpu_time(&self) -> Outcome<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let ticks = cpu_ticks(&stat).ok_or("/proc/*/stat has another form")?;
        let a_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_millis(ticks * 1000 / a_second))
    }

    /// Its resident memory that no file stands behind. The pages of a shared map that nobody else
    /// has mapped are called private too in places: they are the page cache's, and don't count.
    ///
    /// # Errors
    /// If the kernel does not say: it has ended.
    pub fn private_bytes(&self) -> Outcome<u64> {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()))?;
        let kibibytes = anonymous_kibibytes(&rollup).ok_or("smaps_rollup has another form")?;
        Ok(kibibytes * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail where it was killed or stopped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut ticks = behind.split_whitespace().skip(USER_TICKS_AT);
    Some(ticks.next()?.parse::<u64>().ok()? + ticks.next()?.parse::<u64>().ok()?)
}

fn anonymous_kibibytes(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let stat = "17 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 30 0 0 20 0 1 0\n";
        assert_eq!(cpu_ticks(stat), Some(280));
        assert_eq!(cpu_ticks("17 no parenthesis"), None);
        let rollup = "00-ff ---p 0 00:00 0 [rollup]\nRss:  90 kB\nAnonymous:      12 kB\n";
        assert_eq!(anonymous_kibibytes(rollup), Some(12));
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let mut command = Command::new("cat");
        let process = Process::start(command.stdin(Stdio::piped())).unwrap();
        let id = process.child.id();
        assert!(process.private_bytes().unwrap() > 0);
        assert!(process.cpu_time().unwrap() < Duration::from_secs(1));
        drop(process);
        assert!(!fs::exists(format!("/proc/{id}")).unwrap());
    }
}
