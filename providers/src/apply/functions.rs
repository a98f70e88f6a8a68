//! Functions of a target by glob, from the files or from the memory of a guest that has run.

use trapline_emu::symbols::{Symbol, UserModule};
use trapline_os::ModuleKind;

use super::present::Present;
use crate::name::FunctionGlob;
use crate::target::{Code, Target, basename};

/// Number of bytes of a function that are shown.
const FIRST_BYTES: usize = 8;

/// A function that can be probed by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Name of its kernel or module, without folders.
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

/// The functions that match `glob`: those of the kernel, then those of each module, by address and name.
pub fn functions(target: &Target, glob: Option<&FunctionGlob>) -> Vec<Function> {
    let mut found = of_kernel(target, glob);
    found.extend(target.modules().iter().flat_map(|module| of_user(module, glob)));
    found
}

/// The functions that match `glob` and are in memory now: those of the kernel with their bytes in memory, those of each
/// loaded kernel module with the addresses and names in the guest, and those of the running user modules.
pub fn present_functions(
    target: &Target,
    present: &mut Present<'_>,
    glob: Option<&FunctionGlob>,
) -> Vec<Function> {
    let plan = target.image().plan();
    let mut found = of_kernel(target, glob);
    for function in &mut found {
        let paddr = plan.vaddr_to_paddr(function.address);
        if let Some(paddr) = paddr.filter(|_| !function.bytes.is_empty()) {
            present.core().ram().read(paddr, &mut function.bytes);
        }
    }
    found.extend(of_loaded(present, basename(&plan.name), glob));
    let modules = target.modules().iter().filter(|module| present.runs(module));
    found.extend(modules.flat_map(|module| of_user(module, glob)));
    found
}

/// The functions of one user program or library that match `glob`, without a kernel.
pub fn user_functions(module: &UserModule, glob: Option<&FunctionGlob>) -> Vec<Function> {
    of_user(module, glob)
}

fn wanted(glob: Option<&FunctionGlob>, symbol: &Symbol) -> bool {
    glob.is_none_or(|glob| glob.matches(&symbol.name))
}

fn of_kernel(target: &Target, glob: Option<&FunctionGlob>) -> Vec<Function> {
    let plan = target.image().plan();
    let code = Code::Kernel { plan, symbols: target.symbols() };
    let bytes = |symbol: &Symbol| code.bytes(symbol.addr, shown(symbol));
    let own = target.symbols().functions().filter(|symbol| wanted(glob, symbol));
    sorted(own.map(|symbol| function(basename(&plan.name), symbol, bytes(symbol), None)).collect())
}

fn of_user(module: &UserModule, glob: Option<&FunctionGlob>) -> Vec<Function> {
    let own = module.symbols().functions().filter(|symbol| wanted(glob, symbol));
    let one = |symbol: &Symbol| {
        let offset = module.vaddr_to_offset(symbol.addr);
        let bytes = offset.map(|at| Code::User(module).bytes(at, shown(symbol))).unwrap_or_default();
        function(basename(module.name()), symbol, bytes, offset)
    };
    sorted(own.map(one).collect())
}

/// Those of the loaded kernel modules, by the modules' names.
fn of_loaded(present: &Present<'_>, kernel: &str, glob: Option<&FunctionGlob>) -> Vec<Function> {
    let (Some(profile), core) = (present.profile(), present.core()) else { return Vec::new() };
    let mut modules = profile.modules(core);
    modules.retain(|module| module.kind == ModuleKind::Kernel && module.name != kernel);
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    let mut found = Vec::new();
    for module in modules {
        let symbols = profile.module_symbols(core, &module.name);
        let one = |symbol: &Symbol| {
            let mut bytes = vec![0; shown(symbol)];
            let paddr = profile.kernel_paddr(core, symbol.addr);
            let read = paddr.is_some_and(|paddr| core.ram().read(paddr, &mut bytes));
            function(&module.name, symbol, if read { bytes } else { Vec::new() }, None)
        };
        let own = symbols.functions().filter(|symbol| wanted(glob, symbol));
        found.extend(sorted(own.map(one).collect()));
    }
    found
}

/// The bytes of a function that are shown.
fn shown(symbol: &Symbol) -> usize {
    usize::try_from(symbol.size).unwrap_or(FIRST_BYTES).clamp(1, FIRST_BYTES)
}

fn function(module: &str, symbol: &Symbol, bytes: Vec<u8>, offset: Option<u64>) -> Function {
    Function {
        module: module.to_owned(),
        name: symbol.name.to_string(),
        address: symbol.addr,
        offset,
        size: symbol.size,
        bytes,
    }
}

fn sorted(mut list: Vec<Function>) -> Vec<Function> {
    list.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    list
}
