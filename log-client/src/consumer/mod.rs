//! Consumer: reads topics, alone or as a member of a group.
//!
//! ```no_run
//! # async fn read() -> log_client::Result<()> {
//! use log_client::Client;
//! use log_core::StartFrom;
//!
//! let client = Client::connect("127.0.0.1:9190").await?;
//! let builder = client.consumer().group("billing").topics(["orders"]).start(StartFrom::Earliest);
//! let mut consumer = builder.build().await?;
//! while let Some(record) = consumer.next().await? {
//!     println!("{}/{}: {:?}", record.partition, record.offset, record.value);
//! }
//! // What was handed over is done: it is committed, and the partitions are given back.
//! consumer.close().await
//! # }
//! ```
//!
//! Three tasks work for it, each on a connection of its own: `session` keeps up the membership,
//! `fetcher` fills the buffers, `commits` persists what is done. What they share with the user is
//! one state under one lock; the decisions are pure (`membership`, `committer`, `partition`).

mod builder;
mod commits;
#[doc(hidden)]
pub mod committer;
mod event;
mod fetcher;
mod handle;
#[doc(hidden)]
pub mod membership;
mod partition;
mod record;
mod session;
mod settings;
mod state;
mod stop;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use log_core::OffsetRange;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use builder::ConsumerBuilder;
pub use event::{ConsumerEvent, SkipReason, TopicPartition};
pub use handle::ConsumerHandle;
pub use membership::LostReason;
pub use record::{ConsumerHeader, ConsumerRecord, Records, RecordsIter};
pub use settings::{CommitMode, OnCorrupt, OutOfRange};

use crate::client::Client;
use crate::error::Result;
use membership::Event;
use partition::{Found, Owned, Run};
use record::Source;
use state::{Next, Shared};

/// Reads records. What a [`ConsumerHandle`] does, it does as well. Dropped without `close`, its
/// connections close, and nothing more is committed.
///
/// # Examples
///
/// A member of a group shares the topics' partitions with the others. What was handed over is done
/// once more is asked for, and is committed every second and at the end:
///
/// ```
/// use log_client::{Client, Record};
/// use log_core::{StartFrom, TopicConfig};
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let client = Client::connect(server.address().to_string()).await?;
/// # client.admin().create_topic("orders", 4, &TopicConfig::default()).await?;
/// # let producer = client.producer().build()?;
/// # for key in [b"a", b"b", b"c"] {
/// #     producer.send_and_wait("orders", &Record::new(b"placed").with_key(key)).await?;
/// # }
/// let builder = client.consumer().group("billing").topics(["orders"]).start(StartFrom::Earliest);
/// let mut consumer = builder.build().await?;
/// let stop = consumer.handle();
/// let mut seen = 0;
/// while let Some(record) = consumer.next().await? {
///     assert_eq!(record.value.as_deref(), Some(&b"placed"[..]));
///     seen += 1;
///     if seen == 3 {
///         // From anywhere, as where a signal is waited for: `next` returns none then.
///         stop.stop();
///     }
/// }
/// consumer.close().await?;
/// let committed = client.admin().committed_offsets("billing", Some("orders")).await?;
/// assert_eq!(committed.iter().map(|line| line.position.offset).sum::<u64>(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Where records are worked on side by side, each is marked when it is done, in any order. What is
/// marked ahead of one that is not is remembered by the commit, and not handed over again:
///
/// ```
/// use log_client::{Client, CommitMode, Record};
/// use log_core::{StartFrom, TopicConfig};
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let client = Client::connect(server.address().to_string()).await?;
/// # client.admin().create_topic("thumbnails", 1, &TopicConfig::default()).await?;
/// # let producer = client.producer().build()?;
/// # for name in [b"a", b"b", b"c"] {
/// #     producer.send_and_wait("thumbnails", &Record::new(name)).await?;
/// # }
/// let reader = || {
///     let builder = client.consumer().group("painters").topics(["thumbnails"]);
///     builder.start(StartFrom::Earliest).commit(CommitMode::Manual)
/// };
/// let mut consumer = reader().build().await?;
/// let first = consumer.next().await?.ok_or("stopped")?;
/// let second = consumer.next().await?.ok_or("stopped")?;
/// assert!(consumer.done(&second));
/// consumer.commit().await?;
/// consumer.close().await?;
///
/// // The first was not done: it comes again, and the second does not.
/// let mut consumer = reader().build().await?;
/// let again = consumer.next().await?.ok_or("stopped")?;
/// assert_eq!(again.offset, first.offset);
/// assert_eq!(consumer.next().await?.ok_or("stopped")?.offset, second.offset + 1);
/// consumer.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Partitions of one's own, from where one likes, a run of records at a time, which is the fast
/// way; and elsewhere with `seek`:
///
/// ```
/// use log_client::{Client, Record};
/// use log_core::{StartFrom, TopicConfig};
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let client = Client::connect(server.address().to_string()).await?;
/// # client.admin().create_topic("readings", 2, &TopicConfig::default()).await?;
/// # let producer = client.producer().build()?;
/// # let readings = [Record::new(b"17"), Record::new(b"18"), Record::new(b"19")];
/// # producer.send_batch("readings", Some(1), &readings).await?.await?;
/// let from = ("readings", 1, StartFrom::Offset(1));
/// let mut consumer = client.consumer().assign([from]).build().await?;
/// let run = consumer.next_batch().await?.ok_or("stopped")?;
/// let mut values = Vec::new();
/// for record in &run {
///     values.push(record?.value.map(<[u8]>::to_vec));
/// }
/// assert_eq!(values, [Some(b"18".to_vec()), Some(b"19".to_vec())]);
///
/// consumer.seek("readings", 1, StartFrom::Earliest).await?;
/// assert_eq!(consumer.next().await?.ok_or("stopped")?.offset, 0);
/// consumer.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What happens to its partitions is told to whoever wants to know: which were assigned, revoked,
/// lost, what was skipped, that a commit has failed.
///
/// ```
/// use log_client::{Client, ConsumerEvent};
/// use log_core::TopicConfig;
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let client = Client::connect(server.address().to_string()).await?;
/// # client.admin().create_topic("orders", 1, &TopicConfig::default()).await?;
/// let consumer = client.consumer().group("billing").topics(["orders"]).build().await?;
/// match consumer.next_event().await {
///     Some(ConsumerEvent::Assigned { of, position }) => {
///         assert_eq!((of.topic.as_ref(), of.partition, position), ("orders", 0, 0));
///     }
///     other => return Err(format!("{other:?}").into()),
/// }
/// consumer.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Consumer {
    handle: ConsumerHandle,
    /// Handed over once it is committed.
    withheld: Option<Records>,
    /// Of a run that is committed already: they go to the user, whatever happens.
    committed: std::vec::IntoIter<ConsumerRecord>,
    _tasks: JoinSet<()>,
}

