//! Stacks of a run, from what its records hold.
//!
//! There are three sources: stacks that were recorded with the hits, stacks that a D program has recorded or aggregated
//! by, and calls, from probes on entries and returns. The first one that is there is used; weights by instructions or
//! time need calls.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value};
use trapline_trace::{
    End, GuestStack, HeaderItems, Kind, RecordView, Reply, RunInfo, Shown, Sink, Symbolize,
};

use crate::calls::{Calls, Step, Thread, Threads};
use crate::hit::{Hit, number};
use crate::notes::Notes;
use crate::tree::{ROOT, Tree};
use crate::weight::Weight;

/// The provider of samples.
const SAMPLES: &str = "profile";

/// Why there are no stacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStacks {
    /// None were recorded.
    #[error(
        "there are no stacks and no calls: record with --stack or --ustack, with probes on entries and returns such as \
         --rpn 'fbt:::{{}}', or with a D program that uses stack()"
    )]
    Nothing,
    /// Weights by instructions or time need calls.
    #[error(
        "weights by {0} need calls: record with probes on entries and returns, such as --rpn 'fbt:::{{}}'"
    )]
    NoCalls(String),
    /// No record holds the value that is the weight.
    #[error(
        "no hit with a stack holds a value for --weight {0}: record with --stack or --ustack, and log that value"
    )]
    NoValue(String),
    /// All of an aggregation's values are 0 or negative.
    #[error("all stacks of the aggregations have values of 0 or less, which cannot be shown as a share")]
    NotPositive,
}

/// A hit whose stacks may follow.
#[derive(Debug)]
struct Waiting {
    /// Instruction count, CPU and number of the probe.
    key: (u64, u32, u32),
    weight: Option<u64>,
    task: Option<String>,
    /// Whether it is a sample: a tick of `profile`.
    is_sample: bool,
    /// The function that was hit, and its address.
    hit: (String, u64),
    kernel: Option<Part>,
    user: Option<Part>,
}

/// A recorded stack.
#[derive(Debug)]
struct Part {
    /// Functions, innermost first.
    frames: Vec<String>,
    /// The address of the innermost one, if that is where the thread was.
    at: Option<u64>,
}

/// What ran last on a CPU.
#[derive(Debug, Clone, Copy)]
struct Ran {
    at: u64,
    node: usize,
}

/// Collects stacks. As a sink it writes nothing.
#[derive(Debug)]
pub struct Stacks {
    weight: Option<Weight>,
    items: HeaderItems,
    waiting: Option<Waiting>,
    recorded: Tree,
    of_d: Tree,
    aggregated: Tree,
    by_calls: Tree,
    /// Whether a stack of `recorded` is no sample.
    has_others: bool,
    threads: Threads,
    calls: Calls<usize>,
    /// By CPU for instructions, by thread for time.
    ran: BTreeMap<Thread, Ran>,
    /// Hits with a stack that do not hold the value of the weight.
    without_value: u64,
    /// Stacks whose value in an aggregation is 0 or negative.
    not_positive: u64,
}

/// A function of a stack without its offset.
pub(crate) fn function(frame: &str) -> &str {
    frame.rsplit_once("+0x").map_or(frame, |(function, _)| function)
}

/// The frame of a task, below those of its functions; `None` if it is not known. A task may have an empty name.
fn task(name: &str, pid: u32) -> Option<String> {
    match (name, pid) {
        ("", 0) => None,
        ("", pid) => Some(format!("task {pid}")),
        (name, _) => Some(name.to_owned()),
    }
}

impl Stacks {
    /// Collects by this weight; without one by hits, or for calls by instructions.
    #[must_use]
    pub fn new(weight: Option<Weight>, items: HeaderItems) -> Self {
        Self {
            weight,
            items,
            waiting: None,
            recorded: Tree::default(),
            of_d: Tree::default(),
            aggregated: Tree::default(),
            by_calls: Tree::default(),
            has_others: false,
            threads: Threads::default(),
            calls: Calls::default(),
            ran: BTreeMap::new(),
            without_value: 0,
            not_positive: 0,
        }
    }

