//! The loop: handles events, changes the state, draws it once, and carries out effects.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use crate::app::{App, Effect, Saved, SavedError};
use crate::keys::{Keys, KeysError};
use crate::message::Input;
use crate::screen::Screen;
use crate::theme::Look;
use crate::worker::{Opening, Workers};
use crate::{terminal, view};

/// Most events that are handled between two frames.
const MOST_EVENTS: usize = 256;
/// The longest wait for an event before the state is checked again.
const IDLE: Duration = Duration::from_millis(200);

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
    /// Times of the frames.
    pub stats: FrameStats,
    /// The text of a session file.
    pub session: String,
}

/// Times of the frames that were drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameStats {
    /// Their number.
    pub frames: u64,
    /// The longest time from events to the finished frame. Another thread writes it to the terminal.
    pub longest: Duration,
    /// The number of frames that took more than 16 ms.
    pub late: u64,
}

/// The time that a frame may take.
const FRAME: Duration = Duration::from_millis(16);

impl std::fmt::Display for FrameStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let longest = self.longest.as_secs_f64() * 1e3;
        write!(f, "{} frames, the longest {longest:.1} ms, {} over 16 ms", self.frames, self.late)
    }
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
}

/// Shows a run until the user quits.
///
/// # Errors
/// The terminal cannot be used, or the keys or the session file are wrong.
pub fn run(opening: Opening, settings: Settings) -> Result<Left, TuiError> {
    let Settings { look, keys, programs, session } = settings;
    let keys = Keys::changed_by(&keys)?;
    let mut app = App::new(opening.title.clone(), Arc::clone(&opening.target), look, keys);
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
    drop(told);
    let shown = screen.and_then(|screen| Shown::new(app, inputs, &mut workers, screen)).and_then(Shown::show);
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
            let input = event::read().map_or(Input::Gone, Input::Terminal);
            let gone = matches!(input, Input::Gone);
            if told.send(input).is_err() || gone {
                return;
            }
        }
    });
}

fn listen_to_signals(told: &Sender<Input>) -> io::Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT])?;
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
    inputs: Receiver<Input>,
    workers: &'a mut Workers,
    screen: Screen,
    /// Whether the state has changed since the last frame.
    stale: bool,
    stats: FrameStats,
    played: Instant,
}

impl<'a> Shown<'a> {
    fn new(
        mut app: App,
        inputs: Receiver<Input>,
        workers: &'a mut Workers,
        screen: Screen,
    ) -> io::Result<Self> {
        app.size = screen.size()?;
        let (stats, played) = (FrameStats::default(), Instant::now());
        Ok(Self { app, inputs, workers, screen, stale: true, stats, played })
    }

    fn show(mut self) -> io::Result<Left> {
        self.go_on()?;
        let session = Saved::of(&self.app).to_string();
        Ok(Left { stats: self.stats, session })
    }

    /// Runs until the user quits.
    fn go_on(&mut self) -> io::Result<()> {
        self.draw(Instant::now())?;
        let mut more = false;
        loop {
            let first = match self.inputs.recv_timeout(self.patience(more)) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let began = Instant::now();
            let mut effects = self.take(first, began);
            if self.app.play.on && self.played.elapsed() >= Duration::from_millis(self.app.play.pace) {
                self.played = Instant::now();
                effects.extend(self.app.play_on());
                self.stale = true;
            }
            self.stale |= more;
            more = self.tick();
            self.stale |= more;
            for effect in effects {
                if self.carry_out(effect)? {
                    return Ok(());
                }
            }
            if terminal::panicked().is_some() {
                return Ok(());
            }
            self.draw(began)?;
        }
    }

    /// Handles this event and those that wait, for a part of a frame's time.
    fn take(&mut self, first: Option<Input>, began: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut next = first;
        for _ in 0..MOST_EVENTS {
            match next.take() {
                Some(Input::Written) => self.screen.written(),
                Some(input) => {
                    self.stale = true;
                    effects.extend(self.app.update(input));
                }
                None => break,
            }
            if began.elapsed() > FRAME / 4 {
                break;
            }
            next = self.inputs.try_recv().ok();
        }
        effects
    }

    /// Continues what is done in small steps, for a part of a frame's time; returns whether there is more to do.
    fn tick(&mut self) -> bool {
        let began = Instant::now();
        while self.app.tick() {
            if began.elapsed() > FRAME / 4 {
                return true;
            }
        }
        false
    }

    /// How long to wait for an event.
    fn patience(&self, more: bool) -> Duration {
        match (more, self.app.play.on) {
            (true, _) => Duration::ZERO,
            (false, true) => Duration::from_millis(self.app.play.pace).saturating_sub(self.played.elapsed()),
            (false, false) => IDLE,
        }
    }

    /// Draws a frame, if the state has changed and the terminal has read the frame before.
    fn draw(&mut self, began: Instant) -> io::Result<()> {
        if !self.stale || self.screen.is_busy() {
            return Ok(());
        }
        self.stale = false;
        let app = &self.app;
        self.screen.draw(|frame| view::draw(app, frame))?;
        let took = began.elapsed();
        self.stats.frames += 1;
        self.stats.longest = self.stats.longest.max(took);
        self.stats.late += u64::from(took > FRAME);
        Ok(())
    }

    /// Carries out effects; returns whether one of them was to quit.
    fn carry_out(&mut self, effect: Effect) -> io::Result<bool> {
        match effect {
            Effect::Ask(request) => self.workers.ask(request),
            Effect::Cancel => self.workers.cancel(),
            Effect::List(listing) => self.workers.list(listing),
            Effect::Quit => return Ok(true),
            Effect::Suspend => {
                terminal::leave();
                signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
                self.come_back()?;
            }
            Effect::Continued => self.come_back()?,
            Effect::Redraw => self.screen.clear()?,
            Effect::Mouse(on) => terminal::mouse(on, self.screen.out())?,
            Effect::Copy(pane) => {
                terminal::copy(&view::plain(&self.app, pane), self.screen.out())?;
                self.app.message = Some(format!("{} is copied", pane.name()));
            }
            Effect::Export(pane, path) => {
                let text = view::plain(&self.app, pane);
                self.app.message = Some(match std::fs::write(&path, text) {
                    Ok(()) => format!("{} is written to {}", pane.name(), path.display()),
                    Err(error) => format!("{} cannot be written: {error}", path.display()),
                });
            }
        }
        Ok(false)
    }

    /// The terminal may have a different size now, and shows the output of other programs.
    fn come_back(&mut self) -> io::Result<()> {
        terminal::enter(self.app.mouse)?;
        self.app.size = self.screen.size()?;
        self.screen.clear()
    }
}
