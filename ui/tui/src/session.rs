//! The loop: handles events, changes the state, draws it once, and carries out effects.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use trapline_session::Position;

use crate::app::{App, Effect, Pane, Saved, SavedError};
use crate::export::{Writer, in_home};
use crate::keys::{Keys, KeysError};
use crate::message::Input;
use crate::screen::Screen;
use crate::stats::{FRAME, FrameStats, ListStats, Turn};
use crate::theme::Look;
use crate::worker::{Opening, Workers};
use crate::{terminal, view};

/// Most events that are handled between two frames.
const MOST_EVENTS: usize = 256;
/// The longest wait for an event before the state is checked again.
const IDLE: Duration = Duration::from_millis(200);
/// How long to wait for a disk that has not written enough yet.
const DISK: Duration = Duration::from_millis(5);
/// The least time between two frames that only show how far the background is.
const CALM: Duration = Duration::from_millis(33);
/// Rows that are exported between two looks at the clock.
const ROWS: usize = 500;
/// Rows of a pane that are copied to the clipboard, at most.
const MOST_COPIED: usize = 1_000;

/// Why the user interface cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
    /// The file of keys is wrong.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The session file is wrong.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// A thread has panicked.
    #[error("the user interface has ended by a defect: {0}")]
    Panicked(String),
}

/// The state when the user has quit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Times of frames and answers.
    pub stats: FrameStats,
    /// The text of a session file.
    pub session: String,
    /// Whether a signal has ended it.
    pub terminated: bool,
}

/// What a user interface begins with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How the screen looks.
    pub look: Look,
    /// The text of a file of keys.
    pub keys: String,
    /// The texts of the probe programs.
    pub programs: Vec<String>,
    /// The text of a session file.
    pub session: Option<String>,
    /// Where the screen opens, if not at the beginning.
    pub at: Option<Position>,
}

/// Shows a run until the user quits.
///
/// # Errors
/// The terminal cannot be used, or the keys or the session file are wrong.
pub fn run(opening: Opening, settings: Settings) -> Result<Left, TuiError> {
    let Settings { look, keys, programs, session, at } = settings;
    let keys = Keys::changed_by(&keys)?;
    let mut app = App::new(opening.title.clone(), Arc::clone(&opening.target), look, keys);
    app.run.image.clone_from(&opening.image);
    app.programs = programs;
    if let Some(text) = session {
        app.restore(Saved::parse(&text)?)?;
    }
    let (told, inputs) = mpsc::channel();
    terminal::restore_at_panic();
    let signals = listen_to_signals(&told)?;
    let guard = terminal::Guard;
    terminal::enter(app.mouse)?;
    listen_to_terminal(&told);
    let mut workers = Workers::start(opening, &told);
    let screen = Screen::new(&told);
    let channel = (told, inputs);
    let shown = screen
        .and_then(|screen| Shown::new(app, channel, &mut workers, screen))
        .and_then(|shown| shown.show(at));
    workers.end();
    signals.close();
    drop(guard);
    match (shown, terminal::panicked()) {
        (_, Some(panic)) => Err(TuiError::Panicked(panic)),
        (shown, None) => Ok(shown?),
    }
}

fn listen_to_terminal(told: &Sender<Input>) {
    let told = told.clone();
    thread::spawn(move || {
        loop {
            let input = event::read().map_or(Input::Gone, |event| Input::Terminal(event, Instant::now()));
            let gone = matches!(input, Input::Gone);
            if told.send(input).is_err() || gone {
                return;
            }
        }
    });
}

fn listen_to_signals(told: &Sender<Input>) -> io::Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGCONT])?;
    let (handle, told) = (signals.handle(), told.clone());
    thread::spawn(move || {
        for signal in signals.forever() {
            let input = match signal {
                SIGTSTP => Input::Stop,
                SIGCONT => Input::Continued,
                _ => Input::Terminate,
            };
            if told.send(input).is_err() {
                return;
            }
        }
    });
    Ok(handle)
}

