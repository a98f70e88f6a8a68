//! Registers. Those that the last move has changed have a star.

use ratatui::text::{Line, Span};

use crate::app::App;
use crate::scene::Register;

/// The registers, as many on a line as fit.
pub fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let mut lines: Vec<Line<'static>> = Vec::new();
    let (mut spans, mut used, mut digits) = (Vec::new(), 0, 0);
    for register in &scene.registers {
        let text = cell(register);
        let changed = has_changed(app, register);
        if used > 0 && (used + text.len() + 1 > width || register.digits != digits) {
            lines.push(Line::from(std::mem::take(&mut spans)));
            used = 0;
        }
        used += text.len() + 1;
        digits = register.digits;
        let style = if changed { app.look.changed() } else { ratatui::style::Style::new() };
        let mark = if changed { "*" } else { " " };
        spans.push(Span::styled(format!("{text}{mark}"), style));
        if register.name == "eflags" {
            lines.push(Line::from(std::mem::take(&mut spans)));
            lines.push(Line::from(format!("   {}", scene.flags)));
            used = 0;
        }
    }
    lines.push(Line::from(spans));
    lines
}

fn cell(register: &Register) -> String {
    let Register { name, value, digits } = register;
    format!("{name:>6}={value:0digits$x}", digits = *digits)
}

fn has_changed(app: &App, register: &Register) -> bool {
    let before = app.before.iter().find(|before| before.name == register.name);
    before.is_some_and(|before| before.value != register.value)
}
