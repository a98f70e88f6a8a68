//! One process of the guest, as gdb expects a user program: its states are those in which it runs in user mode.

use std::cell::Cell;
use std::rc::Rc;

use trapline_emu::Core;
use trapline_os::OsProfile;
use trapline_providers::TargetProcess;
use trapline_session::{
    Accept, Arrival, Found, Position, Ran, Returning, Session, StopPoint, Timeline, TravelError,
};

/// The function of the kernel in which a task ends, in Linux and in Trapline's own guests.
const EXIT: &str = "do_exit";
/// Most page faults before the first instruction.
const MOST_FAULTS: u32 = 8;

/// Why there is no process to debug.
#[derive(Debug, thiserror::Error)]
pub enum NoProcess {
    /// The guest's system is not known.
    #[error(
        "--user: the guest's processes are not known; only those of Linux and of the embedded guests are"
    )]
    NoProfile,
    /// It did not run.
    #[error(
        "--user {0}: no such process runs in user mode before the run ends; `trapline list IMAGE --processes` lists those at a position"
    )]
    Absent(TargetProcess),
    /// The run cannot be followed.
    #[error(transparent)]
    Travel(#[from] TravelError),
}

/// The process.
pub struct User {
    /// Its number.
    tgid: u32,
    profile: Rc<dyn OsProfile>,
    /// The address of [`EXIT`].
    exit: Option<u64>,
    /// The instruction count at which it first runs in user mode.
    first: u64,
}

/// Whether the current process is this one: by its name, it has executed a program since it was forked.
fn is(who: &TargetProcess, core: &Core, profile: &dyn OsProfile) -> bool {
    let executable = || profile.executable(core, profile.current_task(core));
    match who {
        TargetProcess::Pid(pid) => profile.tgid(core) == *pid,
        TargetProcess::Path(path) => executable().as_ref() == Some(path),
        TargetProcess::Name(name) => {
            let mut task = Vec::new();
            profile.name_into(core, &mut task);
            let by_path = || executable().is_some_and(|path| path.rsplit('/').next() == Some(name));
            !profile.is_forked(core) && (task == name.as_bytes() || by_path())
        }
    }
}

impl User {
    /// Goes to the first state of a process in user mode.
    ///
    /// # Errors
    /// It does not run.
    pub fn find(timeline: &mut Timeline, who: &TargetProcess) -> Result<Self, NoProcess> {
        let profile: Rc<dyn OsProfile> = timeline.session().profile().ok_or(NoProcess::NoProfile)?.into();
        let exit = timeline.session().symbols().sole(EXIT).map(|symbol| symbol.addr);
        let (wanted, reader) = (who.clone(), Rc::clone(&profile));
        let accept: Accept = Rc::new(move |core: &Core, _| is(&wanted, core, reader.as_ref()));
        match timeline.run_on(&[StopPoint::UserMode], Some(&accept))? {
            Ran::Met(met) => {
                let tgid = profile.tgid(timeline.session().core());
                let mut user = Self { tgid, profile, exit, first: met.at.icount };
                user.await_code(timeline)?;
                Ok(user)
            }
            Ran::End(_) => Err(NoProcess::Absent(who.clone())),
            Ran::Interrupted(_) => Err(TravelError::Interrupted.into()),
        }
    }

    /// Goes on until the first instruction is in memory: a program is read when it is executed.
    fn await_code(&mut self, timeline: &mut Timeline) -> Result<(), TravelError> {
        for _ in 0..MOST_FAULTS {
            let core = timeline.session().core();
            if core.peek_prefix(core.linear_ip(), &mut [0]) > 0 {
                break;
            }
            timeline.next_state()?;
            timeline.run_on(&[StopPoint::UserMode], Some(&self.accept()))?;
            self.first = timeline.session().icount();
        }
        Ok(())
    }

    /// Its number.
    pub fn tgid(&self) -> u32 {
        self.tgid
    }

