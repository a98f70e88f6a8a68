//! The search, by LibAFL: its corpus, its scheduler, its loop. The executor is a [`Subject`]. States of handlers are changed by
//! [`change()`], the inputs of functions by LibAFL's own mutators of bytes, which know what the function compares.
//!
//! With one job, everything that it decides follows from the seed and the states that it begins with: the generator is LibAFL's
//! own, seeded, and neither the scheduler nor the feedback looks at a clock.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libafl::corpus::{Corpus, CorpusId, HasCurrentCorpusId, InMemoryCorpus, InMemoryOnDiskCorpus};
use libafl::events::llmp::LlmpEventManagerBuilder;
use libafl::events::{
    AwaitRestartSafe, EventConfig, EventFirer, EventReceiver, NopEventManager, ProgressReporter, SendExiting,
};
use libafl::executors::{Executor, ExitKind, HasObservers};
use libafl::feedbacks::{ConstFeedback, Feedback, StateInitializer};
use libafl::inputs::{BytesInput, HasMutatorBytes, Input, ResizableMutator};
use libafl::mutators::havoc_mutations::{HavocMutationsNoCrossoverType, havoc_mutations_no_crossover};
use libafl::mutators::{HavocScheduledMutator, I2SRandReplaceBinonly, MutationResult, Mutator};
use libafl::observers::cmp::{CmpValues, CmpValuesMetadata};
use libafl::schedulers::QueueScheduler;
use libafl::stages::StdMutationalStage;
use libafl::state::{HasCorpus, HasExecutions, HasMaxSize, HasRand, StdState};
use libafl::{Error, Evaluator, Fuzzer, HasMetadata, StdFuzzer};
use libafl_bolts::Named;
use libafl_bolts::rands::{Rand, StdRand};
use libafl_bolts::shmem::{ShMemProvider, StdShMemProvider};
use libafl_bolts::tuples::{RefIndexable, tuple_list};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::change::{Random, Scope, change};
use crate::error::FuzzError;
use crate::finding::{FellAt, Finding};
use crate::minimise::minimised;
use crate::objectives::Fallen;
use crate::report::Knowledge;
use crate::state::State;
use crate::subject::Subject;

/// Mutations of a state before the next one is taken.
const MUTATIONS: usize = 128;
/// Slots for what falls: it is coverage, too, so that its state is kept and shared with other processes.
const FALLS: usize = 64;
/// Most states of which it is kept what they ask for and compare.
const MOST_KNOWN: usize = 4096;

impl Input for State {
    fn to_file<P: AsRef<Path>>(&self, path: P) -> Result<(), Error> {
        let path = path.as_ref();
        if path.exists() {
            // The name follows from the state; another process has written it.
            return Ok(());
        }
        let text = serde_json::to_vec(self).map_err(|error| Error::serialize(error.to_string()))?;
        let unfinished = path.with_extension(format!("{}.part", std::process::id()));
        std::fs::write(&unfinished, text)?;
        Ok(std::fs::rename(&unfinished, path)?)
    }

    fn from_file<P: AsRef<Path>>(path: P) -> Result<Self, Error> {
        serde_json::from_slice(&std::fs::read(path)?).map_err(|error| Error::serialize(error.to_string()))
    }

    fn generate_name(&self, _: Option<CorpusId>) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        format!("{:016x}.json", xxhash_rust::xxh3::xxh3_64(&text))
    }
}

/// The states in a folder, in the order of their names. A file that holds none is passed over.
#[must_use]
pub fn states_in(folder: &Path) -> Vec<State> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    paths.iter().filter_map(|path| State::from_file(path).ok()).collect()
}

/// The subject and what was found, shared by the executor and the mutator.
struct Shared<T> {
    subject: T,
    /// What has fallen, each with its slot.
    known: Vec<(Fallen, usize)>,
    found: Vec<Finding>,
    failed: Option<FuzzError>,
    /// The slots of what fell in the last execution.
    falls: Vec<usize>,
}

