//! Conditions of breakpoints that gdb leaves to the server: its agent expressions (gdb's manual, appendix F), evaluated where the
//! breakpoint is met.
//!
//! An expression only reads. What cannot be evaluated, such as one that reads absent memory, stops the run, and gdb evaluates the
//! condition itself, as it does with gdbserver.

use trapline_emu::Core;

use crate::check::hexadecimal;
use crate::registers::Registers;

/// Most operations of one evaluation: a loop ends here.
const MOST_OPERATIONS: usize = 10_000;
/// Most values on the stack.
const DEEPEST: usize = 100;
/// Most bytes of the conditions of one breakpoint.
const MOST_BYTES: usize = 4096;

/// An agent expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression(Vec<u8>);

/// A packet `Z0` or `Z1` without its conditions, and these: `;X LENGTH,BYTES`, any number of them.
pub fn split(body: &[u8]) -> Option<(&[u8], Vec<Expression>)> {
    if !matches!(body, [b'Z', b'0' | b'1', b',', ..]) {
        return Some((body, Vec::new()));
    }
    let mut parts = body.split(|byte| *byte == b';');
    let plain = parts.next()?;
    let text = std::str::from_utf8(body.get(plain.len()..)?).ok()?;
    let mut rest = text.strip_prefix(';').unwrap_or(text);
    let (mut found, mut total) = (Vec::new(), 0);
    while !rest.is_empty() {
        let (length, digits) = rest.strip_prefix('X')?.split_once(',')?;
        let length = usize::try_from(hexadecimal(length)?).ok().filter(|length| *length <= MOST_BYTES)?;
        let (own, after) = digits.split_at_checked(2 * length)?;
        let byte = |at: usize| hexadecimal(own.get(2 * at..2 * at + 2)?).map(|byte| byte as u8);
        found.push(Expression((0..length).map(byte).collect::<Option<_>>()?));
        total += length;
        rest = after.strip_prefix(';').unwrap_or(after);
    }
    (total <= MOST_BYTES).then_some((plain, found))
}

/// What an expression reads.
trait Reads {
    fn register(&self, number: usize) -> Option<u64>;
    fn memory(&self, address: u64, bytes: &mut [u8]) -> bool;
}

struct Guest<'a> {
    core: &'a Core,
    registers: &'a Registers,
}

impl Reads for Guest<'_> {
    fn register(&self, number: usize) -> Option<u64> {
        self.registers.word(self.core, number)
    }

    fn memory(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.core.peek(self.core.wrap_linear(address), bytes).is_ok()
    }
}

/// Whether a breakpoint with these conditions stops the run here: one of them holds, or cannot be evaluated.
pub fn stops(conditions: &[Expression], core: &Core, registers: &Registers) -> bool {
    let guest = Guest { core, registers };
    conditions.iter().any(|condition| value(&condition.0, &guest) != Some(0))
}

/// The value of an expression; `None` if it has none.
fn value(code: &[u8], guest: &impl Reads) -> Option<u64> {
    let mut machine = Machine { code, at: 0, stack: Vec::new() };
    for _ in 0..MOST_OPERATIONS {
        let operation = machine.bytes(1)? as u8;
        if operation == END {
            return machine.stack.pop();
        }
        machine.execute(operation, guest)?;
        if machine.stack.len() > DEEPEST {
            return None;
        }
    }
    None
}

const END: u8 = 0x27;

struct Machine<'a> {
    code: &'a [u8],
    at: usize,
    stack: Vec<u64>,
}

