//! DWARF of a kernel: source lines of addresses and back, and the parameters of functions.
//!
//! gimli reads it, addr2line finds lines. The file may be anything: what cannot be read is left out, and a section that
//! cannot be unpacked is an error. Looking up a source line reads the line tables of the units that name its file; a
//! function's parameters, the entries of all units up to it.

mod types;

pub use types::DwarfTypes;

use std::io::Read;
use std::sync::{Arc, Mutex};

use gimli::constants as dw;
use gimli::{AttributeValue, EndianArcSlice, LittleEndian, Reader as _, UnitRef};

use super::{Parameter, SymbolError};
use crate::load::elf::Section;
use crate::load::{ElfView, Width};

type Reader = EndianArcSlice<LittleEndian>;

/// Most bytes that one compressed section unpacks to.
const MAX_SECTION: u64 = 1 << 31;
/// How deep types are followed.
const DEPTH: usize = 16;
/// SHF_COMPRESSED and ELFCOMPRESS_ZLIB (System V ABI, "Section compression").
const COMPRESSED: u64 = 0x800;
const ZLIB: u32 = 1;

/// Why DWARF cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DwarfError {
    /// A section that cannot be unpacked.
    #[error("the section {section} is compressed and cannot be unpacked: {reason}")]
    Compressed {
        /// Its name.
        section: String,
        /// Why.
        reason: String,
    },
    /// A part that gimli could not read.
    #[error("the debugging information (DWARF) cannot be read: {reason}")]
    Malformed {
        /// The message of gimli.
        reason: String,
    },
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// The file's path as the compiler knew it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// Where the code of a source line is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinePlaces {
    /// Where statements of the line begin, ascending, each once.
    pub addresses: Vec<u64>,
    /// The files of the name asked for that have code, ascending.
    pub files: Vec<String>,
    /// The nearest later line that has code.
    pub next: Option<u32>,
}

/// The debugging information of one file.
pub struct Dwarf {
    sections: Arc<gimli::Dwarf<Reader>>,
    /// In a lock, because it caches the units that it has read.
    context: Mutex<addr2line::Context<Reader>>,
}

impl std::fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dwarf").finish_non_exhaustive()
    }
}

impl From<gimli::Error> for DwarfError {
    fn from(error: gimli::Error) -> Self {
        Self::Malformed { reason: error.to_string() }
    }
}

impl Dwarf {
    /// The debugging information in the ELF file `bytes`; `None` if it has none.
    ///
    /// # Errors
    /// The file is not an ELF file for x86, a section cannot be unpacked, or the headers of the units are damaged.
    pub fn from_elf(bytes: &[u8]) -> Result<Option<Self>, SymbolError> {
        let view = ElfView::parse(bytes)?;
        let named = |name: &str| view.sections().iter().find(|section| section.name == name);
        if named(".debug_info").is_none() || named(".debug_line").is_none() {
            return Ok(None);
        }
        let load = |id: gimli::SectionId| -> Result<Reader, SymbolError> {
            let bytes = named(id.name()).map(|section| contents(&view, section)).transpose()?;
            Ok(Reader::new(bytes.unwrap_or_default(), LittleEndian))
        };
        let sections = Arc::new(gimli::Dwarf::load(load)?);
        let context = addr2line::Context::from_arc_dwarf(Arc::clone(&sections)).map_err(DwarfError::from)?;
        Ok(Some(Self { sections, context: Mutex::new(context) }))
    }

    /// The source line of the instruction at `addr`.
    pub fn line_at(&self, addr: u64) -> Option<SourceLine> {
        let context = self.context.lock().ok()?;
        let found = context.find_location(addr).ok()??;
        Some(SourceLine { file: found.file?.to_owned(), line: found.line? })
    }

    /// Where the line `line` of the file `file` has code. `file` is the path's last part or parts: `fork.c`,
    /// `kernel/fork.c`. Only places that the compiler calls the beginning of a statement count.
    pub fn places(&self, file: &str, line: u32) -> LinePlaces {
        let mut found = LinePlaces::default();
        for unit in self.units() {
            // A damaged line table counts up to the damage.
            let _ = unit_places(unit.unit_ref(&self.sections), file, line, &mut found);
        }
        found.addresses.sort_unstable();
        found.addresses.dedup();
        found.files.sort_unstable();
        found.files.dedup();
        found
    }

