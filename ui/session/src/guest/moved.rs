//! Finds where a Linux kernel is that its own code unpacks: with KASLR at an address that is chosen at random.
//!
//! What is random for the guest is not random here, so a machine that is used for nothing else shows it: it runs until the
//! kernel itself runs, at its virtual addresses, and the kernel's own bytes there say how far it was moved. All that is
//! derived from the image (symbols, probes, source lines, dumps) is then that of the moved kernel.

use trapline_emu::load::{Image, LinuxEntry, Moved, Segment};
use trapline_emu::{Access, Core, PAGE, Stop, look};

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

/// How far the kernel was moved, if it runs at its virtual addresses.
fn moved(core: &Core, image: &Image) -> Option<Moved> {
    let plan = image.plan();
    let (ip, upper) = (core.linear_ip(), plan.upper()?);
    let half = 1 << (plan.width.bits() - 1);
    if ip < half || !core.paging().enabled() {
        return None;
    }
    let text = plan.segments.iter().find(|segment| segment.vaddr == upper)?;
    let linked = plan.segment_bytes(text);
    (0..FARTHEST).step_by(ALIGNED as usize).find_map(|distance| {
        let at = ip.checked_sub(distance)?;
        (text.vaddr..text.vaddr.saturating_add(text.mem_size)).contains(&at).then_some(())?;
        let paddr = paddr(core, text.vaddr.wrapping_add(distance))?;
        let mut there = vec![0; linked.len().min(COMPARED)];
        let is_it = core.ram().read(paddr, &mut there) && is_alike(linked, &there);
        is_it.then(|| Moved { vaddr: distance, paddr: distance_of(text, paddr) })
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
