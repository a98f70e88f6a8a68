//! Histograms, to the column as dtrace(1) draws them.

use super::tables::AggKind;
use std::fmt::Write as _;

/// Buckets of `quantize()`: powers of two with both signs, and 0.
pub(crate) const QUANTIZE_BUCKETS: usize = 127;
/// The bucket of 0 in `quantize()`.
pub(crate) const ZERO: usize = 63;
/// Characters of a bar.
const BAR: usize = 40;

/// The lower end of a bucket of `quantize()`.
pub(crate) fn quantize_value(bucket: usize) -> i64 {
    match bucket.cmp(&ZERO) {
        std::cmp::Ordering::Less => -(1i64 << (ZERO - 1 - bucket).min(62)),
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1i64 << (bucket - ZERO - 1).min(62),
    }
}

/// The bars of a histogram: what is needed to draw each.
struct Bars {
    total: f64,
    positives: bool,
    negatives: bool,
    normal: i64,
}

impl Bars {
    fn new(values: &[i64], normal: u64) -> Self {
        Self {
            total: values.iter().map(|value| (*value as f64).abs()).sum(),
            positives: values.iter().any(|value| *value > 0),
            negatives: values.iter().any(|value| *value < 0),
            normal: (normal as i64).max(1),
        }
    }

    fn depth(&self, value: i64, length: usize) -> usize {
        if self.total == 0.0 {
            return 0;
        }
        (((value as f64).abs() * length as f64) / self.total + 0.5) as usize
    }

    fn line(&self, out: &mut String, label: &str, value: i64) {
        let shown = value / self.normal;
        let _ = match (self.positives, self.negatives) {
            (_, false) => {
                let bar = "@".repeat(self.depth(value, BAR).min(BAR));
                writeln!(out, "{label:>16} |{bar:<BAR$} {shown:<9}")
            }
            (false, true) => {
                let bar = "@".repeat(self.depth(value, BAR).min(BAR));
                writeln!(out, "{label:>16} {bar:>BAR$}| {shown:<9}")
            }
            (true, true) => {
                let half = BAR / 2;
                let bar = "@".repeat(self.depth(value, half).min(half));
                if value <= 0 {
                    writeln!(out, "{label:>16} {bar:>half$}|{:half$} {shown:<9}", "")
                } else {
                    writeln!(out, "{label:>16} {:half$}|{bar:<half$} {shown:<9}", "")
                }
            }
        };
    }
}

/// The first and the last bucket that are drawn: those with a count, and one on each side.
pub(crate) fn drawn_buckets(kind: AggKind, value: &[u64]) -> (usize, usize) {
    let first = value.iter().position(|count| *count != 0);
    let last = value.iter().rposition(|count| *count != 0);
    match (first, last, kind) {
        (Some(first), Some(last), _) => (first.saturating_sub(1), (last + 1).min(value.len() - 1)),
        (.., AggKind::Quantize) => (ZERO - 1, ZERO + 1),
        (.., AggKind::Llquantize { .. }) => (value.len() / 2, value.len() / 2 + 2),
        _ => (0, 2),
    }
}

/// The text of a histogram, from the line end before its heading.
pub(crate) fn histogram(kind: AggKind, value: &[u64], normal: u64) -> String {
    let values: Vec<i64> = value.iter().map(|value| *value as i64).collect();
    let labels = labels(kind, values.len());
    let (first, last) = drawn_buckets(kind, value);
    let bars = Bars::new(&values, normal);
    let mut out =
        format!("\n{:>16} {:>41} {:<9}\n", "value", "------------- Distribution -------------", "count");
    for (label, value) in labels.iter().zip(&values).take(last.saturating_add(1)).skip(first) {
        bars.line(&mut out, label, *value);
    }
    out
}

/// The names of buckets.
pub(crate) fn labels(kind: AggKind, buckets: usize) -> Vec<String> {
    match kind {
        AggKind::Quantize => (0..buckets).map(|bucket| quantize_value(bucket).to_string()).collect(),
        AggKind::Lquantize { base, step, .. } => (0..buckets)
            .map(|bucket| {
                let at = |n: usize| i64::from(base) + n as i64 * i64::from(step);
                match bucket {
                    0 => format!("< {base}"),
                    last if last + 1 == buckets => format!(">= {}", at(last - 1)),
                    bucket => at(bucket - 1).to_string(),
                }
            })
            .collect(),
        AggKind::Llquantize { factor, low, high, steps } => {
            let edges = edges(factor, low, high, steps);
            let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return Vec::new() };
            let negative = edges.iter().rev().map(|edge| format!("-{edge}"));
            let mut labels = vec![format!("<= -{last}")];
            labels.extend(negative.skip(1));
            labels.push(if *first == 1 { "0".to_owned() } else { format!("abs() < {first}") });
            labels.extend(edges.iter().take(edges.len() - 1).map(u64::to_string));
            labels.push(format!(">= {last}"));
            labels
        }
        _ => Vec::new(),
    }
}

