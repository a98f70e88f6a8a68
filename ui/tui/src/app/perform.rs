//! Performs actions.

use trapline_session::{Position, StopPoint, Timeline};

use super::{App, Effect, Mark, Palette, Pane, Prompt, Purpose, Resize};
use crate::action::Action;
use crate::hits::{Filter, names};
use crate::message::{Move, Request, Wish};

/// The shortest and the longest time per played hit, ms.
const PACES: (u64, u64) = (50, 8000);

impl App {
    /// Performs an action.
    pub fn perform(&mut self, action: Action) -> Vec<Effect> {
        self.message = None;
        match action {
            Action::Quit => vec![Effect::Quit],
            Action::Suspend => vec![Effect::Suspend],
            Action::Redraw => vec![Effect::Redraw],
            Action::Help => self.shows(|app| app.help = Some(0)),
            Action::Palette => self.shows(|app| app.palette = Some(Palette::default())),
            Action::Zoom => self.shows(|app| app.zoomed = !app.zoomed),
            Action::Layout => self.next_layout(),
            Action::Taller => self.resize(Resize::Height(true)),
            Action::Shorter => self.resize(Resize::Height(false)),
            Action::Wider => self.resize(Resize::Width(true)),
            Action::Narrower => self.resize(Resize::Width(false)),
            Action::Hide => self.resize(Resize::Hide),
            Action::Theme => self.shows(|app| app.look = app.look.next()),
            Action::TimeIn => self.shows(|app| app.zoom = (app.zoom + 1).min(Self::MOST_ZOOM)),
            Action::TimeOut => self.shows(|app| app.zoom = app.zoom.saturating_sub(1)),
            Action::Mouse => {
                self.mouse = !self.mouse;
                self.message =
                    Some(format!("mouse: {}", if self.mouse { "on" } else { "left to the terminal" }));
                vec![Effect::Mouse(self.mouse)]
            }
            Action::Copy => vec![Effect::Copy(self.focused())],
            Action::Cancel => self.cancel(),
            Action::FocusNext => self.focus_next(true),
            Action::FocusPrevious => self.focus_next(false),
            Action::Goto => self.ask(Purpose::Goto),
            Action::Filter => self.ask(Purpose::Filter),
            Action::Breakpoint => self.ask(Purpose::Breakpoint),
            Action::Watchpoint => self.ask(Purpose::Watchpoint),
            Action::Memory => self.ask(Purpose::Memory),
            Action::ContinueWhen => self.ask(Purpose::When),
            Action::ReverseWhen => self.ask(Purpose::BackWhen),
            Action::LastChange => self.ask(Purpose::Register),
            Action::Find => self.ask(Purpose::Find),
            Action::MemoryBack => self.memory_back(),
            Action::Unfold => self.unfold(),
            Action::Bookmark => self.ask(Purpose::Bookmark),
            Action::Export => self.ask(Purpose::Export),
            Action::Columns => self.ask(Purpose::Columns),
            Action::Sort => self.sort_by_next(),
            Action::Turn => self.turn(),
            Action::AddProbe => self.ask(Purpose::Probe),
            Action::TypeLine => self.ask(Purpose::Line),
            Action::SwitchProbe => self.switch_probe(),
            Action::Play => self.shows(|app| app.play.on = !app.play.on),
            Action::Faster => self.shows(|app| app.play.pace = (app.play.pace / 2).max(PACES.0)),
            Action::Slower => self.shows(|app| app.play.pace = (app.play.pace * 2).min(PACES.1)),
            _ => match pane_of(action) {
                Some(pane) => self.shows(|app| app.focus(pane)),
                None => self.travels(action),
            },
        }
    }

