//! The names of a program: variables, aggregations, inlines, translators, enumerators; and where variables live.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Expr, Parameter};
use crate::library::{self, Selection};
use crate::node::{Node, Place};
use crate::types::{TypeId, TypeTable};
use trapline_rpn::services::d;
use trapline_trace::d::{self as shown, AggKind, Aggregation, Dynamic, Field, SymbolForm, Tables};

/// Whose variable it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Program,
    Thread,
    Clause,
}

/// Where a variable lives.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Home {
    Slot(u32),
    Text { slot: u32, buffer: u64 },
    Memory(u64),
    Dynamic(u32),
}

#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub ty: TypeId,
    pub home: Home,
    /// Types of its keys, for an associative array.
    pub keys: Option<Vec<TypeId>>,
    /// Whether its value is an address from `alloca()`; `None` before the first assignment.
    pub alloca: Option<bool>,
}

/// An aggregation as the compiler knows it.
#[derive(Debug, Clone)]
pub(crate) struct AggName {
    pub number: u32,
    pub keys: Vec<TypeId>,
}

#[derive(Debug, Clone)]
pub(crate) struct InlineName {
    pub ty: TypeId,
    /// Whether the library declares it.
    pub library: bool,
    pub parameters: Vec<(Option<String>, TypeId)>,
    pub value: Expr,
}

#[derive(Debug, Clone)]
pub(crate) struct TranslatorName {
    /// Whether the library declares it.
    pub library: bool,
    pub output: TypeId,
    pub input: TypeId,
    pub name: String,
    pub members: Vec<(String, Expr)>,
}

/// All names, and the tables that grow with them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Scope {
    pub globals: BTreeMap<String, Variable>,
    pub thread: BTreeMap<String, Variable>,
    pub clause: BTreeMap<String, Variable>,
    pub aggregations: BTreeMap<String, AggName>,
    /// The program's inlines, and those of the library that it has used.
    pub inlines: BTreeMap<String, Arc<InlineName>>,
    /// The files of the library that have been read.
    pub library: Selection,
    pub functions: BTreeMap<String, Vec<Parameter>>,
    pub enumerators: BTreeMap<String, (i64, TypeId)>,
    pub translators: Vec<TranslatorName>,
    /// Parameters of the inline or translator that is being expanded.
    pub bound: Vec<BTreeMap<String, Node>>,
    /// Operations that inlines and translators have added.
    pub expanded: u64,
    pub tables: Tables,
    /// Whether an action changes the guest or the host.
    pub destructive: bool,
    /// Whether `vtimestamp` is used.
    pub vtimestamp: bool,
    /// Whether one is `panic()`, and whether one is `system()`.
    pub panics: bool,
    pub commands: bool,
    texts: BTreeMap<Vec<u8>, u64>,
    /// Variables of the virtual machine: those of the program, and those of a clause.
    pub slots: u32,
    pub clause_slots: u32,
}

/// Slots below this are the program's, from it on a clause's.
pub(crate) const CLAUSE_SLOTS: u32 = 32_768;

/// Rounds up to the next multiple of eight.
fn aligned(value: u32) -> u32 {
    value.saturating_add(7) & !7
}

impl Scope {
    pub fn owned(&mut self, owner: Owner) -> &mut BTreeMap<String, Variable> {
        match owner {
            Owner::Program => &mut self.globals,
            Owner::Thread => &mut self.thread,
            Owner::Clause => &mut self.clause,
        }
    }

    /// Whether an inline of the program or the library has a name.
    pub fn is_inline(&self, name: &str) -> bool {
        self.inlines.contains_key(name) || library::inline(name, &self.library).is_some()
    }

    /// The address of a string of the program.
    pub fn text(&mut self, bytes: &[u8]) -> u64 {
        if let Some(there) = self.texts.get(bytes) {
            return *there;
        }
        let address = d::CONSTANTS + self.tables.constants.len() as u64;
        self.tables.constants.extend_from_slice(bytes);
        self.tables.constants.push(0);
        self.texts.insert(bytes.to_vec(), address);
        address
    }

    fn slot(&mut self, owner: Owner) -> u32 {
        let count = if owner == Owner::Clause { &mut self.clause_slots } else { &mut self.slots };
        *count += 1;
        if owner == Owner::Clause { CLAUSE_SLOTS + *count - 1 } else { *count - 1 }
    }

    /// A variable of the virtual machine for a value that a clause uses more than once.
    pub fn temporary(&mut self) -> Place {
        Place::Slot(self.slot(Owner::Clause))
    }

    fn memory(&mut self, owner: Owner, size: u64) -> u64 {
        let (used, base) = match owner {
            Owner::Clause => (&mut self.tables.clause_memory, d::CLAUSE),
            _ => (&mut self.tables.memory, d::VARIABLES),
        };
        let address = base + u64::from(*used);
        *used = aligned(used.saturating_add(u32::try_from(size).unwrap_or(u32::MAX)));
        address
    }