/// The least and the greatest value of a bucket; `None` where it is open. Those of `llquantize()` may lie beyond 64 bits.
pub(crate) type Bounds = (Option<i128>, Option<i128>);

/// The bounds of each bucket.
pub(crate) fn bounds(kind: AggKind, buckets: usize) -> Vec<Bounds> {
    match kind {
        AggKind::Quantize => (0..buckets)
            .map(|bucket| {
                let near = i128::from(quantize_value(bucket));
                // The bucket of the least numbers has one more.
                let far = if bucket == 0 { i64::MIN.into() } else { near * 2 - near.signum() };
                (Some(near.min(far)), Some(near.max(far)))
            })
            .collect(),
        AggKind::Lquantize { base, step, .. } => {
            between(buckets, |bucket| i128::from(base) + (bucket as i128 - 1) * i128::from(step.max(1)))
        }
        AggKind::Llquantize { factor, low, high, steps } => {
            let edges = edges(factor, low, high, steps);
            let edge = |n: usize| edges.get(n).map_or(0, |edge| i128::from(*edge));
            between(buckets, |bucket| match bucket.checked_sub(edges.len() + 1) {
                Some(above) => edge(above),
                None => 1 - edge(edges.len() - bucket),
            })
        }
        _ => Vec::new(),
    }
}

/// The bounds of buckets of which each but the first begins at a value.
fn between(buckets: usize, from: impl Fn(usize) -> i128) -> Vec<Bounds> {
    let least = |bucket: usize| (1..buckets).contains(&bucket).then(|| from(bucket));
    (0..buckets).map(|bucket| (least(bucket), least(bucket + 1).map(|next| next - 1))).collect()
}

/// The lower ends of the buckets of `llquantize()` on one side of 0, and the end of the last.
pub(crate) fn edges(factor: u16, low: u16, high: u16, steps: u16) -> Vec<u64> {
    let factor = u64::from(factor);
    let mut value = factor.saturating_pow(low.into());
    let mut edges = vec![value];
    for _ in low..=high {
        let next = value.saturating_mul(factor);
        let step = if next > u64::from(steps) { (next / u64::from(steps.max(1))).max(1) } else { 1 };
        while value < next {
            value = (value / step + 1).saturating_mul(step).min(next);
            edges.push(value);
        }
    }
    edges
}

impl AggKind {
    /// The number of words in a value of this kind.
    #[must_use]
    pub fn width(self) -> usize {
        match self {
            // The second word of `min` and `max` says whether there is a value.
            Self::Avg | Self::Min | Self::Max => 2,
            // The sum of squares has 128 bits.
            Self::Stddev => 4,
            Self::Quantize => QUANTIZE_BUCKETS,
            Self::Lquantize { base, limit, step } => {
                ((i64::from(limit) - i64::from(base)) / i64::from(step.max(1)) + 2) as usize
            }
            // Buckets below, between and above the bounds, with both signs.
            Self::Llquantize { factor, low, high, steps } => 2 * edges(factor, low, high, steps).len() + 1,
            _ => 1,
        }
    }

    /// A value of this kind before anything was added, and after `clear()`: it is shown as 0.
    #[must_use]
    pub fn initial(self) -> Vec<u64> {
        vec![0; self.width()]
    }

    /// Adds a value to an aggregated value.
    pub fn add(self, to: &mut [u64], value: u64, weight: u64, signed: bool) {
        let less = |a: u64, b: u64| if signed { (a as i64) < (b as i64) } else { a < b };
        match (self, to) {
            (Self::Count, [count]) => *count = count.wrapping_add(1),
            (Self::Sum, [sum]) => *sum = sum.wrapping_add(value),
            (Self::Min | Self::Max, [held, there]) => {
                let nearer = if self == Self::Min { less(value, *held) } else { less(*held, value) };
                if *there == 0 || nearer {
                    (*held, *there) = (value, 1);
                }
            }
            (Self::Avg, [count, sum]) => {
                (*count, *sum) = (count.wrapping_add(1), sum.wrapping_add(value));
            }
            (Self::Stddev, [count, sum, low, high]) => {
                (*count, *sum) = (count.wrapping_add(1), sum.wrapping_add(value));
                let magnitude = u128::from((value as i64).unsigned_abs());
                let squares = u128::from(*low) | u128::from(*high) << 64;
                let squares = squares.wrapping_add(magnitude * magnitude);
                (*low, *high) = (squares as u64, (squares >> 64) as u64);
            }
            (_, to) if self.is_histogram() => {
                if let Some(bucket) = to.get_mut(self.bucket(value as i64)) {
                    *bucket = bucket.wrapping_add(weight);
                }
            }
            _ => {}
        }
    }

