//! The calls of a function: their time, caller, arguments and value.
//!
//! A call is identified by the place of its return address on the stack: it has returned when the instruction at this
//! address is executed with the stack pointer just above the place. So nested calls and calls of several tasks are
//! distinguished. A function that ends with a jump to another function returns when that function returns.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use iced_x86::FlowControl;
use serde::Serialize;
use trapline_emu::{Access, Core, Moment, PAGE};
use trapline_interposer::Place;
use trapline_os::CodePointer;
use trapline_providers::{Description, Site, Target};
use trapline_rpn::Argument;

use super::{Before, QuestionError, Reader, TaskId, timeline};
use crate::guest::Guest;
use crate::recording::{Position, Recording};
use crate::session::{CodeAddress, Witness};
use crate::timeline::{StopPoint, Timeline};

/// Number of arguments that are shown.
const ARGUMENTS: u8 = 6;
/// Most bytes of arguments that a return takes from the stack.
const MOST_POPPED: u64 = 1024;
/// Number of low bits in which the addresses of one kernel stack differ.
const STACK_BITS: u32 = 14;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Left {
    /// It returned.
    Returned,
    /// It was left in another way, for example by a longjmp: its caller continued.
    Abandoned,
    /// It has not returned at the end of the query.
    Unfinished,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Number of instructions that had retired when the function was entered.
    pub position: u64,
    /// Virtual time then, ns.
    pub virtual_ns: u64,
    /// Process id of the task.
    pub pid: Option<u32>,
    /// Name of the task.
    pub task: Option<String>,
    /// The first arguments, as far as they can be read. The actual number of arguments is unknown.
    pub arguments: Vec<u64>,
    /// The return address.
    pub caller: u64,
    /// Its symbol.
    pub caller_symbol: Option<String>,
    /// Number of calls of the function by the same task that contain this one.
    pub depth: usize,
    /// The address of the function that is called.
    pub function: u64,
    /// How it ended.
    pub left: Left,
    /// Number of instructions that had retired when it had returned, or was found to be left.
    pub returned: Option<u64>,
    /// The value that it returned.
    pub value: Option<u64>,
    /// Whether it ended with a jump to another function, which has returned the value.
    pub tail_call: bool,
    /// Instructions from the entry to the return.
    pub insns: Option<u64>,
    /// Virtual time from the entry to the return, ns.
    pub ns: Option<u64>,
}

/// A function whose calls are listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CalledFunction {
    /// Its address.
    pub address: u64,
    /// Its symbol.
    pub symbol: Option<String>,
}

/// The calls of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// The functions: several may have the name.
    pub functions: Vec<CalledFunction>,
    /// Its calls, in the order in which they began.
    pub calls: Vec<Call>,
}

/// The calls of a function of the kernel, before a position or in a whole recording.
///
/// # Errors
/// There is no such function or position, or the recording cannot be followed.
pub fn calls(
    guest: &Guest,
    recording: &Recording,
    function: &str,
    before: Before,
) -> Result<Calls, QuestionError> {
    let mut timeline = timeline(guest, recording)?;
    let entries = sites(guest, function, "entry")?;
    let exits = sites(guest, function, "return").unwrap_or_default();
    let mut functions: Vec<u64> = entries.iter().map(|entry| entry.linear).collect();
    functions.sort_unstable();
    functions.dedup();
    let ends: Vec<End> =
        entries.into_iter().map(End::Entry).chain(exits.into_iter().map(End::Exit)).collect();
    let (points, sites) = points(ends);
    let reader = Reader::of(timeline.session());
    let target = Arc::clone(guest.target());
    let book = Book { target, reader, all: Vec::new(), open: Vec::new(), again: Vec::new() };
    let book = Rc::new(RefCell::new(book));
    let told = Rc::clone(&book);
    let witness: Witness = Box::new(move |core, point, _| {
        let mut book = told.borrow_mut();
        match sites.get(point).map(Rc::as_ref) {
            Some(End::Entry(entry)) if entry.is_here(core) => return book.entered(core, &entry.site),
            Some(End::Exit(exit)) if exit.is_here(core) => book.leaving(core, exit.site.tail_call),
            Some(_) => {}
            None => book.at_return(core),
        }
        None
    });
    timeline.witness(points, before, witness)?;
    let mut calls = std::mem::take(&mut book.borrow_mut().all);
    let again = std::mem::take(&mut book.borrow_mut().again);
    tell_apart(&mut timeline, &mut calls, &again)?;
    let function =
        |address: u64| CalledFunction { address, symbol: guest.target().symbol(CodePointer::At(address)) };
    Ok(Calls { functions: functions.into_iter().map(function).collect(), calls })
}

