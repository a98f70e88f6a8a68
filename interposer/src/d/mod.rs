//! The state of a running D program: memory, associative arrays, aggregations, speculations, the record being made.
//!
//! Compiled clauses reach it by the services of `callk` and by addresses of D's own part of the address space
//! (`trapline_rpn::services::d`). DTrace's options bound all of it, and everything dropped is counted. The state is
//! cloned with its program, so a snapshot holds it. Order comes from sorted maps and from the order of insertion, never
//! from a hash.

mod aggregations;
mod changes;
mod dynamics;
mod fixed;
mod functions;
mod index;
mod memory;
mod net;
mod own_time;
mod services;
mod speculations;
mod strings;
mod threads;
mod variables;

use aggregations::Aggregations;
use dynamics::Dynamics;
use fixed::Fixed;
use memory::Memory;
use own_time::OwnTime;
use serde::{Deserialize, Serialize};
use speculations::Speculations;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::Arc;
use threads::Threads;
use trapline_os::Birth;
use trapline_rpn::services::d::{Builtin, fault};
use trapline_rpn::{Argument, CallkError};
use trapline_trace::d::{Code, ConsumerOptions, Limits, Snapshot, SymbolForm, Tables, Writer};
pub use variables::DVariable;

/// The immutable part of a D program beside its clauses.
#[derive(Debug, Clone, Default)]
pub struct DSetup {
    /// What running it and showing its data need.
    pub tables: Arc<Tables>,
    /// Its limits.
    pub limits: Limits,
    /// How its data are shown.
    pub output: ConsumerOptions,
    /// Whether a clause may call `panic()`.
    pub panics: bool,
    /// `droptags`: sentences about drops have tags.
    pub drop_tags: bool,
    /// The text of each clause, by the number of the clause.
    pub clauses: Vec<DClause>,
}

/// Where a clause of a D program is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DClause {
    /// The name of its text.
    pub name: Arc<str>,
    /// Its text, with the clauses before and after it.
    pub text: Arc<str>,
    /// The line where it begins.
    pub line: u32,
}

/// Counts of dropped data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DDrops {
    /// Elements that did not fit `dynvarsize`.
    pub dynamic: u64,
    /// Values that did not fit `aggsize`.
    pub aggregation: u64,
    /// Records that did not fit `bufsize`.
    pub principal: u64,
    /// Records that did not fit a speculation.
    pub speculative: u64,
    /// Calls of `speculation()` when none was free.
    pub unavailable: u64,
}

impl DDrops {
    /// Whether anything was dropped.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// What was dropped, in dtrace(1)'s words; `tags` are those of `-xdroptags`.
    #[must_use]
    pub fn sentences(self, tags: bool) -> Vec<String> {
        let kinds = [
            (self.principal, "DROP_PRINCIPAL", "drop", " on CPU 0"),
            (self.aggregation, "DROP_AGGREGATION", "aggregation drop", " on CPU 0"),
            (self.dynamic, "DROP_DYNAMIC", "dynamic variable drop", ""),
            (self.speculative, "DROP_SPEC", "speculative drop", ""),
            (
                self.unavailable,
                "DROP_SPECUNAVAIL",
                "failed speculation",
                " (no speculative buffer available)",
            ),
        ];
        let there = kinds.into_iter().filter(|(count, ..)| *count > 0);
        let sentence = |(count, tag, what, after): (u64, &str, &str, &str)| {
            let tag = if tags { format!("[{tag}] ") } else { String::new() };
            format!("{tag}{count} {what}{}{after}", if count == 1 { "" } else { "s" })
        };
        there.map(sentence).collect()
    }
}

/// The fault that ended a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DFault {
    /// Identifier of the probe.
    pub probe: u64,
    /// Number of the clause in the program, from 0.
    pub clause: u64,
    /// Index of the instruction.
    pub at: u64,
    /// The kind of fault, as DTrace numbers them.
    pub kind: u64,
    /// The address, where it has one.
    pub address: u64,
}

/// A built-in variable's value. A text has been written to the buffer that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Int(u64),
    Text,
}

