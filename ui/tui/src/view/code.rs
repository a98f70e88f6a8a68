//! Disassembly.

use ratatui::text::{Line, Span};
use trapline_trace::{HexStyle, hex};

use crate::app::App;
use crate::scene::Instruction;

/// Characters for the bytes of an instruction.
const BYTES: usize = 21;
/// Smallest width at which bytes are shown.
const WIDE: usize = 60;

/// The instructions.
pub fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(scene) = &app.scene else { return Vec::new() };
    let selected = app.code_line();
    let digits = 2 * scene.word;
    let made = scene.code.iter().enumerate().map(|(n, line)| {
        let here = line.address == scene.ip;
        let mark = if here { ">" } else { " " };
        let probe = if line.patched.is_some() { "*" } else { " " };
        let mut spans =
            vec![Span::styled(format!("{mark}{probe}{:0digits$x} ", line.address), app.look.faint())];
        if width >= WIDE {
            spans.push(Span::styled(
                format!("{:<BYTES$} ", hex(&line.bytes, HexStyle::Spaced)),
                app.look.faint(),
            ));
        }
        let style = if here { app.look.here() } else { ratatui::style::Style::new() };
        let style = if n == selected { style.patch(app.look.selected()) } else { style };
        spans.push(Span::styled(line.text.clone(), style));
        spans.push(Span::styled(remark(line), app.look.name()));
        Line::from(spans)
    });
    made.collect()
}

/// The way in which a probed instruction is displaced, and the fetched bytes.
fn remark(line: &Instruction) -> String {
    let Some(patched) = &line.patched else { return String::new() };
    let fetched = hex(patched, HexStyle::Spaced);
    match line.displaced {
        Some((way, why)) => format!("  probed: {way}, {why}; fetched as {fetched}"),
        None => format!("  probed; fetched as {fetched}"),
    }
}
