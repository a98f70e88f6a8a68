//! `trapline dis FILE.ppdf`: a compiled probe program as source that builds to the same file, or as JSON.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use serde_json::{Value, json};
use trapline_rpn::ppdf::{self, Ppdf, disassemble};
use trapline_rpn::{
    Atom, Expr, FileHeader, Instr, Location, Operand, ProbePoint, Program, Routine, Span, Watch,
};

use trapline_session::{FileError, compiled, read_file};

use crate::cli::{DisArgs, Format};
use crate::failure::{Exit, Failure};
use crate::options;

/// The PPDF file that is given as the image, if it is one.
///
/// # Errors
/// It is damaged, or an option has no effect on it.
pub fn file(args: &DisArgs) -> Result<Option<Ppdf>, Failure> {
    let path = Path::new(&args.guest.image);
    let Some(bytes) = bytes(path, args.symbol.is_none())? else { return Ok(None) };
    let guest = &args.guest;
    let more = args.symbol.is_some() || args.armed || !args.probe.is_empty();
    let of_guest = guest.initrd.is_some() || !guest.file.is_empty() || guest.target.is_some();
    if more || of_guest || !guest.module.is_empty() || !guest.sym.is_empty() {
        let message = format!(
            "{} is a PPDF file, which has no functions, modules, files, symbols or sites; give -f and --require-signed only",
            path.display()
        );
        return Err(Failure::Usage(message));
    }
    Ok(compiled(path, &bytes, &options::source(&args.source)?)?)
}

/// The content of a PPDF file; none of any other. Standard input is one unless a function is named, which is then that
/// of an image.
fn bytes(path: &Path, alone: bool) -> Result<Option<Vec<u8>>, FileError> {
    if path == Path::new("-") {
        let bytes = if alone { Some(read_file(path)?) } else { None };
        return Ok(bytes.filter(|bytes| ppdf::is_ppdf(bytes)));
    }
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(ppdf::MAGIC.len() as u64).read_to_end(&mut first));
    // A file that cannot be read may be a name such as embedded:ia32.
    if read.is_err() || !ppdf::is_ppdf(&first) { Ok(None) } else { read_file(path).map(Some) }
}

/// Prints it.
///
/// # Errors
/// Output that cannot be written.
pub fn run(args: &DisArgs, file: &Ppdf, out: &mut dyn Write) -> Result<Exit, Failure> {
    let written = match args.form.format {
        Format::Text => {
            let remark = file.signer.map(|signer| format!("Signed by {signer}; the signature is good."));
            out.write_all(disassemble(&file.program, remark.as_deref()).as_bytes())
        }
        Format::Json => json_lines(args, file, out),
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)?;
    Ok(Exit::Ok)
}

fn json_lines(args: &DisArgs, file: &Ppdf, out: &mut dyn Write) -> std::io::Result<()> {
    let program = &file.program;
    let (major, minor) = file.version;
    let mut head = json!({
        "type": "header", "version": 1, "file": args.guest.image, "ppdf": format!("{major}.{minor}"),
        "signer": file.signer.map(|key| key.to_string()),
    });
    extend(&mut head, header(&program.header));
    writeln!(out, "{head}")?;
    let mut instructions = 0;
    for point in &program.probes {
        writeln!(out, "{}", located(probe(point), program, point.span))?;
        instructions += body(&point.handler, program, out)?;
    }
    for routine in &program.procs {
        let object = json!({"type": "procedure", "name": routine.name});
        writeln!(out, "{}", located(object, program, routine.span))?;
        instructions += body(routine, program, out)?;
    }
    writeln!(out, "{}", json!({"type": "end", "instructions": instructions, "exit": 0}))
}

fn extend(object: &mut Value, more: Value) {
    if let (Some(fields), Value::Object(more)) = (object.as_object_mut(), more) {
        fields.extend(more);
    }
}

fn header(h: &FileHeader) -> Value {
    json!({
        "name": h.name, "modtype": h.modtype.word(), "vars": h.vars, "gvars": h.gvars, "major": h.major, "id": h.id,
        "logmax": h.logmax, "jmpmax": h.jmpmax, "excpt_mask": h.excpt_mask, "excpt_log": h.excpt_log,
        "logonfault": h.logonfault, "autostacktrace": h.autostacktrace, "groupdef": h.groups, "typedef": h.types,
    })
}

fn probe(p: &ProbePoint) -> Value {
    let (form, low, high) = match &p.location {
        Location::Offset(low) => ("offset", low, None),
        Location::Address(low, high) => ("address", low, high.as_ref()),
    };
    json!({
        "type": "probe", "form": form, "location": expression(low), "end": high.map(expression),
        "watchpoint": p.watch.map(Watch::word),
        "opcode": p.opcode, "minor": p.minor, "ignore": p.ignore, "maxhits": p.maxhits, "group": p.group,
        "kind": p.kind, "logonfault": p.logonfault, "excpt_mask": p.excpt_mask,
    })
}

/// The terms of an expression, numbers and names, each with its sign.
fn expression(expr: &Expr) -> Value {
    let terms = expr.terms.iter().map(|term| {
        let atom = match &term.atom {
            Atom::Number(n) => json!(n),
            Atom::Symbol(name) => json!(name),
        };
        json!([if term.negative { "-" } else { "+" }, atom])
    });
    terms.collect()
}

fn located(mut object: Value, program: &Program, span: Span) -> Value {
    extend(&mut object, json!({"source": program.sources.name(span.file), "line": span.line}));
    object
}

fn body(routine: &Routine, program: &Program, out: &mut dyn Write) -> std::io::Result<usize> {
    for instr in &routine.body {
        let object = json!({
            "type": "instruction", "opcode": instr.op.code(), "form": instr.op.row().form,
            "operand": operand(instr), "labels": instr.labels, "text": instr.to_source(),
        });
        writeln!(out, "{}", located(object, program, instr.span))?;
    }
    Ok(routine.body.len())
}

fn operand(instr: &Instr) -> Value {
    match &instr.operand {
        Operand::None => Value::Null,
        Operand::Name(name) => json!(name),
        Operand::Value(expr) => expression(expr),
        Operand::Register(index) => json!(index),
        Operand::Number(n) => json!(n),
    }
}
