//! C's types as a kernel describes them: one form for BTF and DWARF.

use std::fmt::Debug;

/// A type. It refers to others by number; 0 is `void`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CType {
    /// `void`, or a type that cannot be read.
    Void,
    /// An integer, also `char`, `_Bool` and the like.
    Int {
        /// The compiler's name of it: `long unsigned int`.
        name: String,
        /// Bytes.
        size: u32,
        /// Whether it is signed.
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
        /// The type of its elements.
        of: u32,
        /// Number of elements.
        length: u32,
    },
    /// A struct or union.
    Composite {
        /// Whether it is a struct or a union.
        union: bool,
        /// Empty if it has none.
        name: String,
        /// Bytes.
        size: u32,
        /// In order; `None` if it is only declared.
        members: Option<Vec<CMember>>,
    },
    /// An enumeration.
    Enum {
        /// Empty if it has none.
        name: String,
        /// Bytes.
        size: u32,
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
        to: u32,
    },
    /// `const`, `volatile`, `restrict` or `_Atomic`.
    Qualified {
        /// The qualifier.
        word: &'static str,
        /// The qualified type.
        to: u32,
    },
    /// The signature of a function.
    Function {
        /// The type of its value.
        returns: u32,
        /// The types of its parameters.
        parameters: Vec<u32>,
        /// Whether it takes further arguments (`..`).
        variadic: bool,
    },
}

/// A member of a struct or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CMember {
    /// Empty if it has none.
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
    /// A function; its number is that of its signature.
    Function,
    /// A variable; its number is that of its type.
    Variable,
}

/// Types that can be asked for by name and number.
pub trait TypeInfo: Debug + Send + Sync {
    /// The number of the first type of its own; lower numbers are types of the file that it extends.
    fn first(&self) -> u32 {
        1
    }

    /// The type of a number from another answer.
    fn describe(&self, id: u32) -> CType;

    /// All names with their numbers, in the order of the types; without structs, unions and enums that are only declared.
    fn names(&self) -> Vec<(CName, String, u32)>;

    /// The names of the parameters of a [`CType::Function`], as many as are known, in order; a parameter without a name
    /// has an empty one.
    fn parameter_names(&self, id: u32) -> Vec<String>;

    /// The numbers of all enumerations.
    fn enumerations(&self) -> Vec<u32>;
}
