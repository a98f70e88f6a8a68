//! A run with an operator: slices that skip only as much idle time as the operator allows, and input between them.

use trapline_emu::{Moment, Stop};

use super::{Deed, Observer, Operator, Session};
use crate::commands::Command;
use crate::ending::{Condition, Ending, Limits};
use crate::script::Script;

impl Session {
    /// As [`Session::run`], with an operator at the guest's console.
    ///
    /// ```
    /// use trapline_session::{
    ///     Condition, Deed, Ending, GuestBuilder, Limits, Operator, Observer, Script,
    /// };
    ///
    /// /// Leaves when the guest is asked for the third time.
    /// struct Third(u32);
    ///
    /// impl Operator for Third {
    ///     fn deeds(&mut self) -> Vec<Deed> {
    ///         self.0 += 1;
    ///         if self.0 == 3 { vec![Deed::Leave] } else { Vec::new() }
    ///     }
    ///
    ///     fn idle(&mut self, ns: Option<u64>) -> u64 {
    ///         ns.unwrap_or(0)
    ///     }
    /// }
    ///
    /// struct Nothing;
    ///
    /// impl Observer for Nothing {
    ///     type Error = std::convert::Infallible;
    /// }
    ///
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    /// let (mut script, mut third) = (Script::default(), Third(0));
    /// let Ok(ending) =
    ///     session.run_attended(&mut script, &Condition::end(), &Limits::none(), &mut Nothing, &mut third);
    /// assert_eq!(ending, Ending::Left);
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    ///
    /// # Errors
    /// The observer's.
    pub fn run_attended<O: Observer>(
        &mut self,
        script: &mut Script,
        condition: &Condition,
        limits: &Limits,
        observer: &mut O,
        operator: &mut dyn Operator,
    ) -> Result<Ending, O::Error> {
        self.run_whole(script, condition, limits, observer, Some(operator))
    }

    /// A slice that does not skip more idle time than the operator allows.
    pub(super) fn attended_slice<O: Observer>(
        &mut self,
        limit: u64,
        observer: &mut O,
        operator: &mut dyn Operator,
    ) -> Result<(Stop, bool), O::Error> {
        self.machine.core_mut().stop_when_idle(true);
        let (stop, whole) = self.slice(limit, None);
        self.machine.core_mut().stop_when_idle(false);
        let Stop::Idle(ns) = stop else { return Ok((stop, whole)) };
        self.show_console(observer)?;
        let here = self.machine.moment();
        let waited = operator.idle(ns);
        let passed = ns.map_or(waited, |ns| waited.min(ns));
        if passed == 0 {
            return Ok((Stop::Limit, false));
        }
        let until = Moment { virtual_ns: here.virtual_ns.saturating_add(passed), ..here };
        Ok(self.slice(limit, Some(until)))
    }

    /// Carries out the operator's deeds; returns the ending if they end the run.
    pub(super) fn attend<O: Observer>(
        &mut self,
        observer: &mut O,
        operator: &mut dyn Operator,
    ) -> Result<Option<Ending>, O::Error> {
        let deeds = operator.deeds();
        // A replay stops at each input, and takes the pending records.
        if deeds.iter().any(|deed| *deed != Deed::Save) {
            self.pass_on(observer)?;
        }
        for deed in deeds {
            let command = match deed {
                Deed::Type(line, bytes) => Command::Type { line, bytes },
                Deed::Nmi => Command::Nmi,
                Deed::Save => {
                    operator.saved(&self.save());
                    continue;
                }
                Deed::Leave => return Ok(Some(Ending::Left)),
            };
            match self.apply(command) {
                Ok(reply) => observer.reply(&reply)?,
                Err(error) => operator.refused(&error),
            }
        }
        Ok(None)
    }
}
