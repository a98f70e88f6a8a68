//! Records and aggregations as dtrace(1) prints them.

use super::code::Code;
use super::field::{Field, SymbolForm};
use super::flow::{self, Flow};
use super::format::{Conversion, Format, Piece, int_of, number, pad_text, size_of, text};
use super::histogram::histogram;
use super::print::{dump, printed};
use super::record::{Reader, Snapshot, SnapshotEntry, Value};
use super::sort::{Sorting, sort_leading};
use super::tables::{Action, AggKind, Aggregation, Record, Tables};
use super::values::{
    Firing, ShowSymbols, date, date_of_mail, fault, float, float_text, int_width, named, shown_value,
    trace_width, value_text,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

/// The options of dtrace(1) for a program's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// `quiet`: only what the program asks for.
    pub quiet: bool,
    /// `rawbytes`: strings as bytes.
    pub rawbytes: bool,
    /// `strsize`: bytes of a string shown as bytes, without its end.
    pub strsize: usize,
    /// `aggsortkey`.
    pub sort_key: bool,
    /// `aggsortrev`.
    pub sort_reverse: bool,
    /// `aggsortkeypos`.
    pub sort_key_position: usize,
    /// `aggsortpos`.
    pub sort_position: usize,
    /// `stackindent`.
    pub stack_indent: usize,
    /// `flowindent`: entries and returns of functions are indented.
    pub flow_indent: bool,
}

/// An address that is shown as a number.
const ADDRESS: Field = Field::Int { size: 8, signed: false };

/// Prints the records of one program.
#[derive(Debug)]
pub struct Consumer {
    pub(super) tables: Arc<Tables>,
    pub(super) options: ConsumerOptions,
    /// Whether the heading has been printed.
    begun: bool,
    status: Option<i32>,
    /// Aggregations that `printa()` has shown; the others are shown at the end.
    pub(super) shown: Vec<bool>,
    /// Where `freopen()` has sent the output.
    pub(super) file: Option<std::fs::File>,
    pub(super) complaints: Vec<String>,
    /// Whether `freopen()` may open files.
    files: bool,
    /// Whether `system()` may run commands.
    pub(super) commands: bool,
    /// The calls that `flowindent` shows.
    flow: Flow,
}

impl Consumer {
    /// A consumer of a program's records.
    #[must_use]
    pub fn new(tables: Arc<Tables>, options: ConsumerOptions) -> Self {
        let shown = vec![false; tables.aggregations.len()];
        Self {
            tables,
            options,
            begun: false,
            status: None,
            shown,
            file: None,
            complaints: Vec::new(),
            files: true,
            commands: false,
            flow: Flow::default(),
        }
    }

    /// The same, without files of `freopen()`: all output goes to one place.
    #[must_use]
    pub fn without_files(self) -> Self {
        Self { files: false, ..self }
    }

    /// The same for dtrace(1)'s consumer: `system()` runs its commands on this host, and faults are told in its words.
    #[must_use]
    pub fn with_commands(self) -> Self {
        Self { commands: true, ..self }
    }

    /// The status of `exit()`, if it has been called.
    #[must_use]
    pub const fn status(&self) -> Option<i32> {
        self.status
    }

