//! The library: declarations in D that every program may use, as in DTrace's own library.
//!
//! They are translators and inlines for the arguments of `proc`, `sched` and `io` and for built-in variables such as
//! `curpsinfo`. A file of the library is read when a program uses one of its names. One that describes structures of the
//! kernel is left out for guests whose types are not known. Its translators are checked member by member, when a
//! program uses a member: a kernel may lack one.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::ast::{Item, Storage};
use crate::guest::{TypeTag, Types};
use crate::parse::{Parsed, Reading, parse};

/// A file of the library.
pub(crate) struct File {
    text: &'static str,
    /// The structures of the kernel that it describes.
    needs: &'static [&'static str],
    /// Whether arguments of probes are translated by it.
    translates: bool,
    /// Its declarations, read once for all programs.
    read: OnceLock<Declarations>,
}

/// The declarations of a file.
struct Declarations {
    items: Vec<Item>,
    /// The names of its types and inlines.
    names: Vec<String>,
}

/// A file of the library.
const fn file(text: &'static str, needs: &'static [&'static str], translates: bool) -> File {
    File { text, needs, translates, read: OnceLock::new() }
}

/// All files; a later one may use names of an earlier one.
pub(crate) static FILES: [File; 5] = [
    file(include_str!("../lib/errno.d"), &[], false),
    file(include_str!("../lib/signal.d"), &[], false),
    file(include_str!("../lib/sched.d"), &[], true),
    file(include_str!("../lib/procfs.d"), &["task_struct"], true),
    file(include_str!("../lib/io.d"), &["task_struct", "bio", "file"], true),
];

/// Words of a program that need every file that translates.
const TRANSLATING: [&str; 2] = ["args", "xlate"];

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

/// The names in a text, also those in its comments and strings.
pub(crate) fn words(text: &[u8]) -> BTreeSet<&[u8]> {
    let words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    words.filter(|word| !word.is_empty()).collect()
}

impl File {
    /// Its declarations, if a program with these words uses them and the guest has what they describe.
    pub fn wanted(&self, words: &BTreeSet<&[u8]>, guest: &dyn Types) -> Option<&[Item]> {
        let known = |tag: &&str| guest.type_named(TypeTag::Struct, None, tag).is_some();
        let Declarations { items, names } = self.declarations();
        let translates = self.translates && TRANSLATING.iter().any(|word| words.contains(word.as_bytes()));
        let used = translates || names.iter().any(|name| words.contains(name.as_bytes()));
        (used && self.needs.iter().all(known)).then_some(items)
    }

    fn declarations(&self) -> &Declarations {
        self.read.get_or_init(|| {
            let items = self.parsed().script.items;
            let names = names(&items).map(str::to_owned).collect();
            Declarations { items, names }
        })
    }

    fn parsed(&self) -> Parsed {
        let known = |name: &str| TYPES.contains(&name);
        let reading =
            Reading { macros: &|_| None, known: &known, of_guest: &|_| false, descriptions_first: false };
        parse(self.text.as_bytes(), reading)
    }
}

/// The names of types and inlines among declarations.
fn names(items: &[Item]) -> impl Iterator<Item = &str> {
    items.iter().flat_map(|item| -> Vec<&str> {
        match item {
            Item::Inline(inline) => inline.declarator.name.as_deref().into_iter().collect(),
            Item::Declaration(declaration) if declaration.base.storage == Some(Storage::Typedef) => {
                declaration.declarators.iter().filter_map(|declarator| declarator.name.as_deref()).collect()
            }
            _ => Vec::new(),
        }
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