    /// The stacks of the whole run and the unit of their weights.
    ///
    /// # Errors
    /// There are none.
    pub fn finish(mut self, notes: &Notes) -> Result<(Tree, String), NoStacks> {
        self.flush();
        let of_calls = matches!(self.weight, Some(Weight::Insns | Weight::Ns));
        let by_value = matches!(self.weight, Some(Weight::Word(_) | Weight::Argument(_)));
        let unit = self.weight.as_ref().unwrap_or(&Weight::Count).unit().to_owned();
        let (tree, unit) = if of_calls {
            if self.by_calls.is_empty() {
                return Err(NoStacks::NoCalls(unit));
            }
            (self.by_calls, unit)
        } else if !self.recorded.is_empty() {
            let are_samples = !self.has_others && matches!(self.weight, None | Some(Weight::Count));
            (self.recorded, if are_samples { "samples".to_owned() } else { unit })
        } else if by_value {
            let weight = match &self.weight {
                Some(Weight::Word(n)) => n.to_string(),
                _ => unit,
            };
            return Err(NoStacks::NoValue(weight));
        } else if !self.aggregated.is_empty() {
            (self.aggregated, "in the aggregations".to_owned())
        } else if !self.of_d.is_empty() {
            (self.of_d, unit)
        } else if !self.by_calls.is_empty() {
            let unit = self.weight.as_ref().map_or("instructions", |_| "calls");
            notes.count(self.calls.unmatched, "return had no entry", "returns had no entry");
            notes.count(self.calls.too_deep, "call was too deep", "calls were too deep");
            self.threads.report(notes);
            self.calls.report(notes);
            if self.threads.without_task {
                notes.say(
                    "the records do not say which task hit a probe, so calls of several tasks end each other: record with \
                     --header pid,name,cs,sp",
                );
            }
            (self.by_calls, unit.to_owned())
        } else if self.not_positive > 0 {
            return Err(NoStacks::NotPositive);
        } else {
            return Err(NoStacks::Nothing);
        };
        notes.count(
            self.not_positive,
            "stack has a value of 0 or less and was left out",
            "stacks have values of 0 or less and were left out",
        );
        notes.count(self.without_value, "hit did not hold the weight", "hits did not hold the weight");
        notes.count(tree.cut, "stack was cut", "stacks were cut");
        Ok((tree, unit))
    }

    /// Adds the hit whose stacks are complete.
    fn flush(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        let Some(inner) = waiting.kernel.as_ref().or(waiting.user.as_ref()) else { return };
        let Some(weight) = waiting.weight else {
            self.without_value += 1;
            return;
        };
        let (leaf, ip) = &waiting.hit;
        // A symbol of the kernel does not name it, but its callers do.
        let module =
            inner.frames.first().and_then(|frame| frame.split_once('`')).filter(|_| !leaf.contains('`'));
        let leaf = match module {
            Some((module, _)) if !leaf.is_empty() => format!("{module}`{leaf}"),
            _ => leaf.clone(),
        };
        let leaf = Some(leaf.as_str()).filter(|leaf| inner.at != Some(*ip) && !leaf.is_empty());
        let parts = [&waiting.user, &waiting.kernel];
        let frames = parts.iter().filter_map(|part| part.as_ref());
        let frames = frames.flat_map(|part| part.frames.iter().rev().map(String::as_str));
        self.has_others |= !waiting.is_sample;
        self.recorded.add_stack(waiting.task.as_deref().into_iter().chain(frames).chain(leaf), weight);
    }

    /// A stack of the guest, which follows the record of its hit.
    fn stack(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) {
        let (h, width) = (&record.header, record.header.width);
        let Ok(stack) = GuestStack::decode(record.data, width) else { return };
        let name = |frame: &trapline_trace::StackFrame| {
            let Some((module, address)) = stack.place(*frame, width) else {
                return format!("{:#x}", frame.ip);
            };
            let file = module.name.rsplit('/').next().unwrap_or_default();
            match symbols.frame(h.kind, &module.name, address) {
                Some((name, _)) if !name.is_empty() => format!("{file}`{name}"),
                _ => format!("{file}`{address:#x}"),
            }
        };
        let at = stack.frames.first().filter(|frame| frame.exact).map(|frame| frame.ip);
        let part = Part { frames: stack.frames.iter().map(name).collect(), at };
        if self.waiting.as_ref().is_none_or(|waiting| waiting.key != (h.icount, h.cpu, h.probe)) {
            self.flush();
            self.waiting = Some(self.hit(record, symbols));
        }
        let Some(waiting) = &mut self.waiting else { return };
        match h.kind {
            Kind::KernelStack => waiting.kernel = Some(part),
            _ => waiting.user = Some(part),
        }
    }

