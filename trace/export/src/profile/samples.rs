//! Samples: where a run was at each tick.
//!
//! A sample is a record of a probe of the provider `profile` and the stack records that follow it. Records of other
//! probes are not samples.

use trapline_trace::{GuestStack, Kind, RecordView, StackFrame, Symbolize};

use super::UNKNOWN;
use crate::stacks::function;

/// The provider of ticks.
const PROVIDER: &str = "profile";

/// Where a run was at a tick.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Instructions since the start of the machine.
    pub icount: u64,
    /// Virtual time in nanoseconds.
    pub time_ns: u64,
    /// The task.
    pub pid: u32,
    /// Its name; empty if it is not known.
    pub task: String,
    /// The kernel, the kernel module or the file of the instruction.
    pub module: String,
    /// The module and the function of the instruction, as ``vmlinux`do_fork``.
    pub function: String,
    /// The source line of the instruction, if it is known and was asked for.
    pub line: Option<String>,
    /// The functions that have called it, innermost first, if their stacks were recorded.
    pub callers: Vec<String>,
}

/// A sample whose stacks may follow.
#[derive(Debug)]
struct Waiting {
    key: (u64, u32, u32),
    sample: Sample,
    /// Whether the place is that of a stack, and so better than the record's own.
    is_placed: bool,
}

/// Puts the records of each sample together.
#[derive(Debug, Default)]
pub struct Samples {
    waiting: Option<Waiting>,
    lines: bool,
}

/// The name of a frame: its module, and module and function.
fn named(
    stack: &GuestStack,
    frame: StackFrame,
    record: &RecordView<'_>,
    symbols: &dyn Symbolize,
) -> Option<(String, String)> {
    let (module, address) = stack.place(frame, record.header.width)?;
    let file = module.name.rsplit('/').next().unwrap_or_default().to_owned();
    let function = match symbols.frame(record.header.kind, &module.name, address) {
        Some((name, _)) if !name.is_empty() => format!("{file}`{name}"),
        _ => format!("{file}`{UNKNOWN}"),
    };
    Some((file, function))
}

impl Samples {
    /// Looks up source lines, or does not.
    #[must_use]
    pub fn new(lines: bool) -> Self {
        Self { waiting: None, lines }
    }

    /// Takes a record. Returns the sample before it, which is complete now.
    pub fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> Option<Sample> {
        let h = &record.header;
        if h.kind.is_guest_stack() {
            self.stack(record, symbols);
            return None;
        }
        if h.kind != Kind::Data {
            return None;
        }
        let complete = self.last();
        let is_tick = symbols.probe(h.probe).is_some_and(|probe| *probe.name.provider == *PROVIDER);
        self.waiting = is_tick.then(|| Waiting {
            key: (h.icount, h.cpu, h.probe),
            sample: of_record(record, symbols),
            is_placed: false,
        });
        complete
    }

    /// The last sample, at the end of the run.
    pub fn last(&mut self) -> Option<Sample> {
        self.waiting.take().map(|waiting| waiting.sample)
    }

    /// A stack of the sample: that of the kernel comes before that of the program.
    fn stack(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) {
        let (h, lines) = (&record.header, self.lines);
        let key = (h.icount, h.cpu, h.probe);
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.key == key) else { return };
        let Ok(stack) = GuestStack::decode(record.data, h.width) else { return };
        let mut frames = stack.frames.iter().copied();
        let first = stack.frames.first().filter(|frame| frame.exact && frame.ip == h.ip);
        if let Some(first) = first.filter(|_| !waiting.is_placed) {
            frames.next();
            waiting.is_placed = true;
            if let Some((module, function)) = named(&stack, *first, record, symbols) {
                (waiting.sample.module, waiting.sample.function) = (module, function);
            }
            let place = stack.place(*first, h.width).filter(|_| lines);
            waiting.sample.line =
                place.and_then(|(module, address)| symbols.line(h.kind, &module.name, address));
        }
        let named = frames.map(|frame| {
            named(&stack, frame, record, symbols).map_or_else(|| UNKNOWN.to_owned(), |(_, name)| name)
        });
        waiting.sample.callers.extend(named);
    }
}

/// What the record of a tick itself tells.
fn of_record(record: &RecordView<'_>, symbols: &dyn Symbolize) -> Sample {
    let h = &record.header;
    let symbol = symbols.symbol(h.ip, h.probe);
    // A user program's symbol has its module.
    let symbol = symbol.map(|name| function(&name).replacen(':', "`", 1));
    let module = symbol.as_deref().and_then(|name| name.split_once('`')).map(|(module, _)| module.to_owned());
    Sample {
        icount: h.icount,
        time_ns: h.time_ns,
        pid: h.pid,
        task: String::from_utf8_lossy(record.name).into_owned(),
        module: module.unwrap_or_else(|| UNKNOWN.to_owned()),
        function: symbol.unwrap_or_else(|| UNKNOWN.to_owned()),
        line: None,
        callers: Vec::new(),
    }
}
