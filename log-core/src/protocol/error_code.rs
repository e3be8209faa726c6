//! ErrorCode: what a request was refused for, as a number; Refusal: the number with its words.

use serde::{Deserialize, Serialize};

use crate::codec;
use crate::error::Error;
use crate::offset::OffsetRange;

/// The longest text of a refusal, in bytes; longer ones are cut.
const MESSAGE_MAX_BYTES: usize = 1024;

/// Why a request was refused. The numbers are the wire's and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum ErrorCode {
    /// It was not.
    Ok = 0,
    /// The request's bytes are not what they should be.
    Malformed = 1,
    /// The server does not know this kind of request.
    UnsupportedRequest = 2,
    /// The server does not know this version of the request. Numbers: the least and the greatest
    /// that it knows.
    UnsupportedVersion = 3,
    /// A hello must come first.
    HelloRequired = 4,
    /// Something is larger than its limit. Numbers: how large, the limit.
    TooLarge = 5,
    /// The server has as much of something as it may: connections, groups, requests in flight.
    LimitReached = 6,
    /// The server is stopping; connect again.
    Stopping = 7,
    /// The server still reads what it needs to answer; try again.
    Loading = 8,

    /// No topic has this name.
    UnknownTopic = 10,
    /// A topic has this name already.
    TopicExists = 11,
    /// The topic has no such partition.
    UnknownPartition = 12,
    /// A name breaks the rules for names.
    IllegalName = 13,
    /// A setting makes no sense.
    IllegalConfig = 14,
    /// No topic has this id: it was deleted, and maybe made anew under the same name.
    StaleTopic = 15,

    /// The offset is not in the partition. Numbers: the offset, `log_start`, `end`.
    OffsetOutOfRange = 20,
    /// Stored bytes are not what was written. Numbers: the offsets that can't be read, as start
    /// and end.
    Corrupt = 21,
    /// The partition does not end where it was expected to. Numbers: expected, actual.
    EndConflict = 22,
    /// The batch does not follow the format.
    MalformedBatch = 23,
    /// A batch of this producer is missing before this one. Numbers: the sequence expected, and
    /// the one that came.
    SequenceGap = 24,
    /// The partition remembers nothing of this producer, or not that far back.
    ProducerUnknown = 25,
    /// A newer instance of this producer has written.
    ProducerFenced = 26,

    /// The disk is full; nothing was changed.
    DiskFull = 30,
    /// A sync failed: whether the records are on disk is not known.
    OutcomeUnknown = 31,
    /// The partition takes no writes: its end can't be proven.
    EndUnproven = 32,
    /// The store is open for reading only.
    ReadOnly = 33,
    /// The operating system failed a call.
    Io = 34,
    /// What the request is about was closed meanwhile.
    Closed = 35,
    /// Something on disk was written by a newer release.
    NewerFormat = 36,

    /// There is no such group.
    UnknownGroup = 40,
    /// The group has no such member: join again.
    UnknownMember = 41,
    /// A newer incarnation of this member has joined: stop. Numbers: its incarnation.
    Fenced = 42,
    /// The grant is not the current one of its partition. Numbers: the epoch in force.
    StaleGrant = 43,
    /// A committed offset may not go back. Numbers: what is committed, what came.
    OffsetWentBack = 44,
    /// A committed offset may not pass the end. Numbers: the offset, the end.
    OffsetBeyondEnd = 45,
    /// The group has members, and this can't be done while it has.
    GroupInUse = 46,
    /// The members of a group do not agree on what can't differ among them.
    InconsistentGroup = 47,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [ErrorCode; 37] = [
        ErrorCode::Ok,
        ErrorCode::Malformed,
        ErrorCode::UnsupportedRequest,
        ErrorCode::UnsupportedVersion,
        ErrorCode::HelloRequired,
        ErrorCode::TooLarge,
        ErrorCode::LimitReached,
        ErrorCode::Stopping,
        ErrorCode::Loading,
        ErrorCode::UnknownTopic,
        ErrorCode::TopicExists,
        ErrorCode::UnknownPartition,
        ErrorCode::IllegalName,
        ErrorCode::IllegalConfig,
        ErrorCode::StaleTopic,
        ErrorCode::OffsetOutOfRange,
        ErrorCode::Corrupt,
        ErrorCode::EndConflict,
        ErrorCode::MalformedBatch,
        ErrorCode::SequenceGap,
        ErrorCode::ProducerUnknown,
        ErrorCode::ProducerFenced,
        ErrorCode::DiskFull,
        ErrorCode::OutcomeUnknown,
        ErrorCode::EndUnproven,
        ErrorCode::ReadOnly,
        ErrorCode::Io,
        ErrorCode::Closed,
        ErrorCode::NewerFormat,
        ErrorCode::UnknownGroup,
        ErrorCode::UnknownMember,
        ErrorCode::Fenced,
        ErrorCode::StaleGrant,
        ErrorCode::OffsetWentBack,
        ErrorCode::OffsetBeyondEnd,
        ErrorCode::GroupInUse,
        ErrorCode::InconsistentGroup,
    ];

    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The code with this number, if this release knows it.
    #[must_use]
    pub fn from_number(number: u16) -> Option<ErrorCode> {
        ErrorCode::ALL.into_iter().find(|code| code.number() == number)
    }

    /// Whether the same request may succeed later, as it is.
    #[must_use]
    pub fn is_retriable(self) -> bool {
        use ErrorCode::{DiskFull, LimitReached, Loading, Stopping};
        matches!(self, DiskFull | LimitReached | Loading | Stopping)
    }
}

