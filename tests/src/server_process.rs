//! ServerProcess: a real server in a process of its own, which tests stop, kill and start again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::shared_nanos;
use crate::wire::Wire;

/// How long a server may take to answer after its start.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How often the tests look.
const TICK: Duration = Duration::from_millis(2);

/// A server, killed when this is dropped. Its data stays.
#[derive(Debug)]
pub struct ServerProcess {
    program: PathBuf,
    data: PathBuf,
    settings: Vec<String>,
    address: SocketAddr,
    child: Option<Child>,
}

impl ServerProcess {
    /// Starts the program on a free port, with its data in a directory, and these flags beside; it
    /// answers when this returns.
    ///
    /// # Panics
    /// If it does not come to answer.
    #[must_use]
    pub fn start(program: &str, data: &Path, settings: &[&str]) -> ServerProcess {
        let mut server = ServerProcess {
            program: PathBuf::from(program),
            data: data.to_path_buf(),
            settings: settings.iter().map(ToString::to_string).collect(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            child: None,
        };
        server.start_again();
        server
    }

    /// Starts it again after its end, on the same port and with the same data.
    ///
    /// # Panics
    /// If it still runs, or does not come to answer.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let port_file = self.data.with_extension("port");
        let _ = std::fs::write(&port_file, "");
        let mut command = Command::new(&self.program);
        command.arg("--data").arg(&self.data).arg("--port-file").arg(&port_file);
        command.args(["--listen", &self.address.to_string()]).args(&self.settings);
        // What it logs is shown with the test that fails.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().expect("the server's program is there"));
        let answers = || {
            let port: u16 = std::fs::read_to_string(&port_file).ok()?.trim().parse().ok()?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Wire::greeted(address).ok().map(|_| address)
        };
        let address = wait_for(START_PATIENCE, || match self.status() {
            Some(status) => panic!("the server ended at its start: {status}"),
            None => answers(),
        });
        self.address = address.expect("the server answers in time");
    }

    /// Where it listens, also while it does not run.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it (SIGKILL), as the system does when memory is short.
    ///
    /// # Panics
    /// If it has ended by itself.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        let status = child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "it had ended before");
    }

    /// Asks it to end (SIGTERM), and waits for that.
    ///
    /// # Panics
    /// If it takes longer than that.
    pub fn terminate(&mut self, patience: Duration) -> ExitStatus {
        kill_process(self.pid(), Signal::TERM).expect("it runs");
        let ended = wait_for(patience, || self.status());
        self.child = ended.and(None);
        ended.expect("it ends when it is told to")
    }

    /// How it has ended, if it has.
    ///
    /// # Panics
    /// If the system can't tell.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("it can be waited for")
    }

    /// How much memory of its own it has in use: resident, without what is mapped of files.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let text = std::fs::read_to_string(path).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kib.expect("the system tells how much") * 1024
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _: io::Result<ExitStatus> = child.wait();
        }
    }
}

/// Looks again and again, for so long at the most.
pub fn wait_for<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let nanos = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    let deadline = shared_nanos().saturating_add(nanos);
    let (never, changes) = (Mutex::new(()), Condvar::new());
    loop {
        let found = look();
        if found.is_some() || shared_nanos() > deadline {
            return found;
        }
        let guard = never.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changes.wait_timeout(guard, TICK));
    }
}
