//! What the probes of a session record, and what they may use: set at the session's start, and fixed from then on.

use serde::{Deserialize, Serialize};
use trapline_providers::ProbeOptions;
use trapline_trace::{ChannelConfig, HeaderItems};

/// What the probes of a session record, and what they may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probing {
    /// Items of each record.
    pub header: HeaderItems,
    /// The channel that records wait in.
    pub channel: ChannelConfig,
    /// Instructions that a handler may execute in one run, if not the default.
    pub max_steps: Option<u32>,
    /// Core files that `exit 3` takes at most.
    pub max_cores: u64,
    /// Whether any number of ranges of any size may be watched, not only what four debug registers can hold.
    pub watch_unlimited: bool,
    /// Return addresses of the kernel's stack that each hit records.
    pub stack: usize,
    /// Frames of the program's stack that each hit records.
    pub user_stack: usize,
}

impl Default for Probing {
    fn default() -> Self {
        Self {
            header: HeaderItems::default(),
            channel: ChannelConfig::growing(),
            max_steps: None,
            max_cores: 16,
            watch_unlimited: false,
            stack: 0,
            user_stack: 0,
        }
    }
}

/// All options of a session's probes: a snapshot that has probes fits a session with the same ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AllOptions {
    pub probing: Probing,
    pub sites: ProbeOptions,
}

impl AllOptions {
    /// The names of the options that differ.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let (one, two) = (&self.probing, &other.probing);
        let (mine, its) = (&self.sites, &other.sites);
        let differ = [
            ("header", one.header != two.header),
            ("channel", one.channel != two.channel),
            ("max-steps", one.max_steps != two.max_steps),
            ("max-cores", one.max_cores != two.max_cores),
            ("watch-unlimited", one.watch_unlimited != two.watch_unlimited),
            ("stack", one.stack != two.stack),
            ("ustack", one.user_stack != two.user_stack),
            ("sites", mine.fbt != its.fbt),
            ("abi", mine.abi != its.abi),
            ("target", mine.target != its.target),
            ("follow-fork", mine.follow_fork != its.follow_fork),
        ];
        differ.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}