/// The access to the guest that the state needs.
pub(crate) trait World {
    /// Reads guest memory; the error is the first address that cannot be read.
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), u64>;
    /// A built-in variable. `text` is an empty buffer.
    fn builtin(&mut self, which: Builtin, text: &mut Vec<u8>) -> Reading;
    /// The kernel's or the program's stack, innermost first.
    fn stack(&mut self, user: bool, most: usize) -> Code;
    /// Bytes of a pointer of the kernel.
    fn pointer_bytes(&self) -> usize;
    /// A register of the user context by its index; the outer `None` if there is no such register, the inner one if the
    /// task has no user context.
    fn user_register(&mut self, index: u64) -> Option<Option<u64>>;
    /// The path of a file, by the address of its `struct path`.
    fn path(&mut self, path: u64) -> Option<Vec<u8>>;
    /// Writes a record to a driver's channel; returns whether it was written.
    fn write_record(&mut self, channel: &[u8], prio: i32, data: &[u8]) -> bool;
    /// Whether the memory of programs is that of a task now.
    fn is_in_memory(&mut self, task: u64) -> bool;
    /// Writes memory of the current process, as it could itself; the error is the first address that it cannot write.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), u64>;
    /// Virtual time, ns.
    fn now(&self) -> u64;
    /// Lets virtual time pass.
    fn pass_time(&mut self, ns: u64);
    /// Ends the run; as a crash, with a dump, if the machine panics.
    fn end(&mut self, panics: bool);
    /// The address of the current thread's descriptor.
    fn thread(&mut self) -> u64;
    /// What a descriptor shows of its thread's birth.
    fn birth(&self, task: u64) -> Birth;
    /// All threads that there are; `None` if they cannot be listed.
    fn threads(&mut self) -> Option<BTreeMap<u64, Birth>>;
    /// The instruction count.
    fn instructions(&self) -> u64;
    /// Whether the clause sees other values than the guest's.
    fn is_altered(&self) -> bool;
    /// An address of code, which a call returns to unless it is `exact`, with what it lies in.
    fn code(&mut self, address: u64, exact: bool) -> Code;
    /// The start of what an address is shown as: of the symbol or module that has it, or the address where there is none.
    fn start(&self, form: SymbolForm, code: Code) -> Code;
    /// The number of the probe point.
    fn probe(&self) -> u32;
    /// Two texts are compared.
    fn compared(&mut self, one: &[u8], other: &[u8]);
}

/// What every clause needs when it begins and ends, in one place: a clause that does nothing else touches no other
/// memory of its program.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Hot {
    /// The firing to which this clause belongs: the instruction count and the number of the trap.
    firing: Option<(u64, u64)>,
    /// The speculation that this clause writes to.
    speculating: Option<u64>,
    /// The local variables that each firing finds zeroed: the first, and how many.
    #[serde(skip)]
    slots: (u32, u32),
    /// Whether variables of a clause have memory.
    #[serde(skip)]
    has_memory: bool,
    /// The status given to `exit()`.
    exit: Option<i32>,
    /// Whether the clause has called a service.
    used: bool,
    /// Whether the clause has left a record, committed a speculation, or called `exit()`.
    left: bool,
}

/// The variables of one firing of a probe.
#[derive(Debug)]
pub(crate) struct OfFiring {
    firing: Option<(u64, u64)>,
    slots: Vec<u64>,
    memory: Vec<u8>,
}

/// The state of a D program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Runtime {
    hot: Hot,
    /// Not stored: it belongs to the program's definition.
    #[serde(skip)]
    setup: Arc<DSetup>,
    memory: Memory,
    dynamics: Dynamics,
    threads: Threads,
    own_time: OwnTime,
    aggregations: Aggregations,
    #[serde(skip)]
    fixed: Fixed,
    speculations: Speculations,
    record: Writer,
    /// The records that a `commit()` of this clause has released.
    committed: Vec<(u32, Vec<u8>)>,
    strtok: (Vec<u8>, usize),
    /// Since when `chill()` is counted, and the nanoseconds since then.
    chilled: (u64, u64),
    random: u64,
    fault: Option<DFault>,
    drops: DDrops,
    /// Whether the clauses of END have run.
    ended: bool,
    /// Buffers whose content does not matter: a key, and the text of a built-in variable.
    #[serde(skip)]
    buffers: (Writer, Vec<u8>),
}

/// The error of a service.
type Failure = CallkError;

fn thrown(user: u16, parm1: u64) -> Failure {
    CallkError::Throw { user, parm1, parm2: 0 }
}

