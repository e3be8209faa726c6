//! Topics: list, describe, create, delete, alter, add partitions, trim.

use std::sync::Arc;

use log_core::config::TopicConfigV1;
use log_core::protocol::topics::{
    AddPartitionsV1, AlterTopicV1, CreateTopicV1, DeleteTopicV1, DescribeTopicV1, DoneV1,
    ListTopicsReplyV1, ListTopicsV1, PartitionEndsV1, TopicLineV1, TopicV1, TrimPartitionV1,
};
use log_core::protocol::{ErrorCode, Refusal};
use log_core::{Error, Partition, Store, TopicConfig, TopicName};

use crate::context::{Context, Peer};
use crate::engine;

/// The topics there are.
pub(crate) async fn list(
    context: &Context,
    _peer: &Peer,
    request: ListTopicsV1,
) -> Result<ListTopicsReplyV1, Refusal> {
    let store = &context.store;
    let topics = if request.with_reserved { store.all_topics() } else { store.topics() };
    let lines = topics.iter().map(|topic| TopicLineV1 {
        name: topic.name().as_str().to_owned(),
        id: topic.id(),
        partitions: topic.partition_count(),
    });
    Ok(ListTopicsReplyV1 { topics: lines.collect() })
}

/// One topic, an engine's own, too.
pub(crate) async fn describe(
    context: &Context,
    _peer: &Peer,
    request: DescribeTopicV1,
) -> Result<TopicV1, Refusal> {
    let name = TopicName::parse_any(&request.name).map_err(refused)?;
    described(&context.store, &name)
}

/// Makes a topic.
pub(crate) async fn create(
    context: &Context,
    _peer: &Peer,
    request: CreateTopicV1,
) -> Result<TopicV1, Refusal> {
    let name = TopicName::parse(&request.name).map_err(refused)?;
    let config = legal_config(context, request.config)?;
    let partitions = request.partitions;
    change(context, move |store| {
        store.create_topic(&name, partitions, config).map_err(refused)?;
        described(store, &name)
    })
    .await
}

/// Removes a topic.
pub(crate) async fn delete(
    context: &Context,
    _peer: &Peer,
    request: DeleteTopicV1,
) -> Result<DoneV1, Refusal> {
    let name = TopicName::parse(&request.name).map_err(refused)?;
    change(context, move |store| store.delete_topic(&name).map_err(refused)).await?;
    Ok(DoneV1 {})
}

/// Makes a topic behave otherwise.
pub(crate) async fn alter(
    context: &Context,
    _peer: &Peer,
    request: AlterTopicV1,
) -> Result<TopicV1, Refusal> {
    let name = TopicName::parse(&request.name).map_err(refused)?;
    let config = legal_config(context, request.config)?;
    let store = context.store.clone();
    let altered = engine::blocking(move || {
        store.alter_topic(&name, config).map_err(refused)?;
        described(&store, &name)
    });
    altered.await
}

/// Gives a topic more partitions.
pub(crate) async fn add_partitions(
    context: &Context,
    _peer: &Peer,
    request: AddPartitionsV1,
) -> Result<TopicV1, Refusal> {
    let name = TopicName::parse(&request.name).map_err(refused)?;
    let total = request.total;
    change(context, move |store| {
        store.add_partitions(&name, total).map_err(refused)?;
        described(store, &name)
    })
    .await
}

/// Removes the oldest records of a partition.
pub(crate) async fn trim(
    context: &Context,
    _peer: &Peer,
    request: TrimPartitionV1,
) -> Result<PartitionEndsV1, Refusal> {
    let name = TopicName::parse(&request.name).map_err(refused)?;
    let topic = context.store.topic(&name).map_err(refused)?;
    let partition = topic.partition(request.partition).map_err(refused)?;
    let trimmed = engine::blocking(move || {
        partition.trim(request.before).map_err(refused)?;
        Ok(ends_of(&partition))
    });
    trimmed.await
}

