//! A handler at one of its operations: its program and its state, side by side in a wide pane. Of a D program, the text
//! is beside the operations.

use ratatui::text::{Line, Span};
use trapline_trace::{HexStyle, hex};

use super::{Lines, printable};
use crate::app::App;
use crate::scene::{Handler, Source};

/// Smallest width at which the state is beside the program.
const WIDE: usize = 70;
/// Smallest width at which it is beside a D program and its operations.
const WIDEST: usize = 110;
/// Characters of the name of a part of the state.
const NAME: usize = 11;
/// Characters before a line of the program: its mark and its number.
const NUMBER: usize = 8;
/// Fewest rows of the program if the state is below it.
const ROWS: usize = 4;
/// Bytes of the log on a line are a multiple of this.
const BYTES: usize = 4;

/// The numbers of the next operation and of the handler, with their totals.
pub fn note(handler: &Handler) -> String {
    let Handler { executed, all, number: (number, of), .. } = handler;
    format!(" {executed} of {all}, handler {number} of {of}")
}

/// The program around the operation, and the state. Of a D program, the lines of its text are beside the operations.
pub fn lines(app: &App, handler: &Handler, width: usize, height: usize) -> Lines {
    let Some(source) = &handler.source else {
        if width < WIDE {
            return stacked(height, width, app, handler, |rows| operations(app, handler, rows, width));
        }
        let (left, right) = (width / 2, width - width / 2);
        let program = operations(app, handler, height, left);
        return beside(vec![(program, left), (state(app, handler, right), right)]).into();
    };
    if width < WIDE {
        return stacked(height, width, app, handler, |rows| {
            let mut lines = text(app, source, (rows / 3).max(1), width);
            lines.extend(operations(app, handler, rows.saturating_sub(lines.len()).max(1), width));
            lines
        });
    }
    let program = |rows, width: usize| {
        let left = width / 2;
        let operations = operations(app, handler, rows, width - left);
        vec![(text(app, source, rows, left), left), (operations, width - left)]
    };
    if width < WIDEST {
        return stacked(height, width, app, handler, |rows| beside(program(rows, width)));
    }
    let right = width / 3;
    let mut columns = program(height, width - right);
    columns.push((state(app, handler, right), right));
    beside(columns).into()
}

/// The program above the state, which has what it needs, as far as the program has some rows.
fn stacked(
    height: usize,
    width: usize,
    app: &App,
    handler: &Handler,
    program: impl Fn(usize) -> Vec<Line<'static>>,
) -> Lines {
    let state = state(app, handler, width);
    let rows = height.saturating_sub(state.len()).max(ROWS);
    program(rows).into_iter().chain(state).collect::<Vec<_>>().into()
}

/// Columns of these widths.
fn beside(columns: Vec<(Vec<Line<'static>>, usize)>) -> Vec<Line<'static>> {
    let rows = columns.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
    let mut columns: Vec<_> = columns.into_iter().map(|(lines, width)| (lines.into_iter(), width)).collect();
    let row = |_| {
        let mut spans = Vec::new();
        for (lines, width) in &mut columns {
            let own = lines.next().unwrap_or_default();
            let used = own.width();
            // The style of a line is that of its text, not of the columns beside it.
            spans.extend(own.spans.into_iter().map(|span| span.patch_style(own.style)));
            spans.push(Span::raw(" ".repeat(width.saturating_sub(used))));
        }
        Line::from(spans)
    };
    (0..rows).map(row).collect()
}

/// This many of the lines, including the current one.
fn around(lines: Vec<Line<'static>>, here: usize, rows: usize) -> Vec<Line<'static>> {
    let first = here.saturating_sub(rows / 2).min(lines.len().saturating_sub(rows));
    lines.into_iter().skip(first).take(rows).collect()
}

/// The operations around the next one; after the last one, how the handler has ended.
fn operations(app: &App, handler: &Handler, rows: usize, width: usize) -> Vec<Line<'static>> {
    let cut = |text: String| text.chars().take(width.saturating_sub(1)).collect::<String>();
    let row = |(n, text): (usize, &String)| match handler.next == Some(n) {
        true => Line::styled(cut(format!(">{n:5}  {text}")), app.look.here()),
        false => Line::from(cut(format!(" {n:5}  {text}"))),
    };
    let mut all: Vec<Line<'static>> = handler.listing.iter().enumerate().map(row).collect();
    let ending = handler.ending.as_ref();
    all.extend(ending.map(|ending| Line::styled(cut(format!("> {ending}")), app.look.here())));
    let here = handler.next.unwrap_or(all.len());
    around(all, here, rows)
}

/// The lines of the text around the current one; long ones are wrapped.
fn text(app: &App, source: &Source, rows: usize, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(NUMBER + 1).max(1);
    let (mut all, mut current) = (Vec::new(), 0);
    for (number, line) in (1..).zip(&source.lines) {
        let here = number == source.line;
        if here {
            current = all.len();
        }
        let mark = if here { '>' } else { ' ' };
        let characters: Vec<char> = printable(line).chars().collect();
        for (n, piece) in characters.chunks(room).chain(line.is_empty().then_some([].as_slice())).enumerate()
        {
            let piece: String = piece.iter().collect();
            let text =
                if n == 0 { format!("{mark}{number:5}  {piece}") } else { format!("{:NUMBER$}{piece}", "") };
            all.push(if here { Line::styled(text, app.look.here()) } else { Line::from(text) });
        }
    }
    around(all, current, rows)
}

/// The operand stack, variables, log and the rest, each with its name.
fn state(app: &App, handler: &Handler, width: usize) -> Vec<Line<'static>> {
    let Handler { program, place, stack, locals, globals, log, .. } = handler;
    let room = width.saturating_sub(NAME + 1).max(1);
    let numbers = |values: &[u64]| values.iter().map(|value| format!("{value:#x}")).collect::<Vec<_>>();
    let set = |values: &[u64], names: &[(usize, String)]| {
        let set = values.iter().enumerate().filter(|(_, value)| **value != 0);
        let name = |n| names.iter().find(|(own, _)| *own == n).map(|(_, name)| name.clone());
        let word =
            |(n, value): (usize, &u64)| format!("{}={value:#x}", name(n).unwrap_or_else(|| n.to_string()));
        let words: Vec<String> = set.map(word).collect();
        if words.is_empty() { vec!["all 0".to_owned()] } else { words }
    };
    let bytes = log.chunks(BYTES).map(|part| hex(part, HexStyle::Spaced)).collect::<Vec<_>>();
    let or_empty = |words: Vec<String>| if words.is_empty() { vec!["empty".to_owned()] } else { words };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut parts = vec![("stack", or_empty(numbers(stack))), ("log", or_empty(bytes))];
    parts.extend((!locals.is_empty()).then(|| ("locals", set(locals, &handler.local_names))));
    parts.extend((!globals.is_empty()).then(|| ("globals", set(globals, &[]))));
    parts.extend((handler.calls > 0).then(|| ("calls", vec![handler.calls.to_string()])));
    parts.extend(handler.exception.iter().map(|text| ("exception", words(text))));
    parts.extend(handler.changes.iter().map(|text| ("changed", words(text))));
    parts.push(("program", words(program)));
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
pub fn filled(words: Vec<String>, width: usize) -> Vec<String> {
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
