//! The search, by LibAFL: its corpus, its scheduler, its loop. The executor is [`Trials`], and the mutator is [`change()`].
//!
//! With one job, everything that it decides follows from the seed and the states that it begins with: the generator is LibAFL's
//! own, seeded, and neither the scheduler nor the feedback looks at a clock.

use std::borrow::Cow;
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libafl::corpus::{Corpus, CorpusId, HasCurrentCorpusId, InMemoryCorpus, InMemoryOnDiskCorpus};
use libafl::events::llmp::LlmpEventManagerBuilder;
use libafl::events::{
    AwaitRestartSafe, EventConfig, EventFirer, EventReceiver, NopEventManager, ProgressReporter, SendExiting,
};
use libafl::executors::{Executor, ExitKind, HasObservers};
use libafl::feedbacks::{ConstFeedback, MaxMapFeedback};
use libafl::inputs::Input;
use libafl::mutators::{MutationResult, Mutator};
use libafl::observers::StdMapObserver;
use libafl::schedulers::QueueScheduler;
use libafl::stages::StdMutationalStage;
use libafl::state::{HasCorpus, HasExecutions, HasRand, StdState};
use libafl::{Error, Evaluator, Fuzzer, StdFuzzer};
use libafl_bolts::Named;
use libafl_bolts::fs::write_file_atomic;
use libafl_bolts::rands::{Rand, StdRand};
use libafl_bolts::shmem::{ShMemProvider, StdShMemProvider};
use libafl_bolts::tuples::{RefIndexable, tuple_list};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::change::{Random, Scope, change};
use crate::error::FuzzError;
use crate::finding::Finding;
use crate::minimise::minimised;
use crate::objectives::Fallen;
use crate::state::State;
use crate::trials::{Knowledge, Trials};

/// Mutations of a state before the next one is taken.
const MUTATIONS: usize = 128;

impl Input for State {
    fn to_file<P: AsRef<Path>>(&self, path: P) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|error| Error::serialize(error.to_string()))?;
        write_file_atomic(path, &text)
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
fn states_in(folder: &Path) -> Vec<State> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    paths.iter().filter_map(|path| State::from_file(path).ok()).collect()
}

/// The trials and what they found, shared by the executor and the mutator.
struct Shared {
    trials: Trials,
    known: Vec<Fallen>,
    found: Vec<Finding>,
    failed: Option<FuzzError>,
}

type Map = StdMapObserver<'static, u8, false>;
type Observers = (Map, ());

struct HandlerExecutor {
    shared: Rc<RefCell<Shared>>,
    observers: Observers,
}

impl HasObservers for HandlerExecutor {
    type Observers = Observers;

    fn observers(&self) -> RefIndexable<&Self::Observers, Self::Observers> {
        RefIndexable::from(&self.observers)
    }

    fn observers_mut(&mut self) -> RefIndexable<&mut Self::Observers, Self::Observers> {
        RefIndexable::from(&mut self.observers)
    }
}

impl<EM, S: HasExecutions, Z> Executor<EM, State, S, Z> for HandlerExecutor {
    fn run_target(&mut self, _: &mut Z, state: &mut S, _: &mut EM, input: &State) -> Result<ExitKind, Error> {
        *state.executions_mut() += 1;
        let mut shared = self.shared.borrow_mut();
        let Shared { trials, known, found, failed } = &mut *shared;
        match trials.run(input) {
            Ok(fallen) => {
                let new: Vec<_> = fallen.iter().filter(|one| !known.contains(one)).cloned().collect();
                let made = trials.summary.trials;
                for fallen in new {
                    known.push(fallen.clone());
                    found.push(Finding { fallen, state: input.clone(), trials: made, executed: 0 });
                }
            }
            Err(error) => *failed = Some(error),
        }
        let to = &mut self.observers.0;
        for (to, from) in to.iter_mut().zip(&trials.coverage.map) {
            *to = *from;
        }
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

struct StateMutator {
    shared: Rc<RefCell<Shared>>,
    scope: Scope,
    /// What the handlers of the state that is being changed ask for and compare.
    knowledge: Knowledge,
    of: Option<CorpusId>,
}

impl Named for StateMutator {
    fn name(&self) -> &Cow<'static, str> {
        const NAME: Cow<'static, str> = Cow::Borrowed("state");
        &NAME
    }
}

impl<S: HasRand + HasCurrentCorpusId> Mutator<State, S> for StateMutator {
    fn mutate(&mut self, state: &mut S, input: &mut State) -> Result<MutationResult, Error> {
        let id = state.current_corpus_id()?;
        if self.of != id || id.is_none() {
            self.of = id;
            let learned = self.shared.borrow_mut().trials.learn(input);
            self.knowledge = learned.map_err(|error| Error::unknown(error.to_string()))?;
        }
        change(input, &self.knowledge, &self.scope, &mut Of(state.rand_mut()));
        Ok(MutationResult::Mutated)
    }

