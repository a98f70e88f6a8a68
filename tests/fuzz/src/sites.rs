//! Targets of the readers of statically defined probes.

use crate::Checks;
use trapline_emu::load::{ElfView, Width};
use trapline_emu::symbols::Symbols;
use trapline_providers::sdt::{
    CallSites, Domain, KernelFile, LinuxSites, MacroProbes, Scene, StapNotes, argument,
};

/// A guest of which half of all memory can be read, and half of all symbols are known.
struct Anywhere(Width);

impl Scene for Anywhere {
    fn width(&self) -> Width {
        self.0
    }

    fn general(&self, number: u8) -> u64 {
        u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn xmm(&self, number: u8) -> u128 {
        u128::MAX / u128::from(number + 1)
    }

    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        to.fill(address as u8);
        address & 1 == 0
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        (name.len() % 2 == 1).then_some(u64::MAX - name.len() as u64)
    }

    fn offset_table(&self) -> Option<u64> {
        Some(0x1000)
    }
}

/// A program of `width` whose section of notes is `notes`: 0x1000 bytes of NOPs at 0x1000, writable memory at 0x2000.
fn program(width: Width, notes: &[u8]) -> Vec<u8> {
    let wide = width == Width::Bits64;
    let word = |n: u64| n.to_le_bytes()[..if wide { 8 } else { 4 }].to_vec();
    let (header, program, section) = if wide { (64u64, 56u16, 64u16) } else { (52, 32, 40) };
    let names = b"\0.note.stapsdt\0.stapsdt.base\0";
    let names_at = 0x2000 + notes.len() as u64;
    let sections_at = names_at + names.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, 1, 1];
    file.resize(16, 0);
    file.extend([2, 0, if wide { 62 } else { 3 }, 0, 1, 0, 0, 0]);
    for field in [0x1000, header, sections_at] {
        file.extend(word(field));
    }
    file.extend([0; 4]);
    for field in [header as u16, program, 2, section, 4, 3] {
        file.extend(field.to_le_bytes());
    }
    // Code, then data that has no bytes in the file.
    for (flags, offset, address, in_file) in [(5u32, 0x1000, 0x1000, 0x1000), (6, 0, 0x2000, 0)] {
        file.extend(1u32.to_le_bytes());
        if wide {
            file.extend(flags.to_le_bytes());
        }
        for field in [offset, address, address, in_file, 0x1000] {
            file.extend(word(field));
        }
        if !wide {
            file.extend(flags.to_le_bytes());
        }
        file.extend(word(1));
    }
    file.resize(0x1000, 0);
    file.resize(0x2000, 0x90);
    file.extend(notes);
    file.extend(names);
    let sections = [
        (0u32, 0u32, 0, 0, 0),
        (1, 7, 0, 0x2000, notes.len() as u64),
        (15, 1, 0x3000, 0x2000, 0),
        (0, 3, 0, names_at, names.len() as u64),
    ];
    for (name, kind, address, offset, size) in sections {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for field in [0, address, offset, size] {
            file.extend(word(field));
        }
        file.extend([0; 8]);
        file.extend(word(1));
        file.extend(word(0));
    }
    file
}

/// The section's bytes, of either width; and, as text, one argument.
pub fn notes(bytes: &[u8], _: Checks) {
    for width in [Width::Bits32, Width::Bits64] {
        let file = program(width, bytes);
        let view = ElfView::parse(&file).unwrap();
        let found = StapNotes::read(&view).unwrap();
        for refused in &found.refused {
            assert!(!refused.to_string().is_empty());
        }
        for probe in &found.probes {
            assert_eq!(file[probe.offset as usize], 0x90, "a site is a NOP");
            assert!(probe.semaphore.is_none_or(|at| (0x2000..0x2fff).contains(&at)));
            probe.arguments.iter().flatten().for_each(|argument| look(argument, width));
        }
        if let Ok(read) = argument(&String::from_utf8_lossy(bytes), width) {
            look(&read, width);
        }
    }
}

fn look(read: &trapline_providers::sdt::Argument, width: Width) {
    let printed = read.to_string();
    assert_eq!(argument(&printed, width).as_ref(), Ok(read), "{printed}");
    match read.evaluate(&Anywhere(width)) {
        Ok(value) => assert!(!value.to_string().is_empty() && value.format() == read.format),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A whole file.
pub fn sites(bytes: &[u8], _: Checks) {
    let Ok(view) = ElfView::parse(bytes) else { return };
    let _ = StapNotes::read(&view);
    if let Ok(found) = MacroProbes::read(&view) {
        for probe in &found.probes {
            assert_eq!(probe.arguments().len(), probe.types.len());
        }
    }
    for domain in [Domain::Kernel, Domain::User] {
        let Ok(found) = CallSites::read(&view, domain) else { continue };
        let mut loaded = bytes.to_vec();
        found.load_into(&mut loaded);
        assert_eq!(loaded.len(), bytes.len());
        assert!(found.probes().values().map(Vec::len).sum::<usize>() <= found.sites.len());
    }
    let image = KernelFile::image(&view, &Symbols::new("fuzz"));
    for file in [KernelFile::module(&view), image].into_iter().flatten() {
        let found = LinuxSites::read(&file);
        for refused in &found.refused {
            assert!(!refused.to_string().is_empty());
        }
    }
}
