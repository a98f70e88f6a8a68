//! From a physical address to a linear one that is mapped to it.
//!
//! Page tables lead the other way. So places are tried at which it may be: where the kernel's image says, near what the
//! general registers hold, and in the map of all memory that Linux has. Each is translated, and only one that leads to the
//! address counts.

use trapline_emu::{Access, Core, PAGE};

use crate::session::Session;

/// Where Linux maps all memory, where no variable says it: with 64 bits (Documentation/arch/x86/x86_64/mm.rst), and with 32.
const MAPS: [u64; 2] = [0xffff_8880_0000_0000, 0xc000_0000];
/// The variable that says it.
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
    let at = session.symbols().lookup(MAP_BASE)?.addr;
    let mut bytes = [0; 8];
    session.core().peek(at, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn leads_to(core: &Core, va: u64, paddr: u64) -> bool {
    let found = core.peek_translate(va, Access::Read, false);
    found.is_some_and(|found| found.paddr | (va & (PAGE - 1)) == paddr)
}
