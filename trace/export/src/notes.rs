//! What a sink says to the user about its output.

use std::cell::RefCell;
use std::rc::Rc;

#[derive(Debug, Default)]
struct Said {
    notes: Vec<String>,
    missing: Option<String>,
}

/// Sentences for the user. All clones share them.
#[derive(Debug, Clone, Default)]
pub struct Notes(Rc<RefCell<Said>>);

impl Notes {
    /// Adds a sentence.
    pub fn say(&self, sentence: impl Into<String>) {
        self.0.borrow_mut().notes.push(sentence.into());
    }

    /// Adds `count` and a sentence about that many of something, unless there are none.
    pub(crate) fn count(&self, count: u64, one: &str, many: &str) {
        if count > 0 {
            self.say(format!("{count} {}", if count == 1 { one } else { many }));
        }
    }

    /// Says why there is no output.
    pub fn miss(&self, sentence: impl Into<String>) {
        self.0.borrow_mut().missing = Some(sentence.into());
    }

    /// The sentences since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().notes)
    }

    /// Why there is no output, if there is none.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.0.borrow().missing.clone()
    }
}
