//! The registers and parts of registers that an argument of a probe can name.

use std::fmt;

/// General registers by their number (SDM volume 2, table 3-1), each with its parts of 8, 4, 2 and 1 bytes.
const GENERAL: [[&str; 4]; 16] = [
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsp", "esp", "sp", "spl"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["r8", "r8d", "r8w", "r8b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r15", "r15d", "r15w", "r15b"],
];
/// Bytes of the parts, in the order of [`GENERAL`].
const PARTS: [u8; 4] = [8, 4, 2, 1];
/// Bits 8 to 15 of the first four general registers.
const HIGH: [&str; 4] = ["ah", "ch", "dh", "bh"];
/// Number of the stack pointer.
const STACK: u8 = 4;

/// A register, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// The low bytes of a general register.
    General {
        /// 0 (AX) to 15 (R15), as instructions encode it.
        number: u8,
        /// 1, 2, 4 or 8.
        bytes: u8,
    },
    /// Bits 8 to 15 of AX, CX, DX or BX: 0 to 3.
    High(u8),
    /// An SSE register, 16 bytes.
    Xmm(u8),
}

impl Register {
    /// The stack pointer, all 8 bytes of it.
    pub const RSP: Self = Self::General { number: STACK, bytes: 8 };
    /// The stack pointer's low 4 bytes.
    pub const ESP: Self = Self::General { number: STACK, bytes: 4 };

    /// The register called `name`, without `%`, in lower case.
    pub fn named(name: &str) -> Option<Self> {
        if let Some(number) = name.strip_prefix("xmm") {
            let plain = number.len() == 1 || number.starts_with('1');
            return number.parse().ok().filter(|n| plain && *n < 16).map(Self::Xmm);
        }
        if let Some(high) = HIGH.iter().position(|high| *high == name) {
            return u8::try_from(high).ok().map(Self::High);
        }
        GENERAL.iter().zip(0..).find_map(|(parts, number)| {
            let part = parts.iter().position(|part| *part == name)?;
            Some(Self::General { number, bytes: PARTS.get(part).copied()? })
        })
    }

    /// Its width in bytes.
    pub fn bytes(self) -> u8 {
        match self {
            Self::General { bytes, .. } => bytes,
            Self::High(_) => 1,
            Self::Xmm(_) => 16,
        }
    }

    /// Whether it exists only in 64-bit code.
    pub fn is_wide_only(self) -> bool {
        match self {
            Self::General { number, bytes } => number >= 8 || bytes == 8 || (bytes == 1 && number >= STACK),
            Self::High(_) => false,
            Self::Xmm(number) => number >= 8,
        }
    }

    /// Whether it is a stack pointer, which cannot be an index.
    pub fn is_stack(self) -> bool {
        matches!(self, Self::General { number: STACK, .. })
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::General { number, bytes } => {
                let part = PARTS.iter().position(|part| part == bytes).unwrap_or_default();
                let name = GENERAL.get(usize::from(*number)).and_then(|parts| parts.get(part));
                write!(f, "%{}", name.copied().unwrap_or("?"))
            }
            Self::High(number) => {
                write!(f, "%{}", HIGH.get(usize::from(*number)).copied().unwrap_or("?"))
            }
            Self::Xmm(number) => write!(f, "%xmm{number}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_its_own_register_and_prints_as_itself() {
        let mut names: Vec<String> = GENERAL.iter().flatten().chain(&HIGH).map(|n| (*n).to_owned()).collect();
        names.extend((0..16).map(|n| format!("xmm{n}")));
        let mut seen = Vec::new();
        for name in names {
            let register = Register::named(&name).unwrap();
            assert_eq!(register.to_string(), format!("%{name}"));
            assert!(!seen.contains(&register), "{name}");
            seen.push(register);
        }
        assert_eq!(seen.len(), 64 + 4 + 16);
        for no in ["", "rip", "xmm16", "xmm01", "xmm+1", "st", "r16", "RAX", "ymm0", "r8x"] {
            assert_eq!(Register::named(no), None, "{no}");
        }
    }

    #[test]
    fn registers_of_64_bit_code_alone_are_known() {
        let wide = |name: &str| Register::named(name).unwrap().is_wide_only();
        for name in ["rax", "r8", "r8d", "r15b", "sil", "dil", "spl", "bpl", "xmm8"] {
            assert!(wide(name), "{name}");
        }
        for name in ["eax", "ah", "bl", "di", "esp", "xmm7"] {
            assert!(!wide(name), "{name}");
        }
    }
}
