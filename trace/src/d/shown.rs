//! The data of D programs as the sinks of a run write them: as text, and as JSON objects.

use super::consumer::Consumer;
use super::record::{Reader, Snapshot};
use super::sort::sort;
use super::state::{Bucket, Datum, buckets};
use super::tables::{Action, Aggregation, Record};
use super::values::{Firing, ShowSymbols, fault, shown_value};
use serde_json::{Map, Value as Json, json};
use std::io;
use std::sync::Arc;

/// A piece of a D program's output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shown {
    /// Instructions retired at the firing; `None` for what is shown at the end.
    pub icount: Option<u64>,
    /// The text, as dtrace(1) prints it.
    pub text: Vec<u8>,
    /// The JSON objects, one per line; none if they are not wanted.
    pub objects: Vec<Json>,
}

fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Trace => "trace",
        Action::Tracemem { .. } => "tracemem",
        Action::Printf(_) => "printf",
        Action::Freopen(_) => "freopen",
        Action::System(_) => "system",
        Action::Ftruncate => "ftruncate",
        Action::Printa { .. } => "printa",
        Action::Print { .. } => "print",
        Action::Stack => "stack",
        Action::Exit => "exit",
        Action::Setopt => "setopt",
        Action::Default => "fired",
    }
}

/// Text with a replacement for what is not UTF-8.
fn lossy(bytes: &[u8]) -> Json {
    json!(String::from_utf8_lossy(bytes))
}

/// The value of an aggregation: a number, or the buckets that are not empty.
fn aggregated(aggregation: &Aggregation, normal: u64, value: &[u64]) -> Json {
    if aggregation.kind.is_histogram() {
        let count = |count: &u64| (*count as i64).wrapping_div((normal as i64).max(1));
        // What a bucket holds has 64 bits.
        let bound =
            |bound: Option<i128>| bound.map(|bound| bound.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        return buckets(aggregation, value)
            .zip(value)
            .filter(|(_, held)| **held != 0)
            .map(|(Bucket { label, min, max, .. }, held)| {
                json!({"bucket": label, "min": bound(min), "max": bound(max), "count": count(held)})
            })
            .collect();
    }
    let shown = shown_value(aggregation, normal, value);
    if aggregation.signed { json!(shown as i64) } else { json!(shown) }
}

impl Consumer {
    /// Shows the record of a probe's firing. `head` asks for an object too, which begins with these members.
    ///
    /// # Errors
    /// A file of `freopen()` cannot be written.
    pub fn show(
        &mut self,
        firing: Firing<'_>,
        data: &[u8],
        head: Option<Map<String, Json>>,
    ) -> io::Result<Shown> {
        let mut shown = Shown::default();
        let mut parts = Vec::new();
        if let Some(error) = fault(firing, data, self.commands) {
            parts.push(json!({"action": "fault", "text": error}));
            self.complaints.push(error);
        } else {
            let took = self.begin_line(firing, &mut shown.text);
            let tables = Arc::clone(&self.tables);
            let mut reader = Reader::new(data);
            while !reader.is_empty() {
                let record = reader.part().and_then(|part| tables.records.get(part as usize));
                let Some(record) = record else { break };
                let (mut values, from) = (reader.clone(), shown.text.len());
                let done = self.part(record, &mut reader, firing, &mut shown.text, &mut io::sink())?;
                if done.is_none() {
                    break;
                }
                if head.is_some() {
                    let text = shown.text.get(from..).unwrap_or_default();
                    parts.push(self.part_object(record, &mut values, text, firing.symbols));
                }
            }
            self.end_line(took, &mut shown.text);
        }
        if let Some(mut object) = head {
            object.insert("probe".to_owned(), json!(firing.name.to_string()));
            object.insert("id".to_owned(), json!(firing.id));
            object.insert("clause".to_owned(), json!(firing.clause));
            object.insert("parts".to_owned(), parts.into());
            shown.objects.push(Json::Object(object));
        }
        Ok(shown)
    }

    /// A part as an object: its action, and its values or its text.
    fn part_object(
        &self,
        record: &Record,
        reader: &mut Reader<'_>,
        text: &[u8],
        symbols: ShowSymbols<'_>,
    ) -> Json {
        let action = name_of(&record.action);
        if let Action::Printa { aggregations, .. } = &record.action {
            let tables =
                aggregations.iter().filter_map(|number| self.tables.aggregations.get(*number as usize));
            let shown: Vec<Json> = tables
                .filter_map(|table| {
                    Some(Json::Object(self.aggregation_object(
                        Map::new(),
                        table,
                        reader.snapshot()?,
                        symbols,
                    )))
                })
                .collect();
            return json!({"action": action, "text": lossy(text), "aggregations": shown});
        }
        let values = reader.values(&record.fields).unwrap_or_default();
        let mut values =
            record.fields.iter().zip(&values).map(|(field, value)| Datum::of(*field, value, symbols).json());
        match &record.action {
            Action::Trace | Action::Tracemem { .. } => json!({"action": action, "value": values.next()}),
            Action::Stack => json!({"action": action, "value": values.next()}),
            Action::Exit => json!({"action": action, "status": values.next()}),
            Action::Default => json!({"action": action}),
            Action::Print { .. } => json!({"action": action, "text": lossy(text)}),
            Action::Printf(_) => {
                let values: Vec<Json> = values.collect();
                json!({"action": action, "text": lossy(text), "values": values})
            }
            _ => json!({"action": action, "values": values.collect::<Vec<Json>>()}),
        }
    }

    fn aggregation_object(
        &self,
        mut head: Map<String, Json>,
        aggregation: &Aggregation,
        mut snapshot: Snapshot,
        symbols: ShowSymbols<'_>,
    ) -> Map<String, Json> {
        sort(aggregation, &mut snapshot, self.sorting());
        let entry = |entry: &super::record::SnapshotEntry| {
            let keys = entry.keys(aggregation);
            let keys =
                aggregation.keys.iter().zip(&keys).map(|(field, key)| Datum::of(*field, key, symbols).json());
            let value = aggregated(aggregation, snapshot.normal, &entry.value);
            json!({"keys": keys.collect::<Vec<Json>>(), "value": value})
        };
        let entries: Vec<Json> = snapshot.entries.iter().map(entry).collect();
        head.insert("name".to_owned(), json!(format!("@{}", aggregation.name)));
        head.insert("function".to_owned(), json!(aggregation.kind.name()));
        head.insert("entries".to_owned(), entries.into());
        head
    }

    /// Shows the aggregations at the end of the run: as text those that `printa()` has not shown. `head` asks for
    /// an object of each too, which begins with these members.
    ///
    /// # Errors
    /// A file of `freopen()` cannot be written.
    pub fn show_end(
        &mut self,
        snapshots: Vec<Snapshot>,
        symbols: ShowSymbols<'_>,
        head: Option<Map<String, Json>>,
    ) -> io::Result<Shown> {
        let mut shown = Shown::default();
        if let Some(head) = head {
            let tables = Arc::clone(&self.tables);
            let pairs = tables.aggregations.iter().zip(snapshots.iter().cloned());
            let objects =
                pairs.map(|(table, held)| self.aggregation_object(head.clone(), table, held, symbols));
            shown.objects = objects.map(Json::Object).collect();
        }
        self.end(snapshots, symbols, &mut shown.text)?;
        Ok(shown)
    }
}
