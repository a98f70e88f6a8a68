//! The plain panes: stack, programs, console, probes, variables, processes.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use trapline_session::{CodePointer, ModuleRow, PointState, ProgramState, ProgramVariables};
use trapline_trace::visible;

use super::{d, hits};
use crate::app::{App, Mark};

/// Characters of a line that has room for an address and a symbol.
const WIDE: usize = 48;

/// The frames, then the words at the stack pointer.
pub fn stack(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let digits = 2 * scene.word;
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, frame) in scene.frames.iter().enumerate() {
        let symbol = frame.symbol.clone().unwrap_or_default();
        let style = if n == app.selected.frame { app.look.selected() } else { ratatui::style::Style::new() };
        // In little room, the function says more than the address.
        let text = match frame.symbol.is_some() && width < WIDE {
            true => format!("#{n:<2} {symbol}"),
            false => format!("#{n:<2} {:0digits$x} {symbol}", frame.ip),
        };
        lines.push(Line::styled(text, style));
    }
    lines.push(Line::default());
    for (at, value, symbol) in &scene.words {
        let symbol = symbol.as_deref().unwrap_or_default();
        lines.push(Line::from(vec![
            Span::styled(format!("{at:0digits$x} "), app.look.faint()),
            Span::raw(format!("{value:0digits$x} {symbol}")),
        ]));
    }
    lines
}

/// The record of the selected hit, then the probe programs as text.
pub fn handler(app: &App, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some((head, record)) = hits::selected(app) {
        lines.extend(broken(&head, width).into_iter().map(|line| line.style(app.look.name())));
        lines.extend(record.iter().flat_map(|line| broken(line, width)));
        lines.push(Line::default());
    }
    let programs = app.programs.iter().flat_map(|text| text.lines());
    lines.extend(programs.flat_map(|line| broken(line, width)));
    lines
}

/// A line of text in as many lines of this width as it takes.
pub fn broken(line: &str, width: usize) -> Vec<Line<'static>> {
    let characters: Vec<char> = line.chars().collect();
    let pieces = characters.chunks(width.max(1)).chain(line.is_empty().then_some([].as_slice()));
    pieces.map(|piece| Line::from(piece.iter().collect::<String>())).collect()
}

/// The end of the guest's console.
pub fn console(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let lines = scene.console.split(|byte| *byte == b'\n');
    let shown = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        broken(&line.iter().map(|byte| visible(*byte)).collect::<String>(), width)
    };
    lines.flat_map(shown).collect()
}