struct Shown<'a> {
    app: App,
    told: Sender<Input>,
    inputs: Receiver<Input>,
    workers: &'a mut Workers,
    screen: Screen,
    /// Whether the state has changed since the last frame.
    stale: bool,
    /// Whether more than what the background does has changed.
    urgent: bool,
    /// When the last frame was drawn.
    drawn: Instant,
    stats: FrameStats,
    /// When the first input was read that no frame has shown yet.
    unanswered: Option<Instant>,
    played: Instant,
    /// Whether a signal has ended it.
    terminated: bool,
    /// The file that is being written.
    writer: Option<Writer>,
}

/// What the loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It waits for an event.
    Waits,
    /// It goes on with an export when the disk has written more.
    WaitsForDisk,
    /// It goes on at once.
    GoesOn,
}

impl<'a> Shown<'a> {
    fn new(
        mut app: App,
        (told, inputs): (Sender<Input>, Receiver<Input>),
        workers: &'a mut Workers,
        screen: Screen,
    ) -> io::Result<Self> {
        app.size = screen.size()?;
        Ok(Self {
            app,
            told,
            inputs,
            workers,
            screen,
            stale: true,
            urgent: true,
            drawn: Instant::now(),
            stats: FrameStats::default(),
            unanswered: None,
            played: Instant::now(),
            terminated: false,
            writer: None,
        })
    }

    fn show(mut self, at: Option<Position>) -> io::Result<Left> {
        for effect in at.map(|at| self.app.open_at(at)).unwrap_or_default() {
            self.carry_out(effect)?;
        }
        self.go_on()?;
        self.writer.take().into_iter().for_each(Writer::end);
        let session = Saved::of(&self.app).to_string();
        let (bytes, logged) = self.app.run.hits.bytes();
        let list = ListStats { hits: self.app.run.hits.len(), bytes, logged };
        Ok(Left { stats: FrameStats { list, ..self.stats }, session, terminated: self.terminated })
    }

    /// Runs until the user quits.
    fn go_on(&mut self) -> io::Result<()> {
        self.draw(Turn::begin())?;
        let mut next = Next::Waits;
        loop {
            let first = match self.inputs.recv_timeout(self.patience(next)) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let turn = Turn::begin();
            let mut effects = self.take(first, turn);
            if self.app.play.on && self.played.elapsed() >= Duration::from_millis(self.app.play.pace) {
                self.played = Instant::now();
                effects.extend(self.app.play_on());
                (self.stale, self.urgent) = (true, true);
            }
            self.stale |= next == Next::GoesOn;
            next = self.tick();
            self.stale |= next == Next::GoesOn;
            for effect in effects {
                if self.carry_out(effect)? {
                    return Ok(());
                }
            }
            if terminal::panicked().is_some() {
                return Ok(());
            }
            self.draw(turn)?;
        }
    }

