//! The lines that babeltrace2 prints, and their comparison with JSON lines.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// A value as babeltrace2 prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Number(i128),
    Text(String),
    List(Vec<Value>),
}

/// An event.
#[derive(Debug)]
pub struct Event {
    pub nanoseconds: u64,
    pub name: String,
    /// The fields of all scopes.
    pub fields: BTreeMap<String, Value>,
    /// The names of the payload's fields in their order.
    pub payload: Vec<String>,
}

struct Parser<'a>(&'a str);

impl Parser<'_> {
    fn eat(&mut self, text: &str) -> bool {
        match self.0.trim_start().strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> String {
        let text = self.0.trim_start();
        let end = text.find([' ', ',', '}', ']', ')']).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        word.to_owned()
    }

    fn text(&mut self) -> String {
        let mut out = String::new();
        let mut chars = self.0.chars();
        loop {
            match chars.next().unwrap_or_else(|| panic!("a text has no end: {}", self.0)) {
                '"' => break,
                '\\' => out.push(chars.next().map(|c| if c == 'n' { '\n' } else { c }).unwrap()),
                c => out.push(c),
            }
        }
        self.0 = chars.as_str();
        out
    }

    fn value(&mut self) -> Value {
        if self.eat("\"") {
            return Value::Text(self.text());
        }
        if self.eat("[") {
            let mut list = Vec::new();
            while !self.eat("]") {
                if self.eat("[") {
                    self.word();
                    assert!(self.eat("]") && self.eat("="), "{}", self.0);
                }
                list.push(self.value());
                self.eat(",");
            }
            return Value::List(list);
        }
        let word = self.word();
        let (minus, digits) = word.strip_prefix('-').map_or((1, word.as_str()), |rest| (-1, rest));
        let value = match digits.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        Value::Number(minus * value.unwrap_or_else(|error| panic!("{word}: {error}: {}", self.0)))
    }

    /// The fields of a scope.
    fn scope(&mut self) -> Vec<(String, Value)> {
        let mut fields = Vec::new();
        assert!(self.eat("{"), "{}", self.0);
        while !self.eat("}") {
            let name = self.word();
            assert!(self.eat("="), "{name}: {}", self.0);
            fields.push((name, self.value()));
            self.eat(",");
        }
        fields
    }
}

/// The event of a line.
pub fn event(line: &str) -> Event {
    let (time, rest) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).unwrap();
    let (name, scopes) = rest.split_once(": {").unwrap_or_else(|| panic!("no scopes: {line}"));
    let nanoseconds = time.replace('.', "").parse().unwrap();
    let mut parser = Parser(&rest[name.len() + 2..]);
    let mut all = vec![parser.scope()];
    while parser.eat(",") {
        all.push(parser.scope());
    }
    assert!(!scopes.is_empty() && all.len() >= 3, "{line}");
    let payload = all.last().unwrap().iter().map(|(name, _)| name.clone()).collect();
    Event { nanoseconds, name: name.to_owned(), fields: all.into_iter().flatten().collect(), payload }
}

/// A number of a JSON line.
fn number(value: &Json) -> i128 {
    match value {
        Json::String(text) => i128::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap(),
        value => value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from)).unwrap(),
    }
}

/// The bytes that a record holds, from the fields that its data was split into.
fn bytes(event: &Event, word: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let words = |list: &[Value], out: &mut Vec<u8>| {
        for value in list {
            let Value::Number(value) = value else { panic!("{event:?}") };
            out.extend_from_slice(&value.to_le_bytes()[..word]);
        }
    };
    let prefixed = |token: u8, bytes: &[u8], out: &mut Vec<u8>| {
        out.push(token);
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    let octets = |list: &[Value]| -> Vec<u8> {
        list.iter()
            .map(|value| if let Value::Number(value) = value { *value as u8 } else { panic!() })
            .collect()
    };
    for name in &event.payload {
        match (name.trim_end_matches(|c: char| c.is_ascii_digit()), &event.fields[name]) {
            ("data", Value::List(list)) => out.extend(octets(list)),
            ("value", value) => words(std::slice::from_ref(value), &mut out),
            ("values", Value::List(list)) => words(list, &mut out),
            ("memory", Value::List(list)) => prefixed(0, &octets(list), &mut out),
            ("text", Value::Text(text)) => prefixed(1, text.as_bytes(), &mut out),
            ("unreadable", Value::List(list)) => {
                let mut address = Vec::new();
                words(list, &mut address);
                prefixed(0xff, &address, &mut out);
            }
            _ => {}
        }
    }
    out
}

/// Asserts that an event is the record of a JSON line, in a guest with words of `word` bytes.
pub fn assert_same(event: &Event, record: &Json, word: usize) {
    let field = |name: &str| event.fields.get(name).unwrap_or_else(|| panic!("{name}: {event:?} {record}"));
    let kind = record["type"].as_str().unwrap();
    let codes = format!("hit({},{})", record["major"], record["minor"]);
    let name = if kind == "hit" { record["probe"].as_str().unwrap_or(&codes) } else { kind };
    assert_eq!(event.name, name, "{record}");
    let mut seen = 0;
    for (name, value) in record.as_object().unwrap() {
        let right = match (name.as_str(), value) {
            ("type" | "probe" | "id" | "data", _) => continue,
            ("time_ns", value) => i128::from(event.nanoseconds) == number(value),
            ("cpu", value) => field("cpu_id") == &Value::Number(number(value)),
            ("symbol", Json::Null) => field(name) == &Value::Text(" ".to_owned()),
            // An empty text is one space.
            ("symbol" | "name", Json::String(text)) => {
                let text = if text.is_empty() { " " } else { text };
                field(name) == &Value::Text(text.to_owned())
            }
            ("frames", Json::Array(frames)) => {
                let frames = frames.iter().map(|frame| Value::Text(frame.as_str().unwrap().to_owned()));
                field(name) == &Value::List(frames.collect())
            }
            ("exception", Json::Object(members)) => members
                .iter()
                .all(|(part, value)| field(&format!("exception_{part}")) == &Value::Number(number(value))),
            ("watch", Json::Object(members)) => members.iter().all(|(part, value)| {
                let own = field(&format!("watch_{part}"));
                match part.as_str() {
                    "access" | "old" | "new" | "value" => {
                        own == &Value::Text(value.as_str().unwrap().to_owned())
                    }
                    _ => own == &Value::Number(number(value)),
                }
            }),
            (_, value) => field(name) == &Value::Number(number(value)),
        };
        assert!(right, "{name}: {event:?} {record}");
        seen += 1;
    }
    assert!(seen >= 8, "{record}");
    if kind == "hit" {
        let hex: String = bytes(event, word).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(Json::String(hex), record["data"], "{event:?}");
    }
}
