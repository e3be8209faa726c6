//! Report: a row as lines for people, and as a JSON object for programs.

use benches::stats::Figure;
use serde_json::{Map, Value, json};

use crate::row::{Against, Bar, Bound, Part, Row};

pub(crate) fn head() -> String {
    columns(["id", "unit", "ours", "control", "ratio", "bars"])
}

/// A line for each part, and one for its peers.
pub(crate) fn lines(id: &str, row: &Row) -> String {
    let mut lines = Vec::new();
    for (part, index) in row.parts.iter().zip(0..) {
        let bars = part.bars.iter().map(|bar| judged(bar, part)).collect::<Vec<_>>().join("; ");
        let ratio = part.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let unit = match part.name {
            "" => part.unit.to_owned(),
            name => format!("{name}, {}", part.unit),
        };
        let id = if index == 0 { id } else { "" };
        let (ours, control) = (with_spread(part.ours), with_spread(part.control));
        lines.push(columns([id, &unit, &ours, &control, &ratio, &bars]));
        let peers = part.peers.iter();
        let peers = peers.map(|(name, figure)| format!("{name} {}", with_spread(Some(*figure))));
        let peers = peers.collect::<Vec<_>>().join("; ");
        if !peers.is_empty() {
            lines.push(columns(["", &peers, "", "", "", ""]));
        }
    }
    lines.join("\n")
}

/// One object; where a row has several parts, `parts` holds them all, the first of them too.
pub(crate) fn json(id: &str, row: &Row) -> String {
    let mut object = Map::new();
    object.insert("id".to_owned(), id.into());
    if let Some(first) = row.parts.first() {
        object.extend(members(first));
    }
    if row.parts.len() > 1 {
        let parts = row.parts.iter().map(|part| Value::Object(members(part)));
        object.insert("parts".to_owned(), parts.collect());
    }
    Value::Object(object).to_string()
}

fn members(part: &Part) -> Map<String, Value> {
    let median = |figure: Option<Figure>| figure.map(|figure| figure.median);
    let spread = |figure: Option<Figure>| figure.map(|figure| [figure.low, figure.high]);
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    if !part.name.is_empty() {
        put("part", part.name.into());
    }
    put("unit", part.unit.into());
    put("ours", json!(median(part.ours)));
    put("control", json!(median(part.control)));
    put("ratio", json!(part.ratio()));
    put("ours_spread", json!(spread(part.ours)));
    put("control_spread", json!(spread(part.control)));
    if !part.peers.is_empty() {
        let peers = part.peers.iter().map(|(name, peer)| ((*name).to_owned(), json!(peer.median)));
        put("peers", Value::Object(peers.collect()));
    }
    let bars = part.bars.iter().map(
        |bar| json!({ "bar": described(bar), "value": bar.value(part), "met": bar.is_met(part) }),
    );
    put("bars", bars.collect());
    members
}

fn judged(bar: &Bar, part: &Part) -> String {
    let verdict = match bar.is_met(part) {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "not run",
    };
    let described = described(bar);
    match (bar.against, bar.value(part)) {
        (Against::Peer(_), Some(value)) => format!("{described}: {verdict} ({value:.2}x)"),
        _ => format!("{described}: {verdict}"),
    }
}

fn described(bar: &Bar) -> String {
    let (sign, value) = match bar.bound {
        Bound::AtLeast(value) => (">=", value),
        Bound::AtMost(value) => ("<=", value),
    };
    match bar.against {
        Against::Nothing => format!("{sign} {value}"),
        Against::Control => format!("{sign} {value:.2}x control"),
        Against::Peer(name) => format!("{sign} {value}x {name}"),
    }
}

fn columns([id, unit, ours, control, ratio, bars]: [&str; 6]) -> String {
    let line = format!("{id:<17} {unit:<26} {ours:<22} {control:<22} {ratio:>6}  {bars}");
    line.trim_end().to_owned()
}

fn with_spread(figure: Option<Figure>) -> String {
    figure.map_or_else(
        || "-".to_owned(),
        |Figure { median, low, high }| {
            format!("{} ({}-{})", short(median), short(low), short(high))
        },
    )
}

/// Three digits and a letter.
fn short(value: f64) -> String {
    let (scaled, letter) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size > 0.0 => 4,
        _ => 0,
    };
    format!("{scaled:.digits$}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exactly(value: f64) -> Option<Figure> {
        Figure::of(&[value])
    }

    fn row() -> Row {
        let bars = vec![
            Bar::at_least(0.5, Against::Control),
            Bar::at_least(2.5, Against::Peer("commitlog")),
        ];
        let peers = vec![("commitlog", Figure { median: 2.0e6, low: 1.0e6, high: 3.0e6 })];
        let (ours, control) = (exactly(4.0e6), exactly(1.0e7));
        Row::of(vec![Part { name: "", unit: "records/s", ours, control, peers, bars }])
    }

    #[test]
    fn a_row_is_one_json_object_a_line() {
        let text = json("append-1", &row());
        assert!(!text.contains('\n'));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["id"], "append-1");
        assert_eq!(value["unit"], "records/s");
        assert_eq!((&value["ours"], &value["control"]), (&json!(4.0e6), &json!(1.0e7)));
        assert_eq!((&value["ratio"], &value["peers"]["commitlog"]), (&json!(0.4), &json!(2.0e6)));
        assert_eq!(
            (&value["bars"][0]["met"], &value["bars"][1]["met"]),
            (&json!(false), &json!(false))
        );
    }

    #[test]
    fn people_see_what_was_missed() {
        let text = lines("append-1", &row());
        assert!(
            text.contains(">= 0.50x control: MISSED; >= 2.5x commitlog: MISSED (2.00x)"),
            "{text}"
        );
        assert!(text.contains("4.00M (4.00M-4.00M)") && text.contains("commitlog 2.00M"), "{text}");
    }

    #[test]
    fn what_was_not_run_is_no_failure() {
        let mut row = row();
        row.parts[0].peers.clear();
        assert!(lines("append-1", &row).contains("2.5x commitlog: not run"));
    }
}
