//! The tables of a compiled D program.

use super::field::Field;
use super::format::Format;

/// A type as `print()` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrintType {
    /// An integer.
    Int {
        /// Bytes.
        size: u8,
        /// Whether it has a sign.
        signed: bool,
        /// Whether it is a character.
        character: bool,
    },
    /// An address, of so many bytes.
    Pointer(u8),
    /// A string of D, or an array of characters of this many bytes.
    Text(u32),
    /// An array.
    Array {
        /// Its elements.
        of: Box<PrintType>,
        /// The number of elements.
        length: u64,
        /// Bytes of each.
        size: u64,
    },
    /// A struct or union.
    Sou {
        /// Its members.
        members: Vec<PrintMember>,
    },
    /// An enum.
    Enum {
        /// Names and values.
        items: Vec<(String, i64)>,
        /// Bytes.
        size: u8,
        /// Whether its values are signed.
        signed: bool,
    },
    /// A floating-point number of this many bytes.
    Float(u32),
    /// A type without a form of its own: this many bytes.
    Other(u32),
}

/// A member of a printed struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintMember {
    /// Its name.
    pub name: String,
    /// Its type's name.
    pub type_name: String,
    /// Its type.
    pub ty: PrintType,
    /// Bytes from the start.
    pub offset: u64,
    /// First bit and number of bits of a bit-field.
    pub bits: Option<(u8, u8)>,
}

/// The action of a record's part.
#[derive(Debug, Clone)]
pub enum Action {
    /// `trace()`.
    Trace,
    /// `tracemem()`: the bytes, raw; the last field is the number of bytes to show, if the program computes it.
    Tracemem {
        /// Whether there is such a field.
        dynamic: bool,
    },
    /// `printf()`.
    Printf(Format),
    /// `freopen()`, with the name as a format.
    Freopen(Format),
    /// `system()`, with the command as a format.
    System(Format),
    /// `ftruncate()`.
    Ftruncate,
    /// `printa()`: snapshots of these aggregations follow.
    Printa {
        /// The format, if there is one.
        format: Option<Format>,
        /// The aggregations by number.
        aggregations: Vec<u32>,
    },
    /// `print()`.
    Print {
        /// The type.
        ty: PrintType,
        /// Its name.
        name: String,
        /// Whether the record also holds the address that was given.
        by_address: bool,
    },
    /// `stack()`, `ustack()`, `sym()` and the like outside of keys.
    Stack,
    /// `exit()`: the status.
    Exit,
    /// `setopt()`: name and value.
    Setopt,
    /// The default action: the probe has fired, and nothing is shown.
    Default,
}

/// A part of a record: its action and its fields.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its action.
    pub action: Action,
    /// Its fields, in the order in which they are pushed and written.
    pub fields: Vec<Field>,
}

/// The kind of an aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggKind {
    /// `count()`.
    Count,
    /// `sum()`.
    Sum,
    /// `avg()`.
    Avg,
    /// `min()`.
    Min,
    /// `max()`.
    Max,
    /// `stddev()`.
    Stddev,
    /// `quantize()`.
    Quantize,
    /// `lquantize()`.
    Lquantize {
        /// Lower bound.
        base: i32,
        /// Upper bound.
        limit: i32,
        /// Width of a bucket.
        step: u16,
    },
    /// `llquantize()`.
    Llquantize {
        /// The base of the logarithm.
        factor: u16,
        /// The least magnitude.
        low: u16,
        /// The largest.
        high: u16,
        /// Buckets of a magnitude.
        steps: u16,
    },
}

impl AggKind {
    /// The function's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Stddev => "stddev",
            Self::Quantize => "quantize",
            Self::Lquantize { .. } => "lquantize",
            Self::Llquantize { .. } => "llquantize",
        }
    }

    /// Whether it has buckets.
    #[must_use]
    pub const fn is_histogram(self) -> bool {
        matches!(self, Self::Quantize | Self::Lquantize { .. } | Self::Llquantize { .. })
    }
}

/// An aggregation.
#[derive(Debug, Clone)]
pub struct Aggregation {
    /// Its name without `@`; empty for the one without a name.
    pub name: String,
    /// Its kind.
    pub kind: AggKind,
    /// Its keys.
    pub keys: Vec<Field>,
    /// Whether its values have a sign.
    pub signed: bool,
}

/// A variable with one element for each key or thread.
#[derive(Debug, Clone)]
pub struct Dynamic {
    /// Its name, for messages.
    pub name: String,
    /// Whether each thread has its own.
    pub thread: bool,
    /// Its keys.
    pub keys: Vec<Field>,
    /// Bytes of the value; 8 for a scalar.
    pub size: u32,
    /// Bytes of its type, which count towards `dynvarsize`.
    pub counted: u32,
    /// Whether a read gives the address of the value, and not the value.
    pub reference: bool,
    /// Whether it is a string, which is copied up to its end.
    pub string: bool,
    /// Its value.
    pub value: Field,
}

/// A variable with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name; that of a clause's own begins with `this->`.
    pub name: String,
    /// Where its value is.
    pub home: Home,
    /// Its value.
    pub value: Field,
}

/// Where a variable's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In a local variable of the virtual machine; of a string, its address.
    Slot(u32),
    /// At an address of D's own memory.
    Memory(u64),
}

/// A key that is the same at each hit of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixedKey {
    /// A built-in text of the probe, by its number among the built-in variables.
    Probe(u64),
    /// A value; of a string, its address among the constants.
    Value(u64),
}

/// A place where a value is added to an aggregation, with keys that are the same at each hit of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedKeys {
    /// The number of the aggregation.
    pub aggregation: u32,
    /// Its keys.
    pub keys: Vec<FixedKey>,
}

/// The data that a D program needs to run and to be shown.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// Strings of the program, which it reads at fixed addresses.
    pub constants: Vec<u8>,
    /// Bytes of its structs, arrays and strings among the global variables.
    pub memory: u32,
    /// Bytes of the variables that each firing of a probe has.
    pub clause_memory: u32,
    /// The local variables of the virtual machine that each firing finds zeroed: the first, and how many.
    pub clause_slots: (u32, u32),
    /// Parts of records.
    pub records: Vec<Record>,
    /// Aggregations.
    pub aggregations: Vec<Aggregation>,
    /// The places with fixed keys.
    pub fixed: Vec<FixedKeys>,
    /// Thread-local variables and associative arrays.
    pub dynamics: Vec<Dynamic>,
    /// The other variables, by name: the program's, then those of its clauses.
    pub variables: Vec<Variable>,
}
