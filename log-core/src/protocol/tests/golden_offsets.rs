//! Golden bytes: resolve, commit, fetch and reset offsets.

use super::{answer_is, call_is};
use crate::clock::Timestamp;
use crate::offset::StartFrom;
use crate::protocol::offsets::{
    CommitOffsetsReplyV1, CommitOffsetsV1, CommitV1, CommittedV1, FetchOffsetsReplyV1,
    FetchOffsetsV1, PositionV1, ResetOffsetsReplyV1, ResetOffsetsV1, ResetV1, ResolveOffsetReplyV1,
    ResolveOffsetV1, StartV1,
};
use crate::protocol::{ErrorCode, Refusal};

#[test]
fn resolve_offset() {
    let start = StartV1::from(StartFrom::Offset(u64::MAX - 1));
    let resolve = ResolveOffsetV1 { topic_id: 0x0102, partition: 3, start };
    call_is(
        &resolve,
        12,
        "02 01 00*14 03 00 00 00  topic id, partition
        02 fe ff*7  start: this offset",
    );
    let reply = ResolveOffsetReplyV1 { offset: 1, log_start: 2, readable_end: 3 };
    answer_is(&reply, "01 00*7 02 00*7 03 00*7  offset, log start, readable end");
}

#[test]
fn ways_to_start() {
    for (start, kind, value) in [
        (StartFrom::Earliest, 0, 0),
        (StartFrom::Latest, 1, 0),
        (StartFrom::Offset(7), 2, 7),
        (StartFrom::Offset(u64::MAX), 2, -1),
        (StartFrom::Time(Timestamp::from_millis(-5)), 3, -5),
    ] {
        let wire = StartV1 { kind, value };
        assert_eq!(StartV1::from(start), wire);
        assert_eq!(StartFrom::try_from(wire), Ok(start));
    }
    for (kind, value) in [(0, 1), (1, -1), (4, 0), (255, 7)] {
        assert!(StartFrom::try_from(StartV1 { kind, value }).is_err(), "{kind} {value}");
    }
}

#[test]
fn commit_offsets() {
    let commit = CommitV1 {
        topic_id: 0x0102,
        partition: 3,
        epoch: 4,
        position: PositionV1 { offset: 5, settled: vec![(7, 9)] },
        metadata: "x".to_owned(),
    };
    let of_member = CommitOffsetsV1 {
        group: "g".to_owned(),
        member: Some(("m".to_owned(), 0x0102)),
        commits: vec![commit.clone()],
    };
    call_is(
        &of_member,
        40,
        "#01 'g'  group
        01 #01 'm' 02 01 00*6  member, incarnation
        #01  commits
        02 01 00*14 03 00 00 00 04 00*7  topic id, partition, epoch
        05 00*7 #01 07 00*7 09 00*7  position, with a settled range
        #01 'x'  metadata",
    );
    let commit = CommitV1 { epoch: 0, position: PositionV1::at(5), ..commit };
    let of_nobody = CommitOffsetsV1 { member: None, commits: vec![commit], ..of_member };
    call_is(
        &of_nobody,
        40,
        "#01 'g'  group
        00  no member
        #01 02 01 00*14 03 00 00 00 00*8 05 00*7 #00 #01 'x'  commits",
    );
    let refusal = Refusal::new(ErrorCode::OffsetWentBack, "no").with_numbers(&[8, 5]);
    answer_is(
        &CommitOffsetsReplyV1 { outcomes: vec![None, Some(refusal)] },
        "#02
        00  it is durable
        01 2c 00 #02 'no' #02 08 00*7 05 00*7  it is not: code 44, message, numbers",
    );
}

#[test]
fn fetch_offsets() {
    let all = FetchOffsetsV1 { group: "g".to_owned(), topic: None };
    call_is(&all, 41, "#01 'g' 00  group, no topic");
    let one = FetchOffsetsV1 { group: "g".to_owned(), topic: Some("t".to_owned()) };
    call_is(&one, 41, "#01 'g' 01 #01 't'  group, topic");
    let committed = CommittedV1 {
        topic: "t".to_owned(),
        topic_id: 0x0102,
        partition: 3,
        position: PositionV1 { offset: 4, settled: vec![(6, 7)] },
        clamped_from: Some(9),
        metadata: "x".to_owned(),
        committed_at: -1,
    };
    let usual = CommittedV1 { clamped_from: None, ..committed.clone() };
    answer_is(
        &FetchOffsetsReplyV1 { committed: vec![committed, usual] },
        "#02
        #01 't' 02 01 00*14 03 00 00 00  topic, topic id, partition
        04 00*7 #01 06 00*7 07 00*7  position
        01 09 00*7  clamped from
        #01 'x' ff*8  metadata, committed at
        #01 't' 02 01 00*14 03 00 00 00 04 00*7 #01 06 00*7 07 00*7
        00  not clamped
        #01 'x' ff*8",
    );
}

#[test]
fn reset_offsets() {
    let reset = ResetOffsetsV1 {
        group: "g".to_owned(),
        topic: "t".to_owned(),
        partitions: vec![0x0102, 3],
        to: StartV1::from(StartFrom::Latest),
        dry_run: true,
    };
    call_is(
        &reset,
        42,
        "#01 'g' #01 't'  group, topic
        #02 02 01 00 00 03 00 00 00  partitions
        01 00*8  to the end
        01  dry run",
    );
    let refusal = Refusal::new(ErrorCode::EndUnproven, "x");
    let resets = vec![
        ResetV1 { partition: 1, from: Some(2), to: Ok(3) },
        ResetV1 { partition: 4, from: None, to: Err(refusal) },
    ];
    answer_is(
        &ResetOffsetsReplyV1 { resets },
        "#02
        01 00 00 00 01 02 00*7 00 00 00 00 03 00*7  partition, from, to
        04 00 00 00 00 01 00 00 00 20 00 #01 'x' #00  partition, nothing before, why not",
    );
}
