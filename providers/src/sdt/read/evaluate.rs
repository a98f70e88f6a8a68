//! Evaluates an argument at a hit: registers, NOFAULT memory, symbols.
//!
//! A [`Scene`] is the guest at one instruction. The guest does not change; memory that cannot be read is an error
//! of that argument alone.

use super::operand::{Argument, Format, Memory, Operand, SymbolTerm};
use super::register::Register;
use std::fmt;
use trapline_emu::load::Width;

/// A guest that has stopped at an instruction.
pub trait Scene {
    /// Width of the code that stopped.
    fn width(&self) -> Width;
    /// A whole general register by its number.
    fn general(&self, number: u8) -> u64;
    /// An SSE register.
    fn xmm(&self, number: u8) -> u128;
    /// Reads memory without any effect on the guest; false if part of it is not mapped.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;
    /// Current address of a symbol of the argument's module.
    fn symbol(&self, name: &str) -> Option<u64>;
    /// Current address of that module's global offset table.
    fn offset_table(&self) -> Option<u64>;
}

/// Why an argument has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateError {
    /// Unmapped memory; the wording is DTrace's.
    #[error("invalid address ({0:#x})")]
    InvalidAddress(u64),
    /// A symbol is unknown.
    #[error("no symbol {0:?}")]
    UnknownSymbol(String),
    /// `@GOTOFF` in a module without a table.
    #[error("the module has no global offset table, so @GOTOFF has no value")]
    NoOffsetTable,
}

/// The value of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// Extended to 128 bits, by sign if the format says so.
    bits: u128,
    format: Format,
}

impl Value {
    /// The low bytes of `bits`, read as `format` says.
    pub fn new(bits: u128, format: Format) -> Self {
        let unused = 128 - 8 * u32::from(format.bytes.clamp(1, 16));
        let bits = match format.signed {
            true => ((bits << unused).cast_signed() >> unused).cast_unsigned(),
            false => bits << unused >> unused,
        };
        Self { bits, format }
    }

    /// How it was read.
    pub fn format(self) -> Format {
        self.format
    }

    /// Its low 64 bits, extended: what a handler pushes.
    pub fn word(self) -> u64 {
        self.bits as u64
    }

    /// As a number with a sign.
    pub fn number(self) -> i128 {
        self.bits.cast_signed()
    }

    /// As a floating-point number, if it is one.
    pub fn float(self) -> Option<f64> {
        match (self.format.float, self.format.bytes) {
            (true, 4) => Some(f32::from_bits(self.bits as u32).into()),
            (true, 8) => Some(f64::from_bits(self.bits as u64)),
            (true, 16) => Some(extended(self.bits)),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.float() {
            Some(float) => write!(f, "{float}"),
            None if self.format.signed => write!(f, "{}", self.number()),
            None => write!(f, "{}", self.bits),
        }
    }
}

/// The x87's 80 bits as a double (SDM volume 1, 4.2.2); what a double cannot hold is rounded.
fn extended(bits: u128) -> f64 {
    let (mantissa, top) = (bits as u64, (bits >> 64) as u16);
    let sign = if top >> 15 == 0 { 1.0 } else { -1.0 };
    match top & 0x7fff {
        0x7fff if mantissa << 1 == 0 => sign * f64::INFINITY,
        0x7fff => f64::NAN,
        exponent => {
            let power = i32::from(exponent) - 16383 - 63;
            // Two steps: 2^power alone may be too small for a double where the product is not.
            sign * (mantissa as f64) * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
        }
    }
}

impl Argument {
    /// Its value at `scene`.
    ///
    /// # Errors
    /// Memory cannot be read, or a symbol is unknown.
    pub fn evaluate(&self, scene: &dyn Scene) -> Result<Value, EvaluateError> {
        let bits = match &self.operand {
            Operand::Immediate(value) => (*value).cast_signed().into(),
            Operand::Register(register) => register_value(*register, scene).cast_signed(),
            Operand::Memory(memory) => {
                let address = memory.address(scene)?;
                let mut bytes = [0; 16];
                let wanted = bytes.get_mut(..usize::from(self.format.bytes)).unwrap_or_default();
                if !scene.read(address, wanted) {
                    return Err(EvaluateError::InvalidAddress(address));
                }
                i128::from_le_bytes(bytes)
            }
        };
        Ok(Value::new(bits.cast_unsigned(), self.format))
    }
}

fn register_value(register: Register, scene: &dyn Scene) -> u128 {
    match register {
        Register::General { number, bytes } => {
            let unused = 64 - 8 * u32::from(bytes.clamp(1, 8));
            (scene.general(number) << unused >> unused).into()
        }
        Register::High(number) => (scene.general(number) >> 8 & 0xff).into(),
        Register::Xmm(number) => scene.xmm(number),
    }
}

impl Memory {
    /// The linear address at `scene`, cut to the width of its registers, or of the code if it has none.
    ///
    /// # Errors
    /// A symbol is unknown.
    pub fn address(&self, scene: &dyn Scene) -> Result<u64, EvaluateError> {
        let mut address = self.displacement.cast_unsigned();
        if let Some(symbol) = &self.symbol {
            let value = symbol.value(scene)?;
            address = if symbol.negative { address.wrapping_sub(value) } else { address.wrapping_add(value) };
        }
        let general = |register: Register| register_value(register, scene) as u64;
        if let Some(base) = self.base {
            address = address.wrapping_add(general(base));
        }
        if let Some((index, scale)) = self.index {
            address = address.wrapping_add(general(index).wrapping_mul(scale.into()));
        }
        let narrow = |register: Register| register.bytes() == 4;
        let cut = self.base.or(self.index.map(|(index, _)| index)).is_some_and(narrow);
        Ok(if cut { address & 0xffff_ffff } else { address & scene.width().max_addr() })
    }
}

impl SymbolTerm {
    fn value(&self, scene: &dyn Scene) -> Result<u64, EvaluateError> {
        let address =
            scene.symbol(&self.name).ok_or_else(|| EvaluateError::UnknownSymbol(self.name.clone()))?;
        if !self.from_got {
            return Ok(address);
        }
        Ok(address.wrapping_sub(scene.offset_table().ok_or(EvaluateError::NoOffsetTable)?))
    }
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
mod tests;
