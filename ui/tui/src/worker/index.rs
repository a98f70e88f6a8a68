//! Executes the run and lists its hits, in batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use trapline_interposer::{DSetup, ProgramId};
use trapline_session::{
    Command, Condition, Ending, Followed, Layer, Limits, Names, Observer, Position, RecordView, Script,
    Session, SourceOptions, Symbolize, TakesStates, Way,
};
use trapline_trace::d::{Consumer, Firing};
use trapline_trace::{Formatter, Kind, record_text};

use super::{Again, Course, Order};
use crate::hits::{Batch, Hit, MOST_LOGGED, ProbeLabel};
use crate::message::{Input, Listing, Typed};

/// Most hits of a batch.
const MOST: usize = 4096;
/// The longest time between two messages while there are new hits.
const OFTEN: Duration = Duration::from_millis(40);
/// Most bytes of the text of a record that are kept.
const MOST_TEXT: usize = 4096;

/// Lists the hits of the run, and again for each order.
pub fn run(
    first: (Session, Order),
    (course, templates): (&Course, Option<&Formatter>),
    again: &dyn Again,
    orders: &Receiver<Order>,
    told: &Sender<Input>,
) {
    let (session, order) = first;
    let (mut session, mut order) = (Ok(session), order);
    loop {
        let listed = session.and_then(|session| list(session, (course, templates), &order, told));
        order.listing.layer.end();
        let listed = listed.and_then(|whole| if whole { again.listed() } else { Ok(()) });
        if let Err(why) = listed {
            let _ = told.send(Input::Failed(why));
        }
        let Ok(next) = orders.recv() else { return };
        order = next;
        session = again.session();
    }
}

/// Runs to the end, and reports hits and the ending; whether it came to the end.
///
/// # Errors
/// A sentence that says why the list is not whole.
fn list(
    mut session: Session,
    (course, templates): (&Course, Option<&Formatter>),
    order: &Order,
    told: &Sender<Input>,
) -> Result<bool, String> {
    let Order { listing: Listing { number, more, end, layer }, cancel } = order;
    let mut collector = Collector::new(told, *number, (layer.clone(), templates));
    let ended = match course {
        Course::Live { condition, limits } => {
            session.apply_all(&more.commands).map_err(|error| error.to_string())?;
            let mut script = typing(&more.typed)?;
            let (condition, limits) = match end {
                // Added probes have more hits.
                Some((at, Ending::EnoughHits(_) | Ending::Interrupted)) => {
                    (Condition::end(), Limits::insns(at.icount))
                }
                Some(_) => (condition.clone().without_hits(), limits.clone()),
                None => (condition.clone(), limits.clone()),
            };
            let limits = limits.cancelled_by(Arc::clone(cancel));
            let run = session.run(&mut script, &condition, &limits, &mut collector);
            let Ok(ending) = run else { return Ok(false) };
            // A D program that was added may end the run before.
            let known = end.clone().filter(|(at, _)| session.icount() >= at.icount);
            Some(known.unwrap_or((session.moment(), ending)))
        }
        Course::Recorded { recording, own, others } => {
            let course = recording.course(Way::Same, *own);
            let mut course = if *others || !more.commands.is_empty() { course.with_others() } else { course };
            session.begin_as(&mut course).map_err(|diverged| diverged.to_string())?;
            session.apply_all(&more.commands).map_err(|error| error.to_string())?;
            let limits = Limits::none().cancelled_by(Arc::clone(cancel));
            let to: Option<Position> = None;
            let Ok(followed) = session.follow(&mut course, to, &limits, &mut collector) else {
                return Ok(false);
            };
            match followed.map_err(|unknown| unknown.to_string())? {
                Followed::End(ending) => {
                    let broken = || Ending::CannotGoOn("the recording breaks off".to_owned());
                    Some((session.moment(), ending.unwrap_or_else(broken)))
                }
                Followed::Diverged(found) => return Err(found.to_string()),
                Followed::Reached | Followed::NeverReached | Followed::Interrupted => None,
            }
        }
    };
    if session.has_d() && ended.is_some() {
        session.apply(Command::End).map_err(|error| error.to_string())?;
        if session.pass_records(&mut collector).is_err() {
            return Ok(false);
        }
    }
    collector.flush(session.icount());
    let recorded = session.finish_recording();
    let whole = ended.as_ref().is_some_and(|(_, ending)| *ending != Ending::Interrupted);
    if let Some((at, ending)) = ended {
        let _ = told.send(Input::Ended(*number, at, ending));
    }
    recorded.map(|()| whole).map_err(|error| format!("the recording cannot be written: {error}"))
}

