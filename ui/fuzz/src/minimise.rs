//! Brings a finding as near to the real hit as it goes: fewer hits, fewer differences, smaller ones.

use trapline_emu::PAGE;
use trapline_interposer::Difference;

use crate::error::FuzzError;
use crate::hits::{Hit, Page};
use crate::objectives::Fallen;
use crate::state::State;
use crate::subject::Subject;

struct Minimiser<'a, S> {
    subject: &'a mut S,
    wanted: &'a Fallen,
    left: usize,
}

/// The nearest state found in which this objective still falls at the same place.
///
/// # Errors
/// The machine cannot be brought to a hit.
pub fn minimised(subject: &mut impl Subject, state: &State, wanted: &Fallen) -> Result<State, FuzzError> {
    let left = subject.most_tries();
    let mut minimiser = Minimiser { subject, wanted, left };
    let mut best = state.clone();
    loop {
        let before = best.clone();
        minimiser.drop_hits(&mut best)?;
        minimiser.drop_differences(&mut best)?;
        minimiser.shrink(&mut best)?;
        if let Some(bytes) = minimiser.subject.bytes(&best) {
            // The same bytes; those at both ends that are as at the real hit are left out.
            minimiser.subject.set_bytes(&mut best, &bytes);
        }
        if best == before || minimiser.left == 0 {
            return Ok(best);
        }
    }
}

impl<S: Subject> Minimiser<'_, S> {
    /// Takes the candidate if the objective still falls.
    fn accept(&mut self, best: &mut State, candidate: State) -> Result<bool, FuzzError> {
        if self.left == 0 || candidate == *best || candidate.hits.is_empty() {
            return Ok(false);
        }
        self.left -= 1;
        let falls = self.subject.check(&candidate)?.contains(self.wanted);
        if falls {
            *best = candidate;
        }
        Ok(falls)
    }

    fn drop_hits(&mut self, best: &mut State) -> Result<(), FuzzError> {
        while best.hits.len() > 1 {
            let mut last = best.clone();
            last.hits.pop();
            let mut first = best.clone();
            first.hits.remove(0);
            let later = self.subject.hits().after(first.first);
            first.first = later.unwrap_or(first.first);
            let mut dropped = self.accept(best, last)? || (later.is_some() && self.accept(best, first)?);
            if !dropped && let Some(later) = self.subject.later(best)? {
                dropped = self.accept(best, later)?;
            }
            if !dropped {
                break;
            }
        }
        Ok(())
    }

    fn drop_differences(&mut self, best: &mut State) -> Result<(), FuzzError> {
        for hit in 0..best.hits.len() {
            let mut at = best.hits.get(hit).map_or(0, Vec::len);
            while at > 0 {
                at -= 1;
                let mut candidate = best.clone();
                if let Some(list) = candidate.hits.get_mut(hit).filter(|list| at < list.len()) {
                    list.remove(at);
                }
                self.accept(best, candidate)?;
            }
        }
        Ok(())
    }

    fn shrink(&mut self, best: &mut State) -> Result<(), FuzzError> {
        let mut number = Some(best.first);
        for hit in 0..best.hits.len() {
            for at in 0..best.hits.get(hit).map_or(0, Vec::len) {
                let Some(real) = number.and_then(|number| self.subject.hits().list.get(number)) else {
                    continue;
                };
                let Some(difference) = best.hits.get(hit).and_then(|list| list.get(at)).cloned() else {
                    continue;
                };
                let nearer = nearer(&difference, real);
                for change in nearer {
                    let Some(now) = best.hits.get(hit).and_then(|list| list.get(at)).cloned() else { break };
                    let Some(next) = change(&now) else { continue };
                    let mut candidate = best.clone();
                    if let Some(place) = candidate.hits.get_mut(hit).and_then(|list| list.get_mut(at)) {
                        *place = next;
                    }
                    self.accept(best, candidate)?;
                }
            }
            number = number.and_then(|number| self.subject.hits().after(number));
        }
        Ok(())
    }
}

type Change = Box<dyn Fn(&Difference) -> Option<Difference>>;

/// The guest's bytes at an address of a hit, as far as they are known; zeroes where the page is absent.
pub fn real_bytes(hit: &Hit, address: u64, length: usize) -> Vec<Option<u8>> {
    (0..length as u64)
        .map(|n| {
            let at = address.wrapping_add(n);
            match hit.pages.get(&(at & !(PAGE - 1)))? {
                Page::There { bytes, .. } => bytes.get((at % PAGE) as usize).copied(),
                Page::Absent => Some(0),
            }
        })
        .collect()
}

