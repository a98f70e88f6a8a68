//! Kinds of values in records and keys.

/// One value of a record or a key, and how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// An integer of `size` bytes; eight are written.
    Int {
        /// 1, 2, 4 or 8.
        size: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// A floating-point number of this many bytes, 2, 4 or 8; its bits are written as an integer.
    Float(u8),
    /// A string: its length in four bytes, then its bytes.
    Str,
    /// This many bytes of memory: their number in four bytes, then the bytes.
    Bytes(u32),
    /// The addresses of a stack, each with what it lies in: as [`Code`](super::Code), after its length in four bytes.
    Stack,
    /// An address that is shown by name, with what it lies in: written as a stack of one.
    Symbol(SymbolForm),
    /// The same for an address to which a call returns: its name is that of the function that calls, of which it may be the end.
    /// Without a form, it is shown as a number, unless a format asks for a name.
    Return(Option<SymbolForm>),
}

/// How an address is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolForm {
    /// `module`symbol+offset`.
    Address,
    /// `module`symbol`.
    Symbol,
    /// The module alone.
    Module,
}
