//! One run: the machine, the interposer and the loop that drains records between slices and lets a script act.
//!
//! Slices end at multiples of a fixed instruction count, so what a run writes does not depend on the host. A record
//! can only be lost when a channel overflows within one slice.

use std::path::PathBuf;

use trapline_emu::{CrashReport, Machine, Stop, TrapInterposer};
use trapline_interposer::{Interposer, ProbeNames, Stats};
use trapline_providers::Target;
use trapline_trace::{Counts, Kind, NamedProbe, Symbolize};

use crate::crash::CrashWatch;
use crate::failure::{Exit, Failure};
use crate::gate::{self, Snapshots};
use crate::output::Outputs;
use crate::script::{DueHit, Script};
use crate::talk::counted;
use crate::{errors, interrupt};

/// Instructions from one drain of the channels to the next: few enough that the default channel holds a record of
/// every third one; where there are more it grows.
const SLICE: u64 = 20_000;
/// Instructions from one look at the console and Ctrl-C to the next, when there are no records.
const UNPROBED_SLICE: u64 = 5_000_000;

/// A machine, and what is in it.
pub struct Session {
    /// The machine.
    pub machine: Machine,
    /// The probes; `None` runs the machine alone.
    pub interposer: Option<Interposer>,
    /// What was saved of it.
    pub snapshots: Snapshots,
    /// Bytes of the console that were passed on.
    shown: usize,
    core_dir: PathBuf,
    /// Core files written.
    cores: u64,
}

/// Names for records: of addresses, and of the probes that providers have put.
struct Names<'a> {
    target: &'a Target,
    probes: ProbeNames<'a>,
}

impl Symbolize for Names<'_> {
    fn symbol(&self, ip: u64) -> Option<String> {
        self.target.symbol(ip)
    }

    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        match kind {
            Kind::UserStack => self.target.file_symbol(module, address),
            _ if module == self.target.kernel_name() => {
                self.target.symbols().at(address).map(|at| (at.symbol.name.to_string(), at.offset))
            }
            _ => self.probes.module_symbol(module, address),
        }
    }

    fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
        self.probes.get(number).map(|provided| NamedProbe { id: provided.id, name: &provided.name })
    }
}

/// Why a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// HLT with interrupts disabled, or nothing that could wake the CPU.
    Halted,
    /// The guest switched the machine off.
    PoweredOff,
    /// The guest asked for a reset.
    Reset(String),
    /// A text of `--until`.
    Until(String),
    /// A text of `--crash-on`.
    CrashText(String),
    /// The kernel says so: a panic or an oops.
    KernelCrashed(String),
    /// A triple fault.
    TripleFault(Box<CrashReport>),
    /// The machine cannot go on.
    CannotGoOn(String),
    /// The instruction limit.
    Limit,
    /// Ctrl-C.
    Interrupted,
    /// The script says so.
    Stopped,
    /// A handler of this program called the service `stop`.
    HandlerStopped(String),
    /// As many hits as were asked for.
    EnoughHits(u64),
    /// A line of the script could not be carried out.
    ScriptFailed(String),
}

impl Ending {
    /// The exit code it asks for.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Halted | Self::PoweredOff | Self::Reset(_) | Self::Until(_) | Self::Stopped => Exit::Ok,
            Self::HandlerStopped(_) | Self::EnoughHits(_) => Exit::Ok,
            Self::CrashText(_) | Self::KernelCrashed(_) | Self::TripleFault(_) | Self::CannotGoOn(_) => {
                Exit::Crashed
            }
            Self::Limit => Exit::Limit,
            Self::Interrupted => Exit::Interrupted,
            Self::ScriptFailed(_) => Exit::Usage,
        }
    }

    /// What happened, as the beginning of a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Self::Halted => "the guest halted".to_owned(),
            Self::PoweredOff => "the guest powered off".to_owned(),
            Self::Reset(how) => format!("the guest asked for a reset ({how})"),
            Self::Until(text) => format!("the console showed {text:?}"),
            Self::CrashText(text) => format!("the guest crashed: the console showed {text:?}"),
            Self::KernelCrashed(how) => format!("the guest crashed: {how}"),
            Self::TripleFault(report) => {
                let vectors: Vec<String> = report.vectors.iter().map(u8::to_string).collect();
                let list = vectors.join(", ");
                format!("the guest crashed: triple fault at {:#x} (exceptions {list})", report.ip)
            }
            Self::CannotGoOn(why) => format!("the machine cannot go on: {why}"),
            Self::Limit => "the instruction limit was reached".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Stopped => "the script stopped the run".to_owned(),
            Self::HandlerStopped(name) => format!("a handler of {name} stopped the run"),
            Self::EnoughHits(hits) => format!("there were {}", counted(*hits, "hit")),
            Self::ScriptFailed(why) => why.clone(),
        }
    }
}

/// What on the console ends a run.
#[derive(Debug, Clone, Default)]
pub struct Watch<'a> {
    /// Those that are good.
    pub until: &'a [String],
    /// Those that are a crash.
    pub crash_on: &'a [String],
    /// How the kernel says that it crashed.
    pub crash: CrashWatch,
}

