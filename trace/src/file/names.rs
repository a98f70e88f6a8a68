//! The names of addresses and probes in a trace file.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::layout::Layout;
use crate::names::{NamedProbe, ProbeName, Symbolize};
use crate::record::Kind;

/// A name that later records refer to. A later name for the same thing replaces an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// The symbol of an address.
    Symbol {
        /// The address.
        ip: u64,
        /// The symbol.
        name: String,
    },
    /// The symbol of an address in a module, for stack records.
    Frame {
        /// The kind of these stack records.
        kind: Kind,
        /// The module.
        module: String,
        /// The address in the module.
        address: u64,
        /// The symbol; empty if the address has none any more.
        name: String,
        /// The offset of the address in the symbol.
        offset: u64,
    },
    /// A provider's probe.
    Probe {
        /// The number in [`Header::probe`](crate::Header::probe).
        number: u32,
        /// The identifier that `trapline list` prints.
        id: u32,
        /// The name.
        name: ProbeName,
    },
    /// What the records of a probe hold.
    Layout {
        /// The number in [`Header::probe`](crate::Header::probe).
        number: u32,
        /// What they hold.
        layout: Arc<Layout>,
    },
}

impl Name {
    /// A probe with the four parts of its name.
    pub(super) fn probe(number: u32, id: u32, parts: &[String; 4]) -> Self {
        let [provider, module, function, name] = parts.each_ref().map(|part| Arc::from(part.as_str()));
        Self::Probe { number, id, name: ProbeName { provider, module, function, name } }
    }
}

/// All names read from a trace file so far.
#[derive(Debug, Clone, Default)]
pub struct FileNames {
    symbols: BTreeMap<u64, String>,
    frames: BTreeMap<(Kind, String, u64), (String, u64)>,
    probes: BTreeMap<u32, (u32, ProbeName)>,
    layouts: BTreeMap<u32, Arc<Layout>>,
}

impl FileNames {
    /// Remembers a name.
    pub fn learn(&mut self, name: Name) {
        match name {
            Name::Symbol { ip, name } => {
                self.symbols.insert(ip, name);
            }
            Name::Frame { kind, module, address, name, offset } => {
                let key = (kind, module, address);
                if name.is_empty() {
                    self.frames.remove(&key);
                } else {
                    self.frames.insert(key, (name, offset));
                }
            }
            Name::Probe { number, id, name } => {
                self.probes.insert(number, (id, name));
            }
            Name::Layout { number, layout } => {
                self.layouts.insert(number, layout);
            }
        }
    }
}

impl Symbolize for FileNames {
    fn symbol(&self, ip: u64, _: u32) -> Option<String> {
        self.symbols.get(&ip).cloned()
    }

    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        self.frames.get(&(kind, module.to_owned(), address)).cloned()
    }

    fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
        self.probes.get(&number).map(|(id, name)| NamedProbe { id: *id, name })
    }

    fn layout(&self, probe: u32) -> Option<&Arc<Layout>> {
        self.layouts.get(&probe)
    }
}
