//! Keys as users write them, and the action of each key. A file of lines `KEY = "ACTION"` changes the actions.

use std::collections::BTreeMap;
use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::action::{Action, TABLE};

/// A key: a character or a name, with Control or Shift.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const NAMED: &[(&str, KeyCode)] = &[
    ("Tab", KeyCode::Tab),
    ("S-Tab", KeyCode::BackTab),
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("PageUp", KeyCode::PageUp),
    ("PageDown", KeyCode::PageDown),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("Backspace", KeyCode::Backspace),
    ("Delete", KeyCode::Delete),
    ("Space", KeyCode::Char(' ')),
];

/// Keys that may have Shift.
const SHIFTED: [&str; 4] = ["Up", "Down", "Left", "Right"];

impl Key {
    /// The pressed key; none for keys without a name here.
    pub fn pressed(event: KeyEvent) -> Option<Self> {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        let named = NAMED.iter().find(|(_, code)| *code == event.code).map(|(name, _)| (*name).to_owned());
        let name = named.or(match event.code {
            KeyCode::Char(c) => Some(c.to_string()),
            KeyCode::F(n) => Some(format!("F{n}")),
            _ => None,
        })?;
        let shift = event.modifiers.contains(KeyModifiers::SHIFT) && SHIFTED.contains(&name.as_str());
        Some(Self(match (control, shift) {
            (true, _) => format!("C-{}", name.to_lowercase()),
            (false, true) => format!("S-{name}"),
            (false, false) => name,
        }))
    }

    fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix("C-").unwrap_or(text);
        let one = bare.chars().count() == 1;
        let function = bare.strip_prefix('F').is_some_and(|n| n.parse::<u8>().is_ok());
        let shifted = text.strip_prefix("S-").is_some_and(|name| SHIFTED.contains(&name));
        (one || function || shifted || NAMED.iter().any(|(name, _)| *name == bare))
            .then(|| Self(text.to_owned()))
    }
}

/// Why a file of keys is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// A line has a different form.
    #[error("line {0} of the keys is not KEY = \"ACTION\"")]
    Form(usize),
    /// There is no such key.
    #[error(
        "line {0} of the keys: there is no key `{1}`; write a character, F1, Enter, C-x for Control and x"
    )]
    Key(usize, String),
    /// There is no such action.
    #[error("line {0} of the keys: there is no action `{1}`; `?` lists them")]
    Action(usize, String),
}

/// The action of each key.
#[derive(Debug, Clone)]
pub struct Keys(BTreeMap<Key, Action>);

impl Default for Keys {
    fn default() -> Self {
        let all = TABLE.iter().flat_map(|entry| entry.keys.iter().map(|key| (entry.action, *key)));
        Self(all.filter_map(|(action, key)| Some((Key::parse(key)?, action))).collect())
    }
}

impl Keys {
    /// The default keys, changed by a file's text. The action `none` removes the binding of a key.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn changed_by(text: &str) -> Result<Self, KeysError> {
        let mut keys = Self::default();
        for (n, line) in (1..)
            .zip(text.lines())
            .filter(|(_, line)| !matches!(line.trim().chars().next(), None | Some('#')))
        {
            let (key, action) = line.rsplit_once('=').ok_or(KeysError::Form(n))?;
            let (key, action) = (key.trim().trim_matches('"'), action.trim().trim_matches('"'));
            let key = Key::parse(key).ok_or_else(|| KeysError::Key(n, key.to_owned()))?;
            if action == "none" {
                keys.0.remove(&key);
                continue;
            }
            let entry = TABLE.iter().find(|entry| entry.id == action);
            keys.0.insert(key, entry.ok_or_else(|| KeysError::Action(n, action.to_owned()))?.action);
        }
        Ok(keys)
    }

    /// The action of a key.
    pub fn action(&self, key: &Key) -> Option<Action> {
        self.0.get(key).copied()
    }

    /// The keys of an action.
    pub fn of(&self, action: Action) -> String {
        let keys: Vec<&str> =
            self.0.iter().filter(|(_, own)| **own == action).map(|(key, _)| key.0.as_str()).collect();
        keys.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_key_is_a_key() {
        let wanted = TABLE.iter().map(|entry| entry.keys.len()).sum::<usize>();
        assert_eq!(Keys::default().0.len(), wanted);
    }

    #[test]
    fn a_file_changes_keys() {
        let keys = Keys::changed_by("# mine\n\"F5\" = \"continue\"\nq = \"none\"\n").unwrap();
        assert_eq!(keys.action(&Key("F5".into())), Some(Action::Continue));
        assert_eq!(keys.action(&Key("q".into())), None);
        assert_eq!(keys.of(Action::Continue), "F5 c");
    }

    #[test]
    fn a_wrong_file_is_refused_in_a_sentence() {
        let wrong = |text: &str| Keys::changed_by(text).unwrap_err().to_string();
        assert_eq!(wrong("x"), "line 1 of the keys is not KEY = \"ACTION\"");
        assert_eq!(wrong("\nx = \"fly\""), "line 2 of the keys: there is no action `fly`; `?` lists them");
        assert!(wrong("Hyper = \"quit\"").starts_with("line 1 of the keys: there is no key `Hyper`"));
    }
}
