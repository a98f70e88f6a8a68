//! A session: a machine, its probes, and its saved states.

mod apply;
mod attended;
mod channels;
mod course;
mod d_program;
mod dtrace;
mod dumps;
mod exact;
mod follow;
mod followed;
mod names;
mod no_hits;
mod operator;
mod put;
pub(crate) mod registers;
mod run;
mod saved;
#[cfg(test)]
mod saved_tests;
mod scout;
mod stacks;
mod still;
mod travel;
mod trial;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;

use trapline_dump::CrashDump;
use trapline_emu::symbols::Symbols;
use trapline_emu::{Core, Counters, Digest, Machine, TrapInterposer};
use trapline_interposer::{CoreFile, Interposer, InterposerConfig, Stats};
use trapline_os::{OsProfile, Task};
use trapline_providers::{Present, Target};
use trapline_rpn::ppdf::VerifyingKey;
use trapline_trace::{Counts, Record};

use crate::crash::CrashWatch;
use crate::ending::{Condition, Ending, Limits};
use crate::guest::{Guest, GuestBuilder, GuestError};
use crate::meter::Meter;
use crate::probing::{AllOptions, Probing};
use crate::script::Script;

pub use course::TooLate;
pub use dtrace::{DEnd, DProgram, DState};
pub use exact::{CountBy, ExactError};
pub use follow::{Course as RecordedCourse, Followed, PositionUnknown, Way};
pub use names::{CodeAddress, Names, Naming};
pub use no_hits::{NoHits, Reason};
pub use operator::{Deed, Operator};
pub use run::{Observer, TakesStates};
pub use saved::{SavedSession, probing_of_snapshot};
pub use scout::{Follower, Met, Returning, StopPoint};
pub(crate) use scout::{Search, Witness};
pub use stacks::{StackFrame, TaskStack};
pub use still::{Look, StillError};
pub use travel::Caller;

use saved::Origin;
use waiting::Waiting;

/// A run: a guest in a machine, with the probes that were inserted.
///
/// Without probes the machine runs alone. All changes to a run go through [`Session::apply`]; the other methods read
/// its state or continue it.
pub struct Session {
    machine: Machine,
    target: Arc<Target>,
    probing: Probing,
    /// The probes; there is none until the first program is inserted.
    interposer: Option<Interposer>,
    /// Whether the last run waited for a number of hits.
    counts_hits: bool,
    /// Makes readers of the guest's tasks, for a session without probes and for a later interposer.
    profile: Profile,
    crash: CrashWatch,
    /// Snapshots by name.
    saved: BTreeMap<String, SavedSession>,
    /// Snapshots numbered by a recording.
    numbered: BTreeMap<u64, SavedSession>,
    /// Counts all instructions, if they are to be counted.
    counting: Option<Box<exact::Counting>>,
    /// The recorder and the verifier.
    course: course::Course,
    /// Bytes of the console passed to an observer.
    shown: usize,
    /// Records not yet taken.
    records: Waiting,
    cores: Vec<Arc<CoreFile>>,
    /// The crash dump of an `exit 2`.
    dump: Option<Box<CrashDump>>,
    /// The origin of each program, removed ones included.
    origins: Arc<Vec<Origin>>,
    options: Arc<AllOptions>,
    /// The key that must have signed every program, if there is one.
    pub(crate) signed_by: Option<VerifyingKey>,
    /// What shows how far it has come.
    meter: Meter,
}

/// Makes readers of the guest's tasks.
type Profile = Box<dyn Fn() -> Option<Box<dyn OsProfile>> + Send>;

impl GuestBuilder {
    /// Reads the guest and loads it into a machine, about to run.
    ///
    /// # Errors
    /// As [`GuestBuilder::open`], and if the machine cannot be built.
    pub fn start(&self) -> Result<Session, GuestError> {
        self.open()?.start(Probing::default())
    }
}

impl Guest {
    /// Loads the guest into a machine, about to run.
    ///
    /// # Errors
    /// As [`Guest::machine`].
    pub fn start(&self, probing: Probing) -> Result<Session, GuestError> {
        Ok(self.session(self.machine()?, probing))
    }

    /// A session of a machine that has this guest.
    fn session(&self, machine: Machine, probing: Probing) -> Session {
        Session {
            machine,
            target: Arc::clone(self.target()),
            options: Arc::new(AllOptions {
                probing: probing.clone(),
                sites: self.target().options().clone(),
            }),
            probing,
            interposer: None,
            counts_hits: false,
            profile: self.profiles(),
            crash: CrashWatch::new(self.target(), self.has_initrd()),
            saved: BTreeMap::new(),
            numbered: BTreeMap::new(),
            counting: None,
            course: course::Course::default(),
            shown: 0,
            records: Waiting::default(),
            cores: Vec::new(),
            dump: None,
            origins: Arc::default(),
            signed_by: self.signed_by,
            meter: self.meter().clone(),
        }
    }
}

