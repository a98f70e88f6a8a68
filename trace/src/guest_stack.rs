//! The data of a stack record: the return addresses of a kernel's or a program's stack, and the modules they lie in.
//!
//! A module may be unloaded when the record is read, and two processes may map different modules at one address. So
//! each record says which module an address was in and where the module began. The reader adds the names of functions.

use crate::bytes::{DecodeError, Reader};
use crate::names::Symbolize;
use crate::record::Kind;

/// Most modules of a stack; addresses in further ones have none.
const MAX_MODULES: usize = 127;
/// Flag in a frame's module byte: the instruction at the frame's address is about to run.
const EXACT: u8 = 0x80;

/// A module that an address of a stack lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackModule {
    /// The kernel, a kernel module, or a file's path in the guest.
    pub name: String,
    /// The base: subtract it from an address, modulo the word, to get the address in the module. For the kernel 0, for
    /// a kernel module its load address, for a file the address of its offset 0.
    pub base: u64,
}

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackFrame {
    /// Instruction pointer or return address.
    pub ip: u64,
    /// Whether the instruction at `ip` is about to run. Otherwise a call returns there, and `ip` may lie after the last
    /// instruction of its function.
    pub exact: bool,
    /// Its module, as an index of [`GuestStack::modules`].
    pub module: Option<usize>,
}

impl StackFrame {
    /// Distance from the address that is looked up to `ip`.
    fn back(self) -> u64 {
        u64::from(!self.exact)
    }
}

/// A stack, innermost frame first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestStack {
    /// Each module once, in the order of the frames that lie in them first.
    pub modules: Vec<StackModule>,
    /// The frames.
    pub frames: Vec<StackFrame>,
}

impl GuestStack {
    /// Adds a frame, and its module by name and base if it is in one.
    pub fn push(&mut self, ip: u64, exact: bool, module: Option<(&str, u64)>) {
        let module = module.and_then(|(name, base)| {
            let known = self.modules.iter().position(|m| m.base == base && m.name == name);
            if known.is_none() && self.modules.len() < MAX_MODULES {
                self.modules.push(StackModule { name: name.to_owned(), base });
                return Some(self.modules.len() - 1);
            }
            known
        });
        self.frames.push(StackFrame { ip, exact, module });
    }

    /// Appends it as bytes, with words of `width` bits. A name is cut at 65,535 bytes.
    pub fn encode(&self, width: u8, out: &mut Vec<u8>) {
        let word = usize::from(width / 8);
        let put = |value: u64, out: &mut Vec<u8>| out.extend(value.to_le_bytes().into_iter().take(word));
        out.push(self.modules.len().min(MAX_MODULES) as u8);
        for module in self.modules.iter().take(MAX_MODULES) {
            let name = module.name.as_bytes();
            let name = name.get(..usize::from(u16::MAX)).unwrap_or(name);
            put(module.base, out);
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(name);
        }
        for frame in &self.frames {
            let number = frame.module.map_or(0, |n| n as u8 + 1);
            out.push(if frame.exact { number | EXACT } else { number });
            put(frame.ip, out);
        }
    }

    /// Decodes the data of a stack record.
    ///
    /// # Errors
    /// The data is cut short, or a frame names a module that the record does not list.
    pub fn decode(data: &[u8], width: u8) -> Result<Self, DecodeError> {
        let mut r = Reader { bytes: data, at: 0 };
        let mut stack = Self::default();
        let count = r.u8()?;
        for _ in 0..count {
            let base = r.word(width)?;
            let length = r.u16()?;
            let name = String::from_utf8_lossy(r.bytes(length.into())?).into_owned();
            stack.modules.push(StackModule { name, base });
        }
        while r.at < data.len() {
            let (number, exact) = match r.u8()? {
                byte @ EXACT.. => (byte & !EXACT, true),
                byte => (byte, false),
            };
            if number > count {
                return Err(DecodeError::Field { field: "number of a frame's module", value: number.into() });
            }
            let module = usize::from(number).checked_sub(1);
            stack.frames.push(StackFrame { ip: r.word(width)?, exact, module });
        }
        Ok(stack)
    }

