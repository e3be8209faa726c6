//! Units: bytes and durations as people write them.

use std::time::Duration;

const BYTES: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// In milliseconds.
const TIMES: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A value, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

/// `4096`, `64KiB`, `1GB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = if unit.is_empty() { Some(1) } else { factor(&BYTES, unit) };
    factor.and_then(|factor| number.checked_mul(factor)).ok_or_else(|| {
        "write bytes as a number, with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB behind it".to_owned()
    })
}

/// `4096`, `64KiB`, below 4 GiB.
pub(crate) fn parse_bytes_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse_bytes(text)?).map_err(|_| "it must be below 4GiB".to_owned())
}

/// `200ms`, `10s`, `5m`, `12h`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let millis = factor(&TIMES, unit).and_then(|factor| number.checked_mul(factor));
    let millis = millis
        .ok_or_else(|| "write a number with its unit: ms, s, m, h or d, as in 7d".to_owned())?;
    Ok(Duration::from_millis(millis))
}

pub(crate) fn parse_bytes_or_none(text: &str) -> Result<OrNone<u64>, String> {
    or_none(text, parse_bytes)
}

pub(crate) fn parse_duration_or_none(text: &str) -> Result<OrNone<Duration>, String> {
    or_none(text, parse_duration)
}

fn or_none<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<OrNone<T>, String> {
    if text == "none" { Ok(OrNone(None)) } else { parse(text).map(|value| OrNone(Some(value))) }
}

fn split(text: &str) -> Result<(u64, &str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = number.parse().map_err(|_| "it begins with no number that fits".to_owned())?;
    Ok((number, unit))
}

fn factor(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
}

/// Bytes in the largest unit that divides them, so that they can be typed in again.
pub(crate) fn exact_bytes(bytes: u64) -> String {
    let binary = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fits = |(_, factor): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*factor);
    match binary.iter().find(fits) {
        Some((name, factor)) => format!("{}{name}", bytes / factor),
        None => bytes.to_string(),
    }
}

/// A duration in the largest unit that divides it, so that it can be typed in again.
pub(crate) fn exact_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, factor): &&(&str, u64)| millis > 0 && millis.is_multiple_of(*factor);
    match TIMES.iter().rev().find(fits) {
        Some((name, factor)) => format!("{}{name}", millis / factor),
        None => format!("{millis}ms"),
    }
}

/// Bytes with three digits, to be looked at.
pub(crate) fn about_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_shown_the_same() {
        for (text, bytes) in [("0", 0), ("1KiB", 1024), ("3GiB", 3 << 30), ("1000", 1000)] {
            assert_eq!(parse_bytes(text), Ok(bytes));
            assert_eq!(exact_bytes(bytes), text);
        }
        for (text, millis) in
            [("200ms", 200), ("1s", 1000), ("90m", 5_400_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
            assert_eq!(exact_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(parse_bytes("5kB"), Ok(5_000));
        assert_eq!(parse_bytes_or_none("none"), Ok(OrNone(None)));
    }

    #[test]
    fn what_has_no_unit_or_does_not_fit_is_refused() {
        for text in ["", "KiB", "-1", "1.5GiB", "1Gib", "99999999999999999999", "99999999TiB", "1ä"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in ["7", "", "7w", "s", "18446744073709551615d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_bytes_u32("4GiB").is_err());
    }
}
