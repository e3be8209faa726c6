//! Golden bytes: hello, metrics, and what is about topics.

use std::time::Duration;

use super::{answer_is, call_is};
use crate::config::{FlushPolicy, RetentionPolicy, TopicConfig, TopicConfigV1};
use crate::protocol::hello::{HelloReplyV1, HelloV1, VersionsV1};
use crate::protocol::metrics::{MetricV1, MetricsReplyV1, MetricsV1};
use crate::protocol::topics::{
    AddPartitionsV1, AlterTopicV1, CreateTopicV1, DeleteTopicV1, DescribeTopicV1, DoneV1,
    ListTopicsReplyV1, ListTopicsV1, PartitionEndsV1, TopicLineV1, TopicV1, TrimPartitionV1,
};
use crate::protocol::{ErrorCode, Refusal};

/// What `config` is on the wire.
const CONFIG: &str = "
    01                          flush: interval
    c8 00*7                     every 200 ms
    00 00 10 00 00*4            or 1 MiB
    01 00 5c 26 05 00*4         retention: 86,400,000 ms
    00                          and no bytes
    00 00 00 40 00*4            segments of 1 GiB
    01 04 03 02 01 00*4         or this age
    00 10 00 00                 records of 4 KiB
    00 00 10 00                 batches of 1 MiB
    00 00 80 00                 expanded to 8 MiB
    03 00 00 00                 headers
    01                          strict
    07 00 00 00                 producers
    02 01 00*6                  for 258 ms
";

fn config() -> TopicConfigV1 {
    TopicConfigV1::from(&TopicConfig {
        flush: FlushPolicy::Interval { every: Duration::from_millis(200), bytes: 1 << 20 },
        retention: RetentionPolicy { max_age: Some(Duration::from_hours(24)), max_bytes: None },
        segment_max_bytes: 1 << 30,
        segment_max_age: Some(Duration::from_millis(0x0102_0304)),
        record_max_bytes: 1 << 12,
        batch_max_bytes: 1 << 20,
        batch_max_expanded_bytes: 8 << 20,
        headers_max: 3,
        strict: true,
        producers_max: 7,
        producer_expiry: Duration::from_millis(258),
    })
}

#[test]
fn hello() {
    let hello = HelloV1 { client_id: "ab".to_owned(), software: "c 1".to_owned() };
    call_is(
        &hello,
        0,
        "#02 'ab'  client id
        #03 'c' 20 '1'  software",
    );
    let reply = HelloReplyV1 {
        server_version: "0.1".to_owned(),
        boot_id: 0x0102_0304_0506_0708,
        server_time: -2,
        versions: vec![
            VersionsV1 { kind: 0, min: 1, max: 1 },
            VersionsV1 { kind: 0x0a0b, min: 2, max: 0x0304 },
        ],
        frame_max_bytes: 0x0102_0304,
        produce_in_flight_max: 5,
        fetch_in_flight_max: 6,
        authentication: vec!["x".to_owned()],
    };
    answer_is(
        &reply,
        "#03 '0.1'  server version
        08 07 06 05 04 03 02 01  boot id
        fe ff*7  server time
        #02  versions
        00 00 01 00 01 00  kind, min, max
        0b 0a 02 00 04 03
        04 03 02 01  frame max bytes
        05 00 00 00  produce in flight
        06 00 00 00  fetch in flight
        #01 #01 'x'  authentication",
    );
}

#[test]
fn metrics() {
    call_is(&MetricsV1 {}, 2, "");
    let metric = MetricV1 { name: "n".to_owned(), value: 0x0102 };
    let reply = MetricsReplyV1 { server_version: "1".to_owned(), uptime: 3, metrics: vec![metric] };
    answer_is(
        &reply,
        "#01 '1'  server version
        03 00*7  uptime
        #01 #01 'n' 02 01 00*6  metrics",
    );
}

#[test]
fn list_topics() {
    call_is(&ListTopicsV1 { with_reserved: true }, 20, "01  with reserved");
    let line = TopicLineV1 { name: "orders".to_owned(), id: 0x0102, partitions: 3 };
    answer_is(
        &ListTopicsReplyV1 { topics: vec![line] },
        "#01
        #06 'orders'  name
        02 01 00*14  id
        03 00 00 00  partitions",
    );
}

#[test]
fn describe_topic() {
    call_is(&DescribeTopicV1 { name: "orders".to_owned() }, 21, "#06 'orders'  name");
    let ends = PartitionEndsV1 {
        log_start: 1,
        durable_end: 2,
        readable_end: 3,
        end: 4,
        bytes: 5,
        segments: 6,
    };
    let refusal = Refusal::new(ErrorCode::Corrupt, "bad").with_numbers(&[5, 6]);
    let topic = TopicV1 {
        name: "t".to_owned(),
        id: 1 << 127,
        config: config(),
        partitions: vec![Ok(ends), Err(refusal)],
    };
    let body = format!(
        "#01 't'  name
        00*15 80  id
        {CONFIG}
        #02  partitions
        00 00 00 00  one that can be used:
        01 00*7 02 00*7 03 00*7 04 00*7  log start, durable end, readable end, end
        05 00*7 06 00*3  bytes, segments
        01 00 00 00  one that can't be:
        15 00 #03 'bad'  code 21, message
        #02 05 00*7 06 00*7  numbers"
    );
    answer_is(&topic, &body);
}

#[test]
fn create_topic() {
    let create = CreateTopicV1 { name: "t".to_owned(), partitions: 0x0102, config: config() };
    call_is(
        &create,
        22,
        &format!(
            "#01 't'  name
        02 01 00 00  partitions
        {CONFIG}"
        ),
    );
    let meant = TopicConfig::try_from(create.config).unwrap();
    assert_eq!(TopicConfigV1::from(&meant), config());
}

#[test]
fn delete_topic() {
    call_is(&DeleteTopicV1 { name: "t".to_owned() }, 23, "#01 't'  name");
    answer_is(&DoneV1 {}, "");
}

#[test]
fn alter_topic() {
    let alter = AlterTopicV1 { name: "t".to_owned(), config: config() };
    call_is(
        &alter,
        24,
        &format!(
            "#01 't'  name
        {CONFIG}"
        ),
    );
}

#[test]
fn add_partitions() {
    let add = AddPartitionsV1 { name: "t".to_owned(), total: 0x0304 };
    call_is(
        &add,
        25,
        "#01 't'  name
        04 03 00 00  total",
    );
}

#[test]
fn trim_partition() {
    let trim = TrimPartitionV1 { name: "t".to_owned(), partition: 2, before: 0x0304 };
    call_is(
        &trim,
        26,
        "#01 't'  name
        02 00 00 00  partition
        04 03 00*6  before",
    );
    let ends = PartitionEndsV1 {
        log_start: 1,
        durable_end: 2,
        readable_end: 3,
        end: 4,
        bytes: 5,
        segments: 6,
    };
    answer_is(
        &ends,
        "01 00*7 02 00*7 03 00*7 04 00*7  log start, durable end, readable end, end
        05 00*7 06 00*3  bytes, segments",
    );
}
