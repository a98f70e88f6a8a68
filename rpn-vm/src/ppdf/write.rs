//! The writer: turns a program into the bytes of a PPDF file. The same program gives the same bytes.
//!
//! It refuses only what the format cannot represent. The verifier decides later whether the program may run.

use std::collections::BTreeMap;

use super::disassemble::Marks;
use super::error::UnwritableError;
use super::sections::{Seal, join, split};
use super::sign::{SigningKey, VerifyingKey};
use super::{
    BREAKPOINT, MAX_FILE, MAX_FILE_NAME, MAX_INSTRUCTIONS, MAX_LIST, MAX_NAME, MAX_PRINTED, MAX_PROBES,
    MAX_PROCS, SECTIONS, unprintable,
};
use crate::ast::{
    Atom, Expr, FileHeader, Instr, Location, ModType, Operand, ProbePoint, Program, Routine, Watch,
};
use crate::code::{Insn, encode};
use crate::instructions::OperandKind;
use crate::print::name_list;
use crate::source::Span;

/// Writes a program as a PPDF file, signed if there is a key.
///
/// # Errors
/// The first part of the program that the format cannot represent.
pub fn write(program: &Program, key: Option<&SigningKey>) -> Result<Vec<u8>, UnwritableError> {
    sealed(program, key.map_or(Seal::Unsigned, Seal::By))
}

/// Writes a program as the PPDF file that it was read from, with its signature, if it is still that program; any other one
/// without a signature.
///
/// # Errors
/// As [`write()`].
pub fn write_as_read(program: &Program) -> Result<Vec<u8>, UnwritableError> {
    match program.signed_file() {
        Some((bytes, _)) => Ok(bytes),
        None => write(program, None),
    }
}

fn sealed(program: &Program, seal: Seal<'_>) -> Result<Vec<u8>, UnwritableError> {
    let bytes = join(Writer::new(program).sections()?, seal);
    limit(String::new(), "the size of the file", bytes.len(), MAX_FILE)?;
    Ok(bytes)
}

impl Program {
    /// The key that has signed it: it was read from a PPDF file with a signature, and is still what was signed. The caller
    /// decides whether to trust the key.
    #[must_use]
    pub fn signer(&self) -> Option<VerifyingKey> {
        self.signed_file().map(|(_, signer)| signer)
    }

    fn signed_file(&self) -> Option<(Vec<u8>, VerifyingKey)> {
        let bytes = sealed(self, Seal::Kept(self.signed.as_ref()?)).ok()?;
        let signer = split(&bytes).ok()?.signer?;
        Some((bytes, signer))
    }
}

/// The sections of a program.
pub(super) fn sections(program: &Program) -> Result<[Vec<u8>; SECTIONS.len()], UnwritableError> {
    Writer::new(program).sections()
}

fn limit(place: String, what: &'static str, value: usize, limit: usize) -> Result<(), UnwritableError> {
    if value > limit { Err(UnwritableError::Limit { place, what, value, limit }) } else { Ok(()) }
}

/// A number as in the file. Larger numbers never get here, because they exceed a limit.
fn put(out: &mut Vec<u8>, n: usize) {
    put32(out, u32::try_from(n).unwrap_or(u32::MAX));
}

fn put32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

