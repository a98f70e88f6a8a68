//! The screen of `trapline top`: the hottest functions or processes of a run in progress.
//!
//! It is a sink: the run calls it with each record, so it draws between two of them. The host's clock decides only when it
//! draws. A thread reads the keys; `q` and Ctrl-C end the run through the flag that a signal raises too.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use signal_hook::consts::SIGTSTP;
use trapline_export::profile::{By, Top, write_total};
use trapline_trace::{End, RecordView, Reply, RunInfo, Shown, Sink, Symbolize};

use crate::screen::{self, Drawn};
use crate::terminal;
use crate::theme::Look;
use crate::view::top::{self as view, State, View};

/// How often the counts are renewed.
const REFRESH: Duration = Duration::from_millis(500);
/// The longest wait for a key before the flag of signals is looked at.
const IDLE: Duration = Duration::from_millis(100);

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Quit,
    Interrupt,
    Show(By),
    Pause,
    Reset,
    Suspend,
    Redraw,
}

fn wish(event: &Event) -> Option<Wish> {
    let key = match event {
        Event::Resize(..) => return Some(Wish::Redraw),
        Event::Key(KeyEvent {
            kind: KeyEventKind::Press | KeyEventKind::Repeat, code, modifiers, ..
        }) => (*code, modifiers.contains(KeyModifiers::CONTROL)),
        _ => return None,
    };
    match key {
        (KeyCode::Char('c'), true) => Some(Wish::Interrupt),
        (KeyCode::Char('z'), true) => Some(Wish::Suspend),
        (KeyCode::Char('l'), true) => Some(Wish::Redraw),
        (KeyCode::Char('q'), false) => Some(Wish::Quit),
        (KeyCode::Char('f'), false) => Some(Wish::Show(By::Function)),
        (KeyCode::Char('p'), false) => Some(Wish::Show(By::Process)),
        (KeyCode::Char(' '), false) => Some(Wish::Pause),
        (KeyCode::Char('r'), false) => Some(Wish::Reset),
        _ => None,
    }
}

/// The terminal, drawn into memory first.
struct Drawing {
    terminal: Terminal<CrosstermBackend<Drawn>>,
    drawn: Drawn,
    wishes: Receiver<Wish>,
}

impl Drawing {
    /// Takes the terminal, and reads its keys.
    fn begin(cancel: &Arc<AtomicBool>, left: &Arc<AtomicBool>) -> io::Result<Self> {
        terminal::restore_at_panic();
        terminal::enter(false)?;
        let drawn = Drawn::default();
        let terminal = Terminal::new(CrosstermBackend::new(drawn.clone()))?;
        let (told, wishes) = mpsc::channel();
        let (cancel, left) = (Arc::clone(cancel), Arc::clone(left));
        thread::Builder::new().name("trapline-keys".to_owned()).spawn(move || {
            loop {
                let wish = match event::read() {
                    Ok(event) => wish(&event),
                    Err(_) => Some(Wish::Interrupt),
                };
                if matches!(wish, Some(Wish::Quit | Wish::Interrupt)) {
                    left.store(wish == Some(Wish::Quit), Ordering::SeqCst);
                    cancel.store(true, Ordering::SeqCst);
                    return;
                }
                if wish.is_some_and(|wish| told.send(wish).is_err()) {
                    return;
                }
            }
        })?;
        Ok(Self { terminal, drawn, wishes })
    }

    fn draw(&mut self, view: &View, look: Look) -> io::Result<()> {
        self.terminal.draw(|frame| view::draw(view, look, frame))?;
        terminal::write(&screen::frame(&self.drawn.take()), &mut io::stdout())
    }

    /// The next frame is drawn as a whole.
    fn renew(&mut self) -> io::Result<()> {
        self.terminal = Terminal::new(CrosstermBackend::new(self.drawn.clone()))?;
        crossterm::execute!(self.drawn, crossterm::terminal::Clear(crossterm::terminal::ClearType::All))
    }
}

/// See the module.
pub struct TopScreen<W> {
    out: W,
    look: Look,
    /// Rows of the table at the end.
    rows: usize,
    top: Top,
    view: View,
    drawing: Option<Drawing>,
    cancel: Arc<AtomicBool>,
    /// Whether `q` has ended it.
    quit: Arc<AtomicBool>,
    told: Rc<Cell<bool>>,
    refreshed: Instant,
}

