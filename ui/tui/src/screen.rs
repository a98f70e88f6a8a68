//! The screen: frames are drawn into memory, and another thread writes them to the terminal. So a slow terminal delays frames,
//! never events. At most one frame is on its way: while it is written, none is drawn, and then the state at that time.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use crossterm::execute;
use crossterm::terminal::{Clear, ClearType};
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;

use crate::message::Input;
use crate::sgr::sixteen;
use crate::terminal;

/// The codes around a frame: a terminal that knows them shows no part of it, and others ignore them.
const FRAME: [&[u8]; 2] = [b"\x1b[?2026h", b"\x1b[?2026l"];

/// What is drawn and not yet on its way.
#[derive(Debug, Clone, Default)]
pub struct Drawn(Arc<Mutex<Vec<u8>>>);

impl Drawn {
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.lock().map(|mut bytes| std::mem::take(&mut *bytes)).unwrap_or_default()
    }
}

impl Write for Drawn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Ok(mut drawn) = self.0.lock() {
            drawn.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The screen.
pub struct Screen {
    terminal: ratatui::Terminal<CrosstermBackend<Drawn>>,
    drawn: Drawn,
    frames: Sender<Vec<u8>>,
    /// Whether a frame is on its way.
    busy: bool,
}

impl Screen {
    /// A screen of the terminal. `told` gets [`Input::Written`] when a frame has been written.
    ///
    /// # Errors
    /// The size of the terminal is not known.
    pub fn new(told: &Sender<Input>) -> io::Result<Self> {
        let drawn = Drawn::default();
        let terminal = ratatui::Terminal::new(CrosstermBackend::new(drawn.clone()))?;
        let (frames, written) = mpsc::channel();
        let told = told.clone();
        // Not `io::stdout()` itself: the thread that has started the user interface may hold its lock.
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let name = "trapline-screen".to_owned();
        thread::Builder::new().name(name).spawn(move || write_all(&written, out, &told))?;
        Ok(Self { terminal, drawn, frames, busy: false })
    }

    /// Its size.
    ///
    /// # Errors
    /// It is not known.
    pub fn size(&self) -> io::Result<Rect> {
        let size = self.terminal.size()?;
        Ok(Rect::new(0, 0, size.width, size.height))
    }

    /// Whether a frame is on its way: none can be drawn now.
    pub const fn is_busy(&self) -> bool {
        self.busy
    }

    /// The frame on its way has been written.
    pub const fn written(&mut self) {
        self.busy = false;
    }

    /// Draws a frame, and sends it.
    ///
    /// # Errors
    /// The size of the terminal is not known.
    pub fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(view)?;
        self.send();
        Ok(())
    }

    /// Sends what is drawn. The thread ends only with the terminal, which another message reports.
    pub fn send(&mut self) {
        let bytes = self.drawn.take();
        if !bytes.is_empty() {
            self.busy = self.frames.send(frame(&bytes)).is_ok();
        }
    }

    /// Writes with the next frame.
    pub const fn out(&mut self) -> &mut Drawn {
        &mut self.drawn
    }

    /// Clears the screen; the next frame is drawn as a whole. ratatui's own `clear` asks the terminal for its cursor, and the
    /// answer would go to the thread that reads the keys.
    ///
    /// # Errors
    /// The size of the terminal is not known.
    pub fn clear(&mut self) -> io::Result<()> {
        execute!(self.drawn, Clear(ClearType::All))?;
        self.terminal = ratatui::Terminal::new(CrosstermBackend::new(self.drawn.clone()))?;
        Ok(())
    }
}

/// What a terminal gets for a frame that is drawn.
pub fn frame(drawn: &[u8]) -> Vec<u8> {
    let [begin, end] = FRAME;
    [begin, &sixteen(drawn), end].concat()
}

/// Writes frame after frame, each as a whole, until the screen is gone or the terminal cannot be written.
fn write_all(frames: &Receiver<Vec<u8>>, mut out: File, told: &Sender<Input>) {
    for frame in frames {
        let written = terminal::write(&frame, &mut out);
        let input = written.map_or(Input::Gone, |()| Input::Written);
        let gone = matches!(input, Input::Gone);
        if told.send(input).is_err() || gone {
            return;
        }
    }
}
