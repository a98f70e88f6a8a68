//! Pages that the guest has changed but that still belong to the program.
//!
//! A page belongs to a module if its content is the module's (`user.rs`). That misses pages that a dynamic linker has
//! relocated, in which a debugger has set a breakpoint, or to which the program has written: a private copy differs
//! somewhere from the file. The profile knows which file it is a copy of. That may be another file than the known one,
//! and the difference may be in the probed instruction: so the instruction at the probe's place must be that of the
//! file, as `opcode =` must be its first byte. If the profile does not know the current process, only the content
//! counts.

use trapline_emu::load::Width;
use trapline_emu::symbols::UserModule;
use trapline_emu::{Access, Core, PAGE, look};
use trapline_os::OsProfile;

use iced_x86::{Decoder, DecoderOptions};

/// Longest instruction, bytes.
const LONGEST: usize = 15;

/// Whether the current process has mapped the physical page from `offset` of the file at the module's path.
pub(crate) fn is_mapped(
    core: &Core,
    profile: &dyn OsProfile,
    module: &UserModule,
    offset: u64,
    page: u64,
) -> bool {
    let mappings = profile.mappings(core, profile.current_task(core));
    mappings.iter().filter(|mapping| mapping.path == module.name()).any(|mapping| {
        let into = (offset & !(PAGE - 1)).checked_sub(mapping.offset);
        let va = into.and_then(|into| mapping.start.checked_add(into)).filter(|va| *va < mapping.end);
        va.is_some_and(|va| {
            look(core.ram(), core.paging(), va, Access::Read, true).is_ok_and(|found| found.paddr == page)
        })
    })
}

/// Whether the physical page is a copy of the module's page around `offset`, changed elsewhere than in the instruction
/// there.
pub(crate) fn is_changed_page(
    core: &Core,
    profile: Option<&dyn OsProfile>,
    module: &UserModule,
    offset: u64,
    page: u64,
) -> bool {
    let Some(profile) = profile else { return false };
    // Comparing memory is cheap and nearly always fails; the profile's walk through the mappings is expensive.
    has_instruction(core, module, offset, page) && is_mapped(core, profile, module, offset, page)
}

/// Whether the physical page has the file's instruction at `offset`, as far as it lies on that page.
pub(crate) fn has_instruction(core: &Core, module: &UserModule, offset: u64, page: u64) -> bool {
    let into = (offset % PAGE) as usize;
    let content = module.page((offset / PAGE) as usize).and_then(|content| content.get(into..));
    let Some(content) = content.filter(|content| !content.is_empty()) else { return false };
    let at = page + into as u64;
    // Most pages differ here, and nothing is decoded for them.
    if core.ram().slice(at, 1) != content.get(..1) {
        return false;
    }
    let bits = if module.width() == Width::Bits64 { 64 } else { 32 };
    let instruction = Decoder::new(bits, content, DecoderOptions::NONE).decode();
    // An instruction that crosses the end of the page does not decode: all bytes on the page count.
    let length = if instruction.is_invalid() { content.len().min(LONGEST) } else { instruction.len() };
    let found = core.ram().slice(at, length);
    found.is_some_and(|found| content.get(..length) == Some(found))
}
