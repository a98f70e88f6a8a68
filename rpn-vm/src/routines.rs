//! The routines of a program: which calls which, and what a handler may do through its calls.
//!
//! The handlers of a program share the procedures that they call: all code is stored once, in one sequence. Seen from a
//! handler, its own instructions come first, numbered from 0, then those of each procedure that it can reach, in the
//! order of the calls ([`Routines::pieces`]). Exceptions, stack traces and disassemblies count in this way.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::code::Insn;
use crate::instructions::{Op, OperandKind};

/// The operands of `exit` that request a debugger, a crash dump and a core file.
const DEBUGGER: u64 = 1;
const CRASH_DUMP: u64 = 2;
const CORE_FILE: u64 = 3;

/// The properties of code that are known before it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Whether it may change the guest.
    pub changes_guest: bool,
    /// Whether it may write to the stack before it throws.
    pub writes_stack: bool,
    /// Whether it may write a core file.
    pub writes_core: bool,
    /// Whether it may write a crash dump.
    pub writes_dump: bool,
    /// Whether it may ask for a debugger.
    pub asks_debugger: bool,
    /// The arguments that it uses: opcode and operand of the instructions.
    pub arguments: BTreeSet<(u8, u64)>,
}

impl Traits {
    /// Adds an instruction.
    pub fn add(&mut self, insn: Insn, observes: bool) {
        self.changes_guest |= !observes;
        self.writes_stack |= !leaves_stack(insn.op);
        self.writes_core |= insn.op == Op::ExitN && insn.arg == CORE_FILE;
        self.writes_dump |= insn.op == Op::ExitN && insn.arg == CRASH_DUMP;
        self.asks_debugger |= insn.op == Op::ExitN && insn.arg == DEBUGGER;
        if matches!(insn.op, Op::PushArg | Op::PushRet) {
            self.arguments.insert((insn.op.code(), insn.arg));
        }
    }

    /// Adds the properties of a called procedure; returns whether anything was added.
    fn join(&mut self, called: &Self) -> bool {
        let all = |traits: &Self| {
            let files = (traits.writes_core, traits.writes_dump, traits.asks_debugger);
            (traits.changes_guest, traits.writes_stack, files, traits.arguments.len())
        };
        let before = all(self);
        self.changes_guest |= called.changes_guest;
        self.writes_stack |= called.writes_stack;
        self.writes_core |= called.writes_core;
        self.writes_dump |= called.writes_dump;
        self.asks_debugger |= called.asks_debugger;
        self.arguments.extend(&called.arguments);
        before != all(self)
    }
}

/// Whether an instruction can never push, nor change an element of the stack.
fn leaves_stack(op: Op) -> bool {
    use Op::{Abort, DecLvN, Exit, IncLvN, Nop, Remove, SetMajN, SetMinN};
    matches!(op, Abort | DecLvN | Exit | IncLvN | Nop | Remove | SetMajN | SetMinN)
}

/// A routine as a handler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins in the program's code.
    pub start: u32,
    /// How many instructions it has.
    pub len: u32,
    /// Where it begins for the handler.
    pub own: u32,
}

/// The routines of a program.
#[derive(Debug)]
pub(crate) struct Routines {
    /// Index of the first instruction of each, ascending, and of the end.
    bounds: Box<[u32]>,
    /// The procedures that each calls, in the order of the first calls.
    callees: Box<[Box<[u32]>]>,
}

impl Routines {
    /// The routines of verified code.
    pub fn new(code: &[Insn], starts: &[u32]) -> Self {
        let mut bounds = starts.to_vec();
        bounds.push(u32::try_from(code.len()).unwrap_or(u32::MAX));
        let mut routines = Self { bounds: bounds.into(), callees: Box::default() };
        routines.callees = (0..starts.len()).map(|n| routines.called_by(code, n)).collect();
        routines
    }

    fn called_by(&self, code: &[Insn], routine: usize) -> Box<[u32]> {
        let body = code.get(self.extent(routine)).unwrap_or_default();
        let calls = body.iter().filter(|insn| insn.op.row().operand == OperandKind::Proc);
        let (mut seen, mut callees) = (BTreeSet::new(), Vec::new());
        for procedure in calls.filter_map(|insn| self.at(insn.arg)) {
            if seen.insert(procedure) {
                callees.push(procedure as u32);
            }
        }
        callees.into()
    }

    /// The routine that begins at an instruction.
    fn at(&self, start: u64) -> Option<usize> {
        self.bounds.binary_search(&u32::try_from(start).ok()?).ok()
    }

    /// Where a routine begins.
    pub fn start(&self, routine: usize) -> Option<u32> {
        self.bounds.get(routine).copied()
    }

    fn extent(&self, routine: usize) -> Range<usize> {
        let bound = |n: usize| self.bounds.get(n).map_or(0, |at| *at as usize);
        bound(routine)..bound(routine + 1)
    }

    fn callees(&self, routine: usize) -> impl Iterator<Item = usize> {
        self.callees.get(routine).into_iter().flatten().map(|callee| *callee as usize)
    }

    /// Extends the properties of each routine by those of all routines that it can reach.
    pub fn spread(&self, traits: &mut [Traits]) {
        let mut callers = vec![Vec::new(); traits.len()];
        for caller in 0..traits.len() {
            for callee in self.callees(caller) {
                if let Some(callers) = callers.get_mut(callee) {
                    callers.push(caller);
                }
            }
        }
        let mut open: Vec<usize> = (0..traits.len()).collect();
        while let Some(callee) = open.pop() {
            let Some(called) = traits.get(callee).cloned() else { continue };
            for &caller in callers.get(callee).into_iter().flatten() {
                if traits.get_mut(caller).is_some_and(|own| own.join(&called)) {
                    open.push(caller);
                }
            }
        }
    }

    /// A handler and the procedures that it can reach, as it sees them.
    pub fn pieces(&self, handler: usize) -> Vec<Piece> {
        let (mut order, mut seen) = (vec![handler], BTreeSet::from([handler]));
        let mut next = 0;
        while let Some(&routine) = order.get(next) {
            order.extend(self.callees(routine).filter(|callee| seen.insert(*callee)));
            next += 1;
        }
        let mut own = 0;
        let piece = |routine: usize| {
            let extent = self.extent(routine);
            let piece = Piece { start: extent.start as u32, len: extent.len() as u32, own };
            own += piece.len;
            piece
        };
        order.into_iter().map(piece).collect()
    }
}
