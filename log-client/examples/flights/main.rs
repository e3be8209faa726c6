//! The flights of 2013 through a server: several producers, a group of three consumers; one of
//! them stops half way, another one dies; and still every flight is counted, in order.
//!
//! `cargo run --release -p log-client --example flights [-- FILE.csv[.gz]] [--server HOST:PORT]`.
//! Without a server it embeds one. Without a file it takes the first week of January, which comes
//! with the sources.

mod counting;
mod events;
mod group;
mod sending;

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use log_client::Client;
use log_core::TopicConfig;
use log_core::clock::{Clock, SystemClock};
use log_server::{Server, ServerConfig};

use events::Flight;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PARTITIONS: u32 = 8;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "flights: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    file: PathBuf,
    server: Option<String>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options> {
        let sample = "../tests/data/flights-week1.csv.gz";
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(sample);
        let mut options = Options { file, server: None };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--server" => options.server = Some(args.next().ok_or("--server HOST:PORT")?),
                flag if flag.starts_with('-') => {
                    return Err("usage: flights [FILE.csv[.gz]] [--server HOST:PORT]".into());
                }
                file => options.file = file.into(),
            }
        }
        Ok(options)
    }
}

/// Whether everything was proven.
fn run(options: &Options) -> Result<bool> {
    let flights = events::read(&options.file)?;
    let scratch = tempfile::tempdir()?;
    // It lives as long as this does, and has threads of its own.
    let (_embedded, address) = match &options.server {
        Some(address) => (None, address.clone()),
        None => {
            let server = Server::bind(ServerConfig::local(scratch.path()))?;
            let address = server.address().to_string();
            (Some(server), address)
        }
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(tell(&address, flights))
}

async fn tell(address: &str, flights: Vec<Flight>) -> Result<bool> {
    let client = Client::connect(address).await?;
    let clock = SystemClock::new();
    // A name of its own, so that it can be run against the same server again.
    let topic = format!("flights-{}", clock.now().as_millis());
    client.admin().create_topic(&topic, PARTITIONS, &TopicConfig::default()).await?;
    say(format_args!("{address}: topic {topic} with {PARTITIONS} partitions"))?;

    let began = clock.monotonic();
    sending::send(&client, &topic, &flights).await?;
    let took = clock.monotonic() - began;
    let (total, producers) = (flights.len(), sending::PRODUCERS);
    say(format_args!("{producers} producers sent {total} flights; all are on disk: {took:.2?}"))?;

    group::read(&client, &topic, &flights).await
}

/// Prints a line.
fn say(line: std::fmt::Arguments<'_>) -> Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}
