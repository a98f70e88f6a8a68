//! The linker: symbols to values, labels to instruction indices, one verified
//! handler for each probe point. The procedures that handlers call are linked
//! once and shared.
//!
//! Symbols come from a [`SymbolResolver`]. The caller converts a location's value
//! to an address (docs/providers.md, "Kernel and user").

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use trapline_trace::Layout;

use crate::ast::{
    Atom, Expr, FileHeader, Instr, Location, ModType, Operand, ProbePoint, Program, Routine, Watch,
};
use crate::code::Insn;
use crate::diag::{Diagnostics, Sink};
use crate::instructions::{Op, OperandKind};
use crate::logged::layout;
use crate::near::near_miss;
use crate::source::{Sources, Span};
use crate::verify::{Limits, UnverifiedProgram, Verified, VerifyError, Width, verify_program};

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
    /// The location.
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
    pub lines: Lines,
    /// What its records hold, if they can be shown as more than bytes.
    pub layout: Option<Arc<Layout>>,
    /// File name and line of the definition.
    pub origin: (String, u32),
    /// Location of the expression in the source, for diagnostics of the caller.
    pub span: Span,
}

/// The source lines of a handler's instructions.
#[derive(Debug, Clone)]
pub struct Lines {
    /// Lines of its own instructions.
    own: Arc<[u32]>,
    /// Lines of all instructions of the program, for those of its procedures.
    program: Arc<[u32]>,
    handler: Arc<Verified>,
}

impl Lines {
    /// The lines of a handler without procedures.
    #[must_use]
    pub fn of_handler(own: &[u32], handler: &Arc<Verified>) -> Self {
        Self { own: own.into(), program: Arc::from([]), handler: Arc::clone(handler) }
    }

    /// The line of an instruction, 0 if there is no such instruction.
    #[must_use]
    pub fn line(&self, at: u32) -> u32 {
        let of_procedure = || self.program.get(self.handler.of_program(at)? as usize);
        self.own.get(at as usize).or_else(of_procedure).copied().unwrap_or(0)
    }
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
        let mut linker = Linker::new(self, width, resolver);
        let points: Vec<Option<(LinkedLocation, OwnCode)>> =
            self.probes.iter().map(|point| linker.point(point)).collect();
        let handlers = linker.verified();
        if linker.sink.failed() {
            return Err(linker.sink.finish());
        }
        let program: Arc<[u32]> = linker.lines(&linker.spans).into();
        let linked = self.probes.iter().zip(points).filter_map(|(point, linked)| {
            let (location, own) = linked?;
            let handler = Arc::clone(handlers.get(own.handler)?);
            let lines =
                Lines { own: own.lines, program: Arc::clone(&program), handler: Arc::clone(&handler) };
            Some(self.linked_probe(point, location, handler, lines))
        });
        Ok(LinkedProgram {
            header: self.header.clone(),
            width,
            probes: linked.collect(),
            sources: Arc::clone(&self.sources),
        })
    }

    fn linked_probe(
        &self,
        point: &ProbePoint,
        location: LinkedLocation,
        handler: Arc<Verified>,
        lines: Lines,
    ) -> LinkedProbe {
        let (file, line) = self.sources.presumed(point.span);
        let layout = layout(&handler.code()).map(Arc::new);
        LinkedProbe {
            layout,
            location,
            watch: point.watch,
            opcode: point.opcode,
            major: self.header.major,
            minor: point.minor,
            ignore: point.ignore,
            maxhits: point.maxhits,
            logonfault: point.logonfault.unwrap_or(self.header.logonfault),
            group: point.group.clone(),
            kind: point.kind.clone(),
            handler,
            lines,
            origin: (file.to_owned(), line),
            span: point.location.expr().span,
        }
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

/// The code that [`Linker::point`] has added to the program for a probe point.
struct OwnCode {
    /// The index of its handler.
    handler: usize,
    /// The lines of the handler's own instructions.
    lines: Arc<[u32]>,
}

struct Linker<'a> {
    program: &'a Program,
    width: Width,
    resolver: &'a dyn SymbolResolver,
    sink: Sink,
    procs: BTreeMap<String, usize>,
    /// The code of the program so far: each handler, and each procedure after the first handler that reaches it.
    code: Vec<Insn>,
    spans: Vec<Span>,
    /// Where each routine begins.
    starts: Vec<u32>,
    /// Where each procedure in the code begins.
    placed: BTreeMap<usize, u32>,
    /// The routines that are handlers, with their exception masks.
    handlers: BTreeMap<usize, u32>,
    /// The handlers by their own code, as if it began at 0, and mask. Probes in their thousands often share one, and a hit
    /// then finds it in the cache.
    known: HashMap<(Vec<Insn>, u32), usize>,
    /// Whether a handler or procedure could not be linked, so that others may call a missing procedure.
    incomplete: bool,
}

impl<'a> Linker<'a> {
    fn new(program: &'a Program, width: Width, resolver: &'a dyn SymbolResolver) -> Self {
        Self {
            program,
            width,
            resolver,
            sink: Sink::default(),
            procs: program.procs.iter().enumerate().map(|(i, p)| (p.name.to_ascii_lowercase(), i)).collect(),
            code: Vec::new(),
            spans: Vec::new(),
            starts: Vec::new(),
            placed: BTreeMap::new(),
            handlers: BTreeMap::new(),
            known: HashMap::new(),
            incomplete: false,
        }
    }

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
        let header = &self.program.header;
        let place = match module {
            Some(module) => format!("\"{module}\""),
            None if header.modtype == ModType::User => format!("\"{}\" and in the kernel", header.name),
            None => "the kernel".to_owned(),
        };
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
            // The caller looks up the description.
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

