//! Draws the state, and changes nothing. Each pane is lines of text; the same lines are exported and copied.

mod channels;
mod code;
mod d;
mod handler;
mod head;
mod hits;
mod lists;
mod memory;
mod overlay;
mod registers;
mod timeline;
pub(crate) mod top;

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use crate::app::{App, Pane};

/// Characters of a line that is exported.
const EXPORTED: usize = 200;

/// Lines of a pane, and the first visible one.
pub struct Lines {
    /// The lines.
    pub lines: Vec<Line<'static>>,
    /// The first one on the screen.
    pub first: usize,
}

impl From<Vec<Line<'static>>> for Lines {
    fn from(lines: Vec<Line<'static>>) -> Self {
        Self { lines, first: 0 }
    }
}

impl Lines {
    /// Scrolls so that this line is visible at this height.
    fn around(lines: Vec<Line<'static>>, line: usize, height: usize) -> Self {
        let first = line.saturating_sub(height / 2).min(lines.len().saturating_sub(height));
        Self { lines, first }
    }
}

const ASCII: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Draws all; returns how far each pane can be scrolled.
pub fn draw(app: &App, frame: &mut Frame<'_>) -> BTreeMap<Pane, usize> {
    let places = app.places();
    head::draw(app, frame, places.head);
    let draws = |(pane, rect): &(Pane, Rect)| (*pane, draw_pane(app, frame, *pane, *rect));
    let ends = places.panes.iter().map(draws).collect();
    head::draw_foot(app, frame, places.foot);
    overlay::draw(app, frame);
    if !app.look.utf8 {
        // Names and texts of the guest and of programs may have any characters.
        let cells = frame.buffer_mut().content.iter_mut().filter(|cell| !cell.symbol().is_ascii());
        for cell in cells {
            cell.set_char('?');
        }
    }
    ends
}

fn frame_of(app: &App, title: String, focused: bool) -> Block<'static> {
    let set = match (app.look.utf8, focused) {
        (false, _) => ASCII,
        (true, true) => border::THICK,
        (true, false) => border::PLAIN,
    };
    let style = if focused { app.look.focused() } else { app.look.faint() };
    let title = if focused && !app.look.utf8 { format!("[{title}]") } else { title };
    Block::bordered().border_set(set).border_style(style).title(Span::styled(title, style))
}

/// Draws a pane; returns the last line that can be its first.
fn draw_pane(app: &App, frame: &mut Frame<'_>, pane: Pane, rect: Rect) -> usize {
    let key = pane.key();
    let block = frame_of(app, format!("{key} {}{}", pane.name(), note(app, pane)), app.focused() == pane);
    let inside = block.inner(rect);
    frame.render_widget(block, rect);
    let (width, height) = (usize::from(inside.width), usize::from(inside.height));
    let Lines { lines, first } = text(app, pane, width, height);
    let end = lines.len().saturating_sub(height);
    let shown: Vec<Line<'static>> = lines.into_iter().skip(first).take(height).collect();
    frame.render_widget(Paragraph::new(shown), inside);
    end
}

/// The text after a pane's name in its title.
fn note(app: &App, pane: Pane) -> String {
    let Some(scene) = &app.scene else { return String::new() };
    match pane {
        Pane::Hits => hits::note(app),
        Pane::Code => format!(
            " {}{}",
            scene.function,
            scene.source.as_ref().map(|at| format!(" {at}")).unwrap_or_default()
        ),
        Pane::Handler => scene.handler.as_ref().map(handler::note).unwrap_or_default(),
        Pane::Memory => memory::note(app),
        Pane::Channels => channels::note(scene),
        _ => String::new(),
    }
}

/// The lines of a pane of this size.
pub fn text(app: &App, pane: Pane, width: usize, height: usize) -> Lines {
    let scrolled = |lines: Vec<Line<'static>>| {
        let end = lines.len().saturating_sub(height);
        let by = app.selected.first.get(&pane).copied().unwrap_or(0);
        let first = if pane.begins_at_its_end() { end.saturating_sub(by) } else { by.min(end) };
        Lines { lines, first }
    };
    match pane {
        Pane::Hits => hits::lines(app, width, height).into(),
        Pane::Code => {
            let (lines, selected) = code::lines(app, width);
            Lines::around(lines, selected, height)
        }
        Pane::Timeline => scrolled(timeline::lines(app, width)),
        Pane::Registers => scrolled(registers::lines(app, width)),
        Pane::Memory => {
            let (lines, selected) = memory::lines(app);
            Lines::around(lines, selected, height)
        }
        Pane::Stack => Lines::around(lists::stack(app, width), app.selected.frame, height),
        Pane::Handler => match app.scene.as_ref().and_then(|scene| scene.handler.as_ref()) {
            Some(inside) => handler::lines(app, inside, width, height),
            None => scrolled(lists::handler(app, width)),
        },
        Pane::Console => scrolled(lists::console(app, width)),
        Pane::Channels => scrolled(channels::lines(app, width)),
        Pane::Probes => lists::probes(app, height).into(),
        Pane::Variables => scrolled(lists::variables(app, width)),
        Pane::Processes => scrolled(lists::processes(app)),
    }
}

/// A text of the guest or of a program, without characters that control a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The number of rows of a pane, for export. Only panes that may have many have more than one: the others are exported as a
/// whole.
pub fn exported_rows(app: &App, pane: Pane) -> usize {
    match pane {
        Pane::Hits => app.rows().max(1),
        Pane::Probes => lists::probe_rows(app).max(1),
        _ => 1,
    }
}

/// The first row of a pane that is on the screen, of those that are exported one by one.
pub fn first_row(app: &App, pane: Pane) -> usize {
    let places = app.places();
    let rect = places.panes.iter().find(|(own, _)| *own == pane).map(|(_, rect)| *rect);
    let height = usize::from(rect.map_or(0, |rect| rect.height.saturating_sub(2)));
    match pane {
        Pane::Hits => app.first_row(height.saturating_sub(1)),
        Pane::Probes => lists::first_probe_row(app, height),
        _ => 0,
    }
}

/// The text of so many rows of a pane, for export. The first row has the names of the columns above it.
pub fn plain(app: &App, pane: Pane, first: usize, count: usize) -> String {
    let lines = match pane {
        Pane::Hits => hits::rows(app, EXPORTED, first, count),
        Pane::Probes => lists::probes_from(app, first, count),
        _ => text(app, pane, EXPORTED, usize::from(u16::MAX)).lines,
    };
    lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect()
}