    /// The parameters of the function `name`; if several functions have this name, of the first.
    pub fn parameters(&self, name: &str) -> Option<Vec<Parameter>> {
        self.units().find_map(|unit| {
            let mut found = Vec::new();
            unit_functions(unit.unit_ref(&self.sections), |other| other == name, &mut found).ok()?;
            Some(found.into_iter().next()?.1)
        })
    }

    /// Every function that is wanted by its name, with its parameters, in the order of the units; a damaged unit up to the
    /// damage.
    pub fn functions(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<Parameter>)> {
        let mut found = Vec::new();
        for unit in self.units() {
            let _ = unit_functions(unit.unit_ref(&self.sections), &wanted, &mut found);
        }
        found
    }

    /// All units up to the first that is damaged.
    fn units(&self) -> impl Iterator<Item = gimli::Unit<Reader>> {
        let mut headers = self.sections.units();
        std::iter::from_fn(move || self.sections.unit(headers.next().ok()??).ok())
    }
}

/// A section's bytes, unpacked.
fn contents(view: &ElfView<'_>, section: &Section) -> Result<Arc<[u8]>, SymbolError> {
    let bytes = view.section_bytes(section)?;
    if section.flags & COMPRESSED == 0 {
        return Ok(bytes.into());
    }
    let failed = |reason: String| DwarfError::Compressed { section: section.name.clone(), reason };
    let header = if view.width() == Width::Bits32 { 12 } else { 24 };
    let kind = bytes.first_chunk().map(|kind| u32::from_le_bytes(*kind));
    let packed = match (kind, bytes.get(header..)) {
        (Some(ZLIB), Some(packed)) => packed,
        (Some(kind), Some(_)) => {
            return Err(failed(format!("its method is {kind}; it must be {ZLIB} (zlib)")).into());
        }
        _ => return Err(failed("its header is cut off".to_owned()).into()),
    };
    let mut unpacked = Vec::new();
    let mut from = flate2::read::ZlibDecoder::new(packed).take(MAX_SECTION + 1);
    from.read_to_end(&mut unpacked).map_err(|error| failed(error.to_string()))?;
    if unpacked.len() as u64 > MAX_SECTION {
        return Err(failed(format!("it is larger than {MAX_SECTION} bytes")).into());
    }
    Ok(unpacked.into())
}

/// Adds the places of one unit.
fn unit_places(
    unit: UnitRef<'_, Reader>,
    file: &str,
    line: u32,
    found: &mut LinePlaces,
) -> Result<(), gimli::Error> {
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    // Files count from 1 up to DWARF 4, from 0 since.
    let count = program.header().file_names().len() as u64;
    let mut paths = Vec::new();
    for index in 0..=count {
        let entry = program.header().file(index);
        let path = entry.and_then(|entry| file_path(unit, program.header(), entry).ok());
        paths.push(path.filter(|path| is_called(path, file)));
    }
    if paths.iter().all(Option::is_none) {
        return Ok(());
    }
    let mut rows = program.rows();
    let mut before = None;
    while let Some((_, row)) = rows.next_row()? {
        if row.end_sequence() {
            before = None;
            continue;
        }
        let here = (row.file_index(), row.line().map_or(0, |line| line.get()));
        let starts = before != Some(here);
        // A line extends to the beginning of the next one; a row that is not a statement does not begin one.
        if row.is_stmt() {
            before = Some(here);
        }
        let path = usize::try_from(here.0).ok().and_then(|index| paths.get(index)?.as_ref());
        let Some(path) = path.filter(|_| row.is_stmt() && starts && row.address() != 0) else { continue };
        if !found.files.contains(path) {
            found.files.push(path.clone());
        }
        match u32::try_from(here.1) {
            Ok(own) if own == line => found.addresses.push(row.address()),
            Ok(own) if own > line => found.next = Some(found.next.map_or(own, |next| next.min(own))),
            _ => {}
        }
    }
    Ok(())
}

