//! The string functions of D, on bytes without a NUL.

/// Where a text occurs first.
pub(super) fn position(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// `index()` and `rindex()`: -1 if it does not occur.
pub(super) fn index(text: &[u8], wanted: &[u8], from: Option<i64>, backwards: bool) -> i64 {
    let at = |n: usize| text.get(n..).is_some_and(|rest| rest.starts_with(wanted));
    let last = text.len().saturating_sub(wanted.len());
    let signed = |found: Option<usize>| found.map_or(-1, |n| n as i64);
    if wanted.len() > text.len() {
        return -1;
    }
    if backwards {
        let from = from.unwrap_or(last as i64);
        if from < 0 {
            // Before the beginning, only an empty string is found.
            return if wanted.is_empty() { 0 } else { -1 };
        }
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(last);
        return signed((0..=from).rev().find(|n| at(*n)));
    }
    let from = usize::try_from(from.unwrap_or(0).max(0)).unwrap_or(usize::MAX);
    if wanted.is_empty() {
        return from.min(text.len()) as i64;
    }
    signed((from..=last).find(|n| at(*n)))
}

/// `substr()`: a negative place counts from the end, a negative length stops that many characters before the end.
pub(super) fn substr(text: &[u8], from: i64, length: Option<i64>) -> Vec<u8> {
    let size = text.len() as i64;
    let (mut start, mut rest) = (from, length.unwrap_or(size));
    if start < 0 {
        start = start.saturating_add(size);
        if start < 0 && length.is_some() && rest >= 0 {
            rest = rest.saturating_add(start);
            start = 0;
            if rest <= 0 {
                return Vec::new();
            }
        }
        if start < 0 {
            start = 0;
        }
    }
    if start >= size {
        return Vec::new();
    }
    let end = if rest < 0 { size.saturating_add(rest) } else { start.saturating_add(rest).min(size) };
    if end <= start {
        return Vec::new();
    }
    text.get(start as usize..end as usize).unwrap_or_default().to_vec()
}

/// The rest of a text from a character on.
pub(super) fn find(text: &[u8], byte: u8, last: bool) -> Option<Vec<u8>> {
    let at = if last { text.iter().rposition(|b| *b == byte) } else { text.iter().position(|b| *b == byte) };
    at.map(|at| text.get(at..).unwrap_or_default().to_vec())
}

/// The last part of a path.
pub(super) fn basename(path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return b".".to_vec();
    }
    let Some(end) = path.iter().rposition(|b| *b != b'/') else { return b"/".to_vec() };
    let trimmed = path.get(..=end).unwrap_or_default();
    let start = trimmed.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    trimmed.get(start..).unwrap_or_default().to_vec()
}

/// A path without its last part.
pub(super) fn dirname(path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return b".".to_vec();
    }
    let Some(end) = path.iter().rposition(|b| *b != b'/') else { return b"/".to_vec() };
    let trimmed = path.get(..=end).unwrap_or_default();
    let Some(slash) = trimmed.iter().rposition(|b| *b == b'/') else { return b".".to_vec() };
    let before = trimmed.get(..slash).unwrap_or_default();
    match before.iter().rposition(|b| *b != b'/') {
        Some(end) => before.get(..=end).unwrap_or_default().to_vec(),
        None => b"/".to_vec(),
    }
}

/// A path without `.`, `..` and doubled slashes.
pub(super) fn cleanpath(path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return Vec::new();
    }
    let absolute = path.first() == Some(&b'/');
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => {
                parts.pop();
            }
            b".." if absolute => {}
            part => parts.push(part),
        }
    }
    if parts.is_empty() && !absolute {
        return b".".to_vec();
    }
    let mut out = if absolute { b"/".to_vec() } else { Vec::new() };
    out.extend(parts.join(&b'/'));
    out
}

/// A number in a base of 2 to 36.
pub(super) fn from_number(value: i64, base: u32) -> String {
    let (negative, mut rest) =
        if base == 10 { (value < 0, value.unsigned_abs()) } else { (false, value as u64) };
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit((rest % u64::from(base)) as u32, base).unwrap_or('0'));
        rest /= u64::from(base);
        if rest == 0 {
            break;
        }
    }
    digits.extend(match base {
        8 if value != 0 => vec!['0'],
        16 => vec!['x', '0'],
        _ => Vec::new(),
    });
    digits.extend(negative.then_some('-'));
    digits.iter().rev().collect()
}

/// The number that a text begins with, 0 if it begins with none.
pub(super) fn to_number(text: &[u8], base: u32) -> i64 {
    let rest = text.trim_ascii_start();
    let (negative, rest) = match rest.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, rest),
    };
    let hex = rest.strip_prefix(b"0x").or_else(|| rest.strip_prefix(b"0X")).filter(|_| base == 16);
    let digits = hex.unwrap_or(rest).iter().map_while(|byte| char::from(*byte).to_digit(base));
    let value = digits.fold(0i64, |value, digit| value.wrapping_mul(base.into()).wrapping_add(digit.into()));
    if negative { value.wrapping_neg() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        for (path, base, dir) in [
            ("/foo/bar", "bar", "/foo"),
            ("/foo/", "foo", "/"),
            ("foo", "foo", "."),
            ("//", "/", "/"),
            ("", ".", "."),
        ] {
            assert_eq!(basename(path.as_bytes()), base.as_bytes(), "{path}");
            assert_eq!(dirname(path.as_bytes()), dir.as_bytes(), "{path}");
        }
        assert_eq!(cleanpath(b"/foo/./bar//../baz"), b"/foo/baz");
        assert_eq!(cleanpath(b"/.."), b"/");
        assert_eq!((cleanpath(b"a/.."), cleanpath(b"")), (b".".to_vec(), Vec::new()));
    }

    #[test]
    fn parts_of_strings_are_found() {
        assert_eq!(index(b"Barrelhouse", b"e", None, false), 4);
        assert_eq!(index(b"Barrelhouse", b"e", None, true), 10);
        assert_eq!(index(b"abc", b"x", None, false), -1);
        assert_eq!(substr(b"foobarbaz", 3, Some(3)), b"bar");
        assert_eq!(substr(b"foobarbaz", -3, None), b"baz");
        assert_eq!(substr(b"foobarbaz", 3, Some(-3)), b"bar");
        assert_eq!(substr(b"foo", 4, None), b"");
        assert_eq!(
            (from_number(-12, 10), from_number(255, 16), from_number(8, 8)),
            ("-12".into(), "0xff".into(), "010".into())
        );
        assert_eq!((to_number(b" -12x", 10), to_number(b"0xff", 16)), (-12, 255));
    }
}
