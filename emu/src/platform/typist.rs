//! Keys that wait to be pressed: one scan code after the other, each when the guest has read the one before.

use crate::devices::I8042;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Virtual ns from one scan code to the next.
const CODE_NS: u64 = 1_000_000;

/// The scan codes to come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Typist {
    codes: VecDeque<u8>,
    /// When the next one can come.
    ready_ns: u64,
}

impl Typist {
    /// Queues scan codes at `now_ns`.
    pub fn press(&mut self, codes: &[u8], now_ns: u64) {
        if self.codes.is_empty() {
            self.ready_ns = self.ready_ns.max(now_ns);
        }
        self.codes.extend(codes);
    }

    /// Whether nothing has been typed, or all of it has arrived.
    pub fn is_idle(&self) -> bool {
        self.codes.is_empty()
    }

    /// When the next scan code arrives; `None` while the keyboard waits for the guest.
    pub fn next_event(&self, keyboard: &I8042) -> Option<u64> {
        (!self.codes.is_empty() && keyboard.takes_keys()).then_some(self.ready_ns)
    }

    /// Presses what is due; whether anything was.
    pub fn advance(&mut self, keyboard: &mut I8042, now_ns: u64) -> bool {
        if self.next_event(keyboard).is_none_or(|at| at > now_ns) {
            return false;
        }
        let Some(code) = self.codes.pop_front() else { return false };
        keyboard.push_scancodes(&[code]);
        self.ready_ns = now_ns.saturating_add(CODE_NS);
        true
    }
}