/// Where the function was entered again at the place of an earlier call that had left it by a jump: either by further jumps, and then both
/// return at once; or by a new call, after the earlier one was left in another way. The instruction before says which.
fn tell_apart(timeline: &mut Timeline, calls: &mut [Call], again: &[Again]) -> Result<(), QuestionError> {
    let earlier_of: BTreeMap<usize, usize> = again.iter().map(|it| (it.call, it.earlier)).collect();
    for Again { call, earlier } in again {
        let Some((at, ns)) = calls.get(*call).map(|call| (call.position, call.virtual_ns)) else { continue };
        timeline.goto(Position::At { icount: at.saturating_sub(1), ordinal: 0 })?;
        let core = timeline.session().core();
        let before = core.decode_original(core.linear_ip());
        if !before.is_some_and(|i| matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall))
        {
            continue;
        }
        let mut next = Some(*earlier);
        while let Some(number) = next {
            let Some(over) = calls.get_mut(number).filter(|call| call.left != Left::Abandoned) else { break };
            (over.left, over.value, over.returned, over.tail_call) = (Left::Abandoned, None, Some(at), false);
            (over.insns, over.ns) = (Some(at - over.position), Some(ns - over.virtual_ns));
            next = earlier_of.get(&number).copied();
        }
    }
    Ok(())
}

/// An instruction at which a function is entered or may be left.
struct Spot {
    linear: u64,
    paddr: u64,
    site: Site,
}

impl Spot {
    /// Whether it is the next instruction; another address space may have something else at its address.
    fn is_here(&self, core: &Core) -> bool {
        let at = core.linear_ip();
        let found = core.peek_translate(at, Access::Fetch, core.env().cpl() == 3);
        found.is_some_and(|found| found.paddr + at % PAGE == self.paddr)
    }
}

/// A spot, and what it is to the function.
enum End {
    Entry(Spot),
    Exit(Spot),
}

/// The points at which these spots are met, and the spot of each: code that runs before the kernel has mapped itself where
/// it is linked has its physical addresses.
fn points(ends: Vec<End>) -> (Vec<StopPoint>, Vec<Rc<End>>) {
    let addresses = |end: &End| match end {
        End::Entry(spot) | End::Exit(spot) => (spot.linear, spot.paddr),
    };
    let at_each = |end: End| {
        let ((linear, paddr), end) = (addresses(&end), Rc::new(end));
        let early = (paddr != linear).then(|| (Timeline::breakpoint(paddr), Rc::clone(&end)));
        [Some((Timeline::breakpoint(linear), end)), early].into_iter().flatten()
    };
    ends.into_iter().flat_map(at_each).unzip()
}

