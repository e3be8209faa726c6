//! Units: durations and sizes as people write them.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// A duration with its unit: `500ms`, `30s`, `10m`, `1h`, `60us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

/// A number of bytes, with a unit or without: `65536`, `64KiB`, `8MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct Size(pub(crate) usize);

/// As a settings file has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong = || format!("{text:?} is no duration: write 500ms, 30s, 10m or 1h");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let micros = match unit {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60 * 1_000_000,
            "h" => 3_600 * 1_000_000,
            _ => return Err(wrong()),
        };
        number.checked_mul(micros).map(|all| Span(Duration::from_micros(all))).ok_or_else(wrong)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || format!("{text:?} is no size: write 65536, 64KiB, 8MiB or 1GiB");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let bytes: u64 = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(wrong()),
        };
        let all = number.checked_mul(bytes).and_then(|all| usize::try_from(all).ok());
        all.map(Size).ok_or_else(wrong)
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Span, String> {
        text.parse()
    }
}

impl TryFrom<Written> for Size {
    type Error = String;

    fn try_from(written: Written) -> Result<Size, String> {
        match written {
            Written::Number(number) => number.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_need_sense() {
        assert_eq!("500ms".parse(), Ok(Span(Duration::from_millis(500))));
        assert_eq!("2h".parse(), Ok(Span(Duration::from_secs(7_200))));
        assert_eq!("64 KiB".parse(), Ok(Size(65_536)));
        assert_eq!("7".parse(), Ok(Size(7)));
        for wrong in ["", "7", "s", "-1s", "1d", "99999999999999999999s", "18446744073709551615h"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
        for wrong in ["", "KiB", "1kb", "18446744073709551615GiB", "1.5MiB"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
