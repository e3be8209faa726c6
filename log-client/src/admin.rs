//! Admin: topics, groups, committed offsets and metrics, to look at and to change.
//!
//! A call that only reads, or that does no harm twice, is tried until it is answered or its time
//! is up. What may have changed something and was not answered ends as `OutcomeUnknown`: look, then
//! decide.

use std::sync::Arc;

use log_core::protocol::groups::{
    DeleteGroupV1, DescribeGroupV1, GroupLineV1, GroupV1, ListGroupsV1,
};
use log_core::protocol::metrics::{MetricsReplyV1, MetricsV1};
use log_core::protocol::offsets::{
    CommitOffsetsV1, CommitV1, CommittedV1, FetchOffsetsV1, PositionV1, ResetOffsetsV1, ResetV1,
    ResolveOffsetReplyV1, ResolveOffsetV1,
};
use log_core::protocol::topics::{
    AddPartitionsV1, AlterTopicV1, CreateTopicV1, DeleteTopicV1, DescribeTopicV1, ListTopicsV1,
    PartitionEndsV1, TopicLineV1, TopicV1, TrimPartitionV1,
};
use log_core::protocol::{Call, Refusal};
use log_core::{Offset, StartFrom, TopicConfig};

use crate::error::Result;
use crate::link::{Link, Repeat};

/// A topic with its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its id: another one, if it was deleted and made anew.
    pub id: u128,
    /// How it behaves.
    pub config: TopicConfig,
    /// Its partitions, from 0 on; the reason for one that can't be used.
    pub partitions: Vec<std::result::Result<PartitionEndsV1, Refusal>>,
}

impl TryFrom<TopicV1> for TopicDescription {
    type Error = crate::Error;

    fn try_from(told: TopicV1) -> Result<TopicDescription> {
        let TopicV1 { name, id, config, partitions } = told;
        Ok(TopicDescription { name, id, config: TopicConfig::try_from(config)?, partitions })
    }
}

/// What is to be changed or looked at on a server. Clones share its connection.
///
/// # Examples
///
/// Topics, from their making to their end:
///
/// ```
/// use log_client::{Client, Record};
/// use log_core::{FlushPolicy, StartFrom, TopicConfig};
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let client = Client::connect(server.address().to_string()).await?;
/// let admin = client.admin();
/// admin.create_topic("orders", 2, &TopicConfig::default()).await?;
/// let relaxed = TopicConfig { flush: FlushPolicy::Os, ..TopicConfig::default() };
/// admin.alter_topic("orders", &relaxed).await?;
/// let topic = admin.add_partitions("orders", 3).await?;
/// assert_eq!((topic.partitions.len(), topic.config), (3, relaxed));
/// # let producer = client.producer().build()?;
/// # let records = [Record::new(b"1"), Record::new(b"2"), Record::new(b"3")];
/// # producer.send_batch("orders", Some(2), &records).await?.await?;
///
/// // What is below an offset goes; where reading may begin is told.
/// let ends = admin.trim_partition("orders", 2, 2).await?;
/// assert_eq!((ends.log_start, ends.end), (2, 3));
/// let first = admin.resolve_offset("orders", 2, StartFrom::Earliest).await?;
/// assert_eq!(first.offset, 2);
///
/// admin.delete_topic("orders").await?;
/// assert!(admin.list_topics(false).await?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Groups: how far they are, and how they are sent back. A dry run tells what would be done:
///
/// ```
/// use log_client::{Client, Record, ResetRun};
/// use log_core::{StartFrom, TopicConfig};
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let client = Client::connect(server.address().to_string()).await?;
/// # let admin = client.admin();
/// # admin.create_topic("orders", 1, &TopicConfig::default()).await?;
/// # let producer = client.producer().build()?;
/// # let records = [Record::new(b"1"), Record::new(b"2"), Record::new(b"3")];
/// # producer.send_batch("orders", Some(0), &records).await?.await?;
/// admin.commit_offset("billing", "orders", 0, 2).await?;
/// let group = admin.describe_group("billing").await?;
/// let line = &group.partitions[0];
/// assert_eq!(line.committed.as_ref().map(|at| line.end - at.offset), Some(1), "its lag");
///
/// let to = StartFrom::Earliest;
/// let plan = admin.reset_offsets("billing", "orders", &[], to, ResetRun::Dry).await?;
/// assert_eq!((plan[0].from, plan[0].to.clone()?), (Some(2), 0));
/// admin.reset_offsets("billing", "orders", &[], to, ResetRun::Applied).await?;
/// let committed = admin.committed_offsets("billing", None).await?;
/// assert_eq!(committed[0].position.offset, 0);
///
/// admin.delete_group("billing").await?;
/// assert!(admin.list_groups().await?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Admin {
    link: Arc<Link>,
}

impl Admin {
    pub(crate) fn new(link: Arc<Link>) -> Admin {
        Admin { link }
    }

    async fn call<C: Call>(&self, call: &C) -> Result<C::Reply> {
        self.link.call(call, self.link.deadline()).await
    }

    /// The topics there are, by name; the engine's own only if asked for.
    ///
    /// # Errors
    /// Why the server could not be asked.
    pub async fn list_topics(&self, with_reserved: bool) -> Result<Vec<TopicLineV1>> {
        Ok(self.call(&ListTopicsV1 { with_reserved }).await?.topics)
    }

    /// A topic with its partitions.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`.
    pub async fn describe_topic(&self, topic: &str) -> Result<TopicDescription> {
        self.call(&DescribeTopicV1 { name: topic.to_owned() }).await?.try_into()
    }

