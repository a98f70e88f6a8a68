//! Converts a clause of the command line to probe points for the interposer.

use std::collections::BTreeMap;
use std::sync::Arc;

use trapline_rpn::{Diagnostics, LinkedProbe, LinkedProgram, parse};
use trapline_trace::Layout;

use super::dprobes::Scope;
use super::expand::{ArgumentRefused, Resolved, expand, find};
use crate::catalog::MatchError;
use crate::name::Clause;
use crate::provider::{Probe, Site};
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

/// What a probe without a handler logs, if the types of its arguments are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedLog {
    /// The instructions of the handler, one per line.
    pub code: String,
    /// The most bytes that they log.
    pub most: u32,
    /// What the records hold.
    pub layout: Arc<Layout>,
}

/// Knows the types of the arguments of probes.
pub trait Typed {
    /// What a probe without a handler logs at a site; `None` if the types of its arguments are unknown.
    fn log(&self, probe: &Probe, site: &Site) -> Option<TypedLog>;
}

/// Knows no types: the arguments are logged as numbers.
#[derive(Debug, Clone, Copy)]
pub struct Untyped;

impl Typed for Untyped {
    fn log(&self, _: &Probe, _: &Site) -> Option<TypedLog> {
        None
    }
}

/// Links the handler of a `-n` and attaches it to each probe that the descriptions match, in their order. Without a
/// handler, `typed` says what is logged.
///
/// # Errors
/// See [`EnableError`].
pub fn enable(
    target: &Target,
    clause: &Clause,
    typed: &dyn Typed,
) -> Result<(Resolved, Vec<Matched>), EnableError> {
    let mut program = link(target, &Key::Plain(0).source(target, clause))?;
    program.probes.clear();
    let mut handlers: BTreeMap<Key, LinkedProbe> = BTreeMap::new();
    let (mut points, mut matched, mut convention) = (Vec::new(), Vec::new(), None);
    for description in &clause.descriptions {
        let found = find(target, description)?;
        matched.push(Matched { description: description.clone(), probes: found.len() });
        for probe in &found {
            let logs: Vec<Log> = probe.sites.iter().map(|site| log(clause, typed, probe, site)).collect();
            for log in &logs {
                if !handlers.contains_key(&log.key)
                    && let Some(linked) =
                        link(target, &log.key.source(target, clause))?.probes.into_iter().next()
                {
                    handlers.insert(log.key.clone(), linked);
                }
            }
            let handler = |site: usize| handlers.get(&logs.get(site)?.key);
            let first = program.probes.len();
            convention = expand(target, &handler, probe, &mut program.probes, &mut points)?.or(convention);
            for (point, log) in program.probes.iter_mut().skip(first).zip(logs) {
                point.layout = log.layout.or(point.layout.take());
            }
        }
    }
    Ok((Resolved { program, points, convention }, matched))
}

/// A program with the handler of a clause and no probe of the kernel, for the events of a run.
///
/// # Errors
/// The handler does not compile.
pub fn handler(target: &Target, clause: &Clause) -> Result<LinkedProgram, EnableError> {
    link(target, &Key::Plain(0).source(target, clause))
}

/// The handler of a clause for a site: probes share it if their keys are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The clause's own; or one that logs this many arguments as numbers.
    Plain(u8),
    /// One that logs arguments by their types: the instructions, and the most bytes that they log.
    Typed(String, u32),
}

impl Key {
    /// The program with this handler.
    fn source(&self, target: &Target, clause: &Clause) -> String {
        let module = module(target);
        match self {
            Self::Plain(logged) => clause.source(module, *logged),
            Self::Typed(code, most) => format!(
                "name = \"{module}\"\nmodtype = kernel\nlogmax = {most}\noffset = \":\"\n{code}exit\n"
            ),
        }
    }
}

/// What is logged at a site.
struct Log {
    key: Key,
    /// What the records hold, if the types of the arguments say so.
    layout: Option<Arc<Layout>>,
}

fn log(clause: &Clause, typed: &dyn Typed, probe: &Probe, site: &Site) -> Log {
    let is_bare = clause.handler.is_none() && clause.predicate.is_empty();
    if let Some(TypedLog { code, most, layout }) = is_bare.then(|| typed.log(probe, site)).flatten() {
        return Log { key: Key::Typed(code, most), layout: Some(layout) };
    }
    // Without a handler, a tail call logs no return value, because it has none.
    let logged = if site.tail_call { site.logged(probe.logged) } else { probe.logged };
    Log { key: Key::Plain(logged), layout: None }
}

/// The name of the kernel in the programs of clauses.
fn module(target: &Target) -> &str {
    basename(&target.image().plan().name)
}

fn link(target: &Target, source: &str) -> Result<LinkedProgram, EnableError> {
    let program = parse("--rpn", source).map_err(EnableError::Handler)?;
    program.link(target.width(), &Scope::kernel_of(target)).map_err(EnableError::Handler)
}
