//! Help and palette, which cover the panes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

use super::frame_of;
use super::handler::filled;
use crate::action::{Entry, TABLE};
use crate::app::{App, matches};

/// Characters before the sentence of an action.
const BEFORE: usize = 10 + 1 + 18 + 1 + 12 + 1;
/// Characters that a sentence has at least, where the terminal is wide enough.
const SENTENCE: usize = 30;

/// Draws them.
pub fn draw(app: &App, frame: &mut Frame<'_>) {
    let width = usize::from(frame.area().width.saturating_sub(4));
    if let Some(first) = app.help {
        let lines: Vec<Line<'static>> =
            TABLE.iter().skip(first).flat_map(|entry| lines(app, entry, width)).collect();
        // The last ones fill the screen.
        let height = usize::from(frame.area().height.saturating_sub(6));
        if lines.len() >= height || first == 0 {
            cover(app, frame, " Help: all keys ".to_owned(), &lines, 0);
        } else {
            let all: Vec<Line<'static>> =
                TABLE.iter().flat_map(|entry| self::lines(app, entry, width)).collect();
            cover(app, frame, " Help: all keys ".to_owned(), &all, all.len());
        }
    }
    if let Some(palette) = &app.palette {
        let row = |(n, entry): (usize, &&'static Entry)| {
            let made = Line::from(before(app, entry) + entry.sentence);
            if n == palette.selected { made.style(app.look.selected()) } else { made }
        };
        let found = matches(&palette.text);
        let lines: Vec<Line<'static>> = found.iter().enumerate().map(row).collect();
        let height = usize::from(frame.area().height.saturating_sub(6));
        let first = palette.selected.saturating_sub(height.saturating_sub(1));
        cover(app, frame, format!(" Action: {} ", palette.text), &lines, first);
    }
}

fn before(app: &App, entry: &Entry) -> String {
    format!("{:<10} {:<18} {:<12} ", app.key_of(entry.action), entry.id, entry.context.word())
}

/// An action with its whole sentence, which goes on below if it is longer than the line.
fn lines(app: &App, entry: &Entry, width: usize) -> Vec<Line<'static>> {
    let words = entry.sentence.split(' ').map(str::to_owned).collect();
    let parts = filled(words, width.saturating_sub(BEFORE).max(SENTENCE));
    let line = |(n, part): (usize, String)| {
        let start = if n == 0 { before(app, entry) } else { format!("{:BEFORE$}", "") };
        Line::from(start + &part)
    };
    parts.into_iter().enumerate().map(line).collect()
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