    fn travels(&mut self, action: Action) -> Vec<Effect> {
        let to = |to: Move, words: &str, app: &mut Self| app.go(to, None, words.to_owned());
        match action {
            Action::NextHit => self.neighbour(true),
            Action::PreviousHit => self.neighbour(false),
            Action::NextOfProbe => self.neighbour_of_probe(true),
            Action::PreviousOfProbe => self.neighbour_of_probe(false),
            Action::Undo => self.retrace(true),
            Action::Redo => self.retrace(false),
            Action::Step => to(Move::Step(1), "one instruction forward", self),
            Action::Back => to(Move::Back(1), "one instruction back", self),
            Action::Over => to(Move::Over, "over the call", self),
            Action::BackOver => to(Move::BackOver, "back over the call", self),
            Action::Finish => to(Move::Finish, "to the return", self),
            Action::Caller => to(Move::Caller, "to the call", self),
            Action::IntoHit => {
                self.focus(Pane::Handler);
                self.go_within(Move::IntoHit, "into the hit")
            }
            Action::StepOperation => self.go_within(Move::Operations(1), "one operation forward"),
            Action::BackOperation => self.go_within(Move::OperationsBack(1), "one operation back"),
            Action::Out => self.go_within(Move::Out, "out of the hit"),
            Action::First => to(Move::To(Position::At { icount: 0, ordinal: 0 }), "to the beginning", self),
            Action::End => self.go_to_end(),
            Action::Continue | Action::Reverse => self.go_to_marks(action == Action::Continue),
            Action::RunToCursor => self.go_to_line(true),
            Action::ReverseToCursor => self.go_to_line(false),
            Action::Writer => self.go_to_writer(),
            _ => self.scrolls(action),
        }
    }

    fn shows(&mut self, change: impl FnOnce(&mut Self)) -> Vec<Effect> {
        change(self);
        Vec::new()
    }

    fn next_layout(&mut self) -> Vec<Effect> {
        self.arrangement = self.arrangement.next();
        self.say(format!("layout: {}", self.arrangement.name()))
    }

    fn ask(&mut self, purpose: Purpose) -> Vec<Effect> {
        let text = match (purpose, &self.filter) {
            (Purpose::Filter, Some(filter)) => filter.text().to_owned(),
            (Purpose::Columns, _) => names(&self.columns),
            (Purpose::Find, _) => self.found.clone(),
            (Purpose::Breakpoint, _) => self.selected_code().map(|at| format!("{at:#x}")).unwrap_or_default(),
            (Purpose::Watchpoint, _) => self.selected_range().unwrap_or_default(),
            (Purpose::Export, _) => format!("{}.txt", self.focused().name().to_lowercase()),
            _ => String::new(),
        };
        self.shows(|app| app.prompt = Some(Prompt { purpose, text, found: Vec::new() }))
    }

    fn cancel(&mut self) -> Vec<Effect> {
        self.play.on = false;
        if std::mem::take(&mut self.travel.waits_for_end) {
            return self.say("the end is not waited for".to_owned());
        }
        if self.travel.waits_for_hit.take().is_some() {
            return self.say("no hit is waited for".to_owned());
        }
        if self.stop_export() {
            return Vec::new();
        }
        if self.travel.busy.is_some() {
            self.travel.queue.clear();
            return vec![Effect::Cancel];
        }
        if self.filter.take().is_some() {
            self.sort_again();
            self.selected.row = self.cursor.map_or(0, |hit| self.row_of(hit));
        }
        Vec::new()
    }

    /// Focuses a pane.
    pub(super) fn focus(&mut self, pane: Pane) {
        self.recent.retain(|other| *other != pane);
        self.recent.insert(0, pane);
        let _ = self.shares.change(self.arrangement, self.size, pane, Resize::Show);
    }

    /// Changes the room of the focused pane.
    fn resize(&mut self, how: Resize) -> Vec<Effect> {
        let pane = self.focused();
        if let Err(sentence) = self.shares.change(self.arrangement, self.size, pane, how) {
            return self.say(sentence);
        }
        if how == Resize::Hide {
            self.recent.rotate_left(1);
            let shown = self.places().panes.first().map(|(pane, _)| *pane);
            shown.into_iter().for_each(|pane| self.focus(pane));
            return self.say(format!("{} is hidden; {} shows it", pane.name(), pane.key()));
        }
        Vec::new()
    }