    fn hit(&self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> Waiting {
        let h = &record.header;
        let probe = symbols.probe(h.probe);
        let is_sample = probe.as_ref().is_some_and(|probe| &*probe.name.provider == SAMPLES);
        let function = match probe {
            Some(probe) if !probe.name.function.is_empty() => {
                format!("{}`{}", probe.name.module, probe.name.function)
            }
            _ => symbols
                .symbol(h.ip, h.probe)
                .map(|name| function(&name).replacen(':', "`", 1))
                .unwrap_or_default(),
        };
        let task = task(&String::from_utf8_lossy(record.name), h.pid);
        let weight = self.weight.as_ref().map_or(Some(1), |weight| weight.of(record, symbols));
        Waiting {
            key: (h.icount, h.cpu, h.probe),
            weight,
            task,
            is_sample,
            hit: (function, h.ip),
            kernel: None,
            user: None,
        }
    }

    /// Attributes what has passed since the last hit, and follows the call that this hit begins or ends.
    fn call(&mut self, hit: &Hit) {
        let thread = self.threads.of(hit);
        let (at, clock) = match self.weight {
            Some(Weight::Ns) => (hit.time, thread),
            _ => (hit.icount, Thread::Cpu(hit.cpu)),
        };
        let counts_calls = self.weight == Some(Weight::Count);
        if let Some(ran) = self.ran.get(&clock).filter(|_| !counts_calls)
            && ran.node != ROOT
        {
            self.by_calls.add(ran.node, at.saturating_sub(ran.at));
        }
        let step = self.calls.step(thread, hit);
        drop(self.calls.gone(thread, hit, step));
        match step {
            Step::Entry => {
                let caller = self.calls.innermost(thread).copied();
                let caller = caller.unwrap_or_else(|| match task(&hit.task, hit.pid) {
                    None => ROOT,
                    Some(task) => self.by_calls.child(ROOT, &task),
                });
                let node = self.by_calls.child(caller, hit.part(|p| &p.function));
                if self.calls.enter(thread, hit, node) && counts_calls {
                    self.by_calls.add(node, 1);
                }
            }
            Step::Return => drop(self.calls.leave(thread, hit)),
            Step::Neither => {}
        }
        let node = self.calls.innermost(thread).copied().unwrap_or(ROOT);
        self.ran.insert(clock, Ran { at, node });
    }

    /// Stacks that a clause of a D program has recorded.
    fn firing(&mut self, object: &Map<String, Value>) {
        let parts = object.get("parts").and_then(Value::as_array);
        for part in
            parts.into_iter().flatten().filter(|part| part.get("action").is_some_and(|a| a == "stack"))
        {
            let frames = part.get("value").and_then(Value::as_array);
            let Some(frames) = frames.filter(|frames| !frames.is_empty()) else { continue };
            let frames = frames.iter().rev().filter_map(Value::as_str).map(function);
            self.of_d.add_stack(frames, 1);
        }
    }

    /// An aggregation of a D program: the stacks among its keys, below the other keys.
    fn aggregation(&mut self, object: &Map<String, Value>) {
        let entries = object.get("entries").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            let Some(keys) = entry.get("keys").and_then(Value::as_array) else { continue };
            let stacks: Vec<&Vec<Value>> = keys.iter().filter_map(Value::as_array).collect();
            if stacks.is_empty() {
                continue;
            }
            let others: Vec<String> =
                keys.iter().filter(|key| !key.is_array()).map(crate::hit::plain).collect();
            let frames = stacks.iter().flat_map(|stack| stack.iter().rev()).filter_map(Value::as_str);
            let weight = entry.get("value").map_or(0, value_of);
            if weight == 0 {
                self.not_positive += 1;
                continue;
            }
            self.aggregated.add_stack(others.iter().map(String::as_str).chain(frames.map(function)), weight);
        }
    }
}

/// The value of an entry: a number, or the counts of a histogram together. A negative one is 0.
fn value_of(value: &Value) -> u64 {
    match value {
        Value::Array(buckets) => {
            let counts = buckets.iter().filter_map(|bucket| bucket.get("count")?.as_u64());
            counts.fold(0, u64::saturating_add)
        }
        value if value.as_i64().is_some_and(|value| value < 0) => 0,
        value => number(value).unwrap_or(0),
    }
}

impl Sink for Stacks {
    fn begin(&mut self, _: &RunInfo) -> io::Result<()> {
        Ok(())
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        if record.header.kind.is_guest_stack() {
            self.stack(record, symbols);
        } else if record.header.kind == Kind::Data {
            self.flush();
            self.waiting = Some(self.hit(record, symbols));
            self.call(&Hit::of_record(record, symbols, self.items));
        }
        Ok(())
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        for object in shown.objects.iter().filter_map(Value::as_object) {
            match object.get("type").and_then(Value::as_str) {
                Some("d") => {
                    self.firing(object);
                    if let Some(hit) = Hit::of_d(object) {
                        self.call(&hit);
                    }
                }
                Some("aggregation") => self.aggregation(object),
                _ => {}
            }
        }
        Ok(())
    }

    fn reply(&mut self, _: &Reply) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        if !matches!(self.weight, Some(Weight::Ns | Weight::Count)) {
            for ran in std::mem::take(&mut self.ran).into_values().filter(|ran| ran.node != ROOT) {
                self.by_calls.add(ran.node, end.insns.saturating_sub(ran.at));
            }
        }
        Ok(())
    }
}
