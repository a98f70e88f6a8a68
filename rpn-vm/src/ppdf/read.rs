//! The reader: turns the bytes of a PPDF file, which are not trusted, into a program like one from source.
//!
//! It checks everything that the parser checks, so that the linker and the verifier see no program that the parser
//! could not have made. This file reads headers; `bodies` reads the code
//! and `lines` the source locations.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bodies::{Code, expressions};

use super::cursor::{Cursor, wrong};
use super::error::PpdfError;
use super::lines::Lines;
use super::sections::{Frame, Section, split};
use super::sign::VerifyingKey;
use super::write::sections;
use super::{BREAKPOINT, HEADER, MAX_INSTRUCTIONS, MAX_PROBES, MAX_PROCS, SECTION_HEAD};
use crate::ast::{FileHeader, Location, ModType, ProbePoint, Program, Routine, Watch};
use crate::diag::Diagnostics;
use crate::source::Span;

/// A PPDF file.
#[derive(Debug, Clone)]
pub struct Ppdf {
    /// Its program.
    pub program: Program,
    /// Its version.
    pub version: (u16, u16),
    /// The key that it is signed with, if any. The signature matches the content; the caller decides whether to trust
    /// the key.
    pub signer: Option<VerifyingKey>,
}

impl Ppdf {
    /// Reads a file.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn read(bytes: &[u8]) -> Result<Self, PpdfError> {
        let frame = split(bytes)?;
        let mut program = program(&frame)?;
        program.signed.clone_from(&frame.signed);
        one_form(bytes, &frame, &program)?;
        Ok(Self { program, version: frame.version, signer: frame.signer })
    }
}

/// Checks that writing the program gives the bytes of the file.
fn one_form(bytes: &[u8], frame: &Frame<'_>, program: &Program) -> Result<(), PpdfError> {
    let again = sections(program).map_err(|error| {
        let right = "it must be within the format's limits".to_owned();
        wrong(HEADER, "the program", error, right)
    })?;
    for (section, wanted) in frame.sections.iter().zip(&again) {
        // If the lengths differ, the first difference may be in the length field.
        let length = u32::try_from(wanted.len()).unwrap_or(u32::MAX).to_le_bytes();
        let from = section.offset - SECTION_HEAD + 4;
        let found = bytes.get(from..section.offset + section.bytes.len()).unwrap_or_default();
        let wanted = length.iter().chain(wanted);
        if let Some((n, (found, wanted))) = found.iter().zip(wanted).enumerate().find(|(_, (a, b))| a != b) {
            return Err(PpdfError::Form { offset: from + n, found: *found, wanted: *wanted });
        }
    }
    Ok(())
}

fn program(frame: &Frame<'_>) -> Result<Program, PpdfError> {
    let [head, probes, procs, code, relocations, lines] = frame.sections;
    let header = header(head)?;
    let (mut probes, counts) = probe_points(probes, &header)?;
    let (mut procs, more) = procedures(procs)?;
    let counts = [counts, more].concat();
    fits(&counts, probes.len() + procs.len(), lines)?;
    let expressions = expressions(relocations)?;
    let bodies = Code { code, header: &header, counts: &counts, probes: probes.len(), procs: &procs }
        .read(expressions)?;
    let handlers = probes.iter_mut().map(|point| &mut point.handler);
    for (routine, body) in handlers.chain(&mut procs).zip(bodies) {
        routine.body = body;
    }
    let mut lines = Lines::new(lines)?;
    for point in &mut probes {
        lines.probe(point)?;
    }
    for routine in &mut procs {
        lines.procedure(routine)?;
    }
    let sources = Arc::new(lines.finish()?);
    Ok(Program { header, probes, procs, warnings: Diagnostics::default(), sources, signed: None })
}

