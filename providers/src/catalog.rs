//! All probes of a target: the providers, and one numbering.
//!
//! Identifiers number the sorted names of all probes, whether a description matches few or all, so a listing and
//! a run agree. Each provider numbers its own probes; the catalog adds the counts of the providers before it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use trapline_emu::load::Files;
use trapline_emu::symbols::UserModule;
use trapline_trace::ProbeName;

use crate::dti::Dti;
use crate::fbt::Fbt;
use crate::name::{Description, DescriptionError};
use crate::pid::{self, Pid};
use crate::profile::Profile;
use crate::provider::{Probe, Provider, ProviderError};
use crate::sdt::{self, Static};
use crate::system::System;
use crate::target::{Abi, ProbeOptions, Programs, Target};

/// Most near misses that are suggested when nothing matches.
const SUGGESTIONS: usize = 3;
/// Most sites that one description may match.
const MOST_SITES: usize = 4_000_000;

/// Why a description matches no probes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatchError {
    /// It is malformed.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// A provider rejects it.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// There is no such probe.
    #[error("probe description {description} does not match any probes{}", self.reason())]
    Nothing {
        /// The description.
        description: String,
        /// Names similar to the requested one.
        near: Vec<String>,
        /// The files that could not be read, one sentence each.
        unread: Vec<String>,
    },
    /// It matches too many sites.
    #[error(
        "probe description {description} matches more than {MOST_SITES} sites; use a narrower description"
    )]
    TooMany {
        /// The description.
        description: String,
    },
}

impl MatchError {
    /// What follows the sentence that a description matches no probe: similar names, files that could not be read. It is
    /// empty for other errors, which say all themselves.
    pub fn reason(&self) -> String {
        match self {
            Self::Nothing { near, unread, .. } => suggestion(near) + &reasons(unread),
            _ => String::new(),
        }
    }
}

fn suggestion(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

/// The files that could not be read, as the end of a sentence.
pub(crate) fn reasons(unread: &[String]) -> String {
    let shown: String = unread.iter().take(SUGGESTIONS).map(|reason| format!("; {reason}")).collect();
    match unread.len().saturating_sub(SUGGESTIONS) {
        0 => shown,
        more => format!("{shown}; {more} more files cannot be read"),
    }
}

/// The probes of one user program or library that match a description, without a kernel.
///
/// # Errors
/// See [`MatchError`].
pub fn user_probes(module: &Arc<UserModule>, wanted: &Description) -> Result<Vec<Probe>, MatchError> {
    let (mut found, count) = sdt::static_probes(module, wanted);
    if pid::is_ours(&wanted.written()[0]) {
        let (files, options) = (Files::default(), ProbeOptions::default());
        let programs = Programs { modules: std::slice::from_ref(module), files: &files, options: &options };
        pid::find(programs, wanted, &mut found).map_err(ProviderError::from)?;
        for (probe, id) in found.iter_mut().zip(count + 1..) {
            probe.id = id;
        }
    }
    match found.is_empty() {
        true => {
            Err(MatchError::Nothing { description: wanted.to_string(), near: Vec::new(), unread: Vec::new() })
        }
        false => Ok(found),
    }
}

/// How else the words of a description can be read: a function alone, a field left out in the middle or at the end, and the
/// probes of bpftrace. Fields that are left out count from the left in D.
fn readings(wanted: &Description) -> Vec<String> {
    let words: Vec<&str> =
        wanted.written().iter().map(String::as_str).skip_while(|word| word.is_empty()).collect();
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    match words.as_slice() {
        ["kprobe" | "k" | "kfunc" | "fentry", .., function] => vec![format!("fbt::{function}:entry")],
        ["kretprobe" | "kr" | "kretfunc" | "fexit", .., function] => vec![format!("fbt::{function}:return")],
        ["uprobe" | "u", path, function] => vec![format!("pid*:{}:{function}:entry", file(path))],
        ["uretprobe" | "ur", path, function] => vec![format!("pid*:{}:{function}:return", file(path))],
        ["interval", unit, period] => vec![format!("profile:::tick-{period}{unit}")],
        [function] => vec![format!("fbt::{function}:entry")],
        [provider, function] => {
            vec![
                format!("{provider}::{function}:entry"),
                format!("{provider}::{function}:"),
                format!("{provider}:::{function}"),
            ]
        }
        [provider, "", function] => vec![format!("{provider}::{function}:")],
        [provider, function, name] => vec![format!("{provider}::{function}:{name}")],
        _ => Vec::new(),
    }
}

/// The providers of a target.
#[derive(Debug)]
pub struct Catalog {
    /// By name.
    providers: Vec<Box<dyn Provider>>,
    /// Probes that were made on request, in that order from 0.
    made: Mutex<HashMap<Arc<ProbeName>, u32>>,
}

impl Target {
    /// All probes of the target.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.once(|| Catalog::new(self))
    }
}

