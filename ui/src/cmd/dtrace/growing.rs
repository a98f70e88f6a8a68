//! `-x aggrate=RATE` on a terminal: the aggregations as they grow, redrawn in place at this rate of virtual time.

use std::io::{self, IsTerminal, Write};

use trapline_d::Options;

use crate::outlet::Outlet;

/// Lines that are shown at most: what has left the screen cannot be redrawn.
const MOST_LINES: usize = 20;

/// What is on the screen.
#[derive(Debug)]
pub struct Growing {
    /// Nanoseconds of virtual time between two views.
    every: u64,
    next: u64,
    /// Lines of the last view.
    lines: usize,
}

impl Growing {
    /// A view at the rate that the program asks for; `None` without one, and without a terminal.
    pub fn of(options: &Options) -> Option<Self> {
        let every = options.period("aggrate").filter(|_| io::stderr().is_terminal())?;
        Some(Self { every, next: 0, lines: 0 })
    }

    /// The instruction count of the next view: an instruction takes a nanosecond.
    pub fn next(&mut self, icount: u64) -> u64 {
        if icount >= self.next {
            self.next = icount.saturating_add(self.every);
        }
        self.next
    }

    /// Replaces the last view.
    pub fn show(&mut self, text: &[u8]) -> io::Result<()> {
        let shown = self.view(text);
        Outlet::Stderr.put(&shown)
    }

    fn view(&mut self, text: &[u8]) -> Vec<u8> {
        let mut shown = Vec::new();
        if self.lines > 0 {
            let _ = write!(shown, "\x1b[{}A\x1b[J", self.lines);
        }
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        // The greatest values come last.
        let last = lines.len().saturating_sub(MOST_LINES);
        let kept = lines.get(last..).unwrap_or_default();
        self.lines = kept.len();
        kept.iter().for_each(|line| shown.extend_from_slice(line));
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_replaces_the_one_before() {
        let mut growing = Growing { every: 10, next: 0, lines: 0 };
        assert_eq!(growing.view(b"a 1\nb 2\n"), b"a 1\nb 2\n");
        assert_eq!(growing.view(b"b 3\n"), b"\x1b[2A\x1b[Jb 3\n");
        assert_eq!((growing.next(7), growing.next(16), growing.next(17)), (17, 17, 27));
    }
}
