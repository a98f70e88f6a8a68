//! What the compiler asks of a guest: types and symbols by name, and the arguments of probes.
//!
//! The reader of the guest's files implements [`Types`]. The compiler makes its own types from the answers when
//! a program uses them.

use std::fmt::Debug;

/// A type of the guest: the file that describes it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuestTypeId {
    /// Which of the guest's files.
    pub file: u32,
    /// Its number in that file.
    pub id: u32,
}

/// What kind of type a name is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeTag {
    /// `struct NAME`.
    Struct,
    /// `union NAME`.
    Union,
    /// `enum NAME`.
    Enum,
    /// A typedef.
    Typedef,
}

/// A type of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestType {
    /// `void`, or a type that cannot be read.
    Void,
    /// An integer.
    Int {
        /// The guest's compiler's name of it.
        name: String,
        /// Bytes.
        size: u8,
        /// Whether it is signed.
        signed: bool,
    },
    /// A floating-point number.
    Float {
        /// Bytes.
        size: u8,
    },
    /// A pointer.
    Pointer(GuestTypeId),
    /// An array.
    Array {
        /// The type of its elements.
        of: GuestTypeId,
        /// Number of elements.
        length: u64,
    },
    /// A struct or union.
    Composite {
        /// Whether it is a struct or a union.
        union: bool,
        /// Empty if it has none.
        name: String,
        /// Bytes.
        size: u64,
        /// In order; `None` if it is only declared.
        members: Option<Vec<GuestMember>>,
    },
    /// An enumeration.
    Enum {
        /// Empty if it has none.
        name: String,
        /// Bytes.
        size: u8,
        /// Whether its values are signed.
        signed: bool,
        /// Names and values; of an unsigned one with 64 bits, their bits.
        items: Vec<(String, i64)>,
    },
    /// A name for a type.
    Typedef {
        /// The name.
        name: String,
        /// The type that it names.
        to: GuestTypeId,
    },
    /// `const` and the like.
    Qualified {
        /// The qualifier.
        word: &'static str,
        /// The qualified type.
        to: GuestTypeId,
    },
    /// The signature of a function.
    Function {
        /// The type of its value.
        returns: GuestTypeId,
        /// The types of its parameters.
        parameters: Vec<GuestTypeId>,
        /// Whether it takes further arguments (`..`).
        variadic: bool,
    },
}

/// A member of a struct or union of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestMember {
    /// Empty if it has none.
    pub name: String,
    /// Its type.
    pub ty: GuestTypeId,
    /// Bits from the start.
    pub bit_offset: u64,
    /// Bits of a bit-field.
    pub bits: Option<u32>,
}

/// A symbol of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestSymbol {
    /// Its address.
    pub address: u64,
    /// What lies there, if that is known.
    pub ty: Option<GuestTypeId>,
    /// Address of a word that is added to `address`: for per-processor data.
    pub base: Option<u64>,
}

/// The type of an argument of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentType {
    /// A type of the guest.
    Guest(GuestTypeId),
    /// A type as C writes it.
    Named {
        /// The type of the value.
        native: String,
        /// The type that `args[]` has, which a translator makes; empty if it is the same.
        translated: String,
    },
}

/// Where a typed argument of a probe is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestArgument {
    /// Its type.
    pub ty: ArgumentType,
    /// Where its value is.
    pub place: ArgumentPlace,
}

/// Where the value of an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentPlace {
    /// In the words of arguments.
    Words {
        /// The number of the argument that holds it.
        number: u8,
        /// Whether the next one holds its upper half.
        pair: bool,
    },
    /// In a register for floating-point numbers, by its name.
    Register(&'static str),
    /// It is passed in parts, or what is before it hides where it is.
    Unknown,
}

/// The typed arguments of the probes that a description names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestArguments {
    /// No types are known.
    Unknown,
    /// All the probes have these.
    Known(Vec<GuestArgument>),
    /// They differ from probe to probe.
    Different,
}

/// A guest's types, symbols and arguments. `module` is the text before the backquote, as in ``vmlinux`jiffies``; `None` for all.
pub trait Types: Debug {
    /// The type of a name.
    fn type_named(&self, tag: TypeTag, module: Option<&str>, name: &str) -> Option<GuestTypeId>;

    /// What a type is.
    fn describe(&self, id: GuestTypeId) -> GuestType;

    /// A symbol.
    ///
    /// # Errors
    /// Several symbols have the name; a sentence.
    fn symbol(&self, module: Option<&str>, name: &str) -> Result<Option<GuestSymbol>, String>;

    /// The value that an enumeration gives to a name.
    fn enumerator(&self, name: &str) -> Option<(i64, GuestTypeId)>;

    /// The typed arguments of the probes of a description.
    fn arguments(&self, description: &str) -> GuestArguments;
}

/// A guest without types and symbols.
#[derive(Debug, Clone, Copy)]
pub struct NoTypes;

impl Types for NoTypes {
    fn type_named(&self, _: TypeTag, _: Option<&str>, _: &str) -> Option<GuestTypeId> {
        None
    }

    fn describe(&self, _: GuestTypeId) -> GuestType {
        GuestType::Void
    }

    fn symbol(&self, _: Option<&str>, _: &str) -> Result<Option<GuestSymbol>, String> {
        Ok(None)
    }

    fn enumerator(&self, _: &str) -> Option<(i64, GuestTypeId)> {
        None
    }

    fn arguments(&self, _: &str) -> GuestArguments {
        GuestArguments::Unknown
    }
}

/// A name with the module that may stand before it.
pub(crate) fn scoped(name: &str) -> (Option<&str>, &str) {
    match name.split_once('`') {
        Some(("", name)) => (None, name),
        Some((module, name)) => (Some(module), name),
        None => (None, name),
    }
}