impl Watch<'_> {
    /// All texts at which the machine stops: those of `until`, of `crash_on`, the kernel's, the script's.
    fn texts(&self, script: &Script) -> Vec<Vec<u8>> {
        let given = self.until.iter().chain(self.crash_on).map(String::as_bytes);
        given.chain(self.crash.text()).chain(script.texts()).map(<[u8]>::to_vec).collect()
    }

    /// Whether text `n` of them is one that the run was told to end at.
    fn ends_at(&self, n: usize) -> bool {
        n < self.until.len() + self.crash_on.len()
    }
}

impl Session {
    /// A session about to run.
    ///
    /// Core files go to `core_dir`.
    pub fn new(machine: Machine, interposer: Option<Interposer>, core_dir: PathBuf) -> Self {
        Self { machine, interposer, snapshots: Snapshots::default(), shown: 0, core_dir, cores: 0 }
    }

    /// Runs to the end, passing records and console on after each slice, and doing what the script says when it is
    /// due.
    ///
    /// # Errors
    /// An output cannot be written.
    pub fn run(
        &mut self,
        target: &Target,
        watch: &Watch<'_>,
        limit: u64,
        script: &mut Script,
        outputs: &mut Outputs<'_>,
    ) -> Result<Ending, Failure> {
        self.machine.watch_console(watch.texts(script));
        if outputs.console.wires().is_some() {
            self.machine.keep_sent();
        }
        self.watch_hits(script);
        let mut due = Vec::new();
        let mut stopped = None;
        loop {
            let (ending, moved) = self.act(target, watch, script, due, outputs)?;
            match (ending, stopped.take()) {
                (Some(ending), _) => return Ok(ending),
                (None, Some(stop)) if !moved => return Ok(self.why_ended(stop, watch)),
                _ => {}
            }
            let mut stop = self.slice(limit.min(script.next_stop(self.machine.icount())));
            if let Some(interposer) = &mut self.interposer {
                interposer.tick(self.machine.core_mut());
                if stop == Stop::Limit && interposer.stopped_by_handler() {
                    stop = Stop::Requested;
                }
            }
            self.pass_on(target, outputs)?;
            self.write_cores(outputs)?;
            if interrupt::asked() {
                return Ok(Ending::Interrupted);
            }
            due = self.due_hits();
            script.look(self.machine.console());
            let crashed = matches!(stop, Stop::Text(_)) && watch.crash.ended(&self.machine);
            let by_handler = self.interposer.as_ref().is_some_and(Interposer::stopped_by_handler);
            let goes_on = match stop {
                Stop::Limit => self.machine.icount() < limit,
                Stop::Requested => !by_handler,
                Stop::Text(n) => !watch.ends_at(n) && !crashed,
                _ => false,
            };
            stopped = (!goes_on).then_some(stop);
        }
    }

    /// Carries out the lines of the script that are due here, and answers whether one of them ends the run, and
    /// whether one has moved it elsewhere.
    fn act(
        &mut self,
        target: &Target,
        watch: &Watch<'_>,
        script: &mut Script,
        mut due: Vec<DueHit>,
        outputs: &mut Outputs<'_>,
    ) -> Result<(Option<Ending>, bool), Failure> {
        let (mut acted, mut moved) = (false, false);
        while let Some((line, command)) = script.take_due(self.machine.icount(), &due) {
            acted = true;
            let done = match gate::apply(self, target, &command) {
                Ok(done) => done,
                Err(error) => {
                    let sentence = format!("{}: {error}", script.place(line));
                    return Ok((Some(Ending::ScriptFailed(sentence)), moved));
                }
            };
            let written = outputs.sink.reply(&done.reply);
            written.map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
            if let Some(note) = &done.note {
                outputs.talk.note(note);
            }
            if done.stop {
                return Ok((Some(Ending::Stopped), moved));
            }
            if done.moved {
                moved = true;
                due.clear();
                script.moved(self.machine.icount());
                script.look(self.machine.console());
            }
        }
        if acted {
            self.machine.watch_console(watch.texts(script));
            self.watch_hits(script);
        }
        Ok((None, moved))
    }

    fn watch_hits(&mut self, script: &Script) {
        if let Some(interposer) = &mut self.interposer {
            script.watch(interposer);
        }
    }

    /// The hits for whose sake the run has stopped.
    fn due_hits(&mut self) -> Vec<DueHit> {
        let Some(interposer) = &mut self.interposer else { return Vec::new() };
        let due = interposer.take_due();
        // Asked after each slice: the views of many thousand probe points cost more than the slice.
        if due.is_empty() {
            return Vec::new();
        }
        let programs = interposer.programs();
        let hit = |id| {
            let name = programs.iter().find(|program| program.id == id)?.name.to_owned();
            Some(DueHit { name, n: interposer.stops_at_hit(id)? })
        };
        due.into_iter().filter_map(hit).collect()
    }

