//! Converts a clause of the command line to probe points for the interposer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use trapline_rpn::{Diagnostics, LinkedProbe, LinkedProgram, parse};

use super::dprobes::Scope;
use super::expand::{ArgumentRefused, Resolved, expand, find};
use crate::catalog::MatchError;
use crate::name::Clause;
use crate::provider::Site;
use crate::target::{Target, basename};

/// Why a `-n` cannot be enabled.
#[derive(Debug, thiserror::Error)]
pub enum EnableError {
    /// A description matches no probe.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// The handler does not compile.
    #[error("{0}")]
    Handler(Diagnostics),
    /// The handler does not fit the probe.
    #[error(transparent)]
    Argument(#[from] ArgumentRefused),
}

/// How many probes a description matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// The description as written.
    pub description: String,
    /// Probes.
    pub probes: usize,
}

/// Links the handler of a `-n` and attaches it to each probe that the descriptions match, in their order.
///
/// # Errors
/// See [`EnableError`].
pub fn enable(target: &Target, clause: &Clause) -> Result<(Resolved, Vec<Matched>), EnableError> {
    let mut program = link(target, clause, 0)?;
    program.probes.clear();
    let mut handlers: BTreeMap<u8, LinkedProbe> = BTreeMap::new();
    let (mut points, mut matched, mut convention) = (Vec::new(), Vec::new(), None);
    for description in &clause.descriptions {
        let found = find(target, description)?;
        matched.push(Matched { description: description.clone(), probes: found.len() });
        for probe in &found {
            // Without a handler, a tail call logs no return value, because it has none.
            let logged = |site: &Site| if site.tail_call { site.logged(probe.logged) } else { probe.logged };
            for logged in probe.sites.iter().map(logged) {
                if let Entry::Vacant(place) = handlers.entry(logged) {
                    let linked = link(target, clause, logged)?.probes.into_iter().next();
                    let Some(linked) = linked else { continue };
                    place.insert(linked);
                }
            }
            let handler = |site: &Site| handlers.get(&logged(site));
            convention = expand(target, &handler, probe, &mut program.probes, &mut points)?.or(convention);
        }
    }
    Ok((Resolved { program, points, convention }, matched))
}

fn link(target: &Target, clause: &Clause, logged: u8) -> Result<LinkedProgram, EnableError> {
    let source = clause.source(basename(&target.image().plan().name), logged);
    let program = parse("--rpn", &source).map_err(EnableError::Handler)?;
    program.link(target.width(), &Scope::kernel_of(target)).map_err(EnableError::Handler)
}
