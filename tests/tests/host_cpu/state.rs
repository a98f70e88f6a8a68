//! The state after a case, as the host's kernel saved it or as the guest has it, and how two states differ.

use super::limits::Mask;
use super::program::{AT, FX_BYTES, SHOWN, saved_bytes};
use crate::common::Guest;
use trapline_emu::Stop;

/// A denormal operand, in the status word and MXCSR.
const DE: u32 = 2;
/// What is compared of the status word: the exceptions, the stack fault, and what says that one is pending.
const EXCEPTIONS: u32 = 0x80ff;

/// C0 to C3 of the status word.
const CONDITIONS: u32 = 0x4700;

/// The compared state.
#[derive(Debug)]
pub struct State {
    /// In encoding order; RSP included.
    pub registers: [u64; 16],
    pub ip: u64,
    pub flags: u64,
    /// Vector, error code where it has one, address where it has one.
    pub fault: Option<(u64, u64, u64)>,
    pub control: u16,
    /// The x87's, with TOP.
    pub status: u16,
    pub top: u16,
    /// Valid registers, a bit each, and their ten bytes, by physical number.
    pub valid: u8,
    pub x87: [Vec<u8>; 8],
    pub mxcsr: u32,
    pub xmm: Vec<u128>,
    pub memory: Vec<u8>,
}

pub fn record_bytes(bits: u32) -> usize {
    saved_bytes(bits) + FX_BYTES + SHOWN.iter().map(|(_, n)| *n as usize).sum::<usize>()
}

