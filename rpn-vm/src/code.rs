//! Internal code: instructions with resolved operands, and their byte form.
//!
//! Encoder and decoder are views of the instruction table: an opcode byte,
//! then the operand, little-endian, of the size that the table gives. Decoded
//! code is not trusted; [`crate::verify`] decides what may run.

use thiserror::Error;

use crate::instructions::{Op, OperandKind};

/// One instruction with its operand resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Insn {
    /// The operation.
    pub op: Op,
    /// The operand by its kind: instruction index, value, count, variable index, register index, or
    /// displacement (sign-extended); 0 where there is none.
    pub arg: u64,
}

/// What can be wrong with encoded code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CodeError {
    /// A byte that is not an opcode.
    #[error("byte {offset} is {code:#04x}, which is not an opcode")]
    Opcode {
        /// Where.
        offset: usize,
        /// The byte.
        code: u8,
    },
    /// The code ends inside an operand.
    #[error("the code ends inside the operand of the instruction at byte {offset}")]
    Truncated {
        /// Where the instruction starts.
        offset: usize,
    },
}

/// Encodes instructions. Operands are cut to the size that the table gives them.
#[must_use]
pub fn encode(code: &[Insn]) -> Vec<u8> {
    let mut out = Vec::with_capacity(code.len() * 3);
    for insn in code {
        let row = insn.op.row();
        out.push(row.code);
        out.extend_from_slice(&insn.arg.to_le_bytes()[..row.operand.size()]);
    }
    out
}

/// Decodes the instruction at byte `at`; returns it and where the next one begins, or `None` at the end.
///
/// # Errors
/// A byte that is not an opcode, or a truncated operand.
pub fn decode_one(bytes: &[u8], at: usize) -> Result<Option<(Insn, usize)>, CodeError> {
    let Some(&code) = bytes.get(at) else { return Ok(None) };
    let op = Op::from_code(code).ok_or(CodeError::Opcode { offset: at, code })?;
    let kind = op.row().operand;
    let end = at + 1 + kind.size();
    let raw = bytes.get(at + 1..end).ok_or(CodeError::Truncated { offset: at })?;
    let mut wide = [0u8; 8];
    wide[..raw.len()].copy_from_slice(raw);
    let mut arg = u64::from_le_bytes(wide);
    if kind == OperandKind::Disp {
        arg = i64::from(arg as u32 as i32) as u64;
    }
    Ok(Some((Insn { op, arg }, end)))
}

/// Decodes bytes.
///
/// # Errors
/// The first byte that is not an opcode, or a truncated operand.
pub fn decode(bytes: &[u8]) -> Result<Vec<Insn>, CodeError> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some((insn, next)) = decode_one(bytes, at)? {
        out.push(insn);
        at = next;
    }
    Ok(out)
}