/// Changes which topics there are, and tells the groups: whatever comes of it, and though nobody may
/// wait for it any more.
async fn change<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce(&Store) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let (store, coordinator) = (context.store.clone(), Arc::clone(&context.coordinator));
    engine::blocking(move || {
        let outcome = work(&store);
        coordinator.topics_changed();
        outcome
    })
    .await
}

fn refused(error: Error) -> Refusal {
    Refusal::from(&error)
}

/// The settings of a topic, if they are legal, and if a frame can hold its batches.
fn legal_config(context: &Context, config: TopicConfigV1) -> Result<TopicConfig, Refusal> {
    let illegal = |why: String| Refusal::new(ErrorCode::IllegalConfig, why);
    let config = TopicConfig::try_from(config).map_err(|fault| illegal(fault.to_string()))?;
    let (batch, most) = (config.batch_max_bytes as usize, context.config.fetch_max_bytes());
    if batch > most {
        let why = format!(
            "illegal value for batch_max_bytes: {batch} is over {most}, what a frame of this \
             server can hold; raise its frame_max_bytes"
        );
        return Err(illegal(why));
    }
    Ok(config)
}

fn described(store: &Store, name: &TopicName) -> Result<TopicV1, Refusal> {
    let topic = store.topic(name).map_err(refused)?;
    let ends = |slot: Result<Partition, Error>| match slot {
        Ok(partition) => Ok(ends_of(&partition)),
        Err(error) => Err(refused(error)),
    };
    Ok(TopicV1 {
        name: name.as_str().to_owned(),
        id: topic.id(),
        config: TopicConfigV1::from(&topic.config()),
        partitions: topic.partitions().into_iter().map(ends).collect(),
    })
}

fn ends_of(partition: &Partition) -> PartitionEndsV1 {
    let readable_end = partition.readable_end();
    let ends = partition.ends();
    PartitionEndsV1 {
        log_start: ends.log_start,
        durable_end: ends.durable_end,
        readable_end,
        end: ends.end,
        bytes: partition.used_bytes(),
        segments: u32::try_from(partition.segment_count()).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{Future, poll_fn};
    use std::task::Poll;
    use std::time::Duration;

    use log_core::protocol::groups::{DescribeGroupV1, JoinGroupV1, ListGroupsV1, MemberV1};
    use log_core::protocol::offsets::StartV1;

    #[tokio::test]
    async fn groups_are_told_of_a_change_for_whose_outcome_nobody_waits() {
        let dir = tempfile::tempdir().unwrap();
        let context = Context::in_dir(dir.path());
        let address = "127.0.0.1:9".parse().unwrap();
        let peer = Peer { id: 1, client_id: String::new(), address };
        while context.coordinator.list(&peer, ListGroupsV1 {}).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let name = || "events".to_owned();
        let config = TopicConfigV1::from(&TopicConfig::default());
        let make = CreateTopicV1 { name: name(), partitions: 1, config };
        create(&context, &peer, make).await.unwrap();
        let member = MemberV1 { group: "g".to_owned(), member: "m".to_owned(), incarnation: 1 };
        let join = JoinGroupV1 {
            member: member.clone(),
            topics: vec![name()],
            start: StartV1 { kind: 0, value: 0 },
            session_timeout: 10_000,
            drain_timeout: 10_000,
            processing_timeout: 10_000,
        };
        context.coordinator.join(&peer, join).await.unwrap();

        let more = AddPartitionsV1 { name: name(), total: 2 };
        let mut adding = Box::pin(add_partitions(&context, &peer, more));
        let polled = poll_fn(|cx| Poll::Ready(adding.as_mut().poll(cx).is_pending()));
        assert!(polled.await);
        drop(adding);
        let mut known = 1;
        for _ in 0..2_000 {
            let describe = DescribeGroupV1 { group: "g".to_owned() };
            known = context.coordinator.describe(&peer, describe).await.unwrap().partitions.len();
            if known == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(known, 2);
    }
}
