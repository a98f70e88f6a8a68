//! `trapline list`: functions, and the probes of providers; of the files, or of a guest that was run first.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use trapline_emu::symbols::UserModule;
use trapline_providers::{
    Description, Function, FunctionGlob, MatchError, Refused, refused, refused_of, user_functions,
    user_probes,
};
use trapline_session::{
    Condition, DEFAULT_MEMORY, Ending, Guest, How, Limits, ListError, Listing, Look, Probing, Script,
    Session, Wanted, counted, user_module,
};
use trapline_trace::{HeaderItems, Paint, Role, TextSink};

use crate::cli::{FirstArgs, Format, ListArgs};
use crate::cmd::dump::look;
use crate::cmd::dump_file::is_dump_file;
use crate::cmd::rows::json_lines;
use crate::cmd::run::{bits, digits};
use crate::failure::{Exit, Failure};
use crate::output::Outputs;
use crate::progress::of_runs;
use crate::talk::Talk;
use crate::{ctrl_c, no_effect, options};

/// Runs the command.
///
/// # Errors
/// Bad files, pattern or options, nothing that matches, output that cannot be written.
pub fn run(args: &ListArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let wanted = wanted(args);
    let of_dump = args.guest.image != "-" && is_dump_file(Path::new(&args.guest.image));
    no_effect::of_list(args, of_dump)?;
    if of_dump {
        return list_dump(args, &wanted, out, talk);
    }
    // Standard input can be read only once, so it is taken for a kernel.
    let program = Some(&args.guest.image).filter(|image| *image != "-").and_then(|image| user_module(image));
    if let Some(module) = program.map(Arc::new) {
        return list_program(args, &module, &wanted, out, talk);
    }
    let (first, memory) = (&args.first, args.first.mem.unwrap_or(DEFAULT_MEMORY));
    let guest = options::guest(&args.guest, memory, &first.cmdline, &first.devices)?;
    let guest = options::open(&guest, talk)?;
    let ran = first.runs().then(|| run_first(first, &guest, talk)).transpose()?;
    let refused = refusals(args, &guest, &wanted)?;
    let target = guest.target();
    let found = match &ran {
        Some((session, _)) => session.present(|present| Listing::find(target, Some(present), &wanted)),
        None => Listing::find(target, None, &wanted),
    };
    let found = found.map_err(Failure::from);
    let mut found = found.or_else(|error| none(args, error, &refused, out))?;
    if args.verbose || args.form.format == Format::Json {
        found.show_parameters(target);
    }
    let found = found.or_nothing(target, &wanted, guest.name())?;
    if let Some((session, _)) = &ran {
        look::warn_if_damaged(session, &wanted, talk);
    }
    let exit = ran.as_ref().map_or(Exit::Ok, |(_, exit)| *exit);
    write(args, (digits(&guest), bits(&guest)), (&found, &refused), &wanted, exit, out, talk)
}

/// For a verbose listing of probes: the refused entries.
fn refusals(args: &ListArgs, guest: &Guest, wanted: &Wanted) -> Result<Vec<Refused>, Failure> {
    let Some(description) = wanted.description().filter(|_| args.verbose) else { return Ok(Vec::new()) };
    Ok(refused(guest.target(), &Description::parse(description).map_err(MatchError::from)?))
}

fn refusal_lines(refused: &[Refused], out: &mut dyn Write) -> io::Result<()> {
    refused.iter().try_for_each(|Refused { module, reason }| writeln!(out, "refused in {module}: {reason}"))
}

/// Reports that there is no such probe; a refused entry may be the reason.
fn none(
    args: &ListArgs,
    error: Failure,
    refused: &[Refused],
    out: &mut dyn Write,
) -> Result<Listing, Failure> {
    if args.form.format == Format::Text {
        refusal_lines(refused, out).and_then(|()| out.flush()).map_err(Failure::Output)?;
    }
    Err(error)
}

fn wanted(args: &ListArgs) -> Wanted {
    match (args.modules, args.processes, &args.glob) {
        (true, ..) => Wanted::Modules,
        (_, true, _) => Wanted::Processes,
        (.., Some(text)) => Wanted::Named(text.clone()),
        _ => Wanted::Functions,
    }
}

/// Lists what a dump has: its kernel's functions and probes, its modules and processes.
fn list_dump(args: &ListArgs, wanted: &Wanted, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let path = Path::new(&args.guest.image);
    let symbols = args.guest.sym.first().map(|file| file.display().to_string());
    let has_symbols = symbols.is_some();
    let (guest, session) = look::open(path, &Look { symbols, ..Look::default() }, false, talk)?;
    let refused = refusals(args, &guest, wanted)?;
    let target = guest.target();
    let found = look::find(path, &guest, &session, wanted, has_symbols);
    let mut found = found.or_else(|error| none(args, error, &refused, out))?;
    if args.verbose || args.form.format == Format::Json {
        found.show_parameters(target);
    }
    let found = found.or_nothing(target, wanted, guest.name())?;
    look::warn_if_damaged(&session, wanted, talk);
    write(args, (digits(&guest), bits(&guest)), (&found, &refused), wanted, Exit::Ok, out, talk)
}

