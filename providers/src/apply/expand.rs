//! Expands a probe to probe points: a copy of the handler for each site.

use std::sync::Arc;

use trapline_interposer::{Place, Point, Provided};
use trapline_rpn::{Argument, LinkedProbe, LinkedProgram, Op};

use crate::catalog::MatchError;
use crate::name::Description;
use crate::provider::{Probe, Site};
use crate::target::{Abi, Target};

/// A linked program and a place for each of its probe points, in the same order.
#[derive(Debug)]
pub struct Resolved {
    /// The program.
    pub program: LinkedProgram,
    /// The places of its probe points, with the data of their providers.
    pub points: Vec<Point>,
    /// The calling convention of the kernel's functions, if it was derived from the kernel's code.
    pub convention: Option<Abi>,
}

/// A handler pushes an argument that its probe does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the handler has `{instruction}`, but {probe} has no such argument")]
pub struct ArgumentRefused {
    /// The instruction.
    pub instruction: String,
    /// The probe's name.
    pub probe: String,
}

/// The probes that a description matches.
///
/// # Errors
/// See [`MatchError`].
pub fn find(target: &Target, description: &str) -> Result<Vec<Probe>, MatchError> {
    target.catalog().find(target, &Description::parse(description)?)
}

/// Adds a copy of the linked probe point that `handler` gives for each site of a probe, by the site's index. Returns the convention by
/// which arguments are found, if it was derived from the guest's code.
pub(crate) fn expand<'a>(
    target: &Target,
    handler: &dyn Fn(usize) -> Option<&'a LinkedProbe>,
    probe: &Probe,
    probes: &mut Vec<LinkedProbe>,
    points: &mut Vec<Point>,
) -> Result<Option<Abi>, ArgumentRefused> {
    let base = target.text_base().unwrap_or_default();
    let mut convention = None;
    for (n, site) in probe.sites.iter().enumerate() {
        let Some(template) = handler(n) else { continue };
        if pushes_arguments(template) && convention.is_none() {
            convention = target.catalog().convention(probe);
        }
        // No handler runs at a site that only tells the program that the probe is enabled.
        if !matches!(site.place, Place::Semaphore { .. } | Place::IsEnabled { .. }) {
            check_arguments(template, probe, site)?;
        }
        let mut linked = template.clone();
        linked.opcode = site.opcode;
        if let Place::Kernel { linear, .. } | Place::LockNop { linear, .. } = site.place {
            linked.location.value = linear;
            linked.location.offset = linear.wrapping_sub(base) & target.width().mask();
        } else if let Some((_, offset)) = site.place.in_user_code() {
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
            when: site.when.clone(),
        };
        let processes = probe.processes.clone();
        points.push(Point { processes, ..Point::provided(site.place.clone(), provided) });
    }
    Ok(convention)
}

/// Whether a handler uses arguments.
fn pushes_arguments(handler: &LinkedProbe) -> bool {
    handler.handler.arguments().iter().any(|insn| insn.op == Op::PushArg)
}

/// Whether the probe has every argument that the handler pushes. A tail call lacks only the return value, which the
/// other sites have; using it there throws an exception.
fn check_arguments(template: &LinkedProbe, probe: &Probe, site: &Site) -> Result<(), ArgumentRefused> {
    for insn in template.handler.arguments() {
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
