//! What the guest does after a handler: it runs on for a number of instructions, and is compared with its twin without probes.
//!
//! What the handlers of the hit write goes to the guest. If they write at all, what they see must be so in the guest: the registers and the
//! memory that differ are put there, and into the twin's guest. A handler that writes nothing sees the differences alone; its twin
//! does not depend on them, so there is one for each real hit.

use trapline_interposer::{Word, all_writable, is_writable};
use trapline_session::{
    AlteredRun, CodePointer, Command, CommandError, Condition, Difference, Ending, Limits, SavedSession,
    Session,
};

use crate::error::FuzzError;
use crate::hits::Hits;

/// What was different after a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aftermath {
    /// Nothing.
    Same,
    /// The guest is in another state.
    Differs,
    /// The guest has crashed: where.
    Crashed(String),
}

/// The differences of a run of a handler: those that are put into the guest, and those that the handler alone sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// General registers, and memory that the guest can write.
    pub put: Vec<Difference>,
    /// The others.
    pub seen: Vec<Difference>,
}

impl Parts {
    /// What only the handler sees.
    #[must_use]
    pub fn seen(differences: &[Difference]) -> Self {
        Self { put: Vec::new(), seen: differences.to_vec() }
    }

    /// Those of the hit at which the session is.
    fn of(session: &Session, differences: &[Difference]) -> Self {
        let core = session.core();
        let (put, seen) = differences.iter().cloned().partition(|difference| match difference {
            Difference::Word { what: Word::Register { user: false, register }, .. } => {
                register.gpr_number().is_some()
            }
            Difference::Memory { address, bytes } => {
                all_writable(*address, bytes.len(), |at| is_writable(core, at)).is_ok()
            }
            _ => false,
        });
        Self { put, seen }
    }
}

/// See the module.
pub struct After {
    insns: u64,
    /// For each hit, the twin at the end; `None` if it does not get there.
    twins: Vec<Option<Option<SavedSession>>>,
    /// For each hit, the guest there without probes.
    bare: Vec<Option<SavedSession>>,
}

impl After {
    /// So many instructions after each hit.
    #[must_use]
    pub fn new(insns: u64) -> Self {
        Self { insns, twins: Vec::new(), bare: Vec::new() }
    }

    /// How many instructions.
    #[must_use]
    pub fn insns(&self) -> u64 {
        self.insns
    }

    /// The parts of the differences at a hit, for a handler that writes or does not.
    ///
    /// # Errors
    /// The machine cannot be brought to the hit.
    pub fn parts(
        hits: &mut Hits,
        number: usize,
        differences: &[Difference],
        writes: bool,
    ) -> Result<Parts, FuzzError> {
        if !writes || differences.is_empty() {
            return Ok(Parts::seen(differences));
        }
        hits.go_to(number)?;
        Ok(Parts::of(&hits.session, differences))
    }

    /// Runs the handler of a hit with differences, and the guest on. The handler is known to write, or not to.
    ///
    /// # Errors
    /// The machine cannot be brought to the hit.
    pub fn run(
        &mut self,
        hits: &mut Hits,
        number: usize,
        differences: &[Difference],
        writes: bool,
    ) -> Result<Aftermath, FuzzError> {
        let Parts { put, seen } = Self::parts(hits, number, differences, writes)?;
        let own = if put.is_empty() {
            self.know_twin(hits, number)?;
            None
        } else {
            let Some(own) = self.twin_with(hits, number, &put)? else { return Ok(Aftermath::Same) };
            Some(own)
        };
        let twin = own.as_ref().or_else(|| self.twins.get(number)?.as_ref()?.as_ref());
        let Some(twin) = twin else { return Ok(Aftermath::Same) };
        hits.go_to(number)?;
        hits.leave();
        let Some(hit) = hits.list.get(number) else { return Ok(Aftermath::Same) };
        if !put.is_empty() {
            hits.session.apply(Command::Put { values: put })?;
        }
        for command in alter(hit.altered(&seen, true)) {
            hits.session.apply(command)?;
        }
        let limits = Limits::insns(hit.icount.saturating_add(self.insns));
        let ending = hits.session.run_until(&Condition::end(), &limits);
        Ok(match ending {
            Ending::Limit if hits.session.guest_is_in(twin) => Aftermath::Same,
            Ending::Limit => Aftermath::Differs,
            Ending::Halted | Ending::Reset(_) | Ending::PoweredOff => Aftermath::Crashed(place(hits)),
            other if other.is_crash() => Aftermath::Crashed(place(hits)),
            // A handler has ended the run.
            _ => Aftermath::Same,
        })
    }

    /// Makes the twin of a hit known.
    fn know_twin(&mut self, hits: &mut Hits, number: usize) -> Result<(), FuzzError> {
        if self.twins.len() <= number {
            self.twins.resize(number + 1, None);
        }
        if self.twins.get(number).is_some_and(Option::is_none) {
            let twin = self.twin_with(hits, number, &[])?;
            if let Some(place) = self.twins.get_mut(number) {
                *place = Some(twin);
            }
        }
        Ok(())
    }

    /// The guest without probes, with these differences in it, after the instructions; `None` if it does not get there.
    fn twin_with(
        &mut self,
        hits: &mut Hits,
        number: usize,
        put: &[Difference],
    ) -> Result<Option<SavedSession>, FuzzError> {
        self.go_to_bare(hits, number)?;
        if !put.is_empty() {
            match hits.session.apply(Command::Put { values: put.to_vec() }) {
                Ok(_) => {}
                Err(CommandError::NotWritable(_) | CommandError::NotPut(_)) => return Ok(None),
                Err(other) => return Err(other.into()),
            }
        }
        let icount = hits.list.get(number).map_or(0, |hit| hit.icount);
        let limits = Limits::insns(icount.saturating_add(self.insns));
        let ending = hits.session.run_until(&Condition::end(), &limits);
        Ok((ending == Ending::Limit).then(|| hits.session.snapshot()))
    }

    /// Brings the machine to a hit, without any probe.
    fn go_to_bare(&mut self, hits: &mut Hits, number: usize) -> Result<(), FuzzError> {
        if let Some(bare) = self.bare.get(number).and_then(Option::as_ref) {
            hits.leave();
            return Ok(hits.session.restore(bare)?);
        }
        hits.go_to(number)?;
        hits.leave();
        let session = &mut hits.session;
        let programs = session.interposer().map(|i| i.programs()).unwrap_or_default();
        let names: Vec<String> = programs.iter().map(|program| program.name.to_owned()).collect();
        for name in names {
            session.apply(Command::Remove { name })?;
        }
        if self.bare.len() <= number {
            self.bare.resize(number + 1, None);
        }
        if let Some(place) = self.bare.get_mut(number) {
            *place = Some(session.snapshot());
        }
        Ok(())
    }
}

/// The commands that alter runs, one for each program.
pub(crate) fn alter(runs: impl IntoIterator<Item = (String, AlteredRun)>) -> Vec<Command> {
    let mut programs: Vec<(String, Vec<AlteredRun>)> = Vec::new();
    for (name, run) in runs {
        match programs.iter_mut().find(|(own, _)| *own == name) {
            Some((_, all)) => all.push(run),
            None => programs.push((name, vec![run])),
        }
    }
    programs.into_iter().map(|(name, runs)| Command::Alter { name, runs }).collect()
}

/// Where the guest is.
fn place(hits: &Hits) -> String {
    let ip = hits.session.core().linear_ip();
    hits.session.symbol_of(CodePointer::At(ip)).unwrap_or_else(|| "unknown code".to_owned())
}
