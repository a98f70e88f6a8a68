//! Converts source lines, `file.c:123`, to addresses and back by DWARF: for the kernel's image and the files given with
//! it, or for a user program.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use trapline_emu::symbols::{Dwarf, DwarfTypes, LinePlaces, Parameter, SourceLine, Symbols, UserModule};

/// The name of the kernel in messages.
pub(crate) const KERNEL: &str = "the kernel";
/// Most places that an error lists.
const SHOWN: usize = 4;

/// A line of a source file, as `file.c:123` or `kernel/fork.c:123` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourcePlace<'a> {
    pub(crate) file: &'a str,
    pub(crate) line: u32,
}

impl<'a> SourcePlace<'a> {
    /// `None` for other forms.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (file, line) = text.rsplit_once(':')?;
        let digits = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        let line = line.parse().ok().filter(|line| digits && *line > 0)?;
        (!file.is_empty() && !file.contains(':')).then_some(Self { file, line })
    }
}

impl fmt::Display for SourcePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Why a source line has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No debugging information at all.
    #[error("`{place}` is a source line, and {home} has no debugging information (DWARF)")]
    NoDwarf {
        /// The place.
        place: String,
        /// The kernel or program.
        home: String,
    },
    /// It is damaged.
    #[error("`{place}` is a source line, but {reason}")]
    Damaged {
        /// The place.
        place: String,
        /// The damage, as a message.
        reason: String,
    },
    /// No such file.
    #[error("no source file `{file}` has code in {home}")]
    NoFile {
        /// Its name.
        file: String,
        /// The kernel or program.
        home: String,
    },
    /// No code on that line.
    #[error("`{place}` has no code")]
    NoCode {
        /// The place.
        place: String,
        /// The next line that has some.
        next: Option<String>,
    },
    /// Code in several functions: inlined, or several files of the name.
    #[error("`{place}` has code at {count} places: {shown}")]
    Several {
        /// The place.
        place: String,
        /// How many.
        count: usize,
        /// Some of them.
        shown: String,
    },
}

impl SourceError {
    /// What to do.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::NoDwarf { home, .. } if home == KERNEL => {
                Some("give it with --sym FILE, such as the vmlinux of a -dbg package".to_owned())
            }
            Self::NoDwarf { .. } => Some("compile it with -g, and do not strip it".to_owned()),
            Self::NoCode { next, .. } => {
                next.as_ref().map(|next| format!("the next line with code is {next}"))
            }
            Self::Several { .. } => Some("write address = and one of them".to_owned()),
            Self::Damaged { .. } | Self::NoFile { .. } => None,
        }
    }
}

/// The files that may contain debugging information, which is read at first use.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceLines {
    files: Vec<Arc<[u8]>>,
    read: Arc<OnceLock<Result<Option<Dwarf>, String>>>,
    /// How far the code is from where the files have it. Sums wrap.
    by: u64,
}

impl SourceLines {
    /// Uses the first of `files` that has debugging information.
    pub(crate) fn new(files: Vec<Arc<[u8]>>) -> Self {
        Self { files, read: Arc::default(), by: 0 }
    }

    /// The same for code that was moved.
    pub(crate) fn moved(&self, by: u64) -> Self {
        Self { by: self.by.wrapping_add(by), ..self.clone() }
    }

    /// Adds `file` before the others.
    pub(crate) fn and(mut self, file: Arc<[u8]>) -> Self {
        self.files.insert(0, file);
        Self { by: self.by, ..Self::new(self.files) }
    }

    fn dwarf(&self) -> Result<Option<&Dwarf>, &str> {
        let read = || {
            for file in self.files.iter().filter(|file| file.starts_with(b"\x7fELF")) {
                if let Some(dwarf) = Dwarf::from_elf(file).map_err(|error| error.to_string())? {
                    return Ok(Some(dwarf));
                }
            }
            Ok(None)
        };
        self.read.get_or_init(read).as_ref().map(Option::as_ref).map_err(String::as_str)
    }

    /// The types that the debugging information tells.
    pub(crate) fn types(&self) -> Option<DwarfTypes> {
        self.dwarf().ok().flatten().map(Dwarf::types)
    }

