//! The fields of a record's event.

use serde_json::{Map, Value as Json};
use trapline_trace::{
    Call, CallArgument, HeaderItems, Kind, Layout, LoggedItem, Pointee, Prefix, RecordView, Shape, Symbolize,
    Token,
};

use super::types::{Field, Type, Value, size};
use crate::hit::{number, plain};

/// Most names of an enumeration that are declared.
const MOST_NAMES: usize = 4096;

fn hex(bits: u32) -> Type {
    Type::Unsigned { bits, hex: true }
}

fn decimal(bits: u32) -> Type {
    Type::Unsigned { bits, hex: false }
}

/// The fields that all events have, with the items that the records hold.
pub(super) fn context(items: HeaderItems, width: u8) -> Vec<(&'static str, Type)> {
    let word = u32::from(width);
    let mut fields = vec![
        ("seq", decimal(64)),
        ("icount", decimal(64)),
        ("ip", hex(word)),
        ("symbol", Type::Text),
        ("major", decimal(32)),
        ("minor", decimal(32)),
    ];
    let chosen = [
        (HeaderItems::NAME, "name", Type::Text),
        (HeaderItems::PID, "pid", decimal(32)),
        (HeaderItems::UID, "uid", decimal(32)),
        (HeaderItems::CS, "cs", hex(32)),
        (HeaderItems::SS, "ss", hex(32)),
        (HeaderItems::ESP, "sp", hex(word)),
        (HeaderItems::TSC, "tsc", decimal(64)),
    ];
    fields.extend(
        chosen.into_iter().filter(|(item, ..)| items.contains(*item)).map(|(_, name, kind)| (name, kind)),
    );
    fields
}

/// The value of a member for a type.
pub(super) fn value(kind: &Type, member: Option<&Json>) -> Value {
    match (kind, member) {
        (Type::Text, Some(member)) => Value::Text(plain(member)),
        (Type::Text, None) => Value::Text(String::new()),
        (_, member) => Value::Number(member.and_then(number).unwrap_or(0)),
    }
}

/// The fields of a record beyond those of all events. `object` has the members of its JSON line.
pub(super) fn of_record(
    record: &RecordView<'_>,
    symbols: &dyn Symbolize,
    object: &Map<String, Json>,
) -> Vec<Field> {
    let h = &record.header;
    let mut fields = rare(object, u32::from(h.width));
    if let Some(trace) = object.get("trace") {
        fields.push(("trace".to_owned(), Type::Text, Value::Text(trace.to_string())));
    }
    if let Some(frames) = object.get("frames").and_then(Json::as_array) {
        let frames = frames.iter().map(plain).collect();
        fields.push(("frames".to_owned(), Type::Texts, Value::Texts(frames)));
        return fields;
    }
    let layout = symbols.layout(h.probe).filter(|_| h.kind == Kind::Data);
    let typed = layout.and_then(|layout| match &**layout {
        Layout::Call(call) => of_call(call, object),
        Layout::Logged(items) => logged(items, record.data, h.width),
    });
    match typed {
        Some(typed) => fields.extend(typed),
        None => fields.push(("data".to_owned(), Type::Bytes, Value::Bytes(record.data.to_vec()))),
    }
    fields
}

/// What only some records have: an exception, the access of a watch.
fn rare(object: &Map<String, Json>, word: u32) -> Vec<Field> {
    let mut fields = Vec::new();
    if let Some(termination) = object.get("termination") {
        fields.push(("termination".to_owned(), hex(16), value(&hex(16), Some(termination))));
    }
    let members = |name: &str| object.get(name).and_then(Json::as_object).into_iter().flatten();
    for (name, member) in members("exception") {
        let kind = if name == "line" { decimal(32) } else { hex(64) };
        fields.push((format!("exception_{name}"), kind.clone(), value(&kind, Some(member))));
    }
    for (name, member) in members("watch") {
        let kind = match name.as_str() {
            "size" => decimal(16),
            "address" | "port" => hex(word),
            // Up to 16 bytes as one number.
            _ => Type::Text,
        };
        fields.push((format!("watch_{name}"), kind.clone(), value(&kind, Some(member))));
    }
    fields
}

/// The arguments or the value of a function, if the record's data has that form.
fn of_call(call: &Call, object: &Map<String, Json>) -> Option<Vec<Field>> {
    let (args, returns) = (object.get("args").and_then(Json::as_array), object.get("returns"));
    let values: Vec<&Json> = match (args, returns) {
        (Some(args), _) => args.iter().collect(),
        (None, Some(returns)) => vec![returns],
        (None, None) => return None,
    };
    let mut fields = Vec::new();
    for (argument, value) in call.arguments.iter().zip(values) {
        let name = if args.is_some() { argument.name.as_str() } else { "returns" };
        argument_fields(name, argument, value.get("value").unwrap_or(&Json::Null), &mut fields);
    }
    Some(fields)
}

