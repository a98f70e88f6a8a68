//! The order in which aggregations are shown.

use super::field::Field;
use super::histogram::{edges, quantize_value};
use super::record::{Reader, Snapshot, SnapshotEntry, Value};
use super::tables::{AggKind, Aggregation};
use std::cmp::Ordering;

/// How aggregations are sorted: the options of the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sorting {
    /// By key instead of value.
    pub by_key: bool,
    /// In reverse order.
    pub reverse: bool,
    /// The key that is compared first.
    pub key_position: usize,
    /// The aggregation that is compared first, where several are shown together.
    pub position: usize,
}

/// The number that a value is compared by.
fn weight(kind: AggKind, value: &[u64]) -> f64 {
    match (kind, value) {
        (AggKind::Avg, [count, sum]) if *count > 0 => *sum as i64 as f64 / *count as f64,
        (AggKind::Stddev, value) => deviation(value) as f64,
        (AggKind::Quantize, value) => {
            value.iter().enumerate().map(|(n, count)| quantize_value(n) as f64 * *count as i64 as f64).sum()
        }
        (AggKind::Lquantize { base, step, .. }, value) => {
            let at =
                |n: usize| (f64::from(base) + (n as f64 - 1.0) * f64::from(step)).max(f64::from(base) - 1.0);
            value.iter().enumerate().map(|(n, count)| at(n) * *count as i64 as f64).sum()
        }
        (AggKind::Llquantize { factor, low, high, steps }, value) => {
            let edges = edges(factor, low, high, steps);
            let at = |n: usize| match n.cmp(&edges.len()) {
                Ordering::Less => -(edges.get(edges.len() - 1 - n).copied().unwrap_or(0) as f64),
                Ordering::Equal => 0.0,
                Ordering::Greater => edges.get(n - edges.len() - 1).copied().unwrap_or(0) as f64,
            };
            value.iter().enumerate().map(|(n, count)| at(n) * *count as i64 as f64).sum()
        }
        _ => 0.0,
    }
}

/// The standard deviation, rounded down.
pub(crate) fn deviation(value: &[u64]) -> u64 {
    let [count, sum, low, high] = value else { return 0 };
    if *count == 0 {
        return 0;
    }
    let count = u128::from(*count);
    let squares = u128::from(*low) | u128::from(*high) << 64;
    let magnitude = u128::from((*sum as i64).unsigned_abs());
    let average = squares / count;
    let mean = magnitude / count;
    average.saturating_sub(mean * mean).isqrt() as u64
}

fn by_value(aggregation: &Aggregation, one: &[u64], other: &[u64]) -> Ordering {
    match aggregation.kind {
        AggKind::Count | AggKind::Sum | AggKind::Min | AggKind::Max => {
            let (one, other) = (one.first().copied().unwrap_or(0), other.first().copied().unwrap_or(0));
            if aggregation.signed { (one as i64).cmp(&(other as i64)) } else { one.cmp(&other) }
        }
        kind => weight(kind, one).total_cmp(&weight(kind, other)),
    }
}

fn one_key(field: Field, one: &Value, other: &Value) -> Ordering {
    match (field, one, other) {
        (Field::Int { size, .. }, Value::Int(one), Value::Int(other)) => {
            let mask = if size >= 8 { u64::MAX } else { (1 << (u32::from(size) * 8)) - 1 };
            (one & mask).cmp(&(other & mask))
        }
        (_, Value::Int(one), Value::Int(other)) => one.cmp(other),
        (_, Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
        (_, Value::Stack(one), Value::Stack(other)) => one.cmp(other),
        _ => Ordering::Equal,
    }
}

fn by_key(
    aggregation: &Aggregation,
    one: &SnapshotEntry,
    other: &SnapshotEntry,
    position: usize,
) -> Ordering {
    let (one, other) = (one.keys(aggregation), other.keys(aggregation));
    let count = aggregation.keys.len();
    let from = if position < count { position } else { 0 };
    let order = (0..count).map(|n| (from + n) % count.max(1));
    for n in order {
        if let (Some(field), Some(one), Some(other)) = (aggregation.keys.get(n), one.get(n), other.get(n)) {
            let found = one_key(*field, one, other);
            if found.is_ne() {
                return found;
            }
        }
    }
    Ordering::Equal
}

/// Sorts the entries of an aggregation.
pub(crate) fn sort(aggregation: &Aggregation, snapshot: &mut Snapshot, sorting: Sorting) {
    snapshot.entries.sort_by(|one, other| {
        let keys = || by_key(aggregation, one, other, sorting.key_position);
        let values = || by_value(aggregation, &one.value, &other.value);
        let order = if sorting.by_key { keys().then_with(values) } else { values().then_with(keys) };
        if sorting.reverse { order.reverse() } else { order }
    });
}

impl Aggregation {
    /// Sorts entries by value, the least first.
    pub fn sort_entries(&self, entries: &mut Vec<SnapshotEntry>) {
        let mut snapshot = Snapshot { normal: 1, entries: std::mem::take(entries) };
        sort(self, &mut snapshot, Sorting::default());
        *entries = snapshot.entries;
    }
}

impl SnapshotEntry {
    /// The fields of the key.
    pub(crate) fn keys(&self, aggregation: &Aggregation) -> Vec<Value> {
        Reader::new(&self.key).values(&aggregation.keys).unwrap_or_default()
    }
}
