//! log-server: serves a data directory over TCP, until it is told to stop.
//!
//! It exits with 0 after a stop in order, 1 if it could not start or close the store in order, 2 if
//! it was called wrongly, 3 if connections had to be cut off, 130 after a second signal.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use log_core::disk::{Disk, FileMode, OsDisk};
use log_server::{Launch, Server, ServerError, start_logging};
use tokio::signal::unix::{Signal, SignalKind, signal};

const FAILED: u8 = 1;
const MISUSED: u8 = 2;
const CUT_OFF: u8 = 3;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let launch = Launch::from_process().and_then(|launch| {
        start_logging(&launch.log, launch.log_format)?;
        Ok(launch)
    });
    let launch = match launch {
        Ok(launch) => launch,
        Err(error) => {
            use std::io::Write;
            // There is nobody to tell if this fails.
            let _ = writeln!(std::io::stderr(), "log-server: {error}");
            return ExitCode::from(MISUSED);
        }
    };
    match run(&launch) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "cannot start");
            ExitCode::from(FAILED)
        }
    }
}

fn run(launch: &Launch) -> Result<ExitCode, ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| system("make a runtime", source))?;
    runtime.block_on(async {
        // Before the server is there: a signal that comes meanwhile must not kill it.
        let mut terminate = listen_for(SignalKind::terminate())?;
        let mut interrupt = listen_for(SignalKind::interrupt())?;
        let server = Arc::new(Server::bind(launch.server.clone())?);
        if let Some(path) = &launch.port_file {
            write_port(path, server.address().port())?;
        }
        told_to_stop(&mut terminate, &mut interrupt).await;
        tracing::info!(timeout = ?launch.stop_timeout, "stopping; a second signal ends it at once");
        let (stopping, timeout) = (Arc::clone(&server), launch.stop_timeout);
        let stopped = tokio::task::spawn_blocking(move || stopping.stop(timeout));
        let code = tokio::select! {
            stopped = stopped => match stopped {
                Ok(Ok(())) => {
                    tracing::info!("stopped in order");
                    ExitCode::SUCCESS
                }
                Ok(Err(error @ ServerError::StopDeadline { .. })) => {
                    tracing::warn!(%error, "stopped");
                    ExitCode::from(CUT_OFF)
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "the stop was not in order");
                    ExitCode::from(FAILED)
                }
                Err(error) => {
                    tracing::error!(%error, "the stop was not in order");
                    ExitCode::from(FAILED)
                }
            },
            () = told_to_stop(&mut terminate, &mut interrupt) => {
                tracing::warn!("ended at once; the next start looks for what was under way");
                std::process::exit(i32::from(INTERRUPTED))
            }
        };
        Ok(code)
    })
}

fn listen_for(kind: SignalKind) -> Result<Signal, ServerError> {
    signal(kind).map_err(|source| system("listen for signals", source))
}

async fn told_to_stop(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn system(action: &'static str, source: std::io::Error) -> ServerError {
    ServerError::System { action, source }
}

/// Writes the port, so that whoever waits for the file never reads half of it.
fn write_port(path: &Path, port: u16) -> Result<(), ServerError> {
    let unfinished = path.with_extension("unfinished");
    let file = OsDisk.open(&unfinished, FileMode::Create)?;
    file.write_at(format!("{port}\n").as_bytes(), 0)?;
    OsDisk.rename(&unfinished, path)?;
    Ok(())
}
