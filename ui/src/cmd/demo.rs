//! `trapline demo`: the man page's examples on an embedded guest. Needs no file; prints the same bytes every time.

use std::io::Write;
use std::path::PathBuf;

use trapline_interposer::{Interposer, InterposerConfig, ProgramId};
use trapline_rpn::{Loader, ParseOptions, Program, Width, parse_with};
use trapline_trace::{ChannelConfig, End, HeaderItems, RunInfo, TextSink};

use crate::cli::{CmdlineArgs, DemoArgs};
use crate::cmd::run::bits;
use crate::devices::DeviceArgs;
use crate::failure::{Exit, Failure};
use crate::guest::Guest;
use crate::output::{Console, Outputs, SYMBOL_WIDTH};
use crate::script::Script;
use crate::session::{Ending, Session, Watch};
use crate::talk::{Talk, counted};
use crate::{interrupt, programs};

/// Its memory in bytes.
const MEMORY: u64 = 32 << 20;

/// File name, text and subject of each example.
const EXAMPLES: [(&str, &str, &str); 7] = [
    ("1-appln.rpn", include_str!("../../../examples/man/1-appln.rpn"), "a probe on a user program"),
    ("2-do_fork.rpn", include_str!("../../../examples/man/2-do_fork.rpn"), "a probe on the kernel"),
    ("2b-vortex.rpn", include_str!("../../../examples/man/2b-vortex.rpn"), "a network driver's calls"),
    ("3-count.rpn", include_str!("../../../examples/man/3-count.rpn"), "counts calls, logs nothing"),
    ("4-swap_out.rpn", include_str!("../../../examples/man/4-swap_out.rpn"), "registers and memory"),
    (
        "5-general_protection.rpn",
        include_str!("../../../examples/man/5-general_protection.rpn"),
        "control registers at each #GP",
    ),
    ("6-groups.rpn", include_str!("../../../examples/man/6-groups.rpn"), "entries and exits, in groups"),
];

/// The one file that an example includes.
struct Included;

impl Loader for Included {
    fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
        match path {
            "test.rpn" => Ok((path.to_owned(), include_str!("../../../examples/man/test.rpn").to_owned())),
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
    ParseOptions { defines }
}

/// An example in the interposer.
struct Inserted {
    file: &'static str,
    subject: &'static str,
    id: ProgramId,
    program: Program,
}

/// Runs the command.
///
/// # Errors
/// Output that cannot be written, or a machine that cannot be built.
pub fn run(args: &DemoArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let guest = Guest::embedded(&args.guest, talk)?;
    let mut machine = guest.machine(MEMORY, &CmdlineArgs::default(), &DeviceArgs::default())?;
    let header = HeaderItems::default() | HeaderItems::NAME | HeaderItems::PID | HeaderItems::EIP;
    let mut interposer = Interposer::new(InterposerConfig {
        header,
        channel: ChannelConfig::default(),
        profile: guest.profile(),
        max_steps: None,
    });
    let mut inserted = Vec::new();
    for (file, text, subject) in EXAMPLES {
        let options = options(guest.target.width());
        let program = parse_with(file, text, &options, &mut Included).map_err(Failure::Compile)?;
        let named = (file, &program);
        let id = programs::insert(&mut interposer, machine.core_mut(), &guest.target, named, talk)?;
        inserted.push(Inserted { file, subject, id, program });
    }
    let mut session = Session::new(machine, Some(interposer), PathBuf::from("."));
    interrupt::listen();
    writeln!(out, "{:>12} {:28} record", "instruction", "probe point").map_err(Failure::Output)?;
    let ending = {
        let sink = Box::new(TextSink::new(&mut *out, header).with_symbols(SYMBOL_WIDTH));
        let mut outputs = Outputs { sink, records: None, console: Console::None, talk: *talk };
        let info = RunInfo { image: guest.name.clone(), width: bits(&guest), extra: Vec::new() };
        outputs.sink.begin(&info).map_err(Failure::Output)?;
        let ending = session.run(
            &guest.target,
            &Watch::default(),
            args.limit_insns,
            &mut Script::default(),
            &mut outputs,
        )?;
        outputs.sink.end(&End::default()).map_err(Failure::Output)?;
        ending
    };
    summary(&mut session, &inserted, &ending, out).map_err(Failure::Output)?;
    out.flush().map_err(Failure::Output)?;
    talk.heading("the guest's console");
    talk.remark_bytes(session.machine.console());
    if ending.exit() == Exit::Crashed {
        talk.line(session.machine.core().dump_registers().trim_end());
    }
    Ok(ending.exit())
}

fn summary(
    session: &mut Session,
    inserted: &[Inserted],
    ending: &Ending,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let (stats, lost) = (session.stats(), session.lost());
    writeln!(out)?;
    writeln!(out, "{:26} {:30} {:>8}  variables", "example", "what it shows", "hits")?;
    if let Some(interposer) = &session.interposer {
        for example in inserted {
            let hits: u64 = interposer.runs(example.id).iter().sum();
            let shown =
                if example.program.header.vars == 0 { &[][..] } else { interposer.locals(example.id) };
            let variables: Vec<String> = shown.iter().map(u64::to_string).collect();
            let line =
                format!("{:26} {:30} {hits:>8}  {}", example.file, example.subject, variables.join(" "));
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    writeln!(out)?;
    let (insns, digest) = (session.machine.icount(), session.machine.digest());
    writeln!(
        out,
        "{} after {insns} instructions; {}, {} lost",
        ending.sentence(),
        counted(stats.hits, "hit"),
        counted(lost, "record")
    )?;
    writeln!(out, "digest {digest}")
}
