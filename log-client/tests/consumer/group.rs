//! Groups.
