//! Texts that occur often, by number: the first packet that uses one describes it (`InternedData`).

use std::collections::HashMap;

use crate::protobuf::Message;

/// Most texts of a kind that have numbers. The others are written in full.
const MOST: usize = 1 << 16;
/// Longest text that has a number.
const LONGEST: usize = 256;

/// A kind of text, by its field of `InternedData`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Kind {
    Category = 1,
    EventName = 2,
    AnnotationName = 3,
    StringValue = 29,
}

/// Fields of `EventCategory`, `EventName`, `DebugAnnotationName` and `InternedString`.
const IID: u32 = 1;
const TEXT: u32 = 2;

/// The texts of one kind.
#[derive(Debug, Default)]
struct Known {
    /// Their numbers; 0 for a text that has occurred once.
    numbers: HashMap<String, u64>,
    last: u64,
}

/// The texts that have numbers.
#[derive(Debug, Default)]
pub(super) struct Interned {
    categories: Known,
    event_names: Known,
    annotation_names: Known,
    values: Known,
    /// The descriptions that the next packet is to have.
    fresh: Message,
}

impl Interned {
    /// The number of a text, which may be a new one; nothing if the text is to be written in full. A value has a number
    /// when it occurs again: most values occur once.
    pub fn number(&mut self, kind: Kind, text: &str) -> Option<u64> {
        let known = match kind {
            Kind::Category => &mut self.categories,
            Kind::EventName => &mut self.event_names,
            Kind::AnnotationName => &mut self.annotation_names,
            Kind::StringValue => &mut self.values,
        };
        let number = known.numbers.get(text).copied();
        if let Some(number @ 1..) = number {
            return Some(number);
        }
        if text.len() > LONGEST || number.is_none() && known.numbers.len() >= MOST {
            return None;
        }
        if kind == Kind::StringValue && number.is_none() {
            known.numbers.insert(text.to_owned(), 0);
            return None;
        }
        known.last += 1;
        known.numbers.insert(text.to_owned(), known.last);
        let mut entry = Message::default();
        entry.number(IID, known.last);
        entry.text(TEXT, text);
        self.fresh.message(kind as u32, &entry);
        Some(known.last)
    }

    /// The descriptions of the numbers that are new, if there are any.
    pub fn take_fresh(&mut self) -> Option<Message> {
        let fresh = std::mem::take(&mut self.fresh);
        (!fresh.bytes().is_empty()).then_some(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_described_once_and_a_value_when_it_occurs_again() {
        let mut interned = Interned::default();
        assert_eq!(interned.number(Kind::EventName, "read"), Some(1));
        // InternedData.event_names { iid: 1 name: "read" }
        let described = interned.take_fresh().unwrap();
        assert_eq!(described.bytes(), b"\x12\x08\x08\x01\x12\x04read");
        assert_eq!(interned.number(Kind::EventName, "read"), Some(1));
        assert!(interned.take_fresh().is_none());
        // Each kind has numbers of its own.
        assert_eq!(interned.number(Kind::Category, "syscall"), Some(1));
        assert_eq!(interned.number(Kind::EventName, "write"), Some(2));
        assert_eq!(interned.number(Kind::StringValue, "x"), None);
        assert_eq!(interned.number(Kind::StringValue, "x"), Some(1));
        assert_eq!(interned.number(Kind::StringValue, "x"), Some(1));
    }

    #[test]
    fn the_memory_for_texts_is_bounded() {
        let mut interned = Interned::default();
        for n in 0..MOST {
            assert!(interned.number(Kind::EventName, &n.to_string()).is_some());
        }
        assert_eq!(interned.number(Kind::EventName, "one more"), None);
        assert_eq!(interned.number(Kind::EventName, "0"), Some(1));
        assert_eq!(interned.number(Kind::Category, &"x".repeat(LONGEST + 1)), None);
    }
}
