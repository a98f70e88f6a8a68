//! The control and status of the x87 and of SSE, as the engine computes with them.
//!
//! The engine derives from the x87's control word and from MXCSR how it computes, but takes MXCSR.FZ for the x87 instead of
//! SSE, and never gives the guest the exceptions that its computations note. So the status word and MXCSR are read and written
//! here only, together with both. Invariant: the exception flags are those of the engine's `float_status`; the ones in the
//! status word and MXCSR as the engine has them may be old. [`Env::settle_float`] brings them up to date, and the machine
//! does so before an instruction that shows them; after one that loads them, [`Env::adopt_float`] does the rest.
//!
//! The engine computes right only while all exceptions are masked and MXCSR has neither FZ nor DAZ. Otherwise two of the hidden
//! flags say that the machine is to execute the instructions: they are written here, with the two words.

use super::env::{Env, hflags};
use super::layout::{env as off, float};

/// IE, DE, ZE, OE, UE and PE, in both words.
const EXCEPTIONS: u8 = 0x3f;
const UE_AND_PE: u8 = 0x30;
/// Of the status word: an exception is pending, in two bits.
const PENDING: u16 = 0x8080;
const DAZ: u32 = 1 << 6;
const MASKS: u32 = 0x3f << 7;
/// Underflow is masked.
const UM: u32 = 1 << 11;
const FZ: u32 = 1 << 15;
/// The bits of the control word that there are, without the one that is always set.
const CONTROL: u16 = 0x1f3f;

// The engine's flags are those of the registers.
const _: () =
    assert!(float::INVALID == 1 && float::DIVIDE == 4 && float::OVERFLOW == 8 && float::UNDERFLOW == 0x10);
const _: () = assert!(float::INEXACT == 0x20);
const _: () = assert!(float::NEAREST == 0 && float::DOWN == 1 && float::UP == 2 && float::ZERO == 3);

/// The hidden flags that a control word and MXCSR need.
pub(crate) fn float_flags(control: u16, mxcsr: u32) -> u32 {
    let sse = mxcsr & (MASKS | FZ | DAZ) != MASKS;
    let x87 = control & u16::from(EXCEPTIONS) != u16::from(EXCEPTIONS);
    (if sse { hflags::EXACT_SSE } else { 0 }) | if x87 { hflags::EXACT_X87 } else { 0 }
}

impl Env<'_> {
    /// The x87's status word, without TOP.
    pub fn fpus(self) -> u16 {
        let flags = self.get::<u8>(off::FP_STATUS + float::FLAGS) & EXCEPTIONS;
        let others = self.raw_fpus() & !PENDING & !u16::from(EXCEPTIONS);
        let pending = u16::from(flags) & !self.fpuc() != 0;
        others | u16::from(flags) | if pending { PENDING } else { 0 }
    }

    /// Writes the x87's status word, without TOP.
    pub fn set_fpus(self, value: u16) {
        self.set_raw_fpus(value);
        self.put(off::FP_STATUS + float::FLAGS, value as u8 & EXCEPTIONS);
    }

    /// Writes the x87's control word, of which some bits are fixed.
    pub fn set_fpuc(self, value: u16) {
        let value = value & CONTROL | 0x40;
        self.put(off::FPUC, value);
        self.set_hflags(self.hflags() & !hflags::EXACT_X87 | float_flags(value, 0) & hflags::EXACT_X87);
        self.put(off::FP_STATUS + float::ROUNDING, (value >> 10 & 3) as u8);
        let precision = match value >> 8 & 3 {
            0 => 32u8,
            2 => 64,
            _ => 80,
        };
        self.put(off::FP_STATUS + float::PRECISION, precision);
    }

    /// MXCSR.
    pub fn mxcsr(self) -> u32 {
        let flags = self.get::<u8>(off::SSE_STATUS + float::FLAGS);
        let flushed = if flags & float::FLUSHED != 0 { UE_AND_PE } else { 0 };
        self.raw_mxcsr() & !u32::from(EXCEPTIONS) | u32::from(flags & EXCEPTIONS | flushed)
    }

    /// Writes MXCSR. FZ has no effect while underflow is not masked (SDM volume 1, 10.2.3.3).
    pub fn set_mxcsr(self, value: u32) {
        self.set_raw_mxcsr(value);
        self.set_hflags(self.hflags() & !hflags::EXACT_SSE | float_flags(0, value) & hflags::EXACT_SSE);
        self.put(off::SSE_STATUS + float::ROUNDING, (value >> 13 & 3) as u8);
        self.put(off::SSE_STATUS + float::FLAGS, value as u8 & EXCEPTIONS);
        self.put(off::SSE_STATUS + float::FLUSH_OPERANDS, u8::from(value & DAZ != 0));
        self.put(off::SSE_STATUS + float::FLUSH_RESULTS, u8::from(value & (FZ | UM) == FZ | UM));
        self.put(off::FP_STATUS + float::FLUSH_RESULTS, 0u8);
    }

    /// Whether the machine executes all floating point of SSE, or all of the x87.
    #[inline(always)]
    pub(crate) fn is_exact(self) -> bool {
        self.hflags() & (hflags::EXACT_SSE | hflags::EXACT_X87) != 0
    }

    /// Has the engine's own words show the exceptions.
    pub(crate) fn settle_float(self) {
        self.set_raw_fpus(self.fpus());
        self.set_raw_mxcsr(self.mxcsr());
    }

    /// Takes what the engine has loaded into its own words.
    pub(crate) fn adopt_float(self) {
        self.set_fpuc(self.fpuc());
        self.set_fpus(self.raw_fpus());
        self.set_mxcsr(self.raw_mxcsr());
    }

    fn raw_fpus(self) -> u16 {
        self.get(off::FPUS)
    }

    fn set_raw_fpus(self, value: u16) {
        self.put(off::FPUS, value);
    }

    fn raw_mxcsr(self) -> u32 {
        self.get(off::MXCSR)
    }

    fn set_raw_mxcsr(self, value: u32) {
        self.put(off::MXCSR, value);
    }

    fn get<T: Copy>(self, offset: usize) -> T {
        // SAFETY: verified layout: `offset` is that of a field of this type, or of a byte of a `float_status`.
        unsafe { self.base().add(offset).cast::<T>().read() }
    }

    fn put<T: Copy>(self, offset: usize, value: T) {
        // SAFETY: as for `get`; no Rust reference to engine memory exists.
        unsafe { self.base().add(offset).cast::<T>().write(value) }
    }
}
