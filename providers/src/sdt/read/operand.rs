//! An argument of a probe as given by its note: location, width and format.
//!
//! [`grammar`](super::grammar) defines the text, and its value in a running guest is defined in
//! [`evaluate`](super::evaluate). An [`Argument`] prints as its original text, except for spaces and number bases.

use super::register::Register;
use std::fmt;

/// The format of an argument's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// 1, 2, 4, 8 or 16.
    pub bytes: u8,
    /// Whether it is sign-extended.
    pub signed: bool,
    /// Whether it is a floating-point number: IEEE single (4 bytes), double (8), or the x87's 10 in 16.
    pub float: bool,
}

impl Format {
    /// An unsigned number of `bytes` bytes.
    pub const fn unsigned(bytes: u8) -> Self {
        Self { bytes, signed: false, float: false }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, float) = (if self.signed { "-" } else { "" }, if self.float { "f" } else { "" });
        write!(f, "{sign}{}{float}", self.bytes)
    }
}

/// A symbol in a displacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolTerm {
    /// Its name.
    pub name: String,
    /// Whether its address is subtracted.
    pub negative: bool,
    /// Whether it counts from the global offset table (`@GOTOFF`).
    pub from_got: bool,
}

/// A memory operand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// The number in the displacement.
    pub displacement: i64,
    /// The symbol in it.
    pub symbol: Option<SymbolTerm>,
    /// Base register.
    pub base: Option<Register>,
    /// Index register and its scale: 1, 2, 4 or 8.
    pub index: Option<(Register, u8)>,
    /// Whether it was written `(%rip)`: the symbol, absolute.
    pub rip: bool,
}

/// The location of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// A constant, as its two's complement.
    Immediate(u64),
    /// A register.
    Register(Register),
    /// Memory.
    Memory(Memory),
}

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its format.
    pub format: Format,
    /// Its location.
    pub operand: Operand,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.format, self.operand)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Immediate(value) => write!(f, "${}", value.cast_signed()),
            Self::Register(register) => write!(f, "{register}"),
            Self::Memory(memory) => write!(f, "{memory}"),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registers = self.rip || self.base.is_some() || self.index.is_some();
        match (&self.symbol, self.displacement) {
            (Some(symbol), displacement) => {
                let got = if symbol.from_got { "@GOTOFF" } else { "" };
                // Otherwise a name that begins with `$` would be read as a constant.
                if symbol.negative || displacement != 0 || symbol.name.starts_with('$') {
                    write!(f, "{displacement}{}", if symbol.negative { '-' } else { '+' })?;
                }
                write!(f, "{}{got}", symbol.name)?;
            }
            (None, 0) if registers => {}
            (None, displacement) => write!(f, "{displacement}")?,
        }
        if !registers {
            return Ok(());
        }
        f.write_str("(")?;
        match self.base {
            Some(base) => write!(f, "{base}")?,
            None if self.rip => f.write_str("%rip")?,
            None => {}
        }
        if let Some((index, scale)) = self.index {
            write!(f, ",{index},{scale}")?;
        }
        f.write_str(")")
    }
}
