//! Function boundary tracing: a probe at the entry and one at the returns of each function of the kernel and of its
//! modules.
//!
//! Functions are the symbols of that type, except `_init` and `_fini`, whose text is not contiguous in an image, and
//! weak names of an address that has another name (docs/providers.md, "fbt"). Each has two identifiers, whether both
//! probes exist or not, so that numbering does not need the code. A module's functions are those of its file, whether
//! the guest will load it or not; their probes are armed when it does.

mod convention;
mod home;
mod scan;

use std::sync::{Arc, OnceLock};

use trapline_emu::symbols::{Binding, Symbol};
use trapline_interposer::Arguments;
use trapline_rpn::Width;
use trapline_trace::ProbeName;

use crate::name::Description;
use crate::provider::{
    AtEntry, AtReturn, AtTailCall, Back, KernelCode, LOGGED, Probe, Provider, ProviderError, Site,
};
use crate::target::{Abi, Rules, Target, basename};
use convention::{Evidence, evidence, may_be_variadic};
use home::Home;
use scan::{Body, Found, TAIL_JMP};

/// Return probes log the offset of the return, and the value.
const LOGGED_AT_RETURN: u8 = 2;
/// Number of bytes that are needed to recognise the beginning of a function.
const BEGINNING: u64 = 16;
/// Most near misses per module that are considered when nothing matches.
const SUGGESTIONS: usize = 8;

/// A function.
#[derive(Debug)]
struct Function {
    name: Arc<str>,
    start: u64,
    size: u64,
}

/// The kernel or a module of it.
#[derive(Debug)]
struct Unit {
    name: Arc<str>,
    home: Home,
    /// By name and address.
    functions: Vec<Function>,
}

impl Unit {
    fn new(target: &Target, name: &str, home: Home) -> Self {
        let strict = target.options().fbt == Rules::Strict;
        let sizes = home.symbols(target).functions().any(|symbol| symbol.sized);
        // DTrace requires a size, but symbols of a System.map have none.
        let taken = |symbol: &&Symbol| symbol.sized || !sizes || !strict;
        let mut functions: Vec<Function> = chosen(target, &home).filter(taken).map(function).collect();
        functions.sort_by(|a, b| (&a.name, a.start).cmp(&(&b.name, b.start)));
        Self { name: name.into(), home, functions }
    }

    fn ids(&self) -> u32 {
        2 * self.functions.len() as u32
    }
}

/// The provider.
#[derive(Debug)]
pub struct Fbt {
    provider: Arc<str>,
    entry: Arc<str>,
    leave: Arc<str>,
    rules: Rules,
    abi: Abi,
    /// Whether the convention was derived from the kernel's code: on IA32, unless the user has chosen it.
    guessed: bool,
    at_entry: Arc<dyn Arguments>,
    /// At the entry of a function with a variable number of arguments.
    at_variadic_entry: Arc<dyn Arguments>,
    /// By name.
    units: Vec<Unit>,
    /// The kernel's code, once a tail call needs it.
    code: OnceLock<Arc<KernelCode>>,
}

impl Fbt {
    /// The functions of a target's kernel and of its kernel modules.
    pub fn new(target: &Target) -> Self {
        let options = target.options();
        let abi = options.abi.unwrap_or_else(|| Abi::of(target));
        let kernel = Unit::new(target, basename(&target.image().plan().name), Home::Kernel);
        let width = target.image().plan().width;
        let modules = target.kernel_modules().iter().filter(|module| module.file().width() == width);
        let modules = modules.map(|module| Unit::new(target, module.name(), Home::of_module(module)));
        let mut units: Vec<Unit> = std::iter::once(kernel).chain(modules).collect();
        units.sort_by(|a, b| a.name.cmp(&b.name));
        // The same module at two paths: a guest loads one of them.
        units.dedup_by(|later, first| later.name == first.name);
        Self {
            provider: "fbt".into(),
            entry: "entry".into(),
            leave: "return".into(),
            rules: options.fbt,
            abi,
            guessed: options.abi.is_none() && abi.width() == Width::W32,
            at_entry: Arc::new(AtEntry(abi)),
            at_variadic_entry: Arc::new(AtEntry(Abi::Cdecl)),
            units,
            code: OnceLock::new(),
        }
    }

    fn code(&self, target: &Target) -> Arc<KernelCode> {
        Arc::clone(self.code.get_or_init(|| Arc::new(KernelCode::new(target))))
    }

    /// The probe `name` of a function.
    fn probe(
        &self,
        (unit, function): (&Unit, &Function),
        (id, name): (u32, &Arc<str>),
        sites: Vec<Site>,
        logged: u8,
    ) -> Probe {
        let name = ProbeName {
            provider: Arc::clone(&self.provider),
            module: Arc::clone(&unit.name),
            function: Arc::clone(&function.name),
            name: Arc::clone(name),
        };
        Probe { id, name: Arc::new(name), sites, logged, processes: None, types: Vec::new() }
    }

    /// The arguments of a function at its entry. With `regparm`, functions with a variable number have all on the
    /// stack.
    fn arguments_of(&self, body: &Body<'_>) -> Arc<dyn Arguments> {
        let variadic = self.abi == Abi::Regparm
            && may_be_variadic(body.bytes)
            && evidence(body.bytes, body.start) == Evidence::Variadic;
        Arc::clone(if variadic { &self.at_variadic_entry } else { &self.at_entry })
    }

