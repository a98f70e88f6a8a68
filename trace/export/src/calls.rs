//! The calls that each thread has entered, from probes on entries and returns.
//!
//! Returns without an entry are counted and dropped. A return ends the calls above its own: they ended without a return
//! that is probed, as by a jump to another function. So does a hit whose stack pointer shows that their frames are gone, if
//! records hold it: that is how the entries of an interrupt end.

use std::collections::BTreeMap;

use crate::hit::Hit;
use crate::notes::Notes;

/// Most calls of a thread that are waited for. Deeper ones are counted only, so that their returns end nothing else.
const MOST_CALLS: usize = 1024;

/// Most calls of all threads together that are waited for. A thread that ends in a call never leaves it.
const MOST_OPEN: usize = 1 << 20;

/// Most threads that are told apart.
const MOST_THREADS: usize = 1 << 16;

/// Most bytes between two stack pointers of one stack: the next stack may lie right behind it.
const STACK: u64 = 16 << 10;

/// A thread; a CPU, if records do not say which task hit a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thread {
    /// The task, and its process if that is known.
    Task { process: u32, pid: u32 },
    /// The CPU.
    Cpu(u32),
    /// All tasks beyond the number that are told apart. They have no calls.
    Other,
}

/// The threads that have hit probes. Each is one, whatever its probes say of its process.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// The process of each task, and whether a record has said so.
    processes: BTreeMap<u32, (u32, bool)>,
    /// Whether a hit did not say which task it was.
    pub without_task: bool,
    /// Hits of tasks beyond the number that are told apart.
    pub others: u64,
}

impl Threads {
    /// The thread of a hit.
    pub fn of(&mut self, hit: &Hit) -> Thread {
        if !hit.has_task {
            self.without_task = true;
            return Thread::Cpu(hit.cpu);
        }
        let (pid, said) = (hit.pid, hit.process != 0);
        if self.processes.len() >= MOST_THREADS && !self.processes.contains_key(&pid) {
            self.others += 1;
            return Thread::Other;
        }
        let first = (if said { hit.process } else { pid }, said);
        let known = self.processes.entry(pid).or_insert(first);
        // A number that is of another process now is that of another thread. A thread whose process was not known at first
        // keeps the one that it was shown with.
        if said && known.1 {
            known.0 = hit.process;
        }
        Thread::Task { process: known.0, pid }
    }

    /// Says what was not told apart.
    pub fn report(&self, notes: &Notes) {
        let of = format!("of a task after the first {MOST_THREADS}, and is shown without calls");
        let many = format!("of tasks after the first {MOST_THREADS}, and are shown without calls");
        notes.count(self.others, &format!("hit was {of}"), &format!("hits were {many}"));
    }
}

/// What a hit does to the calls of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Entry,
    Return,
    Neither,
}

/// A call that has been entered.
#[derive(Debug)]
struct Entered<T> {
    /// Provider, module and function.
    what: [String; 3],
    /// Code segment and stack pointer at the entry.
    stack: (u32, u64),
    of: T,
}

#[derive(Debug)]
struct Stack<T> {
    calls: Vec<Entered<T>>,
    /// Calls beyond the deepest one that is waited for.
    deeper: u64,
}

/// The calls of all threads. Each carries a value of its caller.
#[derive(Debug)]
pub(crate) struct Calls<T> {
    threads: BTreeMap<Thread, Stack<T>>,
    /// Calls that are waited for, of all threads.
    open: usize,
    last: Option<(Thread, u32, u64)>,
    /// Returns without an entry.
    pub unmatched: u64,
    /// Calls that were too deep.
    pub too_deep: u64,
    /// Calls that came when as many others were waited for as can be.
    pub too_many: u64,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self { threads: BTreeMap::new(), open: 0, last: None, unmatched: 0, too_deep: 0, too_many: 0 }
    }
}

fn what(hit: &Hit) -> [String; 3] {
    [hit.part(|p| &p.provider), hit.part(|p| &p.module), hit.part(|p| &p.function)].map(str::to_owned)
}

impl<T> Calls<T> {
    /// Says what was not waited for.
    pub fn report(&self, notes: &Notes) {
        let why = format!("not followed, because {MOST_OPEN} others had not returned");
        notes.count(self.too_many, &format!("call was {why}"), &format!("calls were {why}"));
    }