    /// Handles this event and those that wait, for a part of a frame's time.
    fn take(&mut self, first: Option<Input>, turn: Turn) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut next = first;
        for _ in 0..MOST_EVENTS {
            match next.take() {
                Some(Input::Written) => self.screen.written(),
                Some(input) => {
                    self.stale = true;
                    self.urgent |= !matches!(input, Input::Hits(..));
                    if let Input::Terminal(_, read) = &input {
                        self.unanswered.get_or_insert(*read);
                    }
                    effects.extend(self.app.update(input));
                }
                None => break,
            }
            if turn.elapsed() > FRAME / 4 {
                break;
            }
            next = self.inputs.try_recv().ok();
        }
        effects
    }

    /// Continues what is done in small steps, for a part of a frame's time.
    fn tick(&mut self) -> Next {
        let began = Instant::now();
        let mut more = true;
        while more && began.elapsed() < FRAME / 4 {
            more = self.app.tick();
        }
        match self.export(began) {
            Next::Waits if more => Next::GoesOn,
            next => next,
        }
    }

    /// Continues the export.
    fn export(&mut self, began: Instant) -> Next {
        let Some(writer) = &self.writer else { return Next::Waits };
        while let Some((pane, first)) = self.app.export_next() {
            if began.elapsed() > FRAME / 2 {
                return Next::GoesOn;
            }
            let text = view::plain(&self.app, pane, first, ROWS);
            if !writer.write((text, self.app.exports_last(ROWS))) {
                return Next::WaitsForDisk;
            }
            self.app.exported(ROWS);
        }
        // The thread ends by itself.
        self.writer = None;
        Next::Waits
    }

    /// How long to wait for an event.
    fn patience(&self, next: Next) -> Duration {
        let idle = match next {
            Next::GoesOn => return Duration::ZERO,
            Next::WaitsForDisk => DISK,
            Next::Waits => IDLE,
        };
        let pace = Duration::from_millis(self.app.play.pace);
        let played = self.app.play.on.then(|| pace.saturating_sub(self.played.elapsed()));
        let drawn = self.stale.then(|| CALM.saturating_sub(self.drawn.elapsed()));
        // A frame that the terminal has not read yet is reported.
        let drawn = drawn.filter(|_| !self.screen.is_busy());
        [played, drawn].into_iter().flatten().fold(idle, Duration::min)
    }

    /// Draws a frame, if the state has changed and the terminal has read the frame before. What the background does is not shown
    /// more often than the eye sees it.
    fn draw(&mut self, turn: Turn) -> io::Result<()> {
        let calm = !self.urgent && self.drawn.elapsed() < CALM;
        if !self.stale || calm || self.screen.is_busy() {
            return Ok(());
        }
        (self.stale, self.urgent, self.drawn) = (false, false, Instant::now());
        let app = &self.app;
        let mut ends = BTreeMap::new();
        self.screen.draw(|frame| ends = view::draw(app, frame))?;
        self.app.ends = ends;
        turn.end(&mut self.stats, self.unanswered.take());
        Ok(())
    }

    /// Carries out effects; returns whether one of them was to quit.
    fn carry_out(&mut self, effect: Effect) -> io::Result<bool> {
        match effect {
            Effect::Ask(request) => self.workers.ask(request),
            Effect::Cancel => self.workers.cancel(),
            Effect::List(listing) => self.workers.list(listing),
            Effect::Quit => return Ok(true),
            Effect::Terminate => {
                self.terminated = true;
                return Ok(true);
            }
            Effect::Suspend => {
                terminal::leave();
                signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
                self.come_back()?;
            }
            Effect::Continued => self.come_back()?,
            Effect::Redraw => self.screen.clear()?,
            Effect::Mouse(on) => terminal::mouse(on, self.screen.out())?,
            Effect::Copy(pane) => self.copy(pane)?,
            Effect::Export(_, path, false) if in_home(&path).is_file() => {
                let name = path.display();
                self.app.message = Some(format!("{name} is there already; `w` with !{name} replaces it"));
            }
            Effect::Export(pane, path, _) => {
                let path = in_home(&path);
                self.app.begin_export(pane, path.clone(), view::exported_rows(&self.app, pane));
                self.writer = Some(Writer::begin(path, &self.told)?);
                // What is short is written at once.
                self.export(Instant::now());
            }
        }
        Ok(false)
    }

    /// Copies a pane's text. Of a long list, that is what is on the screen and after it.
    fn copy(&mut self, pane: Pane) -> io::Result<()> {
        let all = view::exported_rows(&self.app, pane);
        let first =
            if all > MOST_COPIED { view::first_row(&self.app, pane).min(all - MOST_COPIED) } else { 0 };
        terminal::copy(&view::plain(&self.app, pane, first, MOST_COPIED), self.screen.out())?;
        self.app.message = Some(match all > MOST_COPIED {
            true => format!(
                "{MOST_COPIED} rows of {}, from row {} on, are copied; w writes all to a file",
                pane.name(),
                first + 1
            ),
            false => format!("{} is copied", pane.name()),
        });
        Ok(())
    }

    /// The terminal may have a different size now, and shows the output of other programs.
    fn come_back(&mut self) -> io::Result<()> {
        terminal::enter(self.app.mouse)?;
        self.unanswered = None;
        self.app.size = self.screen.size()?;
        self.screen.clear()
    }
}
