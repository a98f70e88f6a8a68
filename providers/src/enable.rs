//! From probes and a handler to what the interposer takes: a linked probe point for each site.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use trapline_interposer::{Place, Point, Provided};
use trapline_rpn::{Argument, Diagnostics, LinkedProbe, LinkedProgram, Op, parse};

use crate::abi::Abi;
use crate::catalog::MatchError;
use crate::clause::Clause;
use crate::description::Description;
use crate::dprobes::{Resolved, Scope};
use crate::provider::{Probe, Site};
use crate::target::{Target, basename};

/// Why a `-n` cannot be enabled.
#[derive(Debug, thiserror::Error)]
pub enum EnableError {
    /// A description names nothing.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// The handler does not compile.
    #[error("{0}")]
    Handler(Diagnostics),
    /// The handler and the probe do not go together.
    #[error(transparent)]
    Argument(#[from] ArgumentRefused),
}

/// A handler pushes an argument that its probe does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the handler has `{instruction}`, and {probe} has no such argument")]
pub struct ArgumentRefused {
    /// The instruction.
    pub instruction: String,
    /// The probe's name.
    pub probe: String,
}

/// How many probes a description matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// The description as written.
    pub description: String,
    /// Probes.
    pub probes: usize,
}

/// Links the handler of a `-n` and puts it on each probe that the descriptions name, in their order.
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
            // Without a handler a tail call logs what it has: no value.
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
    let program = parse("-n", &source).map_err(EnableError::Handler)?;
    program.link(target.width(), &Scope::kernel_of(target)).map_err(EnableError::Handler)
}

/// The probes that a description names.
///
/// # Errors
/// See [`MatchError`].
pub fn find(target: &Target, description: &str) -> Result<Vec<Probe>, MatchError> {
    target.catalog().find(target, &Description::parse(description)?)
}

/// Adds a copy of the linked probe point that `handler` gives for each site of a probe. Returned is the convention by
/// which the handlers' arguments are found, where the guest's code had to tell.
pub(crate) fn expand<'a>(
    target: &Target,
    handler: &dyn Fn(&Site) -> Option<&'a LinkedProbe>,
    probe: &Probe,
    probes: &mut Vec<LinkedProbe>,
    points: &mut Vec<Point>,
) -> Result<Option<Abi>, ArgumentRefused> {
    let base = target.text_base().unwrap_or_default();
    let mut convention = None;
    for site in &probe.sites {
        let Some(template) = handler(site) else { continue };
        if pushes_arguments(template) && convention.is_none() {
            convention = target.catalog().convention(probe);
        }
        // No handler runs where a program is only told that somebody listens.
        if !matches!(site.place, Place::Semaphore { .. } | Place::Question { .. }) {
            check_arguments(template, probe, site)?;
        }
        let mut linked = template.clone();
        linked.opcode = site.opcode;
        if let Place::Kernel { linear, .. } | Place::LockNop { linear, .. } = site.place {
            linked.location.value = linear;
            linked.location.offset = linear.wrapping_sub(base) & target.width().mask();
        } else if let Some(offset) = in_user_code(&site.place) {
            (linked.location.value, linked.location.offset) = (offset, offset);
        } else if let Place::Module { module, offset } = &site.place {
            let from_text = offset.wrapping_sub(module.text_offset(0).unwrap_or_default());
            (linked.location.value, linked.location.offset) = (*offset, from_text);
        }
        probes.push(linked);
        let provided = Provided {
            id: probe.id,
            name: Arc::clone(&probe.name),
            arguments: Arc::clone(&site.arguments),
            at_call: site.at_call,
            processes: probe.processes.clone(),
        };
        points.push(Point { place: site.place.clone(), provided: Some(provided) });
    }
    Ok(convention)
}

/// Whether a handler asks for arguments.
fn pushes_arguments(handler: &LinkedProbe) -> bool {
    handler.handler.code().iter().any(|insn| insn.op == Op::PushArg)
}

/// The offset of a place in the code of a user module.
fn in_user_code(place: &Place) -> Option<u64> {
    match place {
        Place::User { offset, .. } | Place::UserExit { offset, .. } | Place::Question { offset, .. } => {
            Some(*offset)
        }
        _ => None,
    }
}

/// Whether the probe has every argument that the handler pushes. A tail call lacks only the value that the probe's other
/// sites have: asked for there, it ends the handler by an exception.
fn check_arguments(template: &LinkedProbe, probe: &Probe, site: &Site) -> Result<(), ArgumentRefused> {
    for insn in template.handler.code() {
        let which = match insn.op {
            Op::PushArg => Argument::Number(insn.arg as u8),
            Op::PushRet => Argument::Returned,
            _ => continue,
        };
        let later = site.tail_call && matches!(which, Argument::Number(1) | Argument::Returned);
        if !later && !site.arguments.has(which) {
            return Err(ArgumentRefused { instruction: insn.to_text(), probe: probe.name.to_string() });
        }
    }
    Ok(())
}
