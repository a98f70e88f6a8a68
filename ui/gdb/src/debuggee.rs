//! The run that is debugged: its timeline, its stop points, and the commands of `monitor`.

use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trapline_emu::load::Width;
use trapline_os::LoadedModule;
use trapline_providers::TargetProcess;
use trapline_rpn::Reg;
use trapline_session::{
    Arrival, Command, Difference, Moment, Position, Reply, Session, StopPoint, Timeline, TravelError, Word,
};

use crate::breakpoints::Breakpoints;
use crate::calls::Calls;
use crate::files::{self, Files};
use crate::registers::{Change, Known, Registers};
use crate::stacks::Stacks;
use crate::stops::{Breakpoint, Resume, Stop};
use crate::threads::{self, Thread};
use crate::user::{NoProcess, User};

/// Bytes of the console that `monitor console` shows, unless it says how many.
const CONSOLE: usize = 2048;

/// The instruction INT3.
const INT3: u8 = 0xcc;

/// The functions of Linux that start a module whose code and symbols are in place, and that run when it has been taken off the
/// list, before its memory is given back.
const CHANGES: [&str; 2] = ["do_init_module", "module_bug_cleanup"];

/// What a command of `monitor` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// Its lines.
    pub lines: Vec<String>,
}

/// The commands of `monitor` that are not this crate's own.
pub trait Commands {
    /// Carries out a line: a command that moves or shows something, or an action of scripts.
    ///
    /// # Errors
    /// A sentence that says why not.
    fn carry_out(&mut self, timeline: &mut Timeline, line: &str) -> Result<Said, String>;

    /// The same run from its beginning, with these probes; and the names of the programs.
    ///
    /// # Errors
    /// A sentence that says why not.
    fn with_probes(&mut self, clauses: &[String]) -> Result<(Timeline, Vec<String>), String>;

    /// The command that inserts a probe here.
    ///
    /// # Errors
    /// A sentence that says why not.
    fn probe(&mut self, clause: &str) -> Result<Command, String>;

    /// One line for each command.
    fn help(&self) -> Vec<String>;
}

/// No further commands of `monitor`.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCommands;

impl Commands for NoCommands {
    fn carry_out(&mut self, _: &mut Timeline, line: &str) -> Result<Said, String> {
        Err(format!("there is no command {line}"))
    }

    fn with_probes(&mut self, _: &[String]) -> Result<(Timeline, Vec<String>), String> {
        Err("there are no probes".to_owned())
    }

    fn probe(&mut self, _: &str) -> Result<Command, String> {
        Err("there are no probes".to_owned())
    }

