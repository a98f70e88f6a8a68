//! Crash dumps: what of a machine they contain, and where a kernel maps it.

use std::sync::Arc;

use trapline_dump::notes::{self, VMCOREINFO};
use trapline_dump::{CrashDump, MachineHead, Mapped, Vmcore};
use trapline_emu::load::{LoadPlan, Width};
use trapline_emu::{Access, Core, PAGE, RamLayout};
use trapline_interposer::DumpTaker;
use trapline_os::OsProfile;
use trapline_providers::Target;

use super::Session;

/// The memory that a PC gives to a kernel: below the video memory, and from 1 MiB on.
const LOW_END: u64 = 0xa_0000;
const HIGH_START: u64 = 0x10_0000;
/// Where Linux maps all memory on x86-64, unless a variable of the kernel has another address.
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// The memory that 32-bit Linux maps in one piece (`MAXMEM` with the usual split of the address space).
const LOW_MEMORY: u64 = 0x3800_0000;
/// Distance of the addresses at which the mapping of other kernels is examined.
const STEP: u64 = 4 << 20;
/// Most bytes of memory that are searched for a kernel's description of itself.
const MOST_SEARCHED: u64 = 16 << 30;
/// Most bytes of a kernel's description of itself (VMCOREINFO_BYTES), with its header.
const MOST_INFO: usize = PAGE as usize;

impl Session {
    /// What a crash dump of the machine contains now. The probes do not show in it.
    pub fn vmcore(&self) -> Vmcore<'_> {
        let profile = (self.profile)();
        let core = self.core();
        Vmcore { head: head(core, &self.target, profile.as_deref()), memory: core.ram() }
    }
}

impl Session {
    /// The text with which a Linux kernel describes itself to readers of its dump, once it has made it.
    pub fn vmcoreinfo(&self) -> Option<Vec<u8>> {
        let (core, plan) = (self.core(), self.target.image().plan());
        let distance = kernel(plan).and_then(|kernel| Some(kernel.vaddr?.wrapping_sub(kernel.paddr)));
        vmcoreinfo(core, &self.target, &direct_map(core, &self.target, distance))
    }
}

/// Takes dumps of a target while it runs.
pub(super) fn taker(target: &Arc<Target>, profile: Option<Box<dyn OsProfile>>) -> DumpTaker {
    let target = Arc::clone(target);
    Box::new(move |core| {
        let head = head(core, &target, profile.as_deref());
        CrashDump::copy(Vmcore { head, memory: core.ram() }, core.icount())
    })
}

fn head(core: &Core, target: &Target, profile: Option<&dyn OsProfile>) -> MachineHead {
    let plan = target.image().plan();
    let kernel = kernel(plan);
    let distance = kernel.and_then(|kernel| Some(kernel.vaddr?.wrapping_sub(kernel.paddr)));
    let direct = direct_map(core, target, distance);
    let memory =
        ranges(core.ram().layout()).into_iter().flat_map(|range| direct.divide(core, range)).collect();
    let pid = profile.and_then(|profile| profile.current(core)).map_or(0, |task| task.pid);
    let info = plan.linux.is_some().then(|| vmcoreinfo(core, target, &direct)).flatten();
    // In the kernel's own mapping of all memory, its image needs no entry.
    let kernel = kernel.filter(|_| direct.distance != distance);
    MachineHead::of(core, plan.width, (kernel, memory), pid, info)
}

/// The memory, as firmware lists it.
fn ranges(layout: RamLayout) -> Vec<(u64, u64)> {
    let low = layout.low_end();
    let first = [(0, low.min(LOW_END)), (HIGH_START, low)].into_iter();
    let rest = layout.ranges().skip(1).map(|range| (range.start, range.end));
    first.chain(rest).filter(|(start, end)| start < end).collect()
}

/// The kernel's image in the upper half of the address space: its segments at one distance from their physical place.
fn kernel(plan: &LoadPlan) -> Option<Mapped> {
    let upper = |vaddr: u64| vaddr >> (plan.width.bits() - 1) != 0;
    let mut segments = plan.segments.iter().filter(|segment| upper(segment.vaddr));
    let first = segments.next()?;
    let distance = first.vaddr.wrapping_sub(first.paddr);
    let joined = segments.filter(|segment| segment.vaddr.wrapping_sub(segment.paddr) == distance);
    let end = joined.map(|segment| segment.end()).max().unwrap_or(0).max(first.end());
    let start = first.paddr & !(PAGE - 1);
    let size = end.next_multiple_of(PAGE) - start;
    Some(Mapped { paddr: start, size, vaddr: Some(start.wrapping_add(distance)) })
}

/// A kernel's mapping of all memory.
struct DirectMap {
    /// Distance of a virtual address from its physical one; `None` without such a mapping.
    distance: Option<u64>,
    /// The memory that has it; `None` where the page tables must be asked.
    end: Option<u64>,
    width: Width,
}

