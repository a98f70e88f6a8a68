//! Functions of a target by glob.

use trapline_emu::symbols::Symbol;

use crate::code::Code;
use crate::glob::FunctionGlob;
use crate::target::{Target, basename};

/// Bytes of a function that are shown.
const FIRST_BYTES: usize = 8;

/// A function that can be probed by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Kernel or module that has it, without folders.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Its virtual address, as linked.
    pub address: u64,
    /// Its offset in the file, for user modules.
    pub offset: Option<u64>,
    /// Its size in bytes, 0 if unknown.
    pub size: u64,
    /// Its first bytes; empty if the file does not have them.
    pub bytes: Vec<u8>,
}

/// The functions that `glob` matches: the kernel's, then each module's, by address and name.
pub fn functions(target: &Target, glob: Option<&FunctionGlob>) -> Vec<Function> {
    let wanted = |symbol: &&Symbol| glob.is_none_or(|glob| glob.matches(&symbol.name));
    let plan = target.image().plan();
    let code = Code::Kernel { plan, symbols: target.symbols() };
    let mut found = Vec::new();
    for symbol in target.symbols().functions().filter(wanted) {
        found.push(function(basename(&plan.name), symbol, code, Some(symbol.addr), None));
    }
    sort(&mut found);
    for module in target.modules() {
        let mut own = Vec::new();
        for symbol in module.symbols().functions().filter(wanted) {
            let offset = module.vaddr_to_offset(symbol.addr);
            own.push(function(basename(module.name()), symbol, Code::User(module), offset, offset));
        }
        sort(&mut own);
        found.extend(own);
    }
    found
}

fn function(module: &str, symbol: &Symbol, code: Code<'_>, at: Option<u64>, offset: Option<u64>) -> Function {
    let shown = usize::try_from(symbol.size).unwrap_or(FIRST_BYTES).clamp(1, FIRST_BYTES);
    Function {
        module: module.to_owned(),
        name: symbol.name.to_string(),
        address: symbol.addr,
        offset,
        size: symbol.size,
        bytes: at.map(|at| code.bytes(at, shown)).unwrap_or_default(),
    }
}

fn sort(list: &mut [Function]) {
    list.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
}