    /// The module of a frame, and the address in it of a byte of the frame's instruction.
    #[must_use]
    pub fn place(&self, frame: StackFrame, width: u8) -> Option<(&StackModule, u64)> {
        let module = self.modules.get(frame.module?)?;
        let address = frame.ip.wrapping_sub(module.base).wrapping_sub(frame.back());
        Some((module, if width == 64 { address } else { address & u64::from(u32::MAX) }))
    }

    /// One line per frame: ``module`function+0x10``, ``module`+0x1234`` where no name is known, the address alone
    /// outside all modules.
    pub(crate) fn lines(&self, kind: Kind, width: u8, symbols: &dyn Symbolize) -> Vec<String> {
        let line = |frame: &StackFrame| {
            let Some((module, address)) = self.place(*frame, width) else {
                return format!("{:#x}", frame.ip);
            };
            let (name, offset) =
                symbols.frame(kind, &module.name, address).unwrap_or((String::new(), address));
            let file = module.name.rsplit('/').next().unwrap_or_default();
            match offset.wrapping_add(frame.back()) {
                0 if !name.is_empty() => format!("{file}`{name}"),
                offset => format!("{file}`{name}+{offset:#x}"),
            }
        };
        self.frames.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names;

    impl Symbolize for Names {
        fn symbol(&self, _: u64, _: u32) -> Option<String> {
            None
        }

        fn frame(&self, _: Kind, module: &str, address: u64) -> Option<(String, u64)> {
            let into = address.checked_sub(0x1010).filter(|into| *into < 0x10)?;
            (module == "/bin/prog").then(|| ("main".to_owned(), into))
        }
    }

    fn stack() -> GuestStack {
        let mut stack = GuestStack::default();
        stack.push(0x5000_1010, true, Some(("/bin/prog", 0x5000_0000)));
        stack.push(0x7000_0020, false, Some(("/lib/libc.so.6", 0x7000_0000)));
        stack.push(0x1234, false, None);
        // A call that is its function's last instruction.
        stack.push(0x5000_1020, false, Some(("/bin/prog", 0x5000_0000)));
        stack.push(0x5000_1020, true, Some(("/bin/prog", 0x5000_0000)));
        stack
    }

    #[test]
    fn a_stack_comes_back_from_its_bytes() {
        for width in [32, 64] {
            let (stack, mut bytes) = (stack(), Vec::new());
            stack.encode(width, &mut bytes);
            assert_eq!(GuestStack::decode(&bytes, width).unwrap(), stack);
            assert_eq!(stack.modules.len(), 2);
        }
    }

    #[test]
    fn a_line_says_module_and_name_or_what_is_known() {
        let lines = stack().lines(Kind::UserStack, 64, &Names);
        assert_eq!(lines, ["prog`main", "libc.so.6`+0x20", "0x1234", "prog`main+0x10", "prog`+0x1020"]);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let mut bytes = Vec::new();
        stack().encode(64, &mut bytes);
        // A frame takes nine bytes, and the frames come last: a cut between two of them leaves a shorter stack.
        let frames = bytes.len() - 5 * 9;
        for cut in 0..bytes.len() {
            let decoded = GuestStack::decode(&bytes[..cut], 64);
            if cut >= frames && (cut - frames) % 9 == 0 {
                let mut short = stack();
                short.frames.truncate((cut - frames) / 9);
                assert_eq!(decoded.unwrap(), short, "{cut} bytes");
            } else {
                assert!(matches!(decoded, Err(DecodeError::Truncated { .. })), "{cut} bytes: {decoded:?}");
            }
        }
        bytes.extend([3, 0, 0, 0, 0, 0, 0, 0, 0]);
        let error = GuestStack::decode(&bytes, 64).unwrap_err().to_string();
        assert_eq!(error, "the record's number of a frame's module is 3, which is not a valid value");
    }
}
