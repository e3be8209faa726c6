//! Settings: what the command line, the environment and a file say, put together: a flag wins over
//! a variable, that over the file, that over the default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use log_core::StoreConfig;
use log_core::disk::{Disk, FileMode, OsDisk};
use serde::Deserialize;

use super::ServerConfig;
use super::units::{Size, Span};
use crate::error::ServerError;

/// The largest file with settings.
const FILE_MAX_BYTES: u64 = 1024 * 1024;
/// How long a stop may take, if nothing else is said.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves an event log over TCP.
#[derive(Debug, Parser)]
#[command(name = "log-server", version, disable_help_subcommand = true)]
struct CommandLine {
    /// A TOML file with settings: the names of the flags, with _ for -
    #[arg(long, env = "LOG_SERVER_CONFIG", value_name = "PATH")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object on each line.
    Json,
}

/// What can be said in each of the three places. Not one has a default here.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Where to listen: an address and a port; port 0 takes a free one
    #[arg(long, env = "LOG_SERVER_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The data directory; made if it is missing
    #[arg(long, env = "LOG_SERVER_DATA", value_name = "PATH")]
    data: Option<PathBuf>,
    /// A file to write the port to, once the server listens
    #[arg(long, env = "LOG_SERVER_PORT_FILE", value_name = "PATH")]
    port_file: Option<PathBuf>,
    /// What is logged: a level, or a filter such as info,log_server=debug
    #[arg(long, env = "LOG_SERVER_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How log lines look
    #[arg(long, env = "LOG_SERVER_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// How long a stop may take before connections are cut off
    #[arg(long, env = "LOG_SERVER_STOP_TIMEOUT", value_name = "DURATION")]
    stop_timeout: Option<Span>,
    /// How many threads serve connections
    #[arg(long, env = "LOG_SERVER_IO_THREADS", value_name = "COUNT")]
    io_threads: Option<usize>,
    /// The most threads of each of them for what can block
    #[arg(long, env = "LOG_SERVER_BLOCKING_THREADS_MAX", value_name = "COUNT")]
    blocking_threads_max: Option<usize>,
    /// The most connections
    #[arg(long, env = "LOG_SERVER_CONNECTIONS_MAX", value_name = "COUNT")]
    connections_max: Option<usize>,
    /// The longest frame, either way; a topic's batches must fit into it
    #[arg(long, env = "LOG_SERVER_FRAME_MAX_BYTES", value_name = "SIZE")]
    frame_max_bytes: Option<Size>,
    /// The most produces of a connection that may wait for their reply
    #[arg(long, env = "LOG_SERVER_PRODUCE_IN_FLIGHT_MAX", value_name = "COUNT")]
    produce_in_flight_max: Option<u32>,
    /// The most bytes of batches of a connection that wait to be appended
    #[arg(long, env = "LOG_SERVER_PRODUCE_WAITING_MAX_BYTES", value_name = "SIZE")]
    produce_waiting_max_bytes: Option<Size>,
    /// The same for all connections
    #[arg(long, env = "LOG_SERVER_PRODUCE_WAITING_TOTAL_MAX_BYTES", value_name = "SIZE")]
    produce_waiting_total_max_bytes: Option<Size>,
    /// The most fetches of a connection that may wait for their reply
    #[arg(long, env = "LOG_SERVER_FETCH_IN_FLIGHT_MAX", value_name = "COUNT")]
    fetch_in_flight_max: Option<u32>,
    /// The longest that a fetch may wait for records
    #[arg(long, env = "LOG_SERVER_FETCH_WAIT_MAX", value_name = "DURATION")]
    fetch_wait_max: Option<Span>,
    /// The most other requests of a connection that may wait for their reply
    #[arg(long, env = "LOG_SERVER_CONTROL_IN_FLIGHT_MAX", value_name = "COUNT")]
    control_in_flight_max: Option<u32>,
    /// A connection is not read from while more bytes than this wait for its peer
    #[arg(long, env = "LOG_SERVER_OUTGOING_MAX_BYTES", value_name = "SIZE")]
    outgoing_max_bytes: Option<Size>,
    /// How long a connection may take to say hello
    #[arg(long, env = "LOG_SERVER_HELLO_TIMEOUT", value_name = "DURATION")]
    hello_timeout: Option<Span>,
    /// How long a frame that has begun may stand still
    #[arg(long, env = "LOG_SERVER_FRAME_TIMEOUT", value_name = "DURATION")]
    frame_timeout: Option<Span>,
    /// How long a peer may take no byte while some wait for it
    #[arg(long, env = "LOG_SERVER_WRITE_TIMEOUT", value_name = "DURATION")]
    write_timeout: Option<Span>,
    /// How long a connection may ask nothing, and wait for nothing
    #[arg(long, env = "LOG_SERVER_IDLE_TIMEOUT", value_name = "DURATION")]
    idle_timeout: Option<Span>,
    #[command(flatten)]
    store: StoreSettings,
}