/// Checks the number of instructions before memory is allocated for them: each needs an entry in section LINE.
fn fits(counts: &[usize], routines: usize, lines: Section<'_>) -> Result<(), PpdfError> {
    let total: usize = counts.iter().sum();
    let room = (lines.bytes.len() / 8).saturating_sub(routines).min(MAX_INSTRUCTIONS);
    if total > room {
        let right = format!("section `LINE` has room for at most {room}");
        return Err(wrong(lines.offset, "the number of all instructions", total, right));
    }
    Ok(())
}

fn header(section: Section<'_>) -> Result<FileHeader, PpdfError> {
    let mut at = Cursor::new(section);
    let offset = at.offset();
    let modtype = match at.u8("`modtype`")? {
        0 => ModType::Kernel,
        1 => ModType::Kmod,
        2 => ModType::User,
        other => return Err(wrong(offset, "`modtype`", other, "it must be 0, 1 or 2".to_owned())),
    };
    let offset = at.offset();
    let flags = at.u8("the flag byte of the file header")?;
    if flags > 3 {
        let right = "it must be 0 to 3".to_owned();
        return Err(wrong(offset, "the flag byte of the file header", flags, right));
    }
    let offset = at.offset();
    let zero = at.u16("the file header")?;
    if zero != 0 {
        return Err(wrong(offset, "the reserved field", zero, "it must be 0".to_owned()));
    }
    let mut header = FileHeader {
        modtype,
        logonfault: flags & 1 != 0,
        autostacktrace: flags & 2 != 0,
        vars: at.at_most("`vars`", 65_536)?,
        gvars: at.at_most("`gvars`", 65_536)?,
        major: at.u32("`major`")?,
        id: at.u32("`id`")?,
        logmax: at.at_most("`logmax`", 65_535)?,
        jmpmax: at.u32("`jmpmax`")?,
        excpt_mask: at.u32("`excpt_mask`")?,
        excpt_log: at.at_most("`excpt_log`", 65_535)?,
        ..FileHeader::default()
    };
    let offset = at.offset();
    header.name = at.name("`name`")?;
    if header.name.is_empty() {
        return Err(wrong(offset, "`name`", "empty", "it must be the name of a module".to_owned()));
    }
    header.groups = at.names("`groupdef`")?;
    header.types = at.names("`typedef`")?;
    at.finish()?;
    Ok(header)
}

/// The probe points with empty handlers, and the number of instructions of each.
fn probe_points(
    section: Section<'_>,
    header: &FileHeader,
) -> Result<(Vec<ProbePoint>, Vec<usize>), PpdfError> {
    let mut at = Cursor::new(section);
    let offset = at.offset();
    let count = at.count("the number of probe points", MAX_PROBES, 33)?;
    if count == 0 {
        return Err(wrong(offset, "the number of probe points", 0, "it must be at least 1".to_owned()));
    }
    let mut points = Vec::with_capacity(count);
    let mut counts = Vec::with_capacity(count);
    for _ in 0..count {
        let (point, instructions) = probe_point(&mut at, header)?;
        points.push(point);
        counts.push(instructions);
    }
    at.finish()?;
    Ok((points, counts))
}

/// The first bytes of a probe point.
struct Leading {
    /// 0 `offset =`, 1 `address =`, 2 a range.
    form: u8,
    watch: Option<Watch>,
    flags: u8,
    opcode: u8,
}

