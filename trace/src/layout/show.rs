//! Records by their layout: one line of text, and members of a JSON object.

use serde_json::{Map, Value, json};

use super::read::{Data, values};
use super::value::{Seen, quoted};
use super::{Call, CallArgument, CallForm, Layout, LoggedItem};
use crate::hex::{HexStyle, push_hex};
use crate::log_prefix::Token;

impl Layout {
    /// The data of a record as text; `None` if it has another form.
    #[must_use]
    pub fn text(&self, data: &[u8], width: u8) -> Option<String> {
        match self {
            Self::Logged(items) => logged(items, data, width),
            Self::Call(call) => call.text(data, width),
        }
    }

    /// The typed members that the data of a record adds to its JSON object.
    #[must_use]
    pub fn json(&self, data: &[u8], width: u8) -> Option<(&'static str, Value)> {
        match self {
            Self::Logged(_) => None,
            Self::Call(call) => call.json(data, width),
        }
    }
}

impl Call {
    fn text(&self, data: &[u8], width: u8) -> Option<String> {
        let values = values(self, data, width)?;
        let mut out = format!("{}(", self.function);
        if self.form == CallForm::Entry {
            for (n, (argument, value)) in self.arguments.iter().zip(&values).enumerate() {
                out.push_str(if n > 0 { ", " } else { "" });
                out.push_str(&argument.name);
                out.push('=');
                value.text(&mut out);
            }
            out.push(')');
            return Some(out);
        }
        out.push(')');
        match (self.form, values.first()) {
            (CallForm::TailCall, _) => out.push_str(" ends by a call of another function"),
            (_, Some(value)) => {
                out.push_str(" = ");
                value.text(&mut out);
            }
            (_, None) => out.push_str(" returns"),
        }
        Some(out)
    }

    fn json(&self, data: &[u8], width: u8) -> Option<(&'static str, Value)> {
        let values = values(self, data, width)?;
        let one = |argument: &CallArgument, value: &Seen| {
            let mut object = Map::new();
            if self.form == CallForm::Entry {
                object.insert("name".to_owned(), json!(argument.name));
            }
            object.insert("type".to_owned(), json!(argument.type_name));
            object.insert("value".to_owned(), value.json());
            Value::Object(object)
        };
        let mut all = self.arguments.iter().zip(&values).map(|(argument, value)| one(argument, value));
        match self.form {
            CallForm::Entry => Some(("args", Value::Array(all.collect()))),
            CallForm::Return => Some(("returns", all.next().unwrap_or(Value::Null))),
            CallForm::TailCall => None,
        }
    }
}

