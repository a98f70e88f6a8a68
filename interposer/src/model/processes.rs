//! Which processes a probe point is of.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Who is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// Every process.
    Any,
    /// That of this number.
    Number(u32),
    /// Those whose task, or the last part of whose program's path, has this name.
    Name(String),
    /// Those whose program is the file at this path.
    Path(String),
}

/// Which processes a probe point is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processes {
    /// Who is meant.
    pub who: Who,
    /// Only those whose own program is the file at this path. Where the system does not say what a process's program
    /// is, all are taken for it: they execute it, after all.
    pub program: Option<String>,
    /// Paths of all files that the host knows. A process whose own program is at none of them runs a copy or a hard link
    /// of a known file: it has arrived by the content of a page, and is taken for one of `program`.
    pub known: Arc<BTreeSet<String>>,
    /// Of those that are named by their program, also those that were forked and have executed none of their own.
    pub forked: bool,
}
