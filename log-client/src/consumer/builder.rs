//! ConsumerBuilder: says what is read, by whom, from where, and how.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use log_core::clock::{Clock, SystemClock};
use log_core::protocol::ErrorCode;
use log_core::protocol::groups::{MEMBER_ID_MAX_BYTES, MemberV1};
use log_core::protocol::offsets::{FetchOffsetsV1, PositionV1};
use log_core::protocol::topics::{DescribeTopicV1, TopicV1};
use log_core::{GroupName, StartFrom};
use tokio::time::timeout;

use super::Consumer;
use super::handle::resolve;
use super::membership::{Membership, MembershipConfig, PartitionId, new_incarnation};
use super::settings::{CommitMode, OnCorrupt, OutOfRange, Settings};
use super::state::Shared;
use crate::backoff::random_number;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::link::Link;

/// How much of the client's id is in a member id that is made up.
const OWN_ID_MAX_BYTES: usize = 100;

/// What is read.
#[derive(Debug, Clone, Default)]
enum Reading {
    /// The topics, shared with the other members of the group.
    #[default]
    Shared,
    /// These partitions, alone.
    Assigned(Vec<(String, u32, StartFrom)>),
    /// All of the topics, alone, from their ends.
    Broadcast,
}

/// Says what a consumer reads, and how. Begins with [`Client::consumer`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ConsumerBuilder {
    client: Client,
    group: Option<String>,
    topics: Vec<String>,
    reading: Reading,
    start: StartFrom,
    member_id: Option<String>,
    settings: Settings,
}

impl Client {
    /// A consumer: say what it reads, then build it.
    pub fn consumer(&self) -> ConsumerBuilder {
        ConsumerBuilder {
            client: self.clone(),
            group: None,
            topics: Vec::new(),
            reading: Reading::default(),
            start: StartFrom::Latest,
            member_id: None,
            settings: Settings::default(),
        }
    }
}

impl ConsumerBuilder {
    /// The group to be a member of; of a consumer with partitions of its own, the one to commit to.
    pub fn group(mut self, group: impl Into<String>) -> ConsumerBuilder {
        self.group = Some(group.into());
        self
    }

    /// The topics to read.
    pub fn topics<T: Into<String>>(
        mut self,
        topics: impl IntoIterator<Item = T>,
    ) -> ConsumerBuilder {
        self.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// Reads these partitions alone, whoever else does. With a group, each starts where that has
    /// committed, if it has.
    pub fn assign<T: Into<String>>(
        mut self,
        partitions: impl IntoIterator<Item = (T, u32, StartFrom)>,
    ) -> ConsumerBuilder {
        let named = partitions.into_iter().map(|(topic, number, at)| (topic.into(), number, at));
        self.reading = Reading::Assigned(named.collect());
        self
    }

    /// Reads all that is appended to the topics from now on, whoever else does. Partitions that are
    /// added later are not read.
    pub fn broadcast(mut self) -> ConsumerBuilder {
        self.reading = Reading::Broadcast;
        self
    }

    /// Where partitions start for which the group has committed nothing, when it first reads their
    /// topic; at the end, if this is not said.
    pub fn start(mut self, start: StartFrom) -> ConsumerBuilder {
        self.start = start;
        self
    }

    /// A fixed id: a process that starts again under it takes over from the one before. Without
    /// one, each consumer is a member of its own.
    pub fn member_id(mut self, id: impl Into<String>) -> ConsumerBuilder {
        self.member_id = Some(id.into());
        self
    }

    /// When what is handed over is done, and committed.
    pub fn commit(mut self, mode: CommitMode) -> ConsumerBuilder {
        self.settings.mode = mode;
        self
    }

    /// How long a commit is tried before it fails.
    pub fn commit_timeout(mut self, timeout: Duration) -> ConsumerBuilder {
        self.settings.commit_timeout = timeout;
        self
    }

    /// What to do about an offset that is not there.
    pub fn on_out_of_range(mut self, policy: OutOfRange) -> ConsumerBuilder {
        self.settings.out_of_range = policy;
        self
    }

    /// What to do about damaged records.
    pub fn on_corrupt(mut self, policy: OnCorrupt) -> ConsumerBuilder {
        self.settings.on_corrupt = policy;
        self
    }

    /// The member counts as gone when the server hears nothing of it for so long.
    pub fn session_timeout(mut self, timeout: Duration) -> ConsumerBuilder {
        self.settings.session_timeout = timeout;
        self
    }

    /// How long it may take to finish what is in hand of a partition that moves.
    pub fn drain_timeout(mut self, timeout: Duration) -> ConsumerBuilder {
        self.settings.drain_timeout = timeout;
        self
    }

    /// How long a record may be in hand: past it, everything is given up.
    pub fn processing_timeout(mut self, timeout: Duration) -> ConsumerBuilder {
        self.settings.processing_timeout = timeout;
        self
    }

    /// How far above what is done records are handed over.
    pub fn max_ahead(mut self, records: u64) -> ConsumerBuilder {
        self.settings.max_ahead = records;
        self
    }

    /// The most bytes that wait to be handed over: of a partition, and of all.
    pub fn prefetch(mut self, partition_bytes: u32, all_bytes: u32) -> ConsumerBuilder {
        self.settings.partition_bytes = partition_bytes;
        self.settings.prefetch_bytes = all_bytes;
        self
    }

    /// The most that a compressed batch may expand to; one that would be more counts as damaged.
    /// At most so much beside what is fetched is in memory for each partition.
    pub fn batch_max_expanded_bytes(mut self, bytes: u32) -> ConsumerBuilder {
        self.settings.batch_max_expanded_bytes = bytes;
        self
    }

    /// Starts to read.
    ///
    /// # Errors
    /// `InvalidArgument`; `Refused`, as for a topic that does not exist; why the server can't be
    /// reached.
    pub async fn build(mut self) -> Result<Consumer> {
        self.settings.check()?;
        let frame_max_bytes = self.client.config().frame_max_bytes;
        self.settings.frame_max_bytes = usize::try_from(frame_max_bytes).unwrap_or(usize::MAX);
        if let Some(group) = &self.group {
            GroupName::parse(group).map_err(|error| Error::invalid(error.to_string()))?;
        }
        if self.member_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > MEMBER_ID_MAX_BYTES)
        {
            let most = MEMBER_ID_MAX_BYTES;
            return Err(Error::invalid(format!(
                "a member id has one byte at least, {most} at most"
            )));
        }
        match self.reading.clone() {
            Reading::Shared => self.join().await,
            Reading::Assigned(partitions) => self.read(partitions).await,
            Reading::Broadcast => {
                let mut partitions = Vec::new();
                for name in &self.topics {
                    let topic = describe(self.client.link(), name).await?;
                    let numbers = 0..u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
                    partitions.extend(numbers.map(|at| (name.clone(), at, StartFrom::Latest)));
                }
                self.read(partitions).await
            }
        }
    }

