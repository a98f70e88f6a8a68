//! The target of sessions' files: their content besides the machine.

use crate::snapshots::changed;
use crate::{Checks, Part};
use std::cell::RefCell;
use trapline_emu::Archive;
use trapline_session::{
    Command, Condition, Ending, GuestBuilder, Limits, SavedSession, Session, SourceOptions, compile,
};

/// The part of a file that is not the machine's, and its version.
const PART: &str = "session";
const VERSION: u16 = 8;
/// The instruction count of the session that inputs modify, and how far a restored one runs.
const AT: u64 = 300_000;
const STEPS: u64 = 2_000;

/// Probes of most kinds: watches, timers, sites in the kernel and in a program, counters.
const PROGRAM: &str = "name = vmlinux\nmodtype = kernel\nvars = 2\ngvars = 1\noffset = do_fork\nopcode = 0x55\n\
    ignore = 1\nmaxhits = 3\ninc lv, 0\ninc gv, 0\npush lv, 0\nlog 1\nexit\naddress = 0x8053000:0x8053003\n\
    watchpoint = rw\npush 1\nlog 1\nexit\naddress = 0x3f8:0x3f8\nwatchpoint = io\npush 2\nlog 1\nexit\n";
const CLAUSES: [&str; 4] = [
    "fbt:::entry { push arg, 0; log 1 }",
    "fbt:::return",
    "profile:::tick-20us,profile:::tick-3000insn",
    "pid*:appln:main:entry,pid*:appln:main:return",
];

struct Guest {
    session: Session,
    /// Its state when an input arrives.
    start: SavedSession,
    file: Archive,
}

thread_local! {
    static GUEST: RefCell<Guest> = RefCell::new({
        let mut session = GuestBuilder::embedded("ia32").memory(16 << 20).start().unwrap();
        let program = compile("program", PROGRAM, &SourceOptions::default()).unwrap();
        session.apply(Command::insert("program", program)).unwrap();
        for clause in CLAUSES {
            session.apply(Command::clause(clause)).unwrap();
        }
        session.run_until(&Condition::end(), &Limits::insns(AT).in_passing());
        let start = session.snapshot();
        let file = Archive::from_bytes(&start.to_bytes().unwrap()).unwrap();
        Guest { session, start, file }
    });
}

pub fn session(bytes: &[u8], checks: Checks) {
    GUEST.with_borrow_mut(|Guest { session, start, file }| {
        if let Err(error) = session.read_snapshot(bytes) {
            assert!(!error.to_string().is_empty());
        }
        let mut archive = file.clone();
        archive.put_bytes(PART, VERSION, changed(file.bytes(PART, VERSION).unwrap(), bytes));
        let read = match session.read_snapshot(&archive.to_bytes()) {
            Err(error) => return assert!(!error.to_string().is_empty()),
            Ok(read) => read,
        };
        let again = session.read_snapshot(&read.to_bytes().unwrap()).unwrap();
        assert_eq!(again.to_bytes().unwrap(), read.to_bytes().unwrap());
        session.restore(&read).unwrap();
        if checks.have(Part::Run) {
            let ending = session.run_until(&Condition::end(), &Limits::insns(AT + STEPS));
            assert!(!matches!(ending, Ending::CannotGoOn(_)), "{ending:?}");
        }
        // Whatever was read, a valid snapshot can be restored.
        session.restore(start).unwrap();
    });
}
