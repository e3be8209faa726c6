//! Resp: the protocol of Redis, as much of it as a stream takes.

use std::io::Write;

use crate::Outcome;

/// Appends a command.
pub(super) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    const TO_MEMORY: &str = "writing to memory";
    write!(out, "*{}\r\n", words.len()).expect(TO_MEMORY);
    for word in words {
        write!(out, "${}\r\n", word.len()).expect(TO_MEMORY);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// One piece of a reply.
#[derive(Debug, PartialEq)]
enum Token<'a> {
    /// So many replies follow, which belong to it.
    Array(usize),
    Bytes(&'a [u8]),
    Nothing,
}

/// The first token, and what is behind it; none if it is not all there.
#[inline]
fn token(bytes: &[u8]) -> Outcome<Option<(Token<'_>, &[u8])>> {
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
    let (line, rest) = bytes.split_at(end + 1);
    let line = line.strip_suffix(b"\r\n").ok_or("a line of Redis has another end")?;
    let (kind, word) = line.split_first().ok_or("Redis says nothing")?;
    let token = match kind {
        b'+' | b':' => Token::Bytes(word),
        b'*' | b'$' if word == b"-1" => Token::Nothing,
        b'*' => Token::Array(number(word)?),
        b'$' => {
            let len = number(word)?;
            if rest.len() < len + 2 {
                return Ok(None);
            }
            return Ok(Some((Token::Bytes(&rest[..len]), &rest[len + 2..])));
        }
        _ => return Err(format!("Redis: {}", String::from_utf8_lossy(line)).into()),
    };
    Ok(Some((token, rest)))
}

#[inline]
fn number(word: &[u8]) -> Outcome<usize> {
    word.iter()
        .try_fold(0_usize, |number, &digit| {
            let digit = digit.wrapping_sub(b'0');
            let next = number.checked_mul(10)?.checked_add(usize::from(digit))?;
            (digit < 10).then_some(next)
        })
        .ok_or_else(|| format!("Redis: no number: {}", String::from_utf8_lossy(word)).into())
}

/// The length of the reply at the front, if all of it is there.
///
/// # Errors
/// If it says that something failed.
pub(super) fn reply_len(bytes: &[u8]) -> Outcome<Option<usize>> {
    let (mut rest, mut wanted) = (bytes, 1);
    while wanted > 0 {
        let Some((token, behind)) = token(rest)? else { return Ok(None) };
        rest = behind;
        wanted -= 1;
        if let Token::Array(count) = token {
            wanted += count;
        }
    }
    Ok(Some(bytes.len() - rest.len()))
}

/// Visits the id and the one value of each entry in a whole reply to XREAD of one stream, or to
/// XRANGE; returns how many there were.
///
/// # Errors
/// If it is no such reply.
pub(super) fn entries<'a>(
    reply: &'a [u8],
    mut each: impl FnMut(&'a [u8], &'a [u8]),
) -> Outcome<u64> {
    const OTHER: &str = "Redis: no reply of entries";
    let mut rest = reply;
    let mut next = || -> Outcome<Token<'a>> {
        let (token, behind) = token(rest)?.ok_or(OTHER)?;
        rest = behind;
        Ok(token)
    };
    // Of one stream: its name and its entries.
    let count = match next()? {
        Token::Nothing => return Ok(0),
        Token::Array(1) => {
            let (Token::Array(2), Token::Bytes(_)) = (next()?, next()?) else {
                return Err(OTHER.into());
            };
            let Token::Array(count) = next()? else { return Err(OTHER.into()) };
            count
        }
        _ => return Err(OTHER.into()),
    };
    for _ in 0..count {
        let (Token::Array(2), Token::Bytes(id)) = (next()?, next()?) else {
            return Err(OTHER.into());
        };
        let (Token::Array(2), Token::Bytes(_), Token::Bytes(value)) = (next()?, next()?, next()?)
        else {
            return Err(OTHER.into());
        };
        each(id, value);
    }
    Ok(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &[u8] = b"*1\r\n*2\r\n$1\r\ns\r\n*2\r\n\
        *2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nd\r\n$2\r\nhi\r\n\
        *2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nd\r\n$4\r\n\r\n\r\n\r\n";

    #[test]
    fn a_reply_is_whole_or_not_there() {
        for len in 0..READ.len() {
            assert_eq!(reply_len(&READ[..len]).unwrap(), None, "{len}");
        }
        assert_eq!(reply_len(&[READ, b"+OK\r\n"].concat()).unwrap(), Some(READ.len()));
        assert_eq!(reply_len(b"*-1\r\n").unwrap(), Some(5));
        assert!(reply_len(b"-ERR no\r\n").is_err());
        assert!(reply_len(b"$1x\r\n").is_err());
    }

    #[test]
    fn entries_are_visited() {
        let mut seen = Vec::new();
        assert_eq!(entries(READ, |id, value| seen.push((id, value))).unwrap(), 2);
        assert_eq!(seen, [(&b"1-0"[..], &b"hi"[..]), (b"1-1", b"\r\n\r\n")]);
        assert_eq!(entries(b"*-1\r\n", |_, _| ()).unwrap(), 0);
        assert!(entries(b"+OK\r\n", |_, _| ()).is_err());
    }

    #[test]
    fn a_command_is_counted_words() {
        let mut out = Vec::new();
        command(&mut out, &[b"XLEN", b"s"]);
        assert_eq!(out, b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n");
    }
}