    fn post_exec(&mut self, _: &mut S, _: Option<CorpusId>) -> Result<(), Error> {
        Ok(())
    }
}

/// What a search tells while it goes on.
pub trait Listener {
    /// It has made so many trials, and its corpus holds so many states. Returns whether it goes on.
    fn goes_on(&mut self, trials: &Trials, corpus: usize) -> bool;

    /// It has found this, which is minimised already.
    ///
    /// # Errors
    /// The finding cannot be kept.
    fn found(&mut self, finding: &Finding, trials: &Trials) -> Result<(), FuzzError>;
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

/// Searches for as long as the listener wants. Returns the trials, and the findings in the order in which they were found.
///
/// # Errors
/// A trial cannot be made, the listener cannot keep a finding, the folder cannot be written, or there is no broker.
pub fn search(
    trials: Trials,
    scope: Scope,
    begin: &Begin<'_>,
    listener: &mut impl Listener,
) -> Result<(Trials, Vec<Finding>), FuzzError> {
    match begin.corpus {
        None => connected(trials, scope, begin, InMemoryCorpus::new(), listener),
        Some(folder) => {
            let corpus = InMemoryOnDiskCorpus::with_meta_format_and_prefix(folder, None, None, false);
            connected(trials, scope, begin, corpus.map_err(failed)?, listener)
        }
    }
}

/// Connects to the broker, if there is one.
fn connected<C: Corpus<State> + Serialize + DeserializeOwned>(
    trials: Trials,
    scope: Scope,
    begin: &Begin<'_>,
    corpus: C,
    listener: &mut impl Listener,
) -> Result<(Trials, Vec<Finding>), FuzzError> {
    let known = begin.corpus.map(states_in).unwrap_or_default();
    let from = (begin.seed, corpus, known.as_slice());
    let Some(port) = begin.port else {
        return search_in(trials, scope, from, &mut NopEventManager::new(), listener);
    };
    let memory = StdShMemProvider::new().map_err(failed)?;
    let manager = LlmpEventManagerBuilder::new();
    let manager = manager.build_on_port::<State, Searching<C>, _, _>(memory, port, EventConfig::AlwaysUnique);
    let mut manager = manager.map_err(failed)?;
    let result = search_in(trials, scope, from, &mut manager, listener);
    manager.send_exiting().map_err(failed)?;
    manager.await_restart_safe();
    result
}

fn failed(error: Error) -> FuzzError {
    FuzzError::Search(error.to_string())
}

type Searching<C> = StdState<C, State, StdRand, InMemoryCorpus<State>>;

fn search_in<C, M>(
    trials: Trials,
    scope: Scope,
    (seed, corpus, known): (u64, C, &[State]),
    manager: &mut M,
    listener: &mut impl Listener,
) -> Result<(Trials, Vec<Finding>), FuzzError>
where
    C: Corpus<State> + Serialize + DeserializeOwned,
    M: EventFirer<State, Searching<C>>
        + EventReceiver<State, Searching<C>>
        + ProgressReporter<Searching<C>>
        + SendExiting,
{
    let hits = trials.hits().list.len();
    let observer: Map = StdMapObserver::owned("coverage", vec![0; trials.coverage.map.len()]);
    let shared = Shared { trials, known: Vec::new(), found: Vec::new(), failed: None };
    let shared = Rc::new(RefCell::new(shared));
    let mut feedback = MaxMapFeedback::new(&observer);
    let mut objective = ConstFeedback::False;
    let solutions = InMemoryCorpus::<State>::new();
    let mut state = StdState::new(StdRand::with_seed(seed), corpus, solutions, &mut feedback, &mut objective)
        .map_err(failed)?;
    let mut fuzzer = StdFuzzer::new(QueueScheduler::new(), feedback, objective);
    let mut executor = HandlerExecutor { shared: Rc::clone(&shared), observers: (observer, ()) };
    let mutator =
        StateMutator { shared: Rc::clone(&shared), scope, knowledge: Knowledge::default(), of: None };
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
        if !listener.goes_on(&shared.borrow().trials, state.corpus().count()) {
            break;
        }
        fuzzer.fuzz_one(&mut stages, &mut executor, &mut state, manager).map_err(failed)?;
    }
    drop((executor, stages, fuzzer));
    let shared = Rc::into_inner(shared).ok_or_else(|| FuzzError::Search("it is still in use".to_owned()))?;
    Ok((shared.into_inner().trials, findings))
}

/// Minimises what was found since, and tells it.
fn tell(
    shared: &Rc<RefCell<Shared>>,
    listener: &mut impl Listener,
    findings: &mut Vec<Finding>,
) -> Result<(), FuzzError> {
    let mut shared = shared.borrow_mut();
    if let Some(error) = shared.failed.take() {
        return Err(error);
    }
    for mut finding in std::mem::take(&mut shared.found) {
        finding.state = minimised(&mut shared.trials, &finding.state, &finding.fallen)?;
        finding.executed = shared.trials.executed(&finding.state, &finding.fallen)?;
        listener.found(&finding, &shared.trials)?;
        findings.push(finding);
    }
    Ok(())
}
