//! Topics: list, describe, create, delete, alter, add partitions, trim.

use serde::{Deserialize, Serialize};

use super::error_code::Refusal;
use super::{Call, RequestKind};
use crate::config::TopicConfigV1;

/// The topics there are. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListTopicsV1 {
    /// Whether the engine's own are listed, too.
    pub with_reserved: bool,
}

/// A topic in a list. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicLineV1 {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: u128,
    /// How many partitions it has.
    pub partitions: u32,
}

/// What answers [`ListTopicsV1`]. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListTopicsReplyV1 {
    /// The topics, by name.
    pub topics: Vec<TopicLineV1>,
}

/// One topic. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribeTopicV1 {
    /// Its name.
    pub name: String,
}

/// A topic with its partitions; answers all that describe, make or change one. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicV1 {
    /// Its name.
    pub name: String,
    /// Its id: another one, if it was deleted and made anew.
    pub id: u128,
    /// How it behaves.
    pub config: TopicConfigV1,
    /// Its partitions, from 0 on; the reason for one that can't be used.
    pub partitions: Vec<Result<PartitionEndsV1, Refusal>>,
}

/// Where a partition begins and ends, and what it takes. Frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionEndsV1 {
    /// The oldest offset that is left.
    pub log_start: u64,
    /// One past the newest record that is known to be on disk.
    pub durable_end: u64,
    /// One past the newest record that can be read.
    pub readable_end: u64,
    /// One past the newest record.
    pub end: u64,
    /// The bytes of its segments that are in use.
    pub bytes: u64,
    /// How many segments it has.
    pub segments: u32,
}

/// Makes a topic. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTopicV1 {
    /// Its name.
    pub name: String,
    /// How many partitions it gets.
    pub partitions: u32,
    /// How it behaves.
    pub config: TopicConfigV1,
}

/// Removes a topic and all that is in it. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTopicV1 {
    /// Its name.
    pub name: String,
}

/// Makes a topic behave otherwise. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterTopicV1 {
    /// Its name.
    pub name: String,
    /// How it behaves from now on.
    pub config: TopicConfigV1,
}

/// Gives a topic more partitions. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddPartitionsV1 {
    /// Its name.
    pub name: String,
    /// How many it has then.
    pub total: u32,
}

/// Removes the oldest records of a partition, whole segments at a time on disk. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimPartitionV1 {
    /// The topic's name.
    pub name: String,
    /// The partition.
    pub partition: u32,
    /// The oldest offset that stays.
    pub before: u64,
}

/// Nothing but success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneV1 {}

impl Call for ListTopicsV1 {
    const KIND: RequestKind = RequestKind::ListTopics;
    type Reply = ListTopicsReplyV1;
}

impl Call for DescribeTopicV1 {
    const KIND: RequestKind = RequestKind::DescribeTopic;
    type Reply = TopicV1;
}

impl Call for CreateTopicV1 {
    const KIND: RequestKind = RequestKind::CreateTopic;
    type Reply = TopicV1;
}

impl Call for DeleteTopicV1 {
    const KIND: RequestKind = RequestKind::DeleteTopic;
    type Reply = DoneV1;
}

impl Call for AlterTopicV1 {
    const KIND: RequestKind = RequestKind::AlterTopic;
    type Reply = TopicV1;
}

impl Call for AddPartitionsV1 {
    const KIND: RequestKind = RequestKind::AddPartitions;
    type Reply = TopicV1;
}

impl Call for TrimPartitionV1 {
    const KIND: RequestKind = RequestKind::TrimPartition;
    type Reply = PartitionEndsV1;
}