    fn help(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A probe that stops the run.
struct Probe {
    clause: String,
    /// The name of its program.
    name: String,
    point: StopPoint,
}

/// The run that is debugged.
pub struct Debuggee {
    pub(crate) timeline: Timeline,
    commands: Box<dyn Commands>,
    cancel: Arc<AtomicBool>,
    recorded: bool,
    /// Whether the run was changed since its beginning.
    changed: bool,
    pub(crate) registers: Rc<Registers>,
    pub(crate) user: Option<User>,
    pub(crate) files: Files,
    pub(crate) stacks: Stacks,
    pub(crate) breakpoints: Breakpoints,
    /// The probes that stop the run.
    probes: Vec<Probe>,
    /// The system calls of the process.
    pub(crate) calls: Calls,
    /// Whether addresses are physical.
    pub(crate) physical: bool,
    /// What gdb has asked for last.
    pub(crate) resume: Option<(Resume, Option<NonZeroUsize>)>,
    /// The stop that follows the news of modules, what had led to it, and its moment.
    pub(crate) pending: Option<(Resume, Stop, Moment)>,
    /// Whether the next stop is here: gdb does not know yet that the run was moved.
    pub(crate) stays: bool,
    /// The thread that gdb was told last.
    pub(crate) told: Option<NonZeroUsize>,
    /// The modules that gdb has been told.
    pub(crate) modules: Vec<LoadedModule>,
    /// What is to be shown in gdb before the next stop.
    pub(crate) news: Vec<String>,
    /// Why the last packet was refused, where an error's number does not say it.
    pub(crate) refusal: Option<String>,
    /// Whether the last command of `monitor` was interrupted.
    pub(crate) cut_short: bool,
}

impl Debuggee {
    /// A run at the beginning of its timeline, or where a process first runs in user mode. `cancel` interrupts the timeline;
    /// a `recorded` run is not changed.
    ///
    /// # Errors
    /// The process does not run.
    pub fn new(
        timeline: Timeline,
        commands: Box<dyn Commands>,
        user: Option<&TargetProcess>,
        cancel: Arc<AtomicBool>,
        recorded: bool,
    ) -> Result<Self, NoProcess> {
        let mut timeline = timeline.cancelled_by(Arc::clone(&cancel));
        let user = user.map(|who| User::find(&mut timeline, who)).transpose()?;
        let wide = match &user {
            // The program may be of 32 bits.
            Some(_) => timeline.session().core().env().code64(),
            None => timeline.session().target().image().plan().width == Width::Bits64,
        };
        let linux = user.is_some() && timeline.session().target().image().plan().linux.is_some();
        Ok(Self {
            registers: Rc::new(Registers::new(wide, linux)),
            timeline,
            commands,
            cancel,
            recorded,
            changed: false,
            user,
            files: Files::default(),
            stacks: Stacks::default(),
            breakpoints: Breakpoints::default(),
            probes: Vec::new(),
            calls: Calls::default(),
            physical: false,
            resume: None,
            pending: None,
            stays: false,
            told: None,
            modules: Vec::new(),
            news: Vec::new(),
            refusal: None,
            cut_short: false,
        })
    }

    /// The timeline.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The flag that interrupts it.
    pub fn cancel(&self) -> &Arc<AtomicBool> {
        &self.cancel
    }

    /// A debugger has come: it knows of no breakpoints and modules.
    pub(crate) fn welcome(&mut self) {
        self.breakpoints.clear();
        self.has_new_modules();
        self.news.clear();
        (self.resume, self.pending, self.physical) = (None, None, false);
        (self.calls, self.stacks) = (Calls::default(), Stacks::default());
        (self.stays, self.told) = (false, Some(threads::running(self.session())));
    }

    pub(crate) fn session(&self) -> &Session {
        self.timeline.session()
    }

    /// The stop points: those of breakpoints, those of probes, and that of handlers that ask for a debugger. Of one process, hits
    /// in others do not stop the run.
    pub(crate) fn points(&self) -> Vec<StopPoint> {
        let own = self.breakpoints.iter().map(Breakpoint::point);
        let hits = self.probes.iter().map(|probe| probe.point.clone()).chain(self.session().debugger_point());
        let within = |hit| match &self.user {
            Some(user) => StopPoint::In(user.tgid(), Box::new(hit)),
            None => hit,
        };
        own.chain(hits.map(within)).collect()
    }

    /// The names of the programs of the probes whose stop points were met in the last search.
    pub(crate) fn probes_met(&self) -> Vec<&str> {
        let own = self.breakpoints.iter().len();
        let numbers = self.timeline.met_together().iter().filter_map(|point| point.checked_sub(own));
        numbers.filter_map(|number| self.probes.get(number)).map(|probe| probe.name.as_str()).collect()
    }

    /// Whether a handler has asked for a debugger at the stop of the last search.
    pub(crate) fn is_asked(&self) -> bool {
        let last = self.breakpoints.iter().len() + self.probes.len();
        self.session().debugger_point().is_some() && self.timeline.met_together().contains(&last)
    }

    /// The watchpoints.
    pub(crate) fn watchpoints(&self) -> Vec<Breakpoint> {
        self.breakpoints.iter().copied().filter(|breakpoint| !breakpoint.executes()).collect()
    }

    /// The stop points of these watchpoints.
    pub(crate) fn points_of(watches: &[Breakpoint]) -> Vec<StopPoint> {
        watches.iter().map(Breakpoint::point).collect()
    }

    /// The threads, the running one first.
    pub(crate) fn threads(&self) -> Vec<Thread> {
        threads::all(self.session(), self.user.as_ref(), self.told)
    }

    /// The registers of a thread; none if there is no such thread.
    pub(crate) fn registers_of(&self, tid: NonZeroUsize) -> Option<Vec<Option<u8>>> {
        let session = self.session();
        if tid == threads::running(session) {
            return Some(self.registers.of(session.core()));
        }
        let thread = self.threads().into_iter().find(|thread| thread.tid == tid)?;
        let profile = session.profile()?;
        let known = match &self.user {
            // What a thread had in user mode is not known.
            Some(_) => Known::default(),
            None if thread.task == 0 => Known::default(),
            None => threads::known(profile.as_ref(), session, thread.task),
        };
        Some(self.registers.known(&known))
    }

    /// Writes registers of the running thread.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) fn write_registers(&mut self, tid: NonZeroUsize, wanted: &[Option<u8>]) -> Result<(), String> {
        if tid != threads::running(self.session()) {
            return Err("only the registers of the running task can be written".to_owned());
        }
        let now = self.registers.of(self.session().core());
        let changes = self.registers.changes(&now, wanted).map_err(|error| error.to_string())?;
        if let [(Reg::Ip, to)] = changes.as_slice()
            && self.skips_own_trap(*to)
        {
            return Ok(());
        }
        let general =
            |register: Reg| register.gpr_number().is_some() || matches!(register, Reg::Ip | Reg::Flags);
        let put = |(register, value): Change| match general(register) {
            true => Difference::Word { what: Word::Register { user: false, register }, value: value as u64 },
            false => Difference::Processor { register, bytes: value.to_le_bytes().to_vec() },
        };
        self.put(changes.into_iter().map(put).collect())
    }

    /// Whether this value of the instruction pointer skips an INT3 of the guest that is about to be executed: gdb takes one for a
    /// breakpoint of its own, and goes on behind it. The guest is to execute it. gdb takes its breakpoints out at each stop,
    /// and sets them again just before; a user who writes the register does so while there are none.
    fn skips_own_trap(&self, to: u128) -> bool {
        let core = self.session().core();
        let (at, mut byte) = (core.linear_ip(), [0]);
        let set = self.breakpoints.iter().any(|own| own.executes() && own.address == at);
        let next = u128::from(core.env().eip()) + 1;
        set && to == next && core.peek(at, &mut byte).is_ok() && byte == [INT3]
    }

    /// Writes memory.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), String> {
        if self.physical {
            return Err("physical memory can only be read; `Qqemu.PhyMemMode:0` leaves this mode".to_owned());
        }
        self.put(vec![Difference::Memory { address, bytes: bytes.to_vec() }])
    }

