//! Time as people write it: RFC 3339, dates, milliseconds since the epoch.

use log_core::clock::Timestamp;

const DAY_MILLIS: i64 = 24 * 3600 * 1000;

/// A time at the front of `text`, and what follows it. A date means its midnight, UTC.
pub(crate) fn parse_front(text: &str) -> Result<(Timestamp, &str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 4 && text.as_bytes().get(4) == Some(&b'-') {
        return parse_calendar(text);
    }
    let sign = usize::from(text.starts_with('-'));
    let digits = text.bytes().skip(sign).take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(sign + digits);
    match number.parse() {
        Ok(millis) => Ok((Timestamp::from_millis(millis), rest)),
        Err(_) => Err(format!(
            "{text:?} is no time: write 2013-01-31, 2013-01-31T10:00:00Z or milliseconds since 1970"
        )),
    }
}

fn parse_calendar(text: &str) -> Result<(Timestamp, &str), String> {
    let mut rest = text;
    let parsed = take_calendar(&mut rest);
    let millis = parsed.ok_or_else(|| {
        format!("{text:?} is no time: write 2013-01-31 or 2013-01-31T10:00:00Z, with its zone")
    })?;
    Ok((Timestamp::from_millis(millis), rest))
}

fn take_calendar(rest: &mut &str) -> Option<i64> {
    let year = take_number(rest, 4)?;
    take(rest, '-')?;
    let month = take_number(rest, 2).filter(|month| (1..=12).contains(month))?;
    take(rest, '-')?;
    let day = take_number(rest, 2).filter(|day| (1..=days_of(year, month)).contains(day))?;
    let midnight = days_from_civil(year, month, day) * DAY_MILLIS;
    match take(rest, 'T').or_else(|| take(rest, 't')) {
        Some(()) => Some(midnight + take_time_of_day(rest)?),
        None => Some(midnight),
    }
}

/// `10:00Z`, `10:00:00.250+02:00`: milliseconds since midnight, UTC.
fn take_time_of_day(rest: &mut &str) -> Option<i64> {
    let hour = take_number(rest, 2).filter(|hour| *hour < 24)?;
    take(rest, ':')?;
    let minute = take_number(rest, 2).filter(|minute| *minute < 60)?;
    let mut millis = (hour * 60 + minute) * 60_000;
    if take(rest, ':').is_some() {
        // 60 is a leap second.
        millis += take_number(rest, 2).filter(|second| *second <= 60)? * 1000;
        if take(rest, '.').is_some() {
            millis += take_fraction(rest)?;
        }
    }
    if take(rest, 'Z').or_else(|| take(rest, 'z')).is_some() {
        return Some(millis);
    }
    let sign = if take(rest, '-').is_some() { -1 } else { take(rest, '+').map(|()| 1)? };
    let hours = take_number(rest, 2).filter(|hours| *hours < 24)?;
    take(rest, ':')?;
    let minutes = take_number(rest, 2).filter(|minutes| *minutes < 60)?;
    Some(millis - sign * (hours * 60 + minutes) * 60_000)
}

/// The milliseconds of a fraction of a second; finer digits are dropped.
fn take_fraction(rest: &mut &str) -> Option<i64> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (fraction, after) = rest.split_at(digits);
    *rest = after;
    let three: String = fraction.chars().chain("00".chars()).take(3).collect();
    if fraction.is_empty() { None } else { three.parse().ok() }
}

fn take(rest: &mut &str, expected: char) -> Option<()> {
    *rest = rest.strip_prefix(expected)?;
    Some(())
}

fn take_number(rest: &mut &str, digits: usize) -> Option<i64> {
    let (number, after) = rest.split_at_checked(digits)?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    *rest = after;
    number.parse().ok()
}

/// A timestamp in RFC 3339, or in milliseconds where its year has no four digits.
pub(crate) fn show(time: Timestamp) -> String {
    let (days, millis) =
        (time.as_millis().div_euclid(DAY_MILLIS), time.as_millis().rem_euclid(DAY_MILLIS));
    let (year, month, day) = civil_from_days(days);
    if !(0..=9999).contains(&year) {
        return time.to_string();
    }
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

fn days_of(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01, by eras of 400 years that begin on the first of March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> i64 {
        let (time, rest) = parse_front(text).unwrap();
        assert_eq!(rest, "", "{text}");
        time.as_millis()
    }

    #[test]
    fn times_are_understood() {
        for (text, expected) in [
            ("0", 0),
            ("-1", -1),
            ("1357034400000", 1_357_034_400_000),
            ("1970-01-01", 0),
            ("2013-01-01T10:00:00Z", 1_357_034_400_000),
            ("2013-01-01T10:00Z", 1_357_034_400_000),
            ("2013-01-01t12:00:00.25+02:00", 1_357_034_400_250),
            ("2013-01-01T05:00:00.1239-05:00", 1_357_034_400_123),
            ("1969-12-31T23:59:59.999Z", -1),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "-",
            "x",
            "2013-13-01",
            "2013-02-29",
            "2013-1-1",
            "2013-01-01T",
            "2013-01-01T10",
            "2013-01-01T10:00:00",
            "2013-01-01T25:00:00Z",
            "2013-01-01T10:00:00.Z",
            "2013-0ä-01",
            "2013-01-01T10:00:00+2",
            "99999999999999999999",
        ] {
            assert!(parse_front(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_understood_again() {
        for days in (-719_468..2_932_896).step_by(997) {
            let time = Timestamp::from_millis(days * DAY_MILLIS + 45_296_789);
            let shown = show(time);
            assert_eq!(parse_front(&shown), Ok((time, "")), "{shown}");
        }
        assert_eq!(show(Timestamp::from_millis(951_782_400_000)), "2000-02-29T00:00:00.000Z");
        for wild in [i64::MIN, i64::MAX] {
            assert_eq!(show(Timestamp::from_millis(wild)), format!("{wild} ms"));
        }
    }
}
