//! PCMPESTRI, PCMPESTRM, PCMPISTRI and PCMPISTRM (Intel SDM volume 2, 4.1).

const CF: u64 = 1;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const OF: u64 = 1 << 11;

/// The immediate of such an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Control(pub u8);

/// The result: a bit for each element, and the flags that are set; AF and PF are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compared {
    pub bits: u32,
    pub flags: u64,
}

impl Control {
    /// Elements of a vector.
    fn elements(self) -> u32 {
        if self.0 & 1 != 0 { 8 } else { 16 }
    }

    /// Whether one string is searched for in the other, which the engine gets wrong where the end cuts it, or the bits of valid
    /// elements are inverted, which it gets wrong for an empty string.
    pub fn is_mended(self) -> bool {
        self.0 & 0xc == 0xc || self.0 & 0x30 == 0x30
    }

    fn element(self, of: u128, n: u32) -> i32 {
        let bits = 128 / self.elements();
        let raw = (of >> (n * bits)) as i32;
        match self.0 & 3 {
            0 => raw & 0xff,
            1 => raw & 0xffff,
            2 => (raw as i8).into(),
            _ => (raw as i16).into(),
        }
    }

    /// Elements before the first that is 0.
    pub fn length(self, of: u128) -> u32 {
        (0..self.elements()).find(|n| self.element(of, *n) == 0).unwrap_or(self.elements())
    }

    /// The length that a register says, which is of 64 bits if `wide`.
    pub fn explicit(self, register: u64, wide: bool) -> u32 {
        let length =
            if wide { (register as i64).unsigned_abs() } else { (register as i32).unsigned_abs().into() };
        length.min(self.elements().into()) as u32
    }

    /// Compares the first `of_a` elements of `a` with the first `of_b` of `b`.
    pub fn compare(self, (a, of_a): (u128, u32), (b, of_b): (u128, u32)) -> Compared {
        let elements = self.elements();
        let all = u32::MAX >> (32 - elements);
        let (x, y) = (|n| self.element(a, n), |n| self.element(b, n));
        let holds = |j: u32| match self.0 >> 2 & 3 {
            0 => j < of_b && (0..of_a).any(|i| x(i) == y(j)),
            1 => j < of_b && (0..of_a / 2).any(|i| x(2 * i) <= y(j) && y(j) <= x(2 * i + 1)),
            2 if j < of_a && j < of_b => x(j) == y(j),
            2 => j >= of_a && j >= of_b,
            // What reaches beyond the last element is not compared.
            _ => (0..of_a.min(elements - j)).all(|i| i + j < of_b && x(i) == y(i + j)),
        };
        let found = (0..elements).filter(|j| holds(*j)).fold(0, |all, j| all | 1 << j);
        let inverted = match self.0 >> 4 & 3 {
            1 => all,
            3 => all & !(u32::MAX.checked_shl(of_b).unwrap_or(0)),
            _ => 0,
        };
        let bits: u32 = found ^ inverted;
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        let ends = flag(of_b < elements, ZF) | flag(of_a < elements, SF);
        Compared { bits, flags: flag(bits != 0, CF) | flag(bits & 1 != 0, OF) | ends }
    }

    /// The index that ECX gets: of the lowest bit, or of the highest.
    pub fn index(self, bits: u32) -> u32 {
        match bits {
            0 => self.elements(),
            _ if self.0 & 0x40 != 0 => bits.ilog2(),
            _ => bits.trailing_zeros(),
        }
    }

    /// The mask that XMM0 gets: the bits, or a whole element for each.
    pub fn mask(self, bits: u32) -> u128 {
        if self.0 & 0x40 == 0 {
            return bits.into();
        }
        let width = 128 / self.elements();
        let element = u128::MAX >> (128 - width);
        (0..self.elements()).filter(|n| bits >> n & 1 != 0).fold(0, |all, n| all | element << (n * width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The needle's first four characters end the other string.
    #[test]
    fn a_needle_that_the_end_cuts_is_found() {
        let (needle, hay) = (*b"abcdefghijklmnop", *b"zzzzzzzzzzzzabcd");
        let control = Control(0xc);
        let found = control.compare((u128::from_le_bytes(needle), 16), (u128::from_le_bytes(hay), 16));
        assert_eq!((control.index(found.bits), found.flags), (12, CF));
    }
}
