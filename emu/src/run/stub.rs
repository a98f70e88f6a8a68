//! Stubs: addresses that the guest can call and at which the interposer answers.
//!
//! A stub acts as a function of one instruction, a near `ret`, without any bytes in memory: the fetch there is refused,
//! the interposer is called and does what the `ret` would, which counts as one instruction. A macro-declared probe is
//! enabled by writing a stub's address into its pointer. Stubs of 64-bit code lie at a non-canonical address. Those of
//! 32-bit code lie in the last page of the linear address space, which execution cannot reach by falling through, and
//! which kernels keep free (Linux ends its fixed maps below it); once a stub is there, 32-bit code cannot be fetched
//! from it.

use crate::cpu::fault::Fault;
use crate::cpu::flags::TF;
use crate::mmu::error_code;
use crate::ram::PAGE;
use crate::run::interpose::Verdict;
use crate::run::{Core, Refusal};

/// First stub of 64-bit code.
const WIDE: u64 = 1 << 58;
/// First stub of 32-bit code.
const NARROW: u64 = 0xffff_f000;
/// Bytes from one stub to the next.
const STEP: u64 = 16;
/// The number of stubs of either kind.
const STUBS: u32 = (PAGE / STEP) as u32;

impl Core {
    /// The address of stub `number` for code with pointers of 8 bytes (`wide`) or 4, which can be called from now on;
    /// `None` beyond the last, 255.
    pub fn stub(&mut self, number: u32, wide: bool) -> Option<u64> {
        if number >= STUBS {
            return None;
        }
        if !wide && !self.narrow_stubs {
            self.narrow_stubs = true;
            // The engine may hold an entry from before the page became one of stubs.
            self.cpu.engine.drop_tlb(NARROW);
        }
        Some(if wide { WIDE } else { NARROW } + STEP * u64::from(number))
    }

    /// Whether `page` holds stubs for code of the current mode.
    #[inline]
    pub(crate) fn is_stub_page(&self, page: u64) -> bool {
        page == WIDE || (self.narrow_stubs && page == NARROW && !self.cpu.env.code64())
    }

    /// Refuses a fetch from a page of stubs; it is a call only if execution has arrived there.
    pub(crate) fn refuse_stub_fetch(&self, own: bool, single: bool) -> Refusal {
        match (own, single) {
            (true, _) => Refusal::Stub,
            (false, true) => Refusal::PageFault(error_code::FETCH),
            (false, false) => Refusal::SecondPage,
        }
    }

    /// The guest has arrived at EIP in a page of stubs.
    pub(crate) fn call_stub(&mut self) {
        let at = self.cpu.linear_ip();
        let (number, rest) = ((at % PAGE) / STEP, at % STEP);
        let tf = self.cpu.env.eflags_raw() & TF != 0;
        let asked =
            if rest == 0 { self.with_interposer(|i, core| i.stub(core, number as u32)) } else { None };
        let verdict = asked.unwrap_or(Verdict::Declined);
        match verdict {
            Verdict::Resumed => {
                self.cpu.hot.clock.icount += 1;
                let met = self.tell_watched();
                if tf || met != 0 {
                    self.debug_trap(met, tf);
                }
            }
            Verdict::Raise(fault) => self.raise_fault(fault),
            // The interposer has no such stub, so the address is unmapped.
            _ if self.cpu.env.code64() => self.raise_fault(Fault::gp(0)),
            _ => {
                let user = if self.cpu.env.cpl() == 3 { error_code::USER } else { 0 };
                self.raise_fault(Fault::page(user, at));
            }
        }
    }
}
