//! ELF files made for tests, here and of the symbols.

/// A segment to write.
#[derive(Clone)]
pub struct TestSegment {
    pub vaddr: u64,
    pub paddr: u64,
    pub data: Vec<u8>,
    pub mem_size: u64,
    pub flags: u32,
}

/// A section to write: name, type, flags, address, contents or (for NOBITS) size, link.
#[derive(Clone)]
pub struct TestSection {
    pub name: &'static str,
    pub kind: u32,
    pub flags: u64,
    pub addr: u64,
    pub data: Vec<u8>,
    pub size: u64,
    pub link: u32,
    pub entry_size: u64,
}

/// An ELF file to write.
#[derive(Clone)]
pub struct TestElf {
    pub wide: bool,
    pub kind: u16,
    pub machine: u16,
    pub entry: u64,
    pub segments: Vec<TestSegment>,
    pub sections: Vec<TestSection>,
}

impl TestElf {
    /// One segment of two pages at 1 MB, `hlt` at its start, mapped `high` above its physical address.
    pub fn kernel(wide: bool, high: u64) -> Self {
        let mut data = vec![0xf4];
        data.resize(6000, 0x90);
        let segment =
            TestSegment { vaddr: 0x10_0000 + high, paddr: 0x10_0000, data, mem_size: 0x4000, flags: 5 };
        let machine = if wide { 62 } else { 3 };
        let text = TestSection {
            name: ".text",
            kind: 1,
            flags: 6,
            addr: 0x10_0000 + high,
            data: vec![0x90; 0x800],
            size: 0x800,
            link: 0,
            entry_size: 0,
        };
        Self {
            wide,
            kind: 2,
            machine,
            entry: 0x10_0000 + high,
            segments: vec![segment],
            sections: vec![text],
        }
    }

    /// Puts a Multiboot header at `at` of the first segment's data.
    pub fn with_multiboot(mut self, at: usize, flags: u32) -> Self {
        let words = [0x1bad_b002, flags, 0u32.wrapping_sub(0x1bad_b002).wrapping_sub(flags)];
        for (index, word) in words.iter().enumerate() {
            self.segments[0].data[at + index * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        self
    }

    /// Adds `.symtab` and `.strtab`: name, value, size, info, section index.
    pub fn with_symbols(mut self, symbols: &[(&str, u64, u64, u8, u16)]) -> Self {
        let mut strings = vec![0u8];
        let mut table = vec![0u8; if self.wide { 24 } else { 16 }];
        for (name, value, size, info, home) in symbols {
            let at = strings.len() as u32;
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
            table.extend_from_slice(&at.to_le_bytes());
            if self.wide {
                table.extend_from_slice(&[*info, 0]);
                table.extend_from_slice(&home.to_le_bytes());
                table.extend_from_slice(&value.to_le_bytes());
                table.extend_from_slice(&size.to_le_bytes());
            } else {
                table.extend_from_slice(&(*value as u32).to_le_bytes());
                table.extend_from_slice(&(*size as u32).to_le_bytes());
                table.extend_from_slice(&[*info, 0]);
                table.extend_from_slice(&home.to_le_bytes());
            }
        }
        let link = self.sections.len() as u32 + 2;
        let entry_size = if self.wide { 24 } else { 16 };
        let section = |name, kind, data: Vec<u8>, link, entry_size| TestSection {
            name,
            kind,
            flags: 0,
            addr: 0,
            size: data.len() as u64,
            data,
            link,
            entry_size,
        };
        self.sections.push(section(".symtab", 2, table, link, entry_size));
        self.sections.push(section(".strtab", 3, strings, 0, 0));
        self
    }

    fn word(&self, out: &mut Vec<u8>, value: u64) {
        if self.wide {
            out.extend_from_slice(&value.to_le_bytes());
        } else {
            out.extend_from_slice(&(value as u32).to_le_bytes());
        }
    }

    /// The file: header, program headers, segments (4 KB-aligned), sections, section headers.
    pub fn build(&self) -> Vec<u8> {
        let (header, program, section) = if self.wide { (64usize, 56, 64) } else { (52, 32, 40) };
        let mut body = vec![0u8; header + program * self.segments.len()];
        let offsets: Vec<u64> =
            self.segments.iter().map(|segment| append(&mut body, &segment.data, 4096)).collect();
        let mut names = vec![0u8];
        let mut headers = vec![0u8; section];
        for item in &self.sections {
            let name = names.len() as u32;
            names.extend_from_slice(item.name.as_bytes());
            names.push(0);
            let offset = append(&mut body, &item.data, 4);
            self.section_header(&mut headers, name, item, offset);
        }
        let shstrtab = TestSection {
            name: ".shstrtab",
            kind: 3,
            flags: 0,
            addr: 0,
            size: names.len() as u64 + 10,
            data: Vec::new(),
            link: 0,
            entry_size: 0,
        };
        let name = names.len() as u32;
        names.extend_from_slice(b".shstrtab\0");
        let offset = append(&mut body, &names, 4);
        self.section_header(&mut headers, name, &shstrtab, offset);
        let table = append(&mut body, &headers, 8);
        let front = self.front(&offsets, table, self.sections.len() as u16 + 2);
        body[..front.len()].copy_from_slice(&front);
        body
    }

    fn section_header(&self, out: &mut Vec<u8>, name: u32, item: &TestSection, offset: u64) {
        out.extend_from_slice(&name.to_le_bytes());
        out.extend_from_slice(&item.kind.to_le_bytes());
        for value in [item.flags, item.addr, offset, item.size] {
            self.word(out, value);
        }
        out.extend_from_slice(&item.link.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        self.word(out, 4);
        self.word(out, item.entry_size);
    }

    fn front(&self, offsets: &[u64], table: u64, sections: u16) -> Vec<u8> {
        let (header, program, section) = if self.wide { (64u16, 56u16, 64u16) } else { (52, 32, 40) };
        let mut out = vec![0x7f, b'E', b'L', b'F', if self.wide { 2 } else { 1 }, 1, 1];
        out.resize(16, 0);
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&self.machine.to_le_bytes());
        out.extend_from_slice(&1u32.to_le_bytes());
        for value in [self.entry, u64::from(header), table] {
            self.word(&mut out, value);
        }
        out.extend_from_slice(&0u32.to_le_bytes());
        for value in [header, program, self.segments.len() as u16, section, sections, sections - 1] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for (segment, offset) in self.segments.iter().zip(offsets) {
            out.extend_from_slice(&1u32.to_le_bytes());
            if self.wide {
                out.extend_from_slice(&segment.flags.to_le_bytes());
            }
            for value in [*offset, segment.vaddr, segment.paddr, segment.data.len() as u64, segment.mem_size]
            {
                self.word(&mut out, value);
            }
            if !self.wide {
                out.extend_from_slice(&segment.flags.to_le_bytes());
            }
            self.word(&mut out, 4096);
        }
        out
    }
}

fn append(body: &mut Vec<u8>, data: &[u8], align: usize) -> u64 {
    body.resize(body.len().next_multiple_of(align), 0);
    let at = body.len() as u64;
    body.extend_from_slice(data);
    at
}

/// The GNU Mach kernel that `make guests` fetches. Without it the test fails and says so.
pub fn gnumach() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../.guests/gnumach");
    std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}; run `make guests` first"))
}
