//! Producer: sends records to topics, in batches, each of them once.

mod accumulator;
mod conditional;
mod config;
mod lane;
mod outcome;
mod sender;
mod tasks;
mod topic;

use std::sync::Arc;

use log_core::{Offset, Record};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use self::conditional::Conditional;
use self::sender::{Put, Sender, Sent};
use crate::client::Client;
use crate::error::{Error, Result};

pub use config::{IN_FLIGHT_LIMIT, ProducerBuilder, ProducerConfig};
pub use outcome::{Appended, Delivery};

/// Sends records to topics. Clones share it; when the last one is dropped, what has no outcome yet
/// ends: as `Closed` if it is surely not appended, else as `OutcomeUnknown`. To wait for it, call
/// [`Producer::close`].
///
/// Records of a partition are appended in the order in which they were sent, each of them once,
/// over retries, reconnects and restarts of the server.
///
/// # Examples
///
/// Sending waits for room in the buffer alone; a [`Delivery`] tells the outcome, and need not be
/// waited for one by one:
///
/// ```
/// use log_client::{Client, Record};
/// use log_core::{Codec, TopicConfig};
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let client = Client::connect(server.address().to_string()).await?;
/// # client.admin().create_topic("visits", 4, &TopicConfig::default()).await?;
/// let producer = client.producer().codec(Codec::Lz4).build()?;
/// for visit in 0..1_000_u32 {
///     let (page, time) = (format!("page-{}", visit % 7), visit.to_be_bytes());
///     let record = Record::new(&time).with_key(page.as_bytes());
///     drop(producer.send("visits", &record).await?);
/// }
/// // All that was sent has its outcome then; the first that failed is the error.
/// producer.flush().await?;
/// # let ends = client.admin().describe_topic("visits").await?.partitions;
/// # assert_eq!(ends.into_iter().map(|ends| ends.unwrap().end).sum::<u64>(), 1_000);
///
/// // One after the other in one partition: all of them, or none.
/// let entries = [Record::new(b"entered"), Record::new(b"left")];
/// let both = producer.send_batch("visits", Some(2), &entries).await?.await?;
/// assert_eq!(both.partition, 2);
/// producer.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An append that holds only if nobody else has written since is tried again from what was read:
///
/// ```
/// use log_client::{Client, Record};
/// use log_core::{TopicConfig, protocol::ErrorCode};
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let client = Client::connect(server.address().to_string()).await?;
/// # client.admin().create_topic("account", 1, &TopicConfig::default()).await?;
/// # let producer = client.producer().build()?;
/// # producer.append_at("account", 0, &[Record::new(b"opened")], 0).await?;
/// let withdrawn = [Record::new(b"withdrawn: 20")];
/// let mut end = 0;
/// loop {
///     match producer.append_at("account", 0, &withdrawn, end).await {
///         Ok(_) => break,
///         Err(error) if error.code() == Some(ErrorCode::EndConflict) => {
///             // Read from `end` on, decide again whether there is enough for it.
///             end = client.admin().describe_topic("account").await?.partitions[0].clone()?.end;
///         }
///         // `OutcomeUnknown` is among them: look whether it is there.
///         Err(error) => return Err(error.into()),
///     }
/// }
/// assert_eq!(end, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Producer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    sender: Arc<Sender>,
    conditional: Conditional,
    tasks: Vec<AbortHandle>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.sender.close();
    }
}

impl Producer {
    pub(crate) fn start(client: &Client, config: ProducerConfig) -> Producer {
        let sender = Sender::new(config, client.new_link(), Arc::clone(client.link()));
        let sender = Arc::new(sender);
        let tasks = tasks::start(&sender);
        Producer(Arc::new(Handle { sender, conditional: Conditional::default(), tasks }))
    }

    /// Sends a record: to the partition of its key, or, without a key, to one partition after the
    /// other. Waits for room in the buffer, not for the outcome: that is the [`Delivery`]'s.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`; `TimedOut` if there is no room in time; `InvalidArgument`,
    /// as for a record that is too large for the topic; `Closed`. The record was not sent then.
    pub async fn send(&self, topic: &str, record: &Record<'_>) -> Result<Delivery> {
        self.put(topic, None, Sent::One(record)).await
    }

