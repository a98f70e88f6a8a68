//! The oracle's rules for stack tracing: dprobes.lang(8), STACK TRACING, and docs/probe-language.md, "Logging" and "Stack traces".

#![allow(dead_code, reason = "each test binary uses its part")]

use trapline_rpn::{Insn, Op};

use super::{Flow, Naive};

/// The values that a call scope chose for logging: index and count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    pv: (u64, u64),
    lv: (u64, u64),
    gv: (u64, u64),
}

/// The stack trace buffer.
#[derive(Debug, Default)]
pub struct Buffer {
    records: Vec<Vec<u8>>,
    /// Records that did not fit.
    dropped: u32,
}

impl Buffer {
    fn bytes(&self) -> u64 {
        self.records.iter().map(|record| record.len() as u64).sum()
    }

    /// Records with their number, and how many did not fit; `None` without traces.
    pub fn left(self) -> Option<(Vec<u8>, u16, u32)> {
        let nothing = self.records.is_empty() && self.dropped == 0;
        let count = self.records.len() as u16;
        (!nothing).then(|| (self.records.concat(), count, self.dropped))
    }
}

impl Naive<'_> {
    pub fn tracing(&mut self, insn: Insn) -> Flow {
        match insn.op {
            Op::LogSt => self.log_st(),
            Op::PurgeSt => self.trace = Buffer::default(),
            Op::TracePv => {
                let (range, index) = (self.pop(), self.pop());
                self.wishes().pv = (index, range);
            }
            Op::TraceLv | Op::TraceGv => return self.trace_variables(insn.op == Op::TraceGv),
            Op::PushStp => self.push(self.trace.bytes()),
            Op::PopStp => {
                let value = self.pop();
                if value > self.trace.bytes() {
                    return Flow::Throw(0x0040, 7, value);
                }
                // Whole records only.
                while self.trace.bytes() > value {
                    self.trace.records.pop();
                }
            }
            op => unreachable!("the oracle does not know {op:?}"),
        }
        Flow::Next
    }

    /// The range is a count; the first variable that does not exist is the invalid operand.
    fn trace_variables(&mut self, global: bool) -> Flow {
        let (range, index) = (self.pop(), self.pop());
        let have = if global { self.gv.len() } else { self.lv.len() } as u64;
        if u128::from(index) + u128::from(range) > u128::from(have) {
            return Flow::Throw(0x0040, if global { 2 } else { 1 }, index.max(have));
        }
        if global {
            self.wishes().gv = (index, range);
        } else {
            self.wishes().lv = (index, range);
        }
        Flow::Next
    }

    /// The choice of the innermost scope.
    fn wishes(&mut self) -> &mut Wishes {
        match self.calls.last_mut() {
            Some(call) => &mut call.wishes,
            None => &mut self.wishes,
        }
    }

    /// An exception is generated, and goes to this handler.
    pub fn trace_exception(&mut self, handler: Option<usize>) {
        self.last_handler = handler;
        if self.limits.autostacktrace {
            self.log_st();
        }
    }

    fn log_st(&mut self) {
        let room = u64::from(self.limits.excpt_log) - self.trace.bytes();
        match self.record(room as usize) {
            Some(record) => self.trace.records.push(record),
            None => self.trace.dropped += 1,
        }
    }

    /// The last exception with its handler, then a frame for each scope, the innermost first; `None` beyond `room`.
    fn record(&self, room: usize) -> Option<Vec<u8>> {
        let handler = self.last_handler.map_or(u64::MAX, |at| at as u64);
        let mut record = Vec::new();
        for value in [self.last.0, handler, self.last.1, self.last.2] {
            self.trace_word(&mut record, value);
        }
        prefix(&mut record, 0x03, self.calls.len() as u64 + 1);
        let called = self.calls.iter().rev().map(|call| (call.called as u64, call.back as u64, call.wishes));
        for (called, back, wishes) in called.chain([(0, u64::MAX, self.wishes)]) {
            self.trace_word(&mut record, called);
            self.trace_word(&mut record, back);
            let (index, count) = wishes.pv;
            prefix(&mut record, 0x04, count);
            for n in 0..count {
                self.trace_word(&mut record, self.element(0, (index.wrapping_add(n) % 1024) as i64));
                if record.len() > room {
                    return None;
                }
            }
            for (token, (index, count), all) in [(0x05, wishes.lv, &self.lv), (0x06, wishes.gv, &self.gv)] {
                prefix(&mut record, token, count);
                for n in 0..count {
                    self.trace_word(&mut record, all[(index + n) as usize]);
                }
            }
        }
        (record.len() <= room).then_some(record)
    }

    fn trace_word(&self, record: &mut Vec<u8>, value: u64) {
        record.extend(&value.to_le_bytes()[..self.bytes()]);
    }
}

/// Token byte, then a 16-bit little-endian count.
fn prefix(record: &mut Vec<u8>, token: u8, count: u64) {
    record.push(token);
    record.extend((count as u16).to_le_bytes());
}
