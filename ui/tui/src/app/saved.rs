//! What a session file keeps of the user interface: position, bookmarks, stop points, and how the screen is arranged.
//!
//! The file is text, a line for each thing: `bookmark 82014 first fault`. Its last line is `end`, so that one that is cut off
//! is known. Not in it: hits, and probes that were added.

use std::collections::BTreeMap;
use std::fmt;

use trapline_session::{Position, StopPoint, Timeline, Watch, WatchKind, numbers};

use super::{App, Arrangement, Mark, PANES, Pane, Shares};
use crate::hits::{Column, Filter, Sorted, columns, names};
use crate::message::Move;

/// The first line.
const FIRST: &str = "trapline tui session 1";
/// The last line.
const LAST: &str = "end";

/// A session file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// It is something else.
    #[error("its first line is not `{FIRST}`; give a file that --session has written, or a new one")]
    Other,
    /// Something is missing.
    #[error("its last line is not `{LAST}`: it is cut off")]
    Cut,
    /// A line is wrong.
    #[error("line {number}, `{line}`: {why}")]
    Line {
        /// Its number.
        number: usize,
        /// It.
        line: String,
        /// Why.
        why: String,
    },
    /// It does not say of which run it is.
    #[error("it has no line `run NAME`")]
    NoRun,
    /// It is of another run.
    #[error("it is of another run, {0}; this one is {1}")]
    OtherRun(String, String),
    /// It is of another run with the same name.
    #[error("it is of another run that is also named {0}: its image is another one")]
    OtherImage(String),
}

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    run: Option<String>,
    /// The hash of its image. Files of earlier versions have none.
    image: Option<String>,
    at: u64,
    layout: Arrangement,
    shares: Shares,
    panes: Vec<Pane>,
    zoomed: bool,
    timeline: u32,
    columns: Vec<Column>,
    sorted: Option<(Column, bool)>,
    filter: Option<String>,
    marks: Vec<Mark>,
    bookmarks: BTreeMap<String, u64>,
}

impl Saved {
    /// What the user interface has now.
    pub fn of(app: &App) -> Self {
        Self {
            run: Some(one_line(&app.run.title)),
            image: Some(app.run.image.clone()).filter(|image| !image.is_empty()),
            at: app.at(),
            layout: app.arrangement,
            shares: app.shares.clone(),
            panes: app.recent.clone(),
            zoomed: app.zoomed,
            timeline: app.zoom,
            columns: app.columns.clone(),
            sorted: app.sorted.as_ref().map(|sorted| (sorted.by(), sorted.descending())),
            filter: app.filter.as_ref().map(|filter| filter.text().to_owned()),
            marks: app.marks.clone(),
            bookmarks: app.bookmarks.clone(),
        }
    }

    /// Reads a session file's text.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn parse(text: &str) -> Result<Self, SavedError> {
        let lines: Vec<&str> = text.lines().collect();
        let (Some(&FIRST), Some((&last, rest))) = (lines.first(), lines.split_last()) else {
            return Err(SavedError::Other);
        };
        let mut saved = Self {
            run: None,
            image: None,
            at: 0,
            layout: Arrangement::default(),
            shares: Shares::default(),
            panes: PANES.to_vec(),
            zoomed: false,
            timeline: 0,
            columns: crate::hits::SHOWN.to_vec(),
            sorted: None,
            filter: None,
            marks: Vec::new(),
            bookmarks: BTreeMap::new(),
        };
        for (number, line) in (2..).zip(rest.iter().skip(1)) {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            let wrong = |why| SavedError::Line { number, line: (*line).to_owned(), why };
            saved.set(name, value).map_err(wrong)?;
        }
        match (last == LAST, &saved.run) {
            (false, _) => Err(SavedError::Cut),
            (true, None) => Err(SavedError::NoRun),
            (true, Some(_)) => Ok(saved),
        }
    }

    /// Takes a line.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "run" => self.run = Some(value.to_owned()),
            "image" => self.image = Some(value.to_owned()),
            "at" => self.at = count(value)?,
            "layout" => {
                let named = Arrangement::ALL.into_iter().find(|layout| layout.name() == value);
                self.layout = named.ok_or("there is no such layout")?;
            }
            "shares" => self.shares.read(value)?,
            "panes" => self.panes = panes(value)?,
            "zoomed" => {
                self.zoomed = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err("write yes or no".to_owned()),
                }
            }
            "timeline" => {
                self.timeline = numbers::within(value, 0, u64::from(App::MOST_ZOOM))
                    .map_err(|error| error.to_string())? as u32;
            }
            "columns" => self.columns = columns(value).map_err(|error| error.to_string())?,
            "sorted" => {
                let (by, direction) = value.split_once(' ').unwrap_or((value, ""));
                let by = Column::named(by).map_err(|error| error.to_string())?;
                match direction {
                    "up" => self.sorted = Some((by, false)),
                    "down" => self.sorted = Some((by, true)),
                    _ => return Err("the direction is up or down".to_owned()),
                }
            }
            "filter" => {
                Filter::parse(value).map_err(|error| error.to_string())?;
                self.filter = Some(value.to_owned());
            }
            "breakpoint" => {
                let (at, text) = first_word(value)?;
                self.mark(Timeline::breakpoint(count(at)?), text);
            }
            "watchpoint" => {
                let (low, rest) = first_word(value)?;
                let (high, text) = first_word(rest)?;
                let (low, high) = (count(low)?, count(high)?);
                if low > high {
                    return Err("the range ends before it begins; write the lower address first".to_owned());
                }
                self.mark(StopPoint::Watch(Watch { kind: WatchKind::Write, low, high }), text);
            }
            "bookmark" => {
                let (at, text) = first_word(value)?;
                self.bookmarks.insert(text.to_owned(), count(at)?);
            }
            _ => return Err("a session file has no such line".to_owned()),
        }
        Ok(())
    }

    fn mark(&mut self, point: StopPoint, text: &str) {
        self.marks.push(Mark { text: text.to_owned(), point });
    }
}

