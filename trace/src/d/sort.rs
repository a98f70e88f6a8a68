//! The order in which aggregations are shown.

use super::field::Field;
use super::histogram::{ZERO, edges, quantize_value};
use super::record::{Reader, Snapshot, SnapshotEntry, Value};
use super::tables::{AggKind, Aggregation};
use crate::float::Float;
use std::cmp::Ordering;
use std::collections::BTreeMap;

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

/// The number that a value is compared by. Sums of histograms are exact: those of large counts may differ by little.
fn weight(aggregation: &Aggregation, value: &[u64]) -> i128 {
    let summed = |at: &dyn Fn(usize) -> i128| {
        let products =
            value.iter().enumerate().map(|(n, count)| at(n).saturating_mul((*count as i64).into()));
        products.fold(0i128, i128::saturating_add)
    };
    match (aggregation.kind, value) {
        (AggKind::Count | AggKind::Sum | AggKind::Min | AggKind::Max, [value, ..]) if aggregation.signed => {
            (*value as i64).into()
        }
        (AggKind::Count | AggKind::Sum | AggKind::Min | AggKind::Max, [value, ..]) => (*value).into(),
        (AggKind::Avg, [count, sum]) if *count > 0 => i128::from(*sum as i64) / i128::from(*count),
        (AggKind::Stddev, value) => deviation(value).into(),
        (AggKind::Quantize, _) => summed(&|n| quantize_value(n).into()),
        (AggKind::Lquantize { base, step, .. }, value) => summed(&|n| match n {
            0 => i128::from(base) - 1,
            // What lies above the limit counts as one more than it, as in DTrace.
            _ => i128::from(base) + (n as i128 - 1) * i128::from(step) + i128::from(n + 1 == value.len()),
        }),
        (AggKind::Llquantize { factor, low, high, steps }, _) => {
            let edges = edges(factor, low, high, steps);
            let edge = |n: usize| i128::from(edges.get(n).copied().unwrap_or(0));
            summed(&|n| match n.cmp(&edges.len()) {
                Ordering::Less => -edge(edges.len() - 1 - n),
                Ordering::Equal => 0,
                Ordering::Greater => edge(n - edges.len() - 1),
            })
        }
        _ => 0,
    }
}

/// The count in the bucket of 0, which decides between histograms with the same sum.
fn zeros(kind: AggKind, value: &[u64]) -> i64 {
    let bucket = match kind {
        AggKind::Quantize => Some(ZERO),
        AggKind::Lquantize { base: 1, .. } => Some(0),
        AggKind::Lquantize { base, step, .. } => {
            let (levels, below) = (value.len() as i64 - 2, -i64::from(base));
            let found = below >= 0 && below % i64::from(step.max(1)) == 0;
            let level = below / i64::from(step.max(1));
            (found && level < levels).then(|| usize::try_from(level + 1).unwrap_or(usize::MAX))
        }
        AggKind::Llquantize { factor, low, high, steps } => Some(edges(factor, low, high, steps).len()),
        _ => None,
    };
    bucket.and_then(|bucket| value.get(bucket)).map_or(0, |count| *count as i64)
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

fn one_key(field: Field, one: &Value, other: &Value) -> Ordering {
    match (field, one, other) {
        (Field::Int { size, .. }, Value::Int(one), Value::Int(other)) => {
            let mask = if size >= 8 { u64::MAX } else { (1 << (u32::from(size) * 8)) - 1 };
            (one & mask).cmp(&(other & mask))
        }
        (Field::Float(size), Value::Int(one), Value::Int(other)) => {
            let float = |bits: &u64| Float::of_word(*bits, size);
            float(one).zip(float(other)).map_or(Ordering::Equal, |(one, other)| one.total_cmp(other))
        }
        (_, Value::Int(one), Value::Int(other)) => one.cmp(other),
        (_, Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
        (_, Value::Code(one), Value::Code(other)) => one.ips().cmp(other.ips()),
        _ => Ordering::Equal,
    }
}

/// Compares keys, the one at `position` first.
fn by_key(aggregation: &Aggregation, one: &[Value], other: &[Value], position: usize) -> Ordering {
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

/// What the value of an entry is compared by.
type Rank = (i128, i64);

/// An entry with what it is compared by.
struct Ranked {
    value: Rank,
    /// The values that other aggregations have for its key.
    others: Vec<Rank>,
    keys: Vec<Value>,
    entry: SnapshotEntry,
}

fn rank(aggregation: &Aggregation, value: &[u64]) -> Rank {
    (weight(aggregation, value), zeros(aggregation.kind, value))
}

/// Sorts the entries of an aggregation.
pub(crate) fn sort(aggregation: &Aggregation, snapshot: &mut Snapshot, sorting: Sorting) {
    sort_with(aggregation, snapshot, sorting, &[]);
}

/// Sorts the entries of the leading one of several aggregations, which have the same keys. Entries with equal values are
/// compared by the values of the other aggregations.
pub(crate) fn sort_leading(found: &mut [(&Aggregation, Snapshot)], leading: usize, sorting: Sorting) {
    let others = found.iter().enumerate().filter(|(n, _)| *n != leading);
    let ranks = |(aggregation, snapshot): &(&Aggregation, Snapshot)| {
        let entries = snapshot.entries.iter();
        entries.map(|entry| (entry.key.clone(), rank(aggregation, &entry.value))).collect()
    };
    let others: Vec<BTreeMap<Vec<u8>, Rank>> = others.map(|(_, one)| ranks(one)).collect();
    if let Some((aggregation, snapshot)) = found.get_mut(leading) {
        sort_with(aggregation, snapshot, sorting, &others);
    }
}

fn sort_with(
    aggregation: &Aggregation,
    snapshot: &mut Snapshot,
    sorting: Sorting,
    others: &[BTreeMap<Vec<u8>, Rank>],
) {
    let rank = |entry: SnapshotEntry| Ranked {
        value: rank(aggregation, &entry.value),
        others: others.iter().map(|other| other.get(&entry.key).copied().unwrap_or_default()).collect(),
        keys: entry.keys(aggregation),
        entry,
    };
    let mut ranked: Vec<Ranked> = std::mem::take(&mut snapshot.entries).into_iter().map(rank).collect();
    ranked.sort_by(|one, other| {
        let keys = || by_key(aggregation, &one.keys, &other.keys, sorting.key_position);
        let values = || one.value.cmp(&other.value).then_with(|| one.others.cmp(&other.others));
        let order = if sorting.by_key { keys().then_with(values) } else { values().then_with(keys) };
        if sorting.reverse { order.reverse() } else { order }
    });
    snapshot.entries = ranked.into_iter().map(|ranked| ranked.entry).collect();
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