    /// The bucket that a value falls in.
    fn bucket(self, value: i64) -> usize {
        match self {
            Self::Quantize => match value {
                0 => ZERO,
                1.. => ZERO + 1 + value.ilog2() as usize,
                _ => ZERO - 1 - value.unsigned_abs().ilog2().min(62) as usize,
            },
            Self::Lquantize { base, limit, step } => {
                let (base, limit, step) = (i64::from(base), i64::from(limit), i64::from(step.max(1)));
                let levels = (limit - base) / step;
                if value < base { 0 } else { (value.saturating_sub(base) / step).min(levels) as usize + 1 }
            }
            Self::Llquantize { factor, low, high, steps } => {
                let edges = edges(factor, low, high, steps);
                let magnitude = value.unsigned_abs();
                // The number of edges that it has reached; 0 lies in the middle.
                let reached = edges.partition_point(|edge| *edge <= magnitude);
                if value >= 0 { edges.len() + reached } else { edges.len() - reached }
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_the_bucket_of_its_power_of_two() {
        for (value, low) in
            [(0, 0), (1, 1), (5, 4), (-1, -1), (-5, -4), (i64::MAX, 1 << 62), (i64::MIN, -(1 << 62))]
        {
            assert_eq!(quantize_value(AggKind::Quantize.bucket(value)), low, "{value}");
        }
    }

    #[test]
    fn the_least_and_the_greatest_are_0_before_the_first_value() {
        let after = |kind: AggKind, signed: bool, values: &[u64]| {
            let mut held = kind.initial();
            values.iter().for_each(|value| kind.add(&mut held, *value, 1, signed));
            held[0]
        };
        for (kind, least) in [(AggKind::Min, true), (AggKind::Max, false)] {
            assert_eq!(after(kind, true, &[]), 0);
            assert_eq!(after(kind, false, &[u64::MAX]), u64::MAX);
            assert_eq!(after(kind, true, &[5]), 5);
            let minus = -3i64 as u64;
            assert_eq!(after(kind, true, &[5, minus, 7]), if least { minus } else { 7 });
            assert_eq!(after(kind, false, &[5, minus, 7]), if least { 5 } else { minus });
        }
    }

    #[test]
    fn a_linear_histogram_has_a_bucket_below_and_one_above() {
        let kind = AggKind::Lquantize { base: 10, limit: 30, step: 5 };
        assert_eq!(kind.width(), 6);
        assert_eq!([9, 10, 14, 15, 29, 30, 99].map(|value| kind.bucket(value)), [0, 1, 1, 2, 4, 5, 5]);
    }

    #[test]
    fn a_value_lies_within_the_bounds_of_its_bucket_and_of_no_other() {
        let kinds = [
            AggKind::Quantize,
            AggKind::Lquantize { base: -7, limit: 32, step: 5 },
            AggKind::Lquantize { base: 0, limit: 100, step: 1 },
            AggKind::Llquantize { factor: 10, low: 0, high: 3, steps: 10 },
            AggKind::Llquantize { factor: 2, low: 2, high: 9, steps: 8 },
            AggKind::Llquantize { factor: 10, low: 0, high: 30, steps: 20 },
        ];
        let powers = (0..63).map(|power| 1i64 << power).chain((0..18).map(|power| 10i64.pow(power)));
        let near = powers.flat_map(|value| [value - 1, value, value + 1]).chain(0..200);
        let values = near.flat_map(|value| [value, -value]).chain([i64::MIN, i64::MAX]);
        for (kind, value) in kinds.iter().flat_map(|kind| values.clone().map(|value| (*kind, value))) {
            let holds = |(least, greatest): &Bounds| {
                let value = i128::from(value);
                least.is_none_or(|least| least <= value) && greatest.is_none_or(|greatest| value <= greatest)
            };
            let bounds = bounds(kind, kind.width());
            let holding: Vec<usize> = (0..bounds.len()).filter(|bucket| holds(&bounds[*bucket])).collect();
            assert_eq!(holding, [kind.bucket(value)], "{value} in {kind:?}");
        }
    }

    #[test]
    fn a_histogram_is_drawn_with_a_bucket_on_each_side() {
        let kind = AggKind::Quantize;
        let mut value = kind.initial();
        for one in [1, 1, 2, 3] {
            kind.add(&mut value, one, 1, true);
        }
        let text = histogram(kind, &value, 1);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "           value  ------------- Distribution ------------- count    ");
        assert_eq!(lines[2], "               0 |                                         0        ");
        assert_eq!(lines[3], "               1 |@@@@@@@@@@@@@@@@@@@@                     2        ");
        assert_eq!(lines.len(), 6);
    }
}