    /// Makes room for a variable.
    pub fn declare(
        &mut self,
        types: &TypeTable,
        (owner, name): (Owner, &str),
        ty: TypeId,
        keys: Option<Vec<TypeId>>,
    ) -> Variable {
        let home = if owner == Owner::Thread || keys.is_some() {
            // The key of an element is a number, whatever it leads to.
            let of_key = |key: &TypeId| match field(types, *key) {
                Field::Return(None) => Field::Int { size: 8, signed: false },
                field => field,
            };
            let fields = keys.iter().flatten().map(of_key).collect();
            let reference = types.by_reference(ty);
            let size = if reference { types.size(ty) + u64::from(types.is_string(ty)) } else { 8 };
            self.tables.dynamics.push(Dynamic {
                name: name.to_owned(),
                thread: owner == Owner::Thread,
                keys: fields,
                size: u32::try_from(size).unwrap_or(u32::MAX),
                counted: u32::try_from(types.size(ty)).unwrap_or(u32::MAX),
                reference,
                string: types.is_string(ty),
                value: field(types, ty),
            });
            Home::Dynamic(self.tables.dynamics.len() as u32 - 1)
        } else if types.is_string(ty) {
            Home::Text { slot: self.slot(owner), buffer: self.memory(owner, types.strsize + 1) }
        } else if types.by_reference(ty) {
            Home::Memory(self.memory(owner, types.size(ty)))
        } else {
            Home::Slot(self.slot(owner))
        };
        let variable = Variable { ty, home, keys, alloca: None };
        self.owned(owner).insert(name.to_owned(), variable.clone());
        variable
    }

    /// The variables that have one value, for views of the program's state. All slots are known now.
    pub fn variables(&self, types: &TypeTable) -> Vec<shown::Variable> {
        let own = |prefix: &str, (name, variable): (&String, &Variable)| {
            let home = match variable.home {
                Home::Slot(slot) | Home::Text { slot, .. } if slot >= CLAUSE_SLOTS => {
                    shown::Home::Slot(self.slots + slot - CLAUSE_SLOTS)
                }
                Home::Slot(slot) | Home::Text { slot, .. } => shown::Home::Slot(slot),
                Home::Memory(address) => shown::Home::Memory(address),
                Home::Dynamic(_) => return None,
            };
            Some(shown::Variable { name: format!("{prefix}{name}"), home, value: field(types, variable.ty) })
        };
        let program = self.globals.iter().filter_map(|named| own("", named));
        program.chain(self.clause.iter().filter_map(|named| own("this->", named))).collect()
    }

    /// An aggregation of this name, made if there is none.
    pub fn aggregation(
        &mut self,
        name: &str,
        kind: AggKind,
        keys: (&[TypeId], Vec<Field>),
        signed: bool,
    ) -> AggName {
        if let Some(there) = self.aggregations.get(name) {
            return there.clone();
        }
        let number = self.tables.aggregations.len() as u32;
        self.tables.aggregations.push(Aggregation { name: name.to_owned(), kind, keys: keys.1, signed });
        let made = AggName { number, keys: keys.0.to_vec() };
        self.aggregations.insert(name.to_owned(), made.clone());
        made
    }
}

impl Variable {
    /// The place of a variable without keys, or of an element.
    pub fn place(&self, keys: Vec<Node>, address: impl FnOnce(u64) -> Node) -> Place {
        match self.home {
            Home::Slot(slot) => Place::Slot(slot),
            Home::Text { slot, buffer } => Place::Text { slot, buffer },
            Home::Memory(at) => Place::Memory { address: Box::new(address(at)), bits: None },
            Home::Dynamic(number) => Place::Dynamic { number, keys },
        }
    }
}

/// The form of a value of a type in a record or a key.
pub(crate) fn field(types: &TypeTable, ty: TypeId) -> Field {
    use crate::types::Kind;
    match types.kind(ty) {
        Kind::Str => Field::Str,
        Kind::Array { .. } | Kind::Sou(_) => Field::Bytes(u32::try_from(types.size(ty)).unwrap_or(u32::MAX)),
        Kind::Stack => Field::Stack,
        Kind::Symbol => match types.name(ty).as_str() {
            "_symmod" => Field::Symbol(SymbolForm::Module),
            "_symsym" => Field::Symbol(SymbolForm::Symbol),
            "_retmod" => Field::Return(Some(SymbolForm::Module)),
            "_retsym" => Field::Return(Some(SymbolForm::Symbol)),
            "_retaddr" => Field::Return(Some(SymbolForm::Address)),
            _ => Field::Symbol(SymbolForm::Address),
        },
        _ if types.is_return_address(ty) => Field::Return(None),
        Kind::Pointer(_) => Field::Int { size: 8, signed: false },
        Kind::Float { size } if *size > 8 => Field::Bytes((*size).into()),
        Kind::Float { size } => Field::Float(*size),
        _ => {
            let (size, signed) = types.int(ty);
            Field::Int { size: size as u8, signed }
        }
    }
}
