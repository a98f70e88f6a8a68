//! A Perfetto trace: tracks by process and thread, slices from entries and returns, instants for all other probes.
//!
//! Slices nest and balance on each track: a return without an entry is dropped, a call that has not ended is closed at
//! the end. Each flow has one begin and one end. Timestamps are virtual nanoseconds.

mod flows;
mod interned;
mod packets;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};
use trapline_trace::{End, HeaderItems, Kind, RecordView, Reply, RunInfo, Shown, Sink, Symbolize};

use crate::calls::{Calls, Step, Thread, Threads};
use crate::hit::{Hit, members, plain};
use crate::notes::Notes;
use flows::Flows;
use interned::Interned;
use packets::{Event, Track, Type};

/// What has a track.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Process(u32),
    Thread(Thread),
    /// What runs on a CPU.
    Running(u32),
    Counter(String),
    Script,
}

/// Writes a Perfetto trace.
#[derive(Debug)]
pub struct PerfettoSink<W> {
    out: W,
    items: HeaderItems,
    notes: Notes,
    /// Tracks with their numbers, and the names that they were described with.
    tracks: BTreeMap<Key, (u64, String)>,
    threads: Threads,
    calls: Calls<u64>,
    /// The CPUs on which a task runs, since sched said so.
    running: BTreeMap<u32, bool>,
    flows: Flows,
    texts: Interned,
    /// The event of the last hit: its stacks may follow.
    waiting: Option<((u64, u32, u32), Event)>,
    /// Aggregations of the end, whose time comes later.
    left: Vec<Map<String, Value>>,
    /// The last timestamp.
    now: u64,
    /// Records that are earlier than the one before.
    early: u64,
    /// Firings of D programs without a time.
    timeless: u64,
    begun: bool,
}

impl<W: Write> PerfettoSink<W> {
    /// A sink for records with these items.
    pub fn new(out: W, items: HeaderItems, notes: Notes) -> Self {
        Self {
            out,
            items,
            notes,
            tracks: BTreeMap::new(),
            threads: Threads::default(),
            calls: Calls::default(),
            running: BTreeMap::new(),
            flows: Flows::default(),
            texts: Interned::default(),
            waiting: None,
            left: Vec::new(),
            now: 0,
            early: 0,
            timeless: 0,
            begun: false,
        }
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        self.out.write_all(&packets::event(event, first, &mut self.texts))
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.waiting.take() {
            Some((_, event)) => self.write(&event),
            None => Ok(()),
        }
    }

    /// The number of a track, which is described when it is new or has another name.
    fn track(&mut self, key: Key, name: &str) -> io::Result<u64> {
        let fresh = self.tracks.len() as u64 + 1;
        let uuid = match self.tracks.get(&key) {
            Some((uuid, known)) if known == name || name.is_empty() => return Ok(*uuid),
            Some((uuid, _)) => *uuid,
            None => fresh,
        };
        let cpu;
        let track = match &key {
            Key::Process(pid) => Track::Process { pid: *pid, name },
            Key::Thread(Thread::Task { process, pid }) => Track::Thread { pid: *process, tid: *pid, name },
            Key::Thread(Thread::Cpu(n)) => {
                cpu = format!("CPU {n}");
                Track::Named(&cpu)
            }
            Key::Thread(Thread::Other) => Track::Named("other threads"),
            Key::Running(n) => {
                cpu = format!("CPU {n} runs");
                Track::Named(&cpu)
            }
            Key::Counter(_) => Track::Counter(name),
            Key::Script => Track::Named("script"),
        };
        let first = !std::mem::replace(&mut self.begun, true);
        self.out.write_all(&packets::describe(uuid, &track, first))?;
        self.tracks.insert(key, (uuid, name.to_owned()));
        Ok(uuid)
    }

    /// The track of a thread, below that of its process.
    fn thread(&mut self, thread: Thread, task: &str) -> io::Result<u64> {
        if let Thread::Task { process, pid } = thread {
            let main = if pid == process { task } else { "" };
            self.track(Key::Process(process), main)?;
        }
        self.track(Key::Thread(thread), task)
    }

    /// The timestamp of a record. Timestamps never go back.
    fn time(&mut self, time: u64) -> u64 {
        if time < self.now {
            self.early += 1;
        }
        self.now = self.now.max(time);
        self.now
    }

