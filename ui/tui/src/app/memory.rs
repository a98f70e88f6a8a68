//! The pane of memory: bytes, or the fields of a type; what is selected there, and where it leads.

use trapline_session::trapline_d::Field;

use super::update::moved;
use super::{App, Effect, Pane};
use crate::action::Action;
use crate::hits::free_later;
use crate::message::{Move, Request};
use crate::scene::{Scene, Spot};

/// Bytes on a line of memory.
pub const MEMORY_LINE: usize = 16;
/// Most bytes of a number that is looked for.
const WORD: u64 = 8;

impl App {
    /// Shows other memory.
    pub(super) fn look_at(&mut self, request: Request) -> Vec<Effect> {
        self.focus(Pane::Memory);
        self.selected.memory_before.push((self.selected.byte, self.selected.field));
        (self.selected.byte, self.selected.field) = (0, 0);
        vec![Effect::Ask(request)]
    }

    /// Other memory is shown, or cannot be shown: then the selection is as it was.
    pub(super) fn shown_memory(&mut self, scene: Box<Scene>, failed: Option<String>) -> Vec<Effect> {
        free_later(self.scene.replace(scene));
        let Some(sentence) = failed else { return Vec::new() };
        if let Some(selected) = self.selected.memory_before.pop() {
            (self.selected.byte, self.selected.field) = selected;
        }
        self.say(sentence)
    }

    /// Shows the memory that was shown before, with its selection.
    pub(super) fn memory_back(&mut self) -> Vec<Effect> {
        let Some(selected) = self.selected.memory_before.pop() else {
            return self.say("no other memory was shown before".to_owned());
        };
        self.focus(Pane::Memory);
        (self.selected.byte, self.selected.field) = selected;
        vec![Effect::Ask(Request::MemoryBack)]
    }

    /// The selected field, if a type's fields are shown.
    pub fn field(&self) -> Option<&Field> {
        self.scene.as_ref()?.typed.as_ref()?.fields.get(self.selected.field)
    }

    /// The first selected address, and the number of bytes.
    pub fn selected_memory(&self) -> Option<(u64, u64)> {
        match self.field() {
            Some(field) => Some((field.address, field.size.max(1))),
            None => Some((self.scene.as_ref()?.memory_at.wrapping_add(self.selected.byte as u64), 1)),
        }
    }

    /// Moves the selection. Beyond the first and the last line, other memory is shown.
    pub(super) fn scroll_memory(&mut self, action: Action, page: usize) -> Vec<Effect> {
        let Some(scene) = &self.scene else { return Vec::new() };
        if let Some(typed) = &scene.typed {
            self.selected.field = moved(self.selected.field, action, page, typed.fields.len());
            return Vec::new();
        }
        let (byte, length) = (self.selected.byte, scene.memory.len());
        let (line, lines) = (byte / MEMORY_LINE, length.div_ceil(MEMORY_LINE));
        let by = match action {
            Action::Up if line == 0 => Some((MEMORY_LINE as u64, false)),
            Action::PageUp if line < page => Some(((page * MEMORY_LINE) as u64, false)),
            Action::Down if line + 1 >= lines => Some((MEMORY_LINE as u64, true)),
            Action::PageDown if line + page >= lines => Some(((page * MEMORY_LINE) as u64, true)),
            _ => None,
        };
        if let Some((by, forwards)) = by.filter(|_| length > 0) {
            let at = scene.memory_at;
            let at = if forwards { at.saturating_add(by) } else { at.saturating_sub(by) };
            return vec![Effect::Ask(Request::ScrollMemory(at))];
        }
        let to = match action {
            Action::Left => byte.saturating_sub(1),
            Action::Right => byte + 1,
            _ => moved(line, action, page, lines) * MEMORY_LINE + byte % MEMORY_LINE,
        };
        self.selected.byte = to.min(length.saturating_sub(1));
        Vec::new()
    }

    /// Shows where the selected pointer or field leads.
    pub(super) fn follow_memory(&mut self) -> Vec<Effect> {
        if let Some(field) = self.field() {
            return match field.leads {
                Some(seen) => self.look_at(Request::Follow(seen)),
                None => self.say("this value leads nowhere; a pointer, a struct or an array does".to_owned()),
            };
        }
        let Some(scene) = &self.scene else { return Vec::new() };
        let bytes = scene.memory.get(self.selected.byte..self.selected.byte + scene.word);
        let Some(bytes) = bytes else { return Vec::new() };
        let at = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        self.look_at(Request::Memory(Spot::at(at)))
    }

    /// Shows the fields of the selected field among the others, or no longer.
    pub(super) fn unfold(&mut self) -> Vec<Effect> {
        match self.field().map(|field| (field.leads.is_some(), field.path.clone())) {
            Some((true, path)) => vec![Effect::Ask(Request::Unfold(path))],
            Some((false, _)) => {
                self.say("this value has no fields; a pointer, a struct or an array has".to_owned())
            }
            None => self.say("these are bytes; x (struct NAME *)ADDRESS shows a struct".to_owned()),
        }
    }

