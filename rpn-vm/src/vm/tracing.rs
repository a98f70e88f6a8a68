//! Stack tracing: the stack trace buffer, its records, and the values of each call scope in them (man page, STACK
//! TRACING; docs/probe-language.md, "Stack traces").
//!
//! The trace's header, which names the probe point, is added when the trace is committed. The data
//! here is valid only while `State::tracing` is set, so that a run without traces has nothing to clear. The
//! buffer holds complete records only.

use super::exception;
use super::run::{Run, Step, Stop};
use super::{Frame, Handler, MAX_CALLS};
use crate::host::Host;
use crate::instructions::Op;
use crate::verify::Fast;
use trapline_trace::{Prefix, Token};

/// Entries to log, from an index on.
#[derive(Debug, Clone, Copy, Default)]
struct Range {
    index: u32,
    count: u32,
}

/// The values that a call scope chose for its frame.
#[derive(Debug, Clone, Copy, Default)]
struct Scope {
    pv: Range,
    lv: Range,
    gv: Range,
}

impl Scope {
    fn entries(&self) -> usize {
        [self.pv, self.lv, self.gv].iter().map(|range| range.count as usize).sum()
    }
}

/// The stack trace buffer and its state.
#[derive(Debug)]
pub(super) struct Tracing {
    /// Records, one after the other; STP is its length.
    buffer: Vec<u8>,
    /// Where each record begins.
    starts: Vec<usize>,
    /// Records that did not fit.
    dropped: u32,
    /// By nested calls; the first is the handler's own. The others count only while their frame is `traced`.
    scopes: [Scope; MAX_CALLS + 1],
    /// The handler of the last exception. Valid only if this run had an exception.
    handler: Handler,
}

impl Default for Tracing {
    fn default() -> Self {
        let scopes = [Scope::default(); MAX_CALLS + 1];
        Self { buffer: Vec::new(), starts: Vec::new(), dropped: 0, scopes, handler: None }
    }
}

impl Tracing {
    fn begin(&mut self) {
        self.purge();
        self.scopes[0] = Scope::default();
    }

    fn purge(&mut self) {
        self.buffer.clear();
        self.starts.clear();
        self.dropped = 0;
    }

    #[cold]
    pub fn left(&self) -> Option<StackTrace<'_>> {
        if self.starts.is_empty() && self.dropped == 0 {
            return None;
        }
        // At least 36 bytes a record, at most 65,535 bytes.
        let count = self.starts.len() as u16;
        Some(StackTrace { records: &self.buffer, count, dropped: self.dropped })
    }

    /// Moves STP back to the start of the record that contains `stp`, so that only complete records remain.
    fn back_to(&mut self, stp: usize) {
        if stp < self.buffer.len() {
            let whole = self.starts.partition_point(|&start| start <= stp).saturating_sub(1);
            self.buffer.truncate(self.starts.get(whole).copied().unwrap_or_default());
            self.starts.truncate(whole);
        }
    }
}

/// The stack trace records of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackTrace<'a> {
    /// The records in the format of docs/records.md, "Stack traces", without header and record count.
    pub records: &'a [u8],
    /// Their number.
    pub count: u16,
    /// Records that did not fit `excpt_log`.
    pub dropped: u32,
}

