//! Shown: a record as `consume` prints it, as a line of text or as JSON.

use log_core::offset::Offset;
use log_core::record::RecordView;
use serde::Serialize;

use crate::output::{base64, printable};
use crate::time;

/// A record as a line of text.
pub(crate) fn line(partition: u32, record: &RecordView<'_>) -> String {
    let field = |field: Option<&[u8]>| field.map_or("-".to_owned(), printable);
    let (offset, at) = (record.offset, time::show(record.timestamp));
    let mut line =
        format!("{partition}\t{offset}\t{at}\t{}\t{}", field(record.key), field(record.value));
    for header in record.headers {
        line += &format!("\t{}={}", printable(header.name.as_bytes()), field(header.value));
    }
    line.push('\n');
    line
}

/// A record as JSON.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    topic: &'a str,
    partition: u32,
    offset: Offset,
    timestamp: i64,
    key: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_encoding: Option<&'static str>,
    value: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_encoding: Option<&'static str>,
    headers: Vec<ShownHeader<'a>>,
}

#[derive(Serialize)]
struct ShownHeader<'a> {
    name: &'a str,
    value: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_encoding: Option<&'static str>,
}

/// Bytes as JSON can hold them.
#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Utf8(&'a str),
    Base64(String),
}

impl<'a> Shown<'a> {
    pub(crate) fn new(topic: &'a str, partition: u32, record: &RecordView<'a>) -> Shown<'a> {
        let (key, key_encoding) = Text::of(record.key);
        let (value, value_encoding) = Text::of(record.value);
        let headers = record.headers.map(|header| {
            let (value, value_encoding) = Text::of(header.value);
            ShownHeader { name: header.name, value, value_encoding }
        });
        Shown {
            topic,
            partition,
            offset: record.offset,
            timestamp: record.timestamp.as_millis(),
            key,
            key_encoding,
            value,
            value_encoding,
            headers: headers.collect(),
        }
    }
}

impl Text<'_> {
    /// The text, and the marker that tells it from plain text.
    fn of(field: Option<&[u8]>) -> (Option<Text<'_>>, Option<&'static str>) {
        match field.map(|bytes| (bytes, str::from_utf8(bytes))) {
            None => (None, None),
            Some((_, Ok(text))) => (Some(Text::Utf8(text)), None),
            Some((bytes, Err(_))) => (Some(Text::Base64(base64(bytes))), Some("base64")),
        }
    }
}
