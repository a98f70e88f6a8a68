//! A guest of three tasks whose kernel is simulated from outside: every exception and NMI ends the run at the first
//! instruction of the only handler, which loads the address space and the registers of the task that is to run next.

use super::model::{End, Event};
use crate::common::{CODE, CS0, DS0, Guest, P, RW, Rng, Setup, TABLES, US, USER_CS32, USER_DS, assemble};
use iced_x86::code_asm::{CodeAssembler, cr3, dword_ptr, eax, esp};
use iced_x86::{Decoder, DecoderOptions};
use trapline_emu::{Core, Fault, Snapshot, Stop, Trap, TrapInterposer, Verdict, WatchHit};
use trapline_interposer::Interposer;

pub const TASKS: usize = 3;
/// The kernel's one handler.
const KERNEL: u64 = CODE + 0x1000;
/// Instructions of the handler.
const KERNEL_LENGTH: u64 = 5;
/// Where the handler finds the next address space and stack pointer.
const NEXT: u64 = 0x3_0000;
/// Frames of tasks in ring 3.
const FRAMES: u64 = 0x3_0800;
/// Page directory of the second address space, and its table.
const DIRECTORY: u64 = 0x1_c000;
/// Pages that may be absent, in each address space.
pub const ABSENT: [u64; 2] = [0x4_0000, 0x4_1000];
/// The page of two tasks' stacks: the same address in both address spaces.
const SHARED_STACK: u64 = 0x1_6000;
/// The stack page of the other task of the first address space.
const OWN_STACK: u64 = 0x1_8000;
/// Where the second address space has the shared page in memory.
const OTHER_STACK: u64 = 0x1_a000;

/// A task as its kernel keeps it while another runs.
#[derive(Debug, Clone, Copy)]
struct Task {
    alive: bool,
    second_space: bool,
    gpr: [u64; 8],
    ip: u64,
    flags: u64,
}

/// Ends the run at each exception and interrupt, and passes everything on.
pub struct Stopping<'a> {
    inner: Option<&'a mut Interposer>,
    vector: Option<u8>,
}

impl TrapInterposer for Stopping<'_> {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        self.inner.as_mut().map_or(Verdict::Declined, |inner| inner.trap(core, trap))
    }
    fn exception(&mut self, core: &mut Core, vector: u8, at: u64) -> bool {
        if let Some(inner) = &mut self.inner {
            inner.exception(core, vector, at);
        }
        self.vector = Some(vector);
        core.finish(Stop::Requested);
        false
    }
    fn returned(&mut self, core: &mut Core) {
        if let Some(inner) = &mut self.inner {
            inner.returned(core);
        }
    }
    fn interrupting(&mut self, core: &mut Core) {
        if let Some(inner) = &mut self.inner {
            inner.interrupting(core);
        }
        self.vector = Some(2);
        core.finish(Stop::Requested);
    }
    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        if let Some(inner) = &mut self.inner {
            inner.watched(core, hit);
        }
    }
    fn faulted(&mut self, core: &mut Core) {
        if let Some(inner) = &mut self.inner {
            inner.faulted(core);
        }
    }
    fn interrupted(&mut self, core: &mut Core) {
        if let Some(inner) = &mut self.inner {
            inner.interrupted(core);
        }
    }
    fn settled(&mut self, core: &mut Core) {
        if let Some(inner) = &mut self.inner {
            inner.settled(core);
        }
    }
    fn page_rewritten(&mut self, core: &mut Core, page: u64) {
        if let Some(inner) = &mut self.inner {
            inner.page_rewritten(core, page);
        }
    }
    fn code_page(&mut self, core: &mut Core, page: u64) {
        if let Some(inner) = &mut self.inner {
            inner.code_page(core, page);
        }
    }
    fn wants_code_pages(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.wants_code_pages())
    }
    fn user_code(&mut self, core: &mut Core, page: u64, paddr: u64) -> Option<Fault> {
        self.inner.as_mut().and_then(|inner| inner.user_code(core, page, paddr))
    }
}

