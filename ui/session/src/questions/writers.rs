//! Who wrote to a range of memory last.
//!
//! The run is searched while that is cheap. If it is not, since the page is written all the time, the rest is searched
//! backwards from its end, stretch by stretch, until enough writes are found. Both lead to the same answer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;
use trapline_emu::{Access, Core, PAGE, WATCH_VALUE, Watch, WatchHit, WatchKind};
use trapline_os::CodePointer;
use trapline_providers::Target;

use super::{Before, QuestionError, Reader, last_address, place, timeline};
use crate::guest::Guest;
use crate::numbers;
use crate::recording::{Position, Recording};
use crate::session::{CodeAddress, Search, Session, StackFrame, Witness};
use crate::timeline::{StopPoint, Timeline};

/// The largest symbol that is watched as a whole if no length is given, in bytes.
const MOST_OF_SYMBOL: u64 = 16;
/// The largest range that can be queried, in bytes.
const MOST: u64 = 4096;
/// Most frames of a stack.
const FRAMES: usize = 16;

/// An instruction that wrote to the range, or the delivery of an exception or interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// Number of instructions that had retired before it; as a position of `--at`, it is before the write.
    pub position: u64,
    /// The vector of the exception or interrupt whose delivery has written; nothing if an instruction has.
    pub vector: Option<u8>,
    /// Virtual time after it, ns.
    pub virtual_ns: u64,
    /// Its linear address; for a delivery that of the instruction to which the handler returns.
    pub ip: u64,
    /// Its symbol.
    pub symbol: Option<String>,
    /// The disassembled instruction; nothing for a delivery.
    pub instruction: Option<String>,
    /// Process id of the task that executed it.
    pub pid: Option<u32>,
    /// Name of that task.
    pub task: Option<String>,
    /// Linear address of the access.
    pub address: u64,
    /// Size of the access in bytes.
    pub size: u16,
    /// The content of the range before, in hexadecimal; of a range of more than 16 bytes, those from the first accessed
    /// one.
    pub old: String,
    /// The same after it.
    pub new: String,
    /// Whether something else has changed the range since the write before it in the list: a device, a handler, or an
    /// instruction by another address of the same memory. None for the first of the list.
    pub changed_before: Option<bool>,
    /// The stack after it, innermost first.
    pub stack: Vec<StackFrame>,
    /// The physical address of the first byte of the range.
    #[serde(skip)]
    paddr: Option<u64>,
}

/// The writes to a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Writers {
    /// The first address.
    pub low: u64,
    /// The last address.
    pub high: u64,
    /// The symbol of the first.
    pub symbol: Option<String>,
    /// The number of writes. None if the search ended with the requested number: there may be earlier ones.
    pub count: Option<u64>,
    /// The last of them, oldest first.
    pub last: Vec<Writer>,
    /// Whether something else has changed the range since the last of them, or if there is none, since the beginning; as far
    /// as the same memory can be read then.
    pub changed_after: Option<bool>,
}

/// `ADDRESS` or `ADDRESS:LENGTH`.
fn range(session: &Session, text: &str) -> Result<(u64, u64), QuestionError> {
    let wrong = |error: numbers::NumberError| QuestionError::Place(error.to_string());
    let (at, length) = match text.strip_prefix("phys:").is_none().then(|| text.split_once(':')).flatten() {
        Some((at, length)) => (at, Some(numbers::within(length, 1, MOST).map_err(wrong)?)),
        None => (text, None),
    };
    let (low, size) = place(session, at)?;
    let length = length.or(size.filter(|size| (1..=MOST_OF_SYMBOL).contains(size))).unwrap_or(1);
    Ok((low, last_address(session, low, length)?))
}