    /// Shows a firing; the event remains to be written, since stacks may be added to it.
    fn firing(&mut self, hit: &Hit, symbol: &str, annotations: Map<String, Value>) -> io::Result<Event> {
        let time = self.time(hit.time);
        let thread = self.threads.of(hit);
        let track = self.thread(thread, &hit.task)?;
        let mut arriving = match thread {
            Thread::Task { .. } => self.flows.arriving(hit),
            Thread::Cpu(_) | Thread::Other => Vec::new(),
        };
        self.scheduled(hit, time, &mut arriving)?;
        let (function, name) = (hit.part(|p| &p.function), hit.part(|p| &p.name));
        let mut event = Event::new(Type::Instant, time, track);
        event.annotations = annotations;
        event.category = match hit.part(|p| &p.provider) {
            "" => "probe".to_owned(),
            provider => provider.to_owned(),
        };
        event.name = match (&hit.probe, function.is_empty()) {
            (None, _) => symbol.to_owned(),
            (_, true) => name.to_owned(),
            _ => format!("{function}:{name}"),
        };
        let step = self.calls.step(thread, hit);
        for track in self.calls.gone(thread, hit, step) {
            self.write(&Event::new(Type::SliceEnd, time, track))?;
        }
        match step {
            Step::Entry if self.calls.enter(thread, hit, track) => {
                event.kind = Type::SliceBegin;
                event.name = function.to_owned();
            }
            Step::Return => {
                let ended = self.calls.leave(thread, hit);
                if let Some((_, inner)) = ended.split_last() {
                    for track in inner {
                        self.write(&Event::new(Type::SliceEnd, time, *track))?;
                    }
                    self.goes_on(&mut arriving, time, track)?;
                    event.kind = Type::SliceEnd;
                    (event.name, event.category) = (String::new(), String::new());
                }
            }
            _ => {}
        }
        event.ends = arriving;
        let calls = matches!(thread, Thread::Task { .. }) && self.calls.has_entered(thread, "syscall");
        event.begins.extend(calls.then(|| self.flows.beginning(hit, &event.annotations)).flatten());
        Ok(event)
    }

    /// Ends flows in a call that ends now: an end of a slice is not where something goes on.
    fn goes_on(&mut self, flows: &mut Vec<u64>, time: u64, track: u64) -> io::Result<()> {
        if flows.is_empty() {
            return Ok(());
        }
        let (name, ends) = ("continues".to_owned(), std::mem::take(flows));
        self.write(&Event { name, ends, ..Event::new(Type::Instant, time, track) })
    }

    /// Ends the flows to threads that do not go on before the end.
    fn end_flows(&mut self, time: u64) -> io::Result<()> {
        for (pid, ends) in self.flows.take_pending() {
            let known = self.tracks.keys().find_map(|key| match key {
                Key::Thread(thread @ Thread::Task { pid: own, .. }) if *own == pid => Some(*thread),
                _ => None,
            });
            let track = self.thread(known.unwrap_or(Thread::Task { process: pid, pid }), "")?;
            let name = "does not run before the end".to_owned();
            self.write(&Event { name, ends, ..Event::new(Type::Instant, time, track) })?;
        }
        Ok(())
    }

    /// Shows what runs on a CPU, if the firing says so. The flows to the thread end there.
    fn scheduled(&mut self, hit: &Hit, time: u64, arriving: &mut Vec<u64>) -> io::Result<()> {
        if hit.part(|p| &p.provider) != "sched" {
            return Ok(());
        }
        let on = match hit.part(|p| &p.name) {
            "on-cpu" => true,
            "off-cpu" => false,
            _ => return Ok(()),
        };
        let track = self.track(Key::Running(hit.cpu), "runs")?;
        if self.running.insert(hit.cpu, on) == Some(true) {
            self.write(&Event::new(Type::SliceEnd, time, track))?;
        }
        if on {
            let mut event = Event::new(Type::SliceBegin, time, track);
            event.name = match (hit.task.as_str(), hit.pid) {
                ("", pid) => format!("task {pid}"),
                (task, pid) => format!("{task} {pid}"),
            };
            event.category = "sched".to_owned();
            event.ends = std::mem::take(arriving);
            self.write(&event)?;
        }
        Ok(())
    }

