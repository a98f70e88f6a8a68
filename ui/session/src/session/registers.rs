//! The registers that are one word, by their names.

use trapline_emu::Core;
use trapline_interposer::processor_register;
use trapline_rpn::{Reg, RegRow, Shape, by_name};

/// The value of a register by its name in any case, if it is one word and the guest has it.
pub(crate) fn named(core: &Core, name: &str, wide: bool) -> Option<u64> {
    let row = by_name(name).filter(|row| is_a_word(row) && (wide || !row.only64))?;
    word(core, row)
}

/// The value of a register that is one word.
pub(crate) fn word(core: &Core, row: &RegRow) -> Option<u64> {
    let value = processor_register(core, row.reg)?;
    Some(if row.shape == Shape::Low32 { value & 0xffff_ffff } else { value })
}

/// Whether a register is one word, so that a condition or an expression may name it.
pub(crate) fn is_a_word(row: &RegRow) -> bool {
    let general = row.reg.gpr_number().is_some() || row.reg.is_segment();
    let control = matches!(row.reg, Reg::Cr0 | Reg::Cr2 | Reg::Cr3 | Reg::Cr4 | Reg::Efer);
    let debug = matches!(row.reg, Reg::Dr0 | Reg::Dr1 | Reg::Dr2 | Reg::Dr3 | Reg::Dr6 | Reg::Dr7);
    let other = matches!(row.reg, Reg::Flags | Reg::Ip | Reg::Tr | Reg::Ldtr | Reg::FsBase | Reg::GsBase);
    general || control || debug || other
}
