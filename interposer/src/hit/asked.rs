//! Requests of handlers to the run: an end, a frozen channel, core files.

use super::core_file::CoreFile;

/// Names an address for the service `symbol`: the symbol that contains it, and the offset in it.
pub type SymbolNames = Box<dyn Fn(u64) -> Option<(String, u64)> + Send>;

/// The requests of handlers, and the state that services need.
#[derive(Default)]
pub(crate) struct Asked {
    /// Whether the running handler has set `stop` or `wrote`.
    pub any: bool,
    /// The handler requested the end of the run.
    pub stop: bool,
    /// The handler wrote memory.
    pub wrote: bool,
    /// Hits after this one leave no record: the channel is frozen.
    pub frozen_after: Option<u64>,
    /// Core files that were not fetched yet.
    pub cores: Vec<CoreFile>,
    /// How many more core files may be taken.
    pub cores_left: u64,
    pub names: Option<SymbolNames>,
}
