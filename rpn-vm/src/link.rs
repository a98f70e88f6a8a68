//! The linker: symbols to values, labels to instruction indices, one verified
//! handler for each probe point.
//!
//! Symbols come from a [`SymbolResolver`]. The caller converts a location's value
//! to an address (docs/providers.md, "Kernel and user").

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ast::{Atom, Expr, FileHeader, Instr, Location, Operand, ProbePoint, Program, Routine, Watch};
use crate::code::Insn;
use crate::diag::{Diagnostics, Sink};
use crate::instructions::{Op, OperandKind};
use crate::near::near_miss;
use crate::source::{Sources, Span};
use crate::verify::{Limits, Unverified, Verified, VerifyError, Width, verify};

/// Where symbols come from.
pub trait SymbolResolver {
    /// The value of a symbol: in `module` if given (for `offset =`), else in the kernel.
    fn resolve(&self, module: Option<&str>, name: &str) -> Option<u64>;

    /// For a name that was not found: a reason beyond "unknown symbol", if there is one, and what to do.
    fn refusal(&self, module: Option<&str>, name: &str) -> Option<(String, Option<String>)> {
        let _ = (module, name);
        None
    }

    /// Known names similar to one that was not found, best first.
    fn suggest(&self, module: Option<&str>, name: &str) -> Vec<String> {
        let _ = (module, name);
        Vec::new()
    }
}

/// A resolver without symbols.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSymbols;

impl SymbolResolver for NoSymbols {
    fn resolve(&self, _: Option<&str>, _: &str) -> Option<u64> {
        None
    }
}

/// A resolver that gives 0 for every symbol: for checking a program without its module.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnySymbol;

impl SymbolResolver for AnySymbol {
    fn resolve(&self, _: Option<&str>, _: &str) -> Option<u64> {
        Some(0)
    }
}

impl SymbolResolver for BTreeMap<String, u64> {
    fn resolve(&self, _: Option<&str>, name: &str) -> Option<u64> {
        self.get(name).copied()
    }

    fn suggest(&self, _: Option<&str>, name: &str) -> Vec<String> {
        near_miss(name, self.keys().map(String::as_str)).map(str::to_owned).into_iter().collect()
    }
}

/// Whether a location counts within the module or is absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocationForm {
    /// `offset =`.
    Offset,
    /// `address =`.
    Address,
}

/// A location with its symbols resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedLocation {
    /// `offset =` or `address =`.
    pub form: LocationForm,
    /// The first symbol that is added, when there is one; or a probe description ([`Expr::description`]), whose value
    /// is 0.
    pub symbol: Option<String>,
    /// The value of that symbol.
    pub symbol_value: Option<u64>,
    /// The rest: `value - symbol_value`, modulo the width.
    pub addend: u64,
    /// The whole expression, modulo the width. Without a symbol, a number as the user wrote it.
    pub value: u64,
    /// Its offset from the start of the module, for stack traces. It is `value` until the caller, who knows the module,
    /// sets it.
    pub offset: u64,
    /// The upper end of an address range, inclusive.
    pub end: Option<u64>,
    /// The expression as written.
    pub text: String,
}

/// A probe point ready to be armed.
#[derive(Debug, Clone)]
pub struct LinkedProbe {
    /// Where.
    pub location: LinkedLocation,
    /// The access that hits a watchpoint.
    pub watch: Option<Watch>,
    /// The byte expected there.
    pub opcode: u8,
    /// Major code, of the file.
    pub major: u32,
    /// Minor code.
    pub minor: u32,
    /// Hits to skip first.
    pub ignore: u32,
    /// Hits after which it disables itself.
    pub maxhits: u32,
    /// Whether a fault of the probed instruction still commits the record.
    pub logonfault: bool,
    /// `group =`.
    pub group: Option<String>,
    /// `type =`.
    pub kind: Option<String>,
    /// The handler, shared by all probe points with the same code.
    pub handler: Arc<Verified>,
    /// Source line of each of its instructions.
    pub lines: Box<[u32]>,
    /// File name and line of the definition.
    pub origin: (String, u32),
    /// Location of the expression in the source, for diagnostics of the caller.
    pub span: Span,
}

/// A program ready to be applied.
#[derive(Debug, Clone)]
pub struct LinkedProgram {
    /// The file header.
    pub header: FileHeader,
    /// The width it was linked for.
    pub width: Width,
    /// The probe points in the order of the file.
    pub probes: Vec<LinkedProbe>,
    /// Its source texts.
    pub sources: Arc<Sources>,
}

