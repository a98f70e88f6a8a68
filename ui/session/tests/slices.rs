//! Observers receive the same in the same order whether the machine stops at the end of every slice or not.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::convert::Infallible;

use trapline_interposer::{CoreFile, HandlerError, ProbeNames};
use trapline_session::{
    Command, Condition, GuestBuilder, Limits, Names, Observer, Probing, RecordView, Script, Session,
    SourceOptions, compile, numbers,
};

/// Instructions of a slice, as `docs/records.md` has it.
const SLICE: u64 = 20_000;
const END: u64 = 4_000_000;

/// The input of an observer, in order; consecutive console output is joined.
#[derive(Debug, Default, PartialEq)]
struct Told(Vec<String>);

impl Observer for Told {
    type Error = Infallible;

    fn record(&mut self, record: &RecordView<'_>, _: &Names<'_>) -> Result<(), Infallible> {
        self.0.push(format!("{:?} {:x?}", record.header, record.data));
        Ok(())
    }
    fn failed(&mut self, error: &HandlerError, _: ProbeNames<'_>) {
        self.0.push(format!("{error:?}"));
    }
    fn core_file(&mut self, core: &CoreFile) -> Result<(), Infallible> {
        self.0.push(format!("core file, {} pages", core.pages));
        Ok(())
    }
    fn console(&mut self, fresh: &[u8]) -> Result<(), Infallible> {
        let text = String::from_utf8_lossy(fresh);
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.starts_with('>') => last.push_str(&text),
            _ => self.0.push(format!(">{text}")),
        }
        Ok(())
    }
}

/// Runs a session to the end, in stretches of at most `stretch` instructions.
fn told(mut session: Session, stretch: u64) -> (Told, String) {
    let mut told = Told::default();
    while session.icount() < END {
        let limit = (session.icount() / stretch + 1).saturating_mul(stretch).min(END);
        let Ok(_) = session.run(&mut Script::default(), &Condition::end(), &Limits::insns(limit), &mut told);
        if session.icount() < limit {
            break;
        }
    }
    let seen = (session.icount(), session.digest(), session.stats(), session.counts());
    (told, format!("{seen:?}"))
}

fn program(name: &str, text: &str) -> Command {
    Command::insert(name, compile(name, text, &SourceOptions::default()).unwrap())
}

/// Sets of probes, from those that never run to those that run all the time.
fn probes(wide: bool) -> Vec<Vec<Command>> {
    let word = if wide { 0x40_b000u64 } else { 0x805_3000 };
    let text = format!(
        "name = vmlinux\nmodtype = kernel\naddress = {word:#x}:{:#x}\nwatchpoint = rw\npush 1\nlog 1\nexit\n\
         address = 0x3f8:0x3f8\nwatchpoint = io\nmaxhits = 90\npush 2\nlog 1\nexit\n\
         offset = do_fork\nopcode = 0x55\npush 0x10\npush mem, u8\nlog 1\nexit\n",
        word + 3
    );
    let core = "name = appln\nmodtype = user\noffset = swap\nopcode = 0x55\nmaxhits = 1\nexit 3\n";
    let clause = Command::clause;
    vec![
        vec![clause("fbt::panic:entry")],
        vec![clause("fbt::do_fork:entry,fbt::do_fork:return { push pid; log 1 }")],
        vec![clause("fbt:::entry { abort }"), program("core", core)],
        vec![clause("fbt::: { push pid; log 1 }")],
        vec![program("watched", &text)],
        vec![clause(
            "profile:::tick-20us,profile:::tick-33333insn,profile:::tick-700001insn { push arg, 1; log 1 }",
        )],
        vec![clause("fbt::console_write: { logonfault = yes; push 1; log 1 }"), clause("profile:::tick-1ms")],
    ]
}

#[test]
fn slices_that_end_without_a_stop_change_nothing_that_is_told() {
    for name in ["ia32", "x86_64"] {
        let guest = GuestBuilder::embedded(name).memory(32 << 20).open().unwrap();
        for (n, commands) in probes(name == "x86_64").iter().enumerate() {
            // The second loses records.
            for channel in ["64Kx16", "400x2"] {
                let channel = numbers::channel(channel).unwrap();
                let session = || {
                    let probing = Probing { channel, watch_unlimited: true, ..Probing::default() };
                    let mut session = guest.start(probing).unwrap();
                    for command in commands {
                        session.apply(command.clone()).unwrap();
                    }
                    session
                };
                let (exact, free) = (told(session(), SLICE), told(session(), END));
                let differs = exact.0.0.iter().zip(&free.0.0).find(|(a, b)| a != b);
                assert_eq!(differs, None, "{name}, probes {n}, {channel:?}");
                assert_eq!(exact, free, "{name}, probes {n}, {channel:?}");
                assert!(n == 0 || exact.0.0.len() > 2, "{name}, probes {n}: {:?}", exact.0);
            }
        }
    }
}