/// The sites at which a function of the kernel is entered or left, as in fbt, and its arguments there.
fn sites(guest: &Guest, function: &str, name: &str) -> Result<Vec<Spot>, QuestionError> {
    let wrong = |error: &dyn std::fmt::Display| QuestionError::Place(error.to_string());
    let description = Description::parse(&format!("fbt::{function}:{name}")).map_err(|e| wrong(&e))?;
    let target = guest.target();
    let probes = target.catalog().find(target, &description).map_err(|e| wrong(&e))?;
    let mut functions: Vec<_> = probes.iter().map(|probe| &probe.name.function).collect();
    functions.dedup();
    if functions.len() > 1 {
        let text = format!("`{function}` means {} functions; name one", functions.len());
        return Err(QuestionError::Place(text));
    }
    let at = |site: Site| match site.place {
        Place::Kernel { linear, paddr } => Some(Spot { linear, paddr, site }),
        _ => None,
    };
    let found: Vec<_> = probes.into_iter().flat_map(|probe| probe.sites).filter_map(at).collect();
    let elsewhere = format!(
        "`{function}` is not a function of the kernel itself; only calls of such functions can be listed"
    );
    if found.is_empty() { Err(QuestionError::Place(elsewhere)) } else { Ok(found) }
}

/// A call that has not returned.
struct Open {
    /// Its number.
    call: usize,
    began: Moment,
    /// The stack pointer after the return.
    sp: u64,
    /// Where the return address is, and what it is there.
    place: u64,
    caller: u64,
    /// Bytes of a return address.
    word: usize,
    /// The linear address to which it returns.
    back: u64,
    task: TaskId,
    /// Whether the last exit of the function that it reached is a jump to another function.
    jumps: bool,
}

impl Open {
    /// Whether its frame is gone where a function is entered or left with this stack pointer: another frame is where it was,
    /// or lies above it, and its return address is not in its place any more. Where tasks are not known, or stacks are small,
    /// a stack pointer above it may be that of another stack: then its return address is still there.
    fn is_over(&self, core: &Core, task: TaskId, sp: u64) -> bool {
        self.shares_stack(task, sp) && self.sp <= sp && !self.is_in_place(core)
            || self.shares_stack(task, sp) && self.sp == sp && !self.jumps
    }

    /// Whether a function that is entered with this stack pointer may be one to which it has come by jumps.
    fn may_go_on(&self, core: &Core, task: TaskId, sp: u64) -> bool {
        self.task == task && self.sp == sp && self.jumps && self.is_in_place(core)
    }

    /// Whether its return address is where it was.
    fn is_in_place(&self, core: &Core) -> bool {
        let mut bytes = [0; 8];
        let read = bytes.get_mut(..self.word).map(|bytes| core.peek(self.place, bytes));
        !matches!(read, Some(Ok(()))) || u64::from_le_bytes(bytes) == self.caller
    }

    /// Whether a stack pointer is one of the same stack.
    fn shares_stack(&self, task: TaskId, sp: u64) -> bool {
        self.task == task && (self.sp - 1) >> STACK_BITS == sp.wrapping_sub(1) >> STACK_BITS
    }
}

/// A call that began at the place of an earlier one, which had left the function by a jump.
struct Again {
    call: usize,
    earlier: usize,
}

/// All calls, and the open ones.
struct Book {
    target: Arc<Target>,
    reader: Reader,
    all: Vec<Call>,
    open: Vec<Open>,
    again: Vec<Again>,
}

