//! Both sides of the raw controls, in one process.

use std::io::{self, BufRead, BufReader, PipeWriter};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use log_core::record::Record;

use super::client::{bring, exchange_with, fetch, paced_through};
use super::{frame_bytes, serve_exchange, serve_relay, serve_store};
use crate::Outcome;
use crate::controls::one_batch;
use crate::servers::paced::Pace;

const CONNECTIONS: usize = 3;
const MESSAGE_BYTES: usize = 20;

/// Runs the other side on a thread, until the tests end.
fn start(serve: impl FnOnce(&mut PipeWriter) -> Outcome<()> + Send + 'static) -> SocketAddr {
    let (reader, mut writer) = io::pipe().unwrap();
    thread::spawn(move || serve(&mut writer));
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    line.trim_end().parse().unwrap()
}

#[test]
fn what_was_brought_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let address = start(move |out| serve_store(out, &path));
    let records = [Record::new(b"one"), Record::new(b"three")];
    let batches = [one_batch(&records), one_batch(&records[..1])];
    bring(address, &batches, 40).unwrap();
    assert_eq!(fetch(address, 60).unwrap(), 20 * (3 + 5) + 20 * 3);
    assert!(fetch(address, 61).is_err());
}

#[test]
fn each_connection_is_answered() {
    let batch = one_batch(&[Record::new(b"one")]);
    let len = frame_bytes(&batch);
    let address = start(move |out| serve_exchange(out, CONNECTIONS, len));
    let time = Duration::from_millis(20);
    let exchanged = exchange_with(address, CONNECTIONS, &batch, time).unwrap();
    let percentiles = exchanged.latencies.percentiles().unwrap();
    assert!(exchanged.a_second > 100.0);
    assert!(percentiles.p50_micros > 0.0 && percentiles.p50_micros <= percentiles.p99_micros);
}

#[test]
fn every_record_is_seen_after_it_was_due() {
    let address = start(|out| serve_relay(out, MESSAGE_BYTES));
    let pace = Pace { a_second: 10_000, warm: 10, count: 100 };
    let latencies = paced_through(address, pace, MESSAGE_BYTES).unwrap();
    // Those that were not noted are no calls.
    let tail = latencies.tail();
    assert_eq!(tail.calls, 100);
    assert!(tail.max_micros < 5e6);
}
