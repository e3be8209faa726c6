//! Peers: other people's logs, on the same work. There are none without the feature `peers`.

#[cfg(feature = "peers")]
mod commitlog;
#[cfg(feature = "peers")]
mod raft_engine;
#[cfg(feature = "peers")]
mod redb;

use std::path::Path;

use crate::Outcome;

/// A log that somebody else wrote. Records are single pieces of bytes, counted from 0.
pub trait Peer: Send + Sync {
    /// Appends the messages in one go, as far as its page cache or its process.
    ///
    /// # Errors
    /// What it says.
    fn append(&mut self, messages: &[&[u8]]) -> Outcome<()>;

    /// Appends one message and waits until it is on disk; each thread uses its own number.
    ///
    /// # Errors
    /// What it says.
    fn append_durably(&self, thread: u64, message: &[u8]) -> Outcome<()>;

    /// Visits every message that [`Peer::append`] took.
    ///
    /// # Errors
    /// What it says.
    fn scan(&self, visit: &mut dyn FnMut(&[u8])) -> Outcome<()>;

    /// Reads the messages at these places.
    ///
    /// # Errors
    /// What it says; if one is not there.
    fn read_each(&self, places: &[u64], visit: &mut dyn FnMut(&[u8])) -> Outcome<()>;
}

/// What can be run of a peer, and how.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Opens it in an empty directory.
    pub open: fn(&Path) -> Outcome<Box<dyn Peer>>,
    /// Of the records that others append one by one, it gets one in so many: it is slower by
    /// more than that.
    pub one_by_one_in: u64,
    /// The same of records in batches.
    pub in_batches_in: u64,
    /// Whether it syncs what it is told to sync.
    pub is_durable: bool,
}

/// All of them.
#[cfg(feature = "peers")]
pub const ALL: &[Entry] = &[
    Entry {
        name: "commitlog",
        open: commitlog::open,
        one_by_one_in: 1,
        in_batches_in: 1,
        // Its flush() never reaches an fsync (zowens/commitlog#52).
        is_durable: false,
    },
    Entry {
        name: "raft-engine",
        open: raft_engine::open,
        one_by_one_in: 5,
        in_batches_in: 2,
        is_durable: true,
    },
    Entry {
        name: "redb",
        open: redb::open,
        one_by_one_in: 100,
        in_batches_in: 10,
        is_durable: true,
    },
];

/// All of them: none are built in.
#[cfg(not(feature = "peers"))]
pub const ALL: &[Entry] = &[];
