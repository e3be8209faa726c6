//! Consumer: reads topics, alone or as a member of a group.

#[doc(hidden)]
pub mod committer;
#[doc(hidden)]
pub mod membership;
