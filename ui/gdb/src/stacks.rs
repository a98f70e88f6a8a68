//! The stacks that gdb shows: a file whose call frame information asks the server ([`call_frames`](crate::call_frames)),
//! and the table in which it finds the answers.

use std::num::NonZeroUsize;
use std::ops::Range;

use trapline_os::{Edge, Unwinder, Unwound};
use trapline_session::Session;

use crate::call_frames::{MOST, Window, cell, debug_frame, frame_address};
use crate::elf::with_frames;
use crate::threads;

/// The path of the file.
pub const FILE: &str = "/trapline/stacks";
/// The functions of Linux by which a system call enters the kernel: only user mode calls them.
const CALLED: [&str; 3] = ["entry_SYSCALL", "entry_SYSENTER", "entry_INT80"];
/// Where the code begins and ends by which Linux takes interrupts and exceptions.
const ENTRY: [&str; 2] = ["__entry_text_start", "__entry_text_end"];
const SP: usize = 4;

/// The file, for this guest.
pub fn file(session: &Session) -> Vec<u8> {
    let window = Window::new(wide(session));
    with_frames(window.is_wide(), &debug_frame(window, &edges(session)))
}

/// Whether the kernel is one of 64 bits, as gdb was told.
fn wide(session: &Session) -> bool {
    session.target().image().plan().width.bits() == 64
}

/// Where the kernel's code is not called by code of the kernel.
fn edges(session: &Session) -> Vec<(Range<u64>, Edge)> {
    let symbols = session.symbols();
    let mut found = session.target().unwinder().edges();
    let linux = session.target().image().plan().linux.is_some();
    if let (true, true, [Some(start), Some(end)]) =
        (linux, found.is_empty(), ENTRY.map(|name| Some(symbols.sole(name)?.addr)))
    {
        found.push((start..end, Edge::Interrupts));
    }
    let called = symbols.functions().filter(|own| CALLED.iter().any(|name| own.name.starts_with(name)));
    for called in called.filter(|_| linux) {
        let own = called.addr..called.addr.saturating_add(called.size);
        found = found
            .into_iter()
            .flat_map(|(range, edge)| without(range, &own).map(|rest| (rest, edge)))
            .collect();
        found.push((own, Edge::Ends));
    }
    found.retain(|(range, _)| !range.is_empty());
    found.sort_by_key(|(range, _)| range.start);
    found
}

/// What is left of a range, before another one and behind it.
fn without(range: Range<u64>, other: &Range<u64>) -> [Range<u64>; 2] {
    if other.is_empty() {
        return [range, 0..0];
    }
    [range.start..range.end.min(other.start), range.start.max(other.end)..range.end]
}

/// One stack as a table: for each stack pointer the frame address, and what the caller has.
struct Table {
    rows: Vec<Row>,
}

struct Row {
    sp: u64,
    cfa: u64,
    /// None: the stack ends here, or the caller is unknown.
    caller: Option<Unwound>,
}

impl Table {
    /// The table of a stack, innermost frame first.
    fn new(frames: Vec<Unwound>, wide: bool) -> Self {
        let word = if wide { 8 } else { 4 };
        let frames: Vec<(u64, Unwound)> =
            frames.into_iter().map_while(|frame| Some((frame.gpr[SP]?, frame))).collect();
        let mut rows = Vec::new();
        // Whether the stack pointer falls further out.
        let mut falls = false;
        for (n, (sp, _)) in frames.iter().enumerate().rev() {
            let next = frames.get(n + 1);
            let above = next.map_or(sp.wrapping_add(word), |(sp, _)| *sp);
            let cfa = frame_address(above, falls);
            falls |= above < *sp;
            rows.push(Row { sp: *sp, cfa, caller: next.map(|(_, caller)| caller.clone()) });
        }
        rows.sort_by_key(|row| row.sp.cast_signed());
        Self { rows }
    }

    fn cell(&self, row: usize, cell: u64) -> Option<u64> {
        let Some(row) = row.checked_sub(1) else {
            return (cell == cell::KEY).then_some(self.rows.len() as u64);
        };
        let Row { sp, cfa, caller } = self.rows.get(row)?;
        match cell {
            cell::KEY => Some(*sp),
            cell::CFA => Some(*cfa),
            cell::IP => Some(caller.as_ref()?.ip),
            _ => *caller.as_ref()?.gpr.get(usize::try_from(cell.checked_sub(cell::GPR)?).ok()?)?,
        }
    }
}

/// What is kept for the questions of gdb.
#[derive(Default)]
pub struct Stacks {
    unwinder: Option<Unwinder>,
    /// The thread whose stack gdb looks at; none for the running one.
    thread: Option<NonZeroUsize>,
    /// The stack that was asked for last, as long as nothing but memory is read.
    table: Option<Table>,
}

impl Stacks {
    /// A packet has come that is not a read of memory; `Hg` selects a thread.
    pub fn told(&mut self, packet: &[u8]) {
        self.table = None;
        if let Some(number) = packet.strip_prefix(b"Hg") {
            let number = std::str::from_utf8(number).ok();
            self.thread =
                number.and_then(|number| usize::from_str_radix(number, 16).ok()).and_then(NonZeroUsize::new);
        }
    }

    /// The bytes of a cell of the table, if a read is of one; nothing in it where the cell has no value. `shown` is the
    /// thread that gdb was told last.
    pub fn cell(
        &mut self,
        session: &Session,
        shown: Option<NonZeroUsize>,
        (address, length): (u64, usize),
    ) -> Option<Option<Vec<u8>>> {
        let window = Window::new(wide(session));
        let (row, cell) = window.cell(address, length)?;
        if self.table.is_none() {
            self.table = Some(self.look(session, shown, window));
        }
        let value = self.table.as_ref()?.cell(row, cell);
        Some(value.map(|value| value.to_le_bytes().into_iter().take(window.size().into()).collect()))
    }

    fn look(&mut self, session: &Session, shown: Option<NonZeroUsize>, window: Window) -> Table {
        let unwinder = self.unwinder.get_or_insert_with(|| session.target().unwinder());
        let (core, profile) = (session.core(), session.profile());
        let other = self.thread.filter(|thread| *thread != threads::running(session));
        let frames = match (other, profile.as_deref()) {
            (Some(thread), Some(profile)) => {
                let all = threads::all(session, None, shown);
                let task = all.into_iter().find(|own| own.tid == thread && own.task != 0).map(|own| own.task);
                let switched = task.and_then(|task| profile.switched(core, task));
                switched.map(|at| unwinder.unwound_of(core, profile, at, MOST)).unwrap_or_default()
            }
            (_, profile) => unwinder.unwound(core, profile, MOST),
        };
        Table::new(frames, window.is_wide())
    }
}