/// An action from outside at an instruction count.
#[derive(Debug, Clone)]
pub enum Act {
    /// Nothing: the host stops the machine and continues it.
    Slice,
    /// An NMI, at which the kernel switches tasks. In the kernel it is left out.
    Preempt,
    /// The probes change.
    Probes(Event),
}

/// The machine, from whose first state every case starts.
pub struct World {
    guest: Guest,
    snapshot: Snapshot,
    ring: u8,
}

/// One case: the tasks' code, and actions from outside with their counts after the start.
pub struct Case {
    pub code: Vec<u8>,
    pub script: Vec<(u64, Act)>,
    /// Instructions that run.
    pub length: u64,
    /// The seed of the kernel's decisions.
    pub seed: u64,
}

/// How a case ended: the state of the machine, and where each task was.
#[derive(Debug, PartialEq, Eq)]
pub struct Ending {
    pub icount: u64,
    pub digest: String,
    pub registers: String,
}

/// A case that runs.
struct Running<'a> {
    guest: &'a mut Guest,
    ring: u8,
    tasks: Vec<Task>,
    current: usize,
    random: Rng,
    /// The count at which the kernel's handler will have led to a task, while it runs.
    kernel_ends: Option<u64>,
    /// What happened, if each instruction is stepped.
    events: Option<Vec<Event>>,
}

impl World {
    pub fn new(ring: u8) -> Self {
        let mut setup = Setup::bits32().ring(ring).gate(0x80, KERNEL, 0xee00);
        for vector in [2, 6, 13, 14] {
            setup = setup.gate(vector, KERNEL, 0x8e00);
        }
        let kernel = |a: &mut CodeAssembler| {
            a.mov(eax, dword_ptr(NEXT)).unwrap();
            a.mov(cr3, eax).unwrap();
            a.mov(esp, dword_ptr(NEXT + 4)).unwrap();
            a.popad().unwrap();
            a.iretd().unwrap();
        };
        let mut guest = setup.code(&[0x90; 64]).at(KERNEL, &assemble(32, KERNEL, kernel)).boot();
        // The second address space: one directory, one table, all as in the first but for the stack.
        let entry = |n: u64| u64::from((P | RW | US) as u32) | n;
        guest.m.write_physical(DIRECTORY, &(entry(DIRECTORY + 0x1000) as u32).to_le_bytes());
        for page in (0..crate::common::RAM).step_by(0x1000) {
            let at = DIRECTORY + 0x1000 + page / 0x400;
            let frame = if page == SHARED_STACK { OTHER_STACK } else { page };
            guest.m.write_physical(at, &(entry(frame) as u32).to_le_bytes());
        }
        for space in [false, true] {
            for page in ABSENT {
                guest.m.write_physical(pte(space, page), &[0; 4]);
            }
        }
        let snapshot = guest.m.snapshot();
        Self { guest, snapshot, ring }
    }

    /// Goes back to the start, with a case's code.
    pub fn prepare(&mut self, case: &Case) {
        self.guest.m.restore(&self.snapshot).unwrap();
        self.guest.m.write_physical(CODE, &case.code);
    }

    pub fn core_mut(&mut self) -> &mut Core {
        self.guest.m.core_mut()
    }

