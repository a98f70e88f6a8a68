//! Memory: bytes with their characters, or the fields of a type.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use trapline_trace::visible;

use super::printable;
use crate::app::{App, MEMORY_LINE};
use trapline_session::trapline_d::{Field, Fields};

/// Characters of the names of fields, at most.
const NAME: usize = 30;

/// What the title says.
pub fn note(app: &App) -> String {
    let Some(scene) = &app.scene else { return String::new() };
    let what = match &scene.typed {
        Some(typed) => format!(" {} {:#x}", typed.type_name, typed.address),
        None if scene.unknown.is_some() => String::new(),
        None => format!(" {:#x}", scene.memory_at.wrapping_add(app.selected.byte as u64)),
    };
    let expression = scene.expression.as_ref().filter(|text| !text.starts_with("0x"));
    expression.map_or(what.clone(), |text| format!("{what} = {}, read at {}", printable(text), scene.at))
}

/// The lines, and the selected one. A star follows what the last move has changed.
pub fn lines(app: &App) -> (Vec<Line<'static>>, usize) {
    match app.scene.as_ref().and_then(|scene| scene.typed.as_ref()) {
        Some(typed) => (of_type(app, typed), app.selected.field),
        None => (bytes(app), app.selected.byte / MEMORY_LINE),
    }
}

fn of_type(app: &App, typed: &Fields) -> Vec<Line<'static>> {
    let widest = typed
        .fields
        .iter()
        .map(|field| 2 * field.depth + field.name.chars().count())
        .max()
        .unwrap_or(0)
        .min(NAME);
    let line = |(n, field): (usize, &Field)| {
        let changed = app.is_changed_field(field);
        let style = if changed { app.look.changed() } else { Style::new() };
        let style = if n == app.selected.field { style.patch(app.look.selected()) } else { style };
        let (star, leads) = (if changed { "*" } else { "" }, if field.leads.is_some() { ">" } else { " " });
        Line::from(vec![
            Span::styled(
                format!("{leads}{:<widest$}  ", format!("{:1$}{2}", "", 2 * field.depth, field.name)),
                app.look.name(),
            ),
            Span::styled(format!("{}{star}", printable(&field.value)), style),
            Span::styled(format!("  {}", field.type_name), app.look.faint()),
        ])
    };
    let mut lines: Vec<Line<'static>> = typed.fields.iter().enumerate().map(line).collect();
    if typed.left_out > 0 {
        lines.push(Line::from(format!("{} more are not shown", typed.left_out)));
    }
    lines
}

fn bytes(app: &App) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    if let Some(why) = &scene.unknown {
        return vec![Line::from(printable(why))];
    }
    if scene.memory.is_empty() {
        return vec![Line::from(format!("{:#x}: nothing is mapped here", scene.memory_at))];
    }
    let line = |(n, bytes): (usize, &[u8])| {
        let at = scene.memory_at.wrapping_add((n * MEMORY_LINE) as u64);
        let mut spans =
            vec![Span::styled(format!("{at:0digits$x} ", digits = 2 * scene.word), app.look.faint())];
        for (k, byte) in bytes.iter().enumerate() {
            let changed = app.is_changed(at.wrapping_add(k as u64), *byte);
            let style = if changed { app.look.changed() } else { Style::new() };
            let selected = n * MEMORY_LINE + k == app.selected.byte;
            let style = if selected { style.patch(app.look.selected()) } else { style };
            spans.push(Span::styled(format!("{byte:02x}"), style));
            spans.push(Span::raw(if changed { "*" } else { " " }));
        }
        let text: String = bytes.iter().map(|byte| visible(*byte)).collect();
        spans.push(Span::raw(format!("{:pad$} {text}", "", pad = 3 * (MEMORY_LINE - bytes.len()))));
        Line::from(spans)
    };
    scene.memory.chunks(MEMORY_LINE).enumerate().map(line).collect()
}
