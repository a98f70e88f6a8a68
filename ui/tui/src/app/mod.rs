//! The state of the user interface, and how events change it. It draws nothing and waits for nothing: an action outside
//! of it is an [`Effect`].

mod columns;
mod exports;
mod goes;
mod layout;
mod memory;
mod palette;
mod perform;
mod probing;
mod prompt;
mod rows;
mod saved;
mod timeline;
mod update;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use ratatui::layout::Rect;
use trapline_providers::Target;
use trapline_session::trapline_d::Fields;
use trapline_session::{Ending, Moment, StopPoint};

use crate::action::Action;
use crate::hits::{Column, Filter, Hits, SHOWN, Sorted};
use crate::keys::Keys;
use crate::message::{Listing, Move, Request};
use crate::scene::{Register, Scene};
use crate::theme::Look;

pub use columns::Cell;
pub use exports::Export;
pub use layout::{Arrangement, PANES, Pane, Places, Resize, Shares, places};
pub use memory::MEMORY_LINE;
pub use palette::{Palette, matches};
pub use prompt::{Prompt, Purpose};
pub use saved::{Saved, SavedError};
pub use timeline::chart;

/// An action outside of the state.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Send a request to the travelling thread.
    Ask(Request),
    /// To list the hits anew.
    List(Listing),
    /// Cancel its current move.
    Cancel,
    /// Quit.
    Quit,
    /// Quit: a signal asks for it.
    Terminate,
    /// Go to the shell.
    Suspend,
    /// Take the terminal again.
    Continued,
    /// Draw everything again.
    Redraw,
    /// Take the mouse, or leave it to the terminal.
    Mouse(bool),
    /// Copy a pane's text to the clipboard.
    Copy(Pane),
    /// Write a pane's text to a file, which may be there already if the boolean is true.
    Export(Pane, PathBuf, bool),
}

/// A place that was visited.
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
    /// The text as it was typed.
    pub text: String,
    /// The stop point.
    pub point: StopPoint,
}

/// The state of playing hit after hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Play {
    /// Whether it is running.
    pub on: bool,
    /// Milliseconds per hit.
    pub pace: u64,
}

/// What runs in the background.
#[derive(Debug, Default)]
pub struct Travel {
    /// The current move, in words.
    pub busy: Option<String>,
    /// The hit to which it leads.
    pub aim: Option<usize>,
    /// Waiting moves.
    pub queue: VecDeque<(Move, Option<usize>, String)>,
    /// The starts of the earlier moves.
    pub undo: Vec<Spot>,
    /// Undone moves.
    pub redo: Vec<Spot>,
    /// Whether the current move cannot be undone.
    pub quiet: bool,
    /// Whether the next move is to the end of the run, when that is known.
    pub waits_for_end: bool,
    /// Whether the next move is to a later hit, when one is listed: to the next one, or, if true, to that of the same probe.
    pub waits_for_hit: Option<bool>,
}

/// The run, as far as it is known.
#[derive(Debug, Default)]
pub struct Run {
    /// Its name.
    pub title: String,
    /// The hash of its image.
    pub image: String,
    /// Its hits.
    pub hits: Hits,
    /// The instruction count up to which they are listed.
    pub listed: u64,
    /// The number of the listing: the run got other probes so often.
    pub number: u32,
    /// Its end.
    pub ended: Option<(Moment, Ending)>,
}

impl Run {
    /// Whether all its hits are listed.
    pub fn is_listed(&self) -> bool {
        self.ended.as_ref().is_some_and(|(end, _)| self.listed >= end.icount)
    }
}

/// The selections in the panes.
#[derive(Debug, Default)]
pub struct Selected {
    /// The row of the list of hits, as it is filtered and sorted.
    pub row: usize,
    /// The line of the code; none for that of the position.
    pub line: Option<usize>,
    /// The byte of the memory.
    pub byte: usize,
    /// The field of the memory, if a type's fields are shown.
    pub field: usize,
    /// The same of the memory that was shown before, the last one at the end.
    pub memory_before: Vec<(usize, usize)>,
    /// The frame of the stack.
    pub frame: usize,
    /// The probe point, of all programs.
    pub point: usize,
    /// The first line of each other pane; of those that begin at their end, how many lines they are scrolled
    /// back.
    pub first: BTreeMap<Pane, usize>,
}