    /// Takes the errors since the last call, one sentence each.
    pub fn take_complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Prints the record of a probe's firing.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn record(&mut self, firing: Firing<'_>, data: &[u8], out: &mut dyn Write) -> io::Result<()> {
        if let Some(error) = fault(firing, data, self.commands) {
            self.complaints.push(error);
            return Ok(());
        }
        let mut text = Vec::new();
        let took = self.begin_line(firing, &mut text);
        let tables = Arc::clone(&self.tables);
        let mut reader = Reader::new(data);
        while !reader.is_empty() {
            let record = reader.part().and_then(|part| tables.records.get(part as usize));
            let Some(record) = record else { break };
            if self.part(record, &mut reader, firing, &mut text, out)?.is_none() {
                break;
            }
        }
        self.end_line(took, &mut text);
        self.write(&text, out)
    }

    /// The columns before the data, with the heading before the first ones. With `flowindent` also the duration of a
    /// call that has ended, which the end of the line shows.
    pub(super) fn begin_line(&mut self, firing: Firing<'_>, text: &mut Vec<u8>) -> Option<u64> {
        if self.options.flow_indent {
            if !std::mem::replace(&mut self.begun, true) {
                text.extend_from_slice(flow::heading().as_bytes());
            }
            let (column, took) = self.flow.column(firing);
            text.extend_from_slice(column.as_bytes());
            return took;
        }
        if self.options.quiet {
            return None;
        }
        if !std::mem::replace(&mut self.begun, true) {
            text.extend_from_slice(format!("{:>32}\n", "FUNCTION:NAME").as_bytes());
        }
        let name = format!("{}:{}", firing.name.function, firing.name.name);
        text.extend_from_slice(format!("{name:>32} ").as_bytes());
        None
    }

    /// The end of a record's line.
    pub(super) fn end_line(&self, took: Option<u64>, text: &mut Vec<u8>) {
        if let Some(took) = took {
            text.extend_from_slice(flow::duration(took).as_bytes());
        }
        if !self.options.quiet || self.options.flow_indent {
            text.push(b'\n');
        }
    }

    /// One part of a record; `None` if it is cut off.
    pub(super) fn part(
        &mut self,
        record: &Record,
        reader: &mut Reader<'_>,
        firing: Firing<'_>,
        text: &mut Vec<u8>,
        out: &mut dyn Write,
    ) -> io::Result<Option<()>> {
        if let Action::Printa { format, aggregations } = &record.action {
            let mut snapshots = Vec::new();
            for _ in aggregations {
                let Some(snapshot) = reader.snapshot() else { return Ok(None) };
                snapshots.push(snapshot);
            }
            self.printa(format.as_ref(), aggregations, snapshots, firing.symbols, text);
            return Ok(Some(()));
        }
        let Some(values) = reader.values(&record.fields) else { return Ok(None) };
        let first = values.first();
        match &record.action {
            Action::Trace => {
                if let (Some(field), Some(value)) = (record.fields.first(), first) {
                    self.trace(*field, value, firing.symbols, text);
                }
            }
            Action::Tracemem { dynamic } => {
                let Some(Value::Bytes(bytes)) = first else { return Ok(None) };
                let most = if *dynamic { int_of(values.get(1)) as i64 } else { i64::MAX };
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let shown = bytes.get(..most.min(bytes.len())).unwrap_or_default();
                // The program wants to see nothing of it.
                if !shown.is_empty() {
                    text.extend_from_slice(dump(shown).as_bytes());
                }
            }
            Action::Printf(format) => self.formatted(format, (&record.fields, &values), firing.symbols, text),
            Action::Print { ty, name, by_address } => {
                let address = by_address.then(|| int_of(first));
                if let Some(value) = values.last() {
                    text.extend_from_slice(printed(ty, name, address, value).as_bytes());
                }
            }
            Action::Stack => {
                if let (Some(field), Some(value)) = (record.fields.first(), first) {
                    self.datum(*field, value, 1, firing.symbols, text);
                }
            }
            Action::Exit => self.status = Some(int_of(first) as i32),
            Action::Setopt => self.setopt(&values, firing),
            Action::Freopen(_) | Action::Ftruncate if !self.files => {
                let what = "freopen() and ftruncate() have no effect here: all output goes to one place";
                self.complaints.push(what.to_owned());
            }
            Action::Freopen(format) => {
                self.write(&std::mem::take(text), out)?;
                self.freopen(format, (&record.fields, &values), firing.symbols);
            }
            Action::Ftruncate => {
                self.write(&std::mem::take(text), out)?;
                if let Some(file) = &mut self.file {
                    file.set_len(0)?;
                }
            }
            Action::System(_) if !self.commands => {
                self.complaints.push("system() has no effect here: it runs commands only while the guest runs under trapline dtrace".to_owned());
            }
            Action::System(format) => {
                self.write(&std::mem::take(text), out)?;
                let shown = self.system(format, (&record.fields, &values), firing.symbols);
                self.write(&shown, out)?;
            }
            Action::Default | Action::Printa { .. } => {}
        }
        Ok(Some(()))
    }

    fn setopt(&mut self, values: &[Value], firing: Firing<'_>) {
        let text = |value: Option<&Value>| match value {
            Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        let (name, value) = (text(values.first()), text(values.get(1)));
        let flag = matches!(
            value.as_str(),
            "" | "1" | "0" | "enable" | "disable" | "on" | "off" | "yes" | "no" | "true" | "false"
        );
        let rate = value.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<u64>().is_ok();
        let why = match name.as_str() {
            "quiet" | "aggsortkey" | "aggsortrev" | "rawbytes" | "flowindent" if !flag => {
                Some("Invalid value for specified option")
            }
            "switchrate" | "aggrate" | "statusrate" if !rate => Some("Invalid value for specified option"),
            "aggsortkeypos" | "aggsortpos" | "stackindent" if value.parse::<usize>().is_err() => {
                Some("Invalid value for specified option")
            }
            "bufsize" | "aggsize" | "dynvarsize" | "specsize" | "nspec" | "strsize" | "scratchsize"
            | "bufpolicy" => Some("Operation illegal when tracing is active"),
            "quiet" | "aggsortkey" | "aggsortrev" | "rawbytes" | "flowindent" | "switchrate" | "aggrate"
            | "statusrate" | "aggsortkeypos" | "aggsortpos" | "stackindent" => None,
            _ => Some("Invalid option name"),
        };
        if let Some(why) = why {
            let value = if value.is_empty() { "1" } else { &value };
            self.complaints.push(format!(
                "error in dt_clause_{} for probe ID {} ({}): couldn't set option \"{name}\" to \"{value}\": {why}\n",
                firing.clause, firing.id, firing.name
            ));
            return;
        }
        let on = !matches!(value.as_str(), "0" | "disable" | "off" | "no" | "false");
        match name.as_str() {
            "quiet" => self.options.quiet = on,
            "aggsortkey" => self.options.sort_key = on,
            "aggsortrev" => self.options.sort_reverse = on,
            "flowindent" => self.options.flow_indent = on,
            "rawbytes" => self.options.rawbytes = on,
            "aggsortkeypos" => self.options.sort_key_position = value.parse().unwrap_or(0),
            "aggsortpos" => self.options.sort_position = value.parse().unwrap_or(0),
            "stackindent" => self.options.stack_indent = value.parse().unwrap_or(14).min(200),
            // The other options have no effect here: records are read as they come, by virtual time.
            _ => {}
        }
    }

    /// `trace()`.
    fn trace(&self, field: Field, value: &Value, symbols: ShowSymbols<'_>, out: &mut Vec<u8>) {
        match (field, value) {
            (Field::Int { size, signed }, Value::Int(value)) => {
                let c =
                    Conversion { name: if signed { "d" } else { "u" }.to_owned(), ..Conversion::default() };
                let width = if self.options.quiet { 0 } else { trace_width(size) };
                if !self.options.quiet {
                    out.push(b' ');
                }
                number(out, &c, field, *value, width, None);
            }
            (Field::Float(size), Value::Int(value)) => {
                let width = if self.options.quiet { 0 } else { 20 };
                out.extend_from_slice(format!("{:>width$}", float_text(*value, size)).as_bytes());
            }
            (Field::Return(None), Value::Code(code)) => {
                self.trace(ADDRESS, &Value::Int(code.first()), symbols, out);
            }
            (Field::Str, Value::Bytes(bytes)) if !self.options.rawbytes => {
                let shown = String::from_utf8_lossy(bytes);
                let text = if self.options.quiet { shown.into_owned() } else { format!("  {shown:<33}") };
                out.extend_from_slice(text.as_bytes());
            }
            (Field::Str, Value::Bytes(bytes)) => {
                let mut whole = bytes.clone();
                whole.resize(self.options.strsize.min(1 << 20) + 1, 0);
                out.extend_from_slice(dump(&whole).as_bytes());
            }
            (_, Value::Bytes(bytes)) => out.extend_from_slice(dump(bytes).as_bytes()),
            _ => self.datum(field, value, 1, symbols, out),
        }
    }

    /// A key or a value in a line of an aggregation.
    fn datum(&self, field: Field, value: &Value, normal: u64, symbols: ShowSymbols<'_>, out: &mut Vec<u8>) {
        match (field, value) {
            (Field::Int { size, signed }, Value::Int(value)) => {
                let signed = signed && size >= 4;
                let c = Conversion { name: "d".to_owned(), ..Conversion::default() };
                out.push(b' ');
                let shown = if normal > 1 { value / normal } else { *value };
                number(out, &c, Field::Int { size, signed }, shown, int_width(size), None);
            }
            (Field::Float(size), Value::Int(value)) => {
                out.extend_from_slice(format!(" {:>16}", float_text(*value, size)).as_bytes());
            }
            (Field::Symbol(form) | Field::Return(Some(form)), Value::Code(code)) => {
                let shown = code.symbol(form, symbols);
                out.extend_from_slice(format!("  {shown:<50}").as_bytes());
            }
            (Field::Str, Value::Bytes(bytes)) => {
                let shown = String::from_utf8_lossy(bytes);
                out.extend_from_slice(format!("  {shown:<50}").as_bytes());
            }
            (_, Value::Bytes(bytes)) => out.extend_from_slice(dump(bytes).as_bytes()),
            (Field::Return(None), Value::Code(code)) => {
                self.datum(ADDRESS, &Value::Int(code.first()), normal, symbols, out);
            }
            (_, Value::Code(code)) => self.stack(code, symbols, out),
            _ => {}
        }
    }

    fn stack(&self, code: &Code, symbols: ShowSymbols<'_>, out: &mut Vec<u8>) {
        out.push(b'\n');
        for shown in code.lines(symbols) {
            out.extend_from_slice(
                format!("{:indent$}{shown}\n", "", indent = self.options.stack_indent).as_bytes(),
            );
        }
    }

    /// A format with its values.
    pub(super) fn formatted(
        &self,
        format: &Format,
        (fields, values): (&[Field], &[Value]),
        symbols: ShowSymbols<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut arguments = fields.iter().zip(values);
        for piece in &format.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Conversion(conversion) => {
                    let width = size_of(conversion.width, &mut arguments).unwrap_or(0);
                    let precision = size_of(conversion.precision, &mut arguments);
                    let precision = precision.and_then(|precision| u32::try_from(precision).ok());
                    if let Some((field, value)) = arguments.next() {
                        self.converted(conversion, *field, value, (width, precision), symbols, out);
                    }
                }
            }
        }
    }

    /// One value as a conversion shows it.
    fn converted(
        &self,
        c: &Conversion,
        field: Field,
        value: &Value,
        (width, precision): (i64, Option<u32>),
        symbols: ShowSymbols<'_>,
        out: &mut Vec<u8>,
    ) {
        match (c.letter(), value) {
            (b'c', Value::Int(value)) => pad_text(out, &[*value as u8], c, width),
            (b'a' | b'A', Value::Int(value)) => {
                text(out, c, named(symbols, *value).as_bytes(), width, precision);
            }
            (b'Y', Value::Int(value)) => text(out, c, date(*value).as_bytes(), width, precision),
            (b'T', Value::Int(value)) => text(out, c, date_of_mail(*value).as_bytes(), width, precision),
            (b'S', Value::Bytes(bytes)) => {
                let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                let shown = bytes.get(..end).unwrap_or_default().escape_ascii().to_string();
                text(out, c, shown.as_bytes(), width, precision);
            }
            (b'e' | b'E' | b'f' | b'g' | b'G', Value::Int(value)) => {
                text(out, c, float(c, field, *value, precision).as_bytes(), width, None);
            }
            (_, Value::Int(value)) => number(out, c, field, *value, width, precision),
            (_, Value::Bytes(bytes)) => text(out, c, bytes, width, precision),
            (_, Value::Code(code)) => self.code(c, field, code, (width, precision), symbols, out),
        }
    }

    /// Addresses of code as a conversion shows them.
    fn code(
        &self,
        c: &Conversion,
        field: Field,
        code: &Code,
        (width, precision): (i64, Option<u32>),
        symbols: ShowSymbols<'_>,
        out: &mut Vec<u8>,
    ) {
        match (c.letter(), field) {
            (_, Field::Stack) => self.stack(code, symbols, out),
            (b'a' | b'A', _) => {
                text(out, c, code.symbol(SymbolForm::Address, symbols).as_bytes(), width, precision);
            }
            (b's', Field::Symbol(form) | Field::Return(Some(form))) => {
                text(out, c, code.symbol(form, symbols).as_bytes(), width, precision);
            }
            _ => number(out, c, ADDRESS, code.first(), width, precision),
        }
    }

    pub(super) fn sorting(&self) -> Sorting {
        Sorting {
            by_key: self.options.sort_key,
            reverse: self.options.sort_reverse,
            key_position: self.options.sort_key_position,
            position: self.options.sort_position,
        }
    }

    /// `printa()`.
    fn printa(
        &mut self,
        format: Option<&Format>,
        numbers: &[u32],
        snapshots: Vec<Snapshot>,
        symbols: ShowSymbols<'_>,
        out: &mut Vec<u8>,
    ) {
        let tables = Arc::clone(&self.tables);
        for number in numbers {
            if let Some(shown) = self.shown.get_mut(*number as usize) {
                *shown = true;
            }
        }
        if format.is_none() {
            out.push(b'\n');
        }
        let found: Vec<(&Aggregation, Snapshot)> = numbers
            .iter()
            .filter_map(|number| tables.aggregations.get(*number as usize))
            .zip(snapshots)
            .collect();
        self.joined(format, found, symbols, out);
    }

    /// Prints aggregations side by side, key by key.
    fn joined(
        &self,
        format: Option<&Format>,
        mut found: Vec<(&Aggregation, Snapshot)>,
        symbols: ShowSymbols<'_>,
        out: &mut Vec<u8>,
    ) {
        let sorting = self.sorting();
        let leading = if sorting.position < found.len() { sorting.position } else { 0 };
        add_missing(&mut found);
        sort_leading(&mut found, leading, sorting);
        let Some((_, order)) = found.get(leading) else { return };
        // Where the others have the key of a row of the leading one.
        let places: Vec<BTreeMap<&[u8], &SnapshotEntry>> = match found.len() {
            1 => Vec::new(),
            _ => found.iter().map(|(_, snapshot)| by_key(snapshot)).collect(),
        };
        for leader in &order.entries {
            let row: Vec<(&Aggregation, u64, &SnapshotEntry)> = found
                .iter()
                .enumerate()
                .filter_map(|(n, (aggregation, snapshot))| {
                    let entry =
                        places.get(n).map_or(Some(leader), |map| map.get(leader.key.as_slice()).copied())?;
                    Some((*aggregation, snapshot.normal, entry))
                })
                .collect();
            match format {
                Some(format) => self.formatted_row(format, &row, symbols, out),
                None => self.plain_row(&row, symbols, out),
            }
        }
    }

    fn plain_row(
        &self,
        row: &[(&Aggregation, u64, &SnapshotEntry)],
        symbols: ShowSymbols<'_>,
        out: &mut Vec<u8>,
    ) {
        if let Some((aggregation, _, entry)) = row.first() {
            for (field, value) in aggregation.keys.iter().zip(entry.keys(aggregation)) {
                self.datum(*field, &value, 1, symbols, out);
            }
        }
        for (aggregation, normal, entry) in row {
            out.extend_from_slice(value_text(aggregation, *normal, &entry.value).as_bytes());
        }
        out.push(b'\n');
    }

    pub(super) fn formatted_row(
        &self,
        format: &Format,
        row: &[(&Aggregation, u64, &SnapshotEntry)],
        symbols: ShowSymbols<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some((first, _, entry)) = row.first() else { return };
        let keys = entry.keys(first);
        let mut keys = first.keys.iter().zip(&keys);
        let mut values = row.iter();
        let mut last = values.clone().next();
        for piece in &format.pieces {
            let conversion = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Piece::Conversion(conversion) => conversion,
            };
            let width = size_of(conversion.width, &mut std::iter::empty()).unwrap_or(0);
            let precision = size_of(conversion.precision, &mut std::iter::empty());
            let precision = precision.and_then(|precision| u32::try_from(precision).ok());
            if !conversion.aggregation {
                if let Some((field, value)) = keys.next() {
                    self.converted(conversion, *field, value, (width, precision), symbols, out);
                }
                continue;
            }
            last = values.next().or(last);
            let Some((aggregation, normal, entry)) = last else { continue };
            if aggregation.kind.is_histogram() {
                out.extend_from_slice(histogram(aggregation.kind, &entry.value, *normal).as_bytes());
                continue;
            }
            let shown = shown_value(aggregation, *normal, &entry.value);
            let field =
                Field::Int { size: 8, signed: aggregation.signed || aggregation.kind == AggKind::Count };
            number(out, conversion, field, shown, width, precision);
        }
    }

    /// The aggregations as [`Consumer::end`] would print them now.
    #[must_use]
    pub fn so_far(&self, snapshots: Vec<Snapshot>, symbols: ShowSymbols<'_>) -> Vec<u8> {
        let mut text = Vec::new();
        for (aggregation, snapshot) in self.tables.aggregations.iter().zip(snapshots) {
            self.joined(None, vec![(aggregation, snapshot)], symbols, &mut text);
        }
        text
    }

    /// Prints, at the end of the run, the aggregations that `printa()` has not printed.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn end(
        &mut self,
        snapshots: Vec<Snapshot>,
        symbols: ShowSymbols<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut text = vec![b'\n'];
        let tables = Arc::clone(&self.tables);
        let mut left: Vec<_> = tables.aggregations.iter().zip(snapshots).zip(self.shown.clone()).collect();
        if self.options.sort_reverse {
            left.reverse();
        }
        for ((aggregation, snapshot), shown) in left {
            if !shown {
                self.joined(None, vec![(aggregation, snapshot)], symbols, &mut text);
            }
        }
        self.write(&text, out)
    }
}

/// The entries of a snapshot by their keys.
fn by_key(snapshot: &Snapshot) -> BTreeMap<&[u8], &SnapshotEntry> {
    snapshot.entries.iter().map(|entry| (entry.key.as_slice(), entry)).collect()
}

/// A key that only some of several aggregations have counts as zero in the others.
fn add_missing(found: &mut [(&Aggregation, Snapshot)]) {
    if found.len() < 2 {
        return;
    }
    let keys: BTreeSet<Vec<u8>> = found
        .iter()
        .flat_map(|(_, snapshot)| snapshot.entries.iter().map(|entry| entry.key.clone()))
        .collect();
    for (aggregation, snapshot) in found {
        let there: BTreeSet<&[u8]> = by_key(snapshot).into_keys().collect();
        let missing: Vec<Vec<u8>> =
            keys.iter().filter(|key| !there.contains(key.as_slice())).cloned().collect();
        let zero = |key| SnapshotEntry { key, value: vec![0; aggregation.kind.width()] };
        snapshot.entries.extend(missing.into_iter().map(zero));
    }
}