impl Catalog {
    /// The providers that a target has.
    pub fn new(target: &Target) -> Self {
        let mut providers: Vec<Box<dyn Provider>> =
            vec![Box::new(Dti), Box::new(Fbt::new(target)), Box::new(Pid), Box::new(Profile)];
        providers.extend(System::all().map(|provider| Box::new(provider) as Box<dyn Provider>));
        let statics = Static::all(target).into_iter();
        providers.extend(statics.map(|provider| Box::new(provider) as Box<dyn Provider>));
        providers.sort_by(|a, b| a.name().cmp(b.name()));
        Self { providers, made: Mutex::default() }
    }

    /// The matching probes, by identifier.
    ///
    /// # Errors
    /// See [`MatchError`].
    pub fn find(&self, target: &Target, wanted: &Description) -> Result<Vec<Probe>, MatchError> {
        let mut found = self.matching(target, wanted);
        if let Err(MatchError::Nothing { description, near, .. }) = &mut found {
            near.retain(|name| name != description);
        }
        match found {
            Err(MatchError::Nothing { description, near, unread }) if near.is_empty() => {
                let near = self.meant(target, wanted);
                Err(MatchError::Nothing { description, near, unread })
            }
            found => found,
        }
    }

    /// What may have been meant by a description whose fields name nothing where they are: other descriptions that match, or
    /// names that are similar to one of theirs.
    fn meant(&self, target: &Target, wanted: &Description) -> Vec<String> {
        let mut meant = Vec::new();
        for text in readings(wanted) {
            let found = Description::parse(&text).map(|wanted| self.matching(target, &wanted));
            match found {
                Ok(Ok(_)) => meant.push(text),
                Ok(Err(MatchError::Nothing { near, .. })) => meant.extend(near),
                _ => {}
            }
        }
        let mut seen = BTreeSet::new();
        meant.retain(|text| seen.insert(text.clone()));
        meant.truncate(SUGGESTIONS);
        meant
    }

    fn matching(&self, target: &Target, wanted: &Description) -> Result<Vec<Probe>, MatchError> {
        let mut found = Vec::new();
        for (number, provider) in self.providers.iter().enumerate() {
            if !provider.is_meant(wanted) {
                continue;
            }
            let first = found.len();
            provider.find(target, wanted, &mut found)?;
            let Some(found) = found.get_mut(first..).filter(|found| !found.is_empty()) else { continue };
            // Counted only now, so that tables that are not needed are not read.
            let before = if provider.ids(target) > 0 { number } else { self.providers.len() };
            let base: u32 = self.providers.iter().take(before).map(|other| other.ids(target)).sum();
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            for probe in found {
                let next = made.len() as u32 + 1;
                let mut own = |name| *made.entry(name).or_insert(next);
                probe.id = base + if probe.id > 0 { probe.id } else { own(Arc::clone(&probe.name)) };
            }
        }
        let description = || wanted.to_string();
        if let Some(refusal) =
            self.providers.iter().find_map(|p| p.refusal(target, wanted)).filter(|_| found.is_empty())
        {
            return Err(refusal.into());
        }
        if found.is_empty() {
            let (near, unread) = (self.near(target, wanted), target.unread().to_vec());
            return Err(MatchError::Nothing { description: description(), near, unread });
        }
        if found.iter().map(|probe| probe.sites.len()).sum::<usize>() > MOST_SITES {
            return Err(MatchError::TooMany { description: description() });
        }
        Ok(found)
    }

    /// The calling convention of a probe's arguments, if it was derived from the guest's code.
    pub fn convention(&self, probe: &Probe) -> Option<Abi> {
        self.providers.iter().find_map(|provider| provider.convention(probe))
    }

    fn near(&self, target: &Target, wanted: &Description) -> Vec<String> {
        let there = self.providers.iter().filter(|provider| wanted.provider(provider.name()));
        let mut near: Vec<String> = there.flat_map(|provider| provider.near(target, wanted)).collect();
        near.truncate(SUGGESTIONS);
        near
    }
}
