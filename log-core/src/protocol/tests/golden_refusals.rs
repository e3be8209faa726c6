//! Refusals: their bytes, and which one each error of the engine becomes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{answer_is, drawn};
use crate::error::{Corruption, Error, Fault};
use crate::name::TopicName;
use crate::offset::OffsetRange;
use crate::protocol::frame::encode_refusal;
use crate::protocol::{ErrorCode, Refusal};

#[test]
fn a_refusal_is_what_it_always_was() {
    let refusal = Refusal::new(ErrorCode::OffsetOutOfRange, "é").with_numbers(&[1, 0x0203]);
    let body = "14 00 #02 c3 a9  code 20, message
        #02 01 00*7 03 02 00*6  numbers";
    answer_is(&refusal, body);
    let head = [0x2c, 0, 0, 0, 0x14, 0, 0, 0, 4, 3, 2, 1];
    let golden = [head.as_slice(), &drawn(body).bytes].concat();
    assert_eq!(encode_refusal(&refusal, 0x0102_0304), golden);
}

#[test]
fn a_long_message_is_cut_between_characters() {
    for (text, left) in [("x".repeat(1_024), 1_024), ("x".repeat(9_999), 1_024)] {
        assert_eq!(Refusal::new(ErrorCode::Io, text).message.len(), left);
    }
    let odd = format!("x{}", "é".repeat(900));
    assert_eq!(Refusal::new(ErrorCode::Io, odd).message.len(), 1_023);
}

#[test]
fn what_a_later_release_says_is_not_misread() {
    let refusal = Refusal { code: 9_999, message: "new".to_owned(), numbers: vec![1, 2] };
    assert_eq!((refusal.error_code(), refusal.is_retriable()), (None, false));
    assert_eq!(refusal.corrupt_offsets(), None);
    let corrupt = Refusal::new(ErrorCode::Corrupt, "").with_numbers(&[3, 5]);
    assert_eq!(corrupt.corrupt_offsets(), Some(OffsetRange::new(3, 5)));
    assert_eq!(corrupt.with_numbers(&[3]).corrupt_offsets(), None);
}

