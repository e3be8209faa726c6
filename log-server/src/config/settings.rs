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
use crate::groups::GroupLimits;

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
    #[command(flatten)]
    groups: GroupSettings,
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

/// Those of consumer groups.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GroupSettings {
    /// The most groups, those that have only committed something counted
    #[arg(long, env = "LOG_SERVER_GROUPS_MAX", value_name = "COUNT")]
    groups_max: Option<usize>,
    /// The most members of a group
    #[arg(long, env = "LOG_SERVER_MEMBERS_MAX", value_name = "COUNT")]
    members_max: Option<usize>,
    /// How long the first member of an empty group waits for others
    #[arg(long, env = "LOG_SERVER_JOIN_WINDOW", value_name = "DURATION")]
    join_window: Option<Span>,
    /// The shortest session timeout; a shorter one is lengthened
    #[arg(long, env = "LOG_SERVER_SESSION_TIMEOUT_MIN", value_name = "DURATION")]
    session_timeout_min: Option<Span>,
    /// The longest session timeout; a longer one is shortened
    #[arg(long, env = "LOG_SERVER_SESSION_TIMEOUT_MAX", value_name = "DURATION")]
    session_timeout_max: Option<Span>,
    /// How long an owner counts as alive after a restart; no session timeout is longer. Make it
    /// shorter only while no group has members
    #[arg(long, env = "LOG_SERVER_RESTART_TIMEOUT", value_name = "DURATION")]
    restart_timeout: Option<Span>,
    /// The longest that draining may take; a longer time is shortened
    #[arg(long, env = "LOG_SERVER_DRAIN_TIMEOUT_MAX", value_name = "DURATION")]
    drain_timeout_max: Option<Span>,
    /// The longest that partitions are kept for the next run of a member
    #[arg(long, env = "LOG_SERVER_KEEP_MAX", value_name = "DURATION")]
    keep_max: Option<Span>,
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
        let mut server = ServerConfig::default();
        file.put_into(&mut server);
        self.put_into(&mut server);
        Launch {
            server,
            port_file: self.port_file.or(file.port_file),
            log: self.log.or(file.log).unwrap_or_else(|| "info".to_owned()),
            log_format: self.log_format.or(file.log_format).unwrap_or_default(),
            stop_timeout: self.stop_timeout.or(file.stop_timeout).map_or(STOP_TIMEOUT, |t| t.0),
        }
    }

    /// Sets what is said here.
    fn put_into(&self, server: &mut ServerConfig) {
        put(&mut server.listen, self.listen);
        put(&mut server.data, self.data.clone());
        put(&mut server.io_threads, self.io_threads);
        put(&mut server.blocking_threads_max, self.blocking_threads_max);
        put(&mut server.connections_max, self.connections_max);
        put(&mut server.produce_in_flight_max, self.produce_in_flight_max);
        put(&mut server.fetch_in_flight_max, self.fetch_in_flight_max);
        put(&mut server.control_in_flight_max, self.control_in_flight_max);
        for (limit, said) in [
            (&mut server.frame_max_bytes, self.frame_max_bytes),
            (&mut server.produce_waiting_max_bytes, self.produce_waiting_max_bytes),
            (&mut server.produce_waiting_total_max_bytes, self.produce_waiting_total_max_bytes),
            (&mut server.outgoing_max_bytes, self.outgoing_max_bytes),
        ] {
            put(limit, said.map(|size| size.0));
        }
        for (timeout, said) in [
            (&mut server.fetch_wait_max, self.fetch_wait_max),
            (&mut server.hello_timeout, self.hello_timeout),
            (&mut server.frame_timeout, self.frame_timeout),
            (&mut server.write_timeout, self.write_timeout),
            (&mut server.idle_timeout, self.idle_timeout),
        ] {
            put(timeout, said.map(|span| span.0));
        }
        self.store.put_into(&mut server.store);
        self.groups.put_into(&mut server.groups);
    }
}

impl StoreSettings {
    fn put_into(&self, store: &mut StoreConfig) {
        put(&mut store.topics_max, self.topics_max);
        put(&mut store.group_offsets_max, self.group_offsets_max);
        put(&mut store.sealed_maps_max, self.sealed_maps_max);
        put(&mut store.background_threads_max, self.background_threads_max);
        put(&mut store.maintenance_every, self.maintenance_every.map(|span| span.0));
        put(&mut store.group_commit_linger, self.group_commit_linger.map(|span| span.0));
    }
}

impl GroupSettings {
    fn put_into(&self, groups: &mut GroupLimits) {
        put(&mut groups.groups_max, self.groups_max);
        put(&mut groups.members_max, self.members_max);
        for (timeout, said) in [
            (&mut groups.join_window, self.join_window),
            (&mut groups.session_timeout_min, self.session_timeout_min),
            (&mut groups.session_timeout_max, self.session_timeout_max),
            (&mut groups.restart_timeout, self.restart_timeout),
            (&mut groups.drain_timeout_max, self.drain_timeout_max),
            (&mut groups.keep_max, self.keep_max),
        ] {
            put(timeout, said.map(|span| span.0));
        }
    }
}

fn put<T>(place: &mut T, said: Option<T>) {
    if let Some(value) = said {
        *place = value;
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
        let text = "data = \"from-file\"\nidle_timeout = \"5m\"\n[store]\ntopics_max = 7\n\
                    [groups]\nmembers_max = 5\nrestart_timeout = \"1m\"\n";
        std::fs::write(&path, text).unwrap();
        let file = path.to_str().unwrap();
        let line = ["--config", file, "--data", "from-flag", "--restart-timeout", "2m"];
        let launch = launch(&line).unwrap();
        assert_eq!(launch.server.data, Path::new("from-flag"));
        assert_eq!(launch.server.idle_timeout, Duration::from_secs(300));
        assert_eq!((launch.server.store.topics_max, launch.server.connections_max), (7, 10_000));
        let groups = &launch.server.groups;
        assert_eq!((groups.members_max, groups.restart_timeout), (5, Duration::from_secs(120)));
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
            ("[groups]\nrestart_timeout = \"0s\"", "restart_timeout"),
        ] {
            std::fs::write(&path, text).unwrap();
            let refused = launch(&["--config", file]).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        assert!(launch(&["--hello-timeout", "soon"]).unwrap_err().contains("--hello-timeout"));
        assert!(launch(&["--config", "/nowhere/at/all"]).unwrap_err().contains("/nowhere/at/all"));
    }
}