impl<T: Subject> Shared<T> {
    /// Runs a state, and keeps what it has found.
    fn run(&mut self, input: &State) {
        let Self { subject, known, found, failed, falls } = self;
        falls.clear();
        let fallen = match subject.run(input) {
            Ok(fallen) => fallen,
            Err(error) => {
                *failed = Some(error);
                return;
            }
        };
        let mut new = Vec::new();
        for one in fallen {
            let slot = known.iter().find(|(known, _)| known == one).map(|(_, slot)| *slot);
            let slot = slot.unwrap_or_else(|| {
                let slot = xxhash_rust::xxh3::xxh3_64(one.file_name().as_bytes()) as usize % FALLS;
                known.push((one.clone(), slot));
                new.push(one.clone());
                slot
            });
            falls.push(slot);
        }
        let trials = subject.made();
        found.extend(new.into_iter().map(|fallen| Finding {
            fallen,
            state: input.clone(),
            trials,
            at: FellAt::default(),
        }));
    }
}

struct SubjectExecutor<T> {
    shared: Rc<RefCell<Shared<T>>>,
    /// None: the feedback looks at the subject, which knows the places that an execution has reached.
    observers: (),
}

impl<T> HasObservers for SubjectExecutor<T> {
    type Observers = ();

    fn observers(&self) -> RefIndexable<&(), ()> {
        RefIndexable::from(&self.observers)
    }

    fn observers_mut(&mut self) -> RefIndexable<&mut (), ()> {
        RefIndexable::from(&mut self.observers)
    }
}

/// Keeps a state that reaches a place of the map, or a class of counts there, that none before it has reached. LibAFL's feedback
/// of maps decides alike, but looks at the whole map each time.
struct Reached<T> {
    shared: Rc<RefCell<Shared<T>>>,
    /// The greatest class of each place, and what has fallen.
    history: Vec<u8>,
    fallen: [bool; FALLS],
}

impl<T> Named for Reached<T> {
    fn name(&self) -> &Cow<'static, str> {
        const NAME: Cow<'static, str> = Cow::Borrowed("reached");
        &NAME
    }
}

impl<T, S> StateInitializer<S> for Reached<T> {}

impl<T: Subject, EM, OT, S> Feedback<EM, State, OT, S> for Reached<T> {
    fn is_interesting(
        &mut self,
        _: &mut S,
        _: &mut EM,
        _: &State,
        _: &OT,
        _: &ExitKind,
    ) -> Result<bool, Error> {
        let shared = self.shared.borrow();
        let mut is_new = false;
        for (slot, class) in shared.subject.coverage().last() {
            if let Some(best) = self.history.get_mut(slot).filter(|best| class > **best) {
                (*best, is_new) = (class, true);
            }
        }
        for slot in &shared.falls {
            is_new |= self.fallen.get_mut(*slot).is_some_and(|fallen| !std::mem::replace(fallen, true));
        }
        Ok(is_new)
    }
}

impl<T: Subject, EM, S: HasExecutions, Z> Executor<EM, State, S, Z> for SubjectExecutor<T> {
    fn run_target(&mut self, _: &mut Z, state: &mut S, _: &mut EM, input: &State) -> Result<ExitKind, Error> {
        *state.executions_mut() += 1;
        self.shared.borrow_mut().run(input);
        Ok(ExitKind::Ok)
    }
}

/// LibAFL's generator.
struct Of<'r, R>(&'r mut R);

impl<R: Rand> Random for Of<'_, R> {
    fn next(&mut self) -> u64 {
        Rand::next(self.0)
    }
}

struct StateMutator<T> {
    shared: Rc<RefCell<Shared<T>>>,
    scope: Scope,
    /// What states ask for and compare.
    known: BTreeMap<Option<CorpusId>, Knowledge>,
    /// The state whose comparisons LibAFL's mutators have.
    of: Option<CorpusId>,
    havoc: HavocScheduledMutator<HavocMutationsNoCrossoverType>,
}

impl<T> Named for StateMutator<T> {
    fn name(&self) -> &Cow<'static, str> {
        const NAME: Cow<'static, str> = Cow::Borrowed("state");
        &NAME
    }
}

/// The comparisons as LibAFL's mutators take them.
fn comparisons(knowledge: &Knowledge) -> CmpValuesMetadata {
    let list = knowledge.operands.iter().map(|operands| {
        let (one, other) = (operands.one, operands.other);
        match operands.size {
            1 => CmpValues::U8((one as u8, other as u8, false)),
            2 => CmpValues::U16((one as u16, other as u16, false)),
            4 => CmpValues::U32((one as u32, other as u32, false)),
            _ => CmpValues::U64((one, other, false)),
        }
    });
    CmpValuesMetadata { list: list.collect() }
}

