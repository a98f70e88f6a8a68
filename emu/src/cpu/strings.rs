//! Repeated STOS and MOVS, many iterations at once.
//!
//! The engine runs each iteration of a repeated string instruction as a block. Where the iterations to come can have no
//! effect but on memory and the three registers, they are done here with one copy, and the engine continues with the
//! last. Skipping them changes no result: it ends before the deadline, at the end of a page, and wherever an access
//! would need more than a translation that the architectural TLB holds, and none are skipped whose page is watched.

use super::Cpu;
use super::flags::TF;
use crate::engine::Seg;
use crate::isa::Repeat;
use crate::mmu::{self, Access};
use crate::ram::{PAGE, PageState};

const RCX: usize = 1;
const RSI: usize = 6;
const RDI: usize = 7;

impl Cpu {
    /// Executes and counts iterations of the string instruction at EIP, at most all but the last. Returns how many.
    pub(crate) fn repeat_ahead(&mut self, repeat: Repeat, is_watched: impl Fn(u64, Access) -> bool) -> u64 {
        /// With fewer iterations the check costs more than it saves.
        const FEWEST: u64 = 4;
        let count = repeat.count(self.env.gpr(RCX));
        let room = self.hot.clock.deadline.saturating_sub(self.hot.clock.icount).min(count).saturating_sub(1);
        let same_width = u32::from(repeat.address_bits) == self.code_bits();
        let Some(size) = repeat.bulk().filter(|_| room >= FEWEST && same_width) else { return 0 };
        if self.env.eflags_raw() & TF != 0 || self.env.df() {
            return 0;
        }
        let moves = repeat.moves();
        let to = self.string_address(Seg::Es, RDI);
        let from = self.string_address(Seg::Ds, RSI);
        let mut n = room.min((PAGE - to % PAGE) / size);
        if moves {
            n = n.min((PAGE - from % PAGE) / size);
        }
        let watched = |at: u64, access| is_watched(at & !(PAGE - 1), access);
        if n < FEWEST || watched(to, Access::Write) || moves && watched(from, Access::Read) {
            return 0;
        }
        let Some(target) = self.data_without_walk(to, Access::Write) else { return 0 };
        if moves {
            let Some(source) = self.data_without_walk(from, Access::Read) else { return 0 };
            self.ram.move_up(source, target, (n * size) as usize, size as usize);
            self.advance_index(RSI, repeat, n * size);
        } else {
            let element = self.env.gpr(0).to_le_bytes();
            self.ram.fill(target, element.get(..size as usize).unwrap_or(&[]), n as usize);
        }
        self.advance_index(RDI, repeat, n * size);
        let left = self.env.gpr(RCX).wrapping_sub(n);
        self.env.set_gpr(RCX, if repeat.address_bits == 32 { left & 0xffff_ffff } else { left });
        self.hot.clock.icount += n;
        n
    }

    fn string_address(&self, segment: Seg, index: usize) -> u64 {
        let base = if self.env.code64() { 0 } else { self.env.seg(segment).base };
        self.wrap_linear(base.wrapping_add(self.env.gpr(index)))
    }

    fn advance_index(&mut self, index: usize, repeat: Repeat, bytes: u64) {
        let next = self.env.gpr(index).wrapping_add(bytes);
        self.env.set_gpr(index, if repeat.address_bits == 32 { next & 0xffff_ffff } else { next });
    }

    /// Physical address of linear `va`, if the access needs no walk, reaches RAM, and writes no code.
    fn data_without_walk(&self, va: u64, access: Access) -> Option<u64> {
        let t = self.tlb.lookup(va & !(PAGE - 1))?;
        let user = self.env.cpl() == 3;
        if access == Access::Write && !t.dirty || mmu::denied(&t, &self.paging(), access, user).is_some() {
            return None;
        }
        let state = self.ram.page_at(t.paddr)?;
        let code = PageState::CODE | PageState::BOTH | PageState::ARMED;
        (access != Access::Write || !state.is(code)).then_some(t.paddr + va % PAGE)
    }
}
