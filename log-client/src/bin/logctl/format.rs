//! Format: how `consume -f` prints a record, with the letters of kcat.

use std::str::FromStr;

use log_core::record::RecordView;

/// The letters, for help.
pub(crate) const LETTERS: &str = "\
Formats, as -f takes them:
  %t topic   %p partition   %o offset   %T timestamp in ms   %d timestamp in RFC 3339
  %k key     %K bytes of the key, -1 if it has none
  %s value   %S bytes of the value, -1 if it has none
  %h headers, as a=1,b=2    %% a percent sign    \\n \\r \\t \\0 \\\\ as usual
Key, value and headers are printed as they are, byte for byte.";

/// A format, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Format(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Letter(char),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let letter = match c {
                '%' => chars.next().ok_or("a % stands at the end; write %% for a percent sign")?,
                '\\' => {
                    plain.push(escaped(chars.next())?);
                    continue;
                }
                c => {
                    plain.push(c);
                    continue;
                }
            };
            match letter {
                '%' => plain.push('%'),
                't' | 'p' | 'o' | 'T' | 'd' | 'k' | 'K' | 's' | 'S' | 'h' => {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Letter(letter));
                }
                other => return Err(format!("%{other} is not known; see `logctl consume --help`")),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Format(pieces))
    }
}

fn escaped(c: Option<char>) -> Result<char, String> {
    match c {
        Some('n') => Ok('\n'),
        Some('r') => Ok('\r'),
        Some('t') => Ok('\t'),
        Some('0') => Ok('\0'),
        Some('\\') => Ok('\\'),
        _ => Err("after \\ comes one of n, r, t, 0 and \\".to_owned()),
    }
}

impl Format {
    /// A record's bytes in this format, added to `out`.
    pub(crate) fn write(
        &self,
        topic: &str,
        partition: u32,
        record: &RecordView<'_>,
        out: &mut Vec<u8>,
    ) {
        for piece in &self.0 {
            let letter = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text.as_bytes());
                    continue;
                }
                Piece::Letter(letter) => letter,
            };
            let text = match letter {
                't' => topic.to_owned(),
                'p' => partition.to_string(),
                'o' => record.offset.to_string(),
                'T' => record.timestamp.as_millis().to_string(),
                'd' => crate::time::show(record.timestamp),
                'K' => length(record.key),
                'S' => length(record.value),
                'k' => {
                    out.extend_from_slice(record.key.unwrap_or_default());
                    continue;
                }
                's' => {
                    out.extend_from_slice(record.value.unwrap_or_default());
                    continue;
                }
                _ => {
                    write_headers(record, out);
                    continue;
                }
            };
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn length(field: Option<&[u8]>) -> String {
    field.map_or("-1".to_owned(), |bytes| bytes.len().to_string())
}

fn write_headers(record: &RecordView<'_>, out: &mut Vec<u8>) {
    for (nth, header) in record.headers.enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.extend_from_slice(header.name.as_bytes());
        if let Some(value) = header.value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_escapes_are_taken_apart() {
        let format: Format = r"%k:%%\t%s\n".parse().unwrap();
        let text = |text: &str| Piece::Text(text.to_owned());
        let expected = [text(""), Piece::Letter('k'), text(":%\t"), Piece::Letter('s'), text("\n")];
        assert_eq!(format.0, expected);
        for bad in ["%", "%x", "\\", "\\q", "%ä"] {
            assert!(bad.parse::<Format>().is_err(), "{bad}");
        }
    }
}
