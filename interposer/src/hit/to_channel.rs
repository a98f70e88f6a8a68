//! How handlers write records to channels of drivers: the channel is found in the guest's memory, and the record stored there.

use super::host::Guest;
use super::view::View;
use super::written::Known;
use trapline_dti::{Channel, Refusal, Write, channel_at, find};

/// Instructions after which memory is searched again for a channel that was not there: a search reads all of it.
const SEARCH_AGAIN: u64 = 1_000_000;

impl<V: View> Guest<'_, V> {
    /// Writes a record to the channel with this name. Returns whether it is there; if it is not, that is counted. A run of a
    /// handler that does not see the guest as it is leaves the guest as it is: nothing is written.
    pub fn write_to_channel(&mut self, name: &[u8], prio: i32, data: &[u8]) -> bool {
        if V::ALTERS {
            return false;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let Some(channel) = self.channel(&name) else {
            self.asked.written.count(&name, Refusal::Unknown);
            return false;
        };
        let (stores, refusal) = match channel.write(self.core.ram(), 0, prio, self.core.tsc(), data) {
            Write::Record(stores) => (stores, None),
            Write::Refused(refusal, stores) => (stores, Some(refusal)),
        };
        if !stores.is_empty() {
            (self.asked.any, self.asked.wrote) = (true, true);
        }
        stores.iter().for_each(|(paddr, bytes)| self.core.write_physical(*paddr, bytes));
        if let Some(refusal) = refusal {
            self.asked.written.count(&name, refusal);
        }
        refusal.is_none()
    }

    /// The channel: at the place where it was, or found in all of memory.
    fn channel(&mut self, name: &str) -> Option<Channel> {
        let memory = self.core.ram();
        let all = 0..memory.size();
        let all = std::slice::from_ref(&all);
        match self.asked.written.known(name) {
            Some(Known::At(paddr)) => {
                let channel = channel_at(memory, all, paddr).filter(|channel| channel.name() == name);
                if channel.is_some() {
                    return channel;
                }
            }
            Some(Known::NotBefore(icount)) if self.core.icount() < icount => return None,
            _ => {}
        }
        let found = find(memory, all).channels.into_iter().find(|channel| channel.name() == name);
        let place = match &found {
            Some(channel) => Known::At(channel.paddr()),
            None => Known::NotBefore(self.core.icount().saturating_add(SEARCH_AGAIN)),
        };
        self.asked.written.note(name, place);
        found
    }
}
