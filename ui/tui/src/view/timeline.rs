//! The timeline as a pane: saved states, inputs and bookmarks of the run, and the hits of each probe, below a scale.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::head::{bars, scale};
use crate::app::{App, chart};

/// Probes that have a line: those with most hits.
const MOST_PROBES: usize = 100;
/// Characters of a number.
const NUMBER: usize = 10;

/// The lines, each with a name and a number before its chart.
pub fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let whole = Rect::new(0, 0, width.try_into().unwrap_or(u16::MAX), 1);
    let chart = chart(whole);
    let (label, width) = (usize::from(chart.x), usize::from(chart.width));
    let line = |name: &str, number: String, shown: String| {
        let room = label.saturating_sub(NUMBER + 2);
        let name: String = name.chars().take(room).collect();
        Line::from(vec![
            Span::raw(format!("{name:<room$} {number:>NUMBER$} ")),
            Span::styled(shown, app.look.name()),
        ])
    };
    let marks = |name: &str, counts: &[u64], mark: char| {
        let mut shown = vec![' '; width];
        for column in counts.iter().filter_map(|at| app.column_of(*at, width)) {
            if let Some(cell) = shown.get_mut(column) {
                *cell = mark;
            }
        }
        line(name, counts.len().to_string(), shown.into_iter().collect())
    };
    let mut axis = scale(app, width);
    axis.spans.insert(0, Span::raw(" ".repeat(label)));
    let bookmarks: Vec<u64> = app.bookmarks.values().copied().collect();
    let hits: Vec<usize> = app.hits_in_columns(width).iter().map(ExactSizeIterator::len).collect();
    let mut lines = vec![
        axis,
        marks("saved states", &scene.saved_at, '\''),
        marks("inputs", &scene.inputs_at, '!'),
        marks("bookmarks", &bookmarks, '+'),
        line("hits", hits.iter().sum::<usize>().to_string(), bars(app, &hits)),
    ];
    lines.extend(app.densities(width, MOST_PROBES).into_iter().map(|density| {
        let name = app.run.hits.probe(density.probe).map(|label| label.name.as_str()).unwrap_or_default();
        let about = if density.exact { "" } else { "~" };
        // The function says more than the provider and the module before it.
        let name = name.splitn(3, ':').nth(2).unwrap_or(name);
        line(name, format!("{about}{}", density.sum()), bars(app, &density.counts))
    }));
    lines
}
