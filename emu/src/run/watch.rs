//! Watches: which accesses of the guest are reported, and the stepping of instructions that may make them.
//!
//! A watch is a range of linear addresses or ports, as a debug register has it, in every address space. The engine is
//! never given a TLB entry with which it could make a watched access by itself: a data fill for a page that holds a
//! watched byte is refused, the instruction is stepped alone with that page open for it, and its accesses are computed
//! from the state before it (`operands`). All other pages are filled normally. An address whose execution is watched
//! cuts the block before it. The guest's own data breakpoints (`debug`) protect pages in the same way.
//!
//! Invariant: outside of a step of [`Core::step_watched`] no TLB entry of the engine lets an access of a watched kind
//! through to a page with a watched byte.

use super::Core;
use super::interpose::{Trap, Verdict};
use super::step::Permit;
use super::watch_hit::{Moved, WATCH_VALUE, WatchAccess, WatchHit};
use crate::cpu::deliver::Stored;
use crate::cpu::operands::{Operand, OperandFinder};
use crate::cpu::outcome::Accesses;
use crate::cpu::{Cpu, Watch, WatchKind, first_watched};
use crate::engine::in_slots;
use crate::isa::decode;
use crate::mmu::Access;
use crate::ram::PAGE;

/// A watch over more pages than this flushes the engine's TLB instead of dropping entries.
const FEW_PAGES: u64 = 16;

/// All watches.
#[derive(Default)]
pub(crate) struct Watches {
    data: Vec<(u32, Watch)>,
    /// Breakpoints on data and execution that the guest has enabled in its DR7.
    guest: Vec<Watch>,
    ports: Vec<(u32, Watch)>,
    code: Vec<(u32, Watch)>,
    /// Page ranges, first and last page, where every read must be seen; ascending and disjoint.
    read_pages: Vec<(u64, u64)>,
    /// The same for writes.
    write_pages: Vec<(u64, u64)>,
    /// The watched accesses of the instruction in progress.
    seen: Vec<WatchHit>,
    /// Where the value of each of `seen` is.
    values: Vec<Value>,
    /// What the instruction in progress has read from a device, and written to one.
    moved: (Option<Moved>, Option<Moved>),
    /// Condition bits, as in DR6, of the guest's breakpoints that the instruction in progress meets, enabled or not.
    met: u64,
    operands: OperandFinder,
    /// Memory for the pages that a step is given, and for the watches that an execution meets.
    spare: (Vec<u64>, Vec<u32>),
    /// Ranges whose blocks must be analysed again.
    changed: Vec<(u64, u64)>,
    /// Instructions that the engine could not run among others because they access a page with a watched byte.
    steps: u64,
    /// Whether an instruction that the machine executes has made such an access.
    reached: bool,
}

/// Where the value of a watched access is.
#[derive(Debug, Clone, Copy)]
enum Value {
    /// In memory, at this linear address.
    Memory(u64),
    /// In what was moved to or from a device, from this byte of its page on: to read the device could change it.
    Device(u64),
    /// In the hit already.
    Port,
}

