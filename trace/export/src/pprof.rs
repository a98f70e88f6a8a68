//! Stacks as a profile of pprof (`profile.proto`), which need not be compressed.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::protobuf::Message;
use crate::tree::Tree;

/// Fields of `Profile`.
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const MAPPING: u32 = 3;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING: u32 = 6;
const DEFAULT_SAMPLE_TYPE: u32 = 14;
/// The number of the only mapping: the guest.
const GUEST: u64 = 1;

/// The texts of a profile, which its other fields name by their numbers. The first must be empty.
struct Strings<'a> {
    numbers: BTreeMap<&'a str, u64>,
    all: Vec<&'a str>,
}

impl<'a> Strings<'a> {
    fn new() -> Self {
        Self { numbers: BTreeMap::from([("", 0)]), all: vec![""] }
    }

    fn number(&mut self, text: &'a str) -> u64 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() as u64 - 1
        })
    }
}

/// A profile under construction. Functions and locations are numbered from 1 and have the same numbers: the address of a location
/// is not known.
struct Profile<'a> {
    message: Message,
    strings: Strings<'a>,
    functions: BTreeMap<&'a str, u64>,
}

impl<'a> Profile<'a> {
    /// `message ValueType { int64 type = 1; int64 unit = 2; }`.
    fn sample_type(&mut self, kind: &'a str, unit: &'a str) {
        let mut value_type = Message::default();
        value_type.number(1, self.strings.number(kind));
        value_type.number(2, self.strings.number(unit));
        self.message.message(SAMPLE_TYPE, &value_type);
    }

    /// `message Mapping { uint64 id = 1; int64 filename = 5; bool has_functions = 7; }`.
    fn guest(&mut self, image: &'a str) {
        let mut mapping = Message::default();
        mapping.number(1, GUEST);
        mapping.number(5, self.strings.number(image));
        mapping.number(7, 1);
        self.message.message(MAPPING, &mapping);
    }

    /// `message Location { uint64 id = 1; uint64 mapping_id = 2; Line line = 4; }` with
    /// `message Line { uint64 function_id = 1; }`, and `message Function { uint64 id = 1; int64 name = 2; int64 system_name = 3; }`.
    fn location(&mut self, name: &'a str) -> u64 {
        if let Some(number) = self.functions.get(name) {
            return *number;
        }
        let number = self.functions.len() as u64 + 1;
        self.functions.insert(name, number);
        let text = self.strings.number(name);
        let (mut function, mut line, mut location) =
            (Message::default(), Message::default(), Message::default());
        function.number(1, number);
        function.number(2, text);
        function.number(3, text);
        self.message.message(FUNCTION, &function);
        line.number(1, number);
        location.number(1, number);
        location.number(2, GUEST);
        location.message(4, &line);
        self.message.message(LOCATION, &location);
        number
    }

    /// `message Sample { repeated uint64 location_id = 1; repeated int64 value = 2; }`, the innermost location first.
    fn sample(&mut self, frames: impl Iterator<Item = &'a str>, values: &[u64]) {
        let mut sample = Message::default();
        for frame in frames {
            sample.number(1, self.location(frame));
        }
        // They are signed there.
        values.iter().for_each(|value| sample.number(2, (*value).min(i64::MAX as u64)));
        self.message.message(SAMPLE, &sample);
    }
}

/// What pprof calls the weights and their unit.
fn named(unit: &str) -> (&str, &str) {
    match unit {
        "ns" => ("time", "nanoseconds"),
        unit => (unit, "count"),
    }
}

/// Writes the stacks with their weights; with those of the trace before as a second value, `before`, if `both`.
pub(crate) fn write(out: &mut dyn Write, tree: &Tree, image: &str, unit: &str, both: bool) -> io::Result<()> {
    let (message, strings, functions) = (Message::default(), Strings::new(), BTreeMap::new());
    let mut profile = Profile { message, strings, functions };
    let (kind, unit) = named(unit);
    if both {
        profile.sample_type("before", unit);
    }
    profile.sample_type(kind, unit);
    profile.guest(image);
    for (frames, [before, now]) in tree.stacks() {
        match (both, before, now) {
            (true, ..) => profile.sample(frames, &[before, now]),
            (false, _, 0) => {}
            (false, ..) => profile.sample(frames, &[now]),
        }
    }
    let shown = profile.strings.number(kind);
    profile.message.number(DEFAULT_SAMPLE_TYPE, shown);
    let Profile { mut message, strings, .. } = profile;
    strings.all.iter().for_each(|text| message.text(STRING, text));
    out.write_all(message.bytes())
}
