//! Disassembly.

use ratatui::text::{Line, Span};
use trapline_trace::{HexStyle, hex};

use super::printable;
use crate::app::App;
use crate::scene::Instruction;

/// Characters for the bytes of an instruction.
const BYTES: usize = 21;
/// Characters of the number of a source line.
const NUMBER: usize = 6;
/// Smallest width at which bytes are shown.
const WIDE: usize = 60;

/// The instructions, each line of the source before its first one; and the number of the selected line.
pub fn lines(app: &App, width: usize) -> (Vec<Line<'static>>, usize) {
    let Some(scene) = &app.scene else { return (Vec::new(), 0) };
    let (mut lines, mut row) = (Vec::new(), 0);
    let selected = app.code_line();
    let digits = 2 * scene.word;
    for (n, line) in scene.code.iter().enumerate() {
        if let Some((number, text)) = &line.source {
            lines.push(Line::styled(format!("{number:>NUMBER$}  {}", printable(text)), app.look.name()));
        }
        if n == selected {
            row = lines.len();
        }
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
        lines.push(Line::from(spans));
    }
    (lines, row)
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
