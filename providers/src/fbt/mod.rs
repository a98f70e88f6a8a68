//! Function boundary tracing: a probe at the entry and one at the returns of each function of the kernel.
//!
//! Functions are the symbols of that kind, but for `_init` and `_fini`, whose text an image does not keep together, and
//! weak names of an address that has another (providers.md A). Each has two identifiers, whether both probes exist or
//! not, so that numbers need no look at the code.

mod scan;

use std::sync::Arc;

use trapline_emu::load::LoadPlan;
use trapline_emu::symbols::{Binding, Symbol, Symbols};
use trapline_interposer::{Arguments, Place};
use trapline_trace::ProbeName;

use crate::abi::{self, Abi, AtEntry, AtReturn};
use crate::description::Description;
use crate::provider::{Probe, Provider, ProviderError, Site};
use crate::target::{Target, basename};
pub use scan::Rules;
use scan::{Body, Found, Targets};

/// Return probes log where the return is, and the value.
const LOGGED_AT_RETURN: u8 = 2;
/// Functions longer than this are cut: no compiler makes them, and a bad symbol table could.
const LONGEST: u64 = 1 << 24;

/// A function.
#[derive(Debug)]
struct Function {
    name: Arc<str>,
    start: u64,
    size: u64,
}

/// The provider.
#[derive(Debug)]
pub struct Fbt {
    provider: Arc<str>,
    module: Arc<str>,
    entry: Arc<str>,
    leave: Arc<str>,
    rules: Rules,
    abi: Abi,
    at_entry: Arc<dyn Arguments>,
    /// By name and address.
    functions: Vec<Function>,
}

impl Fbt {
    /// The functions of a target's kernel.
    pub fn new(target: &Target) -> Self {
        let options = target.options();
        let abi = options.abi.unwrap_or_else(|| Abi::of(target));
        let plan = target.image().plan();
        let sizes = target.symbols().functions().any(|symbol| symbol.sized);
        // DTrace takes what its file gives a size; a System.map gives none.
        let taken = |symbol: &&Symbol| symbol.sized || !sizes || options.fbt == Rules::Full;
        let mut functions: Vec<Function> =
            chosen(target.symbols(), plan).filter(taken).map(function).collect();
        functions.sort_by(|a, b| (&a.name, a.start).cmp(&(&b.name, b.start)));
        Self {
            provider: "fbt".into(),
            module: basename(&plan.name).into(),
            entry: "entry".into(),
            leave: "return".into(),
            rules: options.fbt,
            abi,
            at_entry: Arc::new(AtEntry(abi)),
            functions,
        }
    }

    fn probe(&self, function: &Function, id: u32, name: &Arc<str>, sites: Vec<Site>, logged: u8) -> Probe {
        let name = ProbeName {
            provider: Arc::clone(&self.provider),
            module: Arc::clone(&self.module),
            function: Arc::clone(&function.name),
            name: Arc::clone(name),
        };
        Probe { id, name: Arc::new(name), sites, logged, processes: None }
    }

    fn site(
        &self,
        plan: &LoadPlan,
        function: &Function,
        found: &Found,
        arguments: Arc<dyn Arguments>,
    ) -> Option<Site> {
        let linear = function.start.checked_add(found.at)?;
        Some(Site {
            place: Place::Kernel { linear, paddr: plan.vaddr_to_paddr(linear)? },
            offset: found.at,
            opcode: found.byte,
            rule: found.rule,
            arguments,
            within: None,
            shown: Vec::new(),
            // Not at a `leave` or `pop ebp`, where the frame still stands.
            at_call: found.at == found.offset,
        })
    }

    fn entry(&self, plan: &LoadPlan, function: &Function, body: &Body<'_>) -> Vec<Site> {
        let found = body.entry(self.rules);
        let site = |found| self.site(plan, function, &found, Arc::clone(&self.at_entry));
        found.and_then(site).into_iter().collect()
    }

    fn returns(&self, target: &Target, function: &Function, body: &Body<'_>) -> Vec<Site> {
        let found = body.returns(self.rules, &Kernel(target.symbols()));
        let site = |found: &Found| {
            let arguments = Arc::new(AtReturn { offset: found.offset, abi: self.abi });
            self.site(target.image().plan(), function, found, arguments)
        };
        found.iter().filter_map(site).collect()
    }
}

