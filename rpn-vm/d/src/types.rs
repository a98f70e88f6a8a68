//! Types of D: C's, by their size on the guest, and D's own.
//!
//! A [`TypeId`] is an index into one [`TypeTable`]. Pointers to a type are made once; structs, unions and enums are
//! completed by their definition.

mod imported;

use crate::guest::TypeTag;
use imported::Imports;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// How wide `long` and pointers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// 32 bits: IA32.
    Ilp32,
    /// 64 bits: x86-64.
    Lp64,
}

impl Model {
    /// Bytes of `long` and of pointers.
    #[must_use]
    pub const fn word(self) -> u64 {
        match self {
            Self::Ilp32 => 4,
            Self::Lp64 => 8,
        }
    }
}

/// A type of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct TypeId(u32);

/// A member of a struct or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Empty where it has none.
    pub name: String,
    pub ty: TypeId,
    /// Bytes from the start.
    pub offset: u64,
    /// First bit from `offset`, and how many, for a bit-field.
    pub bits: Option<(u8, u8)>,
}

/// A struct, union or enum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Composite {
    pub name: String,
    pub size: u64,
    pub align: u64,
    /// `None` until it is defined.
    pub members: Option<Vec<Member>>,
}

/// An enum.
#[derive(Debug, Clone)]
pub(crate) struct Enumeration {
    /// Bytes.
    pub size: u8,
    pub signed: bool,
    /// Names and values; `None` until it is defined.
    pub items: Option<Vec<(String, i64)>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Void,
    Int {
        size: u8,
        signed: bool,
    },
    Float {
        size: u8,
    },
    Pointer(TypeId),
    Array {
        of: TypeId,
        length: u64,
    },
    Function {
        returns: TypeId,
        parameters: Vec<TypeId>,
        variadic: bool,
    },
    Sou(usize),
    Enum(usize),
    Typedef {
        to: TypeId,
    },
    /// `const` and the like, which only types of the guest have.
    Qualified {
        word: &'static str,
        to: TypeId,
    },
    /// D's string: as large as `strsize` says.
    Str,
    /// The result of `stack()` and the like.
    Stack,
    /// The result of `sym()` and the like.
    Symbol,
    /// The result of an action or an aggregating function: no value.
    Nothing,
}

#[derive(Debug, Clone)]
struct Type {
    name: Cow<'static, str>,
    kind: Kind,
}

/// The predeclared types, and their names.
#[derive(Debug)]
struct Predeclared {
    list: Vec<Type>,
    names: BTreeMap<&'static str, TypeId>,
}

/// The predeclared types of both models, made once for all programs.
static PREDECLARED: LazyLock<[Predeclared; 2]> =
    LazyLock::new(|| [Model::Ilp32, Model::Lp64].map(Predeclared::new));

/// All types of a program.
#[derive(Debug, Clone)]
pub(crate) struct TypeTable {
    /// The types that every program has; their numbers come first.
    predeclared: &'static Predeclared,
    /// The program's own.
    list: Vec<Type>,
    pub sous: Vec<Composite>,
    pub enums: Vec<Enumeration>,
    /// The program's own names, which hide the predeclared ones.
    names: BTreeMap<String, TypeId>,
    pointers: BTreeMap<TypeId, TypeId>,
    pub model: Model,
    pub strsize: u64,
    pub imports: Imports,
}

/// The type of an address to which a call returns. Its symbol is that of the call, not of the instruction at the address,
/// which may belong to the next function. No program can write this name.
pub(crate) const RETURN_ADDRESS: &str = "<return address>";

