//! How far the sessions of a guest have come, for a display in another thread. It has no effect on a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Is kept up by all sessions of the guests that it is given to.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Values>);

#[derive(Debug, Default)]
struct Values {
    icount: AtomicU64,
    virtual_ns: AtomicU64,
    executed: AtomicU64,
}

/// What a [`Meter`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metered {
    /// The instruction count of the session that ran last.
    pub icount: u64,
    /// Its virtual time in nanoseconds.
    pub virtual_ns: u64,
    /// Instructions that all sessions have executed: more than the count where a part is run again, less where a state was
    /// restored.
    pub executed: u64,
}

impl Meter {
    /// What it shows now.
    #[must_use]
    pub fn read(&self) -> Metered {
        let Values { icount, virtual_ns, executed } = &*self.0;
        let of = |value: &AtomicU64| value.load(Ordering::Relaxed);
        Metered { icount: of(icount), virtual_ns: of(virtual_ns), executed: of(executed) }
    }

    /// A session has run for `more` instructions.
    pub(crate) fn note(&self, icount: u64, virtual_ns: u64, more: u64) {
        self.0.icount.store(icount, Ordering::Relaxed);
        self.0.virtual_ns.store(virtual_ns, Ordering::Relaxed);
        self.0.executed.fetch_add(more, Ordering::Relaxed);
    }
}
