//! A Linux kernel module as probes see it: a relocatable file whose sections the guest's loader places one by one.
//!
//! A place in it is an offset in its file, as that of a user module, and lies in one of its allocated sections. The
//! guest's loader decides where that section lies. No relocation is applied here: bytes are the file's, and the guest's
//! may differ.

use goblin::elf::section_header::SHT_NOBITS;

use super::{ModuleSegment, SymbolError, Symbols, UserModule, read};
use crate::load::{ElfError, ElfView};

/// The section that a module of Linux has.
const MARK: &str = ".gnu.linkonce.this_module";
/// The section in which a plain number is an offset.
const TEXT: &str = ".text";

/// A section that is in memory when the module is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    offset: u64,
    size: u64,
}

/// A kernel module's file.
#[derive(Clone, Debug)]
pub struct KernelModule {
    name: String,
    file: UserModule,
    parts: Vec<Part>,
}

impl KernelModule {
    /// True if `bytes` are a module of Linux: a relocatable ELF file with the section that holds its description.
    pub fn recognises(bytes: &[u8]) -> bool {
        ElfView::parse(bytes).is_ok_and(|view| {
            view.is_relocatable() && view.sections().iter().any(|section| section.name == MARK)
        })
    }

    /// The name that Linux gives the module of the file `path`: without folders and `.ko`, `_` for `-`.
    pub fn name_of(path: &str) -> String {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.strip_suffix(".ko").unwrap_or(file).replace('-', "_")
    }

    /// Reads the file `bytes`, which is at `path` in the guest.
    ///
    /// # Errors
    /// Not such a file, or a part of it lies outside.
    pub fn parse(bytes: &[u8], path: &str) -> Result<Self, SymbolError> {
        let view = ElfView::parse(bytes)?;
        if !Self::recognises(bytes) {
            return Err(ElfError::Type { kind: "no module's".to_owned(), wanted: "REL with a module" }.into());
        }
        view.check_complete()?;
        let loaded: Vec<_> = view
            .sections()
            .iter()
            .filter(|section| section.is_alloc() && section.kind != SHT_NOBITS && section.size > 0)
            .collect();
        let segment = |section: &&crate::load::elf::Section| ModuleSegment {
            offset: section.offset,
            file_size: section.size,
            vaddr: section.offset,
            mem_size: section.size,
            executable: section.is_executable(),
        };
        let parts = loaded.iter().map(|section| Part {
            name: section.name.clone(),
            offset: section.offset,
            size: section.size,
        });
        let symbols = Symbols::build(path, read::relocatable(&view)?);
        let segments = loaded.iter().map(segment).collect();
        let file = UserModule::of_object(&view, path, segments, symbols);
        Ok(Self { name: Self::name_of(path), parts: parts.collect(), file })
    }

    /// Its name in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file, every address of which is a file offset.
    pub fn file(&self) -> &UserModule {
        &self.file
    }

    /// The file offset of byte `n` of its text.
    pub fn text_offset(&self, n: u64) -> Option<u64> {
        self.parts.iter().find(|part| part.name == TEXT)?.offset.checked_add(n)
    }

    /// The section that the file offset `offset` lies in, and how far into it.
    pub fn section_at(&self, offset: u64) -> Option<(&str, u64)> {
        self.parts.iter().find_map(|part| {
            let into = offset.checked_sub(part.offset).filter(|into| *into < part.size)?;
            Some((part.name.as_str(), into))
        })
    }

    /// The file offset of byte `into` of the section `name`; the inverse of [`KernelModule::section_at`].
    pub fn section_offset(&self, name: &str, into: u64) -> Option<u64> {
        let part = self.parts.iter().find(|part| part.name == name && into < part.size)?;
        part.offset.checked_add(into)
    }
}