impl<T: Subject> StateMutator<T> {
    /// Changes bytes by LibAFL's mutators.
    fn change_bytes<S: HasRand + HasMaxSize + HasMetadata>(
        &mut self,
        state: &mut S,
        input: &mut State,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        let mut random = Of(state.rand_mut());
        if self.scope.hits > 1 && random.one_in(32) {
            input.first = random.below(self.scope.hits);
        }
        let (compared, more) = (!random.one_in(3), random.one_in(4));
        let size = bytes.len();
        let mut whole = BytesInput::new(bytes);
        if compared {
            I2SRandReplaceBinonly::new().mutate(state, &mut whole)?;
        }
        if !compared || more {
            self.havoc.mutate(state, &mut whole)?;
        }
        whole.resize(size, 0);
        self.shared.borrow().subject.set_bytes(input, whole.mutator_bytes());
        Ok(())
    }
}

impl<T, S> Mutator<State, S> for StateMutator<T>
where
    T: Subject,
    S: HasRand + HasCurrentCorpusId + HasMaxSize + HasMetadata,
{
    fn mutate(&mut self, state: &mut S, input: &mut State) -> Result<MutationResult, Error> {
        let id = state.current_corpus_id()?;
        if !self.known.contains_key(&id) {
            let learned = self.shared.borrow_mut().subject.learn(input);
            let learned = learned.map_err(|error| Error::unknown(error.to_string()))?;
            if self.known.len() >= MOST_KNOWN {
                self.known.clear();
            }
            self.known.insert(id, learned);
        }
        let bytes = self.shared.borrow().subject.bytes(input);
        let Some(knowledge) = self.known.get(&id) else { return Ok(MutationResult::Skipped) };
        let Some(bytes) = bytes else {
            change(input, knowledge, &self.scope, &mut Of(state.rand_mut()));
            return Ok(MutationResult::Mutated);
        };
        if self.of != id || id.is_none() {
            self.of = id;
            state.add_metadata(comparisons(knowledge));
        }
        self.change_bytes(state, input, bytes)?;
        Ok(MutationResult::Mutated)
    }

    fn post_exec(&mut self, _: &mut S, _: Option<CorpusId>) -> Result<(), Error> {
        Ok(())
    }
}

/// What a search tells while it goes on.
pub trait Listener<T> {
    /// The subject has run so many states, and the corpus holds so many. Returns whether the search goes on.
    fn goes_on(&mut self, subject: &T, corpus: usize) -> bool;

    /// It has found this, which is minimised already.
    ///
    /// # Errors
    /// The finding cannot be kept.
    fn found(&mut self, finding: &Finding, subject: &mut T) -> Result<(), FuzzError>;
}

/// What a search begins with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Begin<'a> {
    /// The seed.
    pub seed: u64,
    /// The folder of the corpus. The search begins with the states that are there, and keeps each state that reaches something
    /// there at once.
    pub corpus: Option<&'a Path>,
    /// The port of a broker, through which states that reach something are shared with other processes.
    pub port: Option<u16>,
}

/// Searches for as long as the listener wants. Returns the subject, and the findings in the order in which they were found.
///
/// # Errors
/// A trial cannot be made, the listener cannot keep a finding, the folder cannot be written, or there is no broker.
pub fn search<T: Subject>(
    subject: T,
    scope: Scope,
    begin: &Begin<'_>,
    listener: &mut impl Listener<T>,
) -> Result<(T, Vec<Finding>), FuzzError> {
    match begin.corpus {
        None => connected(subject, scope, begin, InMemoryCorpus::new(), listener),
        Some(folder) => {
            let corpus = InMemoryOnDiskCorpus::with_meta_format_and_prefix(folder, None, None, false);
            connected(subject, scope, begin, corpus.map_err(failed)?, listener)
        }
    }
}