fn leading(at: &mut Cursor<'_>, header: &FileHeader) -> Result<Leading, PpdfError> {
    let start = at.offset();
    let [form, kind, flags, opcode] = at.bytes("a probe point")?;
    let bad = |n: usize, what: &str, value: u8, right: &str| {
        let what = format!("the {what} of a probe point");
        Err(wrong(start + n, &what, value, right.to_owned()))
    };
    match form {
        0 => {}
        1 | 2 if header.modtype.is_kernel() => {}
        1 | 2 => {
            return bad(0, "form", form, "it must be 0, because `address =` is for kernel-mode programs");
        }
        _ => return bad(0, "form", form, "it must be 0, 1 or 2"),
    }
    let watch = match kind {
        BREAKPOINT => None,
        1..=4 if form != 0 => Watch::ALL.get(usize::from(kind) - 1).copied(),
        1..=4 => return bad(1, "kind", kind, "it must be 0, because a watchpoint has an `address =`"),
        _ => return bad(1, "kind", kind, "it must be 0 to 4"),
    };
    if flags & 1 == 0 && watch.is_none() || flags > 0x3f || flags & 6 == 4 {
        let right =
            "bit 0 must be set except for a watchpoint, bit 2 needs bit 1, and bits 6 and 7 must be 0";
        return bad(2, "flag byte", flags, right);
    }
    if flags & 1 == 0 && opcode != 0 {
        return bad(3, "opcode", opcode, "it must be 0 if bit 0 of the flags is 0");
    }
    Ok(Leading { form, watch, flags, opcode })
}

fn probe_point(at: &mut Cursor<'_>, header: &FileHeader) -> Result<(ProbePoint, usize), PpdfError> {
    let Leading { form, watch, flags, opcode } = leading(at, header)?;
    let minor = at.u32("`minor`")?;
    let ignore = at.u32("`ignore`")?;
    let maxhits_at = at.offset();
    let maxhits = at.u32("`maxhits`")?;
    if maxhits == 0 {
        return Err(wrong(maxhits_at, "`maxhits`", maxhits, "it must be 1 or more".to_owned()));
    }
    let mask = at.u32("`excpt_mask`")?;
    let instructions = at.at_most("the number of instructions", MAX_INSTRUCTIONS as u32)? as usize;
    let low = at.expr("a location")?;
    let location = match form {
        0 => Location::Offset(low),
        1 => Location::Address(low, None),
        _ => Location::Address(low, Some(at.expr("the end of an address range")?)),
    };
    let group = defined(at, flags & 0x10 != 0, "`group`", "`groupdef`", &header.groups)?;
    let kind = defined(at, flags & 0x20 != 0, "`type`", "`typedef`", &header.types)?;
    let point = ProbePoint {
        location,
        watch,
        opcode,
        minor,
        ignore,
        maxhits,
        group,
        kind,
        logonfault: (flags & 2 != 0).then_some(flags & 4 != 0),
        excpt_mask: (flags & 8 != 0).then_some(mask),
        handler: Routine::default(),
        span: Span::default(),
    };
    Ok((point, instructions))
}

/// The name of a group or type, if present.
fn defined(
    at: &mut Cursor<'_>,
    given: bool,
    what: &str,
    by: &str,
    names: &[String],
) -> Result<Option<String>, PpdfError> {
    if !given {
        return Ok(None);
    }
    let offset = at.offset();
    let name = at.name(what)?;
    if !names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
        return Err(wrong(offset, what, format!("{name:?}"), format!("it must be a name of {by}")));
    }
    Ok(Some(name))
}

/// The procedures with empty bodies, and the number of instructions of each.
fn procedures(section: Section<'_>) -> Result<(Vec<Routine>, Vec<usize>), PpdfError> {
    let mut at = Cursor::new(section);
    let count = at.count("the number of procedures", MAX_PROCS, 8)?;
    let mut routines = Vec::with_capacity(count);
    let mut counts = Vec::with_capacity(count);
    let mut seen = BTreeSet::new();
    for _ in 0..count {
        let offset = at.offset();
        let name = at.name("the name of a procedure")?;
        let bad = |right: &str| {
            Err(wrong(offset, "the name of a procedure", format!("{name:?}"), right.to_owned()))
        };
        if !crate::parse::is_name(&name) {
            return bad("it must consist of letters, digits and underscores");
        }
        if !seen.insert(name.to_ascii_lowercase()) {
            return bad("each name must be unique");
        }
        counts.push(at.at_most("the number of instructions", MAX_INSTRUCTIONS as u32)? as usize);
        routines.push(Routine { name, ..Routine::default() });
    }
    at.finish()?;
    Ok((routines, counts))
}