    /// What a hit does. A further record of the same firing does nothing.
    pub fn step(&mut self, thread: Thread, hit: &Hit) -> Step {
        let Some(probe) = hit.probe.as_ref().filter(|_| thread != Thread::Other) else {
            return Step::Neither;
        };
        let this = (thread, hit.id, hit.icount);
        if self.last.replace(this) == Some(this) || probe.function.is_empty() {
            return Step::Neither;
        }
        match &*probe.name {
            "entry" => Step::Entry,
            "return" => Step::Return,
            // The end of a process is the return of no function.
            "exit" if *probe.provider != *"proc" => Step::Return,
            _ => Step::Neither,
        }
    }

    /// The calls whose frames are gone when a hit comes, innermost first: the stack pointer is above that of their entry, or
    /// equal at another entry. The call that returns is not one of them, also where the probe fires when the `ret` has been
    /// executed, so that its frame is gone: it is the outermost one of its function.
    pub fn gone(&mut self, thread: Thread, hit: &Hit, step: Step) -> Vec<T> {
        let (cs, sp) = hit.stack;
        let Some(stack) = self.threads.get_mut(&thread).filter(|_| sp != 0) else { return Vec::new() };
        let is_gone = |call: &Entered<T>| {
            let (own_cs, own) = call.stack;
            let below = sp.checked_sub(own).filter(|distance| *distance < STACK && own_cs == cs && own != 0);
            // A return, and whatever is hit at the entry too, has the stack pointer of its own entry.
            below.is_some_and(|distance| distance > 0 || step == Step::Entry)
        };
        let mut live = stack.calls.iter().rposition(|call| !is_gone(call)).map_or(0, |at| at + 1);
        if step == Step::Return {
            let own = what(hit);
            // One that fires at the `ret` has the stack pointer of its entry; those of programs fire behind it.
            let in_program = hit.part(|p| &p.provider).starts_with("pid");
            let last = live.checked_sub(1).and_then(|at| stack.calls.get(at));
            let at_ret = last.is_some_and(|call| !in_program && call.what == own && call.stack == hit.stack);
            let returning = stack.calls.iter().skip(live).position(|call| call.what == own);
            live += returning.filter(|_| !at_ret).map_or(0, |at| at + 1);
        }
        if live < stack.calls.len() {
            // What was too deep is above them.
            stack.deeper = 0;
        }
        self.end(thread, live)
    }

    /// Ends the calls of a thread from this one on, innermost first.
    fn end(&mut self, thread: Thread, from: usize) -> Vec<T> {
        let Some(stack) = self.threads.get_mut(&thread) else { return Vec::new() };
        let ended: Vec<T> = stack.calls.drain(from..).rev().map(|call| call.of).collect();
        self.open -= ended.len();
        if stack.calls.is_empty() && stack.deeper == 0 {
            self.threads.remove(&thread);
        }
        ended
    }

    /// Enters the function of a hit. Returns whether the call is waited for.
    pub fn enter(&mut self, thread: Thread, hit: &Hit, of: T) -> bool {
        let room = self.open < MOST_OPEN;
        if !room && !self.threads.contains_key(&thread) {
            // Its return has no entry then, and ends nothing else.
            self.too_many += 1;
            return false;
        }
        let stack = self.threads.entry(thread).or_insert_with(|| Stack { calls: Vec::new(), deeper: 0 });
        if room && stack.deeper == 0 && stack.calls.len() < MOST_CALLS {
            stack.calls.push(Entered { what: what(hit), stack: hit.stack, of });
            self.open += 1;
            return true;
        }
        stack.deeper += 1;
        let count = if room { &mut self.too_deep } else { &mut self.too_many };
        *count += 1;
        false
    }

    /// Leaves the function of a hit: the calls that end, innermost first.
    pub fn leave(&mut self, thread: Thread, hit: &Hit) -> Vec<T> {
        let what = what(hit);
        let Some(stack) = self.threads.get_mut(&thread) else {
            self.unmatched += 1;
            return Vec::new();
        };
        if let Some(left) = stack.deeper.checked_sub(1) {
            stack.deeper = left;
            return Vec::new();
        }
        let Some(at) = stack.calls.iter().rposition(|call| call.what == what) else {
            self.unmatched += 1;
            return Vec::new();
        };
        self.end(thread, at)
    }

    /// The value of the innermost call of a thread.
    pub fn innermost(&self, thread: Thread) -> Option<&T> {
        self.threads.get(&thread)?.calls.last().map(|call| &call.of)
    }

