//! The stages of a compilation: tokens, syntax tree, types, instructions, verifier.

use crate::ast::Item;
use crate::check::Checker;
use crate::error::{Error, Pos, Result};
use crate::generate::Code;
use crate::guest::{GuestTypeId, TypeTag, Types, scoped};
use crate::library::{FILES, Mentioned};
use crate::node::{Node, Step};
use crate::options::Options;
use crate::parse::{Reading, parse};
use crate::pragma::Pragma;
use crate::scope::{CLAUSE_SLOTS, Scope};
use crate::types::{Model, TypeTable};
use std::cell::Cell;
use std::sync::Arc;
use trapline_rpn::{Limits, Unverified, Verified, Width, verify};
use trapline_trace::d::Tables;

/// A clause that has been compiled.
#[derive(Debug, Clone)]
pub struct CompiledClause {
    /// The probe descriptions as written, macro variables replaced.
    pub descriptions: Vec<String>,
    /// Where the clause begins.
    pub line: u32,
    /// The number of the text that it is in.
    pub text: usize,
    /// Its code.
    pub handler: Arc<Verified>,
    /// The line of each instruction.
    pub lines: Box<[u32]>,
    /// The line of the text where the clause begins, and that of each instruction, whatever the markers of the preprocessor
    /// say.
    pub text_line: u32,
    /// As [`CompiledClause::text_line`].
    pub text_lines: Box<[u32]>,
}

impl Compiled {
    /// Numbers of its descriptions, in program order, summed for each text.
    #[must_use]
    pub fn by_text(&self, of_descriptions: &[usize]) -> Vec<usize> {
        let mut sums = vec![0; self.clauses.iter().map(|clause| clause.text + 1).max().unwrap_or(0)];
        let texts = self.clauses.iter().flat_map(|clause| clause.descriptions.iter().map(|_| clause.text));
        for (text, count) in texts.zip(of_descriptions) {
            if let Some(sum) = sums.get_mut(text) {
                *sum += count;
            }
        }
        sums
    }
}

/// A program that has been compiled.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The clauses in program order.
    pub clauses: Vec<CompiledClause>,
    /// The tables that running it and showing its data need.
    pub tables: Tables,
    /// Options, with those that the texts have set.
    pub options: Options,
    /// Local variables of the virtual machine.
    pub slots: u32,
    /// Whether an action changes the guest or the host: the option `destructive` must be set then.
    pub destructive: bool,
    /// Whether `vtimestamp` is used, for which switches of threads must be known.
    pub vtimestamp: bool,
    /// Whether one of these is `panic()`.
    pub panics: bool,
    /// Whether one of these is `system()`: the option `system` must be set then.
    pub commands: bool,
}

/// Gives the value of a macro variable that the caller defines, such as `target` or `pid`.
pub type MacroVariable<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// A clause whose types are known.
#[derive(Clone)]
struct Checked {
    descriptions: Vec<String>,
    pos: Pos,
    text: usize,
    predicate: Option<Node>,
    steps: Vec<Step>,
}

/// Compiles the texts of one program, which share their names. A clone goes on with what the texts so far have declared.
#[derive(Clone)]
pub struct Compiler {
    pub(crate) types: TypeTable,
    pub(crate) scope: Scope,
    pub(crate) options: Options,
    clauses: Vec<Checked>,
    texts: usize,
}

impl Compiler {
    /// A program without a text. `model` says how wide the guest's `long` and pointers are.
    #[must_use]
    pub fn new(model: Model, options: Options) -> Self {
        let (types, scope) = (TypeTable::new(model), Scope::default());
        Self { types, scope, options, clauses: Vec::new(), texts: 0 }
    }

    /// The same, for a guest whose types and symbols are known.
    #[must_use]
    pub fn with_types(mut self, guest: Arc<dyn Types>) -> Self {
        self.types.imports.guest = guest;
        self
    }

    /// A type of the guest as C writes it.
    pub fn type_name(&mut self, id: GuestTypeId) -> String {
        let ty = self.types.import(id);
        self.types.name(ty)
    }

