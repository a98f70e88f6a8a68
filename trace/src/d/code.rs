//! Addresses of code in records and keys, with what they lay in when they were written.

use super::field::SymbolForm;
use crate::guest_stack::{GuestStack, StackFrame};
use crate::names::Symbolize;
use crate::record::Kind;

/// Records have the guest's addresses in eight bytes, whatever its width.
const WIDTH: u8 = 64;

/// Addresses of code: a stack, or one address. What each lies in is noted when it is written: later, another process
/// runs, or a module is unloaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// Whether its modules are files that a process has mapped. Otherwise they are the kernel and its modules.
    pub user: bool,
    /// The addresses, and their modules.
    pub stack: GuestStack,
}

impl Code {
    /// One address; `exact` unless a call returns there.
    #[must_use]
    pub fn one(ip: u64, exact: bool, user: bool, module: Option<(&str, u64)>) -> Self {
        let mut stack = GuestStack::default();
        stack.push(ip, exact, module);
        Self { user, stack }
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.user)];
        self.stack.encode(WIDTH, &mut bytes);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (user, bytes) = bytes.split_first()?;
        Some(Self { user: *user != 0, stack: GuestStack::decode(bytes, WIDTH).ok()? })
    }

    /// The first address as a number.
    pub(super) fn first(&self) -> u64 {
        self.stack.frames.first().map_or(0, |frame| frame.ip)
    }

    /// The addresses as numbers.
    pub(super) fn ips(&self) -> impl Iterator<Item = u64> {
        self.stack.frames.iter().map(|frame| frame.ip)
    }

    /// All addresses with their names.
    pub(super) fn lines(&self, symbols: &dyn Symbolize) -> impl Iterator<Item = String> {
        self.stack.frames.iter().map(move |frame| self.shown(*frame, SymbolForm::Address, symbols))
    }

    /// The first address as `form` shows it.
    pub(super) fn symbol(&self, form: SymbolForm, symbols: &dyn Symbolize) -> String {
        self.stack.frames.first().map(|frame| self.shown(*frame, form, symbols)).unwrap_or_default()
    }

    fn shown(&self, frame: StackFrame, form: SymbolForm, symbols: &dyn Symbolize) -> String {
        let number = || format!("{:#x}", frame.ip);
        let kind = if self.user { Kind::UserStack } else { Kind::KernelStack };
        let Some((module, address)) = self.stack.place(frame, WIDTH) else { return number() };
        let file = module.name.rsplit('/').next().unwrap_or_default();
        if form == SymbolForm::Module {
            return file.to_owned();
        }
        let back = frame.ip.wrapping_sub(module.base).wrapping_sub(address);
        match (symbols.frame(kind, &module.name, address), form) {
            (Some((name, _)), SymbolForm::Symbol) => format!("{file}`{name}"),
            (Some((name, offset)), _) => match offset.wrapping_add(back) {
                0 => format!("{file}`{name}"),
                offset => format!("{file}`{name}+{offset:#x}"),
            },
            (None, _) if module.base == 0 => number(),
            (None, _) => format!("{file}`+{:#x}", address.wrapping_add(back)),
        }
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

        fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
            let into = address.checked_sub(0x1010).filter(|into| *into < 0x10)?;
            let known = [(Kind::UserStack, "/bin/prog"), (Kind::KernelStack, "k")];
            known.contains(&(kind, module)).then(|| ("main".to_owned(), into))
        }
    }

    #[test]
    fn a_return_address_after_the_last_instruction_has_its_function_and_a_code_address_there_has_not() {
        let shown = |exact, form| {
            let module = Some(("/bin/prog", 0x5000_0000));
            let code = Code::decode(&Code::one(0x5000_1020, exact, true, module).encode()).unwrap();
            code.symbol(form, &Names)
        };
        assert_eq!(shown(false, SymbolForm::Address), "prog`main+0x10");
        assert_eq!(shown(false, SymbolForm::Symbol), "prog`main");
        assert_eq!(shown(false, SymbolForm::Module), "prog");
        assert_eq!(shown(true, SymbolForm::Address), "prog`+0x1020");
    }

    #[test]
    fn the_module_of_an_address_is_the_one_that_was_noted() {
        let shown = |user, module| Code::one(0x1014, true, user, module).symbol(SymbolForm::Address, &Names);
        assert_eq!(shown(false, Some(("k", 0))), "k`main+0x4");
        assert_eq!(shown(true, Some(("/bin/prog", 0))), "prog`main+0x4");
        assert_eq!(shown(true, Some(("/bin/other", 0x1000))), "other`+0x14");
        assert_eq!(shown(true, None), "0x1014");
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let bytes = Code::one(0x1020, false, true, Some(("/bin/prog", 0))).encode();
        for cut in 0..bytes.len() {
            // A frame takes nine bytes: without it, the stack is empty.
            let decoded = Code::decode(&bytes[..cut]);
            assert_eq!(decoded.is_some(), cut == bytes.len() - 9, "{cut}: {decoded:?}");
        }
    }
}
