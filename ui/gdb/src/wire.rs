//! The frames of packets: `$body#checksum`, acknowledgements, and the byte of Ctrl-C (gdb's manual, appendix E.1).
//!
//! Not here: what packets mean. A body keeps its escapes.

/// The longest body. gdb keeps to the size that it is told. gdbstub looks through so much memory for many a packet, so that more would
/// make short ones slow.
pub const LONGEST: usize = 16 << 10;

/// What arrives over a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The body of a packet.
    Packet(Vec<u8>),
    /// A packet whose checksum is wrong, or that is too long.
    Damaged,
    /// The last answer has arrived.
    Ack,
    /// The last answer has to be sent again.
    Nack,
    /// Ctrl-C.
    Interrupt,
    /// The connection has ended.
    Closed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum At {
    /// Between packets.
    #[default]
    Gap,
    Body,
    /// At the first digit of the checksum.
    First,
    /// At the second one.
    Second(u8),
}

/// Finds the packets in what comes in.
#[derive(Debug, Default)]
pub struct Framer {
    at: At,
    body: Vec<u8>,
    too_long: bool,
}

impl Framer {
    /// Takes a byte; returns what ends with it. Bytes that belong to no packet are dropped.
    pub fn take(&mut self, byte: u8) -> Option<Input> {
        match (self.at, byte) {
            (At::Gap, b'$') => self.begin(),
            (At::Gap, b'+') => return Some(Input::Ack),
            (At::Gap, b'-') => return Some(Input::Nack),
            (At::Gap, 3) => return Some(Input::Interrupt),
            (At::Gap, _) => {}
            // The rest of the packet was lost.
            (At::Body, b'$') => self.begin(),
            (At::Body, b'#') => self.at = At::First,
            (At::Body, _) if self.body.len() < LONGEST => self.body.push(byte),
            (At::Body, _) => self.too_long = true,
            (At::First, _) => self.at = At::Second(byte),
            (At::Second(first), second) => {
                self.at = At::Gap;
                let told = digit(first).zip(digit(second)).map(|(high, low)| high << 4 | low);
                let body = std::mem::take(&mut self.body);
                let whole = told == Some(checksum(&body)) && !self.too_long;
                return Some(if whole { Input::Packet(body) } else { Input::Damaged });
            }
        }
        None
    }

    fn begin(&mut self) {
        self.at = At::Body;
        self.body.clear();
        self.too_long = false;
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn checksum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
}

/// A body as a packet.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 4);
    packet.push(b'$');
    packet.extend_from_slice(body);
    packet.extend_from_slice(format!("#{:02x}", checksum(body)).as_bytes());
    packet
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(if value < 10 { b'0' + value } else { b'a' + value - 10 });
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        digits.push(digit(byte >> 4));
        digits.push(digit(byte & 15));
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Input> {
        let mut framer = Framer::default();
        bytes.iter().filter_map(|byte| framer.take(*byte)).collect()
    }

    #[test]
    fn packets_are_found_and_damaged_ones_are_told() {
        let packet = |body: &str| Input::Packet(body.as_bytes().to_vec());
        assert_eq!(all(b"+$g#67"), [Input::Ack, packet("g")]);
        assert_eq!(all(b"$g#68$g#67"), [Input::Damaged, packet("g")]);
        assert_eq!(all(b"$lost$g#67"), [packet("g")]);
        assert_eq!(all(b"$g#zz-"), [Input::Damaged, Input::Nack]);
        assert_eq!(all(b"noise\x03"), [Input::Interrupt]);
        assert_eq!(all(b"$X\x03,+-#a5"), [Input::Damaged]);
        assert_eq!(all(&framed(b"X\x03,+-")), [packet("X\x03,+-")]);
    }

    #[test]
    fn each_byte_is_two_digits() {
        let all: Vec<u8> = (0..=255).collect();
        let digits: Vec<String> = all.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex(&all), digits.concat());
    }

    #[test]
    fn a_packet_without_an_end_takes_no_more_than_the_longest() {
        let mut framer = Framer::default();
        assert_eq!(framer.take(b'$'), None);
        for _ in 0..2 * LONGEST {
            assert_eq!(framer.take(b'm'), None);
        }
        assert!(framer.body.len() == LONGEST);
        let end: Vec<Input> = b"#00".iter().filter_map(|byte| framer.take(*byte)).collect();
        assert_eq!(end, [Input::Damaged]);
    }
}