/// An address that cannot be accessed.
fn bad_address(address: u64) -> Failure {
    thrown(fault::ADDRESS, address)
}

impl Hot {
    /// The same, with what the program's tables say.
    fn of(self, tables: &Tables) -> Self {
        Self { slots: tables.clause_slots, has_memory: tables.clause_memory > 0, ..self }
    }
}

impl Runtime {
    pub fn new(setup: &Arc<DSetup>) -> Self {
        let DSetup { tables, limits, .. } = &**setup;
        Self {
            hot: Hot::default().of(tables),
            memory: Memory::new(tables),
            dynamics: Dynamics::new(limits.dynvarsize),
            threads: Threads::default(),
            own_time: OwnTime::default(),
            aggregations: Aggregations::new(tables, limits.aggsize),
            fixed: Fixed::default(),
            speculations: Speculations::new(limits.nspec, limits.specsize),
            setup: Arc::clone(setup),
            record: Writer::default(),
            committed: Vec::new(),
            strtok: (Vec::new(), 0),
            chilled: (0, 0),
            // The seed is fixed: a run is the same each time.
            random: 0x9e37_79b9_7f4a_7c15,
            fault: None,
            drops: DDrops::default(),
            ended: false,
            buffers: (Writer::default(), Vec::new()),
        }
    }

    /// Completes a stored state with the setup of its program, which has this many probe points; `None` if such a
    /// program cannot have that state.
    pub fn of_stored(mut self, setup: &Arc<DSetup>, probes: usize) -> Option<Self> {
        let DSetup { tables, limits, .. } = &**setup;
        let indexed = self.dynamics.reindex() && self.aggregations.reindex();
        let sound = indexed
            && self.memory.is_sound(tables, limits.scratchsize)
            && self.dynamics.is_sound(limits.dynvarsize)
            && self.aggregations.complete(tables, limits.aggsize)
            && self.speculations.is_sound(limits.nspec, limits.specsize, probes)
            && self.committed.iter().all(|(probe, _)| (*probe as usize) < probes);
        sound.then(|| Self { setup: Arc::clone(setup), hot: self.hot.of(tables), ..self })
    }

    /// Notes that the clauses of END run; returns whether they have run before.
    pub fn end(&mut self) -> bool {
        std::mem::replace(&mut self.ended, true)
    }

    /// Begins a clause. The variables, if there are any, are zeroed for the first clause of a firing.
    #[inline]
    pub fn begin(&mut self, firing: impl FnOnce() -> (u64, u64), lv: &mut [u64]) {
        if self.hot.used {
            self.memory.begin_clause();
            self.record.truncate(0);
            self.committed.clear();
            (self.hot.speculating, self.hot.used, self.hot.left) = (None, false, false);
        }
        let (first, count) = self.hot.slots;
        if count == 0 && !self.hot.has_memory {
            return;
        }
        let firing = firing();
        if self.hot.firing != Some(firing) {
            self.hot.firing = Some(firing);
            if self.hot.has_memory {
                self.memory.begin_firing();
            }
            let slots = lv.get_mut(first as usize..(first + count) as usize);
            slots.into_iter().flatten().for_each(|slot| *slot = 0);
        }
    }

    /// The variables of the firing in progress, which the clauses of ERROR do not change.
    pub fn of_firing(&self, lv: &[u64]) -> OfFiring {
        let (first, count) = self.hot.slots;
        let slots = lv.get(first as usize..(first + count) as usize).unwrap_or_default();
        OfFiring { firing: self.hot.firing, slots: slots.to_vec(), memory: self.memory.of_firing().to_vec() }
    }

    /// The clauses of ERROR have run: the firing goes on.
    pub fn recovered(&mut self, before: &OfFiring, lv: &mut [u64]) {
        self.fault = None;
        self.hot.firing = before.firing;
        let first = self.hot.slots.0 as usize;
        if let Some(slots) = lv.get_mut(first..first + before.slots.len()) {
            slots.copy_from_slice(&before.slots);
        }
        self.memory.set_of_firing(&before.memory);
    }

