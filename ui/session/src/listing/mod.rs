//! What `trapline list` and a script's `list` show: functions, probes with their sites, modules and processes; of the
//! files, or of a guest that has run. As lines, and as rows that can be serialized. The caller prints them.

mod functions;
mod probes;
mod system;

use serde::{Deserialize, Serialize};
use trapline_emu::symbols::Symbols;
use trapline_providers::{Description, FunctionGlob, GlobError, MatchError, Present, Probe, Target};

pub use functions::FunctionRow;
pub use probes::{Listed, ProbeRow, SiteRow, SpotRow};
pub use system::{Loaded, MappedRow, ModuleRow, ProcessRow, Running};

/// Near misses named when nothing matches.
const SUGGESTIONS: usize = 3;

/// The kind of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// All functions.
    Functions,
    /// Probes by a description, which has a colon; else functions by a glob.
    Named(String),
    /// The modules that the guest has loaded.
    Modules,
    /// The processes of the guest.
    Processes,
}

impl Wanted {
    /// The description of probes that it is, if it is one.
    pub fn description(&self) -> Option<&str> {
        match self {
            Self::Named(text) if text.contains(':') => Some(text),
            _ => None,
        }
    }

    /// Checks that the pattern or description is well-formed.
    ///
    /// # Errors
    /// The pattern or the description is malformed.
    pub fn check(&self) -> Result<(), ListError> {
        match self {
            Self::Named(text) if text.contains(':') => {
                Description::parse(text).map(|_| ()).map_err(|error| ListError::Probes(error.into()))
            }
            Self::Named(text) => Ok(FunctionGlob::new(text).map(|_| ())?),
            _ => Ok(()),
        }
    }
}

/// The details of a listing as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct How {
    /// The sites of probes, what processes have mapped.
    pub verbose: bool,
    /// First bytes: of functions as `opcode =` wants them, of sites as they are now.
    pub opcode: bool,
    /// First bytes of functions.
    pub bytes: bool,
    /// Characters of an address with its `0x`.
    pub digits: usize,
}

/// Why there is no listing.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The pattern is not a glob.
    #[error(transparent)]
    Glob(#[from] GlobError),
    /// The description is malformed, or names nothing.
    #[error(transparent)]
    Probes(#[from] MatchError),
    /// The files have no function of this name.
    #[error("no function of {image} matches `{pattern}`{}", suggestion(.near))]
    NoFunction {
        /// The kernel, or the program.
        image: String,
        /// The name, with wildcards.
        pattern: String,
        /// Names similar to it.
        near: Vec<String>,
    },
    /// No profile reads its modules and processes.
    #[error("the guest's system is not known, so neither its modules nor its processes can be read")]
    UnknownSystem,
}

fn suggestion(near: &[String]) -> String {
    let names: Vec<String> = near.iter().take(SUGGESTIONS).map(|name| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

impl ListError {
    /// That no function of these symbols matches a pattern.
    pub fn no_function<'a>(image: &str, pattern: &str, all: impl Iterator<Item = &'a Symbols>) -> Self {
        let near = all.flat_map(|symbols| symbols.near_misses(pattern, SUGGESTIONS)).map(str::to_owned);
        let near = near.take(SUGGESTIONS).collect();
        Self::NoFunction { image: image.to_owned(), pattern: pattern.to_owned(), near }
    }
}

/// The result, item by item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// Functions.
    Functions(Vec<Row>),
    /// Probes.
    Probes(Vec<Row>),
    /// Modules.
    Modules(Vec<Row>),
    /// Processes and their threads.
    Processes(Vec<Row>),
}

impl Rows {
    /// The items.
    pub fn items(&self) -> &[Row] {
        match self {
            Self::Functions(rows) | Self::Probes(rows) | Self::Modules(rows) | Self::Processes(rows) => rows,
        }
    }
}

/// One item. Addresses are hexadecimal digits after `0x`, since JSON numbers hold 53 bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Row {
    /// A function.
    Function(FunctionRow),
    /// A probe.
    Probe(ProbeRow),
    /// A module.
    Module(ModuleRow),
    /// A task.
    Process(ProcessRow),
}

/// The result of a listing.
pub enum Listing {
    /// Functions.
    Functions(Vec<trapline_providers::Function>),
    /// The probes in memory, and the number of probes with matching names.
    Probes(Vec<Listed>, usize),
    /// Modules.
    Modules(Vec<Loaded>),
    /// Processes and their threads.
    Processes(Vec<Running>),
}

