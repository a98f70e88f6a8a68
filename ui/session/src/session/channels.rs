//! Channels of the Driver Tracing Interface: what a command changes in the guest's memory.

use trapline_dti::{Channel, Found, LEVEL_MAX, LEVEL_OFF, find};
use trapline_dump::Mapped;

use super::Session;
use super::apply::Answer;
use crate::commands::CommandError;

impl Session {
    /// The channels in the guest's memory.
    pub fn channels(&self) -> Found {
        find(self.core().ram(), &Mapped::merged(self.vmcore().head.memory.iter().map(Mapped::range)))
    }

    /// Sets the level of a channel, and that of its handle.
    pub(super) fn set_dti_level(&mut self, name: &str, level: i32) -> Answer {
        if !(LEVEL_OFF..=LEVEL_MAX).contains(&level) {
            return Err(CommandError::Level(level));
        }
        let found = self.channels();
        let places = found.levels(name);
        if places.is_empty() {
            return Err(CommandError::UnknownChannel { name: name.to_owned(), known: known(&found) });
        }
        for paddr in places {
            self.machine.write_physical(paddr, &level.to_le_bytes());
        }
        Ok(self.done("dti", name, format!("channel {name} has level {level}")))
    }
}

/// The names of channels, as the end of a sentence.
fn known(found: &Found) -> String {
    let unbound = found.unbound.iter().map(|handle| handle.name.as_str());
    let mut names: Vec<&str> = found.channels.iter().map(Channel::name).chain(unbound).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { "there are none".to_owned() } else { format!("use one of {}", names.join(", ")) }
}
