//! Follows a call of a guest's function: the edges between its blocks, what it compares, exceptions, its return.

use trapline_emu::{Core, Operands};
use trapline_session::Follower;

use crate::deaths::{Death, Deaths};
use crate::patience::Patience;
use crate::returns::Returns;
use crate::watch::Coverage;

/// The vector of #PF.
const PAGE_FAULT: u8 = 14;
/// Most comparisons that are noted.
const MOST_OPERANDS: usize = 4096;
/// Most bytes of arguments that a return takes from the stack.
const MOST_POPPED: u64 = 1024;

/// Where a function returns to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Back {
    /// The linear address.
    pub ip: u64,
    /// The stack pointer at the function's first instruction, where the return address is.
    pub sp: u64,
}

impl Back {
    /// Of the function at whose first instruction the machine is.
    #[must_use]
    pub fn of(core: &Core) -> Option<Self> {
        let env = core.env();
        let mut word = [0; 8];
        let size = if env.code64() { 8 } else { 4 };
        let sp = env.gpr(4);
        core.peek(core.wrap_linear(core.stack().linear(sp)), word.get_mut(..size)?).ok()?;
        let ip = core.wrap_linear(env.cs_base().wrapping_add(u64::from_le_bytes(word)));
        Some(Self { ip, sp })
    }

    /// Whether the function has returned: the block at its return address is next, and its frame is gone.
    fn is_here(self, core: &Core, at: u64) -> bool {
        // Where CS has a base, the engine's addresses exceed 32 bits.
        core.wrap_linear(at) == self.ip && self.is_gone(core)
    }

    /// Whether the function's frame is gone.
    fn is_gone(self, core: &Core) -> bool {
        (1..=MOST_POPPED).contains(&core.env().gpr(4).wrapping_sub(self.sp))
    }
}

/// An exception of the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exception {
    /// The instruction.
    pub at: u64,
    /// The block of a function that began before it.
    pub before: u64,
    /// The instruction count.
    pub icount: u64,
    /// The stack pointer.
    sp: u64,
}

/// See the module.
pub struct Steps<'a> {
    coverage: &'a mut Coverage,
    operands: Option<&'a mut Vec<Operands>>,
    back: Option<Back>,
    ring: Option<u8>,
    /// The block that began last.
    last: u64,
    /// The last one that is not in the kernel's data.
    pub last_code: u64,
    /// The exception that the guest is handling: the first of those that are nested. What its handler runs into is not where the
    /// mistake is.
    pub fault: Option<Exception>,
    /// Where the kernel has fetched although there is no code, which has ended the run.
    pub no_code: Option<u64>,
    /// Whether the kernel maps some of its code when it is fetched, so that such a fetch is nothing.
    pub maps_code: bool,
    /// Where the kernel says that something is wrong.
    deaths: &'a Deaths,
    returns: &'a mut Returns,
    /// The block that has returned to where no call was: the first one.
    pub lost: Option<u64>,
    /// What it has said, which has ended the run.
    pub death: Option<Death>,
    /// Whether what it says now is known, and the run goes on.
    passes: bool,
    /// What ends the call in its midst.
    patience: Option<&'a Patience>,
    /// Whether it has.
    pub is_over: bool,
}

impl<'a> Steps<'a> {
    /// Slots for edges.
    const EDGES: usize = 1 << 13;
    /// Slots for comparisons: each uses one for each number of equal low bits.
    const COMPARISONS: usize = 1 << 13;
    /// Slots in the map.
    pub const SLOTS: usize = Self::EDGES + Self::COMPARISONS + crate::watch::LENGTHS;

    /// Follows a call that returns there.
    pub fn new(
        coverage: &'a mut Coverage,
        back: Option<Back>,
        operands: Option<&'a mut Vec<Operands>>,
        (deaths, returns): (&'a Deaths, &'a mut Returns),
        patience: Option<&'a Patience>,
    ) -> Self {
        let (no_code, maps_code, is_over) = (None, false, false);
        Self {
            coverage,
            operands,
            back,
            ring: None,
            last: 0,
            last_code: 0,
            fault: None,
            no_code,
            maps_code,
            deaths,
            returns,
            lost: None,
            death: None,
            passes: false,
            patience,
            is_over,
        }
    }

    /// Goes on behind what the kernel has said.
    pub fn pass(&mut self) {
        self.death = None;
        self.passes = true;
    }

    fn compare(&mut self, operands: Operands) {
        let equal = u64::from((operands.one ^ operands.other).trailing_zeros().min(64));
        let slot = mix(self.last.wrapping_mul(67).wrapping_add(equal)) as usize % Self::COMPARISONS;
        self.coverage.count(Self::EDGES + slot);
        if let Some(noted) = &mut self.operands
            && noted.len() < MOST_OPERANDS
            && operands.one != operands.other
        {
            noted.push(operands);
        }
    }
}

/// Spreads an address over all bits.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ value >> 32
}

impl Follower for Steps<'_> {
    #[inline]
    fn block(&mut self, core: &Core, at: u64, whole: bool) -> bool {
        if self.no_code.is_some() || self.back.is_some_and(|back| back.is_here(core, at)) {
            return false;
        }
        if self.patience.is_some_and(Patience::is_over) {
            self.is_over = true;
            return false;
        }
        self.death = self.deaths.begins(core, at).filter(|_| !std::mem::take(&mut self.passes));
        if self.death.is_some() {
            return false;
        }
        if self.fault.is_some_and(|fault| fault.sp == core.env().gpr(4)) {
            // Its handler has returned.
            self.fault = None;
        }
        let ring = core.env().cpl();
        // What programs do meanwhile is not what the function does.
        if !whole || *self.ring.get_or_insert(ring) != ring {
            return true;
        }
        if self.lost.is_none() && self.last != 0 {
            let is_lost =
                self.back.is_some_and(|back| back.is_gone(core)) || self.returns.is_lost(core, self.last, at);
            self.lost = is_lost.then_some(self.last);
        }
        let edge = mix(self.last.rotate_left(17) ^ at) as usize % Self::EDGES;
        self.coverage.count(edge);
        if self.last != 0
            && let Some(operands) = core.env().compared()
        {
            self.compare(operands);
        }
        self.last = at;
        if !self.deaths.is_data(at) {
            self.last_code = at;
        }
        true
    }

    fn exception(&mut self, core: &Core, vector: u8, at: u64) {
        // Neither debug exceptions nor software interrupts.
        if vector < 32 && !matches!(vector, 1..=3) {
            let env = core.env();
            let fault = Exception { at, before: self.last_code, icount: core.icount(), sp: env.gpr(4) };
            self.fault.get_or_insert(fault);
            if self.last != 0 && env.cpl() == 0 && self.back.is_some_and(|back| back.is_gone(core)) {
                self.lost.get_or_insert(self.last);
            }
            if vector == PAGE_FAULT && env.cpl() == 0 && env.cr(2) == at && !self.maps_code {
                self.no_code = Some(at);
            }
        }
    }
}