/// Lists a user program or library that was given as the image: its functions, or probes of it.
fn list_program(
    args: &ListArgs,
    module: &Arc<UserModule>,
    wanted: &Wanted,
    out: &mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    if args.first.runs() {
        let image = &args.guest.image;
        return Err(Failure::Usage(format!("{image} is a program, not a kernel that can be run")));
    }
    let bits = module.width().bits() as u8;
    let how = (2 + usize::from(bits) / 4, bits);
    let Some(description) = wanted.description() else {
        let glob = match wanted {
            Wanted::Named(text) => Some(FunctionGlob::new(text).map_err(Failure::Glob)?),
            _ => None,
        };
        let found = user_functions(module, glob.as_ref());
        if module.symbols().is_empty() {
            talk.note(&format!(
                "{} has no symbols (it is stripped): probes can name addresses of it",
                args.guest.image
            ));
        }
        if let (true, Wanted::Named(pattern)) = (found.is_empty(), wanted) {
            let symbols = std::iter::once(module.symbols());
            return Err(ListError::no_function(&args.guest.image, pattern, symbols).into());
        }
        return write(args, how, (&Listing::Functions(found), &[]), wanted, Exit::Ok, out, talk);
    };
    let parsed = Description::parse(description).map_err(MatchError::from)?;
    let refused = if args.verbose { refused_of(module, &parsed) } else { Vec::new() };
    let found = user_probes(module, &parsed).map(|found| Listing::probes(found, None));
    let found = found.map_err(Failure::from).or_else(|error| none(args, error, &refused, out))?;
    write(args, how, (&found, &refused), wanted, Exit::Ok, out, talk)
}

/// Runs the guest to the position of the listing; returns the exit code if this position was not reached.
fn run_first(args: &FirstArgs, guest: &Guest, talk: &Talk) -> Result<(Session, Exit), Failure> {
    let mut session = guest.start(Probing::default())?;
    let condition = args.until.iter().fold(Condition::end(), |condition, text| condition.or_console(text));
    let limit = args.at.or(args.limit_insns).unwrap_or(u64::MAX);
    let _progress = talk.progress(of_runs(args.at.or(args.limit_insns)));
    let limits = Limits::insns(limit).cancelled_by(ctrl_c::listen());
    let sink = Box::new(TextSink::new(io::sink(), HeaderItems::default()));
    let mut outputs = Outputs::only(sink, *talk);
    let ending = session.run(&mut Script::default(), &condition, &limits, &mut outputs)?;
    let icount = counted(session.icount(), "instruction");
    let exit = match ending {
        Ending::Limit if args.at.is_some() => {
            talk.note(&format!("the guest ran for {icount}"));
            Exit::Ok
        }
        ending => {
            talk.note(&format!("{ending} after {icount}"));
            Exit::from(&ending)
        }
    };
    Ok((session, exit))
}

fn write(
    args: &ListArgs,
    (digits, bits): (usize, u8),
    (found, refused): (&Listing, &[Refused]),
    wanted: &Wanted,
    exit: Exit,
    out: &mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    let how = How { verbose: args.verbose, opcode: args.opcode, bytes: args.bytes, digits };
    let written = match args.form.format {
        Format::Text => {
            let lines = painted(found, found.text(how), talk.paint(true));
            lines
                .iter()
                .try_for_each(|line| writeln!(out, "{line}"))
                .and_then(|()| refusal_lines(refused, out))
        }
        Format::Json => json_lines((&args.guest.image, bits), (found, refused), exit, out),
    };
    written.and_then(|()| out.flush()).map_err(Failure::Output)?;
    talk.note(&found.sentence(wanted));
    Ok(exit)
}

/// The lines of a listing in colours.
fn painted(found: &Listing, lines: Vec<String>, paint: Paint) -> Vec<String> {
    if !paint.is_on() {
        return lines;
    }
    let functions: &[Function] = if let Listing::Functions(all) = found { all } else { &[] };
    let painted = lines.iter().enumerate().map(|(n, line)| {
        let function = functions.get(n);
        if function.is_none() && n == 0 {
            return paint.text(Role::Dim, line);
        }
        match function.and_then(|function| Some((line.strip_suffix(&*function.name)?, &function.name))) {
            Some((head, name)) => format!("{}{}", paint.numbers(head), paint.text(Role::Name, name)),
            None => paint.numbers(line),
        }
    });
    painted.collect()
}