    /// Focuses the next visible pane, in the order of the places.
    fn focus_next(&mut self, forwards: bool) -> Vec<Effect> {
        let shown: Vec<Pane> = if self.zoomed {
            super::PANES.to_vec()
        } else {
            self.places().panes.into_iter().map(|(pane, _)| pane).collect()
        };
        let here = shown.iter().position(|pane| *pane == self.focused()).unwrap_or(0);
        let next = (here + if forwards { 1 } else { shown.len().saturating_sub(1) }) % shown.len().max(1);
        if let Some(pane) = shown.get(next) {
            self.focus(*pane);
        }
        Vec::new()
    }

    /// Goes to the end of the run. While that is not known, this waits for it, and the second time goes as far as the run is
    /// listed.
    pub(super) fn go_to_end(&mut self) -> Vec<Effect> {
        let waits = std::mem::take(&mut self.travel.waits_for_end);
        let to = match (self.run.ended.is_some(), self.run.listed) {
            (true, _) => Position::BeforeEnd(0),
            (false, listed) if waits && listed > self.at() => Position::At { icount: listed, ordinal: 0 },
            (false, listed) => {
                self.travel.waits_for_end = true;
                return self.say(format!(
                    "waiting for the end of the run, which is at {listed}; `>` again goes as far as that, Esc stops waiting"
                ));
            }
        };
        self.go(Move::To(to), None, "to the end".to_owned())
    }

    fn go_to_marks(&mut self, forwards: bool) -> Vec<Effect> {
        // A handler may ask for a debugger, too.
        let points: Vec<StopPoint> = self.marks.iter().map(|mark| mark.point.clone()).collect();
        match forwards {
            true => self.go(Move::Until(points), None, "to a breakpoint".to_owned()),
            false => self.go(Move::BackTo(points), None, "back to a breakpoint".to_owned()),
        }
    }

    /// The address of the selected instruction, if the code is focused.
    fn selected_code(&self) -> Option<u64> {
        let line = self.scene.as_ref()?.code.get(self.code_line())?;
        (self.focused() == Pane::Code).then_some(line.address)
    }

    /// The selected memory as a watchpoint is typed, if the memory is focused.
    fn selected_range(&self) -> Option<String> {
        let (at, length) = self.selected_memory().filter(|_| self.focused() == Pane::Memory)?;
        Some(if length == 1 { format!("{at:#x}") } else { format!("{at:#x}:{length}") })
    }

    fn go_to_line(&mut self, forwards: bool) -> Vec<Effect> {
        let line = self.code_line();
        let Some(address) =
            self.scene.as_ref().and_then(|scene| scene.code.get(line)).map(|line| line.address)
        else {
            return Vec::new();
        };
        let points = vec![Timeline::breakpoint(address)];
        match forwards {
            true => self.go(Move::Until(points), None, format!("to {address:#x}")),
            false => self.go(Move::BackTo(points), None, format!("back to {address:#x}")),
        }
    }

    /// Carries out the typed line.
    pub(super) fn typed(&mut self, Prompt { purpose, text: whole, .. }: Prompt) -> Vec<Effect> {
        self.typed_last.insert(purpose, whole.clone());
        let text = whole.trim();
        let done = match purpose {
            Purpose::Goto => self.typed_position(text),
            Purpose::Filter => Filter::parse(text).map_err(|error| error.to_string()).map(|filter| {
                (self.filter, self.selected.row) = (filter, 0);
                self.sort_again();
                Vec::new()
            }),
            Purpose::Breakpoint => self
                .breakpoints(text)
                .map(|points| points.into_iter().flat_map(|(text, point)| self.mark(&text, point)).collect()),
            Purpose::Watchpoint => {
                let text = format!("write {text}");
                self.watchpoint(text.trim_start_matches("write ")).map(|point| self.mark(&text, point))
            }
            Purpose::Memory => Ok(self.look_at(Request::Expression(text.to_owned()))),
            Purpose::When => Ok(self.go(Move::When(text.to_owned(), true), None, format!("to when {text}"))),
            Purpose::BackWhen => {
                Ok(self.go(Move::When(text.to_owned(), false), None, format!("back to when {text}")))
            }
            Purpose::Register => {
                Ok(self.go(Move::Change(text.to_owned()), None, format!("to the last change of {text}")))
            }
            Purpose::Find => self.find(text),
            Purpose::Bookmark => self.bookmark(text),
            Purpose::Columns => self.choose_columns(text),
            Purpose::Probe if text.is_empty() => Err("a probe needs a name".to_owned()),
            Purpose::Probe => {
                let words = "to the same position of the run with this probe";
                Ok(self.change(Wish::Add(text.to_owned()), words))
            }
            Purpose::Line => self.type_line(&whole),
            Purpose::Export => self.export_to(text),
        };
        done.unwrap_or_else(|sentence| self.say(sentence))
    }