/// A line of the pane of probes.
enum ProbeRow<'a> {
    Program(&'a ProgramState),
    /// With its number among all points.
    Point(usize, &'a PointState),
    Mark(&'a Mark),
    Bookmark(&'a str, u64),
}

/// The programs and their probe points: only the visible lines are made, since there may be many thousand.
pub fn probes(app: &App, height: usize) -> Vec<Line<'static>> {
    probes_from(app, first_probe_row(app, height), height)
}

/// The first of these rows that is on the screen.
pub fn first_probe_row(app: &App, height: usize) -> usize {
    let programs = app.scene.as_ref().map(|scene| scene.programs.as_slice()).unwrap_or_default();
    let selected = app.selected.point;
    let selected = selected + numbered(programs).filter(|(first, _)| *first <= selected).count();
    selected.saturating_sub(height / 2).min(probe_rows(app).saturating_sub(height))
}

/// The programs, each with the number of its first point.
fn numbered(programs: &[ProgramState]) -> impl Iterator<Item = (usize, &ProgramState)> {
    programs.iter().scan(0, |next, program| {
        let first = *next;
        *next += program.points.len();
        Some((first, program))
    })
}

/// The number of rows of all programs, points, marks and bookmarks.
pub fn probe_rows(app: &App) -> usize {
    let programs = app.scene.iter().flat_map(|scene| &scene.programs);
    programs.map(|program| program.points.len() + 1).sum::<usize>() + app.marks.len() + app.bookmarks.len()
}

/// So many of these rows.
pub fn probes_from(app: &App, first: usize, count: usize) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let rows = numbered(&scene.programs).flat_map(|(first, program)| {
        let points = (first..).zip(&program.points).map(|(number, point)| ProbeRow::Point(number, point));
        std::iter::once(ProbeRow::Program(program)).chain(points)
    });
    let marks = app.marks.iter().map(ProbeRow::Mark);
    let bookmarks = app.bookmarks.iter().map(|(name, at)| ProbeRow::Bookmark(name, *at));
    let shown = rows.chain(marks).chain(bookmarks).skip(first).take(count);
    shown.map(|row| probe_row(app, &row)).collect()
}

/// The symbol of a place that is an address.
fn symbol(app: &App, place: &str) -> Option<String> {
    let address = u64::from_str_radix(place.strip_prefix("0x")?, 16).ok()?;
    app.target.symbol(CodePointer::At(address))
}

fn probe_row(app: &App, row: &ProbeRow<'_>) -> Line<'static> {
    match row {
        ProbeRow::Program(program) => {
            Line::styled(format!("{}  {} hits", program.name, program.hits), app.look.name())
        }
        ProbeRow::Point(number, point) => {
            let state = if point.enabled { "on " } else { "off" };
            let mut line =
                format!("  {state} {:>8}  {}.{} {}", point.hits, point.major, point.minor, point.place);
            line.extend(symbol(app, &point.place).map(|symbol| format!(" {symbol}")));
            for (key, value) in [("group", &point.group), ("type", &point.kind)] {
                line.extend(value.iter().map(|value| format!(" {key}={value}")));
            }
            let selected = *number == app.selected.point;
            Line::styled(line, if selected { app.look.selected() } else { Style::new() })
        }
        ProbeRow::Mark(mark) => Line::from(format!("stop at {}", mark.text)),
        ProbeRow::Bookmark(name, at) => Line::from(format!("bookmark {name} {at}")),
    }
}

/// Variables of the programs, then the global ones; of D programs, also aggregations.
pub fn variables(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let values = |values: &[u64]| {
        values.iter().enumerate().map(|(n, value)| format!(" [{n}]={value}")).collect::<String>()
    };
    let mut lines = Vec::new();
    let is_d = |name: &String| scene.d.iter().any(|program| program.name == *name);
    let with_locals = |program: &&ProgramVariables| !program.lv.is_empty() && !is_d(&program.name);
    for program in scene.variables.iter().filter(with_locals) {
        lines.push(Line::styled(program.name.clone(), app.look.name()));
        lines.push(Line::from(format!("  lv{}", values(&program.lv))));
    }
    lines.extend(scene.d.iter().flat_map(|program| d::state(app.look, program, width)));
    if !scene.globals.is_empty() {
        lines.push(Line::from(format!("gv{}", values(&scene.globals))));
    }
    if lines.is_empty() {
        lines.push(Line::from("the programs have no variables"));
    }
    lines
}

/// The processes, then the modules.
pub fn processes(app: &App) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let runs = |pid| scene.task.as_ref().is_some_and(|(running, _)| *running == pid);
    let line = |row: &trapline_session::ProcessRow| {
        let mark = if runs(row.pid) { ">" } else { " " };
        let program = row.program.as_deref().unwrap_or_default();
        Line::from(format!("{mark}{:>6} {:>6} {:<16} {program}", row.tgid, row.pid, row.name))
    };
    let mut lines: Vec<Line<'static>> = scene.processes.iter().map(line).collect();
    if lines.is_empty() {
        lines.push(Line::from("the guest's processes cannot be read here"));
    }
    if !scene.modules.is_empty() {
        lines.push(Line::default());
    }
    lines.extend(scene.modules.iter().map(|ModuleRow { address, size, kind, name, file }| {
        let file = file.as_deref().unwrap_or_default();
        Line::from(format!(" {name:<24} {address} {size:>8} {kind:<6} {file}"))
    }));
    lines
}
