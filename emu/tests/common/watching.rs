//! An interposer that records the watch hits it receives.

use trapline_emu::{Core, Trap, TrapInterposer, Verdict, WatchHit};

#[derive(Default)]
pub struct Watching {
    pub hits: Vec<WatchHit>,
    /// Instruction pointer and count at each hit.
    pub after: Vec<(u64, u64)>,
    /// Traps: vector, instruction pointer, identifier, count.
    pub traps: Vec<(u8, u64, u32, u64)>,
    pub verdict: Option<Verdict>,
    /// How the stepped instructions ended.
    pub endings: Vec<&'static str>,
}

impl TrapInterposer for Watching {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        self.traps.push((trap.vector, trap.ip, trap.patch, core.icount()));
        self.verdict.unwrap_or(Verdict::Step)
    }
    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        self.hits.push(*hit);
        self.after.push((core.env().eip(), core.icount()));
    }
    fn faulted(&mut self, _: &mut Core) {
        self.endings.push("faulted");
    }
    fn interrupted(&mut self, _: &mut Core) {
        self.endings.push("interrupted");
    }
    fn settled(&mut self, _: &mut Core) {
        self.endings.push("settled");
    }
}