    /// Sends a record to this partition, whatever its key.
    ///
    /// # Errors
    /// As [`Producer::send`]; `InvalidArgument` for a partition that there is not.
    pub async fn send_to(
        &self,
        topic: &str,
        partition: u32,
        record: &Record<'_>,
    ) -> Result<Delivery> {
        self.put(topic, Some(partition), Sent::One(record)).await
    }

    /// Sends records as one batch, to one partition: appended all or none, with offsets that
    /// follow each other. Without a partition, it is that of the first record's key.
    ///
    /// # Errors
    /// As [`Producer::send_to`].
    pub async fn send_batch(
        &self,
        topic: &str,
        partition: Option<u32>,
        records: &[Record<'_>],
    ) -> Result<Delivery> {
        self.put(topic, partition, Sent::Whole(records)).await
    }

    /// Sends a record and waits for its outcome.
    ///
    /// # Errors
    /// As [`Producer::send`]; and why it was surely not appended, or `OutcomeUnknown`.
    pub async fn send_and_wait(&self, topic: &str, record: &Record<'_>) -> Result<Appended> {
        self.send(topic, record).await?.await
    }

    /// Appends records as one batch if the partition ends at `expected_end`: the event after the
    /// last one that was read, say. It does not wait for what was sent before.
    ///
    /// # Errors
    /// `Refused` with `EndConflict` tells where it ends; with `StaleTopic`, that another topic has
    /// the name now, which the next append goes to; else as [`Producer::send_and_wait`].
    pub async fn append_at(
        &self,
        topic: &str,
        partition: u32,
        records: &[Record<'_>],
        expected_end: Offset,
    ) -> Result<Appended> {
        let place = (topic, partition);
        self.0.conditional.append_at(&self.0.sender, place, records, expected_end).await
    }

    /// Sends all that was gathered, and waits until everything sent before has its outcome.
    ///
    /// # Errors
    /// The first of what its deliveries are told as an error: `OutcomeUnknown` among them, for what
    /// was sent and not answered in time.
    pub async fn flush(&self) -> Result<()> {
        let mut first = Ok(());
        for outcome in self.0.sender.flush() {
            first = first.and(Delivery::new(outcome, 0).await.map(drop));
        }
        first
    }

    /// Flushes, then ends the producer, for all its clones.
    ///
    /// # Errors
    /// As [`Producer::flush`]; it is closed all the same.
    pub async fn close(self) -> Result<()> {
        let flushed = self.flush().await;
        self.0.tasks.iter().for_each(AbortHandle::abort);
        self.0.sender.close();
        flushed
    }

    async fn put(&self, topic: &str, partition: Option<u32>, sent: Sent<'_>) -> Result<Delivery> {
        // On a runtime with one thread, replies are read while this gives way.
        tokio::task::coop::consume_budget().await;
        let sender = &self.0.sender;
        let deadline = Instant::now() + sender.config.delivery_timeout;
        let mut looked = false;
        loop {
            match sender.put(topic, partition, sent)? {
                Put::Done(delivery) => return Ok(delivery),
                Put::Illegal(error) if looked => return Err(error),
                Put::UnknownTopic | Put::Illegal(_) => {
                    sender.learn(&tasks::describe(sender, topic).await?)?;
                    looked = true;
                }
                Put::Full => {
                    let mut room = std::pin::pin!(sender.room.notified());
                    room.as_mut().enable();
                    // What was given back before that is seen now, what is after wakes.
                    if let Put::Done(delivery) = sender.put(topic, partition, sent)? {
                        return Ok(delivery);
                    }
                    let waited = timeout_at(deadline, room).await;
                    let what = || "room in the producer's buffer".to_owned();
                    waited.map_err(|_| Error::TimedOut { what: what() })?;
                }
            }
        }
    }
}
