//! The state of the user interface, and how events change it. It draws nothing and waits for nothing: what is to be done
//! outside of it is an [`Effect`].

mod goes;
mod layout;
mod palette;
mod perform;
mod prompt;
mod update;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use ratatui::layout::Rect;
use trapline_providers::Target;
use trapline_session::{Ending, Moment, StopPoint};

use crate::action::Action;
use crate::hits::{Filter, Hits};
use crate::keys::Keys;
use crate::message::{Move, Request};
use crate::scene::{Register, Scene};
use crate::theme::Look;

pub use layout::{Arrangement, PANES, Pane, Places, places};
pub use palette::{Palette, matches};
pub use prompt::{Prompt, Purpose};

/// What is to be done outside of the state.
#[derive(Debug, Clone)]
pub enum Effect {
    /// To ask the travelling thread.
    Ask(Request),
    /// To cancel what it does.
    Cancel,
    /// To leave.
    Quit,
    /// To go to the shell.
    Suspend,
    /// To take the terminal again.
    Continued,
    /// To draw everything again.
    Redraw,
    /// To take the mouse, or to leave it to the terminal.
    Mouse(bool),
    /// To copy a pane's text to the clipboard.
    Copy(Pane),
    /// To write a pane's text to a file.
    Export(Pane, PathBuf),
}

/// A place that was gone to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The instruction count.
    pub at: u64,
    /// The number of the hit, if it was one.
    pub hit: Option<usize>,
    /// Within the hit: operations of the handlers that have been executed.
    pub executed: Option<u64>,
}

/// A breakpoint or watchpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// As it was written.
    pub text: String,
    /// What is met.
    pub point: StopPoint,
}

/// Hits are played one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Play {
    /// Whether it goes on.
    pub on: bool,
    /// Milliseconds for a hit.
    pub pace: u64,
}

/// What runs in the background.
#[derive(Debug, Default)]
pub struct Travel {
    /// The move that is under way, in words.
    pub busy: Option<String>,
    /// The hit that it leads to.
    pub aim: Option<usize>,
    /// Moves that follow.
    pub queue: VecDeque<(Move, Option<usize>, String)>,
    /// Where the moves before began.
    pub undo: Vec<Spot>,
    /// What was undone.
    pub redo: Vec<Spot>,
    /// Whether the move that is under way is not to be remembered.
    pub quiet: bool,
}

/// The run, as far as it is known.
#[derive(Debug, Default)]
pub struct Run {
    /// What it is called.
    pub title: String,
    /// Its hits.
    pub hits: Hits,
    /// How far they are listed.
    pub listed: u64,
    /// Where it ends.
    pub ended: Option<(Moment, Ending)>,
}

/// What is selected in a pane.
#[derive(Debug, Default)]
pub struct Selected {
    /// The row of the list of hits, filtered or not.
    pub row: usize,
    /// The line of the code; that of the position without one.
    pub line: Option<usize>,
    /// The byte of the memory.
    pub byte: usize,
    /// The frame of the stack.
    pub frame: usize,
    /// The first line of each other pane.
    pub first: BTreeMap<Pane, usize>,
}

/// The state.
pub struct App {
    /// The run.
    pub run: Run,
    /// What is to be seen where the timeline is.
    pub scene: Option<Box<Scene>>,
    /// The registers before the last move.
    pub before: Vec<Register>,
    /// The hit that it is at.
    pub cursor: Option<usize>,
    /// Moves.
    pub travel: Travel,
    /// Selections.
    pub selected: Selected,
    /// All panes, those focused last first.
    pub recent: Vec<Pane>,
    /// Whether the focused pane has all the room.
    pub zoomed: bool,
    /// The layout.
    pub arrangement: Arrangement,
    /// Size of the terminal.
    pub size: Rect,
    /// How the screen looks.
    pub look: Look,
    /// Whether the mouse is used.
    pub mouse: bool,
    /// What is typed.
    pub prompt: Option<Prompt>,
    /// The palette.
    pub palette: Option<Palette>,
    /// The first line of the help, if it is shown.
    pub help: Option<usize>,
    /// What was said last.
    pub message: Option<String>,
    /// Breakpoints and watchpoints.
    pub marks: Vec<Mark>,
    /// Named positions.
    pub bookmarks: BTreeMap<String, u64>,
    /// Which hits are shown.
    pub filter: Option<Filter>,
    /// Playing.
    pub play: Play,
    /// How often the timeline is halved.
    pub zoom: u32,
    /// Keys.
    pub keys: Keys,
    /// The text of the probe programs.
    pub programs: Vec<String>,
    /// Names of addresses.
    pub target: Arc<Target>,
}

