//! Output: results on stdout, as text or as JSON, an object a line.

use std::fmt::Write as _;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::failure::{Failure, Result};

/// Where results go.
pub(crate) struct Output {
    json: bool,
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        Output { json, out: BufWriter::with_capacity(64 * 1024, io::stdout().lock()) }
    }

    /// Whether results are wanted as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// An object, on a line of its own.
    pub(crate) fn object(&mut self, object: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.out, object)
            .map_err(|error| Failure::Output(error.into()))?;
        self.bytes(b"\n")
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(Failure::Output)
    }

    /// A fact: as JSON or as text, as it is wanted.
    pub(crate) fn fact(&mut self, object: &impl Serialize, text: &str) -> Result<()> {
        if self.json { self.object(object) } else { self.line(text) }
    }

    /// Lines in columns; the first is the heading. Columns of numbers are flush right.
    pub(crate) fn table(&mut self, rows: &[Vec<String>]) -> Result<()> {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column| rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = (0..columns)
            .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
            .collect();
        // Names of files and times begin with digits, too.
        let is_number =
            |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains('-');
        let numeric: Vec<bool> =
            (0..columns).map(|column| cells(column).skip(1).all(is_number)).collect();
        for row in rows {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&numeric) {
                // A `String` takes everything.
                let _ = if *right {
                    write!(line, "{cell:>width$}  ")
                } else {
                    write!(line, "{cell:<width$}  ")
                };
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Hands over what is buffered.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(Failure::Output)
    }
}

/// How many there are of something, in words.
pub(crate) fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ if one.ends_with("ch") => format!("{number} {one}es"),
        _ => format!("{number} {one}s"),
    }
}

/// Bytes as text that can do no harm to a terminal: what is no UTF-8, and what controls, escaped.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => text.extend(c.escape_default()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Bytes in base64, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            let used = digit <= three.len();
            text.push(if used { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            (count(1, "record"), count(0, "batch")),
            ("1 record".into(), "0 batches".into())
        );
    }

    #[test]
    fn what_controls_a_terminal_is_escaped() {
        assert_eq!(printable(b"a\x1b[2J\xff\tb\\\n"), r"a\u{1b}[2J\xff\tb\\\n");
        assert_eq!(printable("ä€".as_bytes()), "ä€");
        assert_eq!(printable("\u{9b}".as_bytes()), r"\u{9b}");
    }
}
