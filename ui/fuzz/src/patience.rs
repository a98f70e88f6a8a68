//! The end of a search by time or by a signal. It ends a run of the guest in its midst, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ended {
    /// It made all trials that were asked for.
    Trials,
    /// The time was over. The same seed may then give more or fewer findings.
    Time,
    /// It was interrupted.
    Interrupted,
}

/// See the module. Clones are of the same search.
#[derive(Debug, Clone, Default)]
pub struct Patience {
    over: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

impl Patience {
    /// The search is interrupted.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }

    /// The search ends after this time from now.
    pub fn end_after(&self, time: Duration) {
        let over = Arc::clone(&self.over);
        std::thread::spawn(move || {
            std::thread::sleep(time);
            over.store(true, Ordering::Relaxed);
        });
    }

    /// Whether the search ends now.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Why it ends now, if it does.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.is_over().then(|| match self.interrupted.load(Ordering::Relaxed) {
            true => Ended::Interrupted,
            false => Ended::Time,
        })
    }

    /// What is raised when the search ends.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_by_time_or_by_a_signal() {
        let patience = Patience::default();
        assert_eq!(patience.ended(), None);
        patience.end_after(Duration::from_millis(1));
        while !patience.is_over() {
            std::thread::yield_now();
        }
        assert_eq!(patience.ended(), Some(Ended::Time));
        patience.clone().interrupt();
        assert_eq!(patience.ended(), Some(Ended::Interrupted));
    }
}
