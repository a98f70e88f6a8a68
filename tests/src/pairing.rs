//! Entries and returns of functions as fbt sees them, paired by the stack pointer.
//!
//! A function is left with the stack pointer that it was entered with, and no two functions that run have the same one,
//! whichever tasks they are of. So an entry is open from its hit until the return of the same function at the same stack
//! pointer, and one that is entered again there has been left in another way. The part that a compiler has split off a
//! function (`.cold`) returns for it. Only counts are kept, so a whole boot can be paired.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::Arc;

use trapline_emu::{Machine, Stop, TrapInterposer};
use trapline_interposer::{Interposer, InterposerConfig};
use trapline_providers::{Clause, Target, enable};
use trapline_trace::{ChannelConfig, HeaderItems, ProbeName};

/// Instructions from one look at the records to the next.
const SLICE: u64 = 20_000;
/// What the name of a split-off part has behind that of its function.
const COLD: &str = ".cold";
/// The function of Linux that a task does not survive.
const LAST: &str = "do_task_dead";

/// What of a function's hits had no counterpart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpaired {
    /// Entries that no return followed before the function was entered again at the same place.
    pub left: u64,
    /// Entries that the task did not survive.
    pub ended: u64,
    /// Entries that still had no return when the run ended.
    pub running: u64,
    /// Returns that no entry came before.
    pub returns: u64,
}

/// A probe: its function, whether it is an entry, whether it is that of a task's last function.
#[derive(Debug, Clone, Copy)]
struct Known {
    function: u32,
    entry: bool,
    last: bool,
}

/// How the entries and returns of a run go together.
#[derive(Debug, Default)]
pub struct Pairing {
    /// By number.
    probes: Vec<Known>,
    functions: Vec<String>,
    /// Functions that run, by the stack pointer that they were entered with.
    open: BTreeMap<u64, Vec<u32>>,
    /// Bytes of a task's stack, which begins at a multiple of it.
    stack: u64,
    pairs: u64,
    unpaired: Vec<Unpaired>,
}

impl Pairing {
    fn new(names: &[Arc<ProbeName>], kernel: &str, stack: u64) -> Self {
        let mut pairing = Self { stack, ..Self::default() };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        for name in names {
            let entry = &*name.name == "entry";
            let whole = name.function.split(COLD).next().filter(|_| !entry).unwrap_or(&name.function);
            let function =
                if *name.module == *kernel { whole.to_owned() } else { format!("{}`{whole}", name.module) };
            let function = *numbers.entry(function).or_insert_with_key(|function| {
                pairing.functions.push(function.clone());
                pairing.functions.len() as u32 - 1
            });
            pairing.probes.push(Known { function, entry, last: &*name.function == LAST });
        }
        pairing.unpaired = vec![Unpaired::default(); pairing.functions.len()];
        pairing
    }

    /// A hit of the probe `number` with this stack pointer.
    fn hit(&mut self, number: u32, sp: u64) {
        let Some(&Known { function, entry, last }) = self.probes.get(number as usize) else { return };
        let here = self.open.entry(sp).or_default();
        let open = here.iter().rposition(|running| *running == function);
        if let Some(at) = open {
            here.remove(at);
        }
        match (entry, open) {
            (true, before) => {
                here.push(function);
                self.unpaired[function as usize].left += u64::from(before.is_some());
            }
            (false, Some(_)) => {
                self.pairs += 1;
                if here.is_empty() {
                    self.open.remove(&sp);
                }
            }
            (false, None) => self.unpaired[function as usize].returns += 1,
        }
        if last {
            self.end_task(sp);
        }
    }

    /// Nothing that is open on this stack will return.
    fn end_task(&mut self, sp: u64) {
        let bottom = sp - sp % self.stack;
        let mut above = self.open.split_off(&sp);
        self.open.append(&mut above.split_off(&(bottom + self.stack)));
        for function in above.into_values().flatten() {
            self.unpaired[function as usize].ended += 1;
        }
    }

    /// Pairs of entry and return.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// The functions some of whose hits had no counterpart.
    pub fn unpaired(&self) -> BTreeMap<String, Unpaired> {
        let mut all = self.unpaired.clone();
        for &running in self.open.values().flatten() {
            all[running as usize].running += 1;
        }
        let named = self.functions.iter().cloned().zip(all);
        named.filter(|(_, unpaired)| *unpaired != Unpaired::default()).collect()
    }
}

/// A run with every entry and return probed.
#[derive(Debug)]
pub struct PairedRun {
    /// Why it ended.
    pub stop: Stop,
    /// Hits; each left a record that was looked at.
    pub hits: u64,
    /// What they say.
    pub pairing: Pairing,
}

/// Runs a machine up to instruction `limit` with fbt's probes on all entries and returns of its target, whose tasks have
/// stacks of `stack` bytes.
///
/// # Errors
/// They cannot be armed, or a record was lost.
pub fn run(
    machine: &mut Machine,
    target: &Target,
    stack: u64,
    limit: u64,
) -> Result<PairedRun, Box<dyn Error>> {
    let mut probes = Interposer::new(InterposerConfig {
        header: HeaderItems::default(),
        channel: ChannelConfig::growing(),
        profile: None,
        max_steps: None,
    });
    let (resolved, _) = enable(target, &Clause::parse("fbt::: { exit }")?)?;
    let names = resolved.points.iter().filter_map(|point| point.provided.as_ref());
    let names: Vec<_> = names.map(|provided| Arc::clone(&provided.name)).collect();
    let mut pairing = Pairing::new(&names, &target.image().plan().name, stack);
    probes.insert(machine.core_mut(), "fbt", resolved.program, resolved.points)?;
    let stop = loop {
        let next = (machine.icount() / SLICE + 1) * SLICE;
        let stop = machine.run(Some(&mut probes as &mut dyn TrapInterposer), next.min(limit));
        probes.channels().drain(|record| pairing.hit(record.header.probe, record.header.sp));
        if stop != Stop::Limit || machine.icount() >= limit {
            break stop;
        }
    };
    let (hits, counts) = (probes.stats().hits, probes.channels().counts());
    if counts.lost() > 0 || counts.committed != hits {
        return Err(format!("{hits} hits, but {counts:?}").into());
    }
    Ok(PairedRun { stop, hits, pairing })
}