impl Session {
    /// Runs until the condition holds, the guest ends by itself, or a limit is reached. Records are kept for
    /// [`Session::records`].
    ///
    /// ```
    /// use trapline_session::{Condition, Ending, GuestBuilder, Limits};
    ///
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    /// assert_eq!(session.run_until(&Condition::end(), &Limits::insns(1_000_000)), Ending::Limit);
    /// assert_eq!(session.icount(), 1_000_000);
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    pub fn run_until(&mut self, condition: &Condition, limits: &Limits) -> Ending {
        self.run_script(&mut Script::default(), condition, limits)
    }

    /// As [`Session::run_until`], and lets a script act when its lines are due. Its replies are dropped.
    pub fn run_script(&mut self, script: &mut Script, condition: &Condition, limits: &Limits) -> Ending {
        let mut kept = run::Keep::default();
        let Ok(ending) = self.run(script, condition, limits, &mut kept);
        self.records.extend(kept.records);
        self.cores.extend(kept.cores.into_iter().map(Arc::new));
        self.dump = kept.dump.or_else(|| self.dump.take());
        ending
    }

    /// Runs this many instructions, and returns why the run ended if it ended earlier.
    ///
    /// ```
    /// use trapline_session::GuestBuilder;
    ///
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    /// let before = session.digest();
    /// assert_eq!(session.step(1), None);
    /// assert_eq!(session.icount(), 1);
    /// assert_ne!(session.digest(), before);
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    pub fn step(&mut self, instructions: u64) -> Option<Ending> {
        let limit = self.icount().saturating_add(instructions);
        match self.run_until(&Condition::end(), &Limits::insns(limit)) {
            Ending::Limit => None,
            ending => Some(ending),
        }
    }

    /// Takes the records that [`Session::run_until`] and [`Session::step`] have left, oldest first.
    pub fn records(&mut self) -> impl Iterator<Item = Record> + '_ {
        self.records.drain()
    }

    /// Takes the core files that `exit 3` in a handler has made.
    pub fn take_cores(&mut self) -> Vec<CoreFile> {
        std::mem::take(&mut self.cores).into_iter().map(Arc::unwrap_or_clone).collect()
    }

    /// Takes the crash dump that an `exit 2` in a handler has made.
    pub fn take_dump(&mut self) -> Option<Box<CrashDump>> {
        self.dump.take()
    }

    /// Names for what records hold: addresses, stacks and the probes of providers.
    pub fn names(&self) -> Names<'_> {
        Names::new(&self.target, self.interposer.as_ref().map(Interposer::names))
    }

    /// Instructions retired since the machine started.
    pub fn icount(&self) -> u64 {
        self.machine.icount()
    }

    /// Everything that the guest has written to its console.
    pub fn console(&self) -> &[u8] {
        self.machine.console()
    }

    /// The kernel's symbols.
    pub fn symbols(&self) -> &Symbols {
        self.target.symbols()
    }

    /// The target to probe.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// The tasks of the guest in its own order; none if its system is not known.
    pub fn processes(&self) -> Vec<Task> {
        let profile = (self.profile)();
        profile.map(|profile| profile.tasks(self.machine.core())).unwrap_or_default()
    }

    /// The digest of the machine's architectural state.
    pub fn digest(&self) -> Digest {
        self.machine.digest()
    }

    /// The machine's state, for inspection.
    pub fn core(&self) -> &Core {
        self.machine.core()
    }

    /// The VGA text screen, 80 by 25.
    pub fn screen(&self) -> String {
        self.machine.screen()
    }

    /// What the host counted while it ran the guest.
    pub fn counters(&self) -> Counters {
        self.machine.counters()
    }

    /// The probes, once a program was inserted.
    pub fn interposer(&self) -> Option<&Interposer> {
        self.interposer.as_ref()
    }

    /// What was not given to a guest that has crashed for the lack of it, in a sentence.
    pub fn lacks(&self, ending: &Ending) -> Option<&'static str> {
        match ending {
            Ending::KernelCrashed(how) => self.crash.lacks(how),
            _ => None,
        }
    }

    /// What happened at probes.
    pub fn stats(&self) -> Stats {
        self.interposer.as_ref().map(Interposer::stats).unwrap_or_default()
    }

    /// What the channels counted.
    pub fn counts(&mut self) -> Counts {
        self.interposer.as_mut().map(|interposer| interposer.channels().counts()).unwrap_or_default()
    }

    /// Whether a record with this many bytes of data fits the channel; one that does not is lost.
    pub fn holds(&mut self, data: usize) -> bool {
        self.interposer.as_mut().is_none_or(|interposer| interposer.channels().holds(0, data))
    }

    /// Whether all handlers that are inserted only observe, so that the guest runs as it would without them.
    pub fn observe_only(&self) -> bool {
        self.interposer.as_ref().is_none_or(Interposer::observe_only)
    }

    /// The stop point of handlers that ask for a debugger by `exit 1`, if there may be any.
    pub fn debugger_point(&self) -> Option<StopPoint> {
        let asks = self.interposer.as_ref().is_some_and(Interposer::may_ask_debugger);
        asks.then_some(StopPoint::AsksDebugger)
    }

    /// Calls `look` with the guest's present state: which places of files are in memory, and in which processes.
    pub fn present<T>(&self, look: impl FnOnce(&mut Present<'_>) -> T) -> T {
        let profile = (self.profile)();
        look(&mut Present::new(self.machine.core(), profile.as_deref()))
    }

    /// The records that wait in the channel: those of a slice of the run that has not ended. [`Session::records`]
    /// returns them when it has, if the channel has not lost them.
    pub fn waiting(&mut self) -> Vec<Record> {
        self.interposer.as_mut().map(|interposer| interposer.channels().records()).unwrap_or_default()
    }

    /// The machine and its interposer, which is made if there is none.
    fn probed(&mut self) -> (&mut Machine, &mut Interposer) {
        let make = || new_interposer(&self.target, &self.probing, &self.profile);
        (&mut self.machine, self.interposer.get_or_insert_with(make))
    }

    fn trap_interposer(&mut self) -> (&mut Machine, Option<&mut dyn TrapInterposer>) {
        let interposer = self.interposer.as_mut().map(|interposer| interposer as &mut dyn TrapInterposer);
        (&mut self.machine, interposer)
    }
}

