//! log-server: serves a data directory over TCP.

use std::process::ExitCode;
use std::time::Duration;

use log_server::{Server, ServerConfig};

fn main() -> ExitCode {
    let server = Server::bind(ServerConfig::default());
    let Ok(server) = server else { return ExitCode::FAILURE };
    std::thread::park();
    match server.stop(Duration::from_secs(30)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