    /// The options so far.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Adds a text. `arguments` are what `$0`, `$1` and so on stand for.
    ///
    /// # Errors
    /// The first error in it.
    pub fn add(&mut self, text: &[u8], arguments: &[Vec<u8>], variable: MacroVariable<'_>) -> Result<()> {
        let number = self.texts;
        self.add_text(text, arguments, variable).map_err(|error| Error { text: number, ..error })
    }

    fn add_text(&mut self, text: &[u8], arguments: &[Vec<u8>], variable: MacroVariable<'_>) -> Result<()> {
        self.libraries(text)?;
        let used = Cell::new(0usize);
        let defaults = self.options.flag("defaultargs") || has_option(text, "defaultargs");
        let macros = |name: &str| -> Option<Vec<u8>> {
            let Ok(number) = name.parse::<usize>() else { return variable(name) };
            used.set(used.get().max(number));
            arguments.get(number).cloned().or_else(|| defaults.then(Vec::new))
        };
        let guest = Arc::clone(&self.types.imports.guest);
        let is_type = |name: &str| {
            let (module, name) = scoped(name);
            guest.type_named(TypeTag::Typedef, module, name).is_some()
        };
        let reading = Reading {
            macros: &macros,
            of_guest: &is_type,
            known: &|name| self.types.is_typedef(name),
            descriptions_first: self.options.flag("pspec") || has_option(text, "pspec"),
        };
        let parsed = parse(text, reading);
        for (pos, pragma) in &parsed.pragmas {
            self.pragma(pragma, *pos)?;
        }
        self.types.strsize = self.options.number("strsize").max(1);
        if parsed.script.items.is_empty() && parsed.error.is_none() && !self.options.flag("empty") {
            return Err(parsed.end.error("D_EMPTY", "empty D program translation unit"));
        }
        for item in &parsed.script.items {
            self.item(item, &macros)?;
        }
        if let Some(error) = parsed.error {
            return Err(error);
        }
        if let Some(unused) = arguments.get(used.get() + 1..).and_then(<[Vec<u8>]>::first)
            && !self.options.flag("argref")
        {
            let shown = String::from_utf8_lossy(unused);
            let sentence = format!("extraneous argument '{shown}' (${} is the last referenced)", used.get());
            return Err(parsed.end.error("D_MACRO_UNUSED", sentence));
        }
        self.texts += 1;
        Ok(())
    }

    /// Reads the files of the library whose names a text uses, each once.
    pub(crate) fn libraries(&mut self, text: &[u8]) -> Result<()> {
        let mentioned = Mentioned::by(text);
        for (number, file) in FILES.iter().enumerate() {
            let Some(read) = self.scope.library.get_mut(number).filter(|read| !**read) else { continue };
            let Some(items) = file.wanted(number, &mentioned, &*self.types.imports.guest) else { continue };
            *read = true;
            let mut checker = Checker::new(&mut self.types, &mut self.scope, &self.options);
            checker.in_library = true;
            for item in items {
                match item {
                    Item::Declaration(declaration) => checker.declaration(declaration)?,
                    Item::Translator(translator) => checker.translator(translator)?,
                    // Inlines wait until they are used.
                    Item::Inline(_) | Item::Clause(_) => {}
                }
            }
        }
        Ok(())
    }

    fn pragma(&mut self, pragma: &Pragma, pos: Pos) -> Result<()> {
        let Pragma::Option { name, value } = pragma else { return Ok(()) };
        self.options.set(name, value.as_deref()).map_err(|error| {
            let to = value.as_ref().map(|value| format!(" to '{value}'")).unwrap_or_default();
            pos.error("D_PRAG_OPTSET", format!("failed to set option '{name}'{to}: {error}"))
        })
    }

