//! Executes the run and lists its hits, in batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use trapline_session::{
    Ending, Followed, Limits, Names, Observer, Position, RecordView, Script, Session, Symbolize, Way,
};
use trapline_trace::Kind;

use super::Course;
use crate::hits::{Batch, Hit, ProbeLabel};
use crate::message::Input;

/// Most hits of a batch.
const MOST: usize = 4096;
/// The longest time between two messages while there are new hits.
const OFTEN: Duration = Duration::from_millis(40);
/// Most bytes of a hit's data that are kept.
const MOST_DATA: usize = 256;

/// Runs to the end, and reports hits and the ending.
pub fn run(mut session: Session, course: Course, ends: Arc<AtomicBool>, told: &Sender<Input>) {
    let mut collector = Collector {
        told,
        batch: Batch::default(),
        at: 0,
        since: Instant::now(),
        probes: BTreeMap::new(),
        processes: BTreeMap::new(),
    };
    let failed = match course {
        Course::Live { condition, limits } => {
            let limits = limits.cancelled_by(ends);
            let Some(ending) =
                along(session.run(&mut Script::default(), &condition, &limits, &mut collector))
            else {
                return;
            };
            collector.flush(session.icount());
            let recorded = session.finish_recording();
            let _ = told.send(Input::Ended(session.moment(), ending));
            recorded.err().map(|error| format!("the recording cannot be written: {error}"))
        }
        Course::Recorded { recording, own, others } => {
            let course = recording.course(Way::Same, own);
            let mut course = if others { course.with_others() } else { course };
            if let Err(diverged) = session.begin_as(&mut course) {
                let _ = told.send(Input::Failed(diverged.to_string()));
                return;
            }
            let limits = Limits::none().cancelled_by(ends);
            let to: Option<Position> = None;
            let Some(followed) = along(session.follow(&mut course, to, &limits, &mut collector)) else {
                return;
            };
            collector.flush(session.icount());
            match followed {
                Ok(Followed::End(ending)) => {
                    let ending =
                        ending.unwrap_or_else(|| Ending::CannotGoOn("the recording breaks off".to_owned()));
                    let _ = told.send(Input::Ended(session.moment(), ending));
                    None
                }
                Ok(Followed::Diverged(found)) => Some(found.to_string()),
                Ok(Followed::Reached | Followed::NeverReached | Followed::Interrupted) => None,
                Err(unknown) => Some(unknown.to_string()),
            }
        }
    };
    if let Some(why) = failed {
        let _ = told.send(Input::Failed(why));
    }
}

/// The result, unless the user interface has ended.
fn along<T>(went: Result<T, NobodyListens>) -> Option<T> {
    went.ok()
}

/// The user interface has ended.
struct NobodyListens;

struct Collector<'a> {
    told: &'a Sender<Input>,
    batch: Batch,
    at: u64,
    since: Instant,
    probes: BTreeMap<u32, ()>,
    processes: BTreeMap<u32, Vec<u8>>,
}

impl Collector<'_> {
    fn flush(&mut self, at: u64) {
        self.at = at;
        let _ = self.send();
    }

    fn send(&mut self) -> Result<(), NobodyListens> {
        self.since = Instant::now();
        let batch = std::mem::take(&mut self.batch);
        self.told.send(Input::Hits(batch, self.at)).map_err(|_| NobodyListens)
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
    ProbeLabel { number: header.probe, program: program.to_owned(), name: provided.unwrap_or_else(codes) }
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
        if !record.name.is_empty() && self.processes.get(&header.pid).is_none_or(|name| name != record.name) {
            self.processes.insert(header.pid, record.name.to_vec());
            self.batch.processes.push((header.pid, String::from_utf8_lossy(record.name).into_owned()));
        }
        self.batch.hits.push(Hit { at: header.icount, ip: header.ip, probe: header.probe, pid: header.pid });
        self.batch
            .logged
            .push(record.data.get(..record.data.len().min(MOST_DATA)).unwrap_or_default().to_vec());
        if self.batch.hits.len() >= MOST { self.send() } else { Ok(()) }
    }

    fn console(&mut self, _: &[u8]) -> Result<(), NobodyListens> {
        if self.since.elapsed() >= OFTEN { self.send() } else { Ok(()) }
    }
}
