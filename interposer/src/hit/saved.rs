//! The interposer at one moment: saved, put back, stored.
//!
//! A saved state is everything that the interposer's future and its output depend on; [`Interposer`] says which of its
//! parts are state. Most of it is shared with earlier saved states, and with the interposer until that changes. So
//! saving and restoring are cheap where little has happened.
//!
//! Stored, it is a serde value that names no pointer. It does not contain the programs: the caller that inserted them
//! can make them again ([`Definition`]), and the value identifies them by a digest.

use super::Interposer;
use super::core_file::CoreFile;
use super::inserted::{Inserted, ProbeState, SavedProgram, SavedPrograms};
use super::life::{Hit, MOST_COUNTED, ParkedHits};
use super::process::Filters;
use super::stops::Stops;
use super::tail_calls::TailCalls;
use super::written::Written;
use crate::d::Runtime;
use crate::model::{AlteredRun, Definition, HandlerError, Stats};
use crate::sites::SavedSites;
use crate::sources::{
    KernelModules, Sources, StoredModules, StoredPage, StoredWord, Timers, UserModules, UserProbes, Words,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use trapline_emu::{Core, RamLayout, Watch};
use trapline_trace::SavedChannels;

/// What happens to the output when a state is restored: records, statistics, errors, core files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// It is restored too: the interposer is exactly what it was.
    Travels,
    /// It is kept: records and counts stay, and sequence numbers are not reused.
    GoesOn,
}

/// The interposer at one moment. A clone shares all of it.
#[derive(Clone)]
pub struct SavedInterposer(Arc<Saved>);

struct Saved {
    programs: SavedPrograms,
    sites: SavedSites,
    modules: KernelModules,
    user: UserProbes,
    words: Words,
    timers: Timers,
    rest: Rest,
}

/// The parts that are stored unchanged.
#[derive(Clone, Serialize, Deserialize)]
struct Rest {
    /// The machine's watches of memory, of ports and of execution, in the order in which hits are reported.
    watched: [Vec<(u32, Watch)>; 3],
    hit: Hit,
    parked: ParkedHits,
    tail_calls: TailCalls,
    frozen_after: Option<u64>,
    written: Written,
    cores: Vec<CoreFile>,
    cores_left: u64,
    errors: Vec<HandlerError>,
    stops: Stops,
    stats: Stats,
    channels: SavedChannels,
}

/// The stored form of [`SavedInterposer`].
#[derive(Clone, Serialize, Deserialize)]
pub struct StoredInterposer {
    gv: Vec<u64>,
    programs: Vec<StoredProgram>,
    probes: Vec<ProbeState>,
    sites: SavedSites,
    modules: StoredModules,
    user: Vec<StoredPage>,
    words: Vec<StoredWord>,
    timers: BTreeMap<u32, u64>,
    rest: Rest,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredProgram {
    name: String,
    /// The digest of its definition.
    digest: u64,
    lv: Vec<u64>,
    /// The state of a D program.
    d: Option<Runtime>,
    removed: bool,
    stop_at: Option<u64>,
    counted: u64,
    ops: u64,
    /// Its altered runs.
    altered: Vec<AlteredRun>,
}

/// Why a stored interposer cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredInterposerError {
    /// A program is not the one that was inserted.
    #[error(
        "`{0}` has other probe points or another handler than when the session was stored: use the same guest, files and probe options"
    )]
    OtherProgram(String),
    /// The number of programs differs.
    #[error("{stored} programs were inserted, and {given} are given")]
    Programs {
        /// How many were inserted.
        stored: usize,
        /// How many there are now.
        given: usize,
    },
    /// It describes an impossible state.
    #[error("{0} are in no possible state")]
    Impossible(&'static str),
}

impl SavedInterposer {
    /// How many handlers had run. The number never falls in a run, and rises with each hit that is noted.
    pub fn hits(&self) -> u64 {
        self.0.rest.stats.hits
    }
}

impl Interposer {
    /// Saves everything that its future depends on.
    pub fn save(&mut self, core: &Core) -> SavedInterposer {
        SavedInterposer(Arc::new(Saved {
            programs: self.inserted.save(),
            sites: self.sites.save(),
            modules: self.sources.modules.clone(),
            user: self.sources.user.clone(),
            words: self.sources.words.clone(),
            timers: self.sources.timers.clone(),
            rest: Rest {
                watched: core.watched().map(<[_]>::to_vec),
                hit: self.hit.clone(),
                parked: self.parked.clone(),
                tail_calls: self.tail_calls.clone(),
                frozen_after: self.runner.asked.frozen_after,
                written: self.runner.asked.written.clone(),
                cores: self.runner.asked.cores.clone(),
                cores_left: self.runner.asked.cores_left,
                errors: self.runner.errors.clone(),
                stops: self.stops.clone(),
                stats: self.stats,
                channels: self.recorder.channels.save(),
            },
        }))
    }

