//! What handlers ask of the run: an end, a frozen channel, core files.

use super::core_file::CoreFile;

/// Names an address for the service `symbol`: the symbol that holds it, and the offset in it.
pub type SymbolNames = Box<dyn Fn(u64) -> Option<(String, u64)> + Send>;

/// What handlers have asked for, and what the services need.
#[derive(Default)]
pub(crate) struct Asked {
    /// Whether the handler that is running has set `stop` or `wrote`.
    pub any: bool,
    /// It asked for the end of the run.
    pub stop: bool,
    /// It wrote memory.
    pub wrote: bool,
    /// Hits after this one leave no record: the channel is frozen.
    pub frozen_after: Option<u64>,
    /// Core files that were not fetched yet.
    pub cores: Vec<CoreFile>,
    /// How many more may be taken.
    pub cores_left: u64,
    pub names: Option<SymbolNames>,
}