/// Changes that bring a difference nearer to the real hit, the greatest first.
fn nearer(difference: &Difference, real: &Hit) -> Vec<Change> {
    match difference {
        Difference::Word { what, .. } => {
            let real = real.word(*what).unwrap_or_default();
            words(real)
        }
        Difference::Local { .. } | Difference::Global { .. } => words(0),
        Difference::Memory { address, bytes } => {
            let real = real_bytes(real, *address, bytes.len());
            let mut all: Vec<Change> = Vec::new();
            all.push(Box::new(|now| shorter(now, 2)));
            all.push(Box::new(|now| shorter(now, 1)));
            all.extend(pieces(&real));
            let known = real.clone();
            for (n, real) in real.into_iter().enumerate().filter_map(|(n, real)| Some((n, real?))).take(64) {
                let masks = std::iter::once(0xff).chain((0..8).rev().map(|bit| 1u8 << bit));
                for mask in masks {
                    all.push(Box::new(move |now| with_byte(now, n, real, mask)));
                }
            }
            all.push(Box::new(move |now| trimmed(now, &known)));
            all
        }
        Difference::Name(_) => vec![
            Box::new(|now| match now {
                Difference::Name(name) => Some(Difference::Name(name.get(..name.len() / 2)?.to_vec())),
                _ => None,
            }),
            Box::new(|now| match now {
                Difference::Name(name) => Some(Difference::Name(vec![b'a'; name.len()])),
                _ => None,
            }),
        ],
        Difference::Absent { .. } | Difference::Processor { .. } => Vec::new(),
    }
}

fn words(real: u64) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    for whole in [real.wrapping_add(1), real.wrapping_sub(1), 0, 1] {
        all.push(Box::new(move |now| with_value(now, |_| whole)));
    }
    for mask in (0..8).rev().map(|byte| 0xffu64 << (8 * byte)).chain((0..64).rev().map(|bit| 1u64 << bit)) {
        all.push(Box::new(move |now| with_value(now, |value| value & !mask | real & mask)));
    }
    all
}

fn with_value(now: &Difference, new: impl Fn(u64) -> u64) -> Option<Difference> {
    let mut next = now.clone();
    match &mut next {
        Difference::Word { value, .. }
        | Difference::Local { value, .. }
        | Difference::Global { value, .. } => {
            *value = new(*value);
        }
        _ => return None,
    }
    (next != *now).then_some(next)
}

fn with_byte(now: &Difference, at: usize, real: u8, mask: u8) -> Option<Difference> {
    let mut next = now.clone();
    if let Difference::Memory { bytes, .. } = &mut next {
        let byte = bytes.get_mut(at)?;
        *byte = *byte & !mask | real & mask;
    }
    (next != *now).then_some(next)
}

/// Changes that make whole pieces of memory as they are at the real hit, the greatest first.
fn pieces(real: &[Option<u8>]) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    let Some(known) = real.iter().copied().collect::<Option<Vec<u8>>>() else { return all };
    for log in (1..known.len().max(1).ilog2() + 1).rev() {
        for first in (0..known.len()).step_by(1 << log) {
            let piece: Vec<u8> = known.iter().skip(first).take(1 << log).copied().collect();
            all.push(Box::new(move |now| {
                let mut next = now.clone();
                let Difference::Memory { bytes, .. } = &mut next else { return None };
                bytes.iter_mut().skip(first).zip(&piece).for_each(|(to, from)| *to = *from);
                (next != *now).then_some(next)
            }));
        }
    }
    all
}

/// The bytes without those at both ends that are as at the real hit.
fn trimmed(now: &Difference, real: &[Option<u8>]) -> Option<Difference> {
    let Difference::Memory { address, bytes } = now else { return None };
    let differs = |(now, real): (&u8, &Option<u8>)| *real != Some(*now);
    let first = bytes.iter().zip(real).position(differs)?;
    let last = bytes.iter().zip(real).rposition(differs)?;
    let kept = bytes.get(first..=last).filter(|kept| kept.len() < bytes.len())?;
    Some(Difference::Memory { address: address.wrapping_add(first as u64), bytes: kept.to_vec() })
}

/// The bytes without the last half, or the last one.
fn shorter(now: &Difference, part: usize) -> Option<Difference> {
    let Difference::Memory { address, bytes } = now else { return None };
    let length = if part == 2 { bytes.len() / 2 } else { bytes.len().checked_sub(1)? };
    let bytes = bytes.get(..length).filter(|bytes| !bytes.is_empty())?.to_vec();
    Some(Difference::Memory { address: *address, bytes })
}