/// The last `most` instructions that wrote to a range, `ADDRESS[:LENGTH]`, before a position or in a whole recording.
///
/// # Errors
/// There is no such address or position, or the recording cannot be followed.
pub fn who_wrote(
    guest: &Guest,
    recording: &Recording,
    text: &str,
    before: Before,
    most: usize,
) -> Result<Writers, QuestionError> {
    let mut timeline = timeline(guest, recording)?;
    let (low, high) = range(timeline.session(), text)?;
    let ring = Rc::new(RefCell::new(Ring {
        target: Arc::clone(guest.target()),
        reader: Reader::of(timeline.session()),
        most,
        low,
        last: VecDeque::new(),
    }));
    let search = || {
        let watch = Watch { kind: WatchKind::Write, low, high };
        Search::witnessed(vec![StopPoint::Watch(watch)], witness(&ring))
    };
    let given_up = timeline.search_while_cheap(before, &mut search())?;
    let mut last = ring.borrow_mut().take(most);
    if given_up.is_some() {
        let earlier = mem::take(&mut last);
        timeline.each_stretch_back(given_up, before, &mut |timeline, to| {
            timeline.search_to(to, &mut search())?;
            let later = mem::take(&mut last);
            last = ring.borrow_mut().take(most - later.len());
            last.extend(later);
            Ok(last.len() < most)
        })?;
        let wanted = earlier.len().min(most - last.len());
        let rest = earlier.len() - wanted;
        last = earlier.into_iter().skip(rest).chain(last).collect();
    }
    let mut last = Vec::from(last);
    // Hits of a range that is not longer carry all of it.
    if high - low < WATCH_VALUE as u64 {
        note_changes(&mut last);
    }
    let tasks = ring.borrow().reader.tasks_at(&mut timeline, last.iter().map(|writer| writer.position))?;
    for (writer, task) in last.iter_mut().zip(tasks) {
        (writer.pid, writer.task) = task.unzip();
    }
    let count = (last.len() < most).then_some(last.len() as u64);
    let left = match last.last() {
        Some(writer) => Some(Held { paddr: writer.paddr, bytes: writer.new.clone() }),
        // As the loader has left it.
        None if count == Some(0) => held(&mut timeline, Position::At { icount: 0, ordinal: 0 }, (low, high))?,
        None => None,
    };
    let now = held(&mut timeline, before.unwrap_or(Position::BeforeEnd(0)), (low, high))?;
    // Another address space may have other memory there.
    let same = |(left, now): &(Held, Held)| left.paddr == now.paddr && high - low < WATCH_VALUE as u64;
    let changed_after = left.zip(now).filter(same).map(|(left, now)| left.bytes != now.bytes);
    Ok(Writers { low, high, symbol: guest.target().symbol(CodePointer::At(low)), count, last, changed_after })
}

/// What a range holds.
struct Held {
    /// The physical address of its first byte.
    paddr: Option<u64>,
    bytes: String,
}

/// What the range holds at a position, if it is mapped there.
fn held(
    timeline: &mut Timeline,
    at: Position,
    (low, high): (u64, u64),
) -> Result<Option<Held>, QuestionError> {
    timeline.goto(at)?;
    let core = timeline.session().core();
    let mut bytes = vec![0; usize::try_from(high - low + 1).unwrap_or_default()];
    let read = core.peek_prefix(low, &mut bytes);
    Ok((read == bytes.len()).then(|| Held { paddr: paddr(core, low), bytes: hex(&bytes) }))
}

fn paddr(core: &Core, at: u64) -> Option<u64> {
    Some(core.peek_translate(at, Access::Read, false)?.paddr + at % PAGE)
}

/// Says of each write but the first whether the range was as the write before it had left it.
fn note_changes(writers: &mut [Writer]) {
    let mut left: Option<String> = None;
    for writer in writers {
        writer.changed_before = left.map(|left| left != writer.old);
        left = Some(writer.new.clone());
    }
}

/// Puts each write into the ring.
fn witness(ring: &Rc<RefCell<Ring>>) -> Witness {
    let ring = Rc::clone(ring);
    Box::new(move |core, _, hit| {
        if let Some(hit) = hit {
            ring.borrow_mut().add(core, hit);
        }
        None
    })
}

/// The last writes of a stretch.
struct Ring {
    target: Arc<Target>,
    reader: Reader,
    most: usize,
    /// The first byte of the range.
    low: u64,
    last: VecDeque<Writer>,
}

impl Ring {
    /// The last of what was seen, at most so many; the ring is empty then.
    fn take(&mut self, most: usize) -> VecDeque<Writer> {
        let mut last = mem::take(&mut self.last);
        last.drain(..last.len().saturating_sub(most));
        last
    }

    fn add(&mut self, core: &Core, hit: &WatchHit) {
        let at = CodeAddress::of(core, hit.ip);
        let ip = at.linear;
        let moment = core.moment();
        // The handler may run in another mode.
        let decoded = self.reader.instruction(&self.target, core, ip).filter(|_| hit.delivery.is_none());
        let value = |bytes: &[u8]| hex(bytes.get(..usize::from(hit.len)).unwrap_or_default());
        self.last.push_back(Writer {
            position: moment.icount.saturating_sub(hit.delivery.is_none().into()),
            vector: hit.delivery,
            virtual_ns: moment.virtual_ns,
            ip,
            symbol: self.reader.symbol(&self.target, core, at),
            instruction: decoded,
            pid: None,
            task: None,
            address: hit.address,
            size: hit.size,
            old: value(&hit.old),
            new: value(&hit.new),
            changed_before: None,
            stack: self.reader.stack(&self.target, core, FRAMES),
            paddr: paddr(core, self.low),
        });
        if self.last.len() > self.most {
            self.last.pop_front();
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