    /// Runs a prepared case. Without an interposer it is stepped, and its events are returned.
    pub fn run(
        &mut self,
        case: &Case,
        mut probes: Option<&mut Interposer>,
        mut change: impl FnMut(&mut Interposer, &mut Core, &Event),
    ) -> (Ending, Vec<Event>) {
        let tops = [SHARED_STACK + 0x800, OWN_STACK + 0x800, SHARED_STACK + 0x800];
        let tasks = (0..TASKS).map(|n| {
            let mut gpr = [0; 8];
            (gpr[3], gpr[4], gpr[7]) = (ABSENT[n % 2] + 0x10, tops[n], ABSENT[0]);
            Task { alive: true, second_space: n == 2, gpr, ip: CODE, flags: 2 }
        });
        let mut running = Running {
            ring: self.ring,
            tasks: tasks.collect(),
            current: 0,
            random: Rng(case.seed | 1),
            kernel_ends: None,
            events: probes.is_none().then(Vec::new),
            guest: &mut self.guest,
        };
        let first = running.tasks[0];
        (0..8).for_each(|n| {
            running.guest.set(n, first.gpr[n]);
        });
        let start = running.guest.m.icount();
        let mut script = case.script.iter().peekable();
        while running.guest.m.icount() < start + case.length && running.tasks[running.current].alive {
            let now = running.guest.m.icount();
            if let Some((_, act)) = script.next_if(|(at, _)| start + at <= now) {
                running.act(act, probes.as_deref_mut(), &mut change);
                continue;
            }
            let next = script.peek().map_or(u64::MAX, |(at, _)| start + at).min(start + case.length);
            running.advance(next, probes.as_deref_mut());
        }
        let core = running.guest.core();
        let ending = Ending {
            icount: core.icount(),
            digest: running.guest.m.digest().to_string(),
            registers: core.dump_registers(),
        };
        (ending, running.events.unwrap_or_default())
    }
}

/// Where the page table of an address space has the entry of a page.
fn pte(second_space: bool, page: u64) -> u64 {
    let table = if second_space { DIRECTORY } else { TABLES } + 0x1000;
    table + page / 0x400
}

