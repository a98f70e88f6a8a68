//! Aggregations and variables at one moment, as plain values: for a view that draws them itself.

use super::consumer::Consumer;
use super::field::Field;
use super::histogram::{drawn_buckets, labels};
use super::record::{Reader, Snapshot, SnapshotEntry, Value};
use super::sort::sort;
use super::tables::Aggregation;
use super::values::{Firing, ShowSymbols, float_text, shown_value};
use crate::hex::{HexStyle, hex};

/// An aggregation, sorted as dtrace(1) shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryState {
    /// The keys.
    pub keys: Vec<String>,
    /// The value.
    pub value: AggregatedValue,
}

/// An aggregated value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AggregatedValue {
    /// A number.
    Number(String),
    /// The buckets of a histogram with their counts: those with a count, and one on each side.
    Buckets(Vec<(String, i64)>),
}

/// A value as text.
fn text(field: Field, value: &Value, symbols: ShowSymbols<'_>) -> String {
    match (field, value) {
        (Field::Int { size, signed }, Value::Int(value)) => {
            let shift = 64 - u32::from(size.clamp(1, 8)) * 8;
            if signed {
                (((value << shift) as i64) >> shift).to_string()
            } else {
                ((value << shift) >> shift).to_string()
            }
        }
        (Field::Float(size), Value::Int(value)) => float_text(*value, size),
        (Field::Symbol(form) | Field::Return(Some(form)), Value::Code(code)) => code.symbol(form, symbols),
        (Field::Return(None), Value::Code(code)) => code.first().to_string(),
        (_, Value::Int(value)) => value.to_string(),
        (Field::Str, Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        (_, Value::Bytes(bytes)) => hex(bytes, HexStyle::Spaced),
        (_, Value::Code(code)) => code.lines(symbols).collect::<Vec<_>>().join(" < "),
    }
}

/// The values that a [`Writer`](super::Writer) has written by these fields, as text.
#[must_use]
pub fn written_values(fields: &[Field], bytes: &[u8], symbols: ShowSymbols<'_>) -> Vec<String> {
    let values = Reader::new(bytes).values(fields).unwrap_or_default();
    fields.iter().zip(&values).map(|(field, value)| text(*field, value, symbols)).collect()
}

fn value(aggregation: &Aggregation, normal: u64, value: &[u64]) -> AggregatedValue {
    if !aggregation.kind.is_histogram() {
        let shown = shown_value(aggregation, normal, value);
        let signed = aggregation.signed;
        return AggregatedValue::Number(if signed { (shown as i64).to_string() } else { shown.to_string() });
    }
    let count = |count: &u64| (*count as i64).wrapping_div((normal as i64).max(1));
    let buckets = labels(aggregation.kind, value.len()).into_iter().zip(value.iter().map(count));
    let (first, last) = drawn_buckets(aggregation.kind, value);
    AggregatedValue::Buckets(buckets.take(last.saturating_add(1)).skip(first).collect())
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
                keys: written_values(&aggregation.keys, &entry.key, symbols),
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
        let shown: Vec<_> = state.entries.iter().map(|entry| (entry.keys.join(" "), &entry.value)).collect();
        let number = |text: &str| AggregatedValue::Number(text.to_owned());
        assert_eq!(shown, [("a -1".to_owned(), &number("-3")), ("b -1".to_owned(), &number("7"))]);
        assert_eq!(state.left_out, 1);
    }

    #[test]
    fn a_histogram_has_its_buckets_and_one_on_each_side() {
        let state = state(AggKind::Quantize, &[("a", 5)]);
        let buckets = [("2", 0), ("4", 1), ("8", 0)].map(|(label, count)| (label.to_owned(), count));
        assert_eq!(state.entries[0].value, AggregatedValue::Buckets(buckets.to_vec()));
    }
}
