//! Child: what is done in a process of its own, to be killed there or to have its memory looked at.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use benches::work::{Payload, in_batches};
use benches::{Outcome, engine, servers};
use log_core::config::FlushPolicy;

/// The first argument of a child.
pub(crate) const WORD: &str = "child";

const VALUE_BYTES: usize = 100;
/// Large batches: there is much to append.
const FILL_AT_ONCE: usize = 2_000;
const MEMORY_AT_ONCE: usize = 100;
/// How often memory is looked at while it appends.
const LOOK_EVERY_BYTES: u64 = 16 << 20;
const READY: &str = "ready";

/// A child appends to a new store, with the policy Sync, and is killed while it does so, once
/// that many bytes were acknowledged.
pub(crate) fn fill_and_kill(dir: &Path, segment_bytes: u64, until_bytes: u64) -> Outcome<()> {
    let mut child = start(&["fill", text(dir)?, &segment_bytes.to_string()])?;
    let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    for line in lines {
        if line?.parse::<u64>()? >= until_bytes {
            return kill(child);
        }
    }
    Err(format!("the child that fills the store ended early: {}", child.wait()?).into())
}

/// A child opens the store, appends to each partition, and is killed.
pub(crate) fn touch_and_kill(dir: &Path) -> Outcome<()> {
    let mut child = start(&["touch", text(dir)?])?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    if line.trim_end() != READY {
        return Err(format!("the child that touches the store failed: {}", child.wait()?).into());
    }
    kill(child)
}

/// A child appends that much and then reads it; returns the most memory it had for itself.
pub(crate) fn private_mebibytes(dir: &Path, log_bytes: u64) -> Outcome<f64> {
    let mut child = start(&["memory", text(dir)?, &log_bytes.to_string()])?;
    let mut said = String::new();
    child.stdout.take().ok_or("no output")?.read_to_string(&mut said)?;
    let ended = child.wait()?;
    if !ended.success() {
        return Err(format!("the child whose memory is looked at failed: {ended}").into());
    }
    Ok(f64::from(said.trim().parse::<u32>()?) / 1024.0)
}

/// A child that is the other side of a raw control, which stores what it is brought.
pub(crate) fn raw_store(dir: &Path) -> Outcome<Command> {
    command(&["raw-store", text(&dir.join("log"))?])
}

/// The same, which answers on so many connections.
pub(crate) fn raw_exchange(connections: usize, frame_bytes: usize) -> Outcome<Command> {
    command(&["raw-exchange", &connections.to_string(), &frame_bytes.to_string()])
}

/// The same, which passes on what comes.
pub(crate) fn raw_relay(frame_bytes: usize) -> Outcome<Command> {
    command(&["raw-relay", &frame_bytes.to_string()])
}

fn command(words: &[&str]) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WORD).args(words);
    Ok(command)
}

fn start(words: &[&str]) -> Outcome<Child> {
    Ok(command(words)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// SIGKILL: nothing of the child gets to run again.
fn kill(mut child: Child) -> Outcome<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn text(dir: &Path) -> Outcome<&str> {
    dir.to_str().ok_or_else(|| format!("{}: not UTF-8", dir.display()).into())
}

/// What a child does.
pub(crate) fn run(words: &[String]) -> Outcome<()> {
    let words = words.iter().map(String::as_str).collect::<Vec<_>>();
    match words[..] {
        ["fill", dir, segment_bytes] => fill(Path::new(dir), segment_bytes.parse()?),
        ["touch", dir] => touch(Path::new(dir)),
        ["raw-store", path] => {
            end_with_the_parent();
            servers::raw::serve_store(&mut io::stdout(), Path::new(path))
        }
        ["raw-exchange", connections, frame_bytes] => {
            end_with_the_parent();
            let (connections, frame_bytes) = (connections.parse()?, frame_bytes.parse()?);
            servers::raw::serve_exchange(&mut io::stdout(), connections, frame_bytes)
        }
        ["raw-relay", frame_bytes] => {
            end_with_the_parent();
            servers::raw::serve_relay(&mut io::stdout(), frame_bytes.parse()?)
        }
        ["memory", dir, log_bytes] => memory(Path::new(dir), log_bytes.parse()?),
        _ => Err("a child of the scoreboard is told what to do by the scoreboard".into()),
    }
}

fn fill(dir: &Path, segment_bytes: u64) -> Outcome<()> {
    let log = engine::Log::create(dir, FlushPolicy::Sync, segment_bytes, 1)?;
    let payload = Payload::of_values(VALUE_BYTES);
    let batch_bytes = engine::stored_bytes(&payload.records()[..FILL_AT_ONCE]);
    let mut acknowledged = 0;
    let mut out = io::stdout().lock();
    in_batches(&payload.records(), u64::MAX, FILL_AT_ONCE, |batch| {
        log.append(0, batch)?;
        acknowledged += batch_bytes;
        Ok(writeln!(out, "{acknowledged}")?)
    })
}

fn touch(dir: &Path) -> Outcome<()> {
    let log = engine::Log::open(dir)?;
    let payload = Payload::of_values(VALUE_BYTES);
    let records = payload.records();
    for partition in 0..log.partitions() {
        log.append(partition, &records[..1])?;
    }
    writeln!(io::stdout(), "{READY}")?;
    // Until it is killed, or whoever would do that is gone.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn memory(dir: &Path, log_bytes: u64) -> Outcome<()> {
    let log = engine::Log::create(dir, FlushPolicy::Os, engine::default_segment_bytes(), 1)?;
    let payload = Payload::of_values(VALUE_BYTES);
    let records = payload.records();
    let batch_bytes = engine::stored_bytes(&records[..MEMORY_AT_ONCE]);
    let count = log_bytes / batch_bytes * MEMORY_AT_ONCE as u64;
    let (mut appended, mut looked_at, mut most) = (0, 0, private_kibibytes()?);
    in_batches(&records, count, MEMORY_AT_ONCE, |batch| {
        log.append(0, batch)?;
        appended += batch_bytes;
        if appended - looked_at >= LOOK_EVERY_BYTES {
            looked_at = appended;
            most = most.max(private_kibibytes()?);
        }
        Ok(())
    })?;
    log.scan()?;
    most = most.max(private_kibibytes()?);
    writeln!(io::stdout(), "{most}")?;
    Ok(())
}

/// Ends this process when whoever started it is gone, whatever it waits for.
fn end_with_the_parent() {
    std::thread::spawn(|| {
        // At its end or at an error, nobody holds the other end.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// Resident memory of this process that no file stands behind.
fn private_kibibytes() -> Outcome<u32> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next());
    Ok(kibibytes.ok_or("/proc/self/status does not say RssAnon")?.parse()?)
}
