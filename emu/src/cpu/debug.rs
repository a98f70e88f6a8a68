//! The guest's own debug registers (SDM volume 3, 17.2): breakpoints on data and on ports, and the #DB that follows an
//! instruction.
//!
//! They are kept from the engine, which would drop all translations whenever a breakpoint on execution is set or
//! cleared: at each switch to and from a task that has one. While DR7 enables a breakpoint, it is a watch. Breakpoints
//! on execution cut blocks and are faults: #DB comes before the instruction, unless RF is set. Breakpoints on data
//! revoke the access rights of their pages; port breakpoints are checked where port instructions are executed. Both are
//! traps: #DB comes after the instruction, or after the iteration of a repeated one, and with TF set there is one #DB
//! for both.
//!
//! Invariant: outside of a write to a debug register, the watches have the breakpoints that DR0 to DR3 and DR7 enable.

use super::Cpu;
use super::fault::Fault;
use super::flags::RF;
use super::operands::Operand;
use super::outcome::Done;
use super::ranges::{Watch, WatchKind, first_watched};
use iced_x86::Instruction;

/// DR6.BS: the #DB is a single step's.
pub(crate) const BS: u64 = 1 << 14;
/// DR6.BT: the #DB is for a task switch.
const BT: u64 = 1 << 15;
/// DR6.BD: the #DB is for an access to a debug register.
const BD: u64 = 1 << 13;
/// DR6.B0 to B3.
const CONDITIONS: u64 = 0xf;
/// DR6 bits that are always set.
const DR6_FIXED: u64 = 0xffff_0ff0;
/// DR7.L0 to G3.
const ENABLES: u64 = 0xff;
/// DR7.GD: the next access to a debug register raises #DB.
const GD: u64 = 1 << 13;
/// The DR7 bit that is always set.
const DR7_FIXED: u64 = 0x400;
const CR4_DE: u64 = 8;
const BREAKPOINTS: usize = 4;

/// DR7.R/Wn.
fn kind(dr7: u64, n: usize) -> Option<WatchKind> {
    match dr7 >> (16 + 4 * n) & 3 {
        0 => Some(WatchKind::Execute),
        1 => Some(WatchKind::Write),
        2 => None,
        _ => Some(WatchKind::ReadWrite),
    }
}

/// DR7.LENn, bytes.
fn length(dr7: u64, n: usize) -> u64 {
    match dr7 >> (18 + 4 * n) & 3 {
        0 => 1,
        1 => 2,
        2 => 8,
        _ => 4,
    }
}

/// Whether DR7.Ln or DR7.Gn is set.
fn enabled(dr7: u64, n: usize) -> bool {
    dr7 >> (2 * n) & 3 != 0
}

impl Cpu {
    /// MOV to and from debug registers (SDM volume 2, MOV; volume 3, 17.2).
    pub(crate) fn debug_move(&mut self, i: &Instruction) -> Result<Done, Fault> {
        let (to, from) = (i.op0_register(), i.op1_register());
        let named = if to.is_dr() { to } else { from }.number();
        if i.has_lock_prefix() || named > 7 {
            return Err(Fault::ud());
        }
        self.privileged()?;
        let n = match named {
            4 | 5 if self.env.cr(4) & CR4_DE != 0 => return Err(Fault::ud()),
            4 | 5 => named + 2,
            _ => named,
        };
        if self.env.dr(7) & GD != 0 {
            self.env.set_dr_raw(6, self.env.dr(6) | BD);
            return Err(Fault::debug());
        }
        if !to.is_dr() {
            let wide = if self.env.code64() { u64::MAX } else { 0xffff_ffff };
            self.env.set_gpr(to.full_register().number(), self.env.dr(n) & wide);
            return Ok(Done::Next);
        }
        let value = self.register(from);
        if n > 3 && value >> 32 != 0 {
            return Err(Fault::gp(0));
        }
        let fixed = [0, 0, 0, 0, 0, 0, DR6_FIXED, DR7_FIXED];
        self.env.set_dr_raw(n, value | fixed.get(n).copied().unwrap_or(0));
        Ok(Done::Breakpoints)
    }

    /// The handler of #DB may access the debug registers: GD is cleared at entry to it (SDM volume 3, 17.2.4).
    pub(crate) fn allow_debug_registers(&self) {
        self.env.set_dr_raw(7, self.env.dr(7) & !GD);
    }

    /// Addresses, first and last, that breakpoint `n` is for: LEN masks the low bits (SDM volume 3, 17.2.5).
    fn breakpoint_range(&self, n: usize) -> (u64, u64) {
        let rest = length(self.env.dr(7), n) - 1;
        (self.env.dr(n) & !rest, self.env.dr(n) | rest)
    }

    /// Breakpoint `n`, enabled or not, if it is one on data.
    fn data_breakpoint(&self, n: usize) -> Option<Watch> {
        let kind = kind(self.env.dr(7), n).filter(|kind| *kind != WatchKind::Execute)?;
        let (low, high) = self.breakpoint_range(n);
        Some(Watch { kind, low, high })
    }

