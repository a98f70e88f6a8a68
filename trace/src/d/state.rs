//! Aggregations and variables at one moment, as plain values: for a view that draws them itself.

use super::consumer::Consumer;
use super::field::Field;
use super::histogram::{bounds, drawn_buckets, labels};
use super::record::{Reader, Snapshot, SnapshotEntry, Value};
use super::sort::sort;
use super::tables::{Action, Aggregation};
use super::values::{Firing, ShowSymbols, float_text, shown_value};
use crate::float::Float;
use crate::hex::{HexStyle, hex};
use serde_json::{Value as Json, json};
use std::fmt;

/// An aggregation, sorted as dtrace(1) shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregationState {
    /// Its name without `@`.
    pub name: String,
    /// Its function, such as `count`.
    pub function: &'static str,
    /// Its last entries: those with the greatest values, unless they are sorted otherwise.
    pub entries: Vec<EntryState>,
    /// The number of entries before them.
    pub left_out: usize,
}

/// The value of an aggregation for some keys.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryState {
    /// The keys.
    pub keys: Vec<Datum>,
    /// The value.
    pub value: AggregatedValue,
}

/// An aggregated value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AggregatedValue {
    /// A number.
    Number(i128),
    /// The buckets of a histogram: those with a count, and one on each side.
    Buckets(Vec<Bucket>),
}

/// A bucket of a histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Its label, as dtrace(1) prints it.
    pub label: String,
    /// The least value that it holds; `None` if it has no lower bound.
    pub min: Option<i128>,
    /// The greatest one.
    pub max: Option<i128>,
    /// How much it holds.
    pub count: i64,
}

/// A value of a D program.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// An integer.
    Int(i128),
    /// A floating-point number.
    Float(Float),
    /// A string, or the name of an address.
    Text(String),
    /// Bytes of memory.
    Bytes(Vec<u8>),
    /// A stack, innermost first.
    Stack(Vec<String>),
}

impl Datum {
    pub(super) fn of(field: Field, value: &Value, symbols: ShowSymbols<'_>) -> Self {
        match (field, value) {
            (Field::Int { size, signed }, Value::Int(value)) => {
                let shift = 64 - u32::from(size.clamp(1, 8)) * 8;
                let value = *value << shift;
                Self::Int(if signed { ((value as i64) >> shift).into() } else { (value >> shift).into() })
            }
            (Field::Float(size), Value::Int(value)) => {
                let float = Float::of_word(*value, size).map(Self::Float);
                float.unwrap_or_else(|| Self::Text(float_text(*value, size)))
            }
            (Field::Symbol(form) | Field::Return(Some(form)), Value::Code(code)) => {
                Self::Text(code.symbol(form, symbols))
            }
            (Field::Return(None), Value::Code(code)) => Self::Int(code.first().into()),
            (_, Value::Int(value)) => Self::Int((*value).into()),
            (Field::Str, Value::Bytes(bytes)) => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
            (_, Value::Bytes(bytes)) => Self::Bytes(bytes.to_vec()),
            (_, Value::Code(code)) => Self::Stack(code.lines(symbols).collect()),
        }
    }

    pub(super) fn json(&self) -> Json {
        match self {
            Self::Int(value) => match u64::try_from(*value) {
                Ok(value) => json!(value),
                Err(_) => json!(*value as i64),
            },
            Self::Float(float) => float.json(),
            Self::Text(text) => json!(text),
            Self::Bytes(bytes) => json!(hex(bytes, HexStyle::Pairs)),
            Self::Stack(frames) => json!(frames),
        }
    }
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(float) => write!(f, "{float}"),
            Self::Text(text) => f.write_str(text),
            Self::Bytes(bytes) => f.write_str(&hex(bytes, HexStyle::Spaced)),
            Self::Stack(frames) => f.write_str(&frames.join(" < ")),
        }
    }
}

/// What a clause prints at a firing.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    /// The text, as dtrace(1) prints it.
    pub text: String,
    /// The values in it, in order: the arguments of `printf()`, and what `trace()` and `stack()` show.
    pub values: Vec<Datum>,
}

/// The values that a [`Writer`](super::Writer) has written by these fields, as text.
#[must_use]
pub fn written_values(fields: &[Field], bytes: &[u8], symbols: ShowSymbols<'_>) -> Vec<String> {
    let values = Reader::new(bytes).values(fields).unwrap_or_default();
    fields.iter().zip(&values).map(|(field, value)| Datum::of(*field, value, symbols).to_string()).collect()
}

/// The buckets of a histogram, without counts.
pub(super) fn buckets(aggregation: &Aggregation, value: &[u64]) -> impl Iterator<Item = Bucket> {
    let (kind, length) = (aggregation.kind, value.len());
    let bounds = bounds(kind, length);
    labels(kind, length).into_iter().zip(bounds).map(|(label, (min, max))| Bucket {
        label,
        min,
        max,
        count: 0,
    })
}