/// The state.
pub struct App {
    /// The run.
    pub run: Run,
    /// The scene at the position of the timeline.
    pub scene: Option<Box<Scene>>,
    /// The registers before the last move.
    pub before: Vec<Register>,
    /// The memory that was shown before the last move, and its address.
    pub memory_before: Option<(u64, Vec<u8>)>,
    /// The fields of a type that were shown before the last move.
    pub typed_before: Option<Fields>,
    /// What was looked for in memory.
    pub found: String,
    /// What was typed last for each purpose.
    pub typed_last: BTreeMap<Purpose, String>,
    /// The current hit.
    pub cursor: Option<usize>,
    /// Moves.
    pub travel: Travel,
    /// Selections.
    pub selected: Selected,
    /// All panes, the most recently focused first.
    pub recent: Vec<Pane>,
    /// Whether the focused pane fills the screen.
    pub zoomed: bool,
    /// The layout.
    pub arrangement: Arrangement,
    /// The sizes that were given to places.
    pub shares: Shares,
    /// Whether scenes are to have the channels of drivers.
    pub with_channels: bool,
    /// How far each pane on the screen can be scrolled.
    pub ends: BTreeMap<Pane, usize>,
    /// Size of the terminal.
    pub size: Rect,
    /// The colours and characters of the screen.
    pub look: Look,
    /// Whether the mouse is used.
    pub mouse: bool,
    /// The typed line.
    pub prompt: Option<Prompt>,
    /// The palette.
    pub palette: Option<Palette>,
    /// The first line of the help, if it is shown.
    pub help: Option<usize>,
    /// The last message.
    pub message: Option<String>,
    /// Breakpoints and watchpoints.
    pub marks: Vec<Mark>,
    /// Named positions.
    pub bookmarks: BTreeMap<String, u64>,
    /// The filter of hits.
    pub filter: Option<Filter>,
    /// How they are sorted; in the order of the run without it.
    pub sorted: Option<Sorted>,
    /// The columns of the list.
    pub columns: Vec<Column>,
    /// How often other rows or columns were chosen, or another order.
    pub orders: u64,
    /// What is being exported.
    pub export: Option<Export>,
    /// Playing.
    pub play: Play,
    /// How many times the timeline is halved.
    pub zoom: u32,
    /// Keys.
    pub keys: Keys,
    /// The text of the probe programs.
    pub programs: Vec<String>,
    /// Names of addresses.
    pub target: Arc<Target>,
}

/// Initial milliseconds per played hit.
const PACE: u64 = 500;

impl App {
    /// How often the timeline can be halved.
    pub const MOST_ZOOM: u32 = 40;

    /// The state at the beginning.
    pub fn new(title: String, target: Arc<Target>, look: Look, keys: Keys) -> Self {
        Self {
            run: Run { title, ..Run::default() },
            scene: None,
            before: Vec::new(),
            memory_before: None,
            typed_before: None,
            found: String::new(),
            typed_last: BTreeMap::new(),
            cursor: None,
            travel: Travel { busy: Some("opening".to_owned()), quiet: true, ..Travel::default() },
            selected: Selected::default(),
            recent: PANES.to_vec(),
            zoomed: false,
            arrangement: Arrangement::default(),
            shares: Shares::default(),
            with_channels: false,
            ends: BTreeMap::new(),
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
            sorted: None,
            columns: SHOWN.to_vec(),
            orders: 0,
            export: None,
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

    /// The places of all panes.
    pub fn places(&self) -> Places {
        places(self.size, self.arrangement, &self.shares, &self.recent, self.zoomed)
    }

    /// The position.
    pub fn at(&self) -> u64 {
        self.scene.as_ref().map_or(0, |scene| scene.at)
    }

    /// The current place, to return to.
    pub fn spot(&self) -> Option<Spot> {
        let scene = self.scene.as_ref()?;
        let executed = scene.handler.as_ref().map(|handler| handler.executed);
        Some(Spot { at: scene.at, hit: self.cursor, executed })
    }

    /// The last known position.
    pub fn end(&self) -> u64 {
        self.run.ended.as_ref().map_or(self.run.listed, |(end, _)| end.icount).max(self.at()).max(1)
    }

    /// The selected line of the code: the one that the user has selected, or that of the position.
    pub fn code_line(&self) -> usize {
        let Some(scene) = &self.scene else { return 0 };
        let here = || scene.code.iter().position(|line| line.address == scene.ip);
        self.selected.line.or_else(here).unwrap_or(0).min(scene.code.len().saturating_sub(1))
    }

    /// Whether the help shows an action of this name now.
    pub fn key_of(&self, action: Action) -> String {
        self.keys.of(action)
    }
}
