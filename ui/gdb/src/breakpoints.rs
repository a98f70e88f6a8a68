//! The breakpoints that gdb has set, with the conditions that it leaves to the server.

use std::rc::Rc;

use trapline_emu::Core;
use trapline_session::Accept;

use crate::condition::{self, Expression};
use crate::registers::Registers;
use crate::stops::Breakpoint;

/// Most breakpoints.
const MOST: usize = 1024;
/// The longest range of memory that is watched.
const LONGEST: u64 = 1 << 20;

/// See the module.
#[derive(Default)]
pub struct Breakpoints {
    set: Vec<(Breakpoint, Rc<[Expression]>)>,
    /// The conditions of the next one.
    coming: Vec<Expression>,
}

impl Breakpoints {
    /// The next breakpoint that is set has these conditions.
    pub fn expect(&mut self, conditions: Vec<Expression>) {
        self.coming = conditions;
    }

    /// Sets a breakpoint, or sets it with other conditions; false if that is not possible.
    pub fn add(&mut self, breakpoint: Breakpoint) -> bool {
        let conditions: Rc<[Expression]> = std::mem::take(&mut self.coming).into();
        if let Some((_, known)) = self.set.iter_mut().find(|(known, _)| *known == breakpoint) {
            *known = conditions;
            return true;
        }
        let fits = self.set.len() < MOST && (1..=LONGEST).contains(&breakpoint.length);
        if fits {
            self.set.push((breakpoint, conditions));
        }
        fits
    }

    /// Removes a breakpoint; false if there is no such one.
    pub fn remove(&mut self, breakpoint: Breakpoint) -> bool {
        let before = self.set.len();
        self.set.retain(|(known, _)| *known != breakpoint);
        self.set.len() < before
    }

    /// Removes all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// All, in the order of their stop points.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Breakpoint> {
        self.set.iter().map(|(breakpoint, _)| breakpoint)
    }

    /// That on the execution of the instruction at this linear address which stops the run here.
    pub fn on(&self, address: u64, core: &Core, registers: &Registers) -> Option<Breakpoint> {
        let here = self.set.iter().filter(|(own, _)| own.executes() && own.address == address);
        let stops = |when: &[Expression]| when.is_empty() || condition::stops(when, core, registers);
        here.filter(|(_, when)| stops(when)).map(|(own, _)| *own).next()
    }

    /// What their stop points accept, where `others` accepts them all.
    pub fn accept(&self, others: Option<Accept>, registers: &Rc<Registers>) -> Option<Accept> {
        if self.set.iter().all(|(_, when)| when.is_empty()) {
            return others;
        }
        let conditions: Vec<_> = self.set.iter().map(|(_, when)| Rc::clone(when)).collect();
        let registers = Rc::clone(registers);
        Some(Rc::new(move |core: &Core, point| {
            let when = conditions.get(point).filter(|when| !when.is_empty());
            others.as_ref().is_none_or(|others| others(core, point))
                && when.is_none_or(|when| condition::stops(when, core, &registers))
        }))
    }
}