fn value(aggregation: &Aggregation, normal: u64, value: &[u64]) -> AggregatedValue {
    if !aggregation.kind.is_histogram() {
        let shown = shown_value(aggregation, normal, value);
        let signed = aggregation.signed;
        return AggregatedValue::Number(if signed { (shown as i64).into() } else { shown.into() });
    }
    let count = |count: &u64| (*count as i64).wrapping_div((normal as i64).max(1));
    let (first, last) = drawn_buckets(aggregation.kind, value);
    let all = buckets(aggregation, value).zip(value.iter().map(count));
    let counted = all.map(|(bucket, count)| Bucket { count, ..bucket });
    AggregatedValue::Buckets(counted.take(last.saturating_add(1)).skip(first).collect())
}

impl Consumer {
    /// What the record of a probe's firing prints, without the columns before it; of a fault, the sentence about it.
    pub fn printed(&mut self, firing: Firing<'_>, data: &[u8]) -> String {
        let mut columns = Vec::new();
        // The first time, a heading is before them.
        self.begin_line(firing, &mut columns);
        columns.clear();
        self.begin_line(firing, &mut columns);
        let shown = self.show(firing, data, None).map(|shown| shown.text).unwrap_or_default();
        let text = shown.strip_prefix(columns.as_slice()).unwrap_or(&shown);
        let mut parts = self.take_complaints();
        parts.insert(0, String::from_utf8_lossy(text).into_owned());
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }

    /// The same with the values in it.
    pub fn printed_values(&mut self, firing: Firing<'_>, data: &[u8]) -> Printed {
        let (mut values, mut reader) = (Vec::new(), Reader::new(data));
        while let Some(part) = reader.part() {
            let Some(record) = self.tables.records.get(part as usize) else { break };
            if let Action::Printa { aggregations, .. } = &record.action {
                if !aggregations.iter().all(|_| reader.snapshot().is_some()) {
                    break;
                }
                continue;
            }
            let Some(own) = reader.values(&record.fields) else { break };
            values.extend(
                record.fields.iter().zip(&own).map(|(field, value)| Datum::of(*field, value, firing.symbols)),
            );
        }
        Printed { text: self.printed(firing, data), values }
    }

    /// The aggregations of the program, by their snapshots: at most this many entries of each.
    #[must_use]
    pub fn aggregations(
        &self,
        snapshots: Vec<Snapshot>,
        most: usize,
        symbols: ShowSymbols<'_>,
    ) -> Vec<AggregationState> {
        let state = |(aggregation, mut snapshot): (&Aggregation, Snapshot)| {
            sort(aggregation, &mut snapshot, self.sorting());
            let left_out = snapshot.entries.len().saturating_sub(most);
            let entry = |entry: &SnapshotEntry| EntryState {
                keys: {
                    let keys = entry.keys(aggregation);
                    aggregation
                        .keys
                        .iter()
                        .zip(&keys)
                        .map(|(field, key)| Datum::of(*field, key, symbols))
                        .collect()
                },
                value: value(aggregation, snapshot.normal, &entry.value),
            };
            AggregationState {
                name: aggregation.name.clone(),
                function: aggregation.kind.name(),
                entries: snapshot.entries.iter().skip(left_out).map(entry).collect(),
                left_out,
            }
        };
        self.tables.aggregations.iter().zip(snapshots).map(state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AggKind, ConsumerOptions, Tables, Writer};
    use super::*;
    use std::sync::Arc;

    const KEYS: [Field; 2] = [Field::Str, Field::Int { size: 4, signed: true }];

    fn state(kind: AggKind, values: &[(&str, u64)]) -> AggregationState {
        let aggregation = Aggregation { name: "a".to_owned(), kind, keys: KEYS.to_vec(), signed: true };
        let entry = |(name, added): &(&str, u64)| {
            let (mut key, mut value) = (Writer::default(), kind.initial());
            key.bytes(name.as_bytes());
            key.int(u64::MAX);
            kind.add(&mut value, *added, 1, true);
            SnapshotEntry { key: key.written().to_vec(), value }
        };
        let snapshot = Snapshot { normal: 1, entries: values.iter().map(entry).collect() };
        let tables = Tables { aggregations: vec![aggregation], ..Tables::default() };
        let consumer = Consumer::new(Arc::new(tables), ConsumerOptions::default());
        consumer.aggregations(vec![snapshot], 2, &|_| None).remove(0)
    }

    #[test]
    fn entries_are_sorted_by_value_and_have_their_keys() {
        let state = state(AggKind::Sum, &[("b", 7), ("a", -3i64 as u64), ("c", -9i64 as u64)]);
        let entry = |key: &str, number| EntryState {
            keys: vec![Datum::Text(key.to_owned()), Datum::Int(-1)],
            value: AggregatedValue::Number(number),
        };
        assert_eq!(state.entries, [entry("a", -3), entry("b", 7)]);
        assert_eq!(state.left_out, 1);
    }

    #[test]
    fn a_histogram_has_its_buckets_and_one_on_each_side() {
        let state = state(AggKind::Quantize, &[("a", 5)]);
        let bucket = |min: i128, count| Bucket {
            label: min.to_string(),
            min: Some(min),
            max: Some(2 * min - 1),
            count,
        };
        assert_eq!(
            state.entries[0].value,
            AggregatedValue::Buckets(vec![bucket(2, 0), bucket(4, 1), bucket(8, 0)])
        );
    }
}