/// The script that types these lines.
///
/// # Errors
/// A sentence that says what cannot be typed.
fn typing(typed: &[Typed]) -> Result<Script, String> {
    let line = |Typed { at, bytes }: &Typed| {
        let escaped: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("at insns={at} type \"{escaped}\"\n")
    };
    let text: String = typed.iter().map(line).collect();
    Script::parse("what was typed", &text, &[], &SourceOptions::default()).map_err(|error| error.to_string())
}

/// The user interface has ended.
struct NobodyListens;

struct Collector<'a> {
    told: &'a Sender<Input>,
    number: u32,
    layer: Layer,
    batch: Batch,
    at: u64,
    since: Instant,
    probes: BTreeMap<u32, ()>,
    processes: BTreeMap<u32, Vec<u8>>,
    /// What shows the data of other programs.
    templates: Option<&'a Formatter>,
    /// Bytes of text so far.
    kept: usize,
    /// What prints the data of each D program.
    consumers: BTreeMap<ProgramId, Consumer>,
}

impl<'a> Collector<'a> {
    fn new(told: &'a Sender<Input>, number: u32, (layer, templates): (Layer, Option<&'a Formatter>)) -> Self {
        Self {
            told,
            number,
            layer,
            batch: Batch::default(),
            at: 0,
            since: Instant::now(),
            probes: BTreeMap::new(),
            processes: BTreeMap::new(),
            templates,
            kept: 0,
            consumers: BTreeMap::new(),
        }
    }

    /// What a D program prints at a hit.
    fn printed(
        &mut self,
        record: &RecordView<'_>,
        (id, setup): (ProgramId, &Arc<DSetup>),
        names: &Names<'_>,
    ) -> String {
        let header = &record.header;
        let Some(probe) = names.probe(header.probe) else { return String::new() };
        let firing = Firing::of(probe, header, names);
        let new = || Consumer::new(Arc::clone(&setup.tables), setup.output.clone()).without_files();
        self.consumers.entry(id).or_insert_with(new).printed(firing, record.data)
    }

    /// Keeps what the text form shows of a record, as long as all of them together are not too long.
    fn keep(&mut self, record: &RecordView<'_>, names: &Names<'_>) {
        if self.kept > MOST_LOGGED {
            return;
        }
        let text = match names.d_setup(record.header.probe) {
            Some(program) => self.printed(record, program, names),
            None => record_text(record, names, self.templates),
        };
        let mut text = text.trim_end().to_owned().into_bytes();
        text.truncate(MOST_TEXT);
        self.kept += text.len();
        self.batch.logged.push(text);
    }

    fn flush(&mut self, at: u64) {
        self.at = at;
        let _ = self.send();
    }

    fn send(&mut self) -> Result<(), NobodyListens> {
        self.since = Instant::now();
        let batch = std::mem::take(&mut self.batch);
        self.told.send(Input::Hits(self.number, batch, self.at)).map_err(|_| NobodyListens)
    }
}

/// The name of a record's probe.
fn label(record: &RecordView<'_>, names: &Names<'_>) -> ProbeLabel {
    let header = &record.header;
    let provided = names.probe(header.probe).map(|probe| probe.name.to_string());
    let codes = || {
        let symbol = names.symbol(header.ip, header.probe).unwrap_or_else(|| format!("{:#x}", header.ip));
        format!("{symbol} {}.{}", header.major, header.minor)
    };
    let program = names.program(header.probe).unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or(program);
    let name = provided.unwrap_or_else(codes);
    ProbeLabel { number: header.probe, program: program.to_owned(), name }
}

impl Observer for Collector<'_> {
    type Error = NobodyListens;

    fn record(&mut self, record: &RecordView<'_>, names: &Names<'_>) -> Result<(), NobodyListens> {
        let header = &record.header;
        if header.kind != Kind::Data {
            return Ok(());
        }
        self.at = header.icount;
        if self.probes.insert(header.probe, ()).is_none() {
            self.batch.probes.push(label(record, names));
        }
        if self.processes.get(&header.pid).is_none_or(|name| name != record.name) {
            self.processes.insert(header.pid, record.name.to_vec());
            let name = String::from_utf8_lossy(record.name).into_owned();
            self.batch.processes.push((header.pid, header.icount, name));
        }
        self.batch.hits.push(Hit { at: header.icount, ip: header.ip, probe: header.probe, pid: header.pid });
        self.keep(record, names);
        if self.batch.hits.len() >= MOST { self.send() } else { Ok(()) }
    }

    fn states(&mut self) -> Option<&mut dyn TakesStates> {
        Some(&mut self.layer)
    }

    fn console(&mut self, _: &[u8]) -> Result<(), NobodyListens> {
        if self.since.elapsed() < OFTEN {
            return Ok(());
        }
        // Also without hits, it is shown how far the run is.
        self.at = self.at.max(self.layer.reached().saturating_sub(1));
        self.send()
    }
}