impl Running<'_> {
    fn note(&mut self, event: Event) {
        self.events.iter_mut().for_each(|events| events.push(event.clone()));
    }

    fn in_kernel(&self) -> bool {
        (KERNEL..KERNEL + 0x20).contains(&self.guest.ip())
    }

    fn act(
        &mut self,
        act: &Act,
        probes: Option<&mut Interposer>,
        change: &mut impl FnMut(&mut Interposer, &mut Core, &Event),
    ) {
        match act {
            Act::Slice => {}
            Act::Preempt if self.in_kernel() => {}
            Act::Preempt => self.guest.m.core_mut().raise_nmi(),
            Act::Probes(event) => {
                self.note(event.clone());
                if let Some(probes) = probes {
                    change(probes, self.guest.m.core_mut(), event);
                }
            }
        }
    }

    /// Runs to a count, or for one instruction when each is stepped, or to an exception.
    fn advance(&mut self, next: u64, probes: Option<&mut Interposer>) {
        let (ip, icount) = (self.guest.ip(), self.guest.m.icount());
        let limit = match (&self.events, self.kernel_ends) {
            (Some(_), Some(end)) => end.min(next),
            (Some(_), None) => icount + 1,
            (None, _) => next,
        };
        let mut stopping = Stopping { inner: probes, vector: None };
        let stop = self.guest.m.run(Some(&mut stopping), limit);
        let vector = stopping.vector;
        assert_eq!(stop, if vector.is_some() { Stop::Requested } else { Stop::Limit });
        if self.events.is_some() {
            self.stepped(ip, icount, vector);
        }
        if let Some(vector) = vector {
            self.kernel(vector);
        }
    }

    /// Notes what a step has done.
    fn stepped(&mut self, ip: u64, icount: u64, vector: Option<u8>) {
        let now = self.guest.m.icount();
        if let Some(end) = self.kernel_ends {
            if now == end {
                self.kernel_ends = None;
                let task = self.current;
                assert_eq!(self.guest.ip(), self.tasks[task].ip);
                self.note(Event::Resume { task, ip: self.tasks[task].ip });
            }
            return;
        }
        let end = match vector {
            Some(2) => return,
            Some(6 | 13 | 14) => End::Faulted,
            Some(_) => End::Completed,
            None if self.guest.ip() == ip => End::Partly,
            None => End::Completed,
        };
        self.note(Event::Attempt { task: self.current, ip, icount, end });
    }

    /// An exception or interrupt has been delivered: decides the fate of the task, and which runs next.
    fn kernel(&mut self, vector: u8) {
        self.save(vector);
        let fault = matches!(vector, 6 | 13 | 14);
        if fault {
            self.answer(vector);
        } else if self.random.below(3) == 0 {
            let (space, page) = (self.random.below(2) == 1, ABSENT[self.random.below(2) as usize]);
            self.guest.m.write_physical(pte(space, page), &[0; 4]);
        }
        let stays = self.tasks[self.current].alive && fault && self.random.below(2) == 0;
        let alive: Vec<usize> = (0..TASKS).filter(|&n| self.tasks[n].alive).collect();
        if !stays && let Some(&next) = alive.get(self.random.below(alive.len().max(1) as u64) as usize) {
            self.current = next;
        }
        self.load();
        self.kernel_ends = self.events.is_some().then(|| self.guest.m.icount() + KERNEL_LENGTH);
    }

    /// Keeps the registers of the task that was interrupted, which the frame has.
    fn save(&mut self, vector: u8) {
        let mut at = self.guest.gpr(4) + if matches!(vector, 13 | 14) { 4 } else { 0 };
        if self.ring == 0 {
            at = self.physical(at);
        }
        let word = |n: u64| self.guest.mem(at + 4 * n, 4);
        let sp = if self.ring == 0 {
            self.guest.gpr(4) + (at - self.physical(self.guest.gpr(4))) + 12
        } else {
            word(3)
        };
        let mut task = self.tasks[self.current];
        (task.ip, task.flags) = (word(0), word(2) & !0x1_0000);
        (0..8).for_each(|n| task.gpr[n] = self.guest.gpr(n));
        task.gpr[4] = sp;
        self.tasks[self.current] = task;
    }

    /// Where a page of the current task's stack lies in memory.
    fn physical(&self, linear: u64) -> u64 {
        let shared = linear & !0xfff == SHARED_STACK && self.tasks[self.current].second_space;
        if shared { linear - SHARED_STACK + OTHER_STACK } else { linear }
    }

    /// The fate of a task that has faulted: it retries, with the page present or not, or continues after the
    /// instruction, or dies.
    fn answer(&mut self, vector: u8) {
        let (task, choice) = (self.tasks[self.current], self.random.below(16));
        match (vector, choice) {
            (_, 0) => self.tasks[self.current].alive = false,
            (_, 1..=3) => {}
            (14, 4..=11) => {
                let page = self.guest.core().env().cr(2) & !0xfff;
                let entry = page | P | RW | US;
                self.guest.m.write_physical(pte(task.second_space, page), &(entry as u32).to_le_bytes());
            }
            _ => {
                let mut code = [0; 15];
                self.guest.core().ram().read(task.ip, &mut code);
                let length = Decoder::new(32, &code, DecoderOptions::NONE).decode().len() as u64;
                self.tasks[self.current].ip += length;
            }
        }
    }

    /// Stores the data that the handler loads for the current task.
    fn load(&mut self) {
        let task = self.tasks[self.current];
        let (at, cs, ss) = match self.ring {
            0 => (task.gpr[4] - 44, CS0, DS0),
            _ => (FRAMES + 0x40 * self.current as u64, USER_CS32, USER_DS),
        };
        let mut words: Vec<u64> = [7, 6, 5, 4, 3, 2, 1, 0].map(|n: usize| task.gpr[n]).to_vec();
        words.extend([task.ip, cs.into(), task.flags]);
        if self.ring != 0 {
            words.extend([task.gpr[4], ss.into()]);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect();
        let paddr = if self.ring == 0 { self.physical(at) } else { at };
        self.guest.m.write_physical(paddr, &bytes);
        let space = if task.second_space { DIRECTORY } else { TABLES };
        self.guest.m.write_physical(NEXT, &(space as u32).to_le_bytes());
        self.guest.m.write_physical(NEXT + 4, &(at as u32).to_le_bytes());
    }
}
