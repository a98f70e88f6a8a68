//! Entries and returns of functions as fbt sees them, paired by the stack pointer.
//!
//! A function returns with the stack pointer that it had at its entry, and no two running functions have the same one,
//! even in different tasks. An entry is therefore open from its hit until the same function returns at the same stack
//! pointer. Functions that jump to others have one stack pointer with them, and return after them. A hit of any function on
//! the same stack at a higher stack pointer shows that the function was left in another way. A part that the compiler has split off (`.cold`) is not called, and returns
//! for its function. Only counts are stored, so that a whole boot can be paired.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use trapline_session::{Command, Condition, Ending, Limits, Names, Observer, RecordView, Script, Session};
use trapline_trace::ProbeName;

/// The suffix of the name of a split-off part.
const COLD: &str = ".cold";
/// The function of Linux in which a task ends.
const LAST: &str = "do_task_dead";

/// The hits of a function that had no counterpart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpaired {
    /// Entries without a return whose frame was reused later.
    pub left: u64,
    /// Entries whose task ended before the return.
    pub ended: u64,
    /// Entries that still had no return when the run ended.
    pub running: u64,
    /// Returns without an earlier entry.
    pub returns: u64,
}

/// A probe: its function, and which of its hits it has.
#[derive(Debug, Clone, Copy)]
struct Known {
    function: u32,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Entry,
    /// The entry of a task's last function.
    LastEntry,
    /// Where the function jumps to a part of its own.
    Part,
    Return,
}

impl At {
    fn of(name: &ProbeName) -> Self {
        match (&*name.name, &*name.function) {
            ("return", _) => Self::Return,
            (_, LAST) => Self::LastEntry,
            (_, function) if function.contains(COLD) => Self::Part,
            _ => Self::Entry,
        }
    }
}

