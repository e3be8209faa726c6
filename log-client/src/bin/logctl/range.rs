//! Span: which offsets to read, as people write it; see `GRAMMAR`.

use std::str::FromStr;

use log_core::clock::Timestamp;
use log_core::offset::{Offset, OffsetRange};
use log_core::partition::Ends;

use crate::time;

/// The grammar, for help.
pub(crate) const GRAMMAR: &str = "\
Offsets, as -o takes them:
  start            the oldest record that is left (this is the default)
  end              after the newest record
  +n               n records after the start
  -n               n records before the end
  n                offset n
  @t               the first record, in log order, with a timestamp at or after t
  FROM:TO          half open: from FROM up to, and without, TO; each is any of the above
                   (5:10, +5:-5, @2013-01-01:@2013-01-02; the second @ may be left out)
A time t is a date (2013-01-31, midnight UTC), RFC 3339 with its zone (2013-01-31T10:00:00Z,
2013-01-31T12:00+02:00), or milliseconds since 1970. Each is taken per partition. An offset that
a partition does not hold is an error; +n, -n, times and TO stop at what there is.";

/// A run of offsets, before it is known where a partition begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Place,
    /// Without one, there is no end.
    pub(crate) to: Option<Place>,
}

/// A place in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Start,
    End,
    AfterStart(u64),
    BeforeEnd(u64),
    At(Offset),
    Time(Timestamp),
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let (from, rest) = Place::parse_front(text)?;
        if rest.is_empty() {
            return Ok(Span { from, to: None });
        }
        let Some(rest) = rest.strip_prefix(':') else {
            return Err(format!("{rest:?} is too much; a range is FROM:TO"));
        };
        let (to, rest) = match from {
            // Between times, the second @ may be left out.
            Place::Time(_) if rest.starts_with(|c: char| c.is_ascii_digit()) => {
                Place::parse_time(rest)?
            }
            _ => Place::parse_front(rest)?,
        };
        if !rest.is_empty() {
            return Err(format!("{rest:?} is too much; a range is FROM:TO"));
        }
        let reversed = match (from, to) {
            (Place::At(from), Place::At(to)) => to < from,
            (Place::Time(from), Place::Time(to)) => to < from,
            _ => false,
        };
        if reversed {
            return Err("the range ends before it begins".to_owned());
        }
        Ok(Span { from, to: Some(to) })
    }
}

impl Place {
    fn parse_front(text: &str) -> Result<(Place, &str), String> {
        if let Some(rest) = text.strip_prefix('@') {
            return Place::parse_time(rest);
        }
        let end = text.find(':').unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        let number = |digits: &str| {
            let legal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = if legal { digits.parse().ok() } else { None };
            number.ok_or_else(|| {
                format!("{word:?} is no offset: write start, end, n, +n, -n or @time")
            })
        };
        let place = match word {
            "start" => Place::Start,
            "end" => Place::End,
            _ => match (word.strip_prefix('+'), word.strip_prefix('-')) {
                (Some(digits), _) => Place::AfterStart(number(digits)?),
                (_, Some(digits)) => Place::BeforeEnd(number(digits)?),
                _ => Place::At(number(word)?),
            },
        };
        Ok((place, rest))
    }

    fn parse_time(text: &str) -> Result<(Place, &str), String> {
        time::parse_front(text).map(|(time, rest)| (Place::Time(time), rest))
    }

    /// The offset that it means, inside what the partition holds; an offset stays as it was given.
    fn resolve<E>(
        self,
        ends: Ends,
        mut at_time: impl FnMut(Timestamp) -> Result<Offset, E>,
    ) -> Result<Offset, E> {
        let Ends { log_start, end, .. } = ends;
        match self {
            Place::Start => Ok(log_start),
            Place::End => Ok(end),
            Place::AfterStart(count) => Ok(log_start.saturating_add(count).min(end)),
            Place::BeforeEnd(count) => Ok(end.saturating_sub(count).max(log_start)),
            Place::At(offset) => Ok(offset),
            Place::Time(time) => at_time(time),
        }
    }
}

impl Span {
    /// The offsets that it means in a partition. The first may not be there: reading it tells so.
    ///
    /// # Errors
    /// Those of looking for a time.
    pub(crate) fn resolve<E>(
        self,
        ends: Ends,
        mut at_time: impl FnMut(Timestamp) -> Result<Offset, E>,
    ) -> Result<OffsetRange, E> {
        let from = self.from.resolve(ends, &mut at_time)?;
        let to = self.to.map_or(Ok(ends.end), |to| to.resolve(ends, &mut at_time))?;
        Ok(OffsetRange::new(from, to.min(ends.end).max(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Ends = Ends { log_start: 10, durable_end: 100, end: 100 };

    fn resolved(text: &str) -> (Offset, Offset) {
        let span: Span = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let at_time = |time: Timestamp| Ok::<_, ()>(time.as_millis().unsigned_abs().min(100));
        let range = span.resolve(ENDS, at_time).unwrap();
        (range.start, range.end)
    }

    #[test]
    fn every_form_of_the_grammar_means_what_help_says() {
        for (text, expected) in [
            ("start", (10, 100)),
            ("end", (100, 100)),
            ("+5", (15, 100)),
            ("+500", (100, 100)),
            ("-5", (95, 100)),
            ("-500", (10, 100)),
            ("42", (42, 100)),
            ("20:30", (20, 30)),
            ("20:20", (20, 20)),
            ("20:3000", (20, 100)),
            ("+5:-5", (15, 95)),
            ("-5:+5", (95, 95)),
            ("start:20", (10, 20)),
            ("20:end", (20, 100)),
            ("@50", (50, 100)),
            ("@50:60", (50, 60)),
            ("@50:@60", (50, 60)),
            ("@50:end", (50, 100)),
            ("@50:-5", (50, 95)),
            ("@2013-01-01:2013-01-02", (100, 100)),
            ("@1970-01-01T00:00:00.05Z:1970-01-01T02:00:00.06+02:00", (50, 60)),
        ] {
            assert_eq!(resolved(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_outside_of_the_grammar_is_refused() {
        for text in [
            "",
            ":",
            "5:",
            ":5",
            "x",
            "+",
            "-",
            "--5",
            "+-5",
            "5:6:7",
            "6:5",
            "@",
            "@x",
            "5x",
            "@60:50",
            "@2013-02-30",
            "@2013-01-01T10:00:00",
            "99999999999999999999",
            "1e3",
            "ä",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_offset_that_is_not_there_is_left_for_the_reading_to_refuse() {
        assert_eq!(resolved("3:5"), (3, 5));
        assert_eq!(resolved("200"), (200, 200));
    }
}