impl<W: Write> TopScreen<W> {
    /// A screen of a run with this title. The counts of the whole run are written at the end. `cancel` ends the run; `left`
    /// tells afterwards whether the user has quit.
    pub fn new(
        out: W,
        title: String,
        look: Look,
        rows: usize,
        cancel: Arc<AtomicBool>,
        left: Rc<Cell<bool>>,
    ) -> Self {
        Self {
            out,
            look,
            rows,
            top: Top::default(),
            view: View::new(title),
            drawing: None,
            cancel,
            quit: Arc::default(),
            told: left,
            refreshed: Instant::now(),
        }
    }

    fn is_over(&self) -> bool {
        self.cancel.load(Ordering::SeqCst)
    }

    fn draw(&mut self) -> io::Result<()> {
        let Some(drawing) = &mut self.drawing else { return Ok(()) };
        drawing.draw(&self.view, self.look)
    }

    /// Shows the counts since the last refresh, and begins a new one.
    fn refresh(&mut self) -> io::Result<()> {
        let passed = self.refreshed.elapsed();
        self.view.renew(&self.top, passed);
        self.top.refresh();
        self.refreshed = Instant::now();
        self.draw()
    }

    fn carry_out(&mut self, wish: Wish) -> io::Result<()> {
        match wish {
            Wish::Show(by) => self.view.by = by,
            Wish::Pause => {
                self.view.state = match self.view.state {
                    State::Runs => State::Paused,
                    State::Paused => State::Runs,
                    State::Ended(_) => return Ok(()),
                };
                // A pause is no time in which the guest ran.
                self.refreshed = Instant::now();
            }
            Wish::Reset => {
                self.top.reset();
                self.view.renew(&self.top, Duration::ZERO);
            }
            Wish::Suspend => {
                terminal::leave();
                signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
                terminal::enter(false)?;
                self.drawing.as_mut().map_or(Ok(()), Drawing::renew)?;
                self.refreshed = Instant::now();
            }
            Wish::Redraw => self.drawing.as_mut().map_or(Ok(()), Drawing::renew)?,
            Wish::Quit | Wish::Interrupt => {}
        }
        self.draw()
    }

    /// Carries out the wishes that have come, and waits for more while the guest is to stand still.
    fn attend(&mut self) -> io::Result<()> {
        while let Some(wish) = self.drawing.as_ref().and_then(|drawing| drawing.wishes.try_recv().ok()) {
            self.carry_out(wish)?;
        }
        while self.view.state != State::Runs && !self.is_over() {
            let Some(drawing) = &self.drawing else { return Ok(()) };
            match drawing.wishes.recv_timeout(IDLE) {
                Ok(wish) => self.carry_out(wish)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Gives the terminal back.
    fn leave(&mut self) {
        if self.drawing.take().is_some() {
            terminal::leave();
        }
    }
}

impl<W> Drop for TopScreen<W> {
    fn drop(&mut self) {
        terminal::leave();
    }
}

impl<W: Write> Sink for TopScreen<W> {
    fn begin(&mut self, _: &RunInfo) -> io::Result<()> {
        let drawing = Drawing::begin(&self.cancel, &self.quit).inspect_err(|_| terminal::leave())?;
        self.drawing = Some(drawing);
        self.refreshed = Instant::now();
        self.draw()
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let Some(sample) = self.top.take(record, symbols) else { return Ok(()) };
        self.top.count(&sample);
        self.attend()?;
        if self.refreshed.elapsed() >= REFRESH { self.refresh() } else { Ok(()) }
    }

    fn d(&mut self, _: &Shown) -> io::Result<()> {
        Ok(())
    }

    fn reply(&mut self, _: &Reply) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        self.top.end(end);
        if !self.is_over() {
            let reason = end.extra.iter().find(|(name, _)| name == "reason");
            let reason = reason.and_then(|(_, reason)| reason.as_str()).unwrap_or("the run has ended");
            self.view.state = State::Ended(reason.to_owned());
            self.refresh()?;
            self.attend()?;
        }
        self.told.set(self.quit.load(Ordering::SeqCst));
        self.leave();
        write_total(&mut self.out, &self.top, self.rows)
    }
}
