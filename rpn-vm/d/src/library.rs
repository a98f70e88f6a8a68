//! The library: declarations in D that every program may use, as in DTrace's own library.
//!
//! They are translators and inlines for the arguments of `proc`, `sched` and `io` and for built-in variables such as
//! `curpsinfo`. A file of the library is read when a program uses one of its names. One that describes structures of the
//! kernel is left out for guests whose types are not known. An inline is declared when a program uses it. Translators are
//! checked member by member, when a program uses a member: a kernel may lack one.

use std::sync::{LazyLock, OnceLock};

use rustc_hash::FxHashMap;

use crate::ast::{Inline, Item, Storage};
use crate::guest::{TypeTag, Types};
use crate::parse::{Parsed, Reading, parse};

/// Headers of C that programs may include without having them, by name: what they define is that of the guest, on every host.
const HEADERS: &[(&str, &str)] = &[
    ("endian.h", include_str!("../include/endian.h")),
    ("limits.h", include_str!("../include/limits.h")),
    ("stdint.h", include_str!("../include/stdint.h")),
    ("sys/types.h", include_str!("../include/sys/types.h")),
];

/// The text of a header of C, as `#include <endian.h>` names it.
///
/// ```
/// assert!(trapline_d::header("endian.h").is_some());
/// assert!(trapline_d::header("stdio.h").is_none());
/// ```
#[must_use]
pub fn header(name: &str) -> Option<&'static str> {
    HEADERS.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}

/// A file of the library.
pub(crate) struct File {
    text: &'static str,
    /// The structures of the kernel that it describes.
    needs: &'static [&'static str],
    /// Whether arguments of probes are translated by it.
    translates: bool,
    /// Its declarations, read once for all programs.
    read: OnceLock<Vec<Item>>,
}

/// A file of the library.
const fn file(text: &'static str, needs: &'static [&'static str], translates: bool) -> File {
    File { text, needs, translates, read: OnceLock::new() }
}

/// All files; a later one may use names of an earlier one.
pub(crate) static FILES: [File; 6] = [
    file(include_str!("../lib/errno.d"), &[], false),
    file(include_str!("../lib/signal.d"), &[], false),
    file(include_str!("../lib/regs.d"), &[], false),
    file(include_str!("../lib/sched.d"), &[], true),
    file(include_str!("../lib/procfs.d"), &["task_struct"], true),
    file(include_str!("../lib/io.d"), &["task_struct", "bio", "file"], true),
];

/// Words of a program that need every file that translates.
const TRANSLATING: [&[u8]; 2] = [b"args", b"xlate"];

/// The predeclared types that the files name.
const TYPES: [&str; 11] = [
    "dev_t",
    "gid_t",
    "id_t",
    "offset_t",
    "pid_t",
    "processorid_t",
    "size_t",
    "uid_t",
    "uint64_t",
    "uintptr_t",
    "zoneid_t",
];

/// Some of the files.
pub(crate) type Selection = [bool; FILES.len()];

/// The files that the words of a text name, also those in its comments and strings.
#[derive(Default)]
pub(crate) struct Mentioned {
    files: Selection,
    /// Whether it names something that every file that translates may be needed for.
    translating: bool,
}

/// A name of the library: its file, and its declaration if it is an inline.
type Named = (usize, Option<&'static Inline>);

/// The names of types and inlines of all files.
static NAMES: LazyLock<FxHashMap<&[u8], Named>> = LazyLock::new(|| {
    let named = |(number, file): (usize, &'static File)| {
        names(file.items()).map(move |(name, inline)| (name.as_bytes(), (number, inline)))
    };
    FILES.iter().enumerate().flat_map(named).collect()
});

/// The inline of a name in one of these files.
pub(crate) fn inline(name: &str, files: &Selection) -> Option<&'static Inline> {
    let (number, inline) = NAMES.get(name.as_bytes())?;
    inline.filter(|_| files.get(*number) == Some(&true))
}

/// The names of the inlines in these files.
pub(crate) fn inlines(files: &Selection) -> impl Iterator<Item = &str> {
    let files = FILES.iter().zip(files).filter(|(_, read)| **read);
    files.flat_map(|(file, _)| names(file.items())).filter_map(|(name, inline)| inline.map(|_| name))
}

impl Mentioned {
    pub fn by(text: &[u8]) -> Self {
        let mut found = Self::default();
        for word in text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_') {
            if let Some(file) = NAMES.get(word).and_then(|(number, _)| found.files.get_mut(*number)) {
                *file = true;
            }
            found.translating |= TRANSLATING.contains(&word);
        }
        found
    }
}

impl File {
    /// Its declarations, if a program that names these files uses them and the guest has what they describe.
    pub fn wanted(&self, number: usize, mentioned: &Mentioned, guest: &dyn Types) -> Option<&[Item]> {
        let known = |tag: &&str| guest.type_named(TypeTag::Struct, None, tag).is_some();
        let used = self.translates && mentioned.translating || mentioned.files.get(number) == Some(&true);
        (used && self.needs.iter().all(known)).then(|| self.items())
    }

    fn items(&self) -> &[Item] {
        self.read.get_or_init(|| self.parsed().script.items)
    }

    fn parsed(&self) -> Parsed {
        let known = |name: &str| TYPES.contains(&name);
        let reading =
            Reading { macros: &|_| None, known: &known, of_guest: &|_| false, descriptions_first: false };
        parse(self.text.as_bytes(), reading)
    }
}

/// The names of types and inlines among declarations.
fn names(items: &[Item]) -> impl Iterator<Item = (&str, Option<&Inline>)> {
    items.iter().flat_map(|item| {
        let (declarators, inline) = match item {
            Item::Inline(inline) => (std::slice::from_ref(&inline.declarator), Some(inline)),
            Item::Declaration(declaration) if declaration.base.storage == Some(Storage::Typedef) => {
                (&*declaration.declarators, None)
            }
            _ => (&[][..], None),
        };
        declarators.iter().filter_map(move |declarator| Some((declarator.name.as_deref()?, inline)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_d() {
        for file in &FILES {
            assert_eq!(file.parsed().error, None);
        }
    }
}
