//! Where a boot loader puts what it loads beside a kernel: modules, each at a page's start after the kernel, then the boot
//! information.

use super::LoadError;
use super::multiboot::MultibootError;
use super::plan::LoadPlan;
use crate::layout::RamLayout;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A module in its place.
pub(super) struct Placed<'a> {
    /// Physical address of its first byte.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// Its string.
    pub name: &'a str,
}

/// All modules, and the address after them, at which the boot information can lie.
pub(super) struct Places<'a> {
    pub modules: Vec<Placed<'a>>,
    pub writes: Vec<(u64, Vec<u8>)>,
    pub next: u64,
    pub limit: u64,
}

/// Places the modules of `plan`'s kernel into `mem_size` bytes of RAM.
pub(super) fn place<'a>(
    plan: &LoadPlan,
    modules: &[(&'a str, &[u8])],
    mem_size: u64,
) -> Result<Places<'a>, LoadError> {
    plan.check_fits(mem_size)?;
    let limit = RamLayout::of(mem_size).low_end();
    let (mut writes, mut placed) = (Vec::new(), Vec::new());
    let mut next = plan.end().max(MIB).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    for (index, (name, bytes)) in modules.iter().enumerate() {
        let what = format!("module {index} ({name})");
        check_string(&what, name)?;
        let end = room(&what, next, bytes.len() as u64, limit)?;
        placed.push(Placed { start: next, end, name });
        writes.push((next, bytes.to_vec()));
        next = end.next_multiple_of(PAGE);
    }
    Ok(Places { modules: placed, writes, next, limit })
}

/// A kernel's command line: its name and its arguments.
pub(super) fn command_line(plan: &LoadPlan, cmdline: &str) -> Result<String, LoadError> {
    let line = if cmdline.is_empty() { plan.name.clone() } else { format!("{} {cmdline}", plan.name) };
    check_string("command line", &line)?;
    Ok(line)
}

pub(super) fn check_string(what: &str, text: &str) -> Result<(), MultibootError> {
    match text.find('\0') {
        Some(at) => Err(MultibootError::Nul { what: what.to_owned(), at }),
        None => Ok(()),
    }
}

/// The end of `size` bytes at `start`, if that is within `limit`.
pub(super) fn room(what: &str, start: u64, size: u64, limit: u64) -> Result<u64, MultibootError> {
    start.checked_add(size).filter(|end| *end <= limit).ok_or_else(|| MultibootError::NoRoom {
        what: what.to_owned(),
        size,
        start,
        limit,
    })
}

/// An address below 4 GiB, as [`place`] and [`room`] have checked it.
pub(super) fn addr32(addr: u64) -> u32 {
    u32::try_from(addr).unwrap_or(u32::MAX)
}
