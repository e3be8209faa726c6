//! Error: every way in which a call can fail, and what the caller may conclude from it.

use log_core::Fault;
use log_core::protocol::{ErrorCode, FrameTooLong, Refusal};

/// What calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. All but [`Error::OutcomeUnknown`] say that nothing was changed; of a call
/// that only reads, `TimedOut` says nothing more than that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has refused.
    #[error("refused by the server: {0}")]
    Refused(#[from] Refusal),
    /// The server can't be reached, or the connection to it was lost.
    #[error("no connection to {address}: {why}")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What happened.
        why: String,
    },
    /// There was no answer within the time given.
    #[error("{what} took longer than it may")]
    TimedOut {
        /// What.
        what: String,
    },
    /// The request may or may not have been carried out.
    #[error("whether it was done is not known: {why}")]
    OutcomeUnknown {
        /// What happened.
        why: String,
    },
    /// The server has sent what this release does not understand.
    #[error("the server's answer can't be read: {0}")]
    Protocol(Fault),
    /// What was asked for it is closed.
    #[error("{what} is closed")]
    Closed {
        /// What.
        what: &'static str,
    },
    /// An argument makes no sense.
    #[error("{what}")]
    InvalidArgument {
        /// Which, and what it should be.
        what: String,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Error {
        Error::InvalidArgument { what: what.into() }
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Error {
        Error::OutcomeUnknown { why: why.into() }
    }

    /// Whether the same call may succeed later, as it is. Never so for `OutcomeUnknown`: only the
    /// caller can tell whether doing it twice does harm.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Error::Refused(refusal) => refusal.is_retriable(),
            Error::Unreachable { .. } | Error::TimedOut { .. } => true,
            _ => false,
        }
    }

    /// The code of a refusal, if the server has refused and this release knows the code.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Error::Refused(refusal) => refusal.error_code(),
            _ => None,
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::Protocol(fault)
    }
}

impl From<FrameTooLong> for Error {
    fn from(frame: FrameTooLong) -> Error {
        Error::Protocol(Fault::Structure { what: frame.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_succeed_later_is_told_from_what_never_will() {
        let refused = |code| Error::from(Refusal::new(code, "why"));
        assert!(refused(ErrorCode::Loading).is_retriable());
        assert!(!refused(ErrorCode::UnknownTopic).is_retriable());
        assert!(!Error::unknown("cut").is_retriable());
        assert_eq!(refused(ErrorCode::TooLarge).code(), Some(ErrorCode::TooLarge));
        assert_eq!(Error::invalid("x").code(), None);
    }
}
