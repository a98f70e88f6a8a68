//! Help and palette, which cover the panes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

use super::frame_of;
use crate::action::{Entry, TABLE};
use crate::app::{App, matches};

/// Draws them.
pub fn draw(app: &App, frame: &mut Frame<'_>) {
    if let Some(first) = app.help {
        let lines: Vec<Line<'static>> = TABLE.iter().map(|entry| line(app, entry)).collect();
        cover(app, frame, " Help: all keys ".to_owned(), &lines, first);
    }
    if let Some(palette) = &app.palette {
        let row = |(n, entry): (usize, &&'static Entry)| {
            let made = line(app, entry);
            if n == palette.selected { made.style(app.look.selected()) } else { made }
        };
        let found = matches(&palette.text);
        let lines: Vec<Line<'static>> = found.iter().enumerate().map(row).collect();
        let height = usize::from(frame.area().height.saturating_sub(6));
        let first = palette.selected.saturating_sub(height.saturating_sub(1));
        cover(app, frame, format!(" Action: {} ", palette.text), &lines, first);
    }
}

fn line(app: &App, entry: &Entry) -> Line<'static> {
    Line::from(format!(
        "{:<10} {:<18} {:<12} {}",
        app.key_of(entry.action),
        entry.id,
        entry.context.word(),
        entry.sentence
    ))
}

fn cover(app: &App, frame: &mut Frame<'_>, title: String, lines: &[Line<'static>], first: usize) {
    let area = frame.area();
    let (width, height) = (area.width.saturating_sub(2), area.height.saturating_sub(4));
    let rect = Rect::new(1, 2, width, height).intersection(area);
    let block = frame_of(app, title, true);
    let inside = block.inner(rect);
    frame.render_widget(Clear, rect);
    frame.render_widget(block, rect);
    let most = lines.len().saturating_sub(usize::from(inside.height));
    let shown: Vec<Line<'static>> =
        lines.iter().skip(first.min(most)).take(usize::from(inside.height)).cloned().collect();
    frame.render_widget(Paragraph::new(shown), inside);
}