/// Types that every program has by another name: name, and what it stands for; `long` is as wide as a pointer.
const TYPEDEFS: &[(&str, &str)] = &[
    ("int8_t", "signed char"),
    ("int16_t", "short"),
    ("int32_t", "int"),
    ("int64_t", "long long"),
    ("intptr_t", "long"),
    ("uint8_t", "unsigned char"),
    ("uint16_t", "unsigned short"),
    ("uint32_t", "unsigned int"),
    ("uint64_t", "unsigned long long"),
    ("uintptr_t", "unsigned long"),
    ("uchar_t", "unsigned char"),
    ("ushort_t", "unsigned short"),
    ("uint_t", "unsigned int"),
    ("uint", "unsigned int"),
    ("ushort", "unsigned short"),
    ("ulong", "unsigned long"),
    ("longlong_t", "long long"),
    ("u_longlong_t", "unsigned long long"),
    ("__s8", "signed char"),
    ("__s16", "short"),
    ("__s32", "int"),
    ("__s64", "long long"),
    ("__u8", "unsigned char"),
    ("__u16", "unsigned short"),
    ("__u32", "unsigned int"),
    ("__u64", "unsigned long long"),
    ("u8", "unsigned char"),
    ("u16", "unsigned short"),
    ("u32", "unsigned int"),
    ("u64", "unsigned long long"),
    ("ulong_t", "unsigned long"),
    ("u_char", "unsigned char"),
    ("u_short", "unsigned short"),
    ("u_int", "unsigned int"),
    ("u_long", "unsigned long"),
    ("size_t", "unsigned long"),
    ("ssize_t", "long"),
    ("off_t", "long"),
    ("offset_t", "long long"),
    ("loff_t", "long long"),
    ("time_t", "long"),
    ("pid_t", "int"),
    ("id_t", "int"),
    ("uid_t", "unsigned int"),
    ("gid_t", "unsigned int"),
    ("zoneid_t", "int"),
    ("dev_t", "unsigned int"),
    ("mode_t", "unsigned short"),
    ("ino_t", "unsigned long"),
    ("hrtime_t", "long long"),
    ("processorid_t", "int"),
    ("major_t", "unsigned int"),
    ("minor_t", "unsigned int"),
    ("bool", "_Bool"),
    ("ipaddr_t", "unsigned int"),
    ("in_addr_t", "unsigned int"),
];

impl Predeclared {
    fn new(model: Model) -> Self {
        let mut types = Self { list: Vec::new(), names: BTreeMap::new() };
        let word = model.word() as u8;
        types.add("void", Kind::Void);
        let ints: [(&str, u8, bool); 14] = [
            ("char", 1, true),
            ("signed char", 1, true),
            ("unsigned char", 1, false),
            ("short", 2, true),
            ("unsigned short", 2, false),
            ("int", 4, true),
            ("unsigned int", 4, false),
            ("long", word, true),
            ("unsigned long", word, false),
            ("long long", 8, true),
            ("unsigned long long", 8, false),
            ("_Bool", 1, false),
            ("unsigned", 4, false),
            ("signed", 4, true),
        ];
        for (name, size, signed) in ints {
            types.add(name, Kind::Int { size, signed });
        }
        let extended = if model == Model::Ilp32 { 12 } else { 16 };
        for (name, size) in [("float", 4), ("double", 8), ("long double", extended)] {
            types.add(name, Kind::Float { size });
        }
        types.add("string", Kind::Str);
        types.add("stack", Kind::Stack);
        for name in ["_symaddr", "_symsym", "_symmod", "_retaddr", "_retsym", "_retmod"] {
            types.add(name, Kind::Symbol);
        }
        types.add("<action>", Kind::Nothing);
        for (name, of) in TYPEDEFS {
            if let Some(to) = types.names.get(of).copied() {
                types.add(name, Kind::Typedef { to });
            }
        }
        // It has the name of the type that dtrace(1) gives it, which a program cannot tell apart.
        let to = types.names.get("uintptr_t").copied().unwrap_or(TypeId(0));
        types.names.insert(RETURN_ADDRESS, TypeId(types.list.len() as u32));
        types.list.push(Type { name: Cow::Borrowed("uintptr_t"), kind: Kind::Typedef { to } });
        types
    }

    fn add(&mut self, name: &'static str, kind: Kind) {
        self.names.insert(name, TypeId(self.list.len() as u32));
        self.list.push(Type { name: Cow::Borrowed(name), kind });
    }

    fn of(model: Model) -> &'static Self {
        let [narrow, wide] = &*PREDECLARED;
        match model {
            Model::Ilp32 => narrow,
            Model::Lp64 => wide,
        }
    }
}

