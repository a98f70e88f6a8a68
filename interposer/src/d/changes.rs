//! The destructive actions of D: they change the guest's memory or its time, or end the run.

use super::{Failure, Runtime, World, bad_address, thrown};
use trapline_rpn::services::d::{Function, fault};
use trapline_rpn::{CallkError, CallkStack};

/// Most bytes that `copyout()` copies at once.
const MOST_COPIED: u64 = 1 << 20;
/// Nanoseconds for which `chill()` may let the guest wait within `CHILL_INTERVAL`, as in DTrace.
const MOST_CHILLED: u64 = 500_000_000;
const CHILL_INTERVAL: u64 = 1_000_000_000;

impl Runtime {
    /// Calls a destructive action: its number is on top, its arguments under it.
    pub(super) fn change(
        &mut self,
        stack: &mut dyn CallkStack,
        world: &mut dyn World,
    ) -> Result<(), Failure> {
        self.hot.left = true;
        match Function::from_number(stack.pop()).ok_or(CallkError::Unknown)? {
            Function::Copyout => {
                let (size, to, from) = (stack.pop(), stack.pop(), stack.pop());
                let size = usize::try_from(size).ok().filter(|size| *size as u64 <= MOST_COPIED);
                let mut bytes = vec![0; size.ok_or_else(|| bad_address(to))?];
                self.fetch(from, &mut bytes, world)?;
                world.write(to, &bytes).map_err(bad_address)?;
            }
            Function::Copyoutstr => {
                let (size, to, from) = (stack.pop(), stack.pop(), stack.pop());
                let mut text = self.text(from, world)?;
                text.push(0);
                text.truncate(usize::try_from(size).unwrap_or(usize::MAX));
                world.write(to, &text).map_err(bad_address)?;
            }
            Function::Chill => {
                let ns = stack.pop();
                self.chill(ns, world)?;
            }
            Function::Breakpoint => world.end(false),
            Function::Panic => world.end(true),
            _ => return Err(CallkError::Unknown),
        }
        stack.push(0);
        Ok(())
    }

    fn chill(&mut self, ns: u64, world: &mut dyn World) -> Result<(), Failure> {
        let now = world.now();
        if now.saturating_sub(self.chilled.0) > CHILL_INTERVAL {
            self.chilled = (now, 0);
        }
        let total = self.chilled.1.checked_add(ns).filter(|total| *total <= MOST_CHILLED);
        self.chilled.1 = total.ok_or_else(|| thrown(fault::OPERATION, 0))?;
        world.pass_time(ns);
        Ok(())
    }
}
