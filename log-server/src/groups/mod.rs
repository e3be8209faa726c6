//! Groups: who reads what for a consumer group, and how far it has come.

pub mod assignor;
pub mod group;
