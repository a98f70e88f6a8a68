//! Finds where a Linux kernel is that its own code unpacks: with KASLR at an address that is chosen at random.
//!
//! What is random for the guest is not random here, so a machine that is used for nothing else shows it: it runs until the
//! kernel itself runs, at its virtual addresses, and the kernel's own bytes there say how far it was moved. All that is
//! derived from the image (symbols, probes, source lines, dumps) is then that of the moved kernel.

use trapline_emu::load::{Image, LinuxEntry, LoadPlan, Moved, Segment, Width};
use trapline_emu::{Access, Core, PAGE, Paging, Stop, look};

use super::{Guest, GuestError};

/// The word of a command line with which the kernel stays where it was linked.
const NOKASLR: &str = "nokaslr";
/// Instructions between two looks: the kernel does not change its own code in so few.
const STEP: u64 = 50_000;
/// Instructions after which the kernel must run. Debian's kernels are unpacked in 100 to 500 million.
const MOST: u64 = 4_000_000_000;
/// A kernel is moved by a multiple of this, and by less than that.
const ALIGNED: u64 = 2 << 20;
const FARTHEST: u64 = 1 << 30;
/// The bit of CR3 with which the tables of user code lack the kernel.
const USER_TABLES: u64 = 1 << 12;
/// Bytes that are compared at its beginning; of 16 of them 13 are equal, at least: the move changes addresses in the code.
const COMPARED: usize = 1 << 20;
const EQUAL: (usize, usize) = (13, 16);

/// The place of the kernel, as far as it was found.
pub enum Place {
    /// Where it was linked.
    Linked,
    /// It was moved: the distance, and its image.
    Moved(Moved, Box<Image>),
    /// It did not run within so many instructions, or is not the image's kernel.
    Unknown(u64),
}

/// Where the kernel of a guest will be.
///
/// # Errors
/// The machine cannot be built.
pub fn place(guest: &Guest) -> Result<Place, GuestError> {
    let plan = guest.target.image().plan();
    let unpacks = plan.linux.as_ref().is_some_and(|linux| linux.unpacker.is_some());
    let stays = guest.cmdline().split_whitespace().any(|word| word == NOKASLR);
    if guest.hardware.entry == LinuxEntry::Kernel || !unpacks || stays {
        return Ok(Place::Linked);
    }
    let mut machine = guest.machine()?;
    for limit in (1..=MOST / STEP).map(|n| n * STEP) {
        let stop = machine.run(None, limit);
        let core = machine.core();
        if let Some(by) = moved(core, guest.target.image()) {
            if by == Moved::default() {
                return Ok(Place::Linked);
            }
            let image = guest.target.image().moved(by, &|paddr, to| core.ram().read(paddr, to));
            return Ok(image.map_or(Place::Unknown(limit), |image| Place::Moved(by, Box::new(image))));
        }
        if stop != Stop::Limit {
            break;
        }
    }
    Ok(Place::Unknown(machine.core().icount()))
}

/// How far the kernel was moved in memory that does not run, and its image; `None` if it is not found.
pub fn in_still(core: &Core, image: &Image) -> Option<(Moved, Image)> {
    let plan = image.plan();
    let text = text(plan)?;
    let tables = [core.paging(), Paging { cr3: core.paging().cr3 & !USER_TABLES, ..core.paging() }];
    let by = (0..FARTHEST).step_by(ALIGNED as usize).find_map(|distance| {
        let vaddr = text.vaddr.checked_add(distance)?;
        let mapped = tables.iter().filter(|tables| tables.enabled());
        let mapped = mapped
            .filter_map(|tables| Some(look(core.ram(), *tables, vaddr, Access::Read, false).ok()?.paddr));
        // In 32 bits the whole of low memory is mapped at one distance, moved or not.
        let low = (plan.width == Width::Bits32).then_some(text.paddr + distance);
        let paddr = mapped.chain(low).find(|paddr| is_here(core, plan, text, *paddr))?;
        Some(Moved { vaddr: distance, paddr: distance_of(text, paddr) })
    })?;
    // Of a page that the dump leaves out, the file's bytes stay.
    let image = image.moved(by, &|paddr, to| {
        for (n, page) in to.chunks_mut(PAGE as usize).enumerate() {
            core.ram().read(paddr + PAGE * n as u64, page);
        }
        true
    })?;
    Some((by, image))
}

/// The segment with which the kernel's own addresses begin.
fn text(plan: &LoadPlan) -> Option<&Segment> {
    let upper = plan.upper()?;
    plan.segments.iter().find(|segment| segment.vaddr == upper)
}

/// Whether the code of a segment is at a physical address.
fn is_here(core: &Core, plan: &LoadPlan, text: &Segment, paddr: u64) -> bool {
    let linked = plan.segment_bytes(text);
    let mut there = vec![0; linked.len().min(COMPARED)];
    core.ram().read(paddr, &mut there) && is_alike(linked, &there)
}

/// How far the kernel was moved, if it runs at its virtual addresses.
fn moved(core: &Core, image: &Image) -> Option<Moved> {
    let plan = image.plan();
    let ip = core.linear_ip();
    let half = 1 << (plan.width.bits() - 1);
    if ip < half || !core.paging().enabled() {
        return None;
    }
    let text = text(plan)?;
    (0..FARTHEST).step_by(ALIGNED as usize).find_map(|distance| {
        let at = ip.checked_sub(distance)?;
        (text.vaddr..text.vaddr.saturating_add(text.mem_size)).contains(&at).then_some(())?;
        let paddr = paddr(core, text.vaddr.wrapping_add(distance))?;
        is_here(core, plan, text, paddr).then(|| Moved { vaddr: distance, paddr: distance_of(text, paddr) })
    })
}

fn distance_of(text: &Segment, paddr: u64) -> u64 {
    paddr.wrapping_sub(text.paddr)
}

fn paddr(core: &Core, va: u64) -> Option<u64> {
    let found = look(core.ram(), core.paging(), va, Access::Read, false).ok()?;
    Some(found.paddr + va % PAGE)
}

/// Whether memory has the code of a file, with other addresses in it. Bytes that are 0 in the file say nothing.
fn is_alike(file: &[u8], memory: &[u8]) -> bool {
    let pairs = file.iter().zip(memory).filter(|(one, _)| **one != 0);
    let (equal, all) =
        pairs.fold((0, 0), |(equal, all), (one, other)| (equal + usize::from(one == other), all + 1_usize));
    all > 0 && equal * EQUAL.1 >= all * EQUAL.0
}
