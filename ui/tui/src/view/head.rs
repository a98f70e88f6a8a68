//! The rows above the panes (title, density of hits, scale) and below them (messages, keys).

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

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

/// The first count of a column.
fn edge(app: &App, column: usize, width: usize) -> u64 {
    let (from, to) = app.window();
    from + (u128::from(to - from) * column as u128 / width.max(1) as u128) as u64
}

/// The number of hits in each column, relative to the largest number.
fn density(app: &App, width: usize) -> Line<'static> {
    let edges: Vec<usize> =
        (0..=width).map(|column| app.run.hits.first_from(edge(app, column, width))).collect();
    let counts: Vec<usize> = edges
        .windows(2)
        .map(|two| two.iter().rev().copied().reduce(|b, a| b.saturating_sub(a)).unwrap_or(0))
        .collect();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &usize| if *count == 0 { ' ' } else { app.look.bar((count * 8).div_ceil(most)) };
    Line::from(Span::styled(counts.iter().map(bar).collect::<String>(), app.look.name()))
}

/// The position, the listed part of the run, and the shown part.
fn scale(app: &App, width: usize) -> Line<'static> {
    let (from, to) = app.window();
    let line = if app.look.utf8 { '─' } else { '-' };
    let beyond = if app.look.utf8 { '·' } else { '.' };
    let mut cells: Vec<char> = (0..width)
        .map(|column| if edge(app, column, width) <= app.run.listed { line } else { beyond })
        .collect();
    let ends = [(0, format!("{from}")), (width.saturating_sub(to.to_string().len()), format!("{to}"))];
    for (start, text) in ends {
        for (cell, c) in cells.iter_mut().skip(start).zip(text.chars()) {
            *cell = c;
        }
    }
    let here =
        (u128::from(app.at().saturating_sub(from)) * width as u128 / u128::from((to - from).max(1))) as usize;
    let here = here.min(width.saturating_sub(1));
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

/// Draws the rows below the panes.
pub fn draw_foot(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let said = match &app.prompt {
        Some(prompt) => Line::from(vec![
            Span::styled(prompt.purpose.label(), app.look.name()),
            Span::raw(prompt.text.clone()),
            Span::styled(" ", app.look.selected()),
        ]),
        None => Line::from(app.message.clone().unwrap_or_default()),
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
    frame.render_widget(Paragraph::new(vec![said, keys]), area);
}
