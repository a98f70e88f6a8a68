//! The variables and aggregations of D programs; histograms as bars.

use ratatui::text::{Line, Span};
use trapline_session::{AggregatedValue, AggregationState, Bucket, DState, DVariable, Datum, EntryState};

use super::printable;
use crate::theme::Look;

/// Characters before a variable or an aggregation, and before what belongs to it.
const INDENT: (usize, usize) = (2, 4);
/// Characters of the name of a bucket and of its count.
const LABEL: usize = 12;
const COUNT: usize = 9;
/// Fewest characters of the longest bar.
const BAR: usize = 4;

/// The variables and aggregations of a program.
pub fn state(look: Look, program: &DState, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(program.name.clone(), look.name())];
    lines.extend(program.variables.iter().map(variable));
    for aggregation in &program.aggregations {
        lines.extend(of_aggregation(look, aggregation, width));
    }
    if lines.len() == 1 {
        lines.push(Line::from(format!("{:1$}no variables and no aggregations", "", INDENT.0)));
    }
    lines.extend(program.drops.iter().map(|sentence| Line::styled(sentence.clone(), look.bad())));
    lines
}

fn variable(variable: &DVariable) -> Line<'static> {
    let DVariable { name, thread, keys, value } = variable;
    let thread = thread.map(|task| format!(" of {task:#x}")).unwrap_or_default();
    let keys = if keys.is_empty() { String::new() } else { format!("[{}]", printable(&keys.join(", "))) };
    Line::from(format!("{:2$}{name}{keys}{thread} = {}", "", printable(value), INDENT.0))
}

fn of_aggregation(look: Look, aggregation: &AggregationState, width: usize) -> Vec<Line<'static>> {
    let AggregationState { name, function, entries, left_out } = aggregation;
    let head = format!("{:1$}@{name} {function}()", "", INDENT.0);
    let mut lines = vec![Line::styled(head, look.faint())];
    if *left_out > 0 {
        lines.push(Line::from(format!("{:1$}{left_out} entries before are not shown", "", INDENT.1)));
    }
    if entries.is_empty() {
        lines.push(Line::from(format!("{:1$}empty", "", INDENT.1)));
    }
    let room = width.saturating_sub(INDENT.1);
    for entry in entries {
        let made: Vec<Line<'static>> = of_entry(look, entry, room);
        let indented = made.into_iter().map(|mut line| {
            line.spans.insert(0, Span::raw(" ".repeat(INDENT.1)));
            line
        });
        lines.extend(indented);
    }
    lines
}

fn of_entry(look: Look, entry: &EntryState, room: usize) -> Vec<Line<'static>> {
    let keys: Vec<String> = entry.keys.iter().map(Datum::to_string).collect();
    let keys = printable(&keys.join("  "));
    match &entry.value {
        AggregatedValue::Number(value) => {
            let value = value.to_string();
            let left = room.saturating_sub(value.chars().count());
            vec![Line::from(format!("{keys:<left$}{value}"))]
        }
        AggregatedValue::Buckets(buckets) => {
            let keys = (!keys.is_empty()).then(|| Line::from(keys));
            keys.into_iter().chain(histogram(look, buckets, room)).collect()
        }
    }
}

/// A bar for each bucket; the longest count has the longest bar.
fn histogram(look: Look, buckets: &[Bucket], room: usize) -> Vec<Line<'static>> {
    let most = buckets.iter().map(|bucket| bucket.count.unsigned_abs()).max().unwrap_or(0).max(1);
    let length = room.saturating_sub(LABEL + 2 + COUNT).max(BAR);
    let edge = if look.utf8 { '│' } else { '|' };
    let line = |Bucket { label, count, .. }: &Bucket| {
        let eighths = (u128::from(count.unsigned_abs()) * 8 * length as u128).div_ceil(u128::from(most));
        let bar = look.across(usize::try_from(eighths).unwrap_or(usize::MAX));
        Line::from(vec![
            Span::raw(format!("{label:>LABEL$} ")),
            Span::styled(format!("{edge}{bar:<length$}"), look.name()),
            Span::raw(format!("{count:>COUNT$}")),
        ])
    };
    buckets.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::Colours;

    fn drawn(utf8: bool, buckets: &[(&str, i64)]) -> Vec<String> {
        let bucket = |(label, count): &(&str, i64)| Bucket {
            label: (*label).to_owned(),
            min: None,
            max: None,
            count: *count,
        };
        let buckets: Vec<Bucket> = buckets.iter().map(bucket).collect();
        let look = Look { colours: Colours::None, utf8 };
        histogram(look, &buckets, 30).iter().map(Line::to_string).collect()
    }

    #[test]
    fn a_histogram_is_drawn_to_its_longest_bar() {
        let buckets = [("0", 0), ("1", 8), ("2", 1), ("4", 0)];
        insta::assert_snapshot!(drawn(true, &buckets).join("\n"), @"
                   0 │               0
                   1 │███████        8
                   2 │▉              1
                   4 │               0
        ");
        assert!(drawn(false, &buckets).iter().all(|line| line.is_ascii()));
        assert_eq!(drawn(false, &[("1", i64::MIN), ("2", i64::MAX)]).len(), 2);
    }
}