    /// Breakpoint `n`, enabled or not, if it is one on execution: of one address, whatever LEN says.
    fn code_breakpoint(&self, n: usize) -> Option<Watch> {
        let kind = kind(self.env.dr(7), n).filter(|kind| *kind == WatchKind::Execute)?;
        Some(Watch { kind, low: self.env.dr(n), high: self.env.dr(n) })
    }

    /// Whether RF suppresses a breakpoint on the instruction at EIP. Without such a breakpoint RF has no effect.
    pub(crate) fn resumes_at_breakpoint(&self) -> bool {
        self.env.eflags_raw() & RF != 0 && self.breaks_at(self.linear_ip())
    }

    /// Whether the guest has enabled a breakpoint on the instruction at `linear`.
    pub(crate) fn breaks_at(&self, linear: u64) -> bool {
        let dr7 = self.env.dr(7);
        dr7 & ENABLES != 0
            && (0..BREAKPOINTS)
                .any(|n| enabled(dr7, n) && self.code_breakpoint(n).is_some_and(|b| b.low == linear))
    }

    /// The breakpoints that are enabled, on data and on execution.
    pub(crate) fn enabled_breakpoints(&self) -> Vec<Watch> {
        let dr7 = self.env.dr(7);
        let on = (0..BREAKPOINTS).filter(|&n| enabled(dr7, n));
        on.filter_map(|n| self.data_breakpoint(n).or_else(|| self.code_breakpoint(n))).collect()
    }

    /// Sets the condition bits of DR6 for #DB in place of the instruction at EIP, if it has a breakpoint that RF does
    /// not hide. Returns whether to raise #DB.
    pub(crate) fn note_execute_breakpoint(&mut self) -> bool {
        let linear = self.linear_ip();
        if !self.breaks_at(linear) || self.env.eflags_raw() & RF != 0 {
            return false;
        }
        let here = |n: &usize| self.code_breakpoint(*n).is_some_and(|b| b.low == linear);
        let bits = (0..BREAKPOINTS).filter(here).fold(0, |bits, n| bits | 1 << n);
        self.env.set_dr_raw(6, self.env.dr(6) & !CONDITIONS | bits);
        true
    }

    /// Sets the condition bits of DR6 for #DB after an instruction that met these conditions, or, `stepped`, was executed
    /// with TF set.
    pub(crate) fn note_debug_trap(&mut self, met: u64, stepped: bool) {
        let (env, ip) = (*self.env, self.env.eip());
        let mut bits = met;
        if stepped {
            // As in the engine, the condition bits of execute breakpoints at this address are set, enabled or not.
            let here = |n: &usize| kind(env.dr(7), *n) == Some(WatchKind::Execute) && env.dr(*n) == ip;
            bits |= (0..BREAKPOINTS).filter(here).fold(BS, |bits, n| bits | 1 << n);
        }
        env.set_dr_raw(6, env.dr(6) & !CONDITIONS | bits);
    }

    /// The breakpoints, as condition bits, that an access meets; enabled or not.
    pub(crate) fn met_by_access(&self, operand: &Operand, mask: u64) -> u64 {
        let met = |n: &usize| {
            self.data_breakpoint(*n).is_some_and(|watch| {
                (operand.writes || watch.kind == WatchKind::ReadWrite)
                    && first_watched(&watch, operand.address, operand.size, mask).is_some()
            })
        };
        (0..BREAKPOINTS).filter(met).fold(0, |bits, n| bits | 1 << n)
    }

    /// The breakpoints, as condition bits, that the port instruction at EIP meets. Without CR4.DE there are none.
    pub(crate) fn met_by_port(&self, port: u16, size: u8) -> u64 {
        let dr7 = self.env.dr(7);
        if dr7 & ENABLES == 0 || self.env.cr(4) & CR4_DE == 0 {
            return 0;
        }
        let (first, last) = (u64::from(port), u64::from(port) + u64::from(size) - 1);
        let met = |n: &usize| {
            let (low, high) = self.breakpoint_range(*n);
            kind(dr7, *n).is_none() && first <= high && last >= low
        };
        (0..BREAKPOINTS).filter(met).fold(0, |bits, n| bits | 1 << n)
    }

    /// The conditions to report to the guest when the instruction that `met` them has retired: all of them if at least
    /// one breakpoint among them is enabled, else none.
    #[cold]
    pub(crate) fn due(&self, met: u64) -> u64 {
        let dr7 = self.env.dr(7);
        let any = (0..BREAKPOINTS).any(|n| met >> n & 1 != 0 && enabled(dr7, n));
        if any { met } else { 0 }
    }

    /// Sets the condition of #DB after a task switch that its TSS asks for.
    pub(crate) fn note_task_trap(&self) {
        self.env.set_dr_raw(6, self.env.dr(6) | BT);
    }

    /// Clears RF, as every retired instruction does except those that load it.
    pub(crate) fn clear_rf(&self) {
        self.env.set_eflags_raw(self.env.eflags_raw() & !RF);
    }
}