    /// The instruction count at which it first runs in user mode.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Whether the process runs in user mode.
    pub fn runs(&self, core: &Core) -> bool {
        core.env().cpl() == 3 && self.profile.tgid(core) == self.tgid
    }

    /// Whether the process runs, in user mode or in the kernel.
    pub fn is_current(&self, core: &Core) -> bool {
        self.profile.tgid(core) == self.tgid
    }

    /// Whether the process is about to end.
    pub fn ends(&self, session: &Session) -> bool {
        let core = session.core();
        self.exit == Some(core.linear_ip()) && self.profile.pid(core) == self.tgid
    }

    /// Where the process ends, if that is known.
    pub fn exit(&self) -> Option<StopPoint> {
        self.exit.map(Timeline::breakpoint)
    }

    /// The states in which the process runs in user mode, and that in which it is about to end.
    pub fn accept(&self) -> Accept {
        let (tgid, profile, exit) = (self.tgid, Rc::clone(&self.profile), self.exit);
        Rc::new(move |core: &Core, _| match core.env().cpl() {
            3 => profile.tgid(core) == tgid,
            _ => exit == Some(core.linear_ip()) && profile.pid(core) == tgid,
        })
    }

    /// What tells the number of the running thread, if it is one of this process.
    pub fn thread(&self) -> impl Fn(&Core) -> Option<u32> + use<> {
        let (tgid, profile) = (self.tgid, Rc::clone(&self.profile));
        move |core| (profile.tgid(core) == tgid).then(|| profile.pid(core))
    }

    /// What notes the instruction count of the last return of the process to user mode, and where it is noted.
    pub fn noting(&self, from: u64) -> (Returning, Rc<Cell<u64>>) {
        let last = Rc::new(Cell::new(from));
        let (tgid, profile, noted) = (self.tgid, Rc::clone(&self.profile), Rc::clone(&last));
        let returning = move |core: &Core| {
            if profile.tgid(core) == tgid {
                noted.set(core.icount());
            }
        };
        (Box::new(returning), last)
    }

    /// Goes back to the last state in which the process runs in user mode; false if there is none. `known` is the
    /// instruction count of its last return there, if that is known: a search for it repeats all that came after it.
    ///
    /// # Errors
    /// The run cannot be followed.
    pub fn back(&self, timeline: &mut Timeline, known: Option<u64>) -> Result<bool, TravelError> {
        if self.runs(timeline.session().core()) {
            return Ok(true);
        }
        let here = timeline.session().icount();
        let is_known = match known {
            Some(count) => self.enter_at(timeline, count)?,
            None => false,
        };
        if !is_known {
            timeline.goto(Position::At { icount: here, ordinal: 0 })?;
            let found = timeline.reverse_on(&[StopPoint::UserMode], Some(&self.accept()))?;
            if found == Found::Nothing {
                return Ok(false);
            }
        }
        // From its last return to user mode on, the process runs there until it leaves it once, mostly soon.
        let (mut low, mut high, mut step) = (timeline.session().icount(), here, 1);
        while high.saturating_sub(low) > 1 {
            let middle = (low + step).min(low + (high - low) / 2);
            timeline.goto(Position::At { icount: middle, ordinal: 0 })?;
            match self.runs(timeline.session().core()) {
                true => (low, step) = (middle, step.saturating_mul(2)),
                false => high = middle,
            }
        }
        self.enter_at(timeline, low)
    }

    /// Goes to the first state of an instruction count in which the process runs in user mode; false if there is none.
    ///
    /// # Errors
    /// The run cannot be followed.
    pub fn enter_at(&self, timeline: &mut Timeline, icount: u64) -> Result<bool, TravelError> {
        timeline.goto(Position::At { icount, ordinal: 0 })?;
        // The first state with this count may precede the return.
        while !self.runs(timeline.session().core()) && timeline.session().icount() == icount {
            if let Arrival::End(_) = timeline.next_state()? {
                break;
            }
        }
        Ok(self.runs(timeline.session().core()))
    }
}
