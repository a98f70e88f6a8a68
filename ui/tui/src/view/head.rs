//! The rows above the panes (title, density of hits, scale) and below them (messages, keys).

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::handler::filled;
use crate::action::Action;
use crate::app::App;

/// Draws the rows above the panes.
pub fn draw(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let lines = vec![title(app), density(app, width), scale(app, width)];
    frame.render_widget(Paragraph::new(lines), area);
}

fn title(app: &App) -> Line<'static> {
    let look = app.look;
    let mut spans = vec![Span::styled(format!("{}  ", app.run.title), look.name())];
    // What is under way comes first: it is seen in a narrow terminal too.
    if app.run.number > 0 && app.run.ended.is_some() && !app.run.is_listed() {
        let percent = app.run.listed.saturating_mul(100) / app.end();
        spans.push(Span::styled(format!("asking the past: {percent} %  "), look.changed()));
    }
    if let Some(busy) = &app.travel.busy {
        spans.push(Span::styled(format!("going {busy} .. (Esc cancels)  "), look.changed()));
    }
    if app.play.on {
        spans.push(Span::styled(format!("playing, a hit each {} ms  ", app.play.pace), look.changed()));
    }
    if let Some(scene) = &app.scene {
        let place = scene.symbol.clone().unwrap_or_else(|| format!("{:#x}", scene.ip));
        let within = scene.handler.as_ref().map(|handler| format!(".{}", handler.executed));
        let within = within.unwrap_or_default();
        spans.push(Span::styled(format!("at {}{within} {place}", scene.at), look.here()));
        spans.extend(scene.task.iter().map(|(pid, name)| Span::raw(format!("  [{pid} {name}]"))));
        if scene.end {
            spans.push(Span::styled("  the end", look.here()));
        }
        if let Some(number) = app.cursor {
            let label = app.run.hits.get(number).and_then(|hit| app.run.hits.probe(hit.probe));
            let label = label.map(|label| format!(" {}", label.name)).unwrap_or_default();
            spans.push(Span::raw(format!("  hit {}{label}", number + 1)));
        }
    }
    Line::from(spans)
}

/// The number of hits in each column, relative to the largest number.
fn density(app: &App, width: usize) -> Line<'static> {
    let counts: Vec<usize> = app.hits_in_columns(width).iter().map(ExactSizeIterator::len).collect();
    Line::from(Span::styled(bars(app, &counts), app.look.name()))
}

/// A bar for each number, relative to the largest.
pub fn bars(app: &App, counts: &[usize]) -> String {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &usize| if *count == 0 { ' ' } else { app.look.bar((count * 8).div_ceil(most)) };
    counts.iter().map(bar).collect()
}

/// The position, the listed part of the run, and the shown part.
pub fn scale(app: &App, width: usize) -> Line<'static> {
    let (from, to) = app.window();
    let line = if app.look.utf8 { '─' } else { '-' };
    let beyond = if app.look.utf8 { '·' } else { '.' };
    let mut cells: Vec<char> = (0..width)
        .map(|column| if app.edge(column, width) <= app.run.listed { line } else { beyond })
        .collect();
    let ends = [(0, format!("{from}")), (width.saturating_sub(to.to_string().len()), format!("{to}"))];
    for (start, text) in ends {
        for (cell, c) in cells.iter_mut().skip(start).zip(text.chars()) {
            *cell = c;
        }
    }
    let here = app.column_of(app.at(), width).unwrap_or_default().min(width.saturating_sub(1));
    let part = |range: std::ops::Range<usize>| {
        cells.get(range).map(|cells| cells.iter().collect::<String>()).unwrap_or_default()
    };
    let mark = if app.look.utf8 { "▲" } else { "^" };
    Line::from(vec![
        Span::styled(part(0..here), app.look.faint()),
        Span::styled(mark, app.look.here()),
        Span::styled(part(here + 1..width), app.look.faint()),
    ])
}

/// The keys of the line at the bottom, with their words.
const SHOWN: &[(Action, &str)] = &[
    (Action::Help, "help"),
    (Action::Palette, "actions"),
    (Action::Quit, "quit"),
    (Action::NextHit, "next hit"),
    (Action::PreviousHit, "previous"),
    (Action::Step, "step"),
    (Action::Back, "back"),
    (Action::Finish, "finish"),
    (Action::Caller, "caller"),
    (Action::Goto, "go to"),
    (Action::Filter, "filter"),
    (Action::FocusNext, "pane"),
    (Action::Zoom, "zoom"),
];

/// The message; a long one also takes the line of the keys.
fn said(app: &App, width: usize) -> Vec<Line<'static>> {
    let words = app.message.iter().flat_map(|text| text.split_whitespace().map(str::to_owned)).collect();
    filled(words, width.max(1)).into_iter().map(Line::from).collect()
}

/// Draws the rows below the panes.
pub fn draw_foot(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let first = match &app.prompt {
        Some(prompt) => Line::from(vec![
            Span::styled(prompt.purpose.label(), app.look.name()),
            Span::raw(prompt.text.clone()),
            Span::styled(" ", app.look.selected()),
        ]),
        None => {
            let lines = said(app, area.width.into());
            if lines.len() > 1 {
                frame.render_widget(Paragraph::new(lines), area);
                return;
            }
            lines.into_iter().next().unwrap_or_default()
        }
    };
    let (mut keys, mut room) = (Vec::new(), usize::from(area.width));
    for (action, word) in SHOWN {
        let key = app.key_of(*action);
        let key = key.split(' ').next().unwrap_or_default().to_owned();
        // One that does not fit is left out as a whole.
        match room.checked_sub(key.chars().count() + 1 + word.len()) {
            Some(left) if !key.is_empty() => room = left.saturating_sub(2),
            _ => continue,
        }
        keys.push(Span::styled(key, app.look.name().add_modifier(Modifier::BOLD)));
        keys.push(Span::raw(format!(" {word}  ")));
    }
    let found = app.prompt.as_ref().map(|prompt| prompt.found.join("  ")).filter(|found| !found.is_empty());
    let keys = found.map_or(Line::from(keys), |found| Line::styled(found, app.look.faint()));
    frame.render_widget(Paragraph::new(vec![first, keys]), area);
}