    fn point(&mut self, point: &ProbePoint) -> Option<(LinkedLocation, OwnCode)> {
        let location = self.location(&point.location);
        let own = self.handler(point);
        self.incomplete |= own.is_none();
        Some((location?, own?))
    }

    /// Adds a probe point's handler to the code, and the procedures that it is the first to reach.
    fn handler(&mut self, point: &ProbePoint) -> Option<OwnCode> {
        let start = u32::try_from(self.code.len()).ok()?;
        let reached = self.reach(&point.handler, start)?;
        let (mut code, spans) = self.routine(&point.handler, 0, Op::Exit)?;
        let lines = self.lines(&spans).into();
        let key = (code, point.excpt_mask.unwrap_or(self.program.header.excpt_mask));
        if let Some(&handler) = self.known.get(&key) {
            return Some(OwnCode { handler, lines });
        }
        let (handler, mask) = (self.handlers.len(), key.1);
        code = key.0.clone();
        self.known.insert(key, handler);
        for insn in code.iter_mut().filter(|insn| insn.op.row().operand == OperandKind::Label) {
            insn.arg = insn.arg.wrapping_add(start.into());
        }
        self.handlers.insert(self.starts.len(), mask);
        self.append((code, spans), start);
        for index in reached {
            let start = *self.placed.get(&index)?;
            let routine = self.routine(self.program.procs.get(index)?, start, Op::Ret)?;
            self.append(routine, start);
        }
        Some(OwnCode { handler, lines })
    }

    /// Places each procedure that a handler at `start` is the first to reach after that handler, in the order of the
    /// calls.
    fn reach(&mut self, handler: &Routine, start: u32) -> Option<Vec<usize>> {
        let mut end = start.checked_add(length(handler)?)?;
        let mut reached = Vec::new();
        let (mut routine, mut next) = (handler, 0);
        loop {
            for instr in routine.body.iter().filter(|i| i.op == Op::Call) {
                let Operand::Name(name) = &instr.operand else { continue };
                let index = *self.procs.get(&name.to_ascii_lowercase())?;
                if let Entry::Vacant(place) = self.placed.entry(index) {
                    place.insert(end);
                    end = end.checked_add(length(self.program.procs.get(index)?)?)?;
                    reached.push(index);
                }
            }
            let Some(&index) = reached.get(next) else { return Some(reached) };
            routine = self.program.procs.get(index)?;
            next += 1;
        }
    }

    /// The instructions of a routine that begins at `start`, and the place of each in the sources.
    fn routine(&mut self, routine: &Routine, start: u32, last: Op) -> Option<(Vec<Insn>, Vec<Span>)> {
        let labels = label_indices(routine, start);
        let mut code = Vec::with_capacity(routine.body.len() + 1);
        for instr in &routine.body {
            code.push(self.instr(instr, &labels)?);
        }
        code.push(Insn { op: last, arg: 0 });
        let end = routine.body.last().map_or(routine.span, |instr| instr.span);
        let spans = routine.body.iter().map(|instr| instr.span).chain([end]).collect();
        Some((code, spans))
    }

    fn append(&mut self, (code, spans): (Vec<Insn>, Vec<Span>), start: u32) {
        self.starts.push(start);
        self.code.extend(code);
        self.spans.extend(spans);
    }

    fn lines(&self, spans: &[Span]) -> Vec<u32> {
        spans.iter().map(|span| self.program.sources.presumed(*span).1).collect()
    }

    /// The verified handlers. A handler that fails verification is reported as an error.
    fn verified(&mut self) -> Vec<Arc<Verified>> {
        if self.incomplete || self.handlers.is_empty() {
            return Vec::new();
        }
        let header = &self.program.header;
        let limits = Limits {
            width: self.width,
            logmax: header.logmax,
            jmpmax: header.jmpmax,
            vars: header.vars,
            gvars: header.gvars,
            excpt_mask: header.excpt_mask,
            kernel: header.modtype.is_kernel(),
            excpt_log: header.excpt_log,
            autostacktrace: header.autostacktrace,
        };
        let (code, routines) = (std::mem::take(&mut self.code), std::mem::take(&mut self.starts));
        let handlers = std::mem::take(&mut self.handlers);
        match verify_program(UnverifiedProgram { code, routines, handlers, limits }) {
            Ok(verified) => verified.into_iter().map(Arc::new).collect(),
            Err(errors) => {
                for VerifyError { index, reason } in errors {
                    let span = self.spans.get(index).copied().unwrap_or_default();
                    self.error(span, "not-verified", reason);
                }
                Vec::new()
            }
        }
    }

    fn instr(&mut self, instr: &Instr, labels: &BTreeMap<String, u32>) -> Option<Insn> {
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
                    u64::from(*self.placed.get(self.procs.get(&name)?)?)
                } else {
                    u64::from(*labels.get(&name)?)
                }
            }
        };
        Some(Insn { op: instr.op, arg })
    }
}

/// Instructions of a routine, with the one that ends it.
fn length(routine: &Routine) -> Option<u32> {
    u32::try_from(routine.body.len()).ok()?.checked_add(1)
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