impl Machine<'_> {
    /// The next bytes of the code, the highest first.
    fn bytes(&mut self, count: usize) -> Option<u64> {
        let bytes = self.code.get(self.at..self.at + count)?;
        self.at += count;
        Some(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn pop(&mut self) -> Option<u64> {
        self.stack.pop()
    }

    /// The operations and their codes are those of gdb's manual, appendix F.2.
    fn execute(&mut self, operation: u8, guest: &impl Reads) -> Option<()> {
        let result = match operation {
            0x02..=0x0b | 0x0f..=0x11 | 0x13..=0x15 => {
                let (right, left) = (self.pop()?, self.pop()?);
                binary(operation, left, right)?
            }
            0x0e => u64::from(self.pop()? == 0),
            0x12 => !self.pop()?,
            0x16 | 0x2a => {
                let unused = 64u32.checked_sub(self.bytes(1)? as u32).filter(|unused| *unused < 64)?;
                let value = self.pop()? << unused;
                if operation == 0x16 { (value as i64 >> unused) as u64 } else { value >> unused }
            }
            0x17..=0x1a => {
                let mut bytes = [0; 8];
                let part = bytes.get_mut(..1 << (operation - 0x17))?;
                if !guest.memory(self.pop()?, part) {
                    return None;
                }
                u64::from_le_bytes(bytes)
            }
            0x20 | 0x21 => {
                let to = self.bytes(2)? as usize;
                if operation == 0x21 || self.pop()? != 0 {
                    self.at = to;
                }
                return Some(());
            }
            0x22..=0x25 => self.bytes(1 << (operation - 0x22))?,
            0x26 => guest.register(self.bytes(2)? as usize)?,
            0x28 => *self.stack.last()?,
            0x29 => return self.pop().map(|_| ()),
            0x2b | 0x32 | 0x33 => return self.arrange(operation),
            _ => return None,
        };
        self.stack.push(result);
        Some(())
    }

    /// `swap`, `pick` and `rot`.
    fn arrange(&mut self, operation: u8) -> Option<()> {
        let top = self.stack.len();
        if operation == 0x32 {
            let depth = self.bytes(1)? as usize;
            self.stack.push(*self.stack.get(top.checked_sub(depth + 1)?)?);
        } else {
            let moved = if operation == 0x2b { 2 } else { 3 };
            self.stack.get_mut(top.checked_sub(moved)?..)?.rotate_right(1);
        }
        Some(())
    }
}

/// An operation with two operands.
fn binary(operation: u8, left: u64, right: u64) -> Option<u64> {
    let (signed, by) = ((left as i64, right as i64), right.min(64) as u32);
    Some(match operation {
        0x02 => left.wrapping_add(right),
        0x03 => left.wrapping_sub(right),
        0x04 => left.wrapping_mul(right),
        0x05 => signed.0.checked_div(signed.1)? as u64,
        0x06 => left.checked_div(right)?,
        0x07 => signed.0.checked_rem(signed.1)? as u64,
        0x08 => left.checked_rem(right)?,
        0x09 => left.checked_shl(by).unwrap_or(0),
        0x0a => (signed.0 >> by.min(63)) as u64,
        0x0b => left.checked_shr(by).unwrap_or(0),
        0x0f => left & right,
        0x10 => left | right,
        0x11 => left ^ right,
        0x13 => u64::from(left == right),
        0x14 => u64::from(signed.0 < signed.1),
        0x15 => u64::from(left < right),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Some7;

    impl Reads for Some7 {
        fn register(&self, number: usize) -> Option<u64> {
            (number == 7).then_some(0xffff_ffff_ffff_fff0)
        }

        fn memory(&self, address: u64, bytes: &mut [u8]) -> bool {
            bytes.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
            address == 0x1000
        }
    }

    #[test]
    fn operations_have_the_values_of_the_manual() {
        let of = |code: &[u8]| value(code, &Some7);
        // reg 7; end.
        assert_eq!(of(&[0x26, 0, 7, 0x27]), Some(0xffff_ffff_ffff_fff0));
        // const16 0x1000; ref16, ref32, ref64.
        assert_eq!(of(&[0x23, 0x10, 0, 0x18, 0x27]), Some(0x0201));
        assert_eq!(of(&[0x23, 0x10, 0, 0x19, 0x27]), Some(0x0403_0201));
        assert_eq!(of(&[0x23, 0x10, 0, 0x1a, 0x27]), Some(0x0807_0605_0403_0201));
        // Absent memory, an absent register, a division by 0, an empty stack, no end, an unknown operation, a loop.
        let without: [&[u8]; 7] = [
            &[0x23, 0x20, 0, 0x17, 0x27],
            &[0x26, 0, 8, 0x27],
            &[0x22, 1, 0x22, 0, 0x05, 0x27],
            &[0x02, 0x27],
            &[0x22, 1],
            &[0x22, 1, 0x01, 0x27],
            &[0x21, 0, 0],
        ];
        for code in without {
            assert_eq!(of(code), None, "{code:x?}");
        }
        // const8 0xf0; ext 8 is -16; zero_ext 4 is 0.
        assert_eq!(of(&[0x22, 0xf0, 0x16, 8, 0x27]), Some(-16i64 as u64));
        assert_eq!(of(&[0x22, 0xf0, 0x2a, 4, 0x27]), Some(0));
        // 1 2 3: swap, rot and pick 2, then the two upper values as digits.
        let top = |middle: &[u8]| {
            let code = [&[0x22, 1, 0x22, 2, 0x22, 3], middle, &[0x2b, 0x22, 4, 0x09, 0x10, 0x27]].concat();
            of(&code)
        };
        assert_eq!(top(&[]), Some(0x23));
        assert_eq!(top(&[0x2b]), Some(0x32));
        assert_eq!(top(&[0x33]), Some(0x12));
        assert_eq!(top(&[0x32, 2]), Some(0x31));
        // -1 < 1 signed, not unsigned; if_goto passes over the second constant.
        assert_eq!(of(&[0x22, 0xff, 0x16, 8, 0x22, 1, 0x14, 0x27]), Some(1));
        assert_eq!(of(&[0x22, 0xff, 0x16, 8, 0x22, 1, 0x15, 0x27]), Some(0));
        assert_eq!(of(&[0x22, 9, 0x22, 1, 0x20, 0, 9, 0x22, 8, 0x27]), Some(9));
    }

    #[test]
    fn conditions_are_taken_from_their_packet() {
        let (plain, found) = split(b"Z0,c0100f91,1;X3,220027X3,220127").unwrap();
        assert_eq!(plain, b"Z0,c0100f91,1");
        assert_eq!(found, [Expression(vec![0x22, 0, 0x27]), Expression(vec![0x22, 1, 0x27])]);
        assert_eq!(split(b"Z0,c0100f91,1;X3,220027;X1,27").unwrap().1.len(), 2);
        for wrong in [&b"Z0,1,1;X2,22"[..], b"Z0,1,1;Y", b"Z0,1,1;X1,zz", b"Z1,1,1;Xffffffffffffffff,00"] {
            assert_eq!(split(wrong), None);
        }
        assert_eq!(split(b"Z2,1000,4;X1,27").unwrap(), (&b"Z2,1000,4;X1,27"[..], Vec::new()));
    }
}
