//! By way of log-client, as its users have it: records go in and come out of its `Producer` and
//! `Consumer`, and everything that these do for them is in the figures.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use log_client::{Client, Consumer, Delivery, Producer};
use log_core::StartFrom;
use log_core::protocol::produce::Acks;
use log_core::record::Record;
use tokio::runtime::{Builder, Handle, Runtime};

use super::{Pace, Sender, TOPIC, Tail, paced};
use crate::Outcome;
use crate::servers::{Produce, WINDOW};
use crate::stats::Latencies;
use crate::stopwatch::Stopwatch;

/// How many single records may be on their way: more than a pace leaves behind in a second.
const UNANSWERED_MAX: usize = 50_000;

pub(super) fn produce(address: SocketAddr, acks: Acks, work: &Produce<'_>) -> Outcome<Duration> {
    let records = work.messages.iter().map(|message| Record::new(message)).collect::<Vec<_>>();
    let batches = records.chunks_exact(work.at_once).cycle();
    let driver = Driver::connect(address)?;
    let producer = driver.producer(acks)?;
    let stopwatch = Stopwatch::start();
    driver.runtime.block_on(async {
        let mut waiting = VecDeque::with_capacity(WINDOW);
        for (batch, _) in batches.zip(0..work.count / work.at_once as u64) {
            if waiting.len() == WINDOW {
                waiting.pop_front().expect("a window of some").await?;
            }
            waiting.push_back(producer.send_batch(TOPIC, Some(0), batch).await?);
        }
        for delivery in waiting {
            delivery.await?;
        }
        Outcome::Ok(())
    })?;
    Ok(stopwatch.elapsed())
}

pub(super) fn end_to_end(
    address: SocketAddr,
    acks: Acks,
    pace: Pace,
    message_bytes: usize,
) -> Outcome<Latencies> {
    let mut reader = Reader::connect(address)?;
    // One client for both: what the producer is told, the thread of the reader takes in.
    let producer = reader.driver.producer(acks)?;
    let runtime = reader.driver.runtime.handle().clone();
    let mut adder = Adder { runtime, producer, unanswered: VecDeque::new() };
    paced(pace, message_bytes, &mut adder, &mut reader)
}

/// A client, and what it runs on: the thread that waits for something.
struct Driver {
    runtime: Runtime,
    client: Client,
}

impl Driver {
    fn connect(address: SocketAddr) -> Outcome<Driver> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(Client::connect(address.to_string()))?;
        Ok(Driver { runtime, client })
    }

    fn producer(&self, acks: Acks) -> Outcome<Producer> {
        let producer = self.client.producer().acks(acks);
        Ok(self.runtime.block_on(async { producer.build() })?)
    }
}

/// Reads the partition from its start, and waits at its end.
pub(super) struct Reader {
    driver: Driver,
    consumer: Consumer,
}

impl Reader {
    pub(super) fn connect(address: SocketAddr) -> Outcome<Reader> {
        let driver = Driver::connect(address)?;
        let consumer = driver.client.consumer().assign([(TOPIC, 0, StartFrom::Earliest)]);
        let consumer = driver.runtime.block_on(consumer.build())?;
        Ok(Reader { driver, consumer })
    }
}

impl Tail for Reader {
    fn wait(&mut self, seen: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        let records = self.driver.runtime.block_on(self.consumer.next_batch())?;
        for record in records.ok_or("the partition has no more records")?.iter() {
            seen(record?.value.unwrap_or_default());
        }
        Ok(())
    }
}

/// Appends one record at a time.
struct Adder {
    runtime: Handle,
    producer: Producer,
    unanswered: VecDeque<Delivery>,
}

impl Sender for Adder {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        self.runtime.block_on(async {
            let delivery = self.producer.send_to(TOPIC, 0, &Record::new(message)).await?;
            self.unanswered.push_back(delivery);
            if self.unanswered.len() > UNANSWERED_MAX {
                self.unanswered.pop_front().expect("there are some").await?;
            }
            Ok(())
        })
    }
}
