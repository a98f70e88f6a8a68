//! Measures a search: executions and the processor time that they took, as one JSON object. `make bench` asks for it.

use std::path::PathBuf;
use std::time::Instant;

use trapline_fuzz::FuzzError;
use trapline_fuzz::change::Scope;
use trapline_fuzz::finding::{FellAt, Finding, Folder};
use trapline_fuzz::hits::Hits;
use trapline_fuzz::objectives::{Fallen, Objectives};
use trapline_fuzz::patience::Ended;
use trapline_fuzz::report::{Knowledge, Report};
use trapline_fuzz::search::{Begin, Listener, search};
use trapline_fuzz::state::State;
use trapline_fuzz::subject::Subject;
use trapline_fuzz::watch::Coverage;

/// A subject that does nothing: what is left is LibAFL.
pub struct Empty<T> {
    subject: T,
    made: u64,
    coverage: Coverage,
}

impl<T: Subject> Empty<T> {
    pub fn in_place_of(subject: T) -> Self {
        let coverage = Coverage::of_size(subject.coverage().map.len());
        Self { subject, made: 0, coverage }
    }
}

impl<T: Subject> Subject for Empty<T> {
    fn hits(&self) -> &Hits {
        self.subject.hits()
    }

    fn run(&mut self, _: &State) -> Result<&[Fallen], FuzzError> {
        self.made += 1;
        Ok(&[])
    }

    fn check(&mut self, _: &State) -> Result<Vec<Fallen>, FuzzError> {
        Ok(Vec::new())
    }

    fn learn(&mut self, _: &State) -> Result<Knowledge, FuzzError> {
        Ok(Knowledge::default())
    }

    fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn fell_at(&mut self, _: &State, _: &Fallen) -> Result<FellAt, FuzzError> {
        Ok(FellAt::default())
    }

    fn is_whole(&self) -> bool {
        false
    }

    fn most_tries(&self) -> usize {
        0
    }

    fn bytes(&self, state: &State) -> Option<Vec<u8>> {
        self.subject.bytes(state)
    }

    fn set_bytes(&self, state: &mut State, bytes: &[u8]) {
        self.subject.set_bytes(state, bytes);
    }

    fn report(&self, ended: Ended) -> Report {
        self.subject.report(ended)
    }

    fn add(&mut self, _: &Report) {}

    fn shown(&self) -> Vec<String> {
        Vec::new()
    }

    fn objectives(&self) -> &Objectives {
        self.subject.objectives()
    }

    fn write(&mut self, _: &Finding, folder: &Folder<'_>) -> Result<PathBuf, FuzzError> {
        Ok(folder.folder.to_owned())
    }
}

/// Processor time of this thread, seconds; the time that has passed where the system does not tell.
fn processor(since: Instant) -> f64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let ns = told.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    ns.map_or(since.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

struct Measure {
    most: u64,
    since: Instant,
    /// Executions and time when it was warm.
    begun: Option<(u64, f64)>,
}

impl<T: Subject> Listener<T> for Measure {
    fn goes_on(&mut self, subject: &T, _: usize) -> bool {
        let made = subject.made();
        if self.begun.is_none() && made >= self.most / 4 {
            self.begun = Some((made, processor(self.since)));
        }
        made < self.most
    }

    fn found(&mut self, _: &Finding, _: &mut T) -> Result<(), FuzzError> {
        Ok(())
    }
}

/// Searches for so many executions, and tells the speed of the last three quarters of them.
pub fn measure<T: Subject>(subject: T, scope: Scope, most: u64) -> Result<serde_json::Value, FuzzError> {
    let since = Instant::now();
    let mut measure = Measure { most, since, begun: None };
    let (subject, _) = search(subject, scope, &Begin { seed: 1, ..Begin::default() }, &mut measure)?;
    let (from, at) = measure.begun.unwrap_or((0, 0.0));
    let (executions, seconds) = (subject.made() - from, processor(since) - at);
    Ok(serde_json::json!({ "executions": executions, "seconds": seconds }))
}