/// What a handler has logged: texts in quotes, everything else as pairs of hex digits. A handler that an exception has
/// ended has logged the first items only.
fn logged(items: &[LoggedItem], data: &[u8], width: u8) -> Option<String> {
    let mut data = Data { rest: data, word: usize::from(width / 8) };
    let mut out = String::new();
    // The bytes that wait to be shown together.
    let mut bytes: Vec<u8> = Vec::new();
    let flush = |bytes: &mut Vec<u8>, out: &mut String| {
        if !bytes.is_empty() {
            out.push_str(if out.is_empty() { "" } else { " " });
            push_hex(bytes, HexStyle::Pairs, out);
            bytes.clear();
        }
    };
    for item in items {
        if data.rest.is_empty() {
            break;
        }
        let before = data.rest;
        match item {
            LoggedItem::Words(count) => {
                let size = usize::try_from(*count).ok()?.checked_mul(data.word)?;
                bytes.extend_from_slice(data.take(size)?);
            }
            LoggedItem::Prefixed => {
                let piece = data.piece()?;
                if piece.token == Token::Text {
                    flush(&mut bytes, &mut out);
                    out.push_str(if out.is_empty() { "" } else { " " });
                    quoted(piece.bytes, false, &mut out);
                } else {
                    bytes.extend_from_slice(before.get(..before.len() - data.rest.len())?);
                }
            }
        }
    }
    flush(&mut bytes, &mut out);
    data.rest.is_empty().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::super::{Field, Members, Pointee, Shape};
    use super::*;

    fn argument(name: &str, word: u8, shape: Shape) -> CallArgument {
        CallArgument {
            name: name.to_owned(),
            type_name: "t".to_owned(),
            word,
            pair: false,
            length: None,
            shape,
        }
    }

    fn call(form: CallForm, words: u8, arguments: Vec<CallArgument>) -> Layout {
        Layout::Call(Call { function: "f".to_owned(), form, words, arguments })
    }

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn prefixed(token: Token, bytes: &[u8]) -> Vec<u8> {
        [&[token as u8][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
    }

    #[test]
    fn arguments_are_shown_by_their_types() {
        let int = |bits, signed| Shape::Int { bits, signed };
        let flags = vec![("A".to_owned(), 1, 1), ("B".to_owned(), 2, 2)];
        let layout = call(
            CallForm::Entry,
            5,
            vec![
                argument("dfd", 0, int(32, true)),
                argument("name", 1, Shape::Pointer(Pointee::Text(4))),
                argument("flags", 2, Shape::Flags { bits: 32, names: flags }),
                argument(
                    "kind",
                    3,
                    Shape::Enum { bits: 32, signed: true, items: vec![("ONE".to_owned(), 1)] },
                ),
                argument("on", 4, Shape::Bool),
            ],
        );
        let data = [words(&[0xffff_ff9c, 0x10, 0x13, 1, 1]), prefixed(Token::Text, b"a\"\n\x01")].concat();
        let shown = "f(dfd=-100, name=\"a\\\"\\n\\001\".., flags=A|B|0x10, kind=ONE, on=true)";
        assert_eq!(layout.text(&data, 64).unwrap(), shown);
        let json = layout.json(&data, 64).unwrap();
        assert_eq!(json.0, "args");
        assert_eq!(json.1[0], json!({"name": "dfd", "type": "t", "value": -100}));
        assert_eq!(json.1[1]["value"], json!({"address": "0x10", "text": "a\"\n\u{1}", "cut": true}));
        assert_eq!(json.1[2]["value"], json!({"value": 19, "flags": ["A", "B", "0x10"]}));
        // What cannot be read is said; data of another form is not shown.
        let fault = [words(&[3, 0x10, 0, 9, 0]), prefixed(Token::FlatFault, &words(&[0x10]))].concat();
        let shown = "f(dfd=3, name=0x10 <unreadable>, flags=0, kind=9, on=false)";
        assert_eq!(layout.text(&fault, 64).unwrap(), shown);
        assert_eq!(layout.text(&data[..39], 64), None);
        assert_eq!(layout.text(&[&data[..], b"x"].concat(), 64), None);
    }

    #[test]
    fn members_are_shown_by_their_offsets() {
        let field =
            |name: &str, bit_offset, bits, shape| Field { name: name.to_owned(), bit_offset, bits, shape };
        let members = Members {
            reads: vec![(0, 9), (100, 4)],
            fields: vec![
                field("low", 0, 3, Shape::Int { bits: 3, signed: false }),
                field("text", 8, 64, Shape::Pointer(Pointee::Text(8))),
                field("comm", 800, 32, Shape::Characters),
            ],
            more: true,
        };
        let layout =
            call(CallForm::Entry, 1, vec![argument("p", 0, Shape::Pointer(Pointee::Struct(members)))]);
        let first = [&[0x0d][..], &words(&[0x77])].concat();
        let data = [
            words(&[0xffff_0000]),
            prefixed(Token::Memory, &first),
            prefixed(Token::Memory, b"sh\0x"),
            prefixed(Token::Text, b"hi"),
        ];
        let shown = "f(p=0xffff0000 {low=5, text=\"hi\", comm=\"sh\", ..})";
        assert_eq!(layout.text(&data.concat(), 64).unwrap(), shown);
        let fault = || prefixed(Token::FlatFault, &words(&[1]));
        let none = [words(&[0xffff_0000]), fault(), fault()].concat();
        assert_eq!(layout.text(&none, 64).unwrap(), "f(p=0xffff0000 <unreadable>)");
        let null = [words(&[0]), fault(), fault()].concat();
        assert_eq!(layout.text(&null, 64).unwrap(), "f(p=NULL)");
    }

    #[test]
    fn a_text_is_as_long_as_another_argument_says() {
        let mut text = argument("buf", 0, Shape::Pointer(Pointee::Text(4)));
        text.length = Some(1);
        let layout = call(CallForm::Entry, 2, vec![text]);
        let shown = |count| {
            let data = [words(&[0x10, count]), prefixed(Token::Text, b"abcd")].concat();
            layout.text(&data, 64).unwrap()
        };
        assert_eq!(shown(3), "f(buf=\"abc\")");
        assert_eq!(shown(4), "f(buf=\"abcd\")");
        assert_eq!(shown(5), "f(buf=\"abcd\"..)");
    }

    #[test]
    fn returns_show_the_value() {
        let int = Shape::Int { bits: 32, signed: true };
        let layout = call(CallForm::Return, 2, vec![argument("", 1, int)]);
        assert_eq!(layout.text(&words(&[0x20, 0xffff_fffe]), 64).unwrap(), "f() = -2");
        assert_eq!(layout.json(&words(&[0x20, 7]), 64).unwrap().1, json!({"type": "t", "value": 7}));
        let nothing = call(CallForm::Return, 2, Vec::new());
        assert_eq!(nothing.text(&words(&[0x20, 7]), 64).unwrap(), "f() returns");
    }

    #[test]
    fn a_handler_shows_its_texts() {
        let layout = Layout::Logged(vec![LoggedItem::Words(1), LoggedItem::Prefixed, LoggedItem::Words(1)]);
        let data = [&[1, 0, 0, 0][..], &prefixed(Token::Text, b"/etc"), &[2, 0, 0, 0]].concat();
        assert_eq!(layout.text(&data, 32).unwrap(), "01000000 \"/etc\" 02000000");
        assert_eq!(layout.text(&data[..4], 32).unwrap(), "01000000");
        assert_eq!(layout.text(&data[..6], 32), None);
        let fault = [&[1, 0, 0, 0][..], &prefixed(Token::FlatFault, &[9, 0, 0, 0])].concat();
        assert_eq!(layout.text(&fault, 32).unwrap(), "01000000ff040009000000");
    }
}