/// The path of a file of a line table.
fn file_path(
    unit: UnitRef<'_, Reader>,
    header: &gimli::LineProgramHeader<Reader>,
    entry: &gimli::FileEntry<Reader>,
) -> Result<String, gimli::Error> {
    let mut path = match &unit.comp_dir {
        Some(folder) => folder.to_string_lossy()?.into_owned(),
        None => String::new(),
    };
    let mut push = |part: AttributeValue<Reader>| -> Result<(), gimli::Error> {
        let part = unit.attr_string(part)?;
        let part = part.to_string_lossy()?;
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(&part);
        Ok(())
    };
    // The folder 0 is the unit's own.
    if entry.directory_index() != 0
        && let Some(folder) = entry.directory(header)
    {
        push(folder)?;
    }
    push(entry.path_name())?;
    Ok(path)
}

/// Whether a path ends with the parts of `name`.
fn is_called(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|rest| !name.is_empty() && (rest.is_empty() || rest.ends_with('/')))
}

/// Adds the functions of one unit that are wanted and of which there is code.
fn unit_functions(
    unit: UnitRef<'_, Reader>,
    wanted: impl Fn(&str) -> bool,
    found: &mut Vec<(String, Vec<Parameter>)>,
) -> Result<(), gimli::Error> {
    let mut entries = unit.entries();
    // The depth of the current function; its parameters lie directly below it.
    let mut within: Option<isize> = None;
    while let Some(entry) = entries.next_dfs()? {
        if let Some(depth) = within.filter(|depth| entry.depth() > *depth) {
            if let Some((_, list)) = found.last_mut()
                && entry.depth() == depth + 1
            {
                list.extend(parameter(unit, entry));
            }
            continue;
        }
        within = None;
        if entry.tag() == dw::DW_TAG_subprogram
            && entry.attr_value(dw::DW_AT_declaration).is_none()
            && let Some(name) = entry_name(unit, entry).filter(|name| wanted(name))
        {
            within = Some(entry.depth());
            found.push((name, Vec::new()));
        }
    }
    Ok(())
}

/// The parameter that an entry directly below a function's describes.
fn parameter(unit: UnitRef<'_, Reader>, entry: &Entry) -> Option<Parameter> {
    match entry.tag() {
        dw::DW_TAG_formal_parameter => Some(Parameter {
            name: entry_name(unit, entry).unwrap_or_default(),
            type_name: type_name(unit, entry, DEPTH),
        }),
        dw::DW_TAG_unspecified_parameters => {
            Some(Parameter { name: String::new(), type_name: "...".to_owned() })
        }
        _ => None,
    }
}

type Entry = gimli::DebuggingInformationEntry<Reader>;

fn entry_name(unit: UnitRef<'_, Reader>, entry: &Entry) -> Option<String> {
    let name = unit.attr_string(entry.attr_value(dw::DW_AT_name)?).ok()?;
    Some(name.to_string_lossy().ok()?.into_owned())
}

/// The type that `entry` has, as C writes it; functions and arrays are shortened.
fn type_name(unit: UnitRef<'_, Reader>, entry: &Entry, depth: usize) -> String {
    let target = match entry.attr_value(dw::DW_AT_type) {
        None => return "void".to_owned(),
        Some(AttributeValue::UnitRef(at)) => unit.entry(at).ok(),
        Some(_) => None,
    };
    let Some((target, left)) = target.zip(depth.checked_sub(1)) else { return "?".to_owned() };
    let inner = || type_name(unit, &target, left);
    let own = || entry_name(unit, &target).unwrap_or_default();
    match target.tag() {
        dw::DW_TAG_pointer_type => match inner() {
            name if name.ends_with('*') => format!("{name}*"),
            name => format!("{name} *"),
        },
        dw::DW_TAG_const_type => format!("const {}", inner()),
        dw::DW_TAG_volatile_type => format!("volatile {}", inner()),
        dw::DW_TAG_atomic_type => format!("_Atomic {}", inner()),
        dw::DW_TAG_restrict_type => inner(),
        dw::DW_TAG_array_type => format!("{}[]", inner()),
        dw::DW_TAG_structure_type | dw::DW_TAG_class_type => format!("struct {}", own()),
        dw::DW_TAG_union_type => format!("union {}", own()),
        dw::DW_TAG_enumeration_type => format!("enum {}", own()),
        dw::DW_TAG_subroutine_type => "(function)".to_owned(),
        _ => own(),
    }
}

#[cfg(test)]
#[path = "dwarf_tests.rs"]
mod tests;