/// A name that fits a line.
fn one_line(name: &str) -> String {
    name.split(char::is_control).collect::<Vec<_>>().join(" ")
}

fn count(text: &str) -> Result<u64, String> {
    numbers::count(text).map_err(|error| error.to_string())
}

/// The first word and the rest.
fn first_word(text: &str) -> Result<(&str, &str), String> {
    text.split_once(' ')
        .filter(|(_, rest)| !rest.is_empty())
        .ok_or_else(|| "a value is missing at its end".to_owned())
}

/// The panes, those focused last first.
fn panes(text: &str) -> Result<Vec<Pane>, String> {
    let named = |word: &str| PANES.into_iter().find(|pane| pane.name().eq_ignore_ascii_case(word));
    let read: Option<Vec<Pane>> = text.split(' ').map(named).collect();
    let once = |panes: &Vec<Pane>| {
        (1..).zip(panes).all(|(n, pane)| panes.get(n..).is_none_or(|rest| !rest.contains(pane)))
    };
    let read = read.filter(once).ok_or_else(|| "it needs the names of panes, each once".to_owned())?;
    // Those that the file does not know come last.
    let others = PANES.into_iter().filter(|pane| !read.contains(pane));
    Ok(read.iter().copied().chain(others).collect())
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let panes: Vec<String> = self.panes.iter().map(|pane| pane.name().to_lowercase()).collect();
        writeln!(f, "{FIRST}\nrun {}", self.run.as_deref().unwrap_or_default())?;
        if let Some(image) = &self.image {
            writeln!(f, "image {image}")?;
        }
        writeln!(f, "at {}", self.at)?;
        writeln!(f, "layout {}\npanes {}", self.layout.name(), panes.join(" "))?;
        for line in self.shares.lines() {
            writeln!(f, "shares {line}")?;
        }
        writeln!(f, "zoomed {}\ntimeline {}", if self.zoomed { "yes" } else { "no" }, self.timeline)?;
        writeln!(f, "columns {}", names(&self.columns))?;
        if let Some((by, descending)) = self.sorted {
            writeln!(f, "sorted {} {}", by.name(), if descending { "down" } else { "up" })?;
        }
        if let Some(filter) = &self.filter {
            writeln!(f, "filter {filter}")?;
        }
        for Mark { text, point } in &self.marks {
            match point {
                StopPoint::Watch(Watch { kind: WatchKind::Execute, low, .. }) => {
                    writeln!(f, "breakpoint {low:#x} {text}")?;
                }
                StopPoint::Watch(Watch { low, high, .. }) => {
                    writeln!(f, "watchpoint {low:#x} {high:#x} {text}")?;
                }
                // The user interface sets no others.
                _ => {}
            }
        }
        for (name, at) in &self.bookmarks {
            writeln!(f, "bookmark {at} {name}")?;
        }
        writeln!(f, "{LAST}")
    }
}

impl App {
    /// Takes what a session file has kept. When the run is open, it goes to its position.
    ///
    /// # Errors
    /// It is of another run.
    pub fn restore(&mut self, saved: Saved) -> Result<(), SavedError> {
        let run = saved.run.unwrap_or_default();
        let own = one_line(&self.run.title);
        let is_same = match &saved.image {
            // A recording may have been given another name.
            Some(image) => *image == self.run.image,
            None => run == own,
        };
        if !is_same {
            return Err(match run == own {
                true => SavedError::OtherImage(run),
                false => SavedError::OtherRun(run, own),
            });
        }
        (self.arrangement, self.recent, self.zoomed, self.zoom) =
            (saved.layout, saved.panes, saved.zoomed, saved.timeline);
        self.shares = saved.shares;
        self.columns = saved.columns;
        self.filter = saved.filter.and_then(|text| Filter::parse(&text).ok().flatten());
        self.sorted = saved.sorted.map(|(by, descending)| Sorted::new(by, descending));
        (self.marks, self.bookmarks) = (saved.marks, saved.bookmarks);
        if saved.at > 0 {
            let to = Move::To(Position::At { icount: saved.at, ordinal: 0 });
            self.travel.queue.push_back((to, None, format!("to {}", saved.at)));
        }
        Ok(())
    }
}
