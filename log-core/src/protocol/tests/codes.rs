//! Numbers of the wire: each means what it always meant, and none is missing from its list.

use std::collections::BTreeSet;

use crate::protocol::{ErrorCode, RequestKind};

/// The numbers, written down a second time. A new code has to be put here and into `ALL`.
fn number_of_code(code: ErrorCode) -> u16 {
    match code {
        ErrorCode::Ok => 0,
        ErrorCode::Malformed => 1,
        ErrorCode::UnsupportedRequest => 2,
        ErrorCode::UnsupportedVersion => 3,
        ErrorCode::HelloRequired => 4,
        ErrorCode::TooLarge => 5,
        ErrorCode::LimitReached => 6,
        ErrorCode::Stopping => 7,
        ErrorCode::Loading => 8,
        ErrorCode::UnknownTopic => 10,
        ErrorCode::TopicExists => 11,
        ErrorCode::UnknownPartition => 12,
        ErrorCode::IllegalName => 13,
        ErrorCode::IllegalConfig => 14,
        ErrorCode::StaleTopic => 15,
        ErrorCode::OffsetOutOfRange => 20,
        ErrorCode::Corrupt => 21,
        ErrorCode::EndConflict => 22,
        ErrorCode::MalformedBatch => 23,
        ErrorCode::SequenceGap => 24,
        ErrorCode::ProducerUnknown => 25,
        ErrorCode::ProducerFenced => 26,
        ErrorCode::DiskFull => 30,
        ErrorCode::OutcomeUnknown => 31,
        ErrorCode::EndUnproven => 32,
        ErrorCode::ReadOnly => 33,
        ErrorCode::Io => 34,
        ErrorCode::Closed => 35,
        ErrorCode::NewerFormat => 36,
        ErrorCode::UnknownGroup => 40,
        ErrorCode::UnknownMember => 41,
        ErrorCode::Fenced => 42,
        ErrorCode::StaleGrant => 43,
        ErrorCode::OffsetWentBack => 44,
        ErrorCode::OffsetBeyondEnd => 45,
        ErrorCode::GroupInUse => 46,
        ErrorCode::InconsistentGroup => 47,
    }
}

/// As for codes.
fn number_of_kind(kind: RequestKind) -> u16 {
    match kind {
        RequestKind::Hello => 0,
        RequestKind::Authenticate => 1,
        RequestKind::Metrics => 2,
        RequestKind::Produce => 10,
        RequestKind::Fetch => 11,
        RequestKind::ResolveOffset => 12,
        RequestKind::ListTopics => 20,
        RequestKind::DescribeTopic => 21,
        RequestKind::CreateTopic => 22,
        RequestKind::DeleteTopic => 23,
        RequestKind::AlterTopic => 24,
        RequestKind::AddPartitions => 25,
        RequestKind::TrimPartition => 26,
        RequestKind::JoinGroup => 30,
        RequestKind::Heartbeat => 31,
        RequestKind::LeaveGroup => 32,
        RequestKind::ReleasePartition => 33,
        RequestKind::DescribeGroup => 34,
        RequestKind::ListGroups => 35,
        RequestKind::DeleteGroup => 36,
        RequestKind::CommitOffsets => 40,
        RequestKind::FetchOffsets => 41,
        RequestKind::ResetOffsets => 42,
    }
}

/// How many arms the two have.
const CODES: usize = 37;
const KINDS: usize = 23;

#[test]
fn each_error_code_has_its_number() {
    let numbers: BTreeSet<u16> = ErrorCode::ALL.into_iter().map(number_of_code).collect();
    assert_eq!((ErrorCode::ALL.len(), numbers.len()), (CODES, CODES), "all, and once");
    for code in ErrorCode::ALL {
        assert_eq!(code.number(), number_of_code(code));
        assert_eq!(ErrorCode::from_number(code.number()), Some(code));
    }
    let known = (0..=u16::MAX).filter(|number| ErrorCode::from_number(*number).is_some());
    assert_eq!(known.count(), CODES);
}

#[test]
fn each_request_has_its_number() {
    let numbers: BTreeSet<u16> = RequestKind::ALL.into_iter().map(number_of_kind).collect();
    assert_eq!((RequestKind::ALL.len(), numbers.len()), (KINDS, KINDS), "all, and once");
    for kind in RequestKind::ALL {
        assert_eq!(kind.number(), number_of_kind(kind));
        assert_eq!(RequestKind::from_number(kind.number()), Some(kind));
    }
    let known = (0..=u16::MAX).filter(|number| RequestKind::from_number(*number).is_some());
    assert_eq!(known.count(), KINDS);
}