    /// Writes the focused pane to a file. `!` before the name replaces a file, as in a shell's `>!`.
    fn export_to(&self, text: &str) -> Result<Vec<Effect>, String> {
        let (name, replaces) = text.strip_prefix('!').map_or((text, false), |name| (name.trim_start(), true));
        if name.is_empty() {
            return Err("the file needs a name".to_owned());
        }
        if self.export.is_some() {
            return Err("a file is being written; Esc ends it".to_owned());
        }
        Ok(vec![Effect::Export(self.focused(), name.into(), replaces)])
    }

    /// Names this position.
    fn bookmark(&mut self, name: &str) -> Result<Vec<Effect>, String> {
        if name.is_empty() {
            return Err("a bookmark needs a name".to_owned());
        }
        if name.starts_with(['#', '+', '-']) || name.parse::<Position>().is_ok() {
            return Err(format!("`g` takes {name} for a position; give the bookmark another name"));
        }
        let at = self.at();
        let before = self.bookmarks.insert(name.to_owned(), at).filter(|before| *before != at);
        let before = before.map(|before| format!("; it was {before} before")).unwrap_or_default();
        Ok(self.say(format!("`g` and {name} comes back to {at}{before}")))
    }

    fn typed_position(&mut self, text: &str) -> Result<Vec<Effect>, String> {
        if let Some(number) = text.strip_prefix('#') {
            let number = trapline_session::numbers::count(number).map_err(|error| error.to_string())?;
            let hit = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
            return Ok(self.go_to_hit(hit.ok_or("hits count from 1: the first is #1")?));
        }
        if let Some((sign, number)) = text.split_at_checked(1).filter(|(sign, _)| ["+", "-"].contains(sign)) {
            let number = trapline_session::numbers::count(number).map_err(|error| error.to_string())?;
            let to = if sign == "+" { Move::Step(number) } else { Move::Back(number) };
            return Ok(self.go(to, None, format!("by {text} instructions")));
        }
        let position = match self.bookmarks.get(text) {
            Some(icount) => Position::At { icount: *icount, ordinal: 0 },
            None => text.parse::<Position>().map_err(|error| error.to_string())?,
        };
        Ok(self.go(Move::To(position), None, format!("to {position}")))
    }

    /// Sets a breakpoint or watchpoint, or deletes it if it is set.
    fn mark(&mut self, text: &str, point: StopPoint) -> Vec<Effect> {
        let before = self.marks.len();
        self.marks.retain(|mark| mark.point != point);
        if self.marks.len() < before {
            return self.say(format!("deleted: {text}"));
        }
        self.marks.push(Mark { text: text.to_owned(), point });
        self.say(format!("set: {text}; `c` goes on to it, `C` back to it"))
    }
}

/// The pane that an action shows, if it shows one.
fn pane_of(action: Action) -> Option<Pane> {
    Some(match action {
        Action::ShowHits => Pane::Hits,
        Action::ShowCode => Pane::Code,
        Action::ShowRegisters => Pane::Registers,
        Action::ShowMemory => Pane::Memory,
        Action::ShowStack => Pane::Stack,
        Action::ShowHandler => Pane::Handler,
        Action::ShowConsole => Pane::Console,
        Action::ShowProbes => Pane::Probes,
        Action::ShowVariables => Pane::Variables,
        Action::ShowProcesses => Pane::Processes,
        Action::ShowTimeline => Pane::Timeline,
        Action::ShowChannels => Pane::Channels,
        _ => return None,
    })
}
