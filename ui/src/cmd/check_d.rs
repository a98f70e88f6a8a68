//! `trapline check FILE.d`: D programs, compiled without a guest or with the types and probes of one.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use trapline_d::{Compiled, CompiledClause, Model};
use trapline_providers::Target;
use trapline_session::{DError, DSource, counted};

use crate::d_text::{Cpp, TextError};
use crate::failure::Failure;

/// The options of a program that limit its memory.
const LIMITS: [&str; 5] = ["strsize", "scratchsize", "dynvarsize", "aggsize", "bufsize"];

/// A program that can be used.
pub struct Checked<'a> {
    path: &'a Path,
    text: String,
    compiled: Compiled,
    widths: Vec<u8>,
    /// The number of probes of the guest that each description matches, in program order.
    matched: Option<Vec<usize>>,
}

/// Why a program cannot be used.
pub enum Wrong {
    /// Its text.
    Text(DError),
    /// Its file.
    File(Failure),
}

impl From<TextError> for Wrong {
    fn from(error: TextError) -> Self {
        match error {
            TextError::File(error) => Self::File(error.into()),
            TextError::Cpp(error) => Self::Text(error),
        }
    }
}

/// Compiles a program for a guest, or without one for those of `widths`, in bits, that it can be compiled for.
///
/// # Errors
/// The file cannot be read, or the program cannot be compiled for any width.
pub fn check<'a>(
    path: &'a Path,
    cpp: &Cpp,
    widths: &[u8],
    target: Option<&Arc<Target>>,
) -> Result<Checked<'a>, Wrong> {
    let given = cpp.file(path)?;
    let text = String::from_utf8_lossy(&given.text).into_owned();
    let source = DSource { texts: vec![given], ..DSource::default() };
    if let Some(target) = target {
        let compiled = source.compile(target).map_err(Wrong::Text)?;
        let matched = Some(source.matches(target, &compiled).map_err(Wrong::Text)?);
        return Ok(Checked { path, text, compiled, widths: vec![target.width().bits()], matched });
    }
    let model = |width: u8| if width == 32 { Model::Ilp32 } else { Model::Lp64 };
    let mut good = Vec::new();
    let mut bad = None;
    for width in widths {
        match source.compile_alone(model(*width)) {
            Ok(compiled) => good.push((*width, compiled)),
            Err(error) => bad = bad.or(Some(error)),
        }
    }
    let widths = good.iter().map(|(width, _)| *width).collect();
    match (good.pop(), bad) {
        (Some((_, compiled)), _) => Ok(Checked { path, text, compiled, widths, matched: None }),
        (None, Some(error)) => Err(Wrong::Text(error)),
        (None, None) => Err(Wrong::File(Failure::Usage("no width to check for".to_owned()))),
    }
}

/// Writes the instructions of a clause, each line of its text before the first of them.
fn listing(clause: &CompiledClause, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let code = clause.handler.disassemble();
    let mut shown = 0;
    let places = clause.lines.iter().zip(&clause.text_lines);
    for (instruction, (line, text_line)) in code.lines().zip(places) {
        if *text_line > shown {
            let source = text.lines().nth((*text_line as usize).saturating_sub(1)).unwrap_or_default();
            writeln!(out, "    {line:>5}  ; {}", source.trim())?;
            shown = *text_line;
        }
        writeln!(out, "    {instruction}")?;
    }
    Ok(())
}

/// The instructions of a clause, without their numbers, and their lines.
fn operations(clause: &CompiledClause) -> Vec<Value> {
    let text = clause.handler.disassemble();
    let operation = |listed: &str| listed.trim_start().split_once("  ").map(|(_, text)| text.to_owned());
    let lines = text.lines().zip(&clause.lines);
    lines.map(|(listed, line)| json!({"line": line, "text": operation(listed)})).collect()
}