impl Deref for Consumer {
    type Target = ConsumerHandle;

    fn deref(&self) -> &ConsumerHandle {
        &self.handle
    }
}

impl Consumer {
    fn start(client: &Client, shared: Arc<Shared>) -> Consumer {
        let mut tasks = JoinSet::new();
        if shared.lock().membership.is_some() {
            tasks.spawn(session::run(Arc::clone(&shared), client.new_link()));
        }
        tasks.spawn(fetcher::run(Arc::clone(&shared), client.new_link()));
        let link = client.new_link();
        if shared.group.is_some() {
            tasks.spawn(commits::run(Arc::clone(&shared), Arc::clone(&link)));
        }
        let handle = ConsumerHandle { shared, link };
        Consumer { handle, withheld: None, committed: Vec::new().into_iter(), _tasks: tasks }
    }

    /// A handle for other tasks.
    #[must_use]
    pub fn handle(&self) -> ConsumerHandle {
        self.handle.clone()
    }

    /// Waits until the group has taken this member in.
    async fn admitted(&self) -> Result<()> {
        let shared = &self.handle.shared;
        loop {
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = shared.lock();
                if let Some(error) = &state.fatal {
                    return Err(error.clone());
                }
                let membership = state.membership.as_ref();
                if membership.is_none_or(membership::Membership::was_admitted) {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    /// The next record; waits for one. None once the consumer was stopped. Giving up waiting loses
    /// nothing.
    ///
    /// # Errors
    /// `Refused`: `Fenced` if another process has taken over this member's id, for good;
    /// `OffsetOutOfRange` and `Corrupt`, of a partition that stands still then; `StaleTopic`
    /// of an assigned one that is gone. `Protocol`, or another refusal of what is fetched: told once,
    /// and tried on. At most once: why the commit failed; it is made again by the next call.
    pub async fn next(&mut self) -> Result<Option<ConsumerRecord>> {
        if self.handle.shared.settings.mode != CommitMode::AtMostOnce {
            let span = |record: &ConsumerRecord| {
                (record.source, OffsetRange::new(record.offset, record.offset.saturating_add(1)))
            };
            return self.take(Owned::take_record, span).await;
        }
        loop {
            if let Some(record) = self.committed.next() {
                return Ok(Some(record));
            }
            let Some(records) = self.next_batch().await? else { return Ok(None) };
            self.committed = records.to_owned_records()?.into_iter();
        }
    }

    /// The next run of one partition's records: the fast way. Waits for one; none once the consumer
    /// was stopped.
    ///
    /// # Errors
    /// As [`Consumer::next`].
    pub async fn next_batch(&mut self) -> Result<Option<Records>> {
        let span = |records: &Records| (records.source, records.offsets);
        loop {
            if self.withheld.is_none() {
                let taken = self.take(Owned::take_run, span).await?;
                if self.handle.shared.settings.mode != CommitMode::AtMostOnce {
                    return Ok(taken);
                }
                let Some(records) = taken else { return Ok(None) };
                self.withhold(records);
            }
            if self.handle.shared.lock().stopped {
                return Ok(None);
            }
            if let Some(records) = self.commit_first().await? {
                return Ok(Some(records));
            }
        }
    }

    /// Keeps a run until it is committed.
    fn withhold(&mut self, records: Records) {
        let mut state = self.handle.shared.lock();
        if let Some(owned) = state.partitions.get_mut(&records.source.id)
            && owned.source == records.source
        {
            owned.withholds = true;
        }
        drop(state);
        self.handle.done_run(&records);
        self.withheld = Some(records);
    }

    /// Commits the run that is withheld, and returns it. None if it is not to be handed over: the
    /// partition was taken away or sought in. It is kept if the commit fails.
    async fn commit_first(&mut self) -> Result<Option<Records>> {
        let Some(records) = &self.withheld else { return Ok(None) };
        let (source, end) = (records.source, records.offsets.end);
        let outcome = self.commit().await;
        let mut state = self.handle.shared.lock();
        let owned = state.partitions.get_mut(&source.id).filter(|owned| owned.source == source);
        let Some(owned) = owned else {
            self.withheld = None;
            return Ok(None);
        };
        let committed = owned.tracker.committed_offset() >= end;
        if !committed && owned.tracker.frontier() == end {
            return outcome.map(|()| None);
        }
        owned.withholds = false;
        Ok(self.withheld.take().filter(|_| committed))
    }

    async fn take<T>(
        &mut self,
        take: impl Fn(&mut Owned, Duration) -> Found<T>,
        span: impl Fn(&T) -> (Source, OffsetRange),
    ) -> Result<Option<T>> {
        let shared = &self.handle.shared;
        loop {
            let now = shared.now();
            let (next, send, wake, news) = {
                let mut state = shared.lock();
                let send = state.user_is_back(now);
                let next = state.next(now, &take, &span);
                (next, send, std::mem::take(&mut state.wake_fetch), state.events.take_news())
            };
            if news {
                shared.changed.notify_waiters();
            }
            if send {
                shared.session.notify_one();
            }
            if wake {
                shared.fetch.notify_one();
            }
            match next {
                Next::Found(found) => return Ok(Some(found)),
                Next::Closed(source, generation, chunk) => {
                    let run = Run::open(&chunk, shared.settings.open_limits());
                    // If it was sought or lost meanwhile, the chunk is of no use.
                    if let Some(owned) = shared.lock().owned(source, generation) {
                        owned.opened(run);
                    }
                }
                Next::Failed(error) => return Err(error),
                Next::End => return Ok(None),
                Next::Wait => shared.ready.notified().await,
            }
        }
    }

    /// Persists what is done; if what was handed over need not be marked, then all of it. From
    /// another task, [`ConsumerHandle::commit`] leaves out what is in hand.
    ///
    /// # Errors
    /// As [`ConsumerHandle::commit`].
    pub async fn commit(&mut self) -> Result<()> {
        let shared = &self.handle.shared;
        let send = shared.lock().user_is_back(shared.now());
        if send {
            shared.session.notify_one();
        }
        self.handle.commit().await
    }

    /// Ends: what was handed over counts as done and is committed, unless that is the user's to do;
    /// partitions are given back, and the group left.
    ///
    /// # Errors
    /// Why the membership had ended before, or the last commit failed; `OutcomeUnknown` if nobody
    /// has said that what was done last is committed.
    pub async fn close(self) -> Result<()> {
        self.leave(None).await
    }

    /// Ends as `close` does, but the partitions are kept for the next process with this member id,
    /// for so long: a restart moves nothing.
    ///
    /// # Errors
    /// As [`Consumer::close`].
    pub async fn leave_keep(self, keep: Duration) -> Result<()> {
        self.leave(Some(keep)).await
    }

    async fn leave(self, keep: Option<Duration>) -> Result<()> {
        let shared = &self.handle.shared;
        let (member, automatic) = {
            let now = shared.now();
            let mut state = shared.lock();
            state.user_is_back(now);
            state.closing = true;
            for owned in state.partitions.values_mut() {
                owned.drop_buffered();
            }
            let automatic = matches!(shared.settings.mode, CommitMode::Automatic { .. });
            (state.membership.is_some(), automatic)
        };
        let mut outcome = Ok(());
        // A member's release carries what is done.
        if automatic && shared.group.is_some() && (!member || keep.is_some()) {
            outcome = self.handle.commit().await;
        }
        if member {
            shared.on(Event::Leave { keep });
            let patience = shared.settings.drain_timeout + shared.settings.session_timeout;
            // Whoever is not answered has gone all the same: the server finds out by itself.
            let left = timeout(patience, self.over()).await;
            let released = shared.lock().unreleased.take().map_or(Ok(()), Err);
            outcome = left.unwrap_or(Ok(())).and(outcome).and(released);
        }
        outcome
    }

    /// Waits until the membership is over.
    async fn over(&self) -> Result<()> {
        let shared = &self.handle.shared;
        loop {
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = shared.lock();
                if state.over {
                    return state.fatal.clone().map_or(Ok(()), Err);
                }
            }
            changed.await;
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        {
            let mut state = self.handle.shared.lock();
            state.closed = true;
            // Whoever waits is told by that.
            state.commit_waiters = None;
        }
        self.handle.shared.wake_all();
    }
}
