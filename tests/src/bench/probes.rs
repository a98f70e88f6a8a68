//! Naming, listing and arming the probes of a kernel with 45,000 functions, which is what Linux has.

use super::table::{Row, Target as Bound, cpu_seconds, median};
use std::error::Error;
use std::fmt::Write as _;
use trapline_emu::load::Image;
use trapline_emu::symbols::Symbols;
use trapline_emu::{BootFiles, CpuModel, Machine, MachineConfig};
use trapline_providers::{Clause, Target, Untyped, enable, find};
use trapline_tests::interposer;

const FUNCTIONS: u32 = 45_000;
/// Bytes of a function: a frame, some work, a return.
const SIZE: u32 = 256;
const AT: u32 = 0x10_0000;

/// An ELF kernel with [`FUNCTIONS`] functions, and its System.map.
fn kernel() -> (Vec<u8>, String) {
    let mut function = vec![0x55, 0x89, 0xe5];
    function.resize(SIZE as usize - 2, 0x90);
    function.extend([0xc9, 0xc3]);
    let text = function.repeat(FUNCTIONS as usize);
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([2u16, 3].iter().flat_map(|n| n.to_le_bytes()));
    elf.extend([1u32, AT, 52, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    elf.extend([52u16, 32, 1, 40, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    let size = text.len() as u32;
    elf.extend([1u32, 4096, AT, AT, size, size, 5, 4096].iter().flat_map(|n| n.to_le_bytes()));
    elf.resize(4096, 0);
    elf.extend(text);
    let mut map = String::new();
    for n in 0..FUNCTIONS {
        // Writing to a string cannot fail.
        let _ = writeln!(map, "{:08x} T subsystem_{}_function_{n}", AT + n * SIZE, n % 97);
    }
    // The end of the last function.
    let _ = writeln!(map, "{:08x} D _end", AT + FUNCTIONS * SIZE);
    (elf, map)
}

/// The rows.
///
/// # Errors
/// The kernel cannot be built, or lacks expected probes.
pub fn rows(rounds: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let (elf, map) = kernel();
    let image = Image::parse(&elf, "bench")?;
    let symbols = Symbols::from_system_map(map.as_bytes(), "bench")?;
    let (mut named, mut returns, mut armed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let target = Target::new(image.clone(), symbols.clone(), Vec::new());
        let start = cpu_seconds();
        let found = find(&target, "fbt:::entry")?;
        named.push((cpu_seconds() - start) * 1e3);
        let start = cpu_seconds();
        let left = find(&target, "fbt:::return")?;
        returns.push((cpu_seconds() - start) * 1e3);
        if found.len() != FUNCTIONS as usize || left.len() != found.len() {
            return Err(format!("{} entries, {} returns", found.len(), left.len()).into());
        }
        let mut machine = Machine::new(&MachineConfig { mem_size: 64 << 20, model: CpuModel::Ia32 })?;
        machine.load(&image, &BootFiles::default())?;
        let mut probes = interposer();
        let start = cpu_seconds();
        let (resolved, _) = enable(&target, &Clause::parse("fbt:::entry")?, &Untyped)?;
        probes.insert(machine.core_mut(), "bench", resolved.program, resolved.points)?;
        armed.push((cpu_seconds() - start) * 1e3);
        if probes.stats().sites != u64::from(FUNCTIONS) {
            return Err(format!("{} sites are armed", probes.stats().sites).into());
        }
    }
    let row = |what: &str, times: Vec<f64>| {
        let ms = median(times);
        Row::plain(what, ms, "ms").against(ms / 300.0, "300 ms", Bound::AtMost(1.0))
    };
    Ok(vec![
        row("   fbt:::entry resolved", named),
        row("   fbt:::return resolved", returns),
        row("   fbt:::entry resolved and armed", armed),
    ])
}