    /// Whether there are source lines.
    pub(crate) fn are_there(&self) -> Result<bool, &str> {
        self.dwarf().map(|dwarf| dwarf.is_some())
    }

    /// The source line of the instruction at `addr`.
    pub(crate) fn line_at(&self, addr: u64) -> Option<SourceLine> {
        self.dwarf().ok()??.line_at(addr.wrapping_sub(self.by))
    }

    /// The parameters of the wanted functions, by name.
    pub(crate) fn functions(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<Parameter>)> {
        self.dwarf().ok().flatten().map(|dwarf| dwarf.functions(wanted)).unwrap_or_default()
    }

    /// The addresses of the line's code: in each function the lowest one. Code that is inlined into several functions
    /// has several.
    pub(crate) fn address(
        &self,
        place: SourcePlace<'_>,
        symbols: &Symbols,
        home: &str,
    ) -> Result<u64, SourceError> {
        let text = place.to_string();
        let dwarf = match self.dwarf() {
            Ok(Some(dwarf)) => dwarf,
            Ok(None) => return Err(SourceError::NoDwarf { place: text, home: home.to_owned() }),
            Err(reason) => return Err(SourceError::Damaged { place: text, reason: reason.to_owned() }),
        };
        let LinePlaces { addresses, files, next } = dwarf.places(place.file, place.line);
        let mut found: Vec<u64> = Vec::new();
        let function = |addr: u64| symbols.at(addr).map(|at| at.symbol.addr);
        for addr in addresses.into_iter().map(|addr| addr.wrapping_add(self.by)) {
            let seen = function(addr).is_some_and(|start| found.iter().any(|a| function(*a) == Some(start)));
            if !seen {
                found.push(addr);
            }
        }
        match found.as_slice() {
            [one] => Ok(*one),
            [] if files.is_empty() => {
                Err(SourceError::NoFile { file: place.file.to_owned(), home: home.to_owned() })
            }
            [] => {
                let next = next.map(|line| SourcePlace { file: place.file, line }.to_string());
                Err(SourceError::NoCode { place: text, next })
            }
            several => {
                let name = |addr: &u64| {
                    symbols.at(*addr).map_or_else(|| format!("{addr:#x}"), |at| format!("{addr:#x} ({at})"))
                };
                let mut shown: Vec<String> = several.iter().take(SHOWN).map(name).collect();
                if several.len() > SHOWN {
                    shown.push("...".to_owned());
                }
                Err(SourceError::Several { place: text, count: several.len(), shown: shown.join(", ") })
            }
        }
    }
}

/// The source lines of programs, by their paths; each is read at first use. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramLines(Arc<Mutex<BTreeMap<String, SourceLines>>>);

impl ProgramLines {
    /// Those of a program.
    pub(crate) fn of(&self, module: &UserModule) -> SourceLines {
        let new = || SourceLines::new(vec![module.shared_bytes()]);
        match self.0.lock() {
            Ok(mut known) => known.entry(module.name().to_owned()).or_insert_with(new).clone(),
            Err(_) => new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_places_are_told_from_symbols() {
        assert_eq!(SourcePlace::parse("fork.c:123"), Some(SourcePlace { file: "fork.c", line: 123 }));
        let deep = SourcePlace { file: "kernel/fork.c", line: 7 };
        assert_eq!(SourcePlace::parse("kernel/fork.c:7"), Some(deep));
        for other in
            ["fork", "fork.c", "fork.c:", ":12", "fork.c:+1", "fork.c:0", "fork.c:99999999999", "a::b"]
        {
            assert_eq!(SourcePlace::parse(other), None, "{other}");
        }
    }

    #[test]
    fn without_dwarf_a_source_place_is_refused() {
        let place = SourcePlace { file: "fork.c", line: 1 };
        let error = SourceLines::default().address(place, &Symbols::new("k"), KERNEL).unwrap_err();
        let sentence = "`fork.c:1` is a source line, and the kernel has no debugging information (DWARF)";
        assert_eq!(error.to_string(), sentence);
        let damaged = SourceLines::new(vec![Arc::from(&b"\x7fELF"[..])]);
        let error = damaged.address(place, &Symbols::new("k"), KERNEL).unwrap_err().to_string();
        assert!(error.starts_with("`fork.c:1` is a source line, but the ELF file is truncated"), "{error}");
    }
}