impl Checked<'_> {
    fn observe_only(&self) -> bool {
        self.compiled.clauses.iter().all(|clause| clause.handler.observe_only())
    }

    /// The clauses, each with its descriptions and the number of probes that each of them matches.
    fn clauses(&self) -> impl Iterator<Item = (&CompiledClause, Vec<(&str, Option<usize>)>)> {
        let mut matched = self.matched.iter().flatten().copied();
        self.compiled.clauses.iter().map(move |clause| {
            let descriptions = clause.descriptions.iter();
            (clause, descriptions.map(|text| (text.as_str(), matched.next())).collect())
        })
    }

    /// Writes what the program is: its clauses, aggregations and variables.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn summary(&self, disassemble: bool, out: &mut dyn Write) -> io::Result<()> {
        let Compiled { clauses, tables, options, .. } = &self.compiled;
        let widths: Vec<String> = self.widths.iter().map(u8::to_string).collect();
        let may = if self.observe_only() { "observe-only" } else { "may change the guest" };
        writeln!(out, "{}: ok for {} bits", self.path.display(), widths.join(" and "))?;
        writeln!(out, "  {}, {may}", counted(clauses.len() as u64, "clause"))?;
        for (clause, descriptions) in self.clauses() {
            let at = format!("{}:{}", self.path.display(), clause.line);
            let code = counted(clause.handler.instructions() as u64, "instruction");
            for (description, probes) in descriptions {
                let probes = probes.map(|n| format!(", {}", counted(n as u64, "probe")));
                writeln!(out, "  {at}: {description}: {code}{}", probes.unwrap_or_default())?;
            }
            if disassemble {
                listing(clause, &self.text, out)?;
            }
        }
        for aggregation in &tables.aggregations {
            let keys = match aggregation.keys.len() {
                0 => String::new(),
                keys => format!(" by {}", counted(keys as u64, "key")),
            };
            writeln!(out, "  @{}: {}(){keys}", aggregation.name, aggregation.kind.name())?;
        }
        for variable in &tables.dynamics {
            let (prefix, each) = if variable.thread { ("self->", "thread") } else { ("", "element") };
            let size = counted(variable.size.into(), "byte");
            writeln!(out, "  {prefix}{}: {size} for each {each}", variable.name)?;
        }
        let limits: Vec<String> =
            LIMITS.iter().map(|name| format!("{name} {}", options.number(name))).collect();
        writeln!(out, "  limits in bytes: {}", limits.join(", "))
    }

    /// The same as an object, with the instructions if these are asked for.
    #[must_use]
    pub fn object(&self, disassemble: bool) -> Value {
        let Compiled { tables, options, .. } = &self.compiled;
        let clauses: Vec<Value> = self
            .clauses()
            .map(|(clause, descriptions)| {
                let descriptions = descriptions.iter();
                let descriptions = descriptions.map(|(text, probes)| json!({"text": text, "probes": probes}));
                json!({
                    "line": clause.line, "descriptions": descriptions.collect::<Vec<Value>>(),
                    "instructions": clause.handler.instructions(),
                    "observe_only": clause.handler.observe_only(),
                    "code": disassemble.then(|| operations(clause)),
                })
            })
            .collect();
        let aggregations: Vec<Value> = tables
            .aggregations
            .iter()
            .map(|it| json!({"name": it.name, "function": it.kind.name(), "keys": it.keys.len()}))
            .collect();
        let variables: Vec<Value> = tables
            .dynamics
            .iter()
            .map(|it| json!({"name": it.name, "thread": it.thread, "keys": it.keys.len(), "bytes": it.size}))
            .collect();
        let limits: serde_json::Map<String, Value> =
            LIMITS.iter().map(|name| ((*name).to_owned(), json!(options.number(name)))).collect();
        json!({
            "type": "program", "file": self.path.display().to_string(), "language": "d", "widths": self.widths,
            "observe_only": self.observe_only(), "clauses": clauses, "aggregations": aggregations,
            "variables": variables, "limits": limits,
        })
    }
}