impl Book {
    /// The function is about to run; returns its return address.
    fn entered(&mut self, core: &Core, site: &Site) -> Option<u64> {
        let moment = core.moment();
        let word = if core.env().code64() { 8 } else { 4 };
        let top = core.env().gpr(4);
        let mut bytes = [0; 8];
        let place = core.wrap_linear(core.stack().linear(top));
        core.peek(place, bytes.get_mut(..word)?).ok()?;
        let (caller, sp) = (u64::from_le_bytes(bytes), top.wrapping_add(word as u64));
        let task = self.reader.task_id(core);
        // If the entry is retried after a fault, it is still the same call.
        if self
            .open
            .iter()
            .any(|open| open.task == task && open.sp == sp && open.began.icount == moment.icount)
        {
            return None;
        }
        self.abandon(core, task, sp, moment);
        let earlier = self.open.iter().rfind(|open| open.may_go_on(core, task, sp)).map(|open| open.call);
        let call = self.all.len();
        self.again.extend(earlier.map(|earlier| Again { call, earlier }));
        let depth = self.open.iter().filter(|open| open.task == task).count();
        let (pid, name) = self.reader.task(core).unzip();
        let argument = |n| site.arguments.argument(core, Argument::Number(n)).ok();
        let arguments = (0..ARGUMENTS).map_while(argument).collect();
        let back = CodeAddress::of(core, caller);
        self.open.push(Open {
            call,
            began: moment,
            sp,
            place,
            caller,
            word,
            back: back.linear,
            task,
            jumps: false,
        });
        self.all.push(Call {
            position: moment.icount,
            virtual_ns: moment.virtual_ns,
            pid,
            task: name,
            arguments,
            function: core.linear_ip(),
            caller,
            caller_symbol: back.call_symbol(&mut self.reader.naming(&self.target, core)),
            depth,
            left: Left::Unfinished,
            returned: None,
            value: None,
            tail_call: false,
            insns: None,
            ns: None,
        });
        Some(back.linear)
    }

    /// An instruction that may leave the function is about to run; `jumps`: to another function.
    fn leaving(&mut self, core: &Core, jumps: bool) {
        let (task, sp) = (self.reader.task_id(core), core.env().gpr(4));
        // The innermost call whose frame contains the stack pointer, the last one of several: that of another stack is farther away.
        let inside = |open: &&mut Open| open.task == task && open.sp > sp;
        if let Some(open) = self.open.iter_mut().rev().filter(inside).min_by_key(|open| open.sp) {
            open.jumps = jumps;
        }
    }

    /// The instruction at a return address is about to be executed.
    fn at_return(&mut self, core: &Core) {
        let (ip, sp) = (core.linear_ip(), core.env().gpr(4));
        let task = self.reader.task_id(core);
        let is_back =
            |open: &Open| open.back == ip && (open.sp..open.sp.saturating_add(MOST_POPPED)).contains(&sp);
        // A task may not be the current one yet when it continues: then the place on the stack is sufficient.
        let found = self.open.iter().rposition(|open| open.task == task && is_back(open));
        let Some(at) = found.or_else(|| self.open.iter().rposition(|open| open.sp == sp && is_back(open)))
        else {
            return;
        };
        let open = self.open.remove(at);
        let moment = core.moment();
        let mask = if core.env().code64() { u64::MAX } else { 0xffff_ffff };
        let value = Some(core.env().gpr(0) & mask);
        // What it has come from by jumps returns with it.
        let with_it = |other: &Open| {
            (other.task, other.sp, other.back) == (open.task, open.sp, open.back) && other.jumps
        };
        let (also, rest) = std::mem::take(&mut self.open).into_iter().partition(with_it);
        self.open = rest;
        let also: Vec<Open> = also;
        also.iter().for_each(|other| self.close(other, moment, Left::Returned, value));
        self.abandon(core, open.task, open.sp, moment);
        self.close(&open, moment, Left::Returned, value);
    }

    /// Ends the calls whose frames are gone.
    fn abandon(&mut self, core: &Core, task: TaskId, sp: u64, now: Moment) {
        let is_over = |open: &Open| open.is_over(core, task, sp);
        let (over, open) = std::mem::take(&mut self.open).into_iter().partition(is_over);
        self.open = open;
        let over: Vec<Open> = over;
        over.iter().for_each(|open| self.close(open, now, Left::Abandoned, None));
    }

    fn close(&mut self, open: &Open, now: Moment, left: Left, value: Option<u64>) {
        if let Some(call) = self.all.get_mut(open.call) {
            (call.left, call.value, call.returned) = (left, value, Some(now.icount));
            call.insns = Some(now.icount - open.began.icount);
            call.tail_call = left == Left::Returned && open.jumps;
            call.ns = Some(now.virtual_ns - open.began.virtual_ns);
        }
    }
}