impl Program {
    /// Resolves symbols, and links and verifies the handler of each probe point.
    ///
    /// # Errors
    /// Unknown symbols, values that do not fit the width, registers that this width does not have.
    pub fn link(&self, width: Width, resolver: &dyn SymbolResolver) -> Result<LinkedProgram, Diagnostics> {
        let mut linker = Linker {
            program: self,
            width,
            resolver,
            sink: Sink::default(),
            procs: self.procs.iter().enumerate().map(|(i, p)| (p.name.to_ascii_lowercase(), i)).collect(),
            verified: HashMap::new(),
        };
        let probes: Vec<Option<LinkedProbe>> = self.probes.iter().map(|p| linker.probe(p)).collect();
        if linker.sink.failed() {
            return Err(linker.sink.finish());
        }
        Ok(LinkedProgram {
            header: self.header.clone(),
            width,
            probes: probes.into_iter().flatten().collect(),
            sources: Arc::clone(&self.sources),
        })
    }
}

impl LinkedProgram {
    /// A diagnostic that points at a probe point's location, for errors found when arming it.
    #[must_use]
    pub fn location_error(
        &self,
        probe: &LinkedProbe,
        code: &'static str,
        message: String,
        help: Option<String>,
    ) -> Diagnostics {
        let mut sink = Sink::default();
        match help {
            Some(help) => sink.error_help(&self.sources, probe.span, code, message, help),
            None => sink.error(&self.sources, probe.span, code, message),
        }
        sink.finish()
    }
}

struct Linker<'a> {
    program: &'a Program,
    width: Width,
    resolver: &'a dyn SymbolResolver,
    sink: Sink,
    procs: BTreeMap<String, usize>,
    /// The handlers so far. Probes in their thousands often share one, and a hit then finds it in the cache.
    verified: HashMap<(Vec<Insn>, Vec<u32>, Limits), Arc<Verified>>,
}

