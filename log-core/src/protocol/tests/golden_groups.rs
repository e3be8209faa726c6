//! Golden bytes: what is about groups and their members.

use super::{answer_is, call_is};
use crate::protocol::groups::{
    DeleteGroupV1, DescribeGroupV1, GrantV1, GroupLineV1, GroupMemberV1, GroupPartitionV1, GroupV1,
    HeartbeatReplyV1, HeartbeatV1, HeldV1, JoinGroupReplyV1, JoinGroupV1, LeaveGroupV1,
    ListGroupsReplyV1, ListGroupsV1, MemberV1, ReleasePartitionV1,
};
use crate::protocol::offsets::{PositionV1, StartV1};
use crate::protocol::{ErrorCode, Refusal};

const MEMBER: &str = "
    #01 'g'                     group
    #02 'm1'                    member
    08 07 06 05 04 03 02 01     incarnation
";

fn member() -> MemberV1 {
    let incarnation = 0x0102_0304_0506_0708;
    MemberV1 { group: "g".to_owned(), member: "m1".to_owned(), incarnation }
}

#[test]
fn join_group() {
    let join = JoinGroupV1 {
        member: member(),
        topics: vec!["a".to_owned(), "bc".to_owned()],
        start: StartV1 { kind: 3, value: -1 },
        session_timeout: 0x0102,
        drain_timeout: 0x0304,
        processing_timeout: 0x0506,
    };
    call_is(
        &join,
        30,
        &format!(
            "{MEMBER}
        #02 #01 'a' #02 'bc'  topics
        03 ff*8  start: time, 1 ms before 1970
        02 01 00*6  session timeout
        04 03 00*6  drain timeout
        06 05 00*6  processing timeout"
        ),
    );
    let reply = JoinGroupReplyV1 { heartbeat_every: 3_000, session_timeout: 10_000 };
    answer_is(
        &reply,
        "b8 0b 00*6  heartbeat every
        10 27 00*6  session timeout",
    );
}

#[test]
fn heartbeat() {
    let held = HeldV1 { topic_id: 0x0102, partition: 3, epoch: 4, draining: true };
    let heartbeat = HeartbeatV1 {
        member: member(),
        holds: vec![held],
        seen_version: 5,
        processing: 6,
        max_wait: 7,
    };
    call_is(
        &heartbeat,
        31,
        &format!(
            "{MEMBER}
        #01  holds
        02 01 00*14 03 00 00 00 04 00*7 01  topic id, partition, epoch, draining
        05 00*7  seen version
        06 00*7  processing
        07 00*7  max wait"
        ),
    );
    let grant = GrantV1 {
        topic: "t".to_owned(),
        topic_id: 0x0102,
        partition: 3,
        epoch: 4,
        position: PositionV1 { offset: 5, settled: vec![(7, 9)] },
        revoked_for: Some(6),
    };
    let kept = GrantV1 { position: PositionV1::at(8), revoked_for: None, ..grant.clone() };
    let reply = HeartbeatReplyV1 { version: 0x0a0b, grants: vec![grant, kept] };
    answer_is(
        &reply,
        "0b 0a 00*6  version
        #02  grants
        #01 't' 02 01 00*14 03 00 00 00 04 00*7  topic, topic id, partition, epoch
        05 00*7 #01 07 00*7 09 00*7  position, with a settled range
        01 06 00*7  revoked for
        #01 't' 02 01 00*14 03 00 00 00 04 00*7
        08 00*7 #00
        00  not revoked",
    );
}

#[test]
fn leave_group() {
    let leave = LeaveGroupV1 { member: member(), keep: Some(0x0102) };
    call_is(
        &leave,
        32,
        &format!(
            "{MEMBER}
        01 02 01 00*6  keep"
        ),
    );
    let leave = LeaveGroupV1 { member: member(), keep: None };
    call_is(
        &leave,
        32,
        &format!(
            "{MEMBER}
        00  drain"
        ),
    );
}

#[test]
fn release_partition() {
    let release = ReleasePartitionV1 {
        member: member(),
        topic_id: 0x0102,
        partition: 3,
        epoch: 4,
        position: Some(PositionV1 { offset: 5, settled: vec![(6, 7), (9, 11)] }),
    };
    call_is(
        &release,
        33,
        &format!(
            "{MEMBER}
        02 01 00*14 03 00 00 00 04 00*7  topic id, partition, epoch
        01 05 00*7  position
        #02 06 00*7 07 00*7 09 00*7 0b 00*7  settled"
        ),
    );
    let untouched = ReleasePartitionV1 { position: None, ..release };
    call_is(
        &untouched,
        33,
        &format!(
            "{MEMBER}
        02 01 00*14 03 00 00 00 04 00*7  topic id, partition, epoch
        00  no position"
        ),
    );
}

#[test]
fn describe_group() {
    call_is(&DescribeGroupV1 { group: "g".to_owned() }, 34, "#01 'g'  group");
    let group = GroupV1 {
        group: "g".to_owned(),
        members: vec![GroupMemberV1 {
            member: "m".to_owned(),
            incarnation: 1,
            client_id: "c".to_owned(),
            address: "a".to_owned(),
            topics: vec!["t".to_owned()],
            leaving: true,
            heard: 2,
            processing: 3,
        }],
        partitions: vec![
            GroupPartitionV1 {
                topic: "t".to_owned(),
                topic_id: 0x0102,
                partition: 3,
                owner: Some("m".to_owned()),
                epoch: 4,
                revoking: true,
                committed: Some(PositionV1::at(5)),
                committed_at: Some(-1),
                log_start: 6,
                end: 7,
                lag_time: Some(8),
                refusal: Some(Refusal::new(ErrorCode::Io, "x")),
            },
            GroupPartitionV1 {
                topic: "t".to_owned(),
                topic_id: 0x0102,
                partition: 9,
                owner: None,
                epoch: 0,
                revoking: false,
                committed: None,
                committed_at: None,
                log_start: 6,
                end: 7,
                lag_time: None,
                refusal: None,
            },
        ],
        forced: 0x0102,
    };
    answer_is(
        &group,
        "#01 'g'  group
        #01  members
        #01 'm' 01 00*7 #01 'c' #01 'a'  member, incarnation, client id, address
        #01 #01 't' 01 02 00*7 03 00*7  topics, leaving, heard, processing
        #02  partitions
        #01 't' 02 01 00*14 03 00 00 00  topic, topic id, partition
        01 #01 'm' 04 00*7 01  owner, epoch, revoking
        01 05 00*7 #00  committed
        01 ff*8  committed at
        06 00*7 07 00*7  log start, end
        01 08 00*7  lag time
        01 22 00 #01 'x' #00  refusal: code 34, message, numbers
        #01 't' 02 01 00*14 09 00 00 00
        00 00*8 00  no owner, no epoch, not revoking
        00 00 06 00*7 07 00*7 00 00  nothing committed, not behind, not refused
        02 01 00*6  forced",
    );
}

#[test]
fn list_groups() {
    call_is(&ListGroupsV1 {}, 35, "");
    let line = GroupLineV1 { group: "g".to_owned(), members: 0x0102, partitions: 0x0304 };
    answer_is(
        &ListGroupsReplyV1 { groups: vec![line] },
        "#01
        #01 'g' 02 01 00 00 04 03 00 00  group, members, partitions",
    );
}

#[test]
fn delete_group() {
    call_is(&DeleteGroupV1 { group: "g".to_owned() }, 36, "#01 'g'  group");
}
