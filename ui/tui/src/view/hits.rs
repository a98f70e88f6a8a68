//! The list of hits: only the rows on the screen are made.

use ratatui::text::{Line, Span};
use trapline_trace::{HexStyle, hex};

use crate::app::App;

/// Characters of an instruction count.
const COUNT: usize = 14;
/// Characters of a process.
const PROCESS: usize = 18;

/// The number of hits, and the filter.
pub fn note(app: &App) -> String {
    let all = app.run.hits.len();
    let filter = app.filter.as_ref();
    let shown = filter
        .map(|filter| format!(" {} of", app.rows()).to_string() + &format!(" {all} ({})", filter.text()));
    let more = if !app.run.is_listed() { "+" } else { "" };
    shown.unwrap_or_else(|| format!(" {all}")) + more
}

/// A header, and the rows that fit.
pub fn lines(app: &App, width: usize, height: usize) -> Vec<Line<'static>> {
    let probe = (width.saturating_sub(10 + COUNT + PROCESS) / 2).clamp(20, 50);
    let head = format!(
        "  {:>8} {:>COUNT$} {:<PROCESS$} {:<probe$} {}",
        "hit", "position", "process", "probe", "record"
    );
    let rows = height.saturating_sub(1);
    let first = app.first_row(rows);
    let mut lines = vec![Line::styled(head, app.look.faint())];
    lines.extend((first..app.rows().min(first + rows)).filter_map(|row| line(app, row, probe)));
    lines
}

fn line(app: &App, row: usize, probe: usize) -> Option<Line<'static>> {
    let number = app.hit_of(row)?;
    let hits = &app.run.hits;
    let hit = hits.get(number)?;
    let process = match hits.process(hit.pid) {
        Some(name) => format!("{} {name}", hit.pid),
        None => hit.pid.to_string(),
    };
    let label = hits.probe(hit.probe).map(|label| label.name.clone()).unwrap_or_default();
    let logged = hits.logged(number).map(|data| hex(data, HexStyle::Spaced)).unwrap_or_default();
    let here = app.cursor == Some(number);
    let mark = if here { ">" } else { " " };
    let text = format!(
        "{mark} {:>8} {:>COUNT$} {:<PROCESS$} {:<probe$} {logged}",
        number + 1,
        hit.at,
        cut(&process, PROCESS),
        cut(&label, probe)
    );
    let style = if here { app.look.here() } else { ratatui::style::Style::new() };
    let style = if row == app.selected.row { style.patch(app.look.selected()) } else { style };
    Some(Line::from(Span::styled(text, style)))
}

/// The first characters of a text.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