/// All errors of the engine with the refusal that each becomes: code and numbers.
fn errors() -> Vec<(Error, ErrorCode, Vec<u64>)> {
    let topic = || TopicName::parse("orders").unwrap();
    let path = || PathBuf::from("/data/x");
    let source = || Arc::new(io::Error::other("broken"));
    let (group, name) = ("g".to_owned(), "n".to_owned());
    let fault = Fault::FileMissing;
    let offsets = OffsetRange::new(3, 5);
    let corruption = Corruption { path: path(), position: 9, offsets, fault: fault.clone() };
    let io = Error::Io { action: "open", path: path(), source: source() };
    let range = Error::OffsetOutOfRange { offset: 1, log_start: 2, end: 3 };
    let partition = Error::UnknownPartition { topic: topic(), partition: 7, partitions: 2 };
    let gap = Error::SequenceGap { producer_id: 1, expected: 2, actual: 3 };
    let fenced = Error::ProducerFenced { producer_id: 1, epoch: 2, current: 3 };
    let newer = Error::NewerFormat { path: path(), found: 2, supported: 1 };
    let back = Error::OffsetWentBack {
        group: group.clone(),
        topic: topic(),
        partition: 0,
        committed: 8,
        offset: 5,
    };
    let (settled, grant, nowhere) = (
        Error::IllegalSettled { group: group.clone(), topic: topic(), partition: 0, why: "w" },
        Error::GrantWentBack {
            group: group.clone(),
            topic: topic(),
            partition: 0,
            granted: 6,
            epoch: 5,
        },
        Error::NoPosition { group: group.clone(), topic: topic(), partition: 0 },
    );
    let beyond = Error::OffsetBeyondEnd { group, topic: topic(), partition: 0, offset: 9, end: 7 };
    let config = Error::IllegalConfig { setting: "partitions", why: "0".to_owned() };
    vec![
        (io, ErrorCode::Io, vec![]),
        (Error::DiskFull { action: "write", path: path() }, ErrorCode::DiskFull, vec![]),
        (Error::Corrupt(corruption), ErrorCode::Corrupt, vec![3, 5]),
        (range, ErrorCode::OffsetOutOfRange, vec![1, 2, 3]),
        (Error::EndConflict { expected: 1, actual: 2 }, ErrorCode::EndConflict, vec![1, 2]),
        (Error::IllegalName { kind: "topic", name, why: "w" }, ErrorCode::IllegalName, vec![]),
        (config, ErrorCode::IllegalConfig, vec![]),
        (Error::UnknownTopic(topic()), ErrorCode::UnknownTopic, vec![]),
        (Error::TopicExists(topic()), ErrorCode::TopicExists, vec![]),
        (partition, ErrorCode::UnknownPartition, vec![]),
        (Error::TooLarge { what: "record", actual: 9, limit: 8 }, ErrorCode::TooLarge, vec![9, 8]),
        (Error::Malformed(fault.clone()), ErrorCode::MalformedBatch, vec![]),
        (gap, ErrorCode::SequenceGap, vec![2, 3]),
        (
            Error::ProducerUnknown { producer_id: 1, sequence: 2 },
            ErrorCode::ProducerUnknown,
            vec![],
        ),
        (fenced, ErrorCode::ProducerFenced, vec![]),
        (Error::SyncFailed { path: path(), source: source() }, ErrorCode::OutcomeUnknown, vec![]),
        (Error::EndUnproven { path: path(), at_least: 4 }, ErrorCode::EndUnproven, vec![]),
        (Error::ReadOnly { path: path() }, ErrorCode::ReadOnly, vec![]),
        (Error::Locked { path: path() }, ErrorCode::Io, vec![]),
        (Error::NoStore { path: path() }, ErrorCode::Io, vec![]),
        (newer, ErrorCode::NewerFormat, vec![]),
        (back, ErrorCode::OffsetWentBack, vec![8, 5]),
        (beyond, ErrorCode::OffsetBeyondEnd, vec![9, 7]),
        (Error::StaleTopic(topic()), ErrorCode::StaleTopic, vec![]),
        (Error::CatalogDamaged { path: path(), fault }, ErrorCode::Corrupt, vec![]),
        (Error::Closed { what: "topic" }, ErrorCode::Closed, vec![]),
        (Error::UnknownTopicId(7), ErrorCode::StaleTopic, vec![]),
        (settled, ErrorCode::Malformed, vec![]),
        (grant, ErrorCode::StaleGrant, vec![6]),
        (nowhere, ErrorCode::StaleGrant, vec![]),
    ]
}

/// Where an error stands in `errors`. A new one has to be put there, too.
fn place(error: &Error) -> usize {
    match error {
        Error::Io { .. } => 0,
        Error::DiskFull { .. } => 1,
        Error::Corrupt(_) => 2,
        Error::OffsetOutOfRange { .. } => 3,
        Error::EndConflict { .. } => 4,
        Error::IllegalName { .. } => 5,
        Error::IllegalConfig { .. } => 6,
        Error::UnknownTopic(_) => 7,
        Error::TopicExists(_) => 8,
        Error::UnknownPartition { .. } => 9,
        Error::TooLarge { .. } => 10,
        Error::Malformed(_) => 11,
        Error::SequenceGap { .. } => 12,
        Error::ProducerUnknown { .. } => 13,
        Error::ProducerFenced { .. } => 14,
        Error::SyncFailed { .. } => 15,
        Error::EndUnproven { .. } => 16,
        Error::ReadOnly { .. } => 17,
        Error::Locked { .. } => 18,
        Error::NoStore { .. } => 19,
        Error::NewerFormat { .. } => 20,
        Error::OffsetWentBack { .. } => 21,
        Error::OffsetBeyondEnd { .. } => 22,
        Error::StaleTopic(_) => 23,
        Error::CatalogDamaged { .. } => 24,
        Error::Closed { .. } => 25,
        Error::UnknownTopicId(_) => 26,
        Error::IllegalSettled { .. } => 27,
        Error::GrantWentBack { .. } => 28,
        Error::NoPosition { .. } => 29,
    }
}

#[test]
fn every_error_of_the_engine_has_its_refusal() {
    for (at, (error, code, numbers)) in errors().into_iter().enumerate() {
        assert_eq!(place(&error), at);
        let refusal = Refusal::from(&error);
        assert_eq!((refusal.error_code(), &refusal.numbers), (Some(code), &numbers), "{error}");
        assert_eq!(refusal.message, error.to_string());
    }
}