    /// Restores a saved state, after the machine has been restored.
    pub fn restore(&mut self, core: &mut Core, saved: &SavedInterposer, output: Output) {
        let saved = &*saved.0;
        let rest = &saved.rest;
        match output {
            Output::Travels => {
                self.hit.clone_from(&rest.hit);
                self.runner.asked.frozen_after = rest.frozen_after;
                self.runner.asked.written = rest.written.clone();
                self.runner.asked.cores.clone_from(&rest.cores);
                self.runner.asked.cores_left = rest.cores_left;
                self.runner.errors.clone_from(&rest.errors);
                self.stops.clone_from(&rest.stops);
                self.stats = rest.stats;
                self.recorder.channels.restore(&rest.channels);
            }
            Output::GoesOn => {
                self.hit.clear();
                self.runner.asked.frozen_after = rest.frozen_after.map(|_| self.stats.hits);
                self.runner.asked.written.go_to(&rest.written);
                self.stops.fired.clear();
                self.stops.by = None;
            }
        }
        self.sites.restore(core, &saved.sites);
        let awaited = self.awaits_hits();
        self.runner.altered = Default::default();
        self.inserted.restore(&saved.programs, &mut self.filters, awaited);
        self.sources.modules.clone_from(&saved.modules);
        self.sources.user.clone_from(&saved.user);
        self.sources.words.clone_from(&saved.words);
        self.sources.timers.clone_from(&saved.timers);
        self.sources.timers.set_alarm(core);
        let [data, ports, code] = &rest.watched;
        core.set_watched([data, ports, code]);
        self.parked.clone_from(&rest.parked);
        self.tail_calls.clone_from(&rest.tail_calls);
    }

    /// Restores the state before any program was inserted. The output is kept.
    pub fn take_out(&mut self, core: &mut Core) {
        self.sites.restore(core, &SavedSites::default());
        self.inserted.restore(&SavedPrograms::default(), &mut self.filters, false);
        let watches = std::mem::take(&mut self.sources.watches);
        self.sources = Sources { watches, ..Sources::default() };
        self.sources.timers.set_alarm(core);
        core.set_watched([&[], &[], &[]]);
        self.parked = ParkedHits::default();
        self.tail_calls = TailCalls::default();
        self.hit.clear();
        self.runner.asked.frozen_after = None;
        self.runner.asked.written.go_to(&Written::default());
        self.stops.fired.clear();
        self.stops.by = None;
    }

    /// Whether this interposer's configuration can have led to the saved state.
    pub fn could_be(&self, saved: &SavedInterposer) -> bool {
        self.recorder.channels.could_be(&saved.0.rest.channels)
    }

    /// The number of programs ever inserted, removed ones included.
    pub fn inserted(&self) -> usize {
        self.inserted.programs.len()
    }
}

impl SavedInterposer {
    /// The stored form.
    pub fn to_stored(&self) -> StoredInterposer {
        let Saved { programs, sites, modules, user, words, timers, rest } = &*self.0;
        let probes = programs.programs.iter().flat_map(|program| &program.definition.probes);
        let user_modules = UserModules::of(probes);
        let mut digests = super::digest::Digests::default();
        let program = |program: &SavedProgram| StoredProgram {
            name: program.definition.name.clone(),
            digest: digests.of(&program.definition),
            lv: program.lv.to_vec(),
            d: program.d.as_deref().cloned(),
            removed: program.removed,
            stop_at: program.stop_at,
            counted: program.counted,
            ops: program.ops,
            altered: program.altered.as_deref().unwrap_or_default().to_vec(),
        };
        StoredInterposer {
            gv: programs.gv.to_vec(),
            programs: programs.programs.iter().map(program).collect(),
            probes: programs.probes.iter().flat_map(|piece| piece.iter().copied()).collect(),
            sites: sites.clone(),
            modules: modules.to_stored(),
            user: user.to_stored(&user_modules),
            words: words.to_stored(&user_modules),
            timers: timers.to_stored(),
            rest: rest.clone(),
        }
    }