    fn item(&mut self, item: &Item, macros: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<()> {
        let text = self.texts;
        let mut checker = Checker::new(&mut self.types, &mut self.scope, &self.options);
        match item {
            Item::Declaration(declaration) => checker.declaration(declaration),
            Item::Inline(inline) => checker.inline(inline),
            Item::Translator(translator) => checker.translator(translator),
            Item::Clause(clause) => {
                let descriptions: Result<Vec<String>> =
                    clause.descriptions.iter().map(|text| expanded(text, macros, clause.pos)).collect();
                checker.descriptions = descriptions.as_deref().unwrap_or_default().to_vec();
                let (predicate, steps) = checker.clause(clause)?;
                let (descriptions, pos) = (descriptions?, clause.pos);
                self.clauses.push(Checked { descriptions, pos, text, predicate, steps });
                Ok(())
            }
        }
    }

    /// Generates and verifies the code of all clauses.
    ///
    /// # Errors
    /// A clause that is too long.
    pub fn finish(self) -> Result<Compiled> {
        let Self { types, mut scope, options, clauses, .. } = self;
        let slots = scope.slots + scope.clause_slots;
        scope.tables.clause_slots = (scope.slots, scope.clause_slots);
        scope.tables.variables = scope.variables(&types);
        let mut compiled = Vec::new();
        for clause in clauses {
            let mut code = Code::new(&types, (CLAUSE_SLOTS, scope.slots));
            let in_text = |error: Error| Error { text: clause.text, ..error };
            code.clause(clause.predicate.as_ref(), &clause.steps, clause.pos).map_err(in_text)?;
            let limits = Limits {
                width: Width::W64,
                logmax: 0,
                jmpmax: 65_535,
                vars: slots,
                gvars: 0,
                excpt_mask: 0xffff,
                kernel: true,
                excpt_log: 0,
                autostacktrace: false,
            };
            let unverified = Unverified { code: code.code, routines: vec![0], limits };
            let handler = verify(unverified).map_err(|error| {
                in_text(clause.pos.error("D_VERIFY", format!("the clause's code cannot run: {error}")))
            })?;
            compiled.push(CompiledClause {
                descriptions: clause.descriptions,
                line: clause.pos.line,
                text: clause.text,
                handler: Arc::new(handler),
                lines: code.lines.into(),
                text_line: clause.pos.text_line,
                text_lines: code.text_lines.into(),
            });
        }
        let Scope { tables, destructive, vtimestamp, panics, commands, .. } = scope;
        Ok(Compiled { clauses: compiled, tables, options, slots, destructive, vtimestamp, panics, commands })
    }
}

/// Whether a text sets an option by a directive. Some options say how the text itself is read.
fn has_option(text: &[u8], name: &str) -> bool {
    if !text.contains(&b'#') {
        return false;
    }
    let text = String::from_utf8_lossy(text);
    text.lines().any(|line| {
        let mut words = line.trim_start().trim_start_matches('#').split_whitespace();
        line.trim_start().starts_with('#')
            && words.next() == Some("pragma")
            && words.next() == Some("D")
            && words.next() == Some("option")
            && words.next() == Some(name)
    })
}

/// A probe description with its macro variables replaced.
fn expanded(text: &str, macros: &dyn Fn(&str) -> Option<Vec<u8>>, pos: Pos) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let after = after.strip_prefix('$').unwrap_or(after);
        let length = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (name, tail) = after.split_at(length);
        // Without a process, `pid$target` is left to its provider, which may know one.
        if name == "target" && macros(name).is_none_or(|value| value == b"0") {
            out.push_str("$target");
        } else {
            let value = macros(name).ok_or_else(|| {
                pos.error("D_MACRO_UNDEF", format!("macro argument ${name} is not defined"))
            })?;
            out.push_str(&String::from_utf8_lossy(&value));
        }
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

/// Compiles one text without arguments, for LP64.
///
/// # Errors
/// The first error in it.
pub fn compile(text: &str) -> std::result::Result<Compiled, Error> {
    let mut compiler = Compiler::new(Model::Lp64, Options::default());
    compiler.add(text.as_bytes(), &[b"d".to_vec()], &|_| None)?;
    compiler.finish()
}
