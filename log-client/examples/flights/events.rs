//! Events: the flights of a file, each with its number among those of its aircraft.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::Result;

/// A line of the file.
pub(crate) struct Flight {
    /// Its aircraft, by tail number: the key.
    pub(crate) aircraft: String,
    /// The number among its aircraft's flights, from 0, and the line: the payload.
    pub(crate) payload: String,
}

/// The number that stands before the line in a payload.
pub(crate) fn number_of(payload: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(payload)?;
    let (number, _) = text.split_once(',').ok_or("a payload without a number")?;
    Ok(number.parse()?)
}

/// Reads them all.
pub(crate) fn read(path: &Path) -> Result<Vec<Flight>> {
    let mut lines = open(path)?.lines();
    let heading = lines.next().ok_or("the file is empty")??;
    let column = heading.split(',').position(|column| column == "tailnum");
    let column = column.ok_or("the first line names no column tailnum")?;
    let mut numbers: HashMap<String, u64> = HashMap::new();
    let mut flights = Vec::new();
    for line in lines {
        let line = line?;
        let aircraft = line.split(',').nth(column).ok_or("a line has too few columns")?.to_owned();
        let number = numbers.entry(aircraft.clone()).or_default();
        let payload = format!("{number},{line}");
        *number += 1;
        flights.push(Flight { aircraft, payload });
    }
    Ok(flights)
}

#[expect(clippy::disallowed_methods, reason = "the file is the user's, not the engine's")]
fn open(path: &Path) -> Result<BufReader<Box<dyn Read>>> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    let file = BufReader::new(file);
    let unpacked: Box<dyn Read> =
        if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    Ok(BufReader::new(unpacked))
}