fn new_interposer(
    target: &Arc<Target>,
    probing: &Probing,
    profile: &dyn Fn() -> Option<Box<dyn OsProfile>>,
) -> Interposer {
    let Probing { header, channel, max_steps, .. } = probing.clone();
    let mut interposer = Interposer::new(InterposerConfig { header, channel, profile: profile(), max_steps });
    interposer.allow_cores(probing.max_cores);
    let named = Arc::clone(target);
    interposer.name_symbols(Box::new(move |kind, module, address| named.symbol_in(kind, module, address)));
    interposer.dump_with(dumps::taker(target, profile()));
    interposer.set_watch_unlimited(probing.watch_unlimited);
    interposer.provide(target.services());
    interposer.unwind_with(target.unwinder());
    interposer.set_stack_depth(probing.stack);
    interposer.set_user_stack_depth(probing.user_stack);
    interposer
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::commands::{Command, CommandError, Selection};
    use crate::programs::{SourceOptions, compile};
    use crate::replies::Reply;

    fn session() -> Session {
        GuestBuilder::embedded("ia32").memory(32 << 20).start().unwrap()
    }

    /// A program with this many watches.
    fn watches(name: &str, count: u64) -> Command {
        let point = |n: u64| {
            let at = 0xc010_0000 + 16 * n;
            format!("address = {at:#x}:{:#x}\nwatchpoint = w\nabort\n", at + 3)
        };
        let points: String = (0..count).map(point).collect();
        let text = format!("name = vmlinux\nmodtype = kernel\n{points}");
        let program = compile(name, &text, &SourceOptions::default()).unwrap();
        Command::insert(name, program)
    }

    fn enabled(session: &mut Session) -> Vec<bool> {
        let Reply::Query { programs, .. } = session.apply(Command::Query).unwrap() else { panic!() };
        programs.iter().flat_map(|program| &program.points).map(|point| point.enabled).collect()
    }

    fn switch(name: &str, on: bool) -> Command {
        Command::Switch { points: Selection { name: Some(name.to_owned()), ..Selection::default() }, on }
    }

    #[test]
    fn a_command_that_fails_halfway_changes_nothing() {
        let mut session = session();
        session.apply(watches("three", 3)).unwrap();
        session.apply(switch("three", false)).unwrap();
        session.apply(watches("two", 2)).unwrap();
        let before = enabled(&mut session);
        // Two of the three fit besides the two.
        let refused = session.apply(switch("three", true));
        assert!(matches!(refused, Err(CommandError::NotEnabled(_))), "{refused:?}");
        assert_eq!(enabled(&mut session), before);
        // The failed attempt occupies no debug register.
        session.apply(switch("two", false)).unwrap();
        session.apply(switch("three", true)).unwrap();
        assert_eq!(enabled(&mut session), [true, true, true, false, false]);
        let refused = session.apply(watches("more", 2));
        assert!(matches!(refused, Err(CommandError::DoesNotFit { .. } | CommandError::NotArmed { .. })));
        assert_eq!(enabled(&mut session).len(), 5);
    }

    #[test]
    fn commands_survive_being_written_and_read() {
        let only = Selection { groups: vec!["g".to_owned()], ..Selection::default() };
        let text =
            "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\npush pid\nlog 1\nexit\n";
        let program = compile("p.rpn", text, &SourceOptions::default()).unwrap();
        let commands = [
            Command::insert("p.rpn", program),
            Command::Clause { text: "fbt::do_fork:entry".to_owned(), only },
            switch("p.rpn", false),
            Command::Type { line: crate::commands::InputLine::Com1, bytes: b"ls\n".to_vec() },
            Command::Stop,
        ];
        for command in commands {
            let written = serde_json::to_string(&crate::Versioned(command)).unwrap();
            let crate::Versioned(read): crate::Versioned<Command> = serde_json::from_str(&written).unwrap();
            assert_eq!(serde_json::to_string(&crate::Versioned(read)).unwrap(), written);
        }
    }

    #[test]
    fn a_program_that_was_written_and_read_records_the_same() {
        let text =
            "name = vmlinux\nmodtype = kernel\noffset = do_fork\nopcode = 0x55\npush pid\nlog 1\nexit\n";
        let program = compile("p.rpn", text, &SourceOptions::default()).unwrap();
        let command = Command::insert("p.rpn", program);
        let read: Command = serde_json::from_str(&serde_json::to_string(&command).unwrap()).unwrap();
        let hits = |command: Command| {
            let mut session = session();
            session.apply(command).unwrap();
            let ending = session.run_until(&Condition::end(), &Limits::none());
            (ending, session.icount(), session.records().collect::<Vec<_>>())
        };
        let (first, second) = (hits(command), hits(read));
        assert!(!first.2.is_empty());
        assert_eq!(first, second);
    }

    #[test]
    fn going_back_to_before_the_first_program_takes_it_out() {
        let mut session = session();
        let saved = session.snapshot();
        session.apply(Command::clause("fbt::do_fork:entry")).unwrap();
        session.restore(&saved).unwrap();
        assert!(enabled(&mut session).is_empty());
        session.run_until(&Condition::end(), &Limits::none());
        assert_eq!(session.records().count(), 0);
        assert_eq!(session.stats().hits, 0);
    }

    #[test]
    fn clauses_of_one_description_have_names_of_their_own() {
        let mut session = session();
        for _ in 0..2 {
            session.apply(Command::clause("fbt::do_fork:entry { exit }")).unwrap();
        }
        session.apply(switch("fbt::do_fork:entry (2)", false)).unwrap();
        assert_eq!(enabled(&mut session), [true, false]);
    }

    #[test]
    fn a_run_stops_at_each_number_of_hits_that_is_asked_for() {
        let mut session = session();
        session.apply(Command::clause("fbt::do_fork:entry { exit }")).unwrap();
        for (more, all) in [(1, 1), (2, 3)] {
            let ending = session.run_until(&Condition::end().or_hits(more), &Limits::none());
            assert_eq!((ending, session.stats().hits), (Ending::EnoughHits(more), all));
        }
        session.run_until(&Condition::end(), &Limits::none());
        assert!(session.stats().hits > 3);
    }

    #[test]
    fn programs_without_hits_are_told_with_the_reason() {
        let mut session = session();
        session.apply(watches("far", 1)).unwrap();
        session.apply(Command::clause("fbt::do_fork:entry { exit }")).unwrap();
        session.apply(switch("fbt::do_fork:entry", false)).unwrap();
        session.step(1_000);
        let why: Vec<String> = session.why_no_hits().iter().map(ToString::to_string).collect();
        assert_eq!(
            why,
            [
                "far had no hits: nothing that it watches was accessed",
                "--rpn fbt::do_fork:entry had no hits: all its probe points are disabled"
            ]
        );
        session.apply(switch("fbt::do_fork:entry", true)).unwrap();
        let why = session.why_no_hits();
        assert_eq!(why[1].reason, Reason::NotExecuted(1));
        session.run_until(&Condition::end(), &Limits::none());
        let without: Vec<String> = session.why_no_hits().into_iter().map(|found| found.program).collect();
        assert!(session.stats().hits > 0 && without == ["far"], "{without:?}");
    }

    #[test]
    fn a_session_may_go_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<Session>();
        is_send::<SavedSession>();
    }
}