    /// An argument of a probe, with the value that its provider gives it: those of ERROR are the fault's.
    #[inline]
    pub fn argument_or(&self, which: Argument, value: u64) -> u64 {
        let Some(fault) = self.fault else { return value };
        match which {
            Argument::Number(0) => 0,
            Argument::Number(1) => fault.probe,
            Argument::Number(2) => fault.clause,
            Argument::Number(3) => fault.at,
            Argument::Number(4) => fault.kind,
            Argument::Number(5) => fault.address,
            _ => value,
        }
    }

    /// Whether the clauses of ERROR run.
    #[inline]
    pub const fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Whether the clause that has just ended left nothing to do.
    #[inline]
    pub fn left_nothing(&self) -> bool {
        !self.hot.left
    }

    /// Takes the records of the clause that has just ended: those of speculations that it has committed, and its own.
    pub fn take_records(&mut self, probe: u32) -> Vec<(u32, Vec<u8>)> {
        let mut records = std::mem::take(&mut self.committed);
        let data = self.record.written();
        if data.is_empty() {
            return records;
        }
        if data.len() > self.setup.limits.bufsize {
            self.drops.principal += 1;
        } else if let Some(id) = self.hot.speculating {
            if !self.speculations.add(id, probe, data) {
                self.drops.speculative += 1;
            }
        } else {
            records.push((probe, data.to_vec()));
        }
        records
    }

    /// Ends the clause by a fault: its own record is dropped, and ERROR receives the fault. The records of speculations that
    /// it has committed before are whole, and are returned.
    pub fn fail(&mut self, fault: DFault) -> Vec<(u32, Vec<u8>)> {
        self.record.truncate(0);
        self.fault = Some(fault);
        std::mem::take(&mut self.committed)
    }

    /// The guest switches to a thread.
    pub fn switch(&mut self, task: u64, birth: Birth, now: u64) {
        self.own_time.switch(task, birth, now);
    }

    /// `vtimestamp`.
    pub fn own_time(&mut self, world: &mut (impl World + ?Sized)) -> u64 {
        let (task, now) = (world.thread(), world.instructions());
        self.own_time.of(task, now)
    }

    /// The status given to `exit()`.
    pub const fn exit(&self) -> Option<i32> {
        self.hot.exit
    }

    /// Counts records that did not fit the channel.
    pub const fn count_drops(&mut self, records: u64) {
        self.drops.principal += records;
    }

    pub const fn drops(&self) -> DDrops {
        self.drops
    }

    /// All aggregations as they are now.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        (0..self.setup.tables.aggregations.len()).map(|number| self.aggregations.snapshot(number)).collect()
    }

    /// Reads D's own memory; `None` if the address lies outside it.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Option<Result<(), u64>> {
        if address >> 48 != 0x00d7 {
            // Nothing lies at the addresses next to 0, whatever the guest has mapped there.
            return (address < 4096).then_some(Err(address));
        }
        let from = self.bytes(address, to.len());
        Some(match from {
            Some(from) => {
                to.copy_from_slice(from);
                Ok(())
            }
            None => Err(address),
        })
    }

    /// `length` bytes of D's own memory.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        if let Some((slot, offset)) = dynamics::element(address) {
            return self.dynamics.value(slot)?.get(offset..)?.get(..length);
        }
        self.memory.bytes(address, length, &self.setup.tables)
    }

    /// The string at an address of D's own memory, without its end and no longer than `strsize`.
    fn own_text(&self, address: u64) -> Option<&[u8]> {
        if address >> 48 != 0x00d7 {
            return None;
        }
        let rest = match dynamics::element(address) {
            Some((slot, offset)) => self.dynamics.value(slot)?.get(offset..)?,
            None => self.memory.rest(address, &self.setup.tables)?,
        };
        let most = self.setup.limits.strsize;
        let rest = rest.get(..most).unwrap_or(rest);
        match CStr::from_bytes_until_nul(rest) {
            Ok(text) => Some(text.to_bytes()),
            Err(_) => (rest.len() == most).then_some(rest),
        }
    }

    /// Writes D's own memory, never the guest's.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Failure> {
        if let Some((slot, offset)) = dynamics::element(address) {
            let written = self.dynamics.write(slot, offset, from);
            return if written { Ok(()) } else { Err(bad_address(address)) };
        }
        match self.memory.writable(address, from.len()) {
            Some(to) => {
                to.copy_from_slice(from);
                Ok(())
            }
            None => Err(bad_address(address)),
        }
    }
}
