//! `trapline demo --manual`: the man page's examples on an embedded guest. Needs no file; prints the same bytes every time.

use std::io::Write;

use trapline_rpn::{Loader, ParseOptions, Program, Width, parse_with};
use trapline_session::{
    Command, Condition, Ending, GuestBuilder, Limits, Probing, Reply, Script, Session, counted,
};
use trapline_trace::{ChannelConfig, End, HeaderItems, RunInfo, TextSink};

use crate::cli::DemoArgs;
use crate::cmd::run::bits;
use crate::failure::{Exit, Failure};
use crate::output::{Outputs, SYMBOL_WIDTH};
use crate::talk::Talk;
use crate::{ctrl_c, options};

/// Its memory in bytes.
const MEMORY: u64 = 32 << 20;

/// File name, text and subject of each example.
const EXAMPLES: [(&str, &str, &str); 7] = [
    ("1-appln.rpn", include_str!("../../../demo/1-appln.rpn"), "a probe on a user program"),
    ("2-do_fork.rpn", include_str!("../../../demo/2-do_fork.rpn"), "a probe on the kernel"),
    ("2b-vortex.rpn", include_str!("../../../demo/2b-vortex.rpn"), "a network driver's calls"),
    ("3-count.rpn", include_str!("../../../demo/3-count.rpn"), "counts calls, logs nothing"),
    ("4-swap_out.rpn", include_str!("../../../demo/4-swap_out.rpn"), "registers and memory"),
    (
        "5-general_protection.rpn",
        include_str!("../../../demo/5-general_protection.rpn"),
        "control registers at each #GP",
    ),
    ("6-groups.rpn", include_str!("../../../demo/6-groups.rpn"), "entries and exits, in groups"),
];

/// The one file that an example includes.
struct Included;

impl Loader for Included {
    fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
        match path {
            "test.rpn" => Ok((path.to_owned(), include_str!("../../../demo/test.rpn").to_owned())),
            _ => Err("no example includes it".to_owned()),
        }
    }
}

/// The man page is written for IA32: on x86-64 its `eip`, used as an address, must be the whole `rip`.
fn options(width: Width) -> ParseOptions {
    let defines = match width {
        Width::W32 => Vec::new(),
        Width::W64 => vec![("eip".to_owned(), "rip".to_owned())],
    };
    ParseOptions { defines, ..ParseOptions::default() }
}

/// An example that was inserted.
struct Inserted {
    file: &'static str,
    subject: &'static str,
    has_variables: bool,
}

/// Runs the command.
///
/// # Errors
/// Output that cannot be written, or a machine that cannot be built.
pub fn run(args: &DemoArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let guest = options::open(&GuestBuilder::embedded(&args.guest).memory(MEMORY), talk)?;
    let header = HeaderItems::default() | HeaderItems::NAME | HeaderItems::PID | HeaderItems::EIP;
    let probing = Probing { header, channel: ChannelConfig::default(), ..Probing::default() };
    let mut session = guest.start(probing)?;
    let mut inserted = Vec::new();
    for (file, text, subject) in EXAMPLES {
        let options = options(guest.target().width());
        let program: Program = parse_with(file, text, &options, &mut Included).map_err(Failure::Compile)?;
        talk.remarks(&program.warnings);
        let has_variables = program.header.vars > 0;
        session.apply(Command::insert(file, program))?;
        inserted.push(Inserted { file, subject, has_variables });
    }
    writeln!(out, "{:>12} {:28} record", "instruction", "probe point").map_err(Failure::Output)?;
    let ending = {
        let sink = Box::new(TextSink::new(&mut *out, header).with_symbols(SYMBOL_WIDTH));
        let mut outputs = Outputs::only(sink, *talk);
        let info = RunInfo { image: guest.name().to_owned(), width: bits(&guest), extra: Vec::new() };
        outputs.sink.begin(&info).map_err(Failure::Output)?;
        let limits = Limits::insns(args.limit_insns).cancelled_by(ctrl_c::listen());
        let ending = session.run(&mut Script::default(), &Condition::end(), &limits, &mut outputs)?;
        outputs.sink.end(&End::default()).map_err(Failure::Output)?;
        ending
    };
    summary(&mut session, &inserted, &ending, out)?;
    out.flush().map_err(Failure::Output)?;
    talk.heading("the guest's console");
    talk.remark_bytes(session.console());
    if ending.is_crash() {
        talk.line(session.core().dump_registers().trim_end());
    }
    Ok(Exit::from(&ending))
}

fn summary(
    session: &mut Session,
    inserted: &[Inserted],
    ending: &Ending,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (stats, lost) = (session.stats(), session.counts().lost());
    let states = match session.apply(Command::Query)? {
        Reply::Query { programs, .. } => programs,
        _ => Vec::new(),
    };
    let variables = match session.apply(Command::GetVars { name: None })? {
        Reply::GetVars { programs, .. } => programs,
        _ => Vec::new(),
    };
    let mut lines =
        vec![String::new(), format!("{:26} {:30} {:>8}  variables", "example", "what it shows", "hits")];
    for (example, (state, variables)) in inserted.iter().zip(states.iter().zip(&variables)) {
        let shown = if example.has_variables { variables.lv.as_slice() } else { &[] };
        let shown: Vec<String> = shown.iter().map(u64::to_string).collect();
        let line =
            format!("{:26} {:30} {:>8}  {}", example.file, example.subject, state.hits, shown.join(" "));
        lines.push(line.trim_end().to_owned());
    }
    let (hits, lost) = (counted(stats.hits, "hit"), counted(lost, "record"));
    lines.push(String::new());
    lines.push(format!("{ending} after {}; {hits}, {lost} lost", counted(session.icount(), "instruction")));
    lines.push(format!("digest {}", session.digest()));
    lines.iter().try_for_each(|line| writeln!(out, "{line}")).map_err(Failure::Output)
}
