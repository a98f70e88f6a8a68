//! What is wrong with a packet that gdbstub would take for another one, or for a part of one.
//!
//! Not here: packets that gdbstub refuses by itself.

use std::num::NonZeroUsize;

/// A sentence for a packet that goes on at another address.
const ELSEWHERE: &str = "going on at another address is not possible; set the instruction pointer first";
/// A sentence for a thread that is not there.
const NO_THREAD: &str = "there is no such thread here";

/// Why a packet is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It has not the form that it should have.
    Malformed,
    /// It cannot be carried out; the sentence says why.
    Because(&'static str),
}

/// A thread in a packet: one, or any or all of them.
pub fn thread(text: &[u8]) -> Option<Option<NonZeroUsize>> {
    let text = std::str::from_utf8(text).ok()?;
    let text = match text.strip_prefix('p') {
        // Without a thread, all those of the process.
        Some(both) => both.split_once('.').map_or("-1", |(_, thread)| thread),
        None => text,
    };
    match text {
        "-1" | "0" => Some(None),
        _ => Some(NonZeroUsize::new(usize::try_from(hexadecimal(text)?).ok()?)),
    }
}

/// A number in hexadecimal digits.
pub fn hexadecimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// Looks at the packets that go on, write, select a thread, set breakpoints, or catch system calls. `registers` is the number of bytes of all
/// registers, and `known` tells whether there is a thread.
pub fn check(body: &[u8], registers: usize, known: impl Fn(NonZeroUsize) -> bool) -> Result<(), Refused> {
    let sound = |sound: bool| if sound { Ok(()) } else { Err(Refused::Malformed) };
    match body {
        [b's' | b'c', _, ..] => Err(Refused::Because(ELSEWHERE)),
        [b'v', b'C', b'o', b'n', b't', rest @ ..] => match rest {
            b"?" => Ok(()),
            [b';', actions @ ..] => {
                actions.split(|byte| *byte == b';').try_for_each(|one| action(one, &known))
            }
            _ => Err(Refused::Malformed),
        },
        [b'H', b'g' | b'c', who @ ..] => match thread(who) {
            None => Err(Refused::Malformed),
            Some(Some(tid)) if !known(tid) => Err(Refused::Because(NO_THREAD)),
            Some(_) => Ok(()),
        },
        [b'G', rest @ ..] => {
            sound(rest.len() == registers.saturating_mul(2) && rest.iter().all(u8::is_ascii_hexdigit))
        }
        [b'M', rest @ ..] => sound(written(rest).is_some_and(|(length, data)| {
            data.len() as u64 == length.saturating_mul(2) && data.iter().all(u8::is_ascii_hexdigit)
        })),
        [b'X', rest @ ..] => {
            sound(written(rest).is_some_and(|(length, data)| unescaped(data) == Some(length)))
        }
        [b'Z' | b'z', b'0'..=b'4', b',', rest @ ..] => {
            let mut numbers = rest.split(|byte| *byte == b',').map(number);
            sound(matches!(
                (numbers.next(), numbers.next(), numbers.next()),
                (Some(Some(_)), Some(Some(_)), None)
            ))
        }
        _ => match body.strip_prefix(b"QCatchSyscalls:") {
            None | Some(b"0" | b"1") => Ok(()),
            Some([b'1', b';', numbers @ ..]) => {
                sound(numbers.split(|byte| *byte == b';').all(|text| number(text).is_some()))
            }
            Some(_) => Err(Refused::Malformed),
        },
    }
}

fn action(text: &[u8], known: &impl Fn(NonZeroUsize) -> bool) -> Result<(), Refused> {
    let mut parts = text.splitn(2, |byte| *byte == b':');
    let steps = matches!(parts.next(), Some([b's' | b'S' | b'r', ..]));
    match parts.next().map(thread) {
        Some(None) => Err(Refused::Malformed),
        Some(Some(Some(tid))) if steps && !known(tid) => Err(Refused::Because(NO_THREAD)),
        _ => Ok(()),
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok().and_then(hexadecimal)
}

/// The length and the data of `ADDRESS,LENGTH:DATA`.
fn written(text: &[u8]) -> Option<(u64, &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (range, data) = (text.get(..colon)?, text.get(colon + 1..)?);
    let mut range = range.split(|byte| *byte == b',').map(number);
    match (range.next(), range.next(), range.next()) {
        (Some(Some(_)), Some(Some(length)), None) => Some((length, data)),
        _ => None,
    }
}

/// The number of bytes that escaped data stand for.
fn unescaped(data: &[u8]) -> Option<u64> {
    let mut bytes = data.iter();
    let mut count = 0;
    while let Some(byte) = bytes.next() {
        if *byte == b'}' {
            bytes.next()?;
        }
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gdbstub_would_misread_is_refused() {
        let of = |body: &[u8]| check(body, 4, |tid| tid.get() == 0x12);
        let fine: [&[u8]; 21] = [
            b"s",
            b"c",
            b"vCont?",
            b"vCont;c",
            b"vCont;s:12;c",
            b"vCont;r0,10:p1.12;c:p1.-1",
            b"vCont;c:77",
            b"Hg0",
            b"Hc-1",
            b"Hgp1.12",
            b"G00112233",
            b"M100,2:abcd",
            b"X100,0:",
            b"X100,3:ab}\x03",
            b"Z0,c0100000,1",
            b"z4,c0100000,8",
            b"m0,4",
            b"bs",
            b"?",
            b"QCatchSyscalls:0",
            b"QCatchSyscalls:1;1;e7",
        ];
        for body in fine {
            assert_eq!(of(body), Ok(()), "{}", String::from_utf8_lossy(body));
        }
        let malformed: [&[u8]; 15] = [
            b"vCont",
            b"vCont\xd2",
            b"vCont?x",
            b"vCont;s:zz",
            b"Hgzz",
            b"G00",
            b"G0011223344",
            b"M100,2:00",
            b"M100,2:0g00",
            b"X100,1:abcdef",
            b"X100,1:}",
            b"Z0,c01,8600,4V=",
            b"Z0,c0100000,1;X1,0",
            b"QCatchSyscalls:2",
            b"QCatchSyscalls:1;x",
        ];
        for body in malformed {
            assert_eq!(of(body), Err(Refused::Malformed), "{}", String::from_utf8_lossy(body));
        }
        assert_eq!(of(b"sc0100000"), Err(Refused::Because(ELSEWHERE)));
        assert_eq!(of(b"vCont;s:99;c"), Err(Refused::Because(NO_THREAD)));
        assert_eq!(of(b"Hg99"), Err(Refused::Because(NO_THREAD)));
    }
}
