//! The scene of a hit in a running guest.

use super::evaluate::Scene;
use trapline_emu::Core;
use trapline_emu::load::Width;
use trapline_emu::symbols::Symbols;

/// A guest that has stopped at a site of one module. Segments are assumed to be flat, as in all systems that use
/// such probes.
#[derive(Clone, Copy)]
pub struct GuestScene<'a> {
    /// The machine.
    pub core: &'a Core,
    /// The module's symbols, as linked.
    pub symbols: &'a Symbols,
    /// The difference between its mapped and linked addresses.
    pub bias: u64,
}

impl Scene for GuestScene<'_> {
    fn width(&self) -> Width {
        if self.core.env().code64() { Width::Bits64 } else { Width::Bits32 }
    }

    fn general(&self, number: u8) -> u64 {
        self.core.env().gpr(number.into())
    }

    fn xmm(&self, number: u8) -> u128 {
        self.core.env().xmm(number.into())
    }

    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        self.core.peek(address, to).is_ok()
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        let address = self.symbols.sole(name)?.addr.wrapping_add(self.bias);
        Some(address & self.width().max_addr())
    }

    fn offset_table(&self) -> Option<u64> {
        self.symbol("_GLOBAL_OFFSET_TABLE_")
    }
}
