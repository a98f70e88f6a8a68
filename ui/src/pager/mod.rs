//! The way to standard output, which leads through a pager if a listing is longer than the terminal's screen.
//!
//! The text is kept until it is known to be too long for the screen. Then the pager gets it, and what follows as it
//! comes. A shorter text is written as if there were no pager.

mod choice;
mod rows;

use std::io::{self, BufWriter, Write};
use std::process::{Child, ChildStdin};

use crate::ctrl_c;
use crate::terminal::{self, Stdout};
pub use choice::Choice;
use rows::Rows;

/// Lines and columns of a terminal that does not know its size.
const SIZE: (u16, u16) = (24, 80);

/// What a shell answers about a command that it cannot start.
const NOT_STARTED: [Option<i32>; 2] = [Some(126), Some(127)];

/// A pager that runs.
struct Pager {
    choice: Choice,
    child: Child,
    text: Option<BufWriter<ChildStdin>>,
    /// The text again, while it is not known whether the shell has found the pager.
    kept: Option<Vec<u8>>,
}

impl Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
        self.text.as_mut().map_or(Ok(()), |text| text.write_all(bytes))
    }

    /// Waits until the user leaves it; the text, if there never was a pager.
    fn end(&mut self) -> Option<Vec<u8>> {
        self.text = None;
        let status = self.child.wait();
        ctrl_c::back_from_pager();
        self.kept.take().filter(|_| status.is_ok_and(|status| NOT_STARTED.contains(&status.code())))
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        if self.text.is_some() {
            self.end();
        }
    }
}

/// Where the text goes.
enum Way {
    /// To standard output.
    Direct,
    /// It may need this pager.
    Waits { held: Vec<u8>, rows: Rows, choice: Choice },
    /// To a pager.
    Paged(Pager),
}

/// Standard output.
pub struct Output {
    way: Way,
    direct: BufWriter<Stdout>,
}

impl Output {
    /// Standard output itself, or with a choice, through that pager where the text is too long.
    pub fn new(choice: Option<Choice>) -> Self {
        let direct = BufWriter::new(Stdout::take());
        let way = choice.map_or(Way::Direct, |choice| {
            let size = crossterm::terminal::size().map_or(SIZE, |(columns, lines)| (lines, columns));
            let (lines, columns) = if size.0 == 0 || size.1 == 0 { SIZE } else { size };
            Way::Waits { held: Vec::new(), rows: Rows::new(lines, columns), choice }
        });
        Self { way, direct }
    }

    /// Whether a pager has the text.
    pub fn is_paged(&self) -> bool {
        matches!(self.way, Way::Paged(_))
    }

    /// Starts the pager for a text that is too long.
    fn page(&mut self) -> io::Result<()> {
        let Way::Waits { held, choice, .. } = std::mem::replace(&mut self.way, Way::Direct) else {
            return Ok(());
        };
        ctrl_c::leave_to_pager();
        let started = choice.start().and_then(|mut child| Some((child.stdin.take()?, child)));
        let Some((text, child)) = started else {
            ctrl_c::back_from_pager();
            return self.without_pager(&choice, &held);
        };
        let (text, kept) = (Some(BufWriter::new(text)), choice.needs_shell().then(Vec::new));
        let mut pager = Pager { choice, child, text, kept };
        let written = pager.write(&held);
        self.way = Way::Paged(pager);
        self.or_without_pager(written)
    }

    /// Writes a text whose pager cannot be started.
    fn without_pager(&mut self, choice: &Choice, text: &[u8]) -> io::Result<()> {
        self.way = Way::Direct;
        choice.complain();
        self.direct.write_all(text)
    }

    /// If the pager does not take the text because the shell has not found it, writes the text.
    fn or_without_pager(&mut self, written: io::Result<()>) -> io::Result<()> {
        let Way::Paged(pager) = &mut self.way else { return written };
        let Some(text) = written.is_err().then(|| pager.end()).flatten() else { return written };
        let choice = pager.choice.clone();
        self.without_pager(&choice, &text)
    }

    /// Writes what is still kept, and waits for the pager.
    ///
    /// # Errors
    /// Standard output cannot be written, or the pager was left before it had all of the text.
    pub fn finish(&mut self) -> io::Result<()> {
        let written = match &mut self.way {
            Way::Direct => self.direct.flush(),
            Way::Waits { held, .. } => self.direct.write_all(held).and_then(|()| self.direct.flush()),
            Way::Paged(pager) => {
                let written = pager.text.as_mut().map_or(Ok(()), Write::flush);
                match (pager.end(), pager.choice.clone()) {
                    (Some(text), choice) => {
                        self.without_pager(&choice, &text).and_then(|()| self.direct.flush())
                    }
                    (None, _) => written,
                }
            }
        };
        terminal::release();
        written
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.way {
            Way::Direct => self.direct.write(bytes),
            Way::Paged(pager) => {
                let written = pager.write(bytes);
                self.or_without_pager(written).map(|()| bytes.len())
            }
            Way::Waits { held, rows, .. } => {
                // What is said about the text comes after it.
                terminal::hold();
                held.extend_from_slice(bytes);
                rows.add(bytes);
                if rows.fill_the_screen() {
                    self.page()?;
                }
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.way {
            Way::Direct => self.direct.flush(),
            Way::Paged(pager) => {
                let written = pager.text.as_mut().map_or(Ok(()), Write::flush);
                self.or_without_pager(written)
            }
            Way::Waits { .. } => Ok(()),
        }
    }
}
