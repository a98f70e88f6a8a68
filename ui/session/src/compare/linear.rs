//! Finds a linear address that is mapped to a physical address.
//!
//! Page tables map in the other direction. So likely addresses are tried: the one in the kernel's image, those near the
//! values of the general registers, and the one in Linux's map of all memory. Each is translated, and counts only if it
//! leads to the physical address.

use trapline_emu::{Access, Core, PAGE};

use crate::session::Session;

/// The address at which Linux maps all memory if no variable holds it: with 64 bits
/// (Documentation/arch/x86/x86_64/mm.rst), and with 32.
const MAPS: [u64; 2] = [0xffff_8880_0000_0000, 0xc000_0000];
/// The variable that holds this address.
const MAP_BASE: &str = "page_offset_base";

/// A linear address of a byte of memory, if one is found.
pub fn linear(session: &Session, paddr: u64) -> Option<u64> {
    let core = session.core();
    let image = session.target().image().plan().paddr_to_vaddr(paddr);
    let env = core.env();
    let near = (0..16).map(|n| env.gpr(n)).chain([env.eip()]).flat_map(|value| {
        let page = value & !(PAGE - 1);
        [page, page.wrapping_add(PAGE), page.wrapping_sub(PAGE)]
    });
    let offset = paddr & (PAGE - 1);
    let maps = base(session).into_iter().chain(MAPS).map(|map| map.wrapping_add(paddr));
    let tried = image.into_iter().chain(near.map(|page| page | offset)).chain(maps);
    tried.map(|va| core.wrap_linear(va)).find(|va| leads_to(core, *va, paddr))
}

fn base(session: &Session) -> Option<u64> {
    let at = session.symbols().sole(MAP_BASE)?.addr;
    let mut bytes = [0; 8];
    session.core().peek(at, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn leads_to(core: &Core, va: u64, paddr: u64) -> bool {
    let found = core.peek_translate(va, Access::Read, false);
    found.is_some_and(|found| found.paddr | (va & (PAGE - 1)) == paddr)
}
