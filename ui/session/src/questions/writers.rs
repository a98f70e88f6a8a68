//! The instructions that wrote to a range of memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;
use trapline_emu::{Core, WATCH_VALUE, Watch, WatchHit, WatchKind};
use trapline_providers::Target;

use super::{Before, QuestionError, Reader, place, timeline};
use crate::guest::Guest;
use crate::numbers;
use crate::recording::Recording;
use crate::session::{Session, StackFrame, Witness};
use crate::timeline::StopPoint;

/// The largest symbol that is watched as a whole if no length is given, in bytes.
const MOST_OF_SYMBOL: u64 = 16;
/// The largest range that can be queried, in bytes.
const MOST: u64 = 4096;
/// Most frames of a stack.
const FRAMES: usize = 16;

/// An instruction that wrote to the range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// Number of instructions that had retired before it; as a position of `--at`, it is before the write.
    pub position: u64,
    /// Virtual time after it, ns.
    pub virtual_ns: u64,
    /// Its linear address.
    pub ip: u64,
    /// Its symbol.
    pub symbol: Option<String>,
    /// The disassembled instruction.
    pub instruction: Option<String>,
    /// Process id of the task.
    pub pid: Option<u32>,
    /// Name of the task.
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
    /// Whether something else has changed the range since the preceding write: a device, a handler, or an instruction
    /// that used another address of the same memory.
    pub changed_before: bool,
    /// The stack after it, innermost first.
    pub stack: Vec<StackFrame>,
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
    /// The number of all writes.
    pub count: u64,
    /// The last writes, oldest first.
    pub last: Vec<Writer>,
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
    Ok((low, low.saturating_add(length - 1)))
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
        whole: high - low < WATCH_VALUE as u64,
        left: None,
        count: 0,
        last: VecDeque::new(),
    }));
    let told = Rc::clone(&ring);
    let witness: Witness = Box::new(move |core, _, hit| {
        if let Some(hit) = hit {
            told.borrow_mut().add(core, hit);
        }
        None
    });
    timeline.witness(vec![StopPoint::Watch(Watch { kind: WatchKind::Write, low, high })], before, witness)?;
    let mut ring = ring.borrow_mut();
    let symbol = guest.target().symbol(low);
    Ok(Writers { low, high, symbol, count: ring.count, last: ring.last.drain(..).collect() })
}

/// Keeps the last writes.
struct Ring {
    target: Arc<Target>,
    reader: Reader,
    most: usize,
    /// Whether hits contain the whole range.
    whole: bool,
    /// The content of the range after the last write.
    left: Option<[u8; WATCH_VALUE]>,
    count: u64,
    last: VecDeque<Writer>,
}

impl Ring {
    fn add(&mut self, core: &Core, hit: &WatchHit) {
        self.count += 1;
        let before = self.left.replace(hit.new).filter(|_| self.whole);
        let ip = core.env().cs_base().wrapping_add(hit.ip);
        let (pid, task) = self.reader.task(core).unzip();
        let moment = core.moment();
        let value = |bytes: &[u8]| hex(bytes.get(..usize::from(hit.len)).unwrap_or_default());
        self.last.push_back(Writer {
            position: moment.icount.saturating_sub(1),
            virtual_ns: moment.virtual_ns,
            ip,
            symbol: self.target.symbol(ip),
            instruction: core.decode_original(ip).map(|instruction| instruction.to_string()),
            pid,
            task,
            address: hit.address,
            size: hit.size,
            old: value(&hit.old),
            new: value(&hit.new),
            changed_before: before.is_some_and(|before| before != hit.old),
            stack: self.reader.stack(&self.target, core, FRAMES),
        });
        if self.last.len() > self.most {
            self.last.pop_front();
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
