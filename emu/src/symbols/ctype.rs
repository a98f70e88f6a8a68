//! C's types as a kernel tells them: one form for BTF and DWARF.

use std::fmt::Debug;

/// A type. Numbers lead to others; 0 is `void`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CType {
    /// `void`, or a type that cannot be read.
    Void,
    /// An integer; `char`, `_Bool` and the like too.
    Int {
        /// As the compiler calls it: `long unsigned int`.
        name: String,
        /// Bytes.
        size: u32,
        /// Whether it has a sign.
        signed: bool,
    },
    /// A floating-point number.
    Float {
        /// Bytes.
        size: u32,
    },
    /// A pointer.
    Pointer(u32),
    /// An array.
    Array {
        /// Of what.
        of: u32,
        /// Elements.
        length: u32,
    },
    /// A struct or union.
    Composite {
        /// Which of them.
        union: bool,
        /// Empty where it has none.
        name: String,
        /// Bytes.
        size: u32,
        /// In order; `None` for a mere declaration.
        members: Option<Vec<CMember>>,
    },
    /// An enumeration.
    Enum {
        /// Empty where it has none.
        name: String,
        /// Bytes.
        size: u32,
        /// Names and values.
        items: Vec<(String, i64)>,
    },
    /// A name for a type.
    Typedef {
        /// The name.
        name: String,
        /// What it stands for.
        to: u32,
    },
    /// `const`, `volatile` or `restrict`.
    Qualified {
        /// The word.
        word: &'static str,
        /// What it is said of.
        to: u32,
    },
    /// What a function takes and gives.
    Function {
        /// What it gives.
        returns: u32,
        /// What it takes.
        parameters: Vec<u32>,
        /// Whether more may follow.
        variadic: bool,
    },
}

/// A member of a struct or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CMember {
    /// Empty where it has none.
    pub name: String,
    /// Its type.
    pub ty: u32,
    /// Bits from the start.
    pub bit_offset: u64,
    /// Bits of a bit-field.
    pub bits: Option<u32>,
}

/// What kind of name is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CName {
    /// `struct NAME`.
    Struct,
    /// `union NAME`.
    Union,
    /// `enum NAME`.
    Enum,
    /// A typedef.
    Typedef,
    /// A function; its number is that of what it takes and gives.
    Function,
    /// A variable; its number is that of its type.
    Variable,
}

/// Types that can be asked for by name and number.
pub trait TypeInfo: Debug + Send + Sync {
    /// The number of the first type of its own; those below are of the file that it goes on from.
    fn first(&self) -> u32 {
        1
    }

    /// The type with a number that another answer has given.
    fn describe(&self, id: u32) -> CType;

    /// All names with their numbers, in the order of the types. Of a struct, union or enum of which there is but a
    /// declaration, none.
    fn names(&self) -> Vec<(CName, String, u32)>;

    /// The numbers of all enumerations.
    fn enumerations(&self) -> Vec<u32>;
}
