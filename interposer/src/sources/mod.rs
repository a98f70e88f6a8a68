//! Where sites come from: kernel modules, user programs and their words, watches, timers.
//!
//! Each source keeps its requested probes, and attaches them to sites when it finds their place in the guest.

mod changed;
mod module;
mod module_pointer;
mod placed;
mod timer;
mod user;
mod user_modules;
mod watch;
mod word;

pub(crate) use module::{KernelModules, StoredModules};
pub(crate) use timer::Timers;
pub(crate) use user::{StoredPage, UserProbes, stays_on};
pub(crate) use user_modules::UserModules;
pub(crate) use watch::{WatchRules, data_watches, disable_watch};
pub(crate) use word::{StoredWord, Words};

use crate::model::{Probe, Stats};
use crate::sites::SiteTable;
use trapline_os::OsProfile;

/// The parts of the interposer that a source needs to arm probes.
pub(crate) struct Reach<'a> {
    pub probes: &'a [Probe],
    pub sites: &'a mut SiteTable,
    pub profile: Option<&'a dyn OsProfile>,
    pub stats: &'a mut Stats,
}

/// All sources.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub modules: KernelModules,
    pub user: UserProbes,
    pub words: Words,
    pub watches: WatchRules,
    pub timers: Timers,
}