    /// Makes a topic.
    ///
    /// # Errors
    /// `Refused` with `TopicExists`, `IllegalName`, `IllegalConfig`, `LimitReached`;
    /// `OutcomeUnknown`.
    pub async fn create_topic(
        &self,
        topic: &str,
        partitions: u32,
        config: &TopicConfig,
    ) -> Result<TopicDescription> {
        let name = topic.to_owned();
        self.call(&CreateTopicV1 { name, partitions, config: config.into() }).await?.try_into()
    }

    /// Makes a topic behave otherwise from now on.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`, `IllegalConfig`; `OutcomeUnknown`.
    pub async fn alter_topic(&self, topic: &str, config: &TopicConfig) -> Result<TopicDescription> {
        self.call(&AlterTopicV1 { name: topic.to_owned(), config: config.into() }).await?.try_into()
    }

    /// Gives a topic more partitions: `total` then. Records of a key that go to another partition
    /// from now on are not in one order with those before.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`, `IllegalConfig`; `OutcomeUnknown`.
    pub async fn add_partitions(&self, topic: &str, total: u32) -> Result<TopicDescription> {
        self.call(&AddPartitionsV1 { name: topic.to_owned(), total }).await?.try_into()
    }

    /// Removes a topic and all that is in it.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`; `OutcomeUnknown`.
    pub async fn delete_topic(&self, topic: &str) -> Result<()> {
        self.call(&DeleteTopicV1 { name: topic.to_owned() }).await.map(drop)
    }

    /// Removes the records below `before`. Returns where the partition begins and ends then.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`, `UnknownPartition`, `OffsetOutOfRange`; `OutcomeUnknown`.
    pub async fn trim_partition(
        &self,
        topic: &str,
        partition: u32,
        before: Offset,
    ) -> Result<PartitionEndsV1> {
        self.call(&TrimPartitionV1 { name: topic.to_owned(), partition, before }).await
    }

    /// The offset that a way of starting means now.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`, `UnknownPartition`, `OffsetOutOfRange`.
    pub async fn resolve_offset(
        &self,
        topic: &str,
        partition: u32,
        start: StartFrom,
    ) -> Result<ResolveOffsetReplyV1> {
        let topic_id = self.describe_topic(topic).await?.id;
        self.call(&ResolveOffsetV1 { topic_id, partition, start: start.into() }).await
    }

    /// The groups there are, by name.
    ///
    /// # Errors
    /// Why the server could not be asked.
    pub async fn list_groups(&self) -> Result<Vec<GroupLineV1>> {
        Ok(self.call(&ListGroupsV1 {}).await?.groups)
    }

    /// A group with its members and partitions.
    ///
    /// # Errors
    /// `Refused` with `UnknownGroup`.
    pub async fn describe_group(&self, group: &str) -> Result<GroupV1> {
        self.call(&DescribeGroupV1 { group: group.to_owned() }).await
    }

    /// Forgets a group without members, and what it has committed.
    ///
    /// # Errors
    /// `Refused` with `UnknownGroup`, `GroupInUse`; `OutcomeUnknown`.
    pub async fn delete_group(&self, group: &str) -> Result<()> {
        self.call(&DeleteGroupV1 { group: group.to_owned() }).await.map(drop)
    }

    /// What a group has committed: for one topic, or for all.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`.
    pub async fn committed_offsets(
        &self,
        group: &str,
        topic: Option<&str>,
    ) -> Result<Vec<CommittedV1>> {
        let (group, topic) = (group.to_owned(), topic.map(str::to_owned));
        Ok(self.call(&FetchOffsetsV1 { group, topic }).await?.committed)
    }

    /// Commits the next offset to read, for a group without members. Never back: that is a reset.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`, `UnknownPartition`, `OffsetWentBack`, `OffsetBeyondEnd`,
    /// `GroupInUse`; `OutcomeUnknown`.
    pub async fn commit_offset(
        &self,
        group: &str,
        topic: &str,
        partition: u32,
        offset: Offset,
    ) -> Result<()> {
        let topic_id = self.describe_topic(topic).await?.id;
        let position = PositionV1::at(offset);
        let commit = CommitV1 { topic_id, partition, epoch: 0, position, metadata: String::new() };
        let commits = vec![commit];
        let call = CommitOffsetsV1 { group: group.to_owned(), member: None, commits };
        let refused = self.call(&call).await?.outcomes.into_iter().flatten().next();
        refused.map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    /// Sets the committed offsets of some partitions, or of all if none is named; back, too.
    /// Members that hold them lose them first. A dry run tells what would be done.
    ///
    /// # Errors
    /// `Refused` with `UnknownTopic`, `UnknownPartition`; `OutcomeUnknown`.
    pub async fn reset_offsets(
        &self,
        group: &str,
        topic: &str,
        partitions: &[u32],
        to: StartFrom,
        run: ResetRun,
    ) -> Result<Vec<ResetV1>> {
        let dry_run = run == ResetRun::Dry;
        let call = ResetOffsetsV1 {
            group: group.to_owned(),
            topic: topic.to_owned(),
            partitions: partitions.to_vec(),
            to: to.into(),
            dry_run,
        };
        let repeat = if dry_run { Repeat::Always } else { Repeat::IfUnsent };
        Ok(self.link.call_as(&call, repeat, self.link.deadline()).await?.resets)
    }

    /// What the server has counted since it started.
    ///
    /// # Errors
    /// Why the server could not be asked.
    pub async fn metrics(&self) -> Result<MetricsReplyV1> {
        self.call(&MetricsV1 {}).await
    }
}

/// Whether a reset is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetRun {
    /// It is only told what would be done.
    Dry,
    /// It is.
    Applied,
}