/// Those of the store.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StoreSettings {
    /// The most topics
    #[arg(long, env = "LOG_SERVER_TOPICS_MAX", value_name = "COUNT")]
    topics_max: Option<usize>,
    /// The most committed offsets: groups times partitions
    #[arg(long, env = "LOG_SERVER_GROUP_OFFSETS_MAX", value_name = "COUNT")]
    group_offsets_max: Option<usize>,
    /// The most sealed segments that are mapped at once
    #[arg(long, env = "LOG_SERVER_SEALED_MAPS_MAX", value_name = "COUNT")]
    sealed_maps_max: Option<usize>,
    /// The most threads that sync, prepare and seal
    #[arg(long, env = "LOG_SERVER_BACKGROUND_THREADS_MAX", value_name = "COUNT")]
    background_threads_max: Option<usize>,
    /// How often retention is looked at
    #[arg(long, env = "LOG_SERVER_MAINTENANCE_EVERY", value_name = "DURATION")]
    maintenance_every: Option<Span>,
    /// How long a sync waits for more appends to serve with it
    #[arg(long, env = "LOG_SERVER_GROUP_COMMIT_LINGER", value_name = "DURATION")]
    group_commit_linger: Option<Span>,
}

/// What the binary is told: how the server behaves, and what concerns its process alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// How the server behaves.
    pub server: ServerConfig,
    /// A file to write the port to, once the server listens.
    pub port_file: Option<PathBuf>,
    /// What is logged.
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
    /// How long a stop may take.
    pub stop_timeout: Duration,
}

impl Launch {
    /// What the command line, the environment and the file that they name say. It does not return
    /// if the command line makes no sense, or asks for help.
    ///
    /// # Errors
    /// `ConfigFile`, `IllegalSetting`.
    pub fn from_process() -> Result<Launch, ServerError> {
        Launch::from_command_line(CommandLine::parse())
    }

    fn from_command_line(line: CommandLine) -> Result<Launch, ServerError> {
        let file = line.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let launch = line.settings.over(file);
        launch.server.check()?;
        Ok(launch)
    }
}

