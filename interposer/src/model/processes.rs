//! Process filters of probe points.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The selected processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// Every process.
    Any,
    /// The process with this id.
    Number(u32),
    /// Processes whose task, or the last part of whose program's path, has this name.
    Name(String),
    /// Processes whose program is the file at this path.
    Path(String),
}

/// The process filter of a probe point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processes {
    /// The selected processes.
    pub who: Who,
    /// Only processes whose program is the file at this path. If the system does not tell a process's program,
    /// every process passes that executes the file.
    pub program: Option<String>,
    /// Paths of all files that the host knows. A process whose program is at none of them runs a copy or a hard link
    /// of a known file: it was recognised by the content of a page, and counts as a process of `program`.
    pub known: Arc<BTreeSet<String>>,
    /// The paths of the file that the probe is in, and of all files with the same bytes. Only processes pass that have one
    /// of them mapped, or a file that the host does not know: that may be a copy. A page with the same bytes may belong to
    /// another file.
    pub copies: Arc<[String]>,
    /// For processes selected by program: also their forked children, until they execute another program.
    pub forked: bool,
}
