//! What the guest does after a handler: it runs on for a number of instructions, and is compared with its twin without probes.
//!
//! The handler sees the differences of the state, and what it writes goes to the guest. The twin does not depend on the
//! differences, so there is one for each real hit.

use trapline_session::{AlteredRun, Command, Condition, Difference, Ending, Limits, SavedSession};

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

/// See the module.
pub struct After {
    insns: u64,
    /// For each hit, the twin at the end; `None` if it does not get there.
    twins: Vec<Option<Option<SavedSession>>>,
}

impl After {
    /// So many instructions after each hit.
    #[must_use]
    pub fn new(insns: u64) -> Self {
        Self { insns, twins: Vec::new() }
    }

    /// How many instructions.
    #[must_use]
    pub fn insns(&self) -> u64 {
        self.insns
    }

    /// Runs the handler of a hit with differences, and the guest on.
    ///
    /// # Errors
    /// The machine cannot be brought to the hit.
    pub fn run(
        &mut self,
        hits: &mut Hits,
        number: usize,
        differences: &[Difference],
    ) -> Result<Aftermath, FuzzError> {
        if self.twin(hits, number)?.is_none() {
            return Ok(Aftermath::Same);
        }
        hits.go_to(number)?;
        hits.leave();
        let Some(hit) = hits.list.get(number) else { return Ok(Aftermath::Same) };
        let altered =
            AlteredRun { point: hit.point, run: hit.run, differences: differences.to_vec(), through: true };
        hits.session.apply(Command::Alter { name: hit.name.clone(), runs: vec![altered] })?;
        let limits = Limits::insns(hit.icount.saturating_add(self.insns));
        let ending = hits.session.run_until(&Condition::end(), &limits);
        let twin = self.twins.get(number).and_then(Option::as_ref).and_then(Option::as_ref);
        Ok(match ending {
            Ending::Limit if twin.is_none_or(|twin| hits.session.guest_is_in(twin)) => Aftermath::Same,
            Ending::Limit => Aftermath::Differs,
            Ending::Halted | Ending::Reset(_) | Ending::PoweredOff => Aftermath::Crashed(place(hits)),
            other if other.is_crash() => Aftermath::Crashed(place(hits)),
            // A handler has ended the run.
            _ => Aftermath::Same,
        })
    }

    /// The twin of a hit.
    fn twin(&mut self, hits: &mut Hits, number: usize) -> Result<Option<&SavedSession>, FuzzError> {
        if self.twins.len() <= number {
            self.twins.resize(number + 1, None);
        }
        if self.twins.get(number).is_some_and(Option::is_none) {
            hits.go_to(number)?;
            hits.leave();
            let session = &mut hits.session;
            let programs = session.interposer().map(|i| i.programs()).unwrap_or_default();
            let names: Vec<String> = programs.iter().map(|program| program.name.to_owned()).collect();
            for name in names {
                session.apply(Command::Remove { name })?;
            }
            let icount = hits.list.get(number).map_or(0, |hit| hit.icount);
            let limits = Limits::insns(icount.saturating_add(self.insns));
            let ending = session.run_until(&Condition::end(), &limits);
            let twin = (ending == Ending::Limit).then(|| session.snapshot());
            if let Some(place) = self.twins.get_mut(number) {
                *place = Some(twin);
            }
        }
        Ok(self.twins.get(number).and_then(Option::as_ref).and_then(Option::as_ref))
    }
}

/// Where the guest is.
fn place(hits: &Hits) -> String {
    let ip = hits.session.core().linear_ip();
    hits.session.symbol_of(ip).unwrap_or_else(|| "unknown code".to_owned())
}