    fn put(&mut self, values: Vec<Difference>) -> Result<(), String> {
        if self.recorded {
            return Err(
                "a recording cannot be changed; debug the image itself to write to the guest".to_owned()
            );
        }
        if values.is_empty() {
            return Ok(());
        }
        let applied = self.timeline.apply(Command::Put { values }).map_err(|error| error.to_string())?;
        self.changed = true;
        if applied.cut {
            self.news.push("what came later in this run is gone: from here on it is another one".to_owned());
        }
        Ok(())
    }

    /// What a read is answered by which is not one of memory, but of the stacks that gdb shows.
    pub(crate) fn cell(&mut self, address: u64, length: usize) -> Option<Option<Vec<u8>>> {
        match self.user {
            Some(_) => None,
            None => self.stacks.cell(self.timeline.session(), self.told, (address, length)),
        }
    }

    /// Reads memory up to the first byte that is not there.
    pub(crate) fn read_memory(&self, address: u64, bytes: &mut [u8]) -> usize {
        if self.physical {
            let ram = self.session().core().ram();
            let end = ram
                .layout()
                .ranges()
                .find(|range| range.contains(&address))
                .map_or(address, |range| range.end);
            let left = usize::try_from(end - address).unwrap_or(usize::MAX).min(bytes.len());
            let Some(part) = bytes.get_mut(..left) else { return 0 };
            return if !part.is_empty() && ram.read(address, part) { left } else { 0 };
        }
        match (self.timeline.peek(address, bytes), &self.user) {
            // A program is read into memory as it is executed.
            (0, Some(_)) => files::read_mapped(self.session(), address, bytes),
            (read, _) => read,
        }
    }

    /// Applies what was done to this run at this position: gdb shows what it has written here.
    pub(crate) fn settle(&mut self) -> Result<(), TravelError> {
        if self.changed { self.timeline.take_due() } else { Ok(()) }
    }

    /// Whether there is a thread of this number.
    pub(crate) fn has_thread(&self, tid: NonZeroUsize) -> bool {
        self.threads().iter().any(|thread| thread.tid == tid)
    }