impl TypeTable {
    /// The predeclared types.
    pub fn new(model: Model) -> Self {
        Self {
            predeclared: Predeclared::of(model),
            list: Vec::new(),
            sous: Vec::new(),
            enums: Vec::new(),
            names: BTreeMap::new(),
            pointers: BTreeMap::new(),
            model,
            strsize: 256,
            imports: Imports::default(),
        }
    }

    pub(crate) fn push(&mut self, name: String, kind: Kind) -> TypeId {
        let id = TypeId((self.predeclared.list.len() + self.list.len()) as u32);
        self.list.push(Type { name: Cow::Owned(name), kind });
        id
    }

    fn add(&mut self, name: &str, kind: Kind) -> TypeId {
        let id = self.push(name.to_owned(), kind);
        self.names.insert(name.to_owned(), id);
        id
    }

    /// The type of a name: `int`, `struct foo`, a typedef.
    pub fn named(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).or_else(|| self.predeclared.names.get(name)).copied()
    }

    /// A predeclared type.
    pub fn builtin(&self, name: &str) -> TypeId {
        self.named(name).unwrap_or(TypeId(0))
    }

    /// Whether a name is that of a typedef, which a parser has to know.
    pub fn is_typedef(&self, name: &str) -> bool {
        self.named(name).is_some_and(|id| matches!(self.kind_of(id), Kind::Typedef { .. }))
    }

    fn get(&self, id: TypeId) -> Option<&Type> {
        let (id, first) = (id.0 as usize, self.predeclared.list.len());
        if id < first { self.predeclared.list.get(id) } else { self.list.get(id - first) }
    }

    fn kind_of(&self, id: TypeId) -> &Kind {
        self.get(id).map_or(&Kind::Void, |ty| &ty.kind)
    }

    /// What a type is, typedefs resolved.
    pub fn kind(&self, id: TypeId) -> &Kind {
        self.kind_of(self.resolve(id))
    }

    /// A type without its typedefs.
    pub fn resolve(&self, mut id: TypeId) -> TypeId {
        while let Kind::Typedef { to } | Kind::Qualified { to, .. } = self.kind_of(id) {
            id = *to;
        }
        id
    }

    /// The name as C writes it.
    pub fn name(&self, id: TypeId) -> String {
        match self.kind_of(id) {
            Kind::Pointer(to) => {
                let name = self.name(*to);
                if let Kind::Function { .. } = self.kind_of(*to) {
                    return name.replacen("()", "(*)()", 1).replacen(
                        " (",
                        " (*)(",
                        usize::from(!name.contains("()")),
                    );
                }
                if name.ends_with('*') { format!("{name}*") } else { format!("{name} *") }
            }
            Kind::Qualified { word, to } => {
                let name = self.name(*to);
                if name.ends_with('*') { format!("{name}{word}") } else { format!("{word} {name}") }
            }
            Kind::Array { of, length } => {
                let name = self.name(*of);
                match name.split_once(" [") {
                    Some((base, rest)) => format!("{base} [{length}][{rest}"),
                    None => format!("{name} [{length}]"),
                }
            }
            Kind::Function { returns, parameters, variadic } => {
                let mut list: Vec<String> = parameters.iter().map(|p| self.name(*p)).collect();
                if *variadic {
                    list.push("...".to_owned());
                }
                format!("{} ({})", self.name(*returns), list.join(", "))
            }
            _ => self.get(id).map(|ty| ty.name.clone().into_owned()).unwrap_or_default(),
        }
    }

    /// A name for a type.
    pub fn typedef(&mut self, name: &str, to: TypeId) -> TypeId {
        self.add(name, Kind::Typedef { to })
    }

    /// A pointer to a type.
    pub fn pointer(&mut self, to: TypeId) -> TypeId {
        if let Some(there) = self.pointers.get(&to) {
            return *there;
        }
        let id = self.push(String::new(), Kind::Pointer(to));
        self.pointers.insert(to, id);
        id
    }

    /// An array.
    pub fn array(&mut self, of: TypeId, length: u64) -> TypeId {
        self.push(String::new(), Kind::Array { of, length })
    }

    /// A function.
    pub fn function(&mut self, returns: TypeId, parameters: Vec<TypeId>, variadic: bool) -> TypeId {
        self.push(String::new(), Kind::Function { returns, parameters, variadic })
    }

    /// A struct or union of this name, the program's or the guest's, made if there is none; without a name always a
    /// new one.
    pub fn sou(&mut self, union: bool, name: Option<&str>) -> TypeId {
        let (word, tag) = if union { ("union", TypeTag::Union) } else { ("struct", TypeTag::Struct) };
        let own = name.and_then(|name| self.named(&format!("{word} {name}")));
        let guest = |table: &mut Self| table.of_guest(tag, name?);
        own.or_else(|| guest(self)).unwrap_or_else(|| self.own_sou(union, name))
    }

    /// The same, but never the guest's: for a definition in the program.
    pub fn own_sou(&mut self, union: bool, name: Option<&str>) -> TypeId {
        let word = if union { "union" } else { "struct" };
        let full = format!("{word} {}", name.unwrap_or("(anon)"));
        if let Some(there) = name.and_then(|_| self.named(&full)) {
            return there;
        }
        let index = self.sous.len();
        self.sous.push(Composite { name: full.clone(), align: 1, ..Composite::default() });
        if name.is_some() { self.add(&full, Kind::Sou(index)) } else { self.push(full, Kind::Sou(index)) }
    }

    /// An enum, as [`TypeTable::sou`].
    pub fn enumeration(&mut self, name: Option<&str>) -> TypeId {
        let own = name.and_then(|name| self.named(&format!("enum {name}")));
        let guest = |table: &mut Self| table.of_guest(TypeTag::Enum, name?);
        own.or_else(|| guest(self)).unwrap_or_else(|| self.own_enumeration(name))
    }

    /// An enum, as [`TypeTable::own_sou`].
    pub fn own_enumeration(&mut self, name: Option<&str>) -> TypeId {
        let full = format!("enum {}", name.unwrap_or("(anon)"));
        if let Some(there) = name.and_then(|_| self.named(&full)) {
            return there;
        }
        let index = self.enums.len();
        self.enums.push(Enumeration { size: 4, signed: true, items: None });
        if name.is_some() { self.add(&full, Kind::Enum(index)) } else { self.push(full, Kind::Enum(index)) }
    }

    /// Bytes; 0 where none are known.
    pub fn size(&self, id: TypeId) -> u64 {
        let (mut id, mut count) = (id, 1u64);
        while let Kind::Array { of, length } = self.kind(id) {
            (id, count) = (*of, count.saturating_mul(*length));
        }
        count.saturating_mul(self.size_of_one(id))
    }

    /// Bytes of what is no array.
    fn size_of_one(&self, id: TypeId) -> u64 {
        match self.kind(id) {
            Kind::Int { size, .. } | Kind::Float { size } => u64::from(*size),
            Kind::Pointer(_) => self.model.word(),
            Kind::Sou(n) => self.sous.get(*n).map_or(0, |sou| sou.size),
            Kind::Enum(n) => self.enums.get(*n).map_or(4, |it| it.size.into()),
            Kind::Str => self.strsize,
            Kind::Stack | Kind::Symbol => 8,
            _ => 0,
        }
    }

    /// The alignment in bytes.
    pub fn align(&self, id: TypeId) -> u64 {
        let mut id = id;
        while let Kind::Array { of, .. } = self.kind(id) {
            id = *of;
        }
        match self.kind(id) {
            Kind::Sou(n) => self.sous.get(*n).map_or(1, |sou| sou.align),
            Kind::Str | Kind::Void | Kind::Nothing | Kind::Function { .. } => 1,
            Kind::Float { size: 16 } => 16,
            // The i386 ABI aligns members of eight bytes to four.
            _ => self.size(id).clamp(1, self.model.word()),
        }
    }

    /// The composite of a struct or union type.
    pub fn composite(&self, id: TypeId) -> Option<&Composite> {
        match self.kind(id) {
            Kind::Sou(n) => self.sous.get(*n),
            _ => None,
        }
    }

    /// A member by name, through members without one; its offset is from the start of the whole.
    pub fn member(&self, id: TypeId, name: &str) -> Option<Member> {
        let mut open = vec![(self.resolve(id), 0)];
        // Each struct is looked at once, however often it lies in others.
        let mut seen = BTreeSet::new();
        while let Some((id, from)) = open.pop() {
            let Some(members) = self.composite(id).and_then(|sou| sou.members.as_ref()) else { continue };
            if !seen.insert(id) {
                continue;
            }
            if let Some(found) = members.iter().find(|member| member.name == name && !name.is_empty()) {
                return Some(Member { offset: from + found.offset, ..found.clone() });
            }
            let anonymous = members.iter().filter(|member| member.name.is_empty() && member.bits.is_none());
            open.extend(anonymous.rev().map(|member| (self.resolve(member.ty), from + member.offset)));
        }
        None
    }

    /// Whether a value of it is handled by its address: arrays, structs, unions, strings.
    pub fn by_reference(&self, id: TypeId) -> bool {
        matches!(self.kind(id), Kind::Array { .. } | Kind::Sou(_) | Kind::Str) || self.is_long_double(id)
    }

    pub fn is_string(&self, id: TypeId) -> bool {
        matches!(self.kind(id), Kind::Str)
    }

    /// Integers and enums.
    pub fn is_integer(&self, id: TypeId) -> bool {
        matches!(self.kind(id), Kind::Int { .. } | Kind::Enum(_))
    }

    pub fn is_pointer(&self, id: TypeId) -> bool {
        matches!(self.kind(id), Kind::Pointer(_))
    }

    /// Whether it is the type of a return address, and not only one that is as wide.
    pub fn is_return_address(&self, id: TypeId) -> bool {
        id == self.builtin(RETURN_ADDRESS)
    }

    /// Integers, enums and pointers.
    pub fn is_scalar(&self, id: TypeId) -> bool {
        self.is_integer(id) || self.is_pointer(id)
    }

    /// What a pointer or an array leads to.
    pub fn target(&self, id: TypeId) -> Option<TypeId> {
        match self.kind(id) {
            Kind::Pointer(to) => Some(*to),
            Kind::Array { of, .. } => Some(*of),
            _ => None,
        }
    }

    /// Bytes and signedness of a scalar.
    pub fn int(&self, id: TypeId) -> (u64, bool) {
        match self.kind(id) {
            Kind::Int { size, signed } => (u64::from(*size), *signed),
            Kind::Enum(n) => self.enums.get(*n).map_or((4, true), |it| (it.size.into(), it.signed)),
            // A pointer may be one of D's own memory, which lies beyond 32 bits.
            Kind::Pointer(_) => (8, false),
            Kind::Stack | Kind::Symbol => (8, false),
            // Only the bits of a floating-point number are handled.
            Kind::Float { size } => (u64::from(*size).min(8), false),
            _ => (8, true),
        }
    }

    /// An array of characters, which counts as a string where one is asked for.
    pub fn is_char_array(&self, id: TypeId) -> bool {
        matches!(self.kind(id), Kind::Array { of, .. } if matches!(self.kind(*of), Kind::Int { size: 1, .. }))
    }

    /// A floating-point number that does not fit into a word of D: it is handled by its address, as a struct is.
    pub fn is_long_double(&self, id: TypeId) -> bool {
        matches!(self.kind(id), Kind::Float { size } if *size > 8)
    }

    /// A pointer to characters.
    pub fn is_char_pointer(&self, id: TypeId) -> bool {
        matches!(self.kind(id), Kind::Pointer(of) if matches!(self.kind(*of), Kind::Int { size: 1, .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_is_as_wide_as_the_model_says() {
        for (model, size) in [(Model::Ilp32, 4), (Model::Lp64, 8)] {
            let types = TypeTable::new(model);
            assert_eq!(types.size(types.builtin("long")), size);
            assert_eq!(types.size(types.builtin("size_t")), size);
            assert_eq!(types.size(types.builtin("uint64_t")), 8);
        }
    }

    #[test]
    fn names_are_those_of_c() {
        let mut types = TypeTable::new(Model::Lp64);
        let int = types.builtin("int");
        let pointer = types.pointer(int);
        let twice = types.pointer(pointer);
        let array = types.array(int, 3);
        let matrix = types.array(array, 2);
        assert_eq!(types.name(twice), "int **");
        assert_eq!(types.name(matrix), "int [2][3]");
        assert_eq!(types.size(matrix), 24);
    }
}
