//! The guest's own debug registers (SDM volume 3, 17.2): breakpoints on data and on ports, and the #DB that follows an
//! instruction.
//!
//! Breakpoints on execution are the engine's. Data breakpoints close pages, as [`super::watch`] does it, while DR7
//! enables them; ports are compared where port instructions are executed. Both are traps: #DB comes after the
//! instruction, or after the iteration of a repeated one, and with TF set there is one #DB for both.
//!
//! Invariant: outside of a write to a debug register, the watches have the breakpoints that DR0 to DR3 and DR7 enable.

use super::Core;
use super::deliver::{Origin, Vector};
use super::operands::Operand;
use super::watch::{Watch, WatchKind, first_watched};

/// DR6.BS: the #DB is a single step's.
pub(super) const BS: u64 = 1 << 14;
/// DR6.B0 to B3.
const CONDITIONS: u64 = 0xf;
/// DR7.L0 to G3.
const ENABLES: u64 = 0xff;
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

impl Core {
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

    /// A debug register may have been written: has the watches follow.
    pub(super) fn follow_debug_registers(&mut self) {
        let dr7 = self.env.dr(7);
        let on = (0..BREAKPOINTS).filter(|&n| enabled(dr7, n));
        let now = on.filter_map(|n| self.data_breakpoint(n)).collect();
        self.watch_for_guest(now);
    }

    /// Notes which breakpoints an access meets that the instruction at EIP is about to make.
    pub(super) fn note_for_guest(&mut self, operand: &Operand, mask: u64) {
        for n in 0..BREAKPOINTS {
            let Some(watch) = self.data_breakpoint(n) else { continue };
            let seen = operand.writes || watch.kind == WatchKind::ReadWrite;
            if seen && first_watched(&watch, operand.address, operand.size, mask).is_some() {
                self.watches.meet(n);
            }
        }
    }

    /// Notes which breakpoints the instruction at EIP meets that has moved a value through a port. Without CR4.DE there
    /// are none.
    pub(super) fn note_port_for_guest(&mut self, port: u16, size: u8) {
        let dr7 = self.env.dr(7);
        if dr7 & ENABLES == 0 || self.env.cr(4) & CR4_DE == 0 {
            return;
        }
        let (first, last) = (u64::from(port), u64::from(port) + u64::from(size) - 1);
        for n in (0..BREAKPOINTS).filter(|&n| kind(dr7, n).is_none()) {
            let (low, high) = self.breakpoint_range(n);
            if first <= high && last >= low {
                self.watches.meet(n);
            }
        }
    }

    /// The conditions that the guest is told of when the instruction that `met` them has retired: all of them, if one is
    /// of a breakpoint that is enabled, else none.
    #[cold]
    pub(super) fn due(&self, met: u64) -> u64 {
        let dr7 = self.env.dr(7);
        let any = (0..BREAKPOINTS).any(|n| met >> n & 1 != 0 && enabled(dr7, n));
        if any { met } else { 0 }
    }

    /// #DB after an instruction that met these conditions, or, `stepped`, was executed with TF set.
    pub(super) fn debug_trap(&mut self, met: u64, stepped: bool) {
        let (env, ip) = (self.env, self.env.eip());
        let mut bits = met;
        if stepped {
            // As the engine does it: the condition bits of execute breakpoints at this address are set, enabled or not.
            let here = |n: &usize| kind(env.dr(7), *n) == Some(WatchKind::Execute) && env.dr(*n) == ip;
            bits |= (0..BREAKPOINTS).filter(here).fold(BS, |bits, n| bits | 1 << n);
        }
        env.set_dr_raw(6, env.dr(6) & !CONDITIONS | bits);
        self.deliver(Vector::Debug as u8, None, Origin::Trap, ip, ip);
    }
}
