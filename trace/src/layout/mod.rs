//! What a probe's handler logs, in order, so that its records can be shown as text and typed values.
//!
//! A layout is made before the run, from the code of the handler or from the types of a probe's arguments. The records
//! themselves hold bytes only. Data that does not agree with its layout is shown as bytes.

mod read;
mod show;
mod value;

use serde::{Deserialize, Serialize};

/// What the records of a probe hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// What a handler of RPN logs, whose code has one path.
    Logged(Vec<LoggedItem>),
    /// The arguments or the value of a function, for a probe without a handler.
    Call(Call),
}

/// What one instruction logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoggedItem {
    /// This many words of the guest.
    Words(u64),
    /// Data with a [`Prefix`](crate::Prefix).
    Prefixed,
}

/// A function's arguments or its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The function.
    pub function: String,
    /// Which of them.
    pub form: CallForm,
    /// Words that are logged before everything else.
    pub words: u8,
    /// The arguments; or the value, if there is one.
    pub arguments: Vec<CallArgument>,
}

/// Which part of a call a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallForm {
    /// The arguments.
    Entry,
    /// The value.
    Return,
    /// Nothing: the function ends by a jump to another one, which will return the value.
    TailCall,
}

/// An argument, or the value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallArgument {
    /// Its name; empty for a value.
    pub name: String,
    /// Its type as C writes it.
    pub type_name: String,
    /// The word that holds it.
    pub word: u8,
    /// Whether the next word holds its upper half.
    pub pair: bool,
    /// The word that says how many bytes its text has, if it need not end in NUL.
    pub length: Option<u8>,
    /// How it is shown.
    pub shape: Shape,
}

/// How a value is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A number of this many bits.
    Int {
        /// Bits.
        bits: u32,
        /// Whether it is signed.
        signed: bool,
    },
    /// `true` or `false`.
    Bool,
    /// The name of an enumeration's value.
    Enum {
        /// Bits.
        bits: u32,
        /// Whether its values are signed. Files of builds that took every enumeration for signed do not say so.
        #[serde(default = "signed")]
        signed: bool,
        /// Names and values.
        items: Vec<(String, i64)>,
    },
    /// The names of flags: those whose value the masked number has.
    Flags {
        /// Bits.
        bits: u32,
        /// Names with mask and value.
        names: Vec<(String, u64, u64)>,
    },
    /// A floating-point number of this many bits.
    Float {
        /// Bits.
        bits: u32,
    },
    /// The same in a register of the x87, which has 80 bits.
    Extended {
        /// Bits of the type.
        bits: u32,
    },
    /// A number of this many bits in hexadecimal.
    Hex {
        /// Bits.
        bits: u32,
    },
    /// An address, and what was read there.
    Pointer(Pointee),
    /// Characters up to a NUL, in a struct.
    Characters,
    /// A struct or union in a struct, or an argument that is passed in parts: not shown.
    Inside,
    /// An array in a struct: not shown.
    Elements,
}

/// The default of [`Shape::Enum`].
const fn signed() -> bool {
    true
}

/// What is read through a pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pointee {
    /// Nothing.
    Unread,
    /// Text, at most this many bytes.
    Text(u16),
    /// Members of a struct.
    Struct(Members),
}

/// The members of a struct that are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The parts that are read: the offset of each in the struct, and its length in bytes.
    pub reads: Vec<(u64, u64)>,
    /// The members, in order. The texts that they point to are logged after the parts.
    pub fields: Vec<Field>,
    /// Whether the struct has others.
    pub more: bool,
}

/// A member of a struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Bits from the start of the struct.
    pub bit_offset: u64,
    /// Its size in bits.
    pub bits: u64,
    /// How it is shown.
    pub shape: Shape,
}
