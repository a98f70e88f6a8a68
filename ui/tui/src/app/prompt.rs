//! The line at the bottom for typed text, and the parsing of addresses and stop points.

use trapline_session::trapline_emu::symbols::{Named, Symbol};
use trapline_session::{StopPoint, Timeline, Watch, WatchKind, numbers};

use super::App;
use crate::scene::{Origin, Spot};

/// The purpose of a typed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A position to go to.
    Goto,
    /// A filter.
    Filter,
    /// The address of a breakpoint.
    Breakpoint,
    /// The range of a watchpoint.
    Watchpoint,
    /// What is to be shown in memory: an expression.
    Memory,
    /// Bytes to look for in memory.
    Find,
    /// The condition to go forward to, and back to.
    When,
    BackWhen,
    /// The register whose last change is wanted.
    Register,
    /// The name of a bookmark.
    Bookmark,
    /// The columns of the list of hits.
    Columns,
    /// The file of an export.
    Export,
    /// A clause, or the file of a program.
    Probe,
    /// A line for the guest's console.
    Line,
}

impl Purpose {
    /// The text before the typed line.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Goto => "go to: ",
            Self::Filter => "filter: ",
            Self::Breakpoint => "breakpoint at: ",
            Self::Watchpoint => "watch writes to: ",
            Self::Memory => "memory: ",
            Self::When => "forward to when: ",
            Self::BackWhen => "back to when: ",
            Self::Register => "last change of register: ",
            Self::Find => "find: ",
            Self::Bookmark => "bookmark: ",
            Self::Columns => "columns: ",
            Self::Export => "write to file: ",
            Self::Probe => "probe: ",
            Self::Line => "type: ",
        }
    }
}

/// A line that is being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Its purpose.
    pub purpose: Purpose,
    /// The typed text.
    pub text: String,
    /// What it may become.
    pub found: Vec<String>,
}

impl App {
    /// An address: a number, a symbol of the kernel, a register, or `curthread`; `+NUMBER` or `-NUMBER` may follow.
    ///
    /// # Errors
    /// A sentence: the text is none of these.
    pub fn address(&self, text: &str) -> Result<u64, String> {
        let spot = self.spot_of(text)?;
        Ok(self.scene.as_ref().map_or(spot.offset, |scene| spot.address(scene)))
    }

    /// The same, as it can be looked up at another position.
    ///
    /// # Errors
    /// As [`App::address`].
    pub fn spot_of(&self, text: &str) -> Result<Spot, String> {
        let text = text.trim();
        if let Some(at) = text.rfind(['+', '-']).filter(|at| *at > 0) {
            let (base, offset) = text.split_at(at);
            let (sign, offset) = offset.split_at(1);
            let more = numbers::count(offset.trim()).map_err(|error| error.to_string())?;
            let Spot { from, offset } = self.spot_of(base)?;
            let offset = if sign == "+" { offset.wrapping_add(more) } else { offset.wrapping_sub(more) };
            return Ok(Spot { from, offset });
        }
        if text == "curthread" {
            let known = self.scene.as_ref().is_some_and(|scene| scene.task_at.is_some());
            let task = known.then_some(Spot { from: Origin::Task, offset: 0 });
            return task.ok_or_else(|| "the current task is not known here".to_owned());
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let address = numbers::count(text).map_err(|error| error.to_string())?;
            return numbers::last_address(self.target.width(), address, 1).map(Spot::at);
        }
        let named = self.target.symbols().named(text).one();
        let named = named.map_err(|ambiguous| format!("{ambiguous}; write one of these addresses"));
        let symbol = named?.map(|symbol| Spot::at(symbol.addr));
        let name = text.to_lowercase();
        let register = || {
            self.scene.as_ref().and_then(|scene| scene.register(&name))?;
            Some(Spot { from: Origin::Register(name.clone()), offset: 0 })
        };
        symbol.or_else(register).ok_or_else(|| {
            format!("`{text}` is not an address; write a number, a symbol of the kernel or a register")
        })
    }

    /// Breakpoints with their texts: one, or one at each of the symbols that have this name.
    ///
    /// # Errors
    /// As [`App::address`], but several symbols are no error.
    pub fn breakpoints(&self, text: &str) -> Result<Vec<(String, StopPoint)>, String> {
        if let Named::Several(symbols) = self.target.symbols().named(text.trim()) {
            let one = |symbol: &Symbol| {
                (format!("{} {:#x}", symbol.name, symbol.addr), Timeline::breakpoint(symbol.addr))
            };
            return Ok(symbols.into_iter().map(one).collect());
        }
        Ok(vec![(text.to_owned(), self.address(text).map(Timeline::breakpoint)?)])
    }

    /// A watchpoint on writes: `ADDRESS[:LENGTH]`.
    ///
    /// # Errors
    /// As [`App::address`], and a bad length.
    pub fn watchpoint(&self, text: &str) -> Result<StopPoint, String> {
        let (at, length) = text.split_once(':').unwrap_or((text, "1"));
        let low = self.address(at)?;
        let length = numbers::within(length, 1, 4096).map_err(|error| error.to_string())?;
        let high = numbers::last_address(self.target.width(), low, length)?;
        Ok(StopPoint::Watch(Watch { kind: WatchKind::Write, low, high }))
    }
}
