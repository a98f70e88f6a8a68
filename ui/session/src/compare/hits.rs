//! Counts how often functions are entered in two runs.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde::Serialize;

use super::plan::Inputs;
use super::{Both, CompareError, ComparedRun};
use crate::commands::Command;
use crate::ending::Limits;
use crate::numbers;
use crate::replies::Reply;
use crate::session::{Observer, Session, Way};
use crate::timeline::TravelError;

/// The numbers of hits of the probes of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FunctionHits {
    /// The function, or the place of a probe that is not in a function.
    pub function: String,
    /// Hits in each run.
    #[serde(flatten)]
    pub hits: Both<u64>,
}

/// Runs both runs to their ends with these probes, which only count, and returns the functions that were hit in at
/// least one of them, by name.
///
/// # Errors
/// A guest cannot be loaded, or has no such probes.
pub fn hits_by_function(
    a: &ComparedRun<'_>,
    b: &ComparedRun<'_>,
    description: &str,
) -> Result<Vec<FunctionHits>, CompareError> {
    let of = Both { a: hits(a, description)?, b: hits(b, description)? };
    let mut all: BTreeMap<String, Both<u64>> = BTreeMap::new();
    of.a.into_iter().for_each(|(name, hits)| all.entry(name).or_default().a += hits);
    of.b.into_iter().for_each(|(name, hits)| all.entry(name).or_default().b += hits);
    let hit = all.into_iter().filter(|(_, hits)| hits.a > 0 || hits.b > 0);
    Ok(hit.map(|(function, hits)| FunctionHits { function, hits }).collect())
}

struct Unheard;

impl Observer for Unheard {
    type Error = Infallible;
}

fn hits(run: &ComparedRun<'_>, description: &str) -> Result<BTreeMap<String, u64>, CompareError> {
    let mut session = run.guest.start(run.recording.config().probing.clone())?;
    let way = if run.changed { Way::Branch } else { Way::Same };
    let own = Inputs::of(run).own;
    let mut course = run.recording.course(way, own).with_others();
    let diverged = |why: String| TravelError::Diverged { icount: 0, why };
    session.begin_as(&mut course).map_err(|found| diverged(found.to_string()))?;
    let before = programs(&mut session)?;
    session.apply(Command::clause(&format!("{description} {{ exit }}")))?;
    let Ok(followed) = session.follow(&mut course, None, &Limits::none(), &mut Unheard);
    followed.map_err(|error| diverged(error.to_string()))?;
    let after = programs(&mut session)?;
    let mut found = BTreeMap::new();
    for point in after.iter().skip(before.len()).flat_map(|program| &program.points) {
        *found.entry(function(&session, &point.place)).or_default() += point.hits;
    }
    Ok(found)
}

fn programs(session: &mut Session) -> Result<Vec<crate::replies::ProgramState>, CompareError> {
    match session.apply(Command::Query)? {
        Reply::Query { programs, .. } => Ok(programs),
        _ => Ok(Vec::new()),
    }
}

fn function(session: &Session, place: &str) -> String {
    let address = numbers::count(place).ok();
    let symbol = address.and_then(|at| session.symbols().at(at));
    symbol.map_or_else(|| place.to_owned(), |at| at.symbol.name.to_string())
}
