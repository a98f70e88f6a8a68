//! Runs that are followed block by block: what a search over runs of the guest learns from.

use trapline_emu::Stop;

use super::Session;
use super::run::Keep;
use super::scout::{Errand, Follower};
use crate::ending::{Condition, Ending, Limits};
use crate::script::Script;
use trapline_interposer::Interposer;

impl Session {
    /// Runs on as [`Session::run_until`], with a follower who is told each block, and drops the records. `None` if the follower
    /// has ended the run. What the guest does is the same.
    pub fn run_followed(
        &mut self,
        condition: &Condition,
        limits: &Limits,
        follower: &mut dyn Follower,
    ) -> Option<Ending> {
        self.watch_console(condition, &Script::default());
        loop {
            let (stop, _) = self.slice_through(limits.icount, None, Some(Errand::Follow(&mut *follower)));
            let Ok(()) = self.pass_on(&mut Keep::default());
            let by_handler = self.interposer.as_ref().is_some_and(Interposer::stopped_by_handler);
            if stop == Stop::Requested && !by_handler {
                return None;
            }
            if !self.goes_on(&stop, condition, limits) {
                return Some(self.why_ended(stop, condition));
            }
            if limits.cancelled() {
                return Some(Ending::Interrupted);
            }
        }
    }
}