/// Sorts page ranges and joins those that touch.
fn joined(mut pages: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    pages.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (first, last) in pages {
        match out.last_mut() {
            Some(before) if first <= before.1.saturating_add(PAGE) => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out
}

fn covers(pages: &[(u64, u64)], page: u64) -> bool {
    let at = pages.partition_point(|&(_, last)| last < page);
    pages.get(at).is_some_and(|&(first, _)| first <= page)
}

impl Watches {
    fn list(&mut self, kind: WatchKind) -> &mut Vec<(u32, Watch)> {
        match kind {
            WatchKind::Execute => &mut self.code,
            WatchKind::Io => &mut self.ports,
            WatchKind::Write | WatchKind::ReadWrite => &mut self.data,
        }
    }

    fn work_out_pages(&mut self) {
        let page = |w: &Watch| (w.low & !(PAGE - 1), w.high & !(PAGE - 1));
        let guest = || self.guest.iter().filter(|w| w.kind != WatchKind::Execute);
        let all = || self.data.iter().map(|(_, w)| w).chain(guest());
        self.write_pages = joined(all().map(page).collect());
        self.read_pages = joined(all().filter(|w| w.kind == WatchKind::ReadWrite).map(page).collect());
    }

    /// Whether any data is watched.
    #[inline(always)]
    pub fn any_data(&self) -> bool {
        !self.write_pages.is_empty()
    }

    /// Whether such an access to linear `page` must be seen.
    pub(super) fn covers(&self, page: u64, access: Access) -> bool {
        match access {
            Access::Write => covers(&self.write_pages, page),
            Access::Read => covers(&self.read_pages, page),
            Access::Fetch => false,
        }
    }

    /// Whether any port is watched.
    #[inline]
    pub fn any_port(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Whether the guest has a breakpoint on the instruction at `linear`.
    pub fn breaks_at(&self, linear: u64) -> bool {
        self.guest.iter().any(|w| w.kind == WatchKind::Execute && w.low == linear)
    }

    /// Notes whether the engine would be refused an access.
    fn note_reached(&mut self, cpu: &Cpu, operand: &Operand) {
        let pages = if operand.writes { &self.write_pages } else { &self.read_pages };
        let last = cpu.wrap_linear(operand.address.wrapping_add(u64::from(operand.size) - 1));
        self.reached |= [operand.address, last].iter().any(|at| covers(pages, at & !(PAGE - 1)));
    }

    /// Whether an instruction since the last call has made an access that the engine would be refused.
    pub(super) fn take_reached(&mut self) -> bool {
        let reached = std::mem::take(&mut self.reached);
        self.steps += u64::from(reached);
        reached
    }

    /// Notes an access that the instruction at EIP is about to make.
    pub(crate) fn note_access(&mut self, cpu: &Cpu, ip: u64, operand: &Operand) {
        let mask = if cpu.env.long_mode() { u64::MAX } else { 0xffff_ffff };
        for n in 0..self.data.len() {
            let (id, watch) = self.data[n];
            if !operand.writes && watch.kind == WatchKind::Write {
                continue;
            }
            let Some(first) = first_watched(&watch, operand.address, operand.size, mask) else { continue };
            self.note(cpu, ip, id, &watch, operand, first);
        }
        if !self.guest.is_empty() {
            self.met |= cpu.met_by_access(operand, mask);
        }
    }

    fn note(&mut self, cpu: &Cpu, ip: u64, id: u32, watch: &Watch, operand: &Operand, first: u64) {
        let access = match (operand.reads, operand.writes) {
            (true, true) => WatchAccess::ReadWrite,
            (_, true) => WatchAccess::Write,
            _ => WatchAccess::Read,
        };
        let (address, size) = (operand.address, operand.whole as u16);
        let known = self.seen.iter().position(|seen| seen.id == id);
        let is_read = |n: usize| self.seen.get(n).is_some_and(|seen| seen.access == WatchAccess::Read);
        if known.is_some_and(|n| !is_read(n) || !operand.writes) {
            return;
        }
        let length = (watch.high - watch.low).saturating_add(1);
        let range = |short: bool| {
            let at = if short { watch.low } else { first };
            let len = (watch.high - at).saturating_add(1).min(WATCH_VALUE as u64);
            (at, if short { len } else { len.min(operand.size.into()) } as u8)
        };
        let (mut at, mut len) = range(length <= WATCH_VALUE as u64);
        let mut old = [0; WATCH_VALUE];
        // What can be peeked at is memory.
        let all = cpu.peek_prefix(at, &mut old[..usize::from(len)]) == usize::from(len);
        let device = !all && is_device(cpu, first);
        if device {
            ((at, len), old) = (range(false), [0; WATCH_VALUE]);
        }
        let hit = WatchHit { id, access, ip, address, size, old, new: old, len, delivery: None };
        let value = if device { Value::Device(first % PAGE) } else { Value::Memory(at) };
        match known.and_then(|n| Some((self.seen.get_mut(n)?, self.values.get_mut(n)?))) {
            // The first write takes the place of a read before it.
            Some((seen, its)) => (*seen, *its) = (hit, value),
            None => {
                self.seen.push(hit);
                self.values.push(value);
            }
        }
    }

    /// Notes that the instruction at EIP has moved a value through a port.
    fn note_port(&mut self, cpu: &Cpu, port: u16, size: u8, value: u32, out: bool) {
        let (first, last) = (u64::from(port), u64::from(port) + u64::from(size) - 1);
        let ip = cpu.env.eip();
        let access = if out { WatchAccess::Out } else { WatchAccess::In };
        let mut moved = [0; WATCH_VALUE];
        moved[..4].copy_from_slice(&value.to_le_bytes());
        for n in 0..self.ports.len() {
            let (id, watch) = self.ports[n];
            if first <= watch.high && last >= watch.low {
                let hit = WatchHit {
                    id,
                    access,
                    ip,
                    address: first,
                    size: size.into(),
                    old: moved,
                    new: moved,
                    len: size,
                    delivery: None,
                };
                self.seen.push(hit);
                self.values.push(Value::Port);
            }
        }
    }

    /// Forgets what was noted: the instruction has faulted.
    #[inline]
    pub(crate) fn forget_noted(&mut self) {
        self.met = 0;
        self.moved = (None, None);
        if !self.seen.is_empty() {
            self.seen.clear();
            self.values.clear();
        }
    }

    fn executed(&self, linear: u64) -> impl Iterator<Item = u32> {
        self.code.iter().filter(move |(_, w)| (w.low..=w.high).contains(&linear)).map(|(id, _)| *id)
    }
}

impl Accesses for Watches {
    fn operand(&mut self, cpu: &Cpu, operand: &Operand) {
        if self.any_data() {
            self.note_reached(cpu, operand);
            self.note_access(cpu, cpu.env.eip(), operand);
        }
    }

    fn port(&mut self, cpu: &Cpu, port: u16, size: u8, value: u32, out: bool) {
        if self.any_port() {
            self.note_port(cpu, port, size, value, out);
        }
        self.met |= cpu.met_by_port(port, size);
    }

    fn device(&mut self, paddr: u64, value: u32, size: u8, write: bool) {
        if self.seen.is_empty() {
            return;
        }
        let moved = if write { &mut self.moved.1 } else { &mut self.moved.0 };
        moved.get_or_insert(Moved::at(paddr)).append(paddr, value, size);
    }
}

/// Address and size of the frame that a store belongs to: all stores that touch it. Each lies below the one before it.
fn around(one: &Stored, stored: &[Stored]) -> (u64, u32) {
    let end = |one: &Stored| one.at.wrapping_add(one.len.into());
    let (mut low, mut high) = (one.at, end(one));
    stored.iter().for_each(|other| low = if end(other) == low { other.at } else { low });
    stored.iter().rev().for_each(|other| high = if other.at == high { end(other) } else { high });
    (low, high.wrapping_sub(low) as u32)
}

/// Whether a device is at a linear address.
fn is_device(cpu: &Cpu, address: u64) -> bool {
    let found = cpu.peek_translate(address, Access::Read, false);
    found.is_some_and(|t| cpu.platform.has_mmio(t.paddr | (address & (PAGE - 1))))
}

impl Core {
    /// Watches a range; hits carry `id`, which must be unique among watches of execution, and unique among all others.
    /// A hit of execution is offered as a trap of vector 1 with `id` as its patch, before the instruction; all others
    /// are reported to [`crate::TrapInterposer::watched`] after it.
    pub fn watch(&mut self, id: u32, watch: Watch) {
        self.watches.list(watch.kind).push((id, watch));
        self.watch_changed(&watch);
    }

    /// The watches set by [`Core::watch`], of memory, of ports and of execution, in the order in which hits of one
    /// instruction are reported.
    pub fn watched(&self) -> [&[(u32, Watch)]; 3] {
        [&self.watches.data, &self.watches.ports, &self.watches.code]
    }

    /// How many instructions the engine could not run because they access a page with a watched byte: what watches cost. No part of
    /// the guest's state: it does not go back with a snapshot.
    pub fn watched_steps(&self) -> u64 {
        self.watches.steps
    }

    /// Replaces the watches of each kind of [`Core::watched`].
    pub fn set_watched(&mut self, kinds: [&[(u32, Watch)]; 3]) {
        for (now, was) in kinds.into_iter().zip(self.watched().map(<[_]>::to_vec)) {
            if now != was.as_slice() {
                for (id, watch) in was {
                    self.unwatch(id, watch.kind);
                }
                now.iter().for_each(|(id, watch)| self.watch(*id, *watch));
            }
        }
    }

    /// Ends a watch; false when there is no such watch.
    pub fn unwatch(&mut self, id: u32, kind: WatchKind) -> bool {
        let list = self.watches.list(kind);
        let Some(at) = list.iter().position(|(i, w)| *i == id && w.kind == kind) else { return false };
        let (_, watch) = list.remove(at);
        self.watch_changed(&watch);
        true
    }

    /// Sets the breakpoints on data and execution that the guest has enabled.
    pub(crate) fn watch_for_guest(&mut self, now: Vec<Watch>) {
        if now != self.watches.guest {
            let before = std::mem::replace(&mut self.watches.guest, now.clone());
            before.iter().chain(&now).for_each(|watch| self.watch_changed(watch));
        }
    }

    fn watch_changed(&mut self, watch: &Watch) {
        match watch.kind {
            WatchKind::Io => {}
            WatchKind::Execute => {
                self.watches.changed.push((watch.low, watch.high));
            }
            WatchKind::Write | WatchKind::ReadWrite => {
                self.watches.work_out_pages();
                let (first, last) = (watch.low & !(PAGE - 1), watch.high & !(PAGE - 1));
                if (last - first) / PAGE > FEW_PAGES {
                    self.cpu.engine.flush_tlb();
                } else {
                    (first..=last).step_by(PAGE as usize).for_each(|page| self.cpu.engine.drop_tlb(page));
                }
            }
        }
    }

    /// Blocks that hold an address at which a watch of execution began or ended are analysed anew. Call it between
    /// blocks, in a settled state.
    pub(crate) fn look_again(&mut self) {
        if !self.watches.changed.is_empty() {
            for (low, high) in std::mem::take(&mut self.watches.changed) {
                // Outside of long mode, the engine adds the base of CS without cutting the sum to 32 bits.
                for carry in [0, 1 << 32] {
                    if let (Some(low), Some(high)) = (low.checked_add(carry), high.checked_add(carry)) {
                        self.blocks.forget_analysis(low, high);
                    }
                }
            }
        }
    }

    /// Whether the execution of the instruction at linear `at` is watched, by the interposer or by the guest.
    #[inline]
    pub(crate) fn watched_code(&self, at: u64) -> bool {
        self.watches.executed(self.fetched_from(at)).next().is_some() || self.watches.breaks_at(at)
    }

    /// The linear address that the guest fetches from where the engine's program counter is `at`. A slot has no other
    /// address.
    fn fetched_from(&self, at: u64) -> u64 {
        if in_slots(at) { at } else { self.cpu.wrap_linear(at) }
    }

    /// Whether the engine may be given an entry for a data access to linear `page`.
    pub(crate) fn may_fill(&mut self, page: u64, access: Access) -> bool {
        let watched = self.watches.covers(page, access);
        match self.step.watched_pages() {
            Some(given) if watched => {
                given.push(page);
                true
            }
            _ => !watched,
        }
    }

    /// Whether reads of a page must be seen, so that an entry for fetching it must not allow them.
    pub(crate) fn hides_reads(&self, page: u64) -> bool {
        covers(&self.watches.read_pages, page)
    }

    /// Reports the accesses of an instruction that has retired. The state is that after it. Returns the condition bits
    /// for [`Core::debug_trap`]: 0 when no #DB is due.
    #[inline]
    #[must_use]
    pub(crate) fn tell_watched(&mut self) -> u64 {
        if !self.watches.seen.is_empty() {
            self.tell();
        }
        if self.watches.met == 0 {
            return 0;
        }
        let met = std::mem::take(&mut self.watches.met);
        self.cpu.due(met)
    }

    #[cold]
    fn tell(&mut self) {
        let mut hits = std::mem::take(&mut self.watches.seen);
        let values = std::mem::take(&mut self.watches.values);
        let (read, written) = std::mem::take(&mut self.watches.moved);
        for (hit, value) in hits.iter_mut().zip(&values) {
            match value {
                Value::Memory(at) => {
                    hit.new = [0; WATCH_VALUE];
                    self.cpu.peek_prefix(*at, &mut hit.new[..usize::from(hit.len)]);
                }
                Value::Device(first) => hit.set_moved(read, written, *first),
                Value::Port => {}
            }
        }
        // In the order in which the watches were set, whatever the order of the accesses.
        hits.sort_by_key(|hit| hit.id);
        for hit in &hits {
            self.with_interposer(|i, core| i.watched(core, hit));
        }
        if self.watches.seen.is_empty() {
            (self.watches.seen, self.watches.values) = (hits, values);
            self.watches.seen.clear();
            self.watches.values.clear();
        }
    }

    /// Reports what the delivery of an event has stored into watched ranges. The state is that after it. `vector` is that
    /// of the event, if no instruction has caused it.
    #[cold]
    pub(crate) fn tell_delivered(&mut self, vector: Option<u8>, ip: u64, stored: &[Stored]) {
        let mask = if self.cpu.env.long_mode() { u64::MAX } else { 0xffff_ffff };
        let hit = |(id, watch): &(u32, Watch)| {
            let of = |one: &&Stored| first_watched(watch, one.at, one.len, mask).is_some();
            let one = stored.iter().find(of)?;
            let (address, size) = around(one, stored);
            let first = first_watched(watch, address, size, mask)?;
            // Of a long range, the part from the first byte that was stored on.
            let at = if watch.high - watch.low < WATCH_VALUE as u64 { watch.low } else { first };
            let len = (watch.high - at).saturating_add(1).min(WATCH_VALUE as u64) as usize;
            let mut new = [0; WATCH_VALUE];
            self.cpu.peek_prefix(at, &mut new[..len]);
            let mut old = new;
            // The first of several stores has found what was there.
            for one in stored.iter().rev() {
                for (n, byte) in (0..u64::from(one.len)).zip(one.old) {
                    let place = one.at.wrapping_add(n).wrapping_sub(at) as usize;
                    old.get_mut(..len)
                        .and_then(|old| old.get_mut(place))
                        .into_iter()
                        .for_each(|to| *to = byte);
                }
            }
            let (access, len, size) = (WatchAccess::Write, len as u8, size as u16);
            Some(WatchHit { id: *id, access, ip, address, size, old, new, len, delivery: vector })
        };
        let mut hits: Vec<WatchHit> = self.watches.data.iter().filter_map(hit).collect();
        hits.sort_by_key(|hit| hit.id);
        for hit in &hits {
            self.with_interposer(|i, core| i.delivered(core, hit));
        }
    }

    /// An access of the instruction at EIP, or of the slot that it runs from, was refused for a watch: steps it.
    pub(crate) fn step_watched(&mut self) {
        let slot = self.views.active.filter(|s| s.contains(self.cpu.env.eip()));
        let expected = match slot {
            // Its trap, or the iteration before, has counted it.
            Some(_) => {
                self.cpu.hot.last = None;
                self.cpu.hot.clock.icount
            }
            None => {
                self.rewind(self.cpu.linear_ip());
                self.settle();
                self.note_refused();
                if self.decode_at(self.cpu.linear_ip()).is_some_and(|i| self.execute_taken_over(&i)) {
                    return;
                }
                self.cpu.hot.clock.icount + 1
            }
        };
        let ip = slot.map_or(self.cpu.env.eip(), |s| s.site);
        self.watches.steps += 1;
        self.watches.forget_noted();
        if let Some(i) = self.cpu.decode_original(self.cpu.env.cs_base().wrapping_add(ip)) {
            for operand in self.cpu.operands_by(&mut self.watches.operands, &i) {
                self.watches.note_access(&self.cpu, ip, &operand);
            }
        }
        let pages = std::mem::take(&mut self.watches.spare.0);
        let permit = self.permitting(Permit::Watched(pages), |core| core.step(1));
        if let Some(Permit::Watched(mut given)) = permit {
            given.drain(..).for_each(|page| self.cpu.engine.drop_tlb(page));
            self.watches.spare.0 = given;
        }
        if self.cpu.hot.clock.icount == expected {
            let met = self.tell_watched();
            if met != 0 {
                self.debug_trap(met, false);
            }
        } else {
            self.watches.forget_noted();
        }
    }

    /// The execution of the instruction at EIP is watched: offers it as a trap, then runs it.
    pub(crate) fn execute_watched(&mut self) {
        if self.execute_breakpoint() {
            return;
        }
        // Without one the watch has ended; the block's analysis is stale.
        if self.interposer.is_none() {
            let linear = self.cpu.linear_ip();
            self.pass(linear);
            return;
        }
        let waits = self.report_execution();
        self.execute_reported(waits);
    }

    /// Offers the execution of the instruction at EIP as a trap, for each watch of it; whether the interposer waits for the
    /// end of the instruction.
    pub(super) fn report_execution(&mut self) -> bool {
        let (ip, linear) = (self.cpu.env.eip(), self.cpu.linear_ip());
        let mut ids = std::mem::take(&mut self.watches.spare.1);
        ids.extend(self.watches.executed(self.fetched_from(linear)));
        let mut waits = false;
        for patch in ids.drain(..) {
            let trap = Trap { vector: 1, ip, linear, patch, in_line: false };
            let verdict = self.with_interposer(|i, core| i.trap(core, &trap));
            waits |= matches!(verdict, Some(Verdict::Step));
        }
        self.watches.spare.1 = ids;
        waits
    }

    /// Runs the instruction at EIP, whose execution has been reported. The interposer may wait for its end.
    pub(super) fn execute_reported(&mut self, waits: bool) {
        let (before, linear) = (self.cpu.hot.clock.icount, self.cpu.linear_ip());
        // A patch at the same address reports how the instruction has ended.
        let patched = self.patched(linear);
        let unfinished = self.pass(linear);
        if waits && !patched {
            self.tell_end(before, unfinished);
        }
    }

    /// Tells the interposer how the instruction has ended that began at count `before`.
    pub(super) fn tell_end(&mut self, before: u64, unfinished: bool) {
        let faulted = self.cpu.hot.clock.icount == before;
        self.with_interposer(|i, core| match (faulted, unfinished) {
            (true, _) => i.faulted(core),
            (_, true) => i.interrupted(core),
            _ => i.settled(core),
        });
    }

    /// Runs the instruction at EIP although its execution is watched; whether it is a repeated one that has not ended.
    fn pass(&mut self, linear: u64) -> bool {
        let before = self.cpu.hot.clock.icount;
        let i = self.cpu.decode_original(linear);
        self.permitting(Permit::Execute(linear), Core::advance_one);
        let unfinished = i.is_some_and(|i| decode::repeats(&i)) && self.cpu.linear_ip() == linear;
        let loads_flags = i.is_some_and(|i| decode::kind(&i).loads_flags());
        if self.cpu.hot.clock.icount > before && !unfinished && !loads_flags {
            self.cpu.clear_rf();
        }
        unfinished
    }
}