    /// Shows the numbers of an aggregation as counters.
    fn counters(&mut self, object: &Map<String, Value>, time: u64) -> io::Result<()> {
        let name = object.get("name").map(plain).unwrap_or_default();
        let entries = object.get("entries").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            let Some(value) = entry.get("value").and_then(Value::as_i64) else { continue };
            let keys = entry.get("keys").and_then(Value::as_array);
            let keys: Vec<String> = keys.into_iter().flatten().map(plain).collect();
            let name = if keys.is_empty() { name.clone() } else { format!("{name}[{}]", keys.join(", ")) };
            let track = self.track(Key::Counter(name.clone()), &name)?;
            self.write(&Event { value, ..Event::new(Type::Counter, time, track) })?;
        }
        Ok(())
    }

    /// Shows a firing of a D program.
    fn d_firing(&mut self, object: &Map<String, Value>) -> io::Result<()> {
        let Some(hit) = Hit::of_d(object) else {
            self.timeless += 1;
            return Ok(());
        };
        let event = self.firing(&hit, "", without(object.clone(), &["type", "time_ns"]))?;
        self.write(&event)?;
        let parts = object.get("parts").and_then(Value::as_array);
        let shown = parts.into_iter().flatten().filter_map(|part| part.get("aggregations")?.as_array());
        for aggregation in shown.flatten().filter_map(Value::as_object) {
            self.counters(aggregation, event.time)?;
        }
        Ok(())
    }

    /// Says what was left out.
    fn report(&self, closed: u64) {
        let calls = &self.calls;
        let note = |count, one: &str, many: &str| self.notes.count(count, one, many);
        note(
            calls.unmatched,
            "return had no entry and is an instant",
            "returns had no entry and are instants",
        );
        note(
            closed,
            "call had not returned and ends at the end",
            "calls had not returned and end at the end",
        );
        note(calls.too_deep, "call was too deep to be a slice", "calls were too deep to be slices");
        self.threads.report(&self.notes);
        calls.report(&self.notes);
        note(
            self.flows.left_out,
            "flow was left out, because too many threads had not gone on",
            "flows were left out, because too many threads had not gone on",
        );
        note(
            self.early,
            "record was moved behind the one before",
            "records were moved behind the ones before",
        );
        note(self.timeless, "firing of a D program says no time", "firings of D programs say no time");
        if self.threads.without_task {
            self.notes.say(
                "the records do not say which task hit a probe, so there is one track per CPU, and calls of several tasks \
                 end each other: record with --header pid,name",
            );
        }
    }
}

/// An object without these members.
fn without(mut object: Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    names.iter().for_each(|name| drop(object.shift_remove(*name)));
    object
}

impl<W: Write> Sink for PerfettoSink<W> {
    fn begin(&mut self, _: &RunInfo) -> io::Result<()> {
        Ok(())
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let h = &record.header;
        let object = members(record, symbols, self.items)?;
        let key = (h.icount, h.cpu, h.probe);
        if h.kind != Kind::Data {
            let kind = object.get("type").map(plain).unwrap_or_default();
            let shown =
                object.get("frames").or_else(|| object.get("trace")).cloned().unwrap_or(json!("damaged"));
            if let Some((_, event)) = self.waiting.as_mut().filter(|(own, _)| *own == key) {
                event.annotations.insert(kind, shown);
                return Ok(());
            }
            self.flush()?;
            let hit = Hit::of_record(record, symbols, self.items);
            let (time, thread) = (self.time(hit.time), self.threads.of(&hit));
            let track = self.thread(thread, &hit.task)?;
            let mut event = Event::new(Type::Instant, time, track);
            event.annotations.insert(kind.clone(), shown);
            event.name = kind;
            return self.write(&event);
        }
        self.flush()?;
        let symbol = object.get("symbol").filter(|symbol| symbol.is_string()).or_else(|| object.get("ip"));
        let symbol = symbol.map(plain).unwrap_or_default();
        let event =
            self.firing(&Hit::of_record(record, symbols, self.items), &symbol, without(object, &["type"]))?;
        self.waiting = Some((key, event));
        Ok(())
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        self.flush()?;
        for object in shown.objects.iter().filter_map(Value::as_object) {
            match object.get("type").and_then(Value::as_str) {
                Some("d") => self.d_firing(object)?,
                Some("aggregation") => self.left.push(object.clone()),
                _ => {}
            }
        }
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        self.flush()?;
        let Some(object) = reply.object.as_object() else { return Ok(()) };
        let track = self.track(Key::Script, "script")?;
        let mut event = Event::new(Type::Instant, self.now, track);
        event.name = object.get("type").map(plain).unwrap_or_default();
        event.annotations = without(object.clone(), &["type"]);
        self.write(&event)
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        self.flush()?;
        self.now = self.now.max(end.virtual_ns().unwrap_or(0));
        let time = self.now;
        for object in std::mem::take(&mut self.left) {
            self.counters(&object, time)?;
        }
        self.end_flows(time)?;
        let open = self.calls.take_open();
        for track in &open {
            self.write(&Event::new(Type::SliceEnd, time, *track))?;
        }
        for (cpu, _) in std::mem::take(&mut self.running).into_iter().filter(|(_, runs)| *runs) {
            let track = self.track(Key::Running(cpu), "runs")?;
            self.write(&Event::new(Type::SliceEnd, time, track))?;
        }
        self.report(open.len() as u64);
        self.out.flush()
    }
}
