//! Memory: bytes with their characters, or the fields of a type.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use trapline_trace::visible;

use super::printable;
use crate::app::{App, MEMORY_LINE};
use crate::scene::{Field, Typed};

/// Characters of the names of fields, at most.
const NAME: usize = 30;

/// What the title says.
pub fn note(app: &App) -> String {
    let Some(scene) = &app.scene else { return String::new() };
    match &scene.typed {
        Some(typed) => format!(" {} {:#x}", typed.type_name, typed.address),
        None => format!(" {:#x}", scene.memory_at.wrapping_add(app.selected.byte as u64)),
    }
}

/// The lines, and the selected one. A star follows what the last move has changed.
pub fn lines(app: &App) -> (Vec<Line<'static>>, usize) {
    match app.scene.as_ref().and_then(|scene| scene.typed.as_ref()) {
        Some(typed) => (of_type(app, typed), app.selected.field),
        None => (bytes(app), app.selected.byte / MEMORY_LINE),
    }
}

fn of_type(app: &App, typed: &Typed) -> Vec<Line<'static>> {
    let widest = typed.fields.iter().map(|field| field.name.chars().count()).max().unwrap_or(0).min(NAME);
    let line = |(n, field): (usize, &Field)| {
        let changed = app.is_changed_field(field);
        let style = if changed { app.look.changed() } else { Style::new() };
        let style = if n == app.selected.field { style.patch(app.look.selected()) } else { style };
        let (star, leads) = (if changed { "*" } else { "" }, if field.leads.is_some() { ">" } else { " " });
        Line::from(vec![
            Span::styled(format!("{leads}{:<widest$}  ", field.name), app.look.name()),
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