impl Linker<'_> {
    fn error(&mut self, span: Span, code: &'static str, message: String) {
        self.sink.error(&self.program.sources, span, code, message);
    }

    /// The value of an expression modulo the width, and the first added symbol with its value.
    fn value(&mut self, expr: &Expr, module: Option<&str>) -> Option<(u64, Option<(String, u64)>)> {
        let mut sum = 0u64;
        let mut first = None;
        let mut ok = true;
        for term in &expr.terms {
            let n = match &term.atom {
                Atom::Number(n) => *n,
                Atom::Symbol(name) => match self.resolver.resolve(module, name) {
                    Some(value) => {
                        if first.is_none() && !term.negative {
                            first = Some((name.clone(), value & self.width.mask()));
                        }
                        value
                    }
                    None => {
                        self.unknown_symbol(name, module, term.span);
                        ok = false;
                        0
                    }
                },
            };
            sum = if term.negative { sum.wrapping_sub(n) } else { sum.wrapping_add(n) };
        }
        if let Some(constant) = expr.constant()
            && self.width == Width::W32
            && (constant < i128::from(i32::MIN) || constant > i128::from(u32::MAX))
        {
            self.error(expr.span, "out-of-range", format!("{constant} does not fit 32 bits"));
            return None;
        }
        ok.then_some((sum & self.width.mask(), first))
    }

    fn unknown_symbol(&mut self, name: &str, module: Option<&str>, span: Span) {
        if let Some((message, help)) = self.resolver.refusal(module, name) {
            match help {
                Some(help) => {
                    self.sink.error_help(&self.program.sources, span, "unknown-place", message, help);
                }
                None => self.error(span, "unknown-place", message),
            }
            return;
        }
        let place = module.map_or_else(|| "the kernel".to_owned(), |m| format!("\"{m}\""));
        let message = format!("unknown symbol `{name}` in {place}");
        let near: Vec<String> =
            self.resolver.suggest(module, name).into_iter().map(|n| format!("`{n}`")).collect();
        if near.is_empty() {
            self.error(span, "unknown-symbol", message);
        } else {
            let help = format!("did you mean {}?", near.join(" or "));
            self.sink.error_help(&self.program.sources, span, "unknown-symbol", message, help);
        }
    }

    fn location(&mut self, location: &Location) -> Option<LinkedLocation> {
        let name = self.program.header.name.clone();
        let (form, expr, high, module) = match location {
            Location::Offset(e) => (LocationForm::Offset, e, None, Some(name.as_str())),
            Location::Address(e, high) => (LocationForm::Address, e, high.as_ref(), None),
        };
        let (value, symbol) = match expr.description().filter(|_| form == LocationForm::Offset) {
            // What it names is the caller's to find.
            Some(text) => (0, Some((text.to_owned(), 0))),
            None => self.value(expr, module)?,
        };
        let end = match high {
            Some(high) => Some(self.value(high, module)?.0),
            None => None,
        };
        let (symbol, symbol_value) = symbol.unzip();
        let addend = value.wrapping_sub(symbol_value.unwrap_or(0)) & self.width.mask();
        Some(LinkedLocation {
            form,
            symbol,
            symbol_value,
            addend,
            value,
            offset: value,
            end,
            text: expr.to_source(),
        })
    }

    fn probe(&mut self, point: &ProbePoint) -> Option<LinkedProbe> {
        let header = &self.program.header;
        let location = self.location(&point.location);
        let handler = self.handler(point);
        let location = location?;
        let (handler, lines) = handler?;
        let (file, line) = self.program.sources.presumed(point.span);
        Some(LinkedProbe {
            location,
            watch: point.watch,
            opcode: point.opcode,
            major: header.major,
            minor: point.minor,
            ignore: point.ignore,
            maxhits: point.maxhits,
            logonfault: point.logonfault.unwrap_or(header.logonfault),
            group: point.group.clone(),
            kind: point.kind.clone(),
            handler,
            lines,
            origin: (file.to_owned(), line),
            span: point.location.expr().span,
        })
    }

    /// The handler and the procedures it can reach, one after the other, and the line of each instruction.
    fn handler(&mut self, point: &ProbePoint) -> Option<(Arc<Verified>, Box<[u32]>)> {
        let program = self.program;
        let header = &program.header;
        let mut routines: Vec<&Routine> = vec![&point.handler];
        let mut starts = vec![0u32];
        let mut reached: BTreeMap<usize, u32> = BTreeMap::new();
        let mut next = 0;
        while let Some(routine) = routines.get(next) {
            let end = starts[next] + u32::try_from(routine.body.len()).ok()? + 1;
            starts.push(end);
            next += 1;
            for instr in routine.body.iter().filter(|i| i.op == Op::Call) {
                let Operand::Name(name) = &instr.operand else { continue };
                let index = *self.procs.get(&name.to_ascii_lowercase())?;
                if let std::collections::btree_map::Entry::Vacant(slot) = reached.entry(index) {
                    slot.insert(u32::try_from(routines.len()).ok()?);
                    routines.push(&program.procs[index]);
                }
            }
        }
        starts.pop();
        let mut code = Vec::new();
        let mut spans = Vec::new();
        for (n, routine) in routines.iter().enumerate() {
            let start = starts[n];
            let labels = label_indices(routine, start);
            for instr in &routine.body {
                code.push(self.instr(instr, &labels, &reached, &starts)?);
                spans.push(instr.span);
            }
            code.push(Insn { op: if n == 0 { Op::Exit } else { Op::Ret }, arg: 0 });
            spans.push(routine.body.last().map_or(routine.span, |i| i.span));
        }
        let limits = Limits {
            width: self.width,
            logmax: header.logmax,
            jmpmax: header.jmpmax,
            vars: header.vars,
            gvars: header.gvars,
            excpt_mask: point.excpt_mask.unwrap_or(header.excpt_mask),
            kernel: header.modtype.is_kernel(),
            excpt_log: header.excpt_log,
            autostacktrace: header.autostacktrace,
        };
        let lines = spans.iter().map(|s| program.sources.presumed(*s).1).collect();
        let key = (code, starts, limits);
        if let Some(same) = self.verified.get(&key) {
            return Some((same.clone(), lines));
        }
        match verify(Unverified { code: key.0.clone(), routines: key.1.clone(), limits }) {
            Ok(verified) => {
                let verified = Arc::new(verified);
                self.verified.insert(key, verified.clone());
                Some((verified, lines))
            }
            Err(VerifyError { index, reason }) => {
                let span = spans.get(index).copied().unwrap_or(point.span);
                self.error(span, "not-verified", reason);
                None
            }
        }
    }

    fn instr(
        &mut self,
        instr: &Instr,
        labels: &BTreeMap<String, u32>,
        reached: &BTreeMap<usize, u32>,
        starts: &[u32],
    ) -> Option<Insn> {
        let arg = match &instr.operand {
            Operand::None => 0,
            Operand::Register(index) => u64::from(*index),
            Operand::Number(n) => *n as u64,
            Operand::Value(expr) => match self.value(expr, None) {
                Some((value, _)) => value,
                None => return Some(Insn { op: Op::Nop, arg: 0 }),
            },
            Operand::Name(name) => {
                let name = name.to_ascii_lowercase();
                if instr.op.row().operand == OperandKind::Proc {
                    let routine = reached.get(self.procs.get(&name)?)?;
                    u64::from(*starts.get(*routine as usize)?)
                } else {
                    u64::from(*labels.get(&name)?)
                }
            }
        };
        Some(Insn { op: instr.op, arg })
    }
}

fn label_indices(routine: &Routine, start: u32) -> BTreeMap<String, u32> {
    let mut map = BTreeMap::new();
    for (at, instr) in (start..).zip(&routine.body) {
        for label in &instr.labels {
            map.insert(label.to_ascii_lowercase(), at);
        }
    }
    map
}
