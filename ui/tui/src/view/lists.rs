//! The plain panes: memory, stack, programs, console, probes, variables, processes.

use ratatui::text::{Line, Span};
use trapline_trace::visible;

use crate::app::App;

/// Bytes on a line of memory.
const LINE: usize = 16;

/// Memory, 16 bytes per line.
pub fn memory(app: &App) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    if scene.memory.is_empty() {
        return vec![Line::from(format!("{:#x}: nothing is mapped here", scene.memory_at))];
    }
    let line = |(n, bytes): (usize, &[u8])| {
        let at = scene.memory_at.wrapping_add((n * LINE) as u64);
        let mut spans =
            vec![Span::styled(format!("{at:0digits$x} ", digits = 2 * scene.word), app.look.faint())];
        for (k, byte) in bytes.iter().enumerate() {
            let selected = n * LINE + k == app.selected.byte;
            let style = if selected { app.look.selected() } else { ratatui::style::Style::new() };
            spans.push(Span::styled(format!("{byte:02x}"), style));
            spans.push(Span::raw(" "));
        }
        let text: String = bytes.iter().map(|byte| visible(*byte)).collect();
        spans.push(Span::raw(format!("{:pad$} {text}", "", pad = 3 * (LINE - bytes.len()))));
        Line::from(spans)
    };
    scene.memory.chunks(LINE).enumerate().map(line).collect()
}

/// The frames, then the words at the stack pointer.
pub fn stack(app: &App) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let digits = 2 * scene.word;
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, frame) in scene.frames.iter().enumerate() {
        let symbol = frame.symbol.clone().unwrap_or_default();
        let style = if n == app.selected.frame { app.look.selected() } else { ratatui::style::Style::new() };
        lines.push(Line::styled(format!("#{n:<2} {:0digits$x} {symbol}", frame.ip), style));
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

/// The probe programs as text.
pub fn handler(app: &App) -> Vec<Line<'static>> {
    app.programs.iter().flat_map(|text| text.lines()).map(|line| Line::from(line.to_owned())).collect()
}

/// The end of the guest's console.
pub fn console(app: &App) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let lines = scene.console.split(|byte| *byte == b'\n');
    let shown = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Line::from(line.iter().map(|byte| visible(*byte)).collect::<String>())
    };
    lines.map(shown).collect()
}

/// The programs and their probe points, and the line of the selected one.
pub fn probes(app: &App) -> (Vec<Line<'static>>, usize) {
    let Some(scene) = &app.scene else { return (Vec::new(), 0) };
    let mut lines = Vec::new();
    let (mut points, mut selected) = (0, 0);
    for program in &scene.programs {
        let name = program.name.clone();
        lines.push(Line::styled(format!("{name}  {} hits", program.hits), app.look.name()));
        for point in &program.points {
            let state = if point.enabled { "on " } else { "off" };
            let mut line =
                format!("  {state} {:>8}  {}.{} {}", point.hits, point.major, point.minor, point.place);
            for (key, value) in [("group", &point.group), ("type", &point.kind)] {
                line.extend(value.iter().map(|value| format!(" {key}={value}")));
            }
            let style = if points == app.selected.point {
                selected = lines.len();
                app.look.selected()
            } else {
                ratatui::style::Style::new()
            };
            points += 1;
            lines.push(Line::styled(line, style));
        }
    }
    for mark in &app.marks {
        lines.push(Line::from(format!("stop at {}", mark.text)));
    }
    for (name, at) in &app.bookmarks {
        lines.push(Line::from(format!("bookmark {name} {at}")));
    }
    (lines, selected)
}

/// Variables of the programs, then the global ones.
pub fn variables(app: &App) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let values = |values: &[u64]| {
        values.iter().enumerate().map(|(n, value)| format!(" [{n}]={value}")).collect::<String>()
    };
    let mut lines = Vec::new();
    for program in scene.variables.iter().filter(|program| !program.lv.is_empty()) {
        lines.push(Line::styled(program.name.clone(), app.look.name()));
        lines.push(Line::from(format!("  lv{}", values(&program.lv))));
    }
    if !scene.globals.is_empty() {
        lines.push(Line::from(format!("gv{}", values(&scene.globals))));
    }
    if lines.is_empty() {
        lines.push(Line::from("the programs have no variables"));
    }
    lines
}

/// The processes.
pub fn processes(app: &App) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    if scene.processes.is_empty() {
        return vec![Line::from("the guest's processes cannot be read here")];
    }
    let runs = |pid| scene.task.as_ref().is_some_and(|(running, _)| *running == pid);
    let line = |row: &trapline_session::ProcessRow| {
        let mark = if runs(row.pid) { ">" } else { " " };
        let program = row.program.as_deref().unwrap_or_default();
        Line::from(format!("{mark}{:>6} {:>6} {:<16} {program}", row.tgid, row.pid, row.name))
    };
    scene.processes.iter().map(line).collect()
}
