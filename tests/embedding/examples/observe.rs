//! Runs an embedded guest with an observer of everything, by the names of `trapline_session` alone, and prints what it saw.

use std::convert::Infallible;

use trapline_session::{
    Command, Condition, CoreFile, Error, GuestBuilder, HandlerError, Limits, Names, Observer, ProbeNames,
    RecordView, Reply, Script, SentByte, SourceOptions, Symbolize, compile, trapline_emu, trapline_rpn,
};

/// A handler that divides by zero, and one that takes a core file.
const DIVIDES: &str =
    "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\npush 7\nlog 1\npush 1\npush 0\ndiv\nexit\n";
const TAKES_CORE: &str = "name = appln\nmodtype = user\noffset = swap\nopcode = 0x55\nmaxhits = 1\nexit 3\n";

/// What was seen.
#[derive(Default)]
struct Seen {
    functions: Vec<String>,
    failed: Vec<String>,
    replies: Vec<String>,
    sent: Vec<u8>,
    console: Vec<u8>,
    cores: Vec<String>,
}

impl Observer for Seen {
    type Error = Infallible;

    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), Infallible> {
        self.functions.extend(names.symbol(record.header.ip, record.header.probe));
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) -> Result<(), Infallible> {
        self.replies.push(format!("{reply:?}"));
        Ok(())
    }

    fn failed(&mut self, error: &HandlerError, names: ProbeNames<'_>) {
        let program = names.program(error.probe).map(|(program, ..)| program);
        self.failed.push(format!("{}:{}", program.unwrap_or_default(), error.line));
    }

    fn wants_sent(&self) -> bool {
        true
    }

    fn sent(&mut self, bytes: &[SentByte]) {
        self.sent.extend(bytes.iter().map(|sent| sent.byte));
    }

    fn console(&mut self, fresh: &[u8]) -> Result<(), Infallible> {
        self.console.extend_from_slice(fresh);
        Ok(())
    }

    fn core_file(&mut self, core: &CoreFile) -> Result<(), Infallible> {
        self.cores.push(format!("{} of process {}", core.name, core.pid));
        Ok(())
    }
}

/// The program of a text.
fn program(name: &str, text: &str, source: &SourceOptions) -> Result<trapline_rpn::Program, Error> {
    Ok(compile(name, text, source)?)
}

/// The instructions and the virtual time of a run.
fn time(core: &trapline_emu::Core) -> (u64, u64) {
    (core.icount(), core.virtual_ns())
}

fn main() -> Result<(), Error> {
    let source = SourceOptions::default();
    let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    for (name, text) in [("divides.rpn", DIVIDES), ("core.rpn", TAKES_CORE)] {
        session.apply(Command::insert(name, program(name, text, &source)?))?;
    }
    let mut script = Script::parse("once.script", "at insns=3M query\n", &[], &source)?;
    let mut seen = Seen::default();
    let Ok(ending) = session.run(&mut script, &Condition::end(), &Limits::none(), &mut seen);
    seen.failed.dedup();
    seen.functions.dedup();
    let (icount, ns) = time(session.core());
    println!("{ending}, and time has passed: {}", icount == session.icount() && ns > 0);
    println!("records of {}, failed {}", seen.functions.join(" "), seen.failed.join(" "));
    println!("{} replies, core files: {}", seen.replies.len(), seen.cores.join(", "));
    println!("all that was sent is the console's text: {}", seen.sent == seen.console);
    Ok(())
}
