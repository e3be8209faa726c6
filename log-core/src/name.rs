//! TopicName and GroupName: checked once, at the edge; whoever holds one has a legal name.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// The longest name, in bytes. With an id and a partition number it must fit a directory name.
pub const NAME_MAX_BYTES: usize = 200;

/// Names with this prefix are the engine's own.
const RESERVED_PREFIX: &str = "__";

/// The name of a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// The name of a consumer group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

impl TopicName {
    /// The topic that holds the groups' committed offsets.
    #[must_use]
    pub fn offsets() -> TopicName {
        TopicName(Arc::from("__offsets"))
    }

    /// Checks a name that a user chose.
    ///
    /// # Errors
    /// `IllegalName` if it is empty, longer than [`NAME_MAX_BYTES`], `.` or `..`, has a character
    /// other than ASCII letters, digits, `.`, `_`, `-`, or begins with `__`, which is reserved.
    pub fn parse(raw: &str) -> Result<TopicName, Error> {
        if raw.starts_with(RESERVED_PREFIX) {
            return Err(illegal("topic", raw, "names that begin with __ are the engine's own"));
        }
        TopicName::parse_any(raw)
    }

    /// Checks a name that may be reserved: one read back from disk.
    ///
    /// # Errors
    /// `IllegalName`, as [`TopicName::parse`] but for the reserved prefix.
    pub fn parse_any(raw: &str) -> Result<TopicName, Error> {
        check("topic", raw)?;
        Ok(TopicName(Arc::from(raw)))
    }

    /// Whether the topic is the engine's own.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(RESERVED_PREFIX)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl GroupName {
    /// Checks a group's name: the same rules as for topics, none reserved.
    ///
    /// # Errors
    /// `IllegalName`, saying why.
    pub fn parse(raw: &str) -> Result<GroupName, Error> {
        check("group", raw)?;
        Ok(GroupName(Arc::from(raw)))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(kind: &'static str, raw: &str) -> Result<(), Error> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if raw.is_empty() {
        return Err(illegal(kind, raw, "it is empty"));
    }
    if raw.len() > NAME_MAX_BYTES {
        return Err(illegal(kind, raw, "it is longer than 200 bytes"));
    }
    if raw == "." || raw == ".." {
        return Err(illegal(kind, raw, "it means a directory"));
    }
    if !raw.chars().all(legal) {
        return Err(illegal(kind, raw, "use ASCII letters, digits, '.', '_' and '-'"));
    }
    Ok(())
}

fn illegal(kind: &'static str, raw: &str, why: &'static str) -> Error {
    Error::IllegalName { kind, name: raw.chars().take(NAME_MAX_BYTES).collect(), why }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_harm_a_path_are_refused() {
        for raw in ["", ".", "..", "a/b", "a\0b", "ä", "a b", "__x", &"x".repeat(201)] {
            let error = TopicName::parse(raw).unwrap_err();
            assert!(matches!(error, Error::IllegalName { .. }), "{raw:?}: {error}");
        }
        assert_eq!(TopicName::parse("orders.v1-eu_2").unwrap().as_str(), "orders.v1-eu_2");
        assert_eq!(GroupName::parse("__any").unwrap().as_str(), "__any");
        assert!(TopicName::offsets().is_reserved());
    }
}
