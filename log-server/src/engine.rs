//! Engine: the one place where async meets the engine; what may block goes to a thread of its own.

use bytes::Bytes;
use log_core::protocol::{ErrorCode, Refusal};
use log_core::{Appended, Error, Fetched, Offset, Partition, Result};

/// How far ahead of a reader the log is read into memory.
const AHEAD_BYTES: u64 = 8 * 1024 * 1024;

/// Appends a batch here and now, if that is a matter of copying it; `None` if it has to wait for
/// something. Nothing was done then.
#[inline]
pub(crate) fn try_write(
    partition: &Partition,
    batch: &[u8],
    expected_end: Option<Offset>,
) -> Option<Result<Appended>> {
    partition.try_write_batch(batch, expected_end)
}

/// Appends a batch, and waits for what there is to wait for. Not for an I/O thread.
pub(crate) fn write(
    partition: &Partition,
    batch: &Bytes,
    expected_end: Option<Offset>,
) -> Result<Appended> {
    partition.write_batch(batch, expected_end)
}

/// Reads batches that are likely to be in memory; `None` if they may have to come from the disk.
pub(crate) fn try_read(
    partition: &Partition,
    from: Offset,
    max_bytes: usize,
) -> Option<Result<Fetched>> {
    if !partition.is_in_memory(from, max_bytes) {
        return None;
    }
    let fetched = partition.read(from, max_bytes);
    if let Some(ahead) = fetched.as_ref().ok().and_then(|fetched| fetched.ahead(AHEAD_BYTES)) {
        tokio::task::spawn_blocking(|| ahead.read());
    }
    Some(fetched)
}

/// Reads batches, and waits for the disk. Not for an I/O thread.
pub(crate) fn read(partition: &Partition, from: Offset, max_bytes: usize) -> Result<Fetched> {
    // The disk is at what comes next while this is sent.
    partition.will_need(from, AHEAD_BYTES + max_bytes as u64);
    let fetched = partition.read(from, max_bytes)?;
    fetched.populate()?;
    Ok(fetched)
}

/// Asks for a sync of what lies below `end`, without waiting for it.
pub(crate) fn ask_for_sync(partition: &Partition, end: Offset) {
    partition.when_durable(end, |_| ());
}

/// Runs `work`, which may block, on a thread for that.
///
/// # Errors
/// What `work` refuses; `Stopping` if the server ends before it has run.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, Refusal> + Send + 'static,
) -> std::result::Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(joined) => match joined.try_into_panic() {
            // It ends the connection that has asked for it.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Refusal::new(ErrorCode::Stopping, "the server is stopping")),
        },
    }
}

/// What a peer is told of an error of the engine that concerns a topic known by its id.
pub(crate) fn refusal_by_id(error: &Error) -> Refusal {
    match error {
        Error::Closed { what } => {
            let why = format!("{what} is closed, or was deleted: look the topic up again");
            Refusal::new(ErrorCode::StaleTopic, why)
        }
        error => Refusal::from(error),
    }
}