impl<H: Host, const W64: bool> Run<'_, H, W64> {
    pub fn tracing(&mut self, insn: Fast) -> Step {
        self.begin_tracing();
        match insn.op {
            Op::LogSt => self.log_st(),
            Op::PurgeSt => self.vm.tracing.purge(),
            Op::TracePv => {
                // Any index is valid, because the stack is a ring.
                let (range, index) = (self.pop(), self.pop());
                let count = u32::try_from(range).unwrap_or(u32::MAX);
                self.scope().pv = Range { index: index as u32, count };
            }
            Op::TraceLv => {
                let range = self.checked_range(false)?;
                self.scope().lv = range;
            }
            Op::TraceGv => {
                let range = self.checked_range(true)?;
                self.scope().gv = range;
            }
            Op::PushStp => self.push(self.vm.tracing.buffer.len() as u64),
            Op::PopStp => {
                let value = self.pop();
                match usize::try_from(value) {
                    Ok(stp) if stp <= self.vm.tracing.buffer.len() => self.vm.tracing.back_to(stp),
                    _ => return Err(self.fault(exception::INVALID_OPERAND, 7, value)),
                }
            }
            _ => return self.impossible(insn),
        }
        Ok(())
    }

    /// Clears the buffer at its first use in this run.
    fn begin_tracing(&mut self) {
        if !std::mem::replace(&mut self.vm.run.tracing, true) {
            self.vm.tracing.begin();
        }
    }

    /// An exception is about to go to `handler`; nothing has returned yet.
    #[cold]
    pub fn generating(&mut self, handler: Handler) {
        self.vm.tracing.handler = handler;
        if self.program.limits().autostacktrace {
            self.begin_tracing();
            self.log_st();
        }
    }

    /// Nested calls.
    fn depth(&self) -> usize {
        (self.vm.run.depth as usize).min(MAX_CALLS)
    }

    /// The values chosen by the running scope, mutable.
    fn scope(&mut self) -> &mut Scope {
        let depth = self.depth();
        let scope = &mut self.vm.tracing.scopes[depth];
        if let Some(frame) = depth.checked_sub(1).and_then(|n| self.vm.frames.get_mut(n))
            && !std::mem::replace(&mut frame.traced, true)
        {
            *scope = Scope::default();
        }
        scope
    }

    /// The values chosen by a scope.
    fn asked(&self, depth: usize) -> Scope {
        let frame = depth.checked_sub(1).and_then(|n| self.vm.frames.get(n));
        if frame.is_none_or(|frame| frame.traced) { self.vm.tracing.scopes[depth] } else { Scope::default() }
    }

    /// Pops range (a count) and index of variables that exist.
    fn checked_range(&mut self, global: bool) -> Result<Range, Stop> {
        let (range, index) = (self.pop(), self.pop());
        let have = self.vars(global).len() as u64;
        if index.checked_add(range).is_none_or(|end| end > have) {
            let parm = if global { 2 } else { 1 };
            return Err(self.fault(exception::INVALID_OPERAND, parm, index.max(have)));
        }
        Ok(Range { index: index as u32, count: range as u32 })
    }

    /// Adds a record, or counts it if it does not fit.
    fn log_st(&mut self) {
        let depth = self.depth();
        let frame = 2 * Self::BYTES + 3 * Prefix::SIZE;
        let entries: usize = (0..=depth).map(|depth| self.asked(depth).entries()).sum();
        let size = 4 * Self::BYTES + Prefix::SIZE + (depth + 1) * frame + entries * Self::BYTES;
        let start = self.vm.tracing.buffer.len();
        if start + size > self.program.limits().excpt_log as usize {
            self.vm.tracing.dropped = self.vm.tracing.dropped.saturating_add(1);
            return;
        }
        self.vm.tracing.starts.push(start);
        let last = self.vm.run.last;
        let handler = if last.code == 0 { None } else { self.vm.tracing.handler };
        let handler = handler.map_or(u64::MAX, |h| u64::from(self.program.own(h.get() - 1)));
        for value in [last.code, handler, last.parm1, last.parm2] {
            self.trace_word(value);
        }
        self.trace_prefix(Token::Frames, depth as u32 + 1);
        for depth in (0..=depth).rev() {
            self.log_frame(depth);
        }
    }

    /// The frame of a scope: the called procedure, the return index, and the chosen values.
    fn log_frame(&mut self, depth: usize) {
        let (called, ret) = match depth.checked_sub(1).and_then(|n| self.vm.frames.get(n)) {
            Some(&Frame { ret, .. }) => {
                let call = ret.checked_sub(1).and_then(|at| self.program.fast.get(at as usize));
                let own = |at: u32| u64::from(self.program.own(at));
                (call.map_or(0, |insn| own(insn.arg as u32)), own(ret))
            }
            // The handler, which was not called.
            None => (0, u64::MAX),
        };
        let Scope { pv, lv, gv } = self.asked(depth);
        self.trace_word(called);
        self.trace_word(ret);
        self.trace_prefix(Token::Entries, pv.count);
        for n in 0..pv.count {
            self.trace_word(self.vm.stack.get(pv.index.wrapping_add(n)));
        }
        for (token, range, global) in [(Token::Locals, lv, false), (Token::Globals, gv, true)] {
            self.trace_prefix(token, range.count);
            for n in 0..range.count {
                let value = self.vars(global).get((range.index + n) as usize).copied().unwrap_or_default();
                self.trace_word(value);
            }
        }
    }

    fn trace_word(&mut self, value: u64) {
        self.vm.tracing.buffer.extend_from_slice(&value.to_le_bytes()[..Self::BYTES]);
    }

    fn trace_prefix(&mut self, token: Token, count: u32) {
        let [low, high, ..] = count.to_le_bytes();
        self.vm.tracing.buffer.extend_from_slice(&[token as u8, low, high]);
    }
}
