//! CSV: one line of column names, one line per record.
//!
//! Cells are quoted as RFC 4180 says; lines end in LF. The columns are fixed. Members of the JSON line without a column
//! of their own are in the last one, as a JSON object.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use trapline_trace::{
    End, HeaderItems, Kind, RecordView, Reply, RunInfo, Shown, Sink, Symbolize, record_text,
};

use crate::hit::{members, plain};

/// The columns before the last one.
const COLUMNS: [&str; 16] = [
    "type", "seq", "icount", "time_ns", "cpu", "pid", "name", "uid", "probe", "id", "symbol", "ip", "major",
    "minor", "text", "data",
];
/// The last column.
const MORE: &str = "more";

/// Writes CSV.
#[derive(Debug)]
pub struct CsvSink<W> {
    out: W,
    items: HeaderItems,
}

impl<W: Write> CsvSink<W> {
    /// A sink that shows the chosen items.
    pub const fn new(out: W, items: HeaderItems) -> Self {
        Self { out, items }
    }

    fn row(&mut self, mut object: Map<String, Value>) -> io::Result<()> {
        let cells =
            COLUMNS.map(|column| object.shift_remove(column).map(|value| plain(&value)).unwrap_or_default());
        let more = if object.is_empty() { String::new() } else { Value::Object(object).to_string() };
        let mut line: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
        line.push(quoted(&more));
        writeln!(self.out, "{}", line.join(","))
    }
}

/// A cell, in quotes if it needs them.
fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

impl<W: Write> Sink for CsvSink<W> {
    fn begin(&mut self, _: &RunInfo) -> io::Result<()> {
        writeln!(self.out, "{},{MORE}", COLUMNS.join(","))
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let mut object = members(record, symbols, self.items)?;
        object.insert("time_ns".to_owned(), json!(record.header.time_ns));
        if record.header.kind == Kind::Data && symbols.layout(record.header.probe).is_some() {
            let text = record_text(&RecordView { watch: None, ..*record }, symbols, None);
            object.insert("text".to_owned(), text.into());
        }
        self.row(object)
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        let text = String::from_utf8_lossy(&shown.text).trim().to_owned();
        for object in &shown.objects {
            let Value::Object(object) = object else { continue };
            let mut object = object.clone();
            if object.get("type").is_some_and(|kind| kind == "d") {
                object.insert("text".to_owned(), json!(text));
            }
            // The name of an aggregation is not that of a task.
            if object.get("type").is_some_and(|kind| kind == "aggregation")
                && let Some(name) = object.shift_remove("name")
            {
                object.insert("aggregation".to_owned(), name);
            }
            self.row(object)?;
        }
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        match &reply.object {
            Value::Object(object) => self.row(object.clone()),
            _ => Ok(()),
        }
    }

    fn end(&mut self, _: &End) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_if_they_need_it() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"x\"\n"), "\"say \"\"x\"\"\n\"");
    }
}