impl Provider for Fbt {
    fn name(&self) -> &str {
        &self.provider
    }

    fn ids(&self, _: &Target) -> u32 {
        2 * self.functions.len() as u32
    }

    fn find(
        &self,
        target: &Target,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), ProviderError> {
        let (entries, returns) = (wanted.name(&self.entry), wanted.name(&self.leave));
        if !wanted.module(&self.module) || !(entries || returns) {
            return Ok(());
        }
        let plan = target.image().plan();
        let bits = plan.width.bits();
        for (id, function) in (1..).step_by(2).zip(&self.functions) {
            if !wanted.function(&function.name) {
                continue;
            }
            // The first byte needs no more than a few, to say what it is.
            let whole = returns || self.rules == Rules::Strict;
            let size = if whole { function.size } else { function.size.min(16) };
            let Some(bytes) = bytes(plan, function.start, size) else { continue };
            let body = Body { start: function.start, bytes: &bytes, bits };
            if entries {
                let sites = self.entry(plan, function, &body);
                found.push(self.probe(function, id, &self.entry, sites, abi::LOGGED));
            }
            if returns {
                let sites = self.returns(target, function, &body);
                found.push(self.probe(function, id + 1, &self.leave, sites, LOGGED_AT_RETURN));
            }
        }
        found.retain(|probe| !probe.sites.is_empty());
        Ok(())
    }

    fn near(&self, target: &Target, wanted: &Description) -> Vec<String> {
        let [_, _, function, name] = wanted.written();
        let names = target.symbols().near_misses(function, 8);
        let there = |name: &&str| self.functions.binary_search_by(|f| f.name.as_ref().cmp(name)).is_ok();
        let name = if name.is_empty() { &self.entry } else { name.as_str() };
        names.into_iter().filter(there).map(|near| format!("{}::{near}:{name}", self.provider)).collect()
    }
}

/// The bytes of a function, as many as its segment has.
fn bytes(plan: &LoadPlan, start: u64, size: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(size.clamp(1, LONGEST)).ok()?;
    plan.bytes_at(start, size).or_else(|| {
        let segment =
            plan.segments.iter().find(|s| (s.vaddr..s.vaddr.saturating_add(s.mem_size)).contains(&start))?;
        let left = segment.vaddr.saturating_add(segment.mem_size) - start;
        plan.bytes_at(start, size.min(usize::try_from(left).ok()?))
    })
}

fn function(symbol: &Symbol) -> Function {
    Function { name: Arc::clone(&symbol.name), start: symbol.addr, size: symbol.size }
}

/// The symbols that are functions of fbt.
fn chosen<'a>(symbols: &'a Symbols, plan: &'a LoadPlan) -> impl Iterator<Item = &'a Symbol> {
    let strong = |symbol: &Symbol| symbol.is_function() && symbol.binding != Binding::Weak;
    let second = move |symbol: &Symbol| {
        let others = symbols.names_at(symbol.addr);
        let mut before = others.take_while(|other| other.name != symbol.name);
        symbol.binding == Binding::Weak
            && (before.any(Symbol::is_function) || symbols.names_at(symbol.addr).any(strong))
    };
    let named = |symbol: &&Symbol| !matches!(symbol.name.as_ref(), "_init" | "_fini");
    let code = |symbol: &&Symbol| plan.is_executable(symbol.addr) == Some(true);
    symbols.functions().filter(named).filter(code).filter(move |symbol| !second(symbol))
}

/// What the kernel's symbols say of jump targets.
struct Kernel<'a>(&'a Symbols);

impl Targets for Kernel<'_> {
    fn same_function(&self, start: u64, to: u64) -> bool {
        let names = |at: u64| self.0.names_at(at).filter(|symbol| symbol.is_function());
        let Some(there) = self.0.at(to) else { return false };
        names(start).any(|own| {
            names(there.symbol.addr).any(|other| {
                let part = |whole: &str, part: &str| {
                    part.strip_prefix(whole).is_some_and(|rest| rest.starts_with(".cold"))
                };
                part(&own.name, &other.name) || part(&other.name, &own.name)
            })
        })
    }

    fn is_return_thunk(&self, to: u64) -> bool {
        self.0.names_at(to).any(|symbol| symbol.name.ends_with("_return_thunk"))
    }
}