    async fn join(self) -> Result<Consumer> {
        let Some(group) = self.group.clone() else {
            return Err(Error::invalid("say the group, or assign partitions, or broadcast"));
        };
        if self.topics.is_empty() {
            return Err(Error::invalid("say the topics to read"));
        }
        let random = random_number();
        let own_id = || {
            let mut id = self.client.config().client_id.clone();
            id.truncate(id.floor_char_boundary(OWN_ID_MAX_BYTES));
            format!("{id}-{random:016x}")
        };
        let member = MemberV1 {
            group: group.clone(),
            member: self.member_id.clone().unwrap_or_else(own_id),
            incarnation: new_incarnation(SystemClock::new().now(), random),
        };
        let membership = Membership::new(MembershipConfig {
            member,
            topics: self.topics.clone(),
            start: self.start.into(),
            session_timeout: self.settings.session_timeout,
            drain_timeout: self.settings.drain_timeout,
            processing_timeout: self.settings.processing_timeout,
        });
        let patience = self.client.config().request_timeout;
        let shared = Shared::new(self.settings, Some(group), Some(membership));
        let consumer = Consumer::start(&self.client, shared);
        let late = || Error::TimedOut { what: "joining the group".to_owned() };
        timeout(patience, consumer.admitted()).await.map_err(|_| late())??;
        Ok(consumer)
    }

    async fn read(self, partitions: Vec<(String, u32, StartFrom)>) -> Result<Consumer> {
        if partitions.is_empty() {
            return Err(Error::invalid("say the partitions to read"));
        }
        let automatic = matches!(self.settings.mode, CommitMode::Automatic { .. });
        if self.group.is_none() && !automatic {
            return Err(Error::invalid("without a group there is nowhere to commit to"));
        }
        let link = self.client.link();
        let mut topics: BTreeMap<String, TopicV1> = BTreeMap::new();
        let mut starts = Vec::new();
        for (name, number, start) in partitions {
            if !topics.contains_key(&name) {
                topics.insert(name.clone(), describe(link, &name).await?);
            }
            let topic = &topics[&name];
            let count = topic.partitions.len();
            if usize::try_from(number).map_or(true, |number| number >= count) {
                let what = format!("topic {name} has {count} partitions, and none is {number}");
                return Err(Error::invalid(what));
            }
            let id = PartitionId { topic_id: topic.id, partition: number };
            let position = match self.committed(link, &name, id).await? {
                Some(position) => position,
                None => PositionV1::at(resolve(link, id, start).await?),
            };
            starts.push((name, id, position));
        }
        let shared = Shared::new(self.settings, self.group, None);
        for (name, id, position) in starts {
            shared.lock().assign(Arc::from(name), id, 0, &position);
        }
        Ok(Consumer::start(&self.client, shared))
    }

    async fn committed(
        &self,
        link: &Link,
        topic: &str,
        id: PartitionId,
    ) -> Result<Option<PositionV1>> {
        let Some(group) = self.group.clone() else { return Ok(None) };
        let call = FetchOffsetsV1 { group, topic: Some(topic.to_owned()) };
        match link.call(&call, link.deadline()).await {
            Ok(reply) => {
                let mut lines = reply.committed.into_iter();
                let found = lines
                    .find(|line| (line.topic_id, line.partition) == (id.topic_id, id.partition));
                Ok(found.map(|line| line.position))
            }
            Err(error) if error.code() == Some(ErrorCode::UnknownGroup) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

async fn describe(link: &Link, name: &str) -> Result<TopicV1> {
    link.call(&DescribeTopicV1 { name: name.to_owned() }, link.deadline()).await
}
