//! Where functions are, by the unwind tables of their file, including functions without a symbol.
//!
//! Compilers describe each function to the unwinder of exceptions in `.eh_frame` (LSB Core, 10.6.1), and stripping leaves
//! that. Not here: unwinding.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};

use crate::load::{ElfView, Width};

/// Address and size of each function by address, none twice. A damaged entry ends the list.
pub(super) fn functions(view: &ElfView<'_>) -> Vec<(u64, u64)> {
    let named = |name: &str| view.sections().iter().find(|section| section.name == name);
    let Some(section) = named(".eh_frame") else { return Vec::new() };
    let Ok(bytes) = view.section_bytes(section) else { return Vec::new() };
    let mut frames = EhFrame::new(bytes, LittleEndian);
    frames.set_address_size(match view.width() {
        Width::Bits32 => 4,
        Width::Bits64 => 8,
    });
    let bases = BaseAddresses::default().set_eh_frame(section.addr);
    let bases = named(".text").map_or(bases.clone(), |text| bases.set_text(text.addr));
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { break };
        if entry.len() > 0 {
            found.push((entry.initial_address(), entry.len()));
        }
    }
    // The linker describes its stubs as one function, which they are not.
    let stubs: Vec<_> = view.sections().iter().filter(|section| section.name.starts_with(".plt")).collect();
    found.retain(|(start, _)| {
        !stubs.iter().any(|s| start.checked_sub(s.addr).is_some_and(|into| into < s.size))
    });
    found.sort_unstable();
    found.dedup_by_key(|(start, _)| *start);
    found
}