fn read_file(path: &Path) -> Result<Settings, ServerError> {
    let unusable = |why: String| ServerError::ConfigFile { path: path.to_path_buf(), why };
    let file = OsDisk.open(path, FileMode::Read)?;
    let size = file.size()?;
    if size > FILE_MAX_BYTES {
        return Err(unusable(format!("{size} bytes are over the limit of {FILE_MAX_BYTES}")));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let text = String::from_utf8(bytes).map_err(|error| unusable(error.to_string()))?;
    toml::from_str(&text).map_err(|error| unusable(error.to_string()))
}

impl Settings {
    /// These, then those of the file, then the defaults.
    fn over(self, file: Settings) -> Launch {
        let default = ServerConfig::default();
        let size = |ours: Option<Size>, files: Option<Size>, default| {
            ours.or(files).map_or(default, |size| size.0)
        };
        let span = |ours: Option<Span>, files: Option<Span>, default| {
            ours.or(files).map_or(default, |span| span.0)
        };
        let count =
            |ours: Option<u32>, files: Option<u32>, default| ours.or(files).unwrap_or(default);
        let server = ServerConfig {
            listen: self.listen.or(file.listen).unwrap_or(default.listen),
            data: self.data.or(file.data).unwrap_or(default.data),
            io_threads: self.io_threads.or(file.io_threads).unwrap_or(default.io_threads),
            blocking_threads_max: self
                .blocking_threads_max
                .or(file.blocking_threads_max)
                .unwrap_or(default.blocking_threads_max),
            connections_max: self
                .connections_max
                .or(file.connections_max)
                .unwrap_or(default.connections_max),
            frame_max_bytes: size(
                self.frame_max_bytes,
                file.frame_max_bytes,
                default.frame_max_bytes,
            ),
            produce_in_flight_max: count(
                self.produce_in_flight_max,
                file.produce_in_flight_max,
                default.produce_in_flight_max,
            ),
            produce_waiting_max_bytes: size(
                self.produce_waiting_max_bytes,
                file.produce_waiting_max_bytes,
                default.produce_waiting_max_bytes,
            ),
            produce_waiting_total_max_bytes: size(
                self.produce_waiting_total_max_bytes,
                file.produce_waiting_total_max_bytes,
                default.produce_waiting_total_max_bytes,
            ),
            fetch_in_flight_max: count(
                self.fetch_in_flight_max,
                file.fetch_in_flight_max,
                default.fetch_in_flight_max,
            ),
            fetch_wait_max: span(self.fetch_wait_max, file.fetch_wait_max, default.fetch_wait_max),
            control_in_flight_max: count(
                self.control_in_flight_max,
                file.control_in_flight_max,
                default.control_in_flight_max,
            ),
            outgoing_max_bytes: size(
                self.outgoing_max_bytes,
                file.outgoing_max_bytes,
                default.outgoing_max_bytes,
            ),
            hello_timeout: span(self.hello_timeout, file.hello_timeout, default.hello_timeout),
            frame_timeout: span(self.frame_timeout, file.frame_timeout, default.frame_timeout),
            write_timeout: span(self.write_timeout, file.write_timeout, default.write_timeout),
            idle_timeout: span(self.idle_timeout, file.idle_timeout, default.idle_timeout),
            store: self.store.over(file.store),
        };
        Launch {
            server,
            port_file: self.port_file.or(file.port_file),
            log: self.log.or(file.log).unwrap_or_else(|| "info".to_owned()),
            log_format: self.log_format.or(file.log_format).unwrap_or_default(),
            stop_timeout: span(self.stop_timeout, file.stop_timeout, STOP_TIMEOUT),
        }
    }
}

impl StoreSettings {
    fn over(self, file: StoreSettings) -> StoreConfig {
        let default = StoreConfig::default();
        let count =
            |ours: Option<usize>, files: Option<usize>, default| ours.or(files).unwrap_or(default);
        let span = |ours: Option<Span>, files: Option<Span>, default| {
            ours.or(files).map_or(default, |span| span.0)
        };
        StoreConfig {
            topics_max: count(self.topics_max, file.topics_max, default.topics_max),
            group_offsets_max: count(
                self.group_offsets_max,
                file.group_offsets_max,
                default.group_offsets_max,
            ),
            sealed_maps_max: count(
                self.sealed_maps_max,
                file.sealed_maps_max,
                default.sealed_maps_max,
            ),
            background_threads_max: count(
                self.background_threads_max,
                file.background_threads_max,
                default.background_threads_max,
            ),
            maintenance_every: span(
                self.maintenance_every,
                file.maintenance_every,
                default.maintenance_every,
            ),
            group_commit_linger: span(
                self.group_commit_linger,
                file.group_commit_linger,
                default.group_commit_linger,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(line: &[&str]) -> Result<Launch, String> {
        let line = ["log-server"].iter().chain(line);
        let parsed = CommandLine::try_parse_from(line).map_err(|error| error.to_string())?;
        Launch::from_command_line(parsed).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_said_means_the_defaults() {
        assert_eq!(launch(&[]).unwrap().server, ServerConfig::default());
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.toml");
        let text = "data = \"from-file\"\nidle_timeout = \"5m\"\n[store]\ntopics_max = 7\n";
        std::fs::write(&path, text).unwrap();
        let file = path.to_str().unwrap();
        let launch = launch(&["--config", file, "--data", "from-flag"]).unwrap();
        assert_eq!(launch.server.data, Path::new("from-flag"));
        assert_eq!(launch.server.idle_timeout, Duration::from_secs(300));
        assert_eq!((launch.server.store.topics_max, launch.server.connections_max), (7, 10_000));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.toml");
        let file = path.to_str().unwrap();
        for (text, said) in [
            ("idle_timout = \"5m\"", "idle_timout"),
            ("[store]\nmaps = 1", "maps"),
            ("idle_timeout = \"5 parsecs\"", "parsecs"),
            ("connections_max = 0", "connections_max"),
            ("connections_max = \"many\"", "connections_max"),
        ] {
            std::fs::write(&path, text).unwrap();
            let refused = launch(&["--config", file]).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        assert!(launch(&["--hello-timeout", "soon"]).unwrap_err().contains("--hello-timeout"));
        assert!(launch(&["--config", "/nowhere/at/all"]).unwrap_err().contains("/nowhere/at/all"));
    }
}
