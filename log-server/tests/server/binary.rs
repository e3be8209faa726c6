//! The binary: its flags, its port file, signals, exit codes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use log_core::FlushPolicy;
use log_core::protocol::produce::Acks;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_log-server"));
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    command
}

#[expect(clippy::disallowed_methods, reason = "a process is waited for")]
fn started(dir: &Path) -> (Child, SocketAddr) {
    let port_file = dir.join("port");
    let mut server = command();
    server.args(["--listen", "127.0.0.1:0", "--log-format", "json"]);
    server.arg("--data").arg(dir.join("data")).arg("--port-file").arg(&port_file);
    let server = server.spawn().unwrap();
    for _ in 0..1_000 {
        if let Ok(port) = std::fs::read_to_string(&port_file) {
            let port: u16 = port.trim().parse().unwrap();
            return (server, SocketAddr::from(([127, 0, 0, 1], port)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the server wrote no port: {:?}", server.wait_with_output());
}

#[test]
fn a_signal_stops_it_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = started(dir.path());
    let mut peer = Peer::silent(address);
    peer.hello();
    let topic = peer.create("events", 1, FlushPolicy::Sync);
    peer.produce(to(&topic, 0, Acks::Policy), &batch(&[b"kept"])).unwrap();
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(peer.receive().is_none());
    let output = server.wait_with_output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(log.contains("stopped in order") && log.contains("\"address\""), "{log}");
}

#[test]
fn nonsense_is_told_with_the_setting_and_an_exit_code() {
    for (args, said, code) in [
        (["--connections-max", "0"], "connections_max", 2),
        (["--idle-timeout", "soon"], "--idle-timeout", 2),
        (["--log", "a=b=c"], "log", 2),
        (["--data", "/dev/null/nowhere"], "/dev/null/nowhere", 1),
    ] {
        let output = command().args(args).args(["--listen", "127.0.0.1:0"]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(said), "{told}");
    }
}
