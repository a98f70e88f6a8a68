//! `trapline dis`: a function's instructions, how each would be displaced, and the sites of probe programs.
//!
//! The guest is not run: everything is as its files have it.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use trapline_interposer::{Point, Way};
use trapline_providers::{Disassembly, Line, disassemble, resolve};
use trapline_session::{CommandError, DEFAULT_MEMORY, Guest, counted, read_program};
use trapline_trace::{HexStyle, Paint, Role, hex};

use crate::cli::{CmdlineArgs, DisArgs, Format};
use crate::cmd::check_d::{self, Wrong};
use crate::cmd::dis_ppdf;
use crate::cmd::run::{bits, digits};
use crate::d_text::{Cpp, is_d};
use crate::devices::DeviceArgs;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use crate::{no_effect, options};

/// The bytes that a site's first one is replaced by, for instruction fetches: of a breakpoint, and the prefix of `lock nop`.
const INT3: u8 = 0xcc;
const LOCK: u8 = 0xf0;

/// An instruction and the probe points on it.
struct Row<'a> {
    line: &'a Line,
    /// File and line of each probe point.
    points: Vec<String>,
    /// What its first byte becomes, where it is armed.
    patch: Option<u8>,
}

impl Row<'_> {
    /// The bytes that an instruction fetch sees.
    fn patched(&self) -> Vec<u8> {
        let mut bytes = self.line.bytes.clone();
        if let (Some(patch), Some(first)) = (self.patch, bytes.first_mut()) {
            *first = patch;
        }
        bytes
    }

    /// The part of them that the CPU executes; the bytes after an `int3` are never reached.
    fn patched_text(&self) -> String {
        match (self.patch, self.line.bytes.len()) {
            (None, _) => self.line.text.clone(),
            (Some(LOCK), _) => format!("lock {}", self.line.text),
            (Some(_), 1) => "int3".to_owned(),
            (Some(_), _) => "int3 {junk}".to_owned(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Bad files or programs, a name that no function has, output that cannot be written.
pub fn run(args: &DisArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_dis(args)?;
    let path = Path::new(&args.guest.image);
    if is_d(path) && args.symbol.is_none() {
        return dis_d(args, path, out);
    }
    if let Some(file) = dis_ppdf::file(args)? {
        return dis_ppdf::run(args, &file, out);
    }
    let Some(symbol) = &args.symbol else {
        let message =
            format!("{} is not a PPDF file, so the name of a function must follow it", args.guest.image);
        return Err(Failure::Usage(message));
    };
    let (cmdline, devices) = (CmdlineArgs::default(), DeviceArgs::default());
    let guest = options::open(&options::guest(&args.guest, DEFAULT_MEMORY, &cmdline, &devices)?, talk)?;
    let source = options::source(&args.source)?;
    let listing = disassemble(guest.target(), symbol).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut points: Vec<(Vec<String>, Option<u8>)> = vec![(Vec::new(), None); listing.lines.len()];
    let mut elsewhere = 0;
    for path in &args.probe {
        let program = read_program(path, &source)?;
        talk.remarks(&program.warnings);
        let resolved = resolve(guest.target(), &program).map_err(Failure::Compile)?;
        for (probe, Point { place, .. }) in resolved.program.probes.iter().zip(&resolved.points) {
            let patched = listing.patch_at(place);
            match patched.and_then(|(n, patch)| Some((points.get_mut(n)?, patch))) {
                Some(((here, armed), patch)) => {
                    here.push(format!("{}:{}", probe.origin.0, probe.origin.1));
                    *armed = Some(patch);
                }
                None => elsewhere += 1,
            }
        }
    }
    let every = args.armed && args.probe.is_empty();
    let rows: Vec<Row<'_>> = (listing.lines.iter().zip(points))
        .map(|(line, (points, patch))| Row { line, points, patch: patch.or(every.then_some(INT3)) })
        .collect();
    let written = match args.form.format {
        Format::Text => text((args, talk.paint(true)), &guest, &listing, &rows, out),
        Format::Json => json_lines(args, &guest, &listing, &rows, out),
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)?;
    summary(&rows, elsewhere, talk);
    Ok(Exit::Ok)
}

/// Prints the code of a D program, compiled with C's types and those that it declares.
fn dis_d(args: &DisArgs, path: &Path, out: &mut dyn Write) -> Result<Exit, Failure> {
    let guest = &args.guest;
    let of_guest = guest.initrd.is_some() || guest.target.is_some() || !guest.module.is_empty();
    if of_guest || !guest.sym.is_empty() || args.armed || !args.probe.is_empty() {
        let message = format!(
            "{} is a D program, which has no functions, modules, files, symbols or sites; give -f only. \
             `trapline check --disassemble --guest IMAGE` compiles it for a guest",
            path.display()
        );
        return Err(Failure::Usage(message));
    }
    let checked = match check_d::check(path, &Cpp::default(), &[32, 64], None) {
        Ok(checked) => checked,
        Err(Wrong::File(failure)) => return Err(failure),
        Err(Wrong::Text(error)) => return Err(CommandError::from(error).into()),
    };
    let written = match args.form.format {
        Format::Text => checked.summary(true, out),
        Format::Json => {
            let header = json!({"type": "header", "version": 1});
            writeln!(out, "{header}\n{}\n{}", checked.object(true), json!({"type": "end", "exit": 0}))
        }
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)?;
    Ok(Exit::Ok)
}

fn summary(rows: &[Row<'_>], elsewhere: u64, talk: &Talk) {
    let of = |way: Way| rows.iter().filter(|row| row.line.way == way).count();
    talk.note(&format!(
        "{}: {} emulated, {} out of line, {} stepped",
        counted(rows.len() as u64, "instruction"),
        of(Way::Emulated),
        of(Way::OutOfLine),
        of(Way::Stepped)
    ));
    if elsewhere > 0 {
        talk.note(&format!("{} outside this function", counted(elsewhere, "probe point")));
    }
}

/// The way's word.
fn word(way: Way) -> &'static str {
    match way {
        Way::Emulated => "emulated",
        Way::OutOfLine => "out of line",
        Way::Stepped => "stepped",
    }
}

/// `do_fork+0x3`.
fn label(listing: &Disassembly, line: &Line) -> String {
    match line.address.wrapping_sub(listing.address) {
        0 => listing.name.clone(),
        offset => format!("{}+{offset:#x}", listing.name),
    }
}

fn widest(texts: impl Iterator<Item = usize>) -> usize {
    texts.max().unwrap_or_default()
}

/// An instruction with its mnemonic and numbers in colours, in a column of this width.
fn instruction(text: &str, width: usize, paint: Paint) -> String {
    let padded = format!("{text:width$}");
    if !paint.is_on() {
        return padded;
    }
    let (mnemonic, operands) = padded.split_at(padded.find(' ').unwrap_or(padded.len()));
    format!("{}{}", paint.text(Role::Mnemonic, mnemonic), paint.numbers(operands))
}

fn text(
    (args, paint): (&DisArgs, Paint),
    guest: &Guest,
    listing: &Disassembly,
    rows: &[Row<'_>],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let digits = digits(guest);
    let labels = widest(rows.iter().map(|row| label(listing, row.line).len()));
    let bytes = widest(rows.iter().map(|row| row.line.bytes.len() * 3)).max(8);
    let texts = widest(rows.iter().map(|row| row.line.text.len())).max(11);
    let patched = widest(rows.iter().map(|row| row.patched_text().len())).max(11);
    if args.armed {
        let head = format!(
            "{:digits$}  {:labels$}  {:bytes$} {:texts$}  {:bytes$} {:patched$}  displaced",
            "address", "", "original", "", "patched", "",
        );
        writeln!(out, "{}", paint.text(Role::Dim, head.trim_end()))?;
    }
    for row in rows {
        let line = row.line;
        let name = label(listing, line);
        let address = paint.text(Role::Dim, &format!("{:#0digits$x}", line.address));
        let own = format!("{:bytes$}", hex(&line.bytes, HexStyle::Spaced));
        let own = paint.text(Role::Dim, &own);
        write!(out, "{address}  {name:labels$}  {own} {}  ", instruction(&line.text, texts, paint))?;
        if args.armed {
            let seen = format!("{:bytes$}", hex(&row.patched(), HexStyle::Spaced));
            let role = if row.patch.is_some() { Role::Notice } else { Role::Dim };
            let seen = paint.text(role, &seen);
            write!(out, "{seen} {}  ", instruction(&row.patched_text(), patched, paint))?;
        }
        let role = if line.way == Way::Stepped { Role::Notice } else { Role::Second };
        write!(out, "{}  {}", paint.text(role, &format!("{:11}", word(line.way))), line.why)?;
        match row.points.is_empty() {
            true => writeln!(out)?,
            false => writeln!(out, "  {}", paint.text(Role::Name, &format!("<- {}", row.points.join(", "))))?,
        }
    }
    Ok(())
}

fn json_lines(
    args: &DisArgs,
    guest: &Guest,
    listing: &Disassembly,
    rows: &[Row<'_>],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let header = json!({
        "type": "header", "version": 1, "image": guest.name(), "width": bits(guest),
        "module": listing.module, "name": listing.name, "address": format!("{:#x}", listing.address),
    });
    writeln!(out, "{header}")?;
    for row in rows {
        let line = row.line;
        let mut object = json!({
            "type": "instruction", "address": format!("{:#x}", line.address),
            "offset": line.address.wrapping_sub(listing.address), "bytes": hex(&line.bytes, HexStyle::Pairs),
            "text": line.text, "target": line.target.map(|at| format!("{at:#x}")),
            "way": word(line.way), "why": line.why, "sites": row.points,
        });
        if let (true, Some(fields)) = (args.armed, object.as_object_mut()) {
            fields.insert("patched".to_owned(), json!(hex(&row.patched(), HexStyle::Pairs)));
            fields.insert("patched_text".to_owned(), json!(row.patched_text()));
        }
        writeln!(out, "{object}")?;
    }
    writeln!(out, "{}", json!({"type": "end", "instructions": rows.len(), "exit": 0}))
}