    /// The machine has gone back: so has its console, what of it was passed on included.
    pub fn console_moved(&mut self) {
        self.shown = self.shown.min(self.machine.console().len());
    }

    /// Runs to the next slice's end, or to `limit`.
    fn slice(&mut self, limit: u64) -> Stop {
        let size = if self.interposer.is_some() { SLICE } else { UNPROBED_SLICE };
        let next = (self.machine.icount() / size + 1).saturating_mul(size);
        let tick = self.interposer.as_ref().and_then(Interposer::next_tick);
        let next = tick.map_or(next, |tick| next.min(tick));
        let interposer = self.interposer.as_mut().map(|interposer| interposer as &mut dyn TrapInterposer);
        self.machine.run(interposer, next.min(limit))
    }

    /// Passes on what the slice left.
    fn pass_on(&mut self, target: &Target, outputs: &mut Outputs<'_>) -> Result<(), Failure> {
        let wires = outputs.console.wires();
        if let Some(wires) = &wires {
            wires.sent(&self.machine.take_sent());
        }
        if let Some(interposer) = &mut self.interposer {
            let mut result = Ok(());
            let (channels, probes) = interposer.channels_and_names();
            let names = Names { target, probes };
            channels.drain(|record| {
                if result.is_ok() {
                    result = outputs.sink.record(&record, &names);
                }
            });
            result.map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
            errors::report(interposer, &outputs.talk);
        }
        if let Some(wires) = &wires {
            wires.pass_on()?;
        }
        let console = self.machine.console();
        let fresh = console.get(self.shown..).unwrap_or_default();
        if !fresh.is_empty() {
            outputs.console.write(fresh)?;
        }
        self.shown = console.len();
        Ok(())
    }

    /// Writes the core files that were taken.
    fn write_cores(&mut self, outputs: &mut Outputs<'_>) -> Result<(), Failure> {
        let Some(interposer) = &mut self.interposer else { return Ok(()) };
        for core in interposer.take_cores() {
            self.cores += 1;
            let path = self.core_dir.join(format!("core.{}", self.cores));
            std::fs::write(&path, &core.bytes).map_err(|error| Failure::writing(Some(&path), error))?;
            let who = if core.name.is_empty() { String::new() } else { format!(" ({})", core.name) };
            let cut = if core.cut { ", cut short" } else { "" };
            let pages = counted(core.pages as u64, "page");
            outputs.talk.note(&format!(
                "{}: process {}{who} at {:#x}, {pages}{cut}",
                path.display(),
                core.pid,
                core.ip
            ));
        }
        Ok(())
    }

    /// What happened at probes.
    pub fn stats(&self) -> Stats {
        self.interposer.as_ref().map(Interposer::stats).unwrap_or_default()
    }

    /// What the channels counted.
    pub fn counts(&mut self) -> Counts {
        self.interposer.as_mut().map(|interposer| interposer.channels().counts()).unwrap_or_default()
    }

    /// Records lost.
    pub fn lost(&mut self) -> u64 {
        self.counts().lost()
    }

    fn why_ended(&mut self, stop: Stop, watch: &Watch<'_>) -> Ending {
        let stopped_by = self.interposer.as_mut().and_then(|i| i.take_stopped_by().map(str::to_owned));
        let enough = self.interposer.as_ref().and_then(Interposer::enough_hits);
        let by_itself = matches!(stop, Stop::Text(_) | Stop::Halted | Stop::PoweredOff | Stop::Reset(_));
        if let Some(how) = by_itself.then(|| watch.crash.found(&self.machine)).flatten() {
            return Ending::KernelCrashed(how);
        }
        match (stop, stopped_by) {
            (Stop::Requested, Some(_)) if enough.is_some() => Ending::EnoughHits(enough.unwrap_or_default()),
            (Stop::Requested, Some(name)) => Ending::HandlerStopped(name),
            (stop, _) => why_ended(stop, watch),
        }
    }
}

fn why_ended(stop: Stop, watch: &Watch<'_>) -> Ending {
    match stop {
        Stop::Limit => Ending::Limit,
        Stop::Halted => Ending::Halted,
        Stop::PoweredOff => Ending::PoweredOff,
        Stop::Reset(how) => Ending::Reset(how),
        Stop::Text(n) => match (watch.until.get(n), n.checked_sub(watch.until.len())) {
            (Some(text), _) => Ending::Until(text.clone()),
            (None, n) => {
                Ending::CrashText(n.and_then(|n| watch.crash_on.get(n)).cloned().unwrap_or_default())
            }
        },
        Stop::TripleFault(report) => Ending::TripleFault(report),
        Stop::Unsupported(what) => Ending::CannotGoOn(format!("{what} is not supported")),
        Stop::Engine(what) => Ending::CannotGoOn(what),
        Stop::Panicked(what) => Ending::CannotGoOn(format!("an error inside Trapline: {what}")),
        Stop::Requested => Ending::CannotGoOn("a probe asked for a stop".to_owned()),
    }
}
