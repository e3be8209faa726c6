//! Script: which calls of a simulated disk fail, and how.

use std::collections::BTreeMap;
use std::io;

/// The kinds of call, as they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// `Disk::open`.
    Open,
    /// `Disk::create_dir`.
    CreateDir,
    /// `Disk::list`.
    List,
    /// `Disk::rename`.
    Rename,
    /// `Disk::remove_file`.
    RemoveFile,
    /// `Disk::remove_dir`.
    RemoveDir,
    /// `Disk::sync_dir`.
    SyncDir,
    /// `Disk::lock`.
    Lock,
    /// `DiskFile::size`.
    Size,
    /// `DiskFile::read_at`.
    Read,
    /// `DiskFile::write_at`.
    Write,
    /// `DiskFile::allocate`.
    Allocate,
    /// `DiskFile::sync`.
    Sync,
    /// `DiskFile::map` and `DiskFile::map_read_only`.
    Map,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// EIO. A `sync` that fails so, or in any other way, loses what it covered: see `FaultyDisk`.
    Io,
    /// ENOSPC.
    DiskFull,
    /// A `write_at` writes only that many bytes, then EIO; other calls just fail with EIO.
    ShortWrite {
        /// How many bytes are written.
        bytes: usize,
    },
}

impl Failure {
    pub(super) fn error(self) -> io::Error {
        match self {
            Failure::Io | Failure::ShortWrite { .. } => rustix::io::Errno::IO.into(),
            Failure::DiskFull => io::Error::from(io::ErrorKind::StorageFull),
        }
    }
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Proceed,
    Fail(Failure),
    PowerOff,
}

impl Verdict {
    /// The error of a call that has no other effect when it fails.
    pub(super) fn check(self) -> io::Result<()> {
        match self {
            Verdict::Proceed => Ok(()),
            Verdict::Fail(failure) => Err(failure.error()),
            Verdict::PowerOff => Err(io::Error::other("the power is off")),
        }
    }
}

/// Some calls of one kind that fail in a row.
#[derive(Debug)]
struct Streak {
    call: Call,
    from: u64,
    count: u64,
    failure: Failure,
}

/// The calls made so far, and what is to come.
#[derive(Debug, Default)]
pub(super) struct Script {
    calls: u64,
    calls_of: BTreeMap<Call, u64>,
    failures: BTreeMap<u64, Failure>,
    streaks: Vec<Streak>,
    power_off_at: Option<u64>,
}

impl Script {
    /// Counts a call and says what happens to it.
    pub(super) fn enter(&mut self, call: Call) -> Verdict {
        let number = self.calls;
        self.calls += 1;
        let of_kind = self.calls_of.entry(call).or_insert(0);
        let number_of_kind = *of_kind;
        *of_kind += 1;
        if self.power_off_at.is_some_and(|at| number >= at) {
            return Verdict::PowerOff;
        }
        if let Some(failure) = self.failures.get(&number) {
            return Verdict::Fail(*failure);
        }
        let streak = self.streaks.iter().find(|streak| {
            streak.call == call
                && streak.from <= number_of_kind
                && number_of_kind - streak.from < streak.count
        });
        streak.map_or(Verdict::Proceed, |streak| Verdict::Fail(streak.failure))
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn calls_of(&self, call: Call) -> u64 {
        self.calls_of.get(&call).copied().unwrap_or(0)
    }

    pub(super) fn fail_at(&mut self, number: u64, failure: Failure) {
        self.failures.insert(number, failure);
    }

    pub(super) fn fail_calls(&mut self, call: Call, from: u64, count: u64, failure: Failure) {
        self.streaks.push(Streak { call, from, count, failure });
    }

    pub(super) fn power_off_at(&mut self, number: u64) {
        self.power_off_at = Some(number);
    }

    /// Nothing fails from here on; counting goes on.
    pub(super) fn clear(&mut self) {
        self.failures.clear();
        self.streaks.clear();
        self.power_off_at = None;
    }
}