    /// Adds the `wanted` probes (entry, return) of a function with the identifiers `id` and `id + 1`.
    fn add(
        &self,
        target: &Target,
        (unit, function, id): (&Unit, &Function, u32),
        (entry, leave): (bool, bool),
        found: &mut Vec<Probe>,
    ) {
        // A few bytes suffice to decode the first instruction.
        let beginning = if self.abi == Abi::Regparm { convention::MOST_BYTES } else { BEGINNING };
        let whole = leave || self.rules == Rules::Strict;
        let size = if whole { function.size } else { function.size.min(beginning) };
        let Some(bytes) = unit.home.bytes(target, function.start, size) else { return };
        let bits = target.image().plan().width.bits();
        let body = Body { start: unit.home.linked_at(function.start), bytes: &bytes, bits };
        let site = |found: &Found, arguments| site(target, &unit.home, function.start, found, arguments);
        if entry {
            let sites = body.entry(self.rules).and_then(|found| site(&found, self.arguments_of(&body)));
            let sites: Vec<Site> = sites.into_iter().collect();
            found.push(self.probe((unit, function), (id, &self.entry), sites, LOGGED));
        }
        if leave {
            let returns = body.returns(self.rules, &unit.home.targets(target));
            let arguments = |found: &Found| -> Arc<dyn Arguments> {
                let at = AtReturn { offset: found.offset, abi: self.abi };
                match found.rule {
                    TAIL_JMP => Arc::new(AtTailCall {
                        offset: found.offset,
                        back: Some(Back { at, code: self.code(target) }),
                    }),
                    _ => Arc::new(at),
                }
            };
            let sites = returns.iter().filter_map(|found| site(found, arguments(found))).collect();
            found.push(self.probe((unit, function), (id + 1, &self.leave), sites, LOGGED_AT_RETURN));
        }
    }
}

/// The returns of a function of the kernel by the full rules.
pub fn kernel_returns(target: &Target, abi: Abi, function: &Symbol) -> Vec<Site> {
    let home = Home::Kernel;
    let Some(bytes) = home.bytes(target, function.addr, function.size) else { return Vec::new() };
    let body = Body { start: function.addr, bytes: &bytes, bits: target.image().plan().width.bits() };
    let returns = body.returns(Rules::Full, &home.targets(target));
    let site = |found: &Found| {
        let arguments = Arc::new(AtReturn { offset: found.offset, abi });
        site(target, &home, function.addr, found, arguments)
    };
    returns.iter().filter_map(site).collect()
}

fn site(
    target: &Target,
    home: &Home,
    start: u64,
    found: &Found,
    arguments: Arc<dyn Arguments>,
) -> Option<Site> {
    Some(Site {
        place: home.place(target, start.checked_add(found.at)?)?,
        offset: found.at,
        opcode: found.byte,
        rule: found.rule,
        arguments,
        within: None,
        shown: Vec::new(),
        // Not at a `leave` or `pop ebp`, where the frame still exists.
        at_call: found.at == found.offset,
        tail_call: found.rule == TAIL_JMP,
        when: None,
    })
}

impl Provider for Fbt {
    fn name(&self) -> &str {
        &self.provider
    }

    fn ids(&self, _: &Target) -> u32 {
        self.units.iter().map(Unit::ids).sum()
    }

    fn find(
        &self,
        target: &Target,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), ProviderError> {
        let names = (wanted.name(&self.entry), wanted.name(&self.leave));
        let mut first = 1;
        for unit in &self.units {
            if wanted.module(&unit.name) && names != (false, false) {
                let numbered = (first..).step_by(2).zip(&unit.functions);
                for (id, function) in numbered.filter(|(_, function)| wanted.function(&function.name)) {
                    self.add(target, (unit, function, id), names, found);
                }
            }
            first += unit.ids();
        }
        found.retain(|probe| !probe.sites.is_empty());
        Ok(())
    }

    fn convention(&self, probe: &Probe) -> Option<Abi> {
        let own = probe.name.provider == self.provider && probe.name.name == self.entry;
        (own && self.guessed).then_some(self.abi)
    }

    fn near(&self, target: &Target, wanted: &Description) -> Vec<String> {
        let [_, _, function, name] = wanted.written();
        // No function has this name: suggest similar ones.
        let name = if *name == *self.leave || name.starts_with('r') { &self.leave } else { &self.entry };
        let units = self.units.iter().filter(|unit| wanted.module(&unit.name));
        let near = units.flat_map(|unit| {
            let names = unit.home.symbols(target).near_misses(function, SUGGESTIONS).into_iter();
            let there = |name: &&str| unit.functions.binary_search_by(|f| f.name.as_ref().cmp(name)).is_ok();
            names.filter(there)
        });
        near.map(|near| format!("{}::{near}:{name}", self.provider)).collect()
    }
}

fn function(symbol: &Symbol) -> Function {
    Function { name: Arc::clone(&symbol.name), start: symbol.addr, size: symbol.size }
}

/// The symbols that are functions of fbt.
fn chosen<'a>(target: &'a Target, home: &'a Home) -> impl Iterator<Item = &'a Symbol> {
    let symbols = home.symbols(target);
    let strong = |symbol: &Symbol| symbol.is_function() && symbol.binding != Binding::Weak;
    let second = move |symbol: &Symbol| {
        let others = symbols.names_at(symbol.addr);
        let mut before = others.take_while(|other| other.name != symbol.name);
        symbol.binding == Binding::Weak
            && (before.any(Symbol::is_function) || symbols.names_at(symbol.addr).any(strong))
    };
    let named = |symbol: &&Symbol| !matches!(symbol.name.as_ref(), "_init" | "_fini");
    let code = move |symbol: &&Symbol| home.is_code(target, symbol.addr);
    symbols.functions().filter(named).filter(code).filter(move |symbol| !second(symbol))
}
