//! FakeLog: one topic in memory, which judges the numbers of producers as a partition does.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use log_core::codec;
use log_core::protocol::produce::{ProduceHead, Produced};
use log_core::protocol::topics::{PartitionEndsV1, TopicV1};
use log_core::protocol::{ErrorCode, Refusal, RequestKind};
use log_core::record::BatchView;
use log_core::{Timestamp, TopicConfig};

use crate::server::{Act, Asked};

const REMEMBERED: usize = 5;

/// The topic's name.
pub(crate) const TOPIC: &str = "orders";

/// One topic in memory.
#[derive(Default)]
pub(crate) struct FakeLog {
    pub(crate) topic_id: u128,
    pub(crate) partitions: Vec<FakePartition>,
    /// How many produces have come.
    pub(crate) produces: usize,
}

/// A producer: its epoch, and its last batches as sequence, count, offset.
type Known = (u16, VecDeque<(u32, u32, u64)>);

/// The records of one partition, and its producers.
#[derive(Default)]
pub(crate) struct FakePartition {
    pub(crate) values: Vec<Vec<u8>>,
    producers: HashMap<u64, Known>,
}

impl FakeLog {
    pub(crate) fn new(partitions: usize) -> FakeLog {
        let partitions = std::iter::repeat_with(FakePartition::default).take(partitions).collect();
        FakeLog { topic_id: 1, partitions, produces: 0 }
    }

    /// Answers as a server does that works.
    pub(crate) fn answer(&mut self, asked: &Asked) -> Act {
        match RequestKind::from_number(asked.kind) {
            Some(RequestKind::DescribeTopic) => {
                Act::Reply(Bytes::from(codec::encode(&self.told())))
            }
            Some(RequestKind::Produce) => self.append(&asked.body),
            other => panic!("nothing else is asked for: {other:?}"),
        }
    }

    fn told(&self) -> TopicV1 {
        let ends = |partition: &FakePartition| {
            let end = partition.values.len() as u64;
            Ok(PartitionEndsV1 {
                log_start: 0,
                durable_end: end,
                readable_end: end,
                end,
                bytes: 0,
                segments: 1,
            })
        };
        TopicV1 {
            name: TOPIC.to_owned(),
            id: self.topic_id,
            config: (&TopicConfig::default()).into(),
            partitions: self.partitions.iter().map(ends).collect(),
        }
    }

    fn append(&mut self, body: &[u8]) -> Act {
        self.produces += 1;
        let (head, batch) = ProduceHead::decode(body).unwrap();
        if head.topic_id != self.topic_id {
            return Act::Refuse(Refusal::new(ErrorCode::StaleTopic, "another topic"));
        }
        match self.partitions[head.partition as usize].append(batch, head.expected_end) {
            Ok(produced) => Act::Reply(Bytes::copy_from_slice(&produced.encode())),
            Err(code) => Act::Refuse(Refusal::new(code, format!("{code:?}"))),
        }
    }
}

impl FakePartition {
    fn append(&mut self, batch: &[u8], expected: Option<u64>) -> Result<Produced, ErrorCode> {
        let (view, rest) = BatchView::parse(batch).unwrap();
        assert!(rest.is_empty());
        view.check_body().unwrap();
        let header = view.header;
        let (sequence, count) = (header.base_sequence, header.record_count);
        let base_offset = self.values.len() as u64;
        let produced = |base_offset, duplicate| Produced {
            base_offset,
            end: base_offset + u64::from(count),
            append_time: Timestamp::from_millis(1),
            duplicate,
        };
        let known = self.producers.entry(header.producer_id).or_default();
        if header.producer_epoch < known.0 {
            return Err(ErrorCode::ProducerFenced);
        }
        let last = known.1.back().copied().filter(|_| header.producer_epoch == known.0);
        match last {
            None if sequence != 0 => return Err(ErrorCode::ProducerUnknown),
            None => *known = (header.producer_epoch, VecDeque::new()),
            Some((last, length, _)) => {
                let same = |one: &&(u32, u32, u64)| (one.0, one.1) == (sequence, count);
                if let Some((_, _, offset)) = known.1.iter().find(same) {
                    return Ok(produced(*offset, true));
                }
                if sequence > last + length {
                    return Err(ErrorCode::SequenceGap);
                }
                if sequence < last + length {
                    return Err(ErrorCode::ProducerUnknown);
                }
            }
        }
        if expected.is_some_and(|expected| expected != base_offset) {
            return Err(ErrorCode::EndConflict);
        }
        if known.1.len() == REMEMBERED {
            known.1.pop_front();
        }
        known.1.push_back((sequence, count, base_offset));
        for record in view.open(64 << 20).unwrap().records() {
            self.values.push(record.unwrap().value.unwrap().to_vec());
        }
        Ok(produced(base_offset, false))
    }
}
