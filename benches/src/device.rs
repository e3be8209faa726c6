//! Device: how many bytes the block device under a directory has written.
//!
//! The kernel counts them for the whole device: what others write there counts too.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Outcome;

/// The kernel counts sectors of this size, whatever the device's own.
const SECTOR_BYTES: u64 = 512;
/// Reads, merged, sectors, milliseconds; writes, merged, then this one.
const SECTORS_WRITTEN_AT: usize = 6;

/// A block device's counters.
#[derive(Debug)]
pub struct Device {
    counters: PathBuf,
}

impl Device {
    /// The device that holds `dir`.
    ///
    /// # Errors
    /// If there is none that can be asked: memory and network file systems have none.
    pub fn under(dir: &Path) -> Outcome<Device> {
        let number = fs::metadata(dir)?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = Device { counters: format!("/sys/dev/block/{major}:{minor}/stat").into() };
        let shown = dir.display();
        device.written_bytes().map_err(|error| {
            let counters = device.counters.display();
            format!("{shown}: no block device to ask ({counters}: {error}); try another --dir")
        })?;
        Ok(device)
    }

    /// How many bytes it has written since the machine started.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn written_bytes(&self) -> Outcome<u64> {
        let text = fs::read_to_string(&self.counters)?;
        let sectors = text.split_whitespace().nth(SECTORS_WRITTEN_AT).ok_or("too few counters")?;
        Ok(sectors.parse::<u64>()? * SECTOR_BYTES)
    }
}
