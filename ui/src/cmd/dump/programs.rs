//! `dump` with programs: their clauses of BEGIN and END read the memory of a dump.

use std::io::Write;

use trapline_session::{Command, Look};
use trapline_trace::{End, HeaderItems, RunInfo};

use super::look;
use crate::cli::{DumpArgs, Format, RecordFormat};
use crate::cmd::insert::{insert_all, probing};
use crate::failure::{Exit, Failure};
use crate::options;
use crate::output::{Form, Outputs};
use crate::talk::Talk;

/// Runs the programs.
///
/// # Errors
/// The file is no dump, or a program cannot be read, does not compile, or has other probes.
pub fn run(args: &DumpArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let probes = args.probes();
    let source = options::source_of_run(&probes)?;
    let how = Look { probing: probing(&probes), ..look::look(args) };
    let (guest, mut session) = look::open(&args.image, &how, args.raw, talk)?;
    let format = match args.form.format {
        Format::Text => RecordFormat::Text,
        Format::Json => RecordFormat::Json,
    };
    session.require_signed(source.signed_by);
    let form = Form::new(format, HeaderItems::default(), false, None)?;
    let mut outputs = Outputs::only(form.sink(out), *talk);
    let image = args.image.display().to_string();
    outputs.begin(&RunInfo { image, width: guest.target().width().bits(), extra: Vec::new() })?;
    insert_all(&probes, &source, false, &mut session, &talk.without_notes())?;
    session.pass_records(&mut outputs)?;
    session.apply(Command::End)?;
    session.pass_records(&mut outputs)?;
    outputs.d_ends(&session, |_| true)?;
    let exit = session.d_status().map_or(Exit::Ok, Exit::of_d);
    let end = End {
        insns: 0,
        hits: session.stats().hits,
        lost: session.counts().lost(),
        counts: session.counts(),
        digest: None,
        exit: exit.code().into(),
        extra: Vec::new(),
        counters: Vec::new(),
    };
    outputs.sink.end(&end).map_err(Failure::Output)?;
    Ok(exit)
}