struct Writer<'a> {
    program: &'a Program,
    marks: Marks,
    procs: BTreeMap<String, usize>,
    code: Vec<Insn>,
    relocations: Vec<u8>,
    relocated: usize,
    files: BTreeMap<String, usize>,
    lines: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(program: &'a Program) -> Self {
        let procs = program.procs.iter().enumerate().map(|(n, p)| (p.name.to_ascii_lowercase(), n)).collect();
        Self {
            program,
            marks: Marks::of(&program.sources),
            procs,
            code: Vec::new(),
            relocations: Vec::new(),
            relocated: 0,
            files: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    fn sections(mut self) -> Result<[Vec<u8>; SECTIONS.len()], UnwritableError> {
        let program = self.program;
        let mut head = Vec::new();
        self.head(&mut head, &program.header)?;
        limit(String::new(), "the number of probe points", program.probes.len(), MAX_PROBES)?;
        limit(String::new(), "the number of procedures", program.procs.len(), MAX_PROCS)?;
        let (mut probes, mut procs) = (Vec::new(), Vec::new());
        put(&mut probes, program.probes.len());
        for point in &program.probes {
            self.probe(&mut probes, point)?;
            self.routine(&point.handler, point.span)?;
        }
        put(&mut procs, program.procs.len());
        for routine in &program.procs {
            self.name(&mut procs, &routine.name, routine.span)?;
            put(&mut procs, routine.body.len());
            self.routine(routine, routine.span)?;
        }
        limit(String::new(), "the number of instructions", self.code.len(), MAX_INSTRUCTIONS)?;
        limit(String::new(), "the number of source files", self.files.len(), MAX_LIST)?;
        let mut relocations = Vec::new();
        put(&mut relocations, self.relocated);
        relocations.append(&mut self.relocations);
        let mut lines = Vec::new();
        put(&mut lines, self.files.len());
        let mut files: Vec<(usize, String)> = self.files.into_iter().map(|(name, n)| (n, name)).collect();
        files.sort_unstable();
        for (_, file) in &files {
            put_text(&mut lines, file);
        }
        lines.append(&mut self.lines);
        Ok([head, probes, procs, encode(&self.code), relocations, lines])
    }

    /// A place in the source, as the start of a message.
    fn place(&self, span: Span) -> String {
        match span.line {
            0 => String::new(),
            line => format!("{}:{line}: ", self.program.sources.name(span.file)),
        }
    }

    fn name(&self, out: &mut Vec<u8>, name: &str, span: Span) -> Result<(), UnwritableError> {
        limit(self.place(span), "the length of a name", name.len(), MAX_NAME)?;
        match unprintable(name) {
            Some(why) => Err(UnwritableError::Name { place: self.place(span), name: name.to_owned(), why }),
            None => {
                put_text(out, name);
                Ok(())
            }
        }
    }

    fn head(&self, out: &mut Vec<u8>, h: &FileHeader) -> Result<(), UnwritableError> {
        out.push(match h.modtype {
            ModType::Kernel => 0,
            ModType::Kmod => 1,
            ModType::User => 2,
        });
        out.push(u8::from(h.logonfault) | u8::from(h.autostacktrace) << 1);
        out.extend_from_slice(&[0, 0]);
        for n in [h.vars, h.gvars, h.major, h.id, h.logmax, h.jmpmax, h.excpt_mask, h.excpt_log] {
            put32(out, n);
        }
        let nowhere = Span::default();
        self.name(out, &h.name, nowhere)?;
        for names in [&h.groups, &h.types] {
            limit(String::new(), "the number of groups or types", names.len(), MAX_LIST)?;
            limit(String::new(), "the length of the groups or types", name_list(names).len(), MAX_PRINTED)?;
            put(out, names.len());
            for name in names {
                self.name(out, name, nowhere)?;
            }
        }
        Ok(())
    }

    fn expr(&self, out: &mut Vec<u8>, expr: &Expr, span: Span) -> Result<(), UnwritableError> {
        limit(self.place(span), "the number of terms of an expression", expr.terms.len(), MAX_LIST)?;
        put(out, expr.terms.len());
        for term in &expr.terms {
            match &term.atom {
                Atom::Number(n) => {
                    out.push(u8::from(term.negative));
                    out.extend_from_slice(&n.to_le_bytes());
                }
                Atom::Symbol(name) => {
                    out.push(2 + u8::from(term.negative));
                    self.name(out, name, span)?;
                }
            }
        }
        Ok(())
    }

    fn probe(&self, out: &mut Vec<u8>, p: &ProbePoint) -> Result<(), UnwritableError> {
        limit(self.place(p.span), "the length of a location", p.location.to_source().len(), MAX_PRINTED)?;
        out.push(match &p.location {
            Location::Offset(_) => 0,
            Location::Address(_, None) => 1,
            Location::Address(_, Some(_)) => 2,
        });
        let watch = |w| Watch::ALL.iter().position(|known| *known == w).map_or(BREAKPOINT, |n| n as u8 + 1);
        out.push(p.watch.map_or(BREAKPOINT, watch));
        let flags = [
            p.watch.is_none() || p.opcode != 0,
            p.logonfault.is_some(),
            p.logonfault == Some(true),
            p.excpt_mask.is_some(),
            p.group.is_some(),
            p.kind.is_some(),
        ];
        out.push(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
        out.push(p.opcode);
        for n in [p.minor, p.ignore, p.maxhits, p.excpt_mask.unwrap_or_default()] {
            put32(out, n);
        }
        put(out, p.handler.body.len());
        self.expr(out, p.location.expr(), p.span)?;
        if let Location::Address(_, Some(high)) = &p.location {
            self.expr(out, high, p.span)?;
        }
        for name in [&p.group, &p.kind].into_iter().flatten() {
            self.name(out, name, p.span)?;
        }
        Ok(())
    }

    /// The number of a file in the line table.
    fn file(&mut self, name: &str, span: Span) -> Result<usize, UnwritableError> {
        // Characters that a mark cannot contain are replaced there and here; a backslash at the end would continue
        // the line.
        let last = name.len().saturating_sub(1);
        let bad = |at: usize, c: char| c.is_control() || (c == '\\' && at == last);
        let name: String =
            name.char_indices().map(|(at, c)| if bad(at, c) { '\u{fffd}' } else { c }).collect();
        limit(self.place(span), "the length of the source file's name", name.len(), MAX_FILE_NAME)?;
        let next = self.files.len();
        Ok(*self.files.entry(name).or_insert(next))
    }

    fn line(&mut self, span: Span) -> Result<(), UnwritableError> {
        let sources = &self.program.sources;
        let (name, line) = self.marks.position(sources, span);
        let name = name.to_owned();
        let file = self.file(&name, span)?;
        put(&mut self.lines, file);
        put32(&mut self.lines, line);
        Ok(())
    }

    fn routine(&mut self, routine: &Routine, span: Span) -> Result<(), UnwritableError> {
        self.line(span)?;
        let mut labels: BTreeMap<String, usize> = BTreeMap::new();
        for (n, instr) in routine.body.iter().enumerate() {
            for label in &instr.labels {
                labels.insert(label.to_ascii_lowercase(), n);
            }
        }
        for instr in &routine.body {
            self.line(instr.span)?;
            let arg = self.operand(instr, &labels)?;
            self.code.push(Insn { op: instr.op, arg });
        }
        Ok(())
    }

    /// The operand as encoded: for a label the number of its instruction, for a procedure its number.
    fn operand(&mut self, instr: &Instr, labels: &BTreeMap<String, usize>) -> Result<u64, UnwritableError> {
        Ok(match &instr.operand {
            Operand::None => 0,
            Operand::Register(index) => u64::from(*index),
            Operand::Number(n) => *n as u64,
            Operand::Name(name) => {
                let low = name.to_ascii_lowercase();
                let known = if instr.op.row().operand == OperandKind::Proc { &self.procs } else { labels };
                let target = known.get(&low).ok_or_else(|| UnwritableError::Undefined {
                    place: self.place(instr.span),
                    name: name.clone(),
                })?;
                *target as u64
            }
            Operand::Value(expr) => match expr.terms.as_slice() {
                [one] if !one.negative && matches!(one.atom, Atom::Number(_)) => match one.atom {
                    Atom::Number(n) => n,
                    Atom::Symbol(_) => 0,
                },
                _ => {
                    let printed = instr.to_source().len();
                    limit(self.place(instr.span), "the length of an instruction", printed, MAX_PRINTED)?;
                    let mut entry = Vec::new();
                    put(&mut entry, self.code.len());
                    self.expr(&mut entry, expr, instr.span)?;
                    self.relocations.append(&mut entry);
                    self.relocated += 1;
                    0
                }
            },
        })
    }
}
