//! A crate as a tree of modules, read from its files, and where each path in it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::{Expr, ExprLit, Item, ItemMod, Lit, Meta};

use crate::names::{self, Named};

/// Why a crate's sources cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be opened.
    #[error("cannot read {path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// A file does not parse.
    #[error("{path}:{line}: {error}")]
    Syntax {
        /// The file.
        path: String,
        /// Its line.
        line: usize,
        /// The parser's error.
        error: syn::Error,
    },
    /// A `mod` without its file.
    #[error("{path}: module {module} has no file")]
    Missing {
        /// The file with the `mod`.
        path: String,
        /// The module's name.
        module: String,
    },
}

/// A reference of one module to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Index of the module that refers.
    pub from: usize,
    /// Index of the module that is referred to.
    pub to: usize,
    /// The file that refers.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// The path as written.
    pub path: String,
}

/// A module.
#[derive(Debug, Default)]
pub struct Module {
    /// Its path, e.g. `crate::views::slots`.
    pub name: String,
    /// The file that holds its code.
    pub file: PathBuf,
    /// Its parent.
    pub parent: Option<usize>,
    /// Its child modules by name.
    pub children: BTreeMap<String, usize>,
    imports: BTreeMap<String, Named>,
    globs: Vec<Named>,
    items: BTreeSet<String>,
    paths: Vec<Named>,
}

/// A crate: its modules, the root first.
#[derive(Debug, Default)]
pub struct Crate {
    /// The modules. A module's parent comes before it.
    pub modules: Vec<Module>,
}

/// Where a name leads.
#[derive(Clone, Copy)]
enum Found {
    Module(usize),
    Item(usize),
}

impl Found {
    fn module(self) -> usize {
        match self {
            Found::Module(at) | Found::Item(at) => at,
        }
    }
}

/// The number of re-exports followed before a name is given up.
const MOST_DETOURS: usize = 24;

impl Crate {
    /// Reads a crate from its root file.
    ///
    /// # Errors
    /// A file is missing or does not parse.
    pub fn read(root: &Path) -> Result<Self, ReadError> {
        let mut made = Crate::default();
        let folder = root.parent().unwrap_or(Path::new("")).to_path_buf();
        made.file(root, "crate".into(), None, &folder)?;
        Ok(made)
    }

    /// The files of all modules.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        self.modules.iter().map(|module| module.file.clone()).collect()
    }

    /// Reads a file as a module whose children's files are in `folder`.
    fn file(
        &mut self,
        file: &Path,
        name: String,
        parent: Option<usize>,
        folder: &Path,
    ) -> Result<usize, ReadError> {
        let path = file.display().to_string();
        let text =
            std::fs::read_to_string(file).map_err(|error| ReadError::File { path: path.clone(), error })?;
        let parsed = syn::parse_file(&text).map_err(|error| ReadError::Syntax {
            path,
            line: error.span().start().line,
            error,
        })?;
        self.module(file, name, parent, folder, &parsed.items)
    }

    fn module(
        &mut self,
        file: &Path,
        name: String,
        parent: Option<usize>,
        folder: &Path,
        items: &[Item],
    ) -> Result<usize, ReadError> {
        let found = names::names(items);
        let own = self.modules.len();
        self.modules.push(Module {
            name: name.clone(),
            file: file.to_path_buf(),
            parent,
            children: BTreeMap::new(),
            imports: found.imports.into_iter().collect(),
            globs: found.globs,
            items: found.items.into_iter().collect(),
            paths: found.paths,
        });
        for item in items {
            let Item::Mod(inner) = item else { continue };
            if names::is_test(&inner.attrs) {
                continue;
            }
            let called = inner.ident.to_string();
            let path = format!("{name}::{called}");
            let child = match &inner.content {
                Some((_, items)) => self.module(file, path, Some(own), &folder.join(&called), items)?,
                None => {
                    let (child, folder) = outer_file(inner, file, folder)?;
                    self.file(&child, path, Some(own), &folder)?
                }
            };
            self.modules[own].children.insert(called, child);
        }
        Ok(own)
    }

    /// Every reference of a module to another one, in order.
    pub fn references(&self) -> Vec<Reference> {
        let mut found = BTreeSet::new();
        for (from, module) in self.modules.iter().enumerate() {
            let named = module.imports.values().chain(&module.globs).chain(&module.paths);
            for (path, line) in named {
                let Some(to) = self.leads_to(from, path, 0).map(Found::module) else { continue };
                if to != from {
                    let file = module.file.clone();
                    found.insert(Reference { from, to, file, line: *line, path: path.join("::") });
                }
            }
        }
        found.into_iter().collect()
    }

    /// The module that a path in module `from` names; `None` for another crate's or a local name.
    fn leads_to(&self, from: usize, path: &[String], detours: usize) -> Option<Found> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Found::Module(0),
            "self" => Found::Module(from),
            "super" => Found::Module(self.modules[from].parent?),
            name => {
                // A lower-case name alone is a variable or a function of a prelude, unless it was imported.
                if rest.is_empty() && !name.starts_with(char::is_uppercase) {
                    return None;
                }
                self.lookup(from, name, detours)?
            }
        };
        for name in rest {
            at = match at {
                Found::Module(module) if name == "super" => Found::Module(self.modules[module].parent?),
                Found::Module(module) => match self.lookup(module, name, detours) {
                    Some(found) => found,
                    None => Found::Item(module),
                },
                Found::Item(_) => return Some(at),
            };
        }
        Some(at)
    }

    /// The meaning of `name` in a module: a child, an item, or an import.
    fn lookup(&self, module: usize, name: &str, detours: usize) -> Option<Found> {
        if detours > MOST_DETOURS {
            return None;
        }
        let here = &self.modules[module];
        if let Some(&child) = here.children.get(name) {
            return Some(Found::Module(child));
        }
        if here.items.contains(name) {
            return Some(Found::Item(module));
        }
        if let Some((path, _)) = here.imports.get(name) {
            // `use name;` and `use name::self` of another crate lead back to themselves.
            let itself = path.first().is_some_and(|first| first == name);
            return if itself { None } else { self.imported(module, path, detours + 1) };
        }
        here.globs.iter().find_map(|(path, _)| {
            let Found::Module(other) = self.imported(module, path, detours + 1)? else { return None };
            if other == module { None } else { self.lookup(other, name, detours + 1) }
        })
    }

    fn imported(&self, module: usize, path: &[String], detours: usize) -> Option<Found> {
        match path {
            [one] if one != "crate" && one != "self" && one != "super" => {
                self.lookup(module, one, detours + 1)
            }
            _ => self.leads_to(module, path, detours),
        }
    }
}

/// The file of `mod name;` in `file`, and the folder of its children.
fn outer_file(inner: &ItemMod, file: &Path, folder: &Path) -> Result<(PathBuf, PathBuf), ReadError> {
    let name = inner.ident.to_string();
    let given = inner.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    if let Some(given) = given {
        let path = file.parent().unwrap_or(Path::new("")).join(given);
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        return Ok((path, folder));
    }
    let below = folder.join(&name);
    [folder.join(format!("{name}.rs")), below.join("mod.rs")]
        .into_iter()
        .find(|path| path.is_file())
        .map(|path| (path, below))
        .ok_or(ReadError::Missing { path: file.display().to_string(), module: name })
}
