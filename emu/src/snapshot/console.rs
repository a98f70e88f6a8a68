//! The guest's console output, in parts that snapshots share.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Bytes of a part.
const PART: usize = 4096;

/// The text of the console: whole parts, which snapshots share, and the rest.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct SavedConsole {
    parts: Arc<Vec<Arc<[u8]>>>,
    rest: Arc<[u8]>,
}

impl SavedConsole {
    /// The text `all`, which begins with all of `self`: the parts of `self` are shared.
    pub fn grown_to(&self, all: &[u8]) -> Self {
        let (whole, rest) = all.as_chunks::<PART>();
        let mut parts = self.parts.clone();
        if whole.len() > parts.len() {
            let known = parts.len();
            Arc::make_mut(&mut parts).extend(whole[known..].iter().map(|part| Arc::from(part.as_slice())));
        }
        SavedConsole { parts, rest: rest.into() }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() + self.rest.len()
    }

    /// Restores `text` to the saved text.
    pub fn copy_to(&self, text: &mut Vec<u8>) {
        text.clear();
        self.parts.iter().for_each(|part| text.extend_from_slice(part));
        text.extend_from_slice(&self.rest);
    }

    /// Whether its parts have the sizes that [`SavedConsole::grown_to`] gives them.
    pub fn is_sound(&self) -> bool {
        self.parts.iter().all(|part| part.len() == PART) && self.rest.len() < PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_text_is_restored_and_parts_are_shared() {
        let text: Vec<u8> = (0..3 * PART + 17).map(|n| (n / 7) as u8).collect();
        let (mut saved, mut back) = (SavedConsole::default(), Vec::new());
        for end in [0, 1, PART - 1, PART, PART + 1, 2 * PART, text.len()] {
            let before = saved.clone();
            saved = saved.grown_to(&text[..end]);
            saved.copy_to(&mut back);
            assert!(back == text[..end] && saved.len() == end && saved.is_sound());
            assert!(before.parts.iter().zip(saved.parts.iter()).all(|(a, b)| Arc::ptr_eq(a, b)));
        }
    }
}
