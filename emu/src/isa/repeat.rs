//! Repeated string instructions: the properties needed to count and batch their iterations.

use super::decode::address_bits;
use iced_x86::{Instruction, Mnemonic, Register};

/// The properties of a repeated string instruction that its iterations depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Repeat {
    /// Address size in bits, which is the count register's.
    pub address_bits: u8,
    /// Bytes of an element, with [`Repeat::MOVES`] for MOVS; 0 for iterations that run one by one.
    bulk: u8,
}

impl Repeat {
    const MOVES: u8 = 0x80;

    /// The properties of a repeated instruction.
    pub fn of(i: &Instruction) -> Self {
        use Mnemonic as M;
        let bulk = match i.mnemonic() {
            M::Stosb | M::Stosw | M::Stosd | M::Stosq => i.memory_size().size() as u8,
            M::Movsb | M::Movsw | M::Movsd | M::Movsq if i.segment_prefix() == Register::None => {
                i.memory_size().size() as u8 | Self::MOVES
            }
            _ => 0,
        };
        Self { address_bits: address_bits(i) as u8, bulk }
    }

    /// All properties packed into bits, for a block's cell.
    pub fn bits(self) -> u32 {
        u32::from_le_bytes([self.address_bits, self.bulk, 0, 0])
    }

    /// The inverse of [`Repeat::bits`].
    pub fn from_bits(bits: u32) -> Self {
        let [address_bits, bulk, ..] = bits.to_le_bytes();
        Self { address_bits, bulk }
    }

    /// The count that is left in RCX, ECX or CX.
    pub fn count(self, rcx: u64) -> u64 {
        super::decode::rep_count(self.address_bits.into(), rcx)
    }

    /// Bytes of an element, if many iterations can be done at once.
    pub fn bulk(self) -> Option<u64> {
        (self.bulk != 0).then_some(u64::from(self.bulk & !Self::MOVES))
    }

    /// Whether it is MOVS.
    pub fn moves(self) -> bool {
        self.bulk & Self::MOVES != 0
    }
}
