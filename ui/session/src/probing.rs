//! What the probes of a session record, and what they may use: set at the session's start, and fixed from then on.

use serde::{Deserialize, Serialize};
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