/// Matches the entries and returns of a run.
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
            let whole = name.function.split(COLD).next().unwrap_or(&name.function);
            let function =
                if *name.module == *kernel { whole.to_owned() } else { format!("{}`{whole}", name.module) };
            let function = *numbers.entry(function).or_insert_with_key(|function| {
                pairing.functions.push(function.clone());
                pairing.functions.len() as u32 - 1
            });
            pairing.probes.push(Known { function, at: At::of(name) });
        }
        pairing.unpaired = vec![Unpaired::default(); pairing.functions.len()];
        pairing
    }

    /// A hit of the probe `number` with this stack pointer.
    fn hit(&mut self, number: u32, sp: u64) {
        let Some(&Known { function, at }) = self.probes.get(number as usize) else { return };
        let bottom = sp - sp % self.stack;
        while let Some((&gone, _)) = self.open.range(bottom..sp).next_back() {
            for left in self.open.remove(&gone).unwrap_or_default() {
                self.unpaired[left as usize].left += 1;
            }
        }
        if at == At::Part {
            return;
        }
        let here = self.open.entry(sp).or_default();
        if at != At::Return {
            here.push(function);
        } else if let Some(at) = here.iter().rposition(|running| *running == function) {
            here.remove(at);
            self.pairs += 1;
        } else {
            self.unpaired[function as usize].returns += 1;
        }
        if here.is_empty() {
            self.open.remove(&sp);
        }
        if at == At::LastEntry {
            self.end_task(sp, bottom + self.stack);
        }
    }

    /// Ends a task: none of the open functions on its stack will return.
    fn end_task(&mut self, sp: u64, top: u64) {
        while let Some((&gone, _)) = self.open.range(sp..top).next() {
            for ended in self.open.remove(&gone).unwrap_or_default() {
                self.unpaired[ended as usize].ended += 1;
            }
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
    pub ending: Ending,
    /// Hits; each left a record that was checked.
    pub hits: u64,
    /// The matched entries and returns.
    pub pairing: Pairing,
}

impl Observer for Pairing {
    type Error = Infallible;

    fn record(&mut self, record: &RecordView<'_>, _: &Names<'_>) -> Result<(), Infallible> {
        let header = &record.header;
        self.hit(header.probe, header.sp);
        Ok(())
    }
}

/// Runs a session until the console shows `until`, the guest ends or `limit` instructions, with fbt's probes on all
/// entries and returns, whose tasks have stacks of `stack` bytes.
///
/// # Errors
/// They cannot be armed, or a record was lost.
pub fn run(
    session: &mut Session,
    stack: u64,
    until: &Condition,
    limit: u64,
) -> Result<PairedRun, Box<dyn Error>> {
    session.apply(Command::clause("fbt::: { exit }"))?;
    let probes = session.interposer().ok_or("no probe was inserted")?.names();
    let names: Vec<_> =
        (0..).map_while(|probe| probes.get(probe)).map(|provided| Arc::clone(&provided.name)).collect();
    let mut pairing = Pairing::new(&names, &session.target().image().plan().name, stack);
    let Ok(ending) = session.run(&mut Script::default(), until, &Limits::insns(limit), &mut pairing);
    let (hits, counts) = (session.stats().hits, session.counts());
    if counts.lost() > 0 || counts.committed != hits {
        return Err(format!("{hits} hits, but {counts:?}").into());
    }
    Ok(PairedRun { ending, hits, pairing })
}

#[cfg(test)]
mod tests {
    //! Cases that pair and cases that do not.
    use super::*;

    /// Probes of these functions: entry 2n, return 2n + 1.
    fn pairing(functions: &[&str]) -> Pairing {
        let name = |function: &str, name: &str| {
            let (provider, module) = ("fbt".into(), "vmlinux".into());
            Arc::new(ProbeName { provider, module, function: function.into(), name: name.into() })
        };
        let names: Vec<_> = functions.iter().flat_map(|f| [name(f, "entry"), name(f, "return")]).collect();
        Pairing::new(&names, "vmlinux", 0x4000)
    }

    /// Hits by probe and stack pointer, in their order.
    fn after(functions: &[&str], hits: &[(u32, u64)]) -> (u64, BTreeMap<String, Unpaired>) {
        let mut pairing = pairing(functions);
        hits.iter().for_each(|(probe, sp)| pairing.hit(*probe, *sp));
        (pairing.pairs(), pairing.unpaired())
    }

    #[test]
    fn recursions_and_other_stacks_pair_by_the_stack_pointer() {
        let hits = [(0, 0x8ff0), (0, 0x8fe0), (2, 0xcfe0), (1, 0x8fe0), (3, 0xcfe0), (1, 0x8ff0)];
        assert_eq!(after(&["f", "g"], &hits), (3, BTreeMap::new()));
    }

    #[test]
    fn frames_left_behind_are_distinguished_from_running_ones() {
        // f calls g, which calls h; then h is entered where g was, as by a jump in g.
        let hits = [(0, 0x8ff0), (2, 0x8fe0), (4, 0x8fd0), (4, 0x8fe0), (5, 0x8fe0), (3, 0xcff0)];
        let (pairs, unpaired) = after(&["f", "g", "h"], &hits);
        let none = Unpaired::default();
        let expected = [
            ("f", Unpaired { running: 1, ..none }),
            ("g", Unpaired { running: 1, returns: 1, ..none }),
            ("h", Unpaired { left: 1, ..none }),
        ];
        assert_eq!(pairs, 1);
        assert_eq!(unpaired, expected.map(|(name, unpaired)| (name.to_owned(), unpaired)).into());
    }

    #[test]
    fn a_cold_part_returns_for_its_function_and_a_task_ends_with_all_that_it_was_in() {
        let functions = ["f", "f.cold", "do_exit", LAST];
        let hits = [(0, 0x8ff0), (2, 0x8fe0), (3, 0x8ff0), (4, 0x8ff0), (6, 0x8fe0)];
        let (pairs, unpaired) = after(&functions, &hits);
        let ended = Unpaired { ended: 1, ..Unpaired::default() };
        assert_eq!(pairs, 1);
        assert_eq!(unpaired, [("do_exit", ended), (LAST, ended)].map(|(n, u)| (n.to_owned(), u)).into());
    }
}
