//! The functions of a program or library: from its symbols, or if it was stripped, as found by `stripped`.
//!
//! Functions without a symbol are named by their address, `sub_4011d6`, as in disassemblers. An indirect function
//! (IFUNC) has no code: its symbol is that of the resolver, the code that chooses the function. It is called
//! `NAME.resolver` here.

use std::sync::Arc;

use trapline_emu::symbols::{Symbol, SymbolKind, UserModule};

use super::stripped;
use crate::name::Description;

/// Longer functions are cut: no compiler makes them, but a damaged symbol table may contain them.
const LONGEST: u64 = 1 << 24;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: Arc<str>,
    /// Its address as linked.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// A function's bytes.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// Their offset in the file.
    pub offset: u64,
    /// The bytes that the file has.
    pub bytes: &'a [u8],
}

/// All functions of a module.
#[derive(Debug)]
pub struct Functions {
    /// By address; for each address the name with the fewest underscores comes first.
    list: Vec<Function>,
    /// For each function the highest end of it and all before it.
    reach: Vec<u64>,
}

impl Functions {
    /// The functions of a module.
    pub fn of(module: &UserModule) -> Self {
        let code = |addr: u64| {
            module.vaddr_to_offset(addr).and_then(|at| module.is_executable_offset(at)) == Some(true)
        };
        let named = |symbol: &Symbol| Function {
            name: if symbol.kind == SymbolKind::Resolver {
                resolver(&symbol.name).into()
            } else {
                Arc::clone(&symbol.name)
            },
            start: symbol.addr,
            size: if symbol.sized { symbol.size } else { 0 },
        };
        let symbols = module.symbols().functions().filter(|symbol| code(symbol.addr));
        let mut list: Vec<Function> = symbols.map(named).collect();
        sort(&mut list);
        let known: Vec<(u64, u64)> = list.iter().map(|function| (function.start, function.size)).collect();
        let more: Vec<Function> = stripped::functions(module, &known)
            .into_iter()
            .map(|(start, size)| Function { name: format!("sub_{start:x}").into(), start, size })
            .collect();
        list.extend(more);
        let has = |list: &[Function], name: &str| list.iter().any(|function| *function.name == *name);
        let start = (module.entry() != 0).then(|| module.entry());
        for (name, start) in [("main", stripped::main(module)), ("_start", start)] {
            if let Some(start) = start.filter(|addr| code(*addr) && !has(&list, name)) {
                let size =
                    list.iter().find(|function| function.start == start).map_or(0, |function| function.size);
                list.push(Function { name: name.into(), start, size });
            }
        }
        sort(&mut list);
        end_at_next(&mut list);
        let reach = list.iter().scan(0, |reach: &mut u64, function| {
            *reach = (*reach).max(function.start.saturating_add(function.size));
            Some(*reach)
        });
        Self { reach: reach.collect(), list }
    }

    /// The functions of a name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Function> {
        self.list.iter().filter(move |function| *function.name == *name)
    }

    /// The functions that match a glob, one for each address.
    pub fn matching<'a>(&'a self, wanted: &'a Description) -> impl Iterator<Item = &'a Function> {
        let mut last = None;
        self.list.iter().filter(move |function| {
            let taken = last != Some(function.start)
                // Their text is not contiguous.
                && !matches!(&*function.name, "_init" | "_fini")
                && wanted.function(&function.name);
            if taken {
                last = Some(function.start);
            }
            taken
        })
    }

    /// The function that contains an address; of several, the one that begins last.
    pub fn at(&self, addr: u64) -> Option<&Function> {
        let below = self.list.partition_point(|function| function.start <= addr);
        let below = self.list.iter().zip(&self.reach).take(below).rev();
        let mut near = below.take_while(|(_, reach)| **reach > addr).map(|(function, _)| function);
        near.find(|function| addr - function.start < function.size)
    }

    /// Whether one of `function` and the code at `to` is a part that the compiler has split off the other.
    pub fn are_one(&self, function: &Function, to: u64) -> bool {
        let part =
            |whole: &str, part: &str| part.strip_prefix(whole).is_some_and(|rest| rest.starts_with(".cold"));
        self.at(to)
            .is_some_and(|other| part(&function.name, &other.name) || part(&other.name, &function.name))
    }
}

impl Function {
    /// Its bytes; `None` if the file does not have them.
    pub fn text<'a>(&self, module: &'a UserModule) -> Option<Text<'a>> {
        let offset = module.vaddr_to_offset(self.start)?;
        let holds = module.segments().iter().filter(|segment| {
            segment.executable
                && offset.checked_sub(segment.offset).is_some_and(|into| into < segment.file_size)
        });
        let left = holds.map(|segment| segment.offset + segment.file_size - offset).max()?;
        let size = usize::try_from(self.size.clamp(1, LONGEST).min(left)).ok()?;
        Some(Text { offset, bytes: module.bytes_at(offset, size)? })
    }
}

/// The name of the resolver of an indirect function (IFUNC).
pub fn resolver(name: &str) -> String {
    format!("{name}.resolver")
}

/// By address; aliases by their underscores, then by name.
fn sort(list: &mut Vec<Function>) {
    let underscores = |function: &Function| function.name.bytes().filter(|byte| *byte == b'_').count();
    list.sort_by(|a, b| (a.start, underscores(a), &a.name).cmp(&(b.start, underscores(b), &b.name)));
    list.dedup();
}

/// A function of unknown size ends where the next one begins.
fn end_at_next(list: &mut [Function]) {
    let mut next = None;
    let mut current = None;
    for function in list.iter_mut().rev() {
        if current != Some(function.start) {
            next = current;
            current = Some(function.start);
        }
        if function.size == 0 {
            function.size = next.map_or(1, |next: u64| next - function.start);
        }
    }
}
