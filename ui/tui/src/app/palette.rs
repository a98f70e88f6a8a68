//! The palette: actions found by some letters of their names.

use crate::action::{Entry, TABLE};

/// The typed letters, and the selected match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Palette {
    /// The letters.
    pub text: String,
    /// The number of the selected match.
    pub selected: usize,
}

/// How well letters match a text: the length of the part that contains them in order; none if there is no such part.
fn distance(letters: &str, text: &str) -> Option<usize> {
    let mut wanted = letters.chars().filter(|c| !c.is_whitespace()).peekable();
    let (mut first, mut last) = (None, 0);
    for (n, c) in text.chars().enumerate() {
        if wanted.next_if(|w| w.to_lowercase().eq(c.to_lowercase())).is_some() {
            first.get_or_insert(n);
            last = n;
        }
    }
    wanted.peek().is_none().then(|| last - first.unwrap_or(0))
}

/// The actions with these letters in their name or description, the best match first.
pub fn matches(letters: &str) -> Vec<&'static Entry> {
    let fit = |entry: &'static Entry| {
        let by_name = distance(letters, entry.id).map(|distance| (0, distance));
        let by_sentence = distance(letters, entry.sentence).map(|distance| (1, distance));
        by_name.or(by_sentence).map(|fit| (fit, entry))
    };
    let mut found: Vec<_> = TABLE.iter().filter_map(fit).collect();
    found.sort_by_key(|(fit, _)| *fit);
    found.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_in_order_find_an_action() {
        assert_eq!(matches("nxth").first().unwrap().id, "next-hit");
        assert_eq!(matches("quit").first().unwrap().id, "quit");
        assert_eq!(matches("").len(), TABLE.len());
        assert!(matches("qqqq").is_empty());
    }
}