    /// Goes back to what wrote the selected bytes.
    pub(super) fn go_to_writer(&mut self) -> Vec<Effect> {
        let Some((low, length)) = self.selected_memory() else { return Vec::new() };
        let high = low.saturating_add(length - 1);
        self.go(Move::Writer(low, high), None, format!("to what wrote {low:#x}"))
    }

    /// The next field after the selected one, from the first one on after the last, that has this text in its name or its type.
    fn field_named(&self, text: &str) -> Option<usize> {
        let fields = &self.scene.as_ref()?.typed.as_ref()?.fields;
        let has = |n: &usize| {
            let field = fields.get(*n);
            field.is_some_and(|field| field.name.contains(text) || field.type_name.contains(text))
        };
        let after = self.selected.field.saturating_add(1);
        (!text.is_empty()).then(|| (after..fields.len()).chain(0..after).find(has)).flatten()
    }

    /// Looks for a field by its name, or for bytes, a text or a number, after what is selected.
    ///
    /// # Errors
    /// A sentence: what was typed is none of these.
    pub(super) fn find(&mut self, text: &str) -> Result<Vec<Effect>, String> {
        if let Some(field) = self.field_named(text) {
            self.found = text.to_owned();
            self.focus(Pane::Memory);
            self.selected.field = field;
            return Ok(Vec::new());
        }
        let word = self.scene.as_ref().map_or(WORD, |scene| scene.word as u64);
        let wanted = wanted(text, word)?;
        let Some((at, _)) = self.selected_memory() else { return Ok(Vec::new()) };
        if self.travel.busy.is_some() {
            return Err("a move is under way; Esc cancels it".to_owned());
        }
        self.found = text.to_owned();
        self.travel.busy = Some("to these bytes in memory".to_owned());
        self.travel.aim = None;
        Ok(self.look_at(Request::Find(wanted, at.saturating_add(1))))
    }

    /// Whether the last move has changed a byte of memory that was shown before and is shown now.
    pub fn is_changed(&self, address: u64, byte: u8) -> bool {
        let Some((from, before)) = &self.memory_before else { return false };
        let offset = address.checked_sub(*from).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| before.get(offset)).is_some_and(|old| *old != byte)
    }

    /// Whether the last move has changed a field.
    pub fn is_changed_field(&self, field: &Field) -> bool {
        let before = self.typed_before.iter().flat_map(|typed| &typed.fields);
        let same = |old: &&Field| (old.address, &old.path) == (field.address, &field.path);
        before.into_iter().find(same).is_some_and(|old| old.value != field.value)
    }
}

/// The bytes that were typed: a text in quotes, bytes in hexadecimal with spaces between them, or a number with its length.
///
/// # Errors
/// A sentence: it is none of these.
fn wanted(text: &str, word: u64) -> Result<Vec<u8>, String> {
    let text = text.trim();
    if let Some(quoted) =
        text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|text| !text.is_empty())
    {
        return Ok(quoted.as_bytes().to_vec());
    }
    let bytes: Vec<&str> = text.split_whitespace().collect();
    let byte = |text: &&str| u8::from_str_radix(text, 16).ok().filter(|_| text.len() == 2);
    if bytes.len() > 1 {
        let read: Option<Vec<u8>> = bytes.iter().map(byte).collect();
        return read.ok_or_else(|| {
            format!("`{text}` is not bytes: write two hexadecimal digits each, such as de ad")
        });
    }
    let (number, length) = text.split_once(':').unwrap_or((text, ""));
    let wrong = || {
        format!("`{text}` cannot be found: write \"text\", bytes such as de ad, or a number such as 0x1234:4")
    };
    let number = trapline_session::numbers::count(number).map_err(|_| wrong())?;
    let length = match length {
        "" => word,
        length => trapline_session::numbers::within(length, 1, WORD).map_err(|error| error.to_string())?,
    };
    let bytes = number.to_le_bytes();
    let (own, rest) = bytes.split_at(length as usize);
    if rest.iter().any(|byte| *byte != 0) {
        return Err(format!("{number:#x} has more than {length} bytes; write its length: {number:#x}:8"));
    }
    Ok(own.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_texts_and_numbers_are_found() {
        assert_eq!(wanted("\"sh\"", 8), Ok(b"sh".to_vec()));
        assert_eq!(wanted("de AD", 8), Ok(vec![0xde, 0xad]));
        assert_eq!(wanted("0x1234", 4), Ok(vec![0x34, 0x12, 0, 0]));
        assert_eq!(wanted("18:1", 8), Ok(vec![18]));
        for text in ["", "\"\"", "de xx", "300:1", "0x1:9", "what"] {
            assert!(wanted(text, 8).is_err(), "{text}");
        }
    }
}
