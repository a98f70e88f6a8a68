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
    /// A string: its length in four bytes, then its bytes.
    Str,
    /// This many bytes of memory: their number in four bytes, then the bytes.
    Bytes(u32),
    /// Return addresses: their number in four bytes, then eight bytes each.
    Stack,
    /// An address that is shown by name; eight bytes.
    Symbol(SymbolForm),
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