impl Listing {
    /// Makes the listing from the files; with `present`, only what is in memory now.
    ///
    /// # Errors
    /// A malformed pattern or description, a description that names nothing, or a guest whose system is not known.
    pub fn find(
        target: &Target,
        present: Option<&mut Present<'_>>,
        wanted: &Wanted,
    ) -> Result<Self, ListError> {
        match wanted {
            Wanted::Functions => Ok(Self::Functions(functions::find(target, present, None))),
            Wanted::Named(description) if wanted.description().is_some() => {
                Ok(Self::probes(trapline_providers::find(target, description)?, present))
            }
            Wanted::Named(glob) => {
                let glob = FunctionGlob::new(glob)?;
                Ok(Self::Functions(functions::find(target, present, Some(&glob))))
            }
            Wanted::Modules | Wanted::Processes => {
                let present = present.and_then(|present| Some((present.core(), present.profile()?)));
                let (core, profile) = present.ok_or(ListError::UnknownSystem)?;
                Ok(match wanted {
                    Wanted::Modules => Self::Modules(system::modules(target, core, profile)),
                    _ => Self::Processes(system::processes(core, profile)),
                })
            }
        }
    }

    /// Why a listing of modules or processes has not all of them, in a sentence: the guest's own list is damaged, or a dump
    /// does not have the memory.
    pub fn damage(present: &Present<'_>, wanted: &Wanted) -> Option<String> {
        let profile = present.profile()?;
        match wanted {
            Wanted::Modules => profile.damage(present.core()),
            Wanted::Processes => profile.tasks_damage(present.core()),
            Wanted::Functions | Wanted::Named(_) => None,
        }
    }

    /// The listing, unless it is empty because not even the files have a function of the name. An error calls the kernel
    /// `image`.
    ///
    /// # Errors
    /// There is no such function.
    pub fn or_nothing(self, target: &Target, wanted: &Wanted, image: &str) -> Result<Self, ListError> {
        if let (0, Self::Functions(_), Wanted::Named(pattern)) = (self.len(), &self, wanted)
            && Self::find(target, None, wanted)?.is_empty()
        {
            let modules = target.modules().iter().map(|module| module.symbols());
            let all = std::iter::once(target.symbols()).chain(modules);
            return Err(ListError::no_function(image, pattern, all));
        }
        Ok(self)
    }

    /// A listing of these probes; with `present`, only those in memory now.
    pub fn probes(found: Vec<Probe>, present: Option<&mut Present<'_>>) -> Self {
        let matched = found.len();
        Self::Probes(probes::there(found, present), matched)
    }

    /// Adds the parameters of the kernel's functions to the probes; for verbose listings only, since it reads the
    /// kernel's types.
    pub fn show_parameters(&mut self, target: &Target) {
        if let Self::Probes(found, _) = self {
            trapline_providers::show_parameters(target, found.iter_mut().map(|listed| &mut listed.probe));
        }
    }

    /// Lines.
    pub fn text(&self, how: How) -> Vec<String> {
        match self {
            Self::Functions(list) => functions::text(list, how),
            Self::Probes(list, _) => probes::text(list, how),
            Self::Modules(list) => system::modules_text(list, how),
            Self::Processes(list) => system::processes_text(list, how),
        }
    }

    /// The items as values that can be serialized.
    pub fn rows(&self) -> Rows {
        match self {
            Self::Functions(list) => {
                Rows::Functions(list.iter().map(functions::row).map(Row::Function).collect())
            }
            Self::Probes(list, _) => Rows::Probes(list.iter().map(probes::row).map(Row::Probe).collect()),
            Self::Modules(list) => {
                Rows::Modules(list.iter().map(system::module_row).map(Row::Module).collect())
            }
            Self::Processes(list) => {
                Rows::Processes(list.iter().map(system::process_row).map(Row::Process).collect())
            }
        }
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Functions(list) => list.len(),
            Self::Probes(list, _) => list.len(),
            Self::Modules(list) => list.len(),
            Self::Processes(list) => list.len(),
        }
    }

    /// The plural of its kind.
    pub fn plural(&self) -> &'static str {
        match self {
            Self::Functions(_) => "functions",
            Self::Probes(..) => "probes",
            Self::Modules(_) => "modules",
            Self::Processes(_) => "processes",
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are, as a sentence.
    pub fn sentence(&self, wanted: &Wanted) -> String {
        let count = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        match self {
            Self::Functions(list) => count(list.len(), "function", "functions"),
            Self::Modules(list) => count(list.len(), "module", "modules"),
            Self::Processes(list) => count(list.len(), "task", "tasks"),
            Self::Probes(list, matched) => {
                let description = wanted.description().unwrap_or_default();
                let there = list.len();
                let rest = match there {
                    _ if there == *matched => String::new(),
                    1 => ", of which 1 is there now".to_owned(),
                    _ => format!(", of which {there} are there now"),
                };
                format!("description '{description}' matched {}{rest}", count(*matched, "probe", "probes"))
            }
        }
    }
}