/// Milliseconds for a hit that is played.
const PACE: u64 = 500;

impl App {
    /// The state at the beginning.
    pub fn new(title: String, target: Arc<Target>, look: Look, keys: Keys) -> Self {
        Self {
            run: Run { title, ..Run::default() },
            scene: None,
            before: Vec::new(),
            cursor: None,
            travel: Travel { busy: Some("opening".to_owned()), quiet: true, ..Travel::default() },
            selected: Selected::default(),
            recent: PANES.to_vec(),
            zoomed: false,
            arrangement: Arrangement::default(),
            size: Rect::new(0, 0, 80, 24),
            look,
            mouse: true,
            prompt: None,
            palette: None,
            help: None,
            message: None,
            marks: Vec::new(),
            bookmarks: BTreeMap::new(),
            filter: None,
            play: Play { on: false, pace: PACE },
            zoom: 0,
            keys,
            programs: Vec::new(),
            target,
        }
    }

    /// The focused pane.
    pub fn focused(&self) -> Pane {
        self.recent.first().copied().unwrap_or(Pane::Hits)
    }

    /// Where everything is.
    pub fn places(&self) -> Places {
        places(self.size, self.arrangement, &self.recent, self.zoomed)
    }

    /// How many rows the list has.
    pub fn rows(&self) -> usize {
        self.filter.as_ref().map_or_else(|| self.run.hits.len(), |filter| filter.rows().len())
    }

    /// The number of the hit of a row.
    pub fn hit_of(&self, row: usize) -> Option<usize> {
        match &self.filter {
            Some(filter) => filter.rows().get(row).map(|number| *number as usize),
            None => Some(row).filter(|row| *row < self.run.hits.len()),
        }
    }

    /// The row of a hit, or of the next one that is shown.
    pub fn row_of(&self, hit: usize) -> usize {
        match &self.filter {
            Some(filter) => filter.rows().partition_point(|number| (*number as usize) < hit),
            None => hit,
        }
    }

    /// The position.
    pub fn at(&self) -> u64 {
        self.scene.as_ref().map_or(0, |scene| scene.at)
    }

    /// Where it is, to come back to.
    pub fn spot(&self) -> Option<Spot> {
        let scene = self.scene.as_ref()?;
        let executed = scene.handler.as_ref().map(|handler| handler.executed);
        Some(Spot { at: scene.at, hit: self.cursor, executed })
    }

    /// The last position that is known.
    pub fn end(&self) -> u64 {
        self.run.ended.as_ref().map_or(self.run.listed, |(end, _)| end.icount).max(self.at()).max(1)
    }

    /// The line of the code that is selected: the chosen one, or that of the position.
    pub fn code_line(&self) -> usize {
        let Some(scene) = &self.scene else { return 0 };
        let here = || scene.code.iter().position(|line| line.address == scene.ip);
        self.selected.line.or_else(here).unwrap_or(0).min(scene.code.len().saturating_sub(1))
    }

    /// The part of the run that the timeline shows.
    pub fn window(&self) -> (u64, u64) {
        let end = self.end();
        let span = (end >> self.zoom.min(63)).max(64).min(end);
        let from = self.at().saturating_sub(span / 2).min(end - span);
        (from, from + span)
    }

    /// Whether an action of that name is in the help now.
    pub fn key_of(&self, action: Action) -> String {
        self.keys.of(action)
    }
}