    /// Reads the stored form, in a machine whose memory is `ram`. The definitions are those of all programs that
    /// were inserted, in order.
    ///
    /// # Errors
    /// A program differs, or the form describes an impossible state.
    pub fn from_stored(
        stored: StoredInterposer,
        definitions: Vec<Arc<Definition>>,
        ram: RamLayout,
    ) -> Result<Self, StoredInterposerError> {
        use StoredInterposerError::Impossible;
        let StoredInterposer { gv, programs, probes, sites, modules, user, words, timers, rest } = stored;
        let (programs, inserted) = programs_of(gv, programs, probes, definitions)?;
        let known = &inserted.probes;
        let count = |count: u64| count < MOST_COUNTED;
        if !sites.is_sound(known.len(), ram) {
            return Err(Impossible("the sites"));
        }
        if !rest.tail_calls.is_sound(known.len()) {
            return Err(Impossible("the functions that return later"));
        }
        if !rest.parked.is_sound() || !rest.stats.is_sound() || !count(rest.hit.counted) {
            return Err(Impossible("the counts"));
        }
        if !rest.written.is_sound()
            || !count(rest.stops.counted)
            || rest.frozen_after.is_some_and(|hits| !count(hits))
        {
            return Err(Impossible("the stops"));
        }
        if rest.watched.iter().flatten().any(|(_, watch)| watch.high < watch.low) {
            return Err(Impossible("the watches"));
        }
        if timers.values().any(|due| !count(*due)) {
            return Err(Impossible("the timers"));
        }
        let user_modules = UserModules::of(known);
        let modules = KernelModules::from_stored(modules, known).ok_or(Impossible("the kernel modules"))?;
        let user = UserProbes::from_stored(user, &user_modules, ram).ok_or(Impossible("the user modules"))?;
        let words = Words::from_stored(words, &user_modules).ok_or(Impossible("the words"))?;
        let timers = Timers::from_stored(timers, known).ok_or(Impossible("the timers"))?;
        Ok(Self(Arc::new(Saved { programs, sites, modules, user, words, timers, rest })))
    }
}

/// The programs, saved and as the interposer has them.
fn programs_of(
    gv: Vec<u64>,
    stored: Vec<StoredProgram>,
    probes: Vec<ProbeState>,
    definitions: Vec<Arc<Definition>>,
) -> Result<(SavedPrograms, Inserted), StoredInterposerError> {
    use StoredInterposerError::{Impossible, OtherProgram, Programs};
    if stored.len() != definitions.len() {
        return Err(Programs { stored: stored.len(), given: definitions.len() });
    }
    let all: usize = definitions.iter().map(|definition| definition.probes.len()).sum();
    let mut digests = super::digest::Digests::default();
    let mut programs = Vec::new();
    for (program, definition) in stored.into_iter().zip(definitions) {
        if digests.of(&definition) != program.digest || program.lv.len() != definition.vars {
            return Err(OtherProgram(program.name));
        }
        if program.counted >= MOST_COUNTED || program.ops >= MOST_COUNTED {
            return Err(Impossible("the counts"));
        }
        let d = match (program.d, &definition.d) {
            (None, None) => None,
            (Some(d), Some(setup)) => {
                Some(Arc::new(d.of_stored(setup, all).ok_or(Impossible("the variables of a D program"))?))
            }
            _ => return Err(OtherProgram(program.name)),
        };
        programs.push(SavedProgram {
            definition,
            lv: program.lv.into(),
            d,
            removed: program.removed,
            stop_at: program.stop_at,
            counted: program.counted,
            ops: program.ops,
            altered: (!program.altered.is_empty()).then(|| program.altered.into()),
        });
    }
    let needed = programs.iter().map(|program| program.definition.gvars).max().unwrap_or_default();
    if gv.len() != needed {
        return Err(Impossible("the global variables"));
    }
    let sound = |state: &ProbeState| {
        [state.seen, state.run, state.hit, state.errors].iter().all(|count| *count < MOST_COUNTED)
    };
    if probes.len() != all || !probes.iter().all(sound) {
        return Err(Impossible("the probe points"));
    }
    let saved = SavedPrograms::new(gv.into(), programs, &probes);
    let mut inserted = Inserted::default();
    inserted.restore(&saved, &mut Filters::default(), false);
    Ok((saved, inserted))
}