    /// Whether the kernel's modules are others than those that gdb was told.
    pub(crate) fn are_modules_new(&self) -> bool {
        self.user.is_none() && files::kernel_modules(self.session()) != self.modules
    }

    /// The stop points at which a module has been loaded and not run yet, or removed, in Linux.
    pub(crate) fn loading(&self) -> Vec<StopPoint> {
        let session = self.session();
        let linux = session.target().image().plan().linux.is_some() && self.user.is_none();
        let named = CHANGES.iter().filter(|_| linux).filter_map(|name| session.symbols().sole(name));
        named.map(|symbol| Timeline::breakpoint(symbol.addr)).collect()
    }

    /// Whether the kernel's modules are others than those that gdb was told, which it is then told.
    pub(crate) fn has_new_modules(&mut self) -> bool {
        if self.user.is_some() {
            return false;
        }
        let now = files::kernel_modules(self.session());
        let new = now != self.modules;
        self.modules = now;
        new
    }

    /// Carries out a line of `monitor`.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) fn monitor(&mut self, line: &str) -> Result<Said, String> {
        let said = self.command(line);
        self.cut_short = said.as_ref().is_err_and(|error| *error == TravelError::Interrupted.to_string());
        said
    }

    fn command(&mut self, line: &str) -> Result<Said, String> {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let rest = rest.trim();
        match (word, rest) {
            ("" | "help", _) => Ok(Said { lines: self.help() }),
            ("info", "") => Ok(Said { lines: self.info() }),
            ("at", position) => self.at(position),
            ("probe", clause) if !clause.is_empty() => self.add_probe(clause),
            ("probe", _) => {
                Err("probe: give a clause, such as `monitor probe fbt::do_fork:entry`".to_owned())
            }
            ("noprobe", "") => Ok(self.without_probes()),
            ("here", "") => Ok(self.stay()),
            ("console", _) => self.console(rest),
            ("digest", "") => Ok(Said { lines: vec![format!("digest {}", self.session().digest())] }),
            ("info" | "noprobe" | "here" | "digest", _) => Err(format!("`{word}` takes nothing after it")),
            _ => {
                let before = self.timeline.inputs_at();
                let said = self.commands.carry_out(&mut self.timeline, line);
                self.changed |= self.timeline.inputs_at() != before;
                self.cancel.store(false, Ordering::SeqCst);
                self.settle().map_err(|error| error.to_string())?;
                let note = self.stay_in_process()?;
                said.map(|said| Said { lines: said.lines.into_iter().chain(note).collect() })
            }
        }
    }

    fn help(&self) -> Vec<String> {
        let mut lines = [
            "at POSITION            go to a position: an instruction count, hit:N, end, end-N",
            "probe CLAUSE           stop at the hits of a probe, in the past too, as `catch` does",
            "noprobe                no longer stop at these probes",
            "here                   let the next command that runs the guest stay here, and show gdb this position",
            "info                   the position, the history, and the probes",
            "console [BYTES]        the last output of the guest",
            "digest                 the digest of the machine's state",
        ]
        .map(str::to_owned)
        .to_vec();
        lines.extend(self.commands.help());
        lines.push(
            "After a command that moves, `monitor here` and `reverse-stepi` show the new position in gdb."
                .to_owned(),
        );
        lines
    }

    fn info(&self) -> Vec<String> {
        let mut lines = self.timeline.place().lines();
        lines.extend(self.timeline.history_reply().lines());
        if let Some(user) = &self.user {
            lines.push(format!("process {}, in user mode only", user.tgid()));
        }
        lines.extend(self.probes.iter().map(|probe| format!("stops at hits of {}", probe.name)));
        lines
    }

    fn at(&mut self, position: &str) -> Result<Said, String> {
        let position: Position =
            position.parse().map_err(|error: trapline_session::PositionError| error.to_string())?;
        let went = self.timeline.goto(position).and_then(|_| self.settle());
        self.cancel.store(false, Ordering::SeqCst);
        went.map_err(|error| error.to_string())?;
        let note = self.stay_in_process()?;
        let mut lines = self.timeline.place().lines();
        lines.extend(note);
        Ok(Said { lines })
    }

    /// Where another process runs than the one that is debugged, gdb would take its registers and memory for those of that one:
    /// goes back to where that one ran last.
    fn stay_in_process(&mut self) -> Result<Option<String>, String> {
        let Some(user) = self.user.as_ref().filter(|user| !user.is_current(self.timeline.session().core()))
        else {
            return Ok(None);
        };
        let before = user.back(&mut self.timeline, None).map_err(|error| error.to_string())?;
        if !before {
            user.enter_at(&mut self.timeline, user.first()).map_err(|error| error.to_string())?;
        }
        let place = self.timeline.place().lines().join(" ");
        let side = if before { "it was last" } else { "it runs first" };
        Ok(Some(format!(
            "another process runs there; process {} is shown where {side}: {place}",
            user.tgid()
        )))
    }

    fn stay(&mut self) -> Said {
        self.stays = true;
        let line = "the next command that runs the guest stays here; `reverse-stepi` shows gdb this position";
        Said { lines: vec![line.to_owned()] }
    }

    fn console(&self, rest: &str) -> Result<Said, String> {
        let most = match rest {
            "" => CONSOLE,
            text => trapline_session::numbers::within(text, 1, 1 << 20).map_err(|error| error.to_string())?
                as usize,
        };
        let console = self.session().console();
        let last = console.get(console.len().saturating_sub(most)..).unwrap_or_default();
        let text = String::from_utf8_lossy(last);
        Ok(Said { lines: text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect() })
    }

    /// Adds a probe. Of a run that was not changed, its past has it too.
    fn add_probe(&mut self, clause: &str) -> Result<Said, String> {
        if self.changed {
            let command = self.commands.probe(clause)?;
            self.timeline.apply(command).map_err(|error| error.to_string())?;
            let name = last_program(&mut self.timeline).unwrap_or_else(|| clause.to_owned());
            let line = format!(
                "stops at hits of {name} from here on: the run was changed, so its past has no new probes"
            );
            let point = self.timeline.firings_of(&name).map_err(|error| error.to_string())?;
            self.probes.push(Probe { clause: clause.to_owned(), name, point });
            return Ok(Said { lines: vec![line] });
        }
        let mut clauses: Vec<String> = self.probes.iter().map(|probe| probe.clause.clone()).collect();
        clauses.push(clause.to_owned());
        self.set_probes(clauses)?;
        let name = self.probes.last().map(|probe| probe.name.as_str()).unwrap_or_default();
        Ok(Said { lines: vec![format!("stops at hits of {name}")] })
    }

    /// The programs stay: they only observe, and to take them out of the past, the run would have to be repeated.
    fn without_probes(&mut self) -> Said {
        self.probes.clear();
        Said { lines: vec!["stops at no probes any more".to_owned()] }
    }

    /// Makes the same run with these probes, and goes to the same state.
    fn set_probes(&mut self, clauses: Vec<String>) -> Result<(), String> {
        let here = self.session().moment();
        let (timeline, names) = self.commands.with_probes(&clauses)?;
        let mut other = timeline.cancelled_by(Arc::clone(&self.cancel));
        let gone = |other: &mut Timeline| -> Result<(), TravelError> {
            other.goto(Position::At { icount: here.icount, ordinal: 0 })?;
            while other.session().moment() < here && other.session().icount() == here.icount {
                if let Arrival::End(_) = other.next_state()? {
                    break;
                }
            }
            Ok(())
        };
        let went = gone(&mut other).map_err(|error| error.to_string());
        self.cancel.store(false, Ordering::SeqCst);
        went?;
        // It is the same run, with the same end.
        if let Some((end, ending)) = self.timeline.end() {
            other.ends_at(end, ending);
        }
        let probe = |(clause, name): (String, String)| {
            let point = other.firings_of(&name).map_err(|error| error.to_string())?;
            Ok(Probe { clause, name, point })
        };
        self.probes = clauses.into_iter().zip(names).map(probe).collect::<Result<_, String>>()?;
        self.timeline = other;
        Ok(())
    }
}

/// The name of the program that was inserted last.
fn last_program(timeline: &mut Timeline) -> Option<String> {
    match timeline.apply(Command::Query).ok()?.reply {
        Reply::Query { programs, .. } => programs.last().map(|program| program.name.clone()),
        _ => None,
    }
}
