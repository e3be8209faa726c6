//! The page on the protocol tells the numbers that the code has.

use crate::protocol::frame::FRAME_HEAD_BYTES;
use crate::protocol::hello::{CLIENT_ID_MAX_BYTES, HELLO_LIMIT_BYTES};
use crate::protocol::{CONTROL_LIMIT_BYTES, DEFAULT_PORT, ErrorCode, RequestKind};

const PAGE: &str = include_str!("../../../../docs/protocol.md");

fn has_row(cells: &[String]) -> bool {
    let row = |line: &str| {
        let mut found = line.trim_matches('|').split('|').map(str::trim);
        cells.iter().all(|cell| found.next() == Some(cell.as_str()))
    };
    PAGE.lines().filter(|line| line.starts_with('|')).any(row)
}

#[test]
fn every_error_code_has_its_row() {
    for code in ErrorCode::ALL.into_iter().filter(|code| *code != ErrorCode::Ok) {
        let retriable = if code.is_retriable() { "yes" } else { "" };
        let cells = [code.number().to_string(), format!("`{code:?}`"), retriable.to_owned()];
        assert!(has_row(&cells), "docs/protocol.md has no row {cells:?}");
    }
}

#[test]
fn every_request_has_its_row() {
    for kind in RequestKind::ALL {
        let cells = [kind.number().to_string(), format!("`{kind:?}`")];
        assert!(has_row(&cells), "docs/protocol.md has no row {cells:?}");
    }
}

#[test]
fn limits_are_as_told() {
    for (told, number) in [
        ("`HELLO_LIMIT_BYTES`", HELLO_LIMIT_BYTES),
        ("`CLIENT_ID_MAX_BYTES`", CLIENT_ID_MAX_BYTES),
        ("`CONTROL_LIMIT_BYTES`", CONTROL_LIMIT_BYTES),
        ("`FRAME_HEAD_BYTES`", FRAME_HEAD_BYTES),
        ("`MEMBER_ID_MAX_BYTES`", crate::protocol::groups::MEMBER_ID_MAX_BYTES),
        ("`FETCH_PARTITIONS_MAX`", crate::protocol::fetch::FETCH_PARTITIONS_MAX),
        ("`DEFAULT_PORT`", usize::from(DEFAULT_PORT)),
    ] {
        let cells = [told.to_owned(), number.to_string()];
        assert!(has_row(&cells), "docs/protocol.md has no row {cells:?}");
    }
}
