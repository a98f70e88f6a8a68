//! Events: of the terminal, and of the other threads.

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::{Margin, Position as Cell, Rect};

use super::{App, Effect, Pane, Purpose, chart, matches};
use crate::action::Action;
use crate::hits::{Batch, free_later};
use crate::keys::Key;
use crate::message::{Input, Request};

/// Most lines of a pane that has not been drawn.
const MOST_LINES: usize = 100_000;
/// Most characters of a typed line.
const MOST_TYPED: usize = 1000;

impl App {
    /// Handles an event.
    pub fn update(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = self.handle(input);
        effects.extend(self.ask_for_channels());
        effects
    }

    /// Channels are read only while they are on the screen, because all memory is searched for them.
    fn ask_for_channels(&mut self) -> Option<Effect> {
        let shown = self.places().panes.iter().any(|(pane, _)| *pane == Pane::Channels);
        let changed = std::mem::replace(&mut self.with_channels, shown) != shown;
        changed.then_some(Effect::Ask(Request::Channels(shown)))
    }

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Terminal(event, _) => self.terminal(event),
            Input::Gone => vec![Effect::Quit],
            Input::Terminate => vec![Effect::Terminate],
            Input::Written => Vec::new(),
            Input::Exported(path, wrote) => self.file_written(&path, wrote),
            Input::Stop => vec![Effect::Suspend],
            Input::Continued => vec![Effect::Continued],
            Input::Hits(number, batch, _) if number != self.run.number => {
                free_later(batch);
                Vec::new()
            }
            Input::Ended(number, ..) if number != self.run.number => Vec::new(),
            Input::Hits(_, batch, listed) => self.listed(batch, listed),
            Input::Ended(_, at, ending) => {
                self.run.listed = self.run.listed.max(at.icount);
                self.message = Some(format!("the run is listed to its end: {ending}"));
                self.run.ended = Some((at, ending.clone()));
                let mut effects = vec![Effect::Ask(Request::Ended(at, ending))];
                if self.travel.waits_for_end {
                    effects.extend(self.go_to_end());
                }
                effects.extend(self.go_to_awaited());
                effects
            }
            Input::Failed(why) => self.say(why),
            Input::Arrived(scene, how) => self.arrived(scene, how),
            Input::Changed(listing) => self.changed(*listing),
            Input::Completed(text, names) => self.completed(&text, names),
            Input::Shown(scene, failed) => self.shown_memory(scene, failed),
            Input::Found(scene, failed) => {
                self.travel.busy = None;
                let mut effects = self.shown_memory(scene, failed);
                effects.extend(self.next_waiting());
                effects
            }
        }
    }

    /// More of the run is listed. Its first listing comes while one travels; a later one comes to where one is.
    fn listed(&mut self, batch: Batch, listed: u64) -> Vec<Effect> {
        self.run.hits.add(batch);
        self.run.listed = self.run.listed.max(listed);
        if self.cursor.is_none()
            && self.travel.busy.is_none()
            && let Some(number) = self.scene.as_ref().and_then(|scene| self.hit_at(scene))
        {
            self.cursor = Some(number);
            self.selected.row = self.row_of(number);
        }
        self.go_to_awaited()
    }

    /// It is time to play the next hit.
    pub fn play_on(&mut self) -> Vec<Effect> {
        if self.play.on && self.travel.busy.is_none() { self.neighbour(true) } else { Vec::new() }
    }

    fn terminal(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key),
            Event::Mouse(mouse) if self.mouse => self.mouse(mouse),
            Event::Resize(width, height) => {
                self.size = Rect::new(0, 0, width, height);
                Vec::new()
            }
            Event::Paste(text) => {
                text.chars().filter(|c| !c.is_control()).for_each(|c| self.type_in(c));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn key(&mut self, event: KeyEvent) -> Vec<Effect> {
        if self.palette.is_some() {
            return self.key_in_palette(event);
        }
        if self.prompt.is_some() {
            return self.key_in_prompt(event);
        }
        let action = Key::pressed(event).and_then(|key| self.keys.action(&key));
        match (self.help, action) {
            (Some(_), Some(Action::Help | Action::Cancel | Action::Quit)) => {
                self.help = None;
                Vec::new()
            }
            (_, Some(action)) => self.perform(action),
            (..) => Vec::new(),
        }
    }

    fn type_in(&mut self, c: char) {
        let text = match (&mut self.palette, &mut self.prompt) {
            (Some(palette), _) => &mut palette.text,
            (None, Some(prompt)) => &mut prompt.text,
            (None, None) => return,
        };
        if text.len() < MOST_TYPED {
            text.push(c);
        }
    }

    fn key_in_prompt(&mut self, event: KeyEvent) -> Vec<Effect> {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            KeyCode::Esc => self.prompt = None,
            KeyCode::Enter => return self.prompt.take().map_or_else(Vec::new, |prompt| self.typed(prompt)),
            KeyCode::Backspace => {
                if let Some(prompt) = &mut self.prompt {
                    prompt.text.pop();
                }
            }
            KeyCode::Tab => {
                let probe = self.prompt.as_ref().filter(|prompt| prompt.purpose == Purpose::Probe);
                return probe
                    .map(|prompt| Effect::Ask(Request::Complete(prompt.text.clone())))
                    .into_iter()
                    .collect();
            }
            KeyCode::Up => {
                if let Some(prompt) = &mut self.prompt
                    && let Some(last) = self.typed_last.get(&prompt.purpose)
                {
                    prompt.text.clone_from(last);
                }
            }
            KeyCode::Char('u') if control => self.prompt.iter_mut().for_each(|prompt| prompt.text.clear()),
            KeyCode::Char(c) if !control => self.type_in(c),
            _ => {}
        }
        Vec::new()
    }

    fn key_in_palette(&mut self, event: KeyEvent) -> Vec<Effect> {
        let Some(palette) = &mut self.palette else { return Vec::new() };
        let found = matches(&palette.text);
        match event.code {
            KeyCode::Esc => self.palette = None,
            KeyCode::Enter => {
                let chosen = found.get(palette.selected).map(|entry| entry.action);
                self.palette = None;
                return chosen.map_or_else(Vec::new, |action| self.perform(action));
            }
            KeyCode::Up => palette.selected = palette.selected.saturating_sub(1),
            KeyCode::Down => palette.selected = (palette.selected + 1).min(found.len().saturating_sub(1)),
            KeyCode::Backspace => {
                palette.text.pop();
                palette.selected = 0;
            }
            KeyCode::Char(c) if !event.modifiers.contains(KeyModifiers::CONTROL) => {
                palette.selected = 0;
                self.type_in(c);
            }
            _ => {}
        }
        Vec::new()
    }

    fn mouse(&mut self, event: MouseEvent) -> Vec<Effect> {
        let cell = Cell::new(event.column, event.row);
        let places = self.places();
        if places.head.contains(cell) {
            return match event.kind {
                MouseEventKind::ScrollUp => self.perform(Action::TimeIn),
                MouseEventKind::ScrollDown => self.perform(Action::TimeOut),
                MouseEventKind::Down(MouseButton::Left) if event.row > 0 => {
                    self.click_time(event.column, places.head)
                }
                _ => Vec::new(),
            };
        }
        let Some((pane, rect)) = places.panes.into_iter().find(|(_, rect)| rect.contains(cell)) else {
            return Vec::new();
        };
        match event.kind {
            MouseEventKind::ScrollUp if pane == Pane::Timeline => self.perform(Action::TimeIn),
            MouseEventKind::ScrollDown if pane == Pane::Timeline => self.perform(Action::TimeOut),
            MouseEventKind::ScrollUp | MouseEventKind::ScrollDown => {
                let focused = self.focused();
                self.focus(pane);
                let up = event.kind == MouseEventKind::ScrollUp;
                let done =
                    (0..3).flat_map(|_| self.perform(if up { Action::Up } else { Action::Down })).collect();
                self.focus(focused);
                done
            }
            MouseEventKind::Down(MouseButton::Left) => {
                self.focus(pane);
                if pane == Pane::Timeline {
                    let chart = chart(rect.inner(Margin::new(1, 1)));
                    let inside = chart.contains(cell);
                    return if inside { self.click_time(event.column, chart) } else { Vec::new() };
                }
                if pane == Pane::Hits && event.row == rect.y + 1 {
                    return self.click_head(event.column, rect);
                }
                if pane == Pane::Hits && event.row > rect.y + 1 {
                    let height = usize::from(rect.height.saturating_sub(3));
                    let row = self.first_row(height) + usize::from(event.row - rect.y - 2);
                    if row < self.rows() {
                        self.selected.row = row;
                        return self.perform(Action::Enter);
                    }
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Sorts by a column; by the same one, the other way round.
    fn click_head(&mut self, column: u16, rect: Rect) -> Vec<Effect> {
        let room = usize::from(rect.width.saturating_sub(2));
        let character = usize::from(column.saturating_sub(rect.x + 1));
        match self.column_at(room, character) {
            Some(column) if self.is_sorted_by(column) => self.turn(),
            Some(column) => self.sort_by(column, false),
            None => Vec::new(),
        }
    }

    /// The first visible row of the list with this number of rows: the selected one is in the middle.
    pub fn first_row(&self, height: usize) -> usize {
        self.selected.row.saturating_sub(height / 2).min(self.rows().saturating_sub(height))
    }

    /// Moves the selection of the focused pane, or enters it.
    pub(super) fn scrolls(&mut self, action: Action) -> Vec<Effect> {
        let pane = self.focused();
        if action == Action::Enter {
            return self.enter(pane);
        }
        let page =
            self.places().panes.iter().find(|(shown, _)| *shown == pane).map_or(1, |(_, rect)| rect.height);
        let page = usize::from(page.saturating_sub(3)).max(1);
        if let Some(help) = &mut self.help {
            *help = moved(*help, action, page, crate::action::TABLE.len());
            return Vec::new();
        }
        let code_line = self.code_line();
        let rows = self.rows();
        let points = self.points().count();
        let Some(scene) = &self.scene else { return Vec::new() };
        match pane {
            Pane::Probes => self.selected.point = moved(self.selected.point, action, page, points),
            Pane::Hits => self.selected.row = moved(self.selected.row, action, page, rows),
            Pane::Code => self.selected.line = Some(moved(code_line, action, page, scene.code.len())),
            Pane::Stack => self.selected.frame = moved(self.selected.frame, action, page, scene.frames.len()),
            Pane::Memory => return self.scroll_memory(action, page),
            other => {
                let action = if other.begins_at_its_end() { opposite(action) } else { action };
                let end = self.ends.get(&other).copied().unwrap_or(MOST_LINES);
                let first = self.selected.first.entry(other).or_default();
                *first = moved((*first).min(end), action, page, end + 1);
            }
        }
        Vec::new()
    }

    fn enter(&mut self, pane: Pane) -> Vec<Effect> {
        let line = self.code_line();
        let Some(scene) = &self.scene else { return Vec::new() };
        match pane {
            Pane::Probes => self.switch_probe(),
            Pane::Console => self.perform(Action::TypeLine),
            Pane::Hits => self.hit_of(self.selected.row).map_or_else(Vec::new, |hit| self.go_to_hit(hit)),
            Pane::Code => {
                let target = scene.code.get(line).and_then(|line| line.target);
                self.selected.line = None;
                vec![Effect::Ask(Request::Code(target))]
            }
            Pane::Stack => {
                let ip = scene.frames.get(self.selected.frame).map(|frame| frame.ip);
                self.focus(Pane::Code);
                vec![Effect::Ask(Request::Code(ip))]
            }
            Pane::Memory => self.follow_memory(),
            _ => Vec::new(),
        }
    }
}

/// The same the other way.
const fn opposite(action: Action) -> Action {
    match action {
        Action::Up => Action::Down,
        Action::Down => Action::Up,
        Action::PageUp => Action::PageDown,
        Action::PageDown => Action::PageUp,
        Action::Top => Action::Bottom,
        Action::Bottom => Action::Top,
        other => other,
    }
}

/// Moves a selection among `count` items.
pub(super) fn moved(at: usize, action: Action, page: usize, count: usize) -> usize {
    let to = match action {
        Action::Up => at.saturating_sub(1),
        Action::Down => at + 1,
        Action::PageUp => at.saturating_sub(page),
        Action::PageDown => at + page,
        Action::Top => 0,
        Action::Bottom => count,
        _ => at,
    };
    to.min(count.saturating_sub(1))
}