/// The body of a reply that refuses. Frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The number of an [`ErrorCode`], or one that this release does not know.
    pub code: u16,
    /// For a person: what, where, and what to do.
    pub message: String,
    /// For a program: what the code says of them.
    pub numbers: Vec<u64>,
}

impl Refusal {
    /// A refusal.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        let mut message = message.into();
        if message.len() > MESSAGE_MAX_BYTES {
            message.truncate(message.floor_char_boundary(MESSAGE_MAX_BYTES));
        }
        Refusal { code: code.number(), message, numbers: Vec::new() }
    }

    /// The same with numbers.
    #[must_use]
    pub fn with_numbers(self, numbers: &[u64]) -> Refusal {
        Refusal { numbers: numbers.to_vec(), ..self }
    }

    /// Its bytes: the body of a reply, or what stands for a partition in that of a fetch.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Its code; `None` if this release does not know it.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_number(self.code)
    }

    /// Whether the same request may succeed later, as it is.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        self.error_code().is_some_and(ErrorCode::is_retriable)
    }

    /// Of `Corrupt`: the offsets that can't be read.
    #[must_use]
    pub fn corrupt_offsets(&self) -> Option<OffsetRange> {
        match (self.error_code(), self.numbers.as_slice()) {
            (Some(ErrorCode::Corrupt), &[start, end]) => Some(OffsetRange::new(start, end)),
            _ => None,
        }
    }
}

impl From<&Error> for ErrorCode {
    fn from(error: &Error) -> ErrorCode {
        match error {
            Error::DiskFull { .. } => ErrorCode::DiskFull,
            Error::Corrupt(_) | Error::CatalogDamaged { .. } => ErrorCode::Corrupt,
            Error::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            Error::EndConflict { .. } => ErrorCode::EndConflict,
            Error::IllegalName { .. } => ErrorCode::IllegalName,
            Error::IllegalConfig { .. } => ErrorCode::IllegalConfig,
            Error::UnknownTopic(_) => ErrorCode::UnknownTopic,
            Error::TopicExists(_) => ErrorCode::TopicExists,
            Error::UnknownPartition { .. } => ErrorCode::UnknownPartition,
            Error::TooLarge { .. } => ErrorCode::TooLarge,
            Error::Malformed(_) => ErrorCode::MalformedBatch,
            Error::SequenceGap { .. } => ErrorCode::SequenceGap,
            Error::ProducerUnknown { .. } => ErrorCode::ProducerUnknown,
            Error::ProducerFenced { .. } => ErrorCode::ProducerFenced,
            Error::SyncFailed { .. } => ErrorCode::OutcomeUnknown,
            Error::EndUnproven { .. } => ErrorCode::EndUnproven,
            Error::ReadOnly { .. } => ErrorCode::ReadOnly,
            Error::NewerFormat { .. } => ErrorCode::NewerFormat,
            Error::OffsetWentBack { .. } => ErrorCode::OffsetWentBack,
            Error::OffsetBeyondEnd { .. } => ErrorCode::OffsetBeyondEnd,
            Error::StaleTopic(_) | Error::UnknownTopicId(_) => ErrorCode::StaleTopic,
            Error::IllegalSettled { .. } => ErrorCode::Malformed,
            // A partition without a position was given to nobody.
            Error::GrantWentBack { .. } | Error::NoPosition { .. } => ErrorCode::StaleGrant,
            Error::Closed { .. } => ErrorCode::Closed,
            Error::Io { .. } | Error::Locked { .. } | Error::NoStore { .. } => ErrorCode::Io,
        }
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Refusal {
        let numbers = match error {
            Error::OffsetOutOfRange { offset, log_start, end } => vec![*offset, *log_start, *end],
            Error::Corrupt(corruption) => vec![corruption.offsets.start, corruption.offsets.end],
            Error::EndConflict { expected, actual } => vec![*expected, *actual],
            Error::TooLarge { actual, limit, .. } => vec![*actual, *limit],
            Error::SequenceGap { expected, actual, .. } => {
                vec![u64::from(*expected), u64::from(*actual)]
            }
            Error::GrantWentBack { granted, .. } => vec![*granted],
            Error::OffsetWentBack { committed, offset, .. } => vec![*committed, *offset],
            Error::OffsetBeyondEnd { offset, end, .. } => vec![*offset, *end],
            _ => Vec::new(),
        };
        let refusal = Refusal::new(ErrorCode::from(error), error.to_string());
        Refusal { numbers, ..refusal }
    }
}