fn direct_map(core: &Core, target: &Target, distance: Option<u64>) -> DirectMap {
    let plan = target.image().plan();
    let width = plan.width;
    if plan.linux.is_some() && width == Width::Bits64 {
        let named =
            target.symbols().sole("page_offset_base").and_then(|symbol| plan.vaddr_to_paddr(symbol.addr));
        let base = named.map(|paddr| core.ram().read_int(paddr, 8)).filter(|base| base >> 47 == 0x1_ffff);
        return DirectMap { distance: Some(base.unwrap_or(DIRECT_MAP)), end: Some(u64::MAX), width };
    }
    if plan.linux.is_none() && !core.paging().enabled() {
        return DirectMap { distance: Some(0), end: Some(u64::MAX), width };
    }
    let end = if plan.linux.is_some() { Some(LOW_MEMORY) } else { None };
    DirectMap { distance: distance.or(Some(0)), end, width }
}

impl DirectMap {
    /// A range with its virtual address, divided where the mapping ends.
    fn divide(&self, core: &Core, (start, end): (u64, u64)) -> Vec<Mapped> {
        let Some(distance) = self.distance else {
            return vec![Mapped { paddr: start, size: end - start, vaddr: None }];
        };
        let mapped_end = match self.end {
            Some(mapped) => mapped.clamp(start, end),
            None => self.mapped(core, distance, start, end),
        };
        let vaddr = start.wrapping_add(distance) & self.width.max_addr();
        let pieces = [(start, mapped_end, Some(vaddr)), (mapped_end, end, None)];
        let pieces = pieces.into_iter().filter(|(start, end, _)| start < end);
        pieces.map(|(start, end, vaddr)| Mapped { paddr: start, size: end - start, vaddr }).collect()
    }

    /// How far the guest's page tables map a range so.
    fn mapped(&self, core: &Core, distance: u64, start: u64, end: u64) -> u64 {
        let is_mapped = |paddr: u64| {
            let va = paddr.wrapping_add(distance) & self.width.max_addr();
            let found = core.peek_translate(va, Access::Read, false);
            found.is_some_and(|found| found.paddr == paddr & !(PAGE - 1))
        };
        let (mut mapped, mut ends) = (start, start);
        while ends < end && is_mapped(ends) {
            (mapped, ends) = (ends, (ends + STEP).min(end));
        }
        // The last page that is mapped so lies between the two.
        while ends.saturating_sub(mapped) > PAGE {
            let middle = mapped + (ends - mapped) / 2 / PAGE * PAGE;
            if is_mapped(middle) { mapped = middle } else { ends = middle }
        }
        if is_mapped(mapped) { mapped + PAGE } else { start }
    }

    /// The physical address of a virtual one in it.
    fn paddr(&self, va: u64) -> Option<u64> {
        Some(va.wrapping_sub(self.distance?) & self.width.max_addr())
    }
}

/// The text with which a Linux kernel describes itself to readers of its dump, once it has made it: `vmcoreinfo_note`
/// points to a note with it, which begins a page. Kernels that do not name that pointer are searched for the note.
fn vmcoreinfo(core: &Core, target: &Target, direct: &DirectMap) -> Option<Vec<u8>> {
    let plan = target.image().plan();
    let pointer =
        target.symbols().sole("vmcoreinfo_note").and_then(|symbol| plan.vaddr_to_paddr(symbol.addr));
    let size = plan.width.bits() as usize / 8;
    match pointer {
        Some(pointer) => note_at(core, direct.paddr(core.ram().read_int(pointer, size))?),
        None => {
            let size = core.ram().layout().end().min(MOST_SEARCHED);
            (0..size).step_by(PAGE as usize).find_map(|paddr| note_at(core, paddr))
        }
    }
}

/// The text of the note at a physical address, if that is such a note.
fn note_at(core: &Core, paddr: u64) -> Option<Vec<u8>> {
    let ram = core.ram();
    // The length of the owner's name, with its NUL, comes first.
    if ram.read_int(paddr, 4) != VMCOREINFO.len() as u64 + 1 {
        return None;
    }
    let size = ram.layout().end().checked_sub(paddr)?.min(MOST_INFO as u64);
    let mut bytes = vec![0; size as usize];
    // A dump may lack the second page.
    if !ram.read(paddr, &mut bytes) {
        bytes.truncate((PAGE - paddr % PAGE) as usize);
        ram.read(paddr, &mut bytes).then_some(())?;
    }
    let notes = notes::read(&bytes);
    let first = notes.first().filter(|note| note.owner == VMCOREINFO.as_bytes() && note.kind == 0)?;
    first.content.starts_with(b"OSRELEASE=").then(|| first.content.to_vec())
}