fn argument_fields(name: &str, argument: &CallArgument, json: &Json, fields: &mut Vec<Field>) {
    let mut add = |name: String, kind: Type, json: &Json| {
        let own = value(&kind, Some(json));
        fields.push((name, kind, own));
    };
    let part = |part: &str| json.get(part).cloned().unwrap_or_default();
    match &argument.shape {
        Shape::Int { bits, signed: true } => add(name.to_owned(), Type::Signed { bits: *bits }, json),
        Shape::Int { bits, .. } => add(name.to_owned(), decimal(*bits), json),
        Shape::Bool => add(name.to_owned(), decimal(8), json),
        Shape::Enum { bits, signed, items } => {
            add(name.to_owned(), enumeration(*bits, *signed, items), json);
        }
        Shape::Flags { bits, .. } => {
            add(name.to_owned(), hex(*bits), json);
            let flags = part("flags");
            let flags: Vec<String> = flags.as_array().into_iter().flatten().map(plain).collect();
            add(format!("{name}_flags"), Type::Text, &flags.join("|").into());
        }
        Shape::Hex { bits } => add(name.to_owned(), hex(*bits), json),
        Shape::Pointer(to) => {
            add(name.to_owned(), hex(64), json);
            match to {
                Pointee::Unread => {}
                Pointee::Text(_) => add(format!("{name}_text"), Type::Text, &part("text")),
                Pointee::Struct(_) => add(format!("{name}_fields"), Type::Text, &part("fields")),
            }
        }
        Shape::Characters
        | Shape::Inside
        | Shape::Elements
        | Shape::Float { .. }
        | Shape::Extended { .. } => add(name.to_owned(), Type::Text, json),
    }
}

/// An enumeration with the names that its integer can have.
fn enumeration(bits: u32, signed: bool, items: &[(String, i64)]) -> Type {
    let above = 64 - size(bits);
    let fits = |value: i64| match signed {
        true => (value << above) >> above == value,
        false => (value << above).cast_unsigned() >> above == value.cast_unsigned(),
    };
    let items: Vec<_> = items.iter().filter(|(_, value)| fits(*value)).take(MOST_NAMES).cloned().collect();
    match (items.is_empty(), signed) {
        (true, true) => Type::Signed { bits },
        (true, false) => decimal(bits),
        (false, _) => Type::Enum { bits, signed, items },
    }
}

/// What a handler has logged, if the data has that form. An exception may have ended the handler before the last item.
fn logged(items: &[LoggedItem], data: &[u8], width: u8) -> Option<Vec<Field>> {
    let (word, bits) = (usize::from(width / 8), u32::from(width));
    let words = |bytes: &[u8]| -> Vec<u64> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        bytes.chunks(word.max(1)).map(number).collect()
    };
    let (mut rest, mut fields) = (data, Vec::new());
    for (n, item) in items.iter().enumerate() {
        if rest.is_empty() {
            break;
        }
        match item {
            LoggedItem::Words(count) => {
                let (own, more) = rest.split_at_checked(usize::try_from(*count).ok()?.checked_mul(word)?)?;
                rest = more;
                match words(own).as_slice() {
                    [one] => fields.push((format!("value{n}"), hex(bits), Value::Number(*one))),
                    all => {
                        fields.push((format!("values{n}"), Type::Words { bits }, Value::Words(all.to_vec())))
                    }
                }
            }
            LoggedItem::Prefixed => {
                let prefix = Prefix::parse(rest)?;
                let (own, more) = rest.get(Prefix::SIZE..)?.split_at_checked(prefix.bytes(word)?)?;
                rest = more;
                fields.push(match prefix.token {
                    Token::Text => (
                        format!("text{n}"),
                        Type::Text,
                        Value::Text(String::from_utf8_lossy(own).into_owned()),
                    ),
                    Token::SelectorFault | Token::FlatFault => {
                        (format!("unreadable{n}"), Type::Words { bits }, Value::Words(words(own)))
                    }
                    Token::Memory => (format!("memory{n}"), Type::Bytes, Value::Bytes(own.to_vec())),
                    _ => (format!("values{n}"), Type::Words { bits }, Value::Words(words(own))),
                });
            }
        }
    }
    rest.is_empty().then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_an_enumeration_cannot_have_are_left_out() {
        let items = [("A".to_owned(), 3), ("B".to_owned(), 300), ("C".to_owned(), -1)];
        let Type::Enum { items, .. } = enumeration(8, true, &items) else { panic!("no enumeration") };
        assert_eq!(items, [("A".to_owned(), 3), ("C".to_owned(), -1)]);
        assert_eq!(enumeration(8, true, &[("B".to_owned(), 300)]), Type::Signed { bits: 8 });
        let items = [("A".to_owned(), 200), ("B".to_owned(), 300), ("C".to_owned(), -1)];
        let Type::Enum { items, .. } = enumeration(8, false, &items) else { panic!("no enumeration") };
        assert_eq!(items, [("A".to_owned(), 200)]);
    }

    #[test]
    fn what_a_handler_logs_is_typed_by_its_items() {
        let items = [LoggedItem::Words(1), LoggedItem::Prefixed, LoggedItem::Words(2)];
        let data = [&[7, 0, 0, 0][..], &[1, 2, 0, b'h', b'i'], &[1, 0, 0, 0, 2, 0, 0, 0]].concat();
        let fields = logged(&items, &data, 32).unwrap();
        let values: Vec<&Value> = fields.iter().map(|(.., value)| value).collect();
        assert_eq!(values, [&Value::Number(7), &Value::Text("hi".to_owned()), &Value::Words(vec![1, 2])]);
        assert_eq!(logged(&items, &data[..4], 32).unwrap().len(), 1);
        assert_eq!(logged(&items, &data[..6], 32), None);
        assert_eq!(logged(&[LoggedItem::Words(u64::MAX)], &data, 32), None);
    }
}
