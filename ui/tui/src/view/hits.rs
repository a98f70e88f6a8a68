//! The list of hits: only the rows on the screen are made.

use super::printable;
use crate::app::{App, Cell};
use crate::hits::{Column, Hit};
use ratatui::text::{Line, Span};

/// The number of hits, the filter, and the order.
pub fn note(app: &App) -> String {
    let all = app.run.hits.len();
    let mut note = match &app.filter {
        Some(filter) => format!(" {} of {all} ({})", app.shown(), filter.text()),
        None => format!(" {all}"),
    };
    if !app.run.is_listed() {
        note.push('+');
    }
    if let Some(sorted) = &app.sorted {
        note += &format!(" by {}", sorted.by().name());
        note += if sorted.descending() { ", the last first" } else { "" };
        if sorted.len() < app.shown() {
            note += &format!(", {} % sorted", sorted.len() * 100 / app.shown());
        }
    }
    note
}

/// A header, and the rows that fit.
pub fn lines(app: &App, width: usize, height: usize) -> Vec<Line<'static>> {
    let cells = app.cells(width);
    let rows = height.saturating_sub(1);
    let first = app.first_row(rows);
    let mut lines = vec![head(app, &cells)];
    lines.extend(made(app, first, rows, &cells));
    lines
}

/// So many rows; above the first one, the header.
pub fn rows(app: &App, width: usize, first: usize, count: usize) -> Vec<Line<'static>> {
    let cells = app.cells(width);
    let mut lines: Vec<Line<'static>> = (first == 0).then(|| head(app, &cells)).into_iter().collect();
    lines.extend(made(app, first, count, &cells));
    lines
}

fn head(app: &App, cells: &[Cell]) -> Line<'static> {
    let names: Vec<String> = cells.iter().map(|cell| placed(*cell, cell.column.name())).collect();
    Line::styled(format!("  {}", names.join(" ")), app.look.faint())
}

fn made(app: &App, first: usize, count: usize, cells: &[Cell]) -> impl Iterator<Item = Line<'static>> {
    (first..).zip(app.hits_of(first, count)).filter_map(|(row, number)| line(app, row, number, cells))
}

fn line(app: &App, row: usize, number: usize, cells: &[Cell]) -> Option<Line<'static>> {
    let hit = app.run.hits.get(number)?;
    let here = app.cursor == Some(number);
    let mark = if here { ">" } else { " " };
    let texts: Vec<String> = cells
        .iter()
        .map(|cell| placed(*cell, &fitted(*cell, value(app, number, hit, cell.column))))
        .collect();
    let style = if here { app.look.here() } else { ratatui::style::Style::new() };
    let style = if row == app.selected.row { style.patch(app.look.selected()) } else { style };
    Some(Line::from(Span::styled(format!("{mark} {}", texts.join(" ")), style)))
}

/// What a column says of a hit.
fn value(app: &App, number: usize, hit: Hit, column: Column) -> String {
    let hits = &app.run.hits;
    match column {
        Column::Hit => (number + 1).to_string(),
        Column::Position => hit.at.to_string(),
        Column::Process => match hits.process(hit) {
            Some(name) => format!("{} {name}", hit.pid),
            None => hit.pid.to_string(),
        },
        Column::Program => hits.probe(hit.probe).map(|label| label.program.clone()).unwrap_or_default(),
        Column::Probe => hits.probe(hit.probe).map(|label| label.name.clone()).unwrap_or_default(),
        Column::Address => format!("{:#x}", hit.ip),
        Column::Record => record(app, number).unwrap_or_default().join(" "),
    }
}

/// The lines of a hit's record, if it was kept: as `run` prints them after the header.
fn record(app: &App, number: usize) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(app.run.hits.logged(number)?);
    let lines = text.lines().map(|line| printable(line.replace('\t', "    ").trim()));
    Some(lines.filter(|line| !line.is_empty()).collect())
}

/// The selected hit: its number and probe, then its whole record.
pub fn selected(app: &App) -> Option<(String, Vec<String>)> {
    let number = app.hit_of(app.selected.row)?;
    let hit = app.run.hits.get(number)?;
    let label = app.run.hits.probe(hit.probe);
    let name = label.map(|label| format!("{} of {}", label.name, label.program)).unwrap_or_default();
    let lines = match record(app, number) {
        None => vec!["its record is not kept: those before take all the room".to_owned()],
        Some(lines) if lines.is_empty() => vec!["its record has no data".to_owned()],
        Some(lines) => lines,
    };
    Some((format!("hit {} {name}", number + 1), lines))
}

/// The name of a probe without provider and module, if there is no room for all of it: its function says more.
fn fitted(cell: Cell, text: String) -> String {
    if cell.column != Column::Probe || cell.last || text.chars().count() <= cell.width {
        return text;
    }
    text.splitn(3, ':').nth(2).map_or(text.clone(), str::to_owned)
}

/// A text at its place.
fn placed(Cell { width, right, last, .. }: Cell, text: &str) -> String {
    match (right, last) {
        (true, _) => format!("{text:>width$}"),
        (false, true) => text.to_owned(),
        (false, false) => format!("{:<width$}", cut(text, width)),
    }
}

/// The first characters of a text.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
