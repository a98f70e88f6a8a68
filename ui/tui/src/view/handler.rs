//! A handler at one of its operations: its program and its state, side by side in a wide pane.

use ratatui::text::{Line, Span};
use trapline_trace::{HexStyle, hex};

use super::Lines;
use crate::app::App;
use crate::scene::Handler;

/// Smallest width at which the state is beside the program.
const WIDE: usize = 70;
/// Characters of the name of a part of the state.
const NAME: usize = 11;
/// Fewest rows of the program if the state is below it.
const ROWS: usize = 4;
/// Bytes of the log on a line are a multiple of this.
const BYTES: usize = 4;

/// The numbers of the next operation and of the handler, with their totals.
pub fn note(handler: &Handler) -> String {
    let Handler { executed, all, number: (number, of), .. } = handler;
    format!(" {executed} of {all}, handler {number} of {of}")
}

/// The program around the operation, and the state.
pub fn lines(app: &App, handler: &Handler, width: usize, height: usize) -> Lines {
    if width < WIDE {
        let state = state(app, handler, width);
        let rows = height.saturating_sub(state.len()).max(ROWS);
        return around(app, handler, rows).into_iter().chain(state).collect::<Vec<_>>().into();
    }
    let left = width / 2;
    let mut state = state(app, handler, width - left).into_iter();
    let mut program = around(app, handler, height).into_iter();
    let mut lines = Vec::new();
    loop {
        let (own, beside) = (program.next(), state.next());
        if own.is_none() && beside.is_none() {
            return lines.into();
        }
        let mut spans = own.unwrap_or_default().spans;
        let used: usize = spans.iter().map(|span| span.content.chars().count()).sum();
        spans.push(Span::raw(" ".repeat(left.saturating_sub(used))));
        spans.extend(beside.unwrap_or_default().spans);
        lines.push(Line::from(spans));
    }
}

/// This many rows of the program, including the next operation.
fn around(app: &App, handler: &Handler, rows: usize) -> Vec<Line<'static>> {
    let row = |(n, text): (usize, &String)| match handler.next == Some(n) {
        true => Line::styled(format!(">{n:5}  {text}"), app.look.here()),
        false => Line::from(format!(" {n:5}  {text}")),
    };
    let mut all: Vec<Line<'static>> = handler.listing.iter().enumerate().map(row).collect();
    all.extend(handler.ending.as_ref().map(|ending| Line::styled(format!("> {ending}"), app.look.here())));
    let next = handler.next.unwrap_or(all.len());
    let first = next.saturating_sub(rows / 2).min(all.len().saturating_sub(rows));
    all.into_iter().skip(first).take(rows).collect()
}

/// The operand stack, variables, log and the rest, each with its name.
fn state(app: &App, handler: &Handler, width: usize) -> Vec<Line<'static>> {
    let Handler { program, place, stack, locals, globals, log, .. } = handler;
    let room = width.saturating_sub(NAME + 1).max(1);
    let numbers = |values: &[u64]| values.iter().map(|value| format!("{value:#x}")).collect::<Vec<_>>();
    let set = |values: &[u64]| {
        let set = values.iter().enumerate().filter(|(_, value)| **value != 0);
        let words: Vec<String> = set.map(|(n, value)| format!("{n}={value:#x}")).collect();
        if words.is_empty() { vec!["all 0".to_owned()] } else { words }
    };
    let bytes = log.chunks(BYTES).map(|part| hex(part, HexStyle::Spaced)).collect::<Vec<_>>();
    let or_empty = |words: Vec<String>| if words.is_empty() { vec!["empty".to_owned()] } else { words };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut parts = vec![("stack", or_empty(numbers(stack))), ("log", or_empty(bytes))];
    parts.extend((!locals.is_empty()).then(|| ("locals", set(locals))));
    parts.extend((!globals.is_empty()).then(|| ("globals", set(globals))));
    parts.extend((handler.calls > 0).then(|| ("calls", vec![handler.calls.to_string()])));
    parts.extend(handler.exception.iter().map(|text| ("exception", words(text))));
    parts.extend(handler.changes.iter().map(|text| ("changed", words(text))));
    parts.push(("program", vec![program.clone()]));
    parts.push(("probe", vec![place.clone()]));
    parts.extend(handler.before.iter().map(|text| ("before", words(text))));
    let lines = parts.into_iter().flat_map(|(name, words)| {
        filled(words, room).into_iter().enumerate().map(move |(n, text)| {
            let name = if n == 0 { name } else { "" };
            (name, text)
        })
    });
    let name = |name: &str| Span::styled(format!("{name:<NAME$}"), app.look.name());
    lines.map(|(part, text)| Line::from(vec![name(part), Span::raw(text)])).collect()
}

/// Wraps words at this width. A longer word gets its own line.
fn filled(words: Vec<String>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}