/// Connects to the broker, if there is one.
fn connected<T: Subject, C: Corpus<State> + Serialize + DeserializeOwned>(
    subject: T,
    scope: Scope,
    begin: &Begin<'_>,
    corpus: C,
    listener: &mut impl Listener<T>,
) -> Result<(T, Vec<Finding>), FuzzError> {
    let known = begin.corpus.map(states_in).unwrap_or_default();
    let from = (begin.seed, corpus, known.as_slice());
    let Some(port) = begin.port else {
        return search_in(subject, scope, from, &mut NopEventManager::new(), listener);
    };
    let memory = StdShMemProvider::new().map_err(failed)?;
    let manager = LlmpEventManagerBuilder::new();
    let manager = manager.build_on_port::<State, Searching<C>, _, _>(memory, port, EventConfig::AlwaysUnique);
    let mut manager = manager.map_err(failed)?;
    let result = search_in(subject, scope, from, &mut manager, listener);
    manager.send_exiting().map_err(failed)?;
    manager.await_restart_safe();
    result
}

fn failed(error: Error) -> FuzzError {
    FuzzError::Search(error.to_string())
}

type Searching<C> = StdState<C, State, StdRand, InMemoryCorpus<State>>;

fn search_in<T, C, M>(
    subject: T,
    scope: Scope,
    (seed, corpus, known): (u64, C, &[State]),
    manager: &mut M,
    listener: &mut impl Listener<T>,
) -> Result<(T, Vec<Finding>), FuzzError>
where
    T: Subject,
    C: Corpus<State> + Serialize + DeserializeOwned,
    M: EventFirer<State, Searching<C>>
        + EventReceiver<State, Searching<C>>
        + ProgressReporter<Searching<C>>
        + SendExiting,
{
    let hits = subject.hits().list.len();
    let history = vec![0; subject.coverage().map.len()];
    let shared = Shared { subject, known: Vec::new(), found: Vec::new(), failed: None, falls: Vec::new() };
    let shared = Rc::new(RefCell::new(shared));
    let mut feedback = Reached { shared: Rc::clone(&shared), history, fallen: [false; FALLS] };
    let mut objective = ConstFeedback::False;
    let solutions = InMemoryCorpus::<State>::new();
    let mut state = StdState::new(StdRand::with_seed(seed), corpus, solutions, &mut feedback, &mut objective)
        .map_err(failed)?;
    let mut fuzzer = StdFuzzer::new(QueueScheduler::new(), feedback, objective);
    let mut executor = SubjectExecutor { shared: Rc::clone(&shared), observers: () };
    let mutator = StateMutator {
        shared: Rc::clone(&shared),
        scope,
        known: BTreeMap::new(),
        of: None,
        havoc: HavocScheduledMutator::new(havoc_mutations_no_crossover()),
    };
    let many = NonZeroUsize::new(MUTATIONS).unwrap_or(NonZeroUsize::MIN);
    let mut stages = tuple_list!(StdMutationalStage::with_max_iterations(mutator, many));
    for input in (0..hits).map(State::real) {
        // The real hits are where everything begins, whether they reach anything new or not.
        fuzzer.add_input(&mut state, &mut executor, manager, input).map_err(failed)?;
    }
    for input in known.iter().filter(|state| state.first < hits) {
        fuzzer.evaluate_input(&mut state, &mut executor, manager, input).map_err(failed)?;
    }
    let mut findings = Vec::new();
    loop {
        tell(&shared, listener, &mut findings)?;
        if !listener.goes_on(&shared.borrow().subject, state.corpus().count()) {
            break;
        }
        fuzzer.fuzz_one(&mut stages, &mut executor, &mut state, manager).map_err(failed)?;
    }
    drop((executor, stages, fuzzer));
    let shared = Rc::into_inner(shared).ok_or_else(|| FuzzError::Search("it is still in use".to_owned()))?;
    Ok((shared.into_inner().subject, findings))
}

/// Minimises what was found since, and tells it.
fn tell<T: Subject>(
    shared: &Rc<RefCell<Shared<T>>>,
    listener: &mut impl Listener<T>,
    findings: &mut Vec<Finding>,
) -> Result<(), FuzzError> {
    let mut shared = shared.borrow_mut();
    if let Some(error) = shared.failed.take() {
        return Err(error);
    }
    for mut finding in std::mem::take(&mut shared.found) {
        finding.state = minimised(&mut shared.subject, &finding.state, &finding.fallen)?;
        finding.at = shared.subject.fell_at(&finding.state, &finding.fallen)?;
        listener.found(&finding, &mut shared.subject)?;
        findings.push(finding);
    }
    Ok(())
}