/// The FPU's state at each start: five small numbers and room for three, and vectors of floating-point numbers.
pub fn fx_image() -> Vec<u8> {
    let mut image = vec![0u8; FX_BYTES];
    image[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
    image[2..4].copy_from_slice(&(3u16 << 11).to_le_bytes());
    image[4] = 0xf8;
    image[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    for n in 0..5u64 {
        let significand = (0x8000_0000_0000_0000u64 | n << 60).to_le_bytes();
        image[32 + 16 * n as usize..][..8].copy_from_slice(&significand);
        image[40 + 16 * n as usize..][..2].copy_from_slice(&0x3fffu16.to_le_bytes());
    }
    for n in 0..16u64 {
        let at = 160 + 16 * n as usize;
        image[at..at + 8].copy_from_slice(&(1.5f64 + n as f64).to_le_bytes());
        image[at + 8..at + 12].copy_from_slice(&(2.25f32 * (n + 1) as f32).to_le_bytes());
        image[at + 12..at + 16].copy_from_slice(&(n as f32 + 0.5).to_le_bytes());
    }
    image
}

const HAS_ERROR: std::ops::RangeInclusive<u64> = 10..=14;

fn fault(vector: u64, error: u64, address: u64) -> (u64, u64, u64) {
    // The present bit says only how the page is missing.
    let error = if vector == 14 { error & !1 } else { error };
    let error = if HAS_ERROR.contains(&vector) { error } else { 0 };
    (vector, error, if vector == 14 { address } else { 0 })
}

/// Whether at most one unit in the last place lies between two numbers of the x87 of one sign.
fn are_neighbours(one: &[u8], other: &[u8]) -> bool {
    let [one, other] =
        [one, other].map(|bytes| bytes.iter().rev().fold(0u128, |all, b| all << 8 | u128::from(*b)));
    // A significand of 64 bits, its top bit set, under the exponent: the next binade begins at 2^63, not at 0.
    let place = |value: u128| (value >> 64) << 63 | value & ((1 << 63) - 1);
    place(one).abs_diff(place(other)) <= 1
}

impl State {
    pub fn of_host(bits: u32, record: &[u8]) -> Self {
        let (saved, rest) = record.split_at(saved_bytes(bits));
        let (fx, memory) = rest.split_at(FX_BYTES);
        let size = if bits == 64 { 8 } else { 4 };
        let words: Vec<u64> = saved
            .chunks(size)
            .map(|w| w.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            .collect();
        let mut registers = [0; 16];
        let order: &[usize] = if bits == 64 {
            &[8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4]
        } else {
            &[7, 6, 5, 4, 3, 2, 1, 0]
        };
        let first = if bits == 64 { 0 } else { 4 };
        for (n, register) in order.iter().enumerate() {
            registers[*register] = words[first + n];
        }
        let [ip, flags, error, vector, address] =
            (if bits == 64 { [16, 17, 19, 20, 22] } else { [14, 16, 13, 12, 21] }).map(|n: usize| words[n]);
        let word = |at: usize| u16::from_le_bytes([fx[at], fx[at + 1]]);
        let top = word(2) >> 11 & 7;
        let mut x87: [Vec<u8>; 8] = Default::default();
        for n in 0..8 {
            x87[(n + usize::from(top)) % 8] = fx[32 + 16 * n..][..10].to_vec();
        }
        let vectors = if bits == 64 { 16 } else { 8 };
        State {
            registers,
            ip,
            flags: flags & !0x1_0100,
            fault: (vector != 1).then(|| fault(vector, error, address)),
            control: word(0),
            status: word(2),
            top,
            valid: fx[4],
            x87,
            mxcsr: u32::from_le_bytes([fx[24], fx[25], fx[26], fx[27]]),
            xmm: fx[160..][..16 * vectors]
                .chunks(16)
                .map(|b| u128::from_le_bytes(b.try_into().unwrap()))
                .collect(),
            memory: memory.to_vec(),
        }
    }

    pub fn of_guest(bits: u32, guest: &Guest, stop: &Stop) -> Self {
        let e = guest.core().env();
        let mut registers: [u64; 16] =
            std::array::from_fn(|n| if bits == 32 && n > 7 { 0 } else { e.gpr(n) });
        let (mut ip, mut flags, mut taken) = (e.eip(), guest.core().eflags(), None);
        if e.cpl() == 0 {
            assert_eq!(*stop, Stop::Halted);
            let frame = guest.frame();
            (ip, flags) = (frame.ip, frame.flags);
            registers[4] = frame.stack.map_or(0, |s| s.0);
            taken = Some(fault(frame.vector.into(), frame.error.unwrap_or(0), frame.cr2));
        }
        let tags = e.fptags();
        let shown =
            |&(at, length): &(u64, u64)| (at..at + length).map(|a| guest.mem(a, 1) as u8).collect::<Vec<_>>();
        State {
            registers,
            ip,
            flags: flags & !0x1_0100,
            fault: taken,
            control: e.fpuc(),
            status: e.fpus() & !0x3800 | (e.fpstt() as u16 & 7) << 11,
            top: e.fpstt() as u16 & 7,
            valid: (0..8).filter(|n| tags[*n] == 0).fold(0, |all, n| all | 1 << n),
            x87: std::array::from_fn(|n| e.fpreg(n).to_vec()),
            mxcsr: e.mxcsr(),
            xmm: (0..if bits == 64 { 16 } else { 8 }).map(|n| e.xmm(n)).collect(),
            memory: SHOWN.iter().flat_map(shown).collect(),
        }
    }

    /// How the guest's state differs from this, the host's.
    pub fn differences(&self, guest: &State, mask: &Mask) -> Vec<String> {
        let mut all = Vec::new();
        let mut tell = |what: String, host: String, guest: String| {
            if host != guest {
                all.push(format!("{what} host {host} guest {guest}"));
            }
        };
        tell("fault".into(), format!("{:x?}", self.fault), format!("{:x?}", guest.fault));
        tell(
            "ip".into(),
            format!("{:x}", self.ip.wrapping_sub(AT)),
            format!("{:x}", guest.ip.wrapping_sub(AT)),
        );
        for n in 0..16 {
            tell(format!("r{n}"), format!("{:x}", self.registers[n]), format!("{:x}", guest.registers[n]));
        }
        let flags = |s: &State| format!("{:x}", s.flags & !mask.flags);
        tell("flags".into(), flags(self), flags(guest));
        // The engine keeps reserved bits of the control word.
        tell(
            "control".into(),
            format!("{:x}", self.control & 0x1f3f),
            format!("{:x}", guest.control & 0x1f3f),
        );
        if !mask.mmx {
            tell("top".into(), self.top.to_string(), guest.top.to_string());
            tell("valid".into(), format!("{:x}", self.valid), format!("{:x}", guest.valid));
        }
        let bytes = if mask.mmx { 8 } else { 10 };
        for n in (0..8).filter(|n| self.valid >> n & 1 != 0) {
            if mask.rounded && are_neighbours(&self.x87[n], &guest.x87[n]) {
                continue;
            }
            let value = |s: &State| format!("{:02x?}", &s.x87[n][..bytes]);
            tell(format!("x87 {n}"), value(self), value(guest));
        }
        // The engine notes no denormal operands.
        let hidden = if mask.exact { 0 } else { DE };
        let mxcsr = |s: &State| format!("{:x}", s.mxcsr & !hidden);
        tell("mxcsr".into(), mxcsr(self), mxcsr(guest));
        if !mask.mmx {
            let all = (EXCEPTIONS | CONDITIONS) & !mask.conditions;
            let shown = if mask.exact { all } else { EXCEPTIONS & !DE };
            let status = |s: &State| format!("{:x}", u32::from(s.status) & shown);
            tell("status".into(), status(self), status(guest));
        }
        for n in 0..self.xmm.len() {
            tell(format!("xmm{n}"), format!("{:x}", self.xmm[n]), format!("{:x}", guest.xmm[n]));
        }
        let at = (0..self.memory.len()).find(|&n| self.memory[n] != guest.memory[n]);
        if let Some(n) = at {
            let end = (n + 8).min(self.memory.len());
            tell(
                format!("memory {n:x}"),
                format!("{:02x?}", &self.memory[n..end]),
                format!("{:02x?}", &guest.memory[n..end]),
            );
        }
        all
    }
}