    /// Whether a thread has entered a function of this provider, and not left it.
    pub fn has_entered(&self, thread: Thread, provider: &str) -> bool {
        let calls = self.threads.get(&thread).map(|stack| stack.calls.as_slice()).unwrap_or_default();
        calls.iter().any(|call| call.what.first().is_some_and(|own| own == provider))
    }

    /// The calls that have not ended, innermost first for each thread.
    pub fn take_open(&mut self) -> Vec<T> {
        self.open = 0;
        let threads = std::mem::take(&mut self.threads).into_values();
        threads.flat_map(|stack| stack.calls.into_iter().rev().map(|call| call.of)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trapline_trace::ProbeName;

    const T: Thread = Thread::Cpu(0);

    fn hit(function: &str, name: &str, icount: u64) -> Hit {
        let [provider, module, function, name] = ["fbt", "m", function, name].map(Arc::from);
        let probe = Some(Arc::new(ProbeName { provider, module, function, name }));
        let task = String::new();
        Hit {
            icount,
            time: icount,
            cpu: 0,
            pid: 0,
            has_task: false,
            process: 0,
            task,
            probe,
            id: 1,
            stack: (0, 0),
        }
    }

    #[test]
    fn the_end_of_a_process_is_no_return() {
        let of = |provider: &str, name: &str| {
            let [provider, module, function, name] = [provider, "m", "do_exit", name].map(Arc::from);
            let probe = Some(Arc::new(ProbeName { provider, module, function, name }));
            Calls::<u8>::default().step(T, &Hit { probe, ..hit("", "", 1) })
        };
        assert_eq!(of("proc", "exit"), Step::Neither);
        assert_eq!((of("fbt", "return"), of("fbt", "exit")), (Step::Return, Step::Return));
    }

    #[test]
    fn calls_whose_frames_are_gone_have_ended() {
        let at = |hit: Hit, sp| Hit { stack: (8, sp), ..hit };
        let mut calls = Calls::default();
        for (n, sp) in [0x9000, 0x8f00, 0x8e00].into_iter().enumerate() {
            calls.enter(T, &at(hit("a", "entry", n as u64), sp), n);
        }
        // The return of the innermost call, a deeper call, and a hit on another stack end nothing.
        assert!(calls.gone(T, &at(hit("a", "return", 4), 0x8e00), Step::Return).is_empty());
        assert!(calls.gone(T, &at(hit("b", "entry", 4), 0x8d00), Step::Entry).is_empty());
        assert!(calls.gone(T, &at(hit("b", "entry", 4), 0x2_0000), Step::Entry).is_empty());
        assert!(
            calls.gone(T, &Hit { stack: (0x1b, 0x8f80), ..hit("b", "entry", 4) }, Step::Entry).is_empty()
        );
        // An entry at the place of another call.
        assert_eq!(calls.gone(T, &at(hit("b", "entry", 5), 0x8f00), Step::Entry), [2, 1]);
        assert_eq!(calls.innermost(T), Some(&0));
    }

    #[test]
    fn a_return_that_fires_behind_the_instruction_has_its_entry() {
        let at = |hit: Hit, provider: &str, sp| {
            let probe = hit.probe.as_deref().cloned().unwrap();
            let probe = Some(Arc::new(ProbeName { provider: Arc::from(provider), ..probe }));
            Hit { stack: (8, sp), probe, ..hit }
        };
        for (provider, frame) in [("pid7", 0x100), ("fbt", 0x100), ("pid7", 8)] {
            let mut calls = Calls::default();
            // The second and the third are of one function; `c` ended by a jump to elsewhere.
            for (n, name) in ["a", "b", "b", "c"].into_iter().enumerate() {
                calls.enter(T, &at(hit(name, "entry", n as u64), provider, 0x9000 - frame * n as u64), n);
            }
            for (n, name, ended) in [(2, "b", [3, 2].as_slice()), (1, "b", &[1]), (0, "a", &[0])] {
                let back = at(hit(name, "return", 9 - n), provider, 0x9008 - frame * n);
                let mut left = calls.gone(T, &back, Step::Return);
                left.extend(calls.leave(T, &back));
                assert_eq!(left, ended, "{provider}");
            }
            assert_eq!(calls.unmatched, 0);
        }
        // At the `ret` itself, the stale call of the same function above is not the one that returns.
        let mut calls = Calls::default();
        for (n, sp) in [0x9000, 0x8f00].into_iter().enumerate() {
            calls.enter(T, &at(hit("a", "entry", n as u64), "fbt", sp), n);
        }
        let back = at(hit("a", "return", 5), "fbt", 0x9000);
        assert_eq!((calls.gone(T, &back, Step::Return), calls.leave(T, &back)), (vec![1], vec![0]));
    }

    #[test]
    fn a_return_ends_the_calls_above_it() {
        let mut calls = Calls::default();
        for (n, name) in ["a", "b", "c"].iter().enumerate() {
            assert!(calls.enter(T, &hit(name, "entry", n as u64), n));
        }
        assert_eq!(calls.leave(T, &hit("b", "return", 5)), [2, 1]);
        assert_eq!(calls.innermost(T), Some(&0));
        assert!(calls.leave(T, &hit("b", "return", 6)).is_empty());
        assert_eq!(calls.unmatched, 1);
        assert_eq!(calls.take_open(), [0]);
    }

    #[test]
    fn a_second_record_of_a_firing_is_no_second_call() {
        let mut calls = Calls::<()>::default();
        let entry = hit("a", "entry", 1);
        assert_eq!(calls.step(T, &entry), Step::Entry);
        assert_eq!(calls.step(T, &entry), Step::Neither);
        assert_eq!(calls.step(T, &hit("a", "entry", 2)), Step::Entry);
    }

    #[test]
    fn calls_that_were_too_deep_are_gone_with_those_below_them() {
        let at = |hit: Hit, sp| Hit { stack: (8, sp), ..hit };
        let mut calls = Calls::default();
        for n in 0..MOST_CALLS + 2 {
            calls.enter(T, &at(hit("a", "entry", n as u64), 0x9000 - n as u64), n);
        }
        let entry = at(hit("b", "entry", 9_000), 0x9000);
        assert_eq!(calls.gone(T, &entry, Step::Entry).len(), MOST_CALLS);
        assert!(calls.enter(T, &entry, 7) && calls.leave(T, &hit("b", "return", 9_001)) == [7]);
    }

    #[test]
    fn threads_that_end_in_calls_leave_a_limited_number_of_them() {
        let task = |pid| Thread::Task { process: pid, pid };
        let mut calls = Calls::default();
        for n in 0..MOST_OPEN as u32 {
            assert!(calls.enter(task(n), &hit("a", "entry", 1), n));
        }
        // A new thread has no calls then, and one that has some balances.
        let new = task(u32::MAX);
        assert!(
            !calls.enter(new, &hit("a", "entry", 2), 0)
                && calls.leave(new, &hit("a", "return", 3)).is_empty()
        );
        assert!(
            !calls.enter(task(5), &hit("a", "entry", 4), 0)
                && calls.leave(task(5), &hit("a", "return", 5)).is_empty()
        );
        assert_eq!((calls.too_many, calls.unmatched, calls.threads.len()), (2, 1, MOST_OPEN));
        assert_eq!(calls.leave(task(5), &hit("a", "return", 6)), [5]);
        assert!(calls.enter(new, &hit("a", "entry", 7), 0));
    }

    #[test]
    fn threads_beyond_those_that_are_told_apart_are_one_without_calls() {
        let of = |pid| Hit { pid, has_task: true, ..hit("a", "entry", pid.into()) };
        let mut threads = Threads::default();
        assert!((0..MOST_THREADS as u32).all(|pid| threads.of(&of(pid)) != Thread::Other));
        assert_eq!((threads.of(&of(u32::MAX)), threads.others), (Thread::Other, 1));
        assert_eq!(threads.of(&of(3)), Thread::Task { process: 3, pid: 3 });
        assert_eq!(Calls::<()>::default().step(Thread::Other, &of(4)), Step::Neither);
    }

    #[test]
    fn calls_that_are_too_deep_still_balance() {
        let mut calls = Calls::default();
        for n in 0..MOST_CALLS + 2 {
            calls.enter(T, &hit("a", "entry", n as u64), n);
        }
        assert_eq!(calls.too_deep, 2);
        let ended: usize =
            (0..MOST_CALLS + 2).map(|n| calls.leave(T, &hit("a", "return", n as u64)).len()).sum();
        assert_eq!((ended, calls.unmatched), (MOST_CALLS, 0));
    }
}
