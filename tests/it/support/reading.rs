//! Reading a whole partition, as a consumer does, and as one does that steps over damage.

use log_core::error::{Corruption, Error};
use log_core::partition::Partition;

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) offset: u64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: i64,
}

/// Everything that can be read, and what can't.
#[derive(Debug, Default)]
pub(crate) struct Everything {
    pub(crate) records: Vec<Stored>,
    pub(crate) corrupt: Vec<Corruption>,
    /// The append time of each batch.
    pub(crate) append_times: Vec<i64>,
}

/// Reads from `log_start` to the readable end, stepping over what is corrupt.
///
/// # Errors
/// Whatever else than `Corrupt` reading gives; or what is wrong with the answers themselves.
pub(crate) fn read_everything(
    partition: &Partition,
    max_bytes: usize,
) -> Result<Everything, String> {
    let mut found = Everything::default();
    let mut from = partition.ends().log_start;
    loop {
        let fetched = match partition.read(from, max_bytes) {
            Err(error) => {
                from = step_over(error, from, &mut found)?;
                continue;
            }
            Ok(fetched) if fetched.is_empty() => break,
            Ok(fetched) => fetched,
        };
        let mut visited = Vec::new();
        let outcome = fetched.for_each(|record| {
            visited.push(Stored {
                offset: record.offset,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                timestamp: record.timestamp.as_millis(),
            });
        });
        let batches = fetched.batches().filter_map(Result::ok);
        found.append_times.extend(batches.map(|batch| batch.header.append_time.as_millis()));
        found.records.extend(visited);
        if fetched.next <= from {
            return Err(format!("a read from {from} does not get on: next is {}", fetched.next));
        }
        from = match outcome {
            Ok(()) => fetched.next,
            Err(error) => step_over(error, from, &mut found)?,
        };
    }
    if from < partition.readable_end() {
        return Err(format!("nothing to read at {from}, yet {:?}", partition.ends()));
    }
    Ok(found)
}

fn step_over(error: Error, from: u64, found: &mut Everything) -> Result<u64, String> {
    let Error::Corrupt(corruption) = error else {
        return Err(format!("reading at {from}: {error}"));
    };
    let end = corruption.offsets.end;
    if end <= from {
        return Err(format!("reading at {from}: no way past {corruption}"));
    }
    found.corrupt.push(corruption);
    Ok(end)
}
