//! `trapline-fuzz`: searches for states in which the handlers of a recorded run, or a function of the guest, do what they must not. `trapline fuzz` starts it.

#![forbid(unsafe_code)]

mod args;
mod progress;
mod speed;

use std::hash::{Hash as _, Hasher as _};
use std::io::{Read, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::Args;
use clap::Parser;
use progress::{Far, Progress};
use speed::Empty;
use trapline_emu::standard;
use trapline_fuzz::calls::{self, Calls};
use trapline_fuzz::change::Scope;
use trapline_fuzz::finding::{Finding, Folder};
use trapline_fuzz::hits::Hits;
use trapline_fuzz::jobs::{Event, Jobs, Message, Others};
use trapline_fuzz::objectives::{Objectives, Over};
use trapline_fuzz::patience::{Ended, Patience};
use trapline_fuzz::search::{Begin, Listener, search, states_in};
use trapline_fuzz::subject::Subject;
use trapline_fuzz::trials::Trials;
use trapline_fuzz::verdict::verdict;
use trapline_fuzz::{FuzzError, INTERRUPTED};
use trapline_session::{Places, Recording, counted};
use xxhash_rust::xxh3::Xxh3;

/// The exit code if something was found.
const FOUND: u8 = 1;
/// The exit code if nothing was found, and not all was searched.
const NOT_WHOLE: u8 = 124;
/// The exit code if the reader of standard output has closed it.
const CLOSED: u8 = 141;
/// The time of a search for which nothing is given.
const DEFAULT_TIME: Duration = Duration::from_secs(60);
/// The time between two messages of one process of several.
const EVERY: Duration = Duration::from_millis(500);

/// When a search ends.
struct Until {
    most: Option<u64>,
    patience: Patience,
}

impl Until {
    /// Why it ends now, if it does.
    fn ended(&self, trials: u64) -> Option<Ended> {
        match self.patience.ended() {
            Some(Ended::Interrupted) => Some(Ended::Interrupted),
            _ if self.most.is_some_and(|most| trials >= most) => Some(Ended::Trials),
            ended => ended,
        }
    }
}

/// A search in this process alone.
struct Alone<'a> {
    folder: Folder<'a>,
    until: Until,
    progress: Progress,
    found: usize,
    ended: Ended,
}

impl<T: Subject> Listener<T> for Alone<'_> {
    fn goes_on(&mut self, subject: &T, states: usize) -> bool {
        let found = self.found;
        let far = || Far { trials: subject.made(), places: subject.coverage().reached(), states, found };
        self.progress.tell(far);
        match self.until.ended(subject.made()) {
            None => true,
            Some(ended) => {
                self.ended = ended;
                false
            }
        }
    }

    fn found(&mut self, finding: &Finding, subject: &mut T) -> Result<(), FuzzError> {
        self.found += 1;
        self.progress.clear();
        keep(&self.folder, finding, subject)
    }
}

/// Prints a line.
fn tell(line: &str) -> Result<(), FuzzError> {
    let written = standard::writable(1).and_then(|()| writeln!(std::io::stdout().lock(), "{line}"));
    written.map_err(FuzzError::Output)
}

/// Writes a finding, and then prints it: what is printed is in its file.
fn keep<T: Subject>(folder: &Folder<'_>, finding: &Finding, subject: &mut T) -> Result<(), FuzzError> {
    let path = subject.write(finding, folder)?;
    let differences = counted(finding.state.differences() as u64, "difference");
    let hits = counted(finding.state.hits.len() as u64, "hit");
    tell(&format!("found {} after {} executions: {hits}, {differences}", path.display(), finding.trials))
}

/// A search that is one of several.
struct OneOfSeveral {
    until: Until,
    told: Instant,
    ended: Ended,
}

impl<T: Subject> Listener<T> for OneOfSeveral {
    fn goes_on(&mut self, subject: &T, states: usize) -> bool {
        let made = subject.made();
        if self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            let progress = Message::Progress { trials: made, places: subject.coverage().reached(), states };
            if progress.tell().is_err() {
                // The process that has started this one has ended.
                self.until.patience.interrupt();
            }
        }
        match self.until.ended(made) {
            None => true,
            Some(ended) => {
                self.ended = ended;
                false
            }
        }
    }

    fn found(&mut self, finding: &Finding, _: &mut T) -> Result<(), FuzzError> {
        Message::Found(finding.clone()).tell().map_err(|error| FuzzError::Search(error.to_string()))
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    // A handler that makes Trapline panic is a finding, which says where; the hook would print it each time.
    std::panic::set_hook(Box::new(|_| {}));
    match run(args) {
        Ok(Verdict::Found) => ExitCode::from(FOUND),
        Ok(Verdict::Nothing) => ExitCode::SUCCESS,
        Ok(Verdict::NotWhole) => ExitCode::from(NOT_WHOLE),
        Ok(Verdict::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(error) => {
            let code = error.exit_code();
            if code != CLOSED {
                eprintln!("trapline: error: {error}");
            }
            ExitCode::from(code)
        }
    }
}

/// The result of a search.
enum Verdict {
    /// Something was found.
    Found,
    /// Nothing was.
    Nothing,
    /// Nothing was, and handlers were not searched, or operations not reached.
    NotWhole,
    /// Nothing was, when it was interrupted.
    Interrupted,
}

/// Searches.
fn run(mut args: Args) -> Result<Verdict, FuzzError> {
    let patience = Patience::default();
    let signal = patience.clone();
    // Without the handler, Ctrl-C ends the program at once; what was found is in its files.
    let _ = ctrlc::set_handler(move || signal.interrupt());
    if args.port.is_some() {
        stop_with_input(&patience);
    }
    let over = match (&args.function, args.continued) {
        (Some(_), _) => Over::Function,
        (None, Some(_)) => Over::Continued,
        (None, None) => Over::Handlers,
    };
    let mut objectives = Objectives::of(over);
    args.objective.iter().try_for_each(|text| objectives.with(text))?;
    args.no_objective.iter().try_for_each(|name| objectives.without(name))?;
    let recording = Recording::read(&args.recording)?;
    let places = Places { folders: args.image_dir.clone(), ..Places::of(&args.recording) };
    let most = usize::try_from(args.hits).unwrap_or(usize::MAX);
    let hits = Hits::of_program(&recording, &places, args.at, most, (args.function.as_deref(), &patience))?;
    let time = args.time.or_else(|| args.execs.is_none().then_some(DEFAULT_TIME));
    if let Some(time) = time {
        patience.end_after(time);
    }
    keep_states(&mut args, &hits)?;
    let args = &args;
    let fixed = |what: &str| args.fix.iter().any(|fixed| fixed == what);
    let scope = |hits: &Hits| Scope::of(hits, !fixed("variables"), !fixed("hits"));
    let folder = Folder { recording: &recording, places: &places, folder: &args.findings };
    if let Some(function) = &args.function {
        let until = calls::Until::of(&args.until)?;
        let calls = Calls::new(hits, function, &args.input, until, objectives, &patience)?;
        let scope = scope(calls.hits());
        return of_subject(args, calls, scope, folder, patience);
    }
    let room = recording.config().probing.channel.sub_buffer_size;
    let scope = scope(&hits);
    let trials = Trials::new(hits, objectives, room);
    let trials = match args.continued {
        None => trials,
        Some(insns) => trials.continued(insns),
    };
    of_subject(args, trials, scope, folder, patience)
}

/// The folder of states is one of the findings' unless another is given. Its name has a number for what is searched, so that the same
/// search goes on from there, and another one does not begin with states that are not its own.
fn keep_states(args: &mut Args, hits: &Hits) -> Result<(), FuzzError> {
    if args.speed.is_some() {
        return Ok(());
    }
    let mut searched = Xxh3::new();
    let inputs: Vec<_> = args.input.iter().map(ToString::to_string).collect();
    (hits.digest(), &args.function, inputs).hash(&mut searched);
    let own = || args.findings.join(format!("corpus-{:08x}", searched.finish() as u32));
    let folder = args.corpus.clone().unwrap_or_else(own);
    std::fs::create_dir_all(&folder)
        .map_err(|error| FuzzError::Write { path: folder.display().to_string(), error })?;
    args.corpus = Some(folder);
    Ok(())
}

/// Searches over a subject.
fn of_subject<T: Subject>(
    args: &Args,
    subject: T,
    scope: Scope,
    folder: Folder<'_>,
    patience: Patience,
) -> Result<Verdict, FuzzError> {
    if let (Some(what), Some(most)) = (&args.speed, args.execs) {
        let told = match what.as_str() {
            "empty" => speed::measure(Empty::in_place_of(subject), scope, most),
            _ => speed::measure(subject, scope, most),
        };
        tell(&told?.to_string())?;
        return Ok(Verdict::Nothing);
    }
    let until = Until { most: args.execs, patience };
    if let Some(port) = args.port {
        return one_of_several(args, (subject, scope), until, port);
    }
    let kept = args.corpus.as_deref().map_or(0, |folder| states_in(folder).len());
    let progress = Progress::new(args.quiet);
    let (subject, findings, ended) = if args.jobs > 1 || args.broker.is_some() || args.join.is_some() {
        together(args, subject, &until, &folder, progress)?
    } else {
        let mut alone = Alone { folder, until, progress, found: 0, ended: Ended::Trials };
        let begin = Begin { seed: args.seed, corpus: args.corpus.as_deref(), port: None };
        let (subject, findings) = search(subject, scope, &begin, &mut alone)?;
        alone.progress.clear();
        (subject, findings, alone.ended)
    };
    for line in verdict(&subject, &findings, kept, ended) {
        tell(&line)?;
    }
    Ok(match ended {
        _ if !findings.is_empty() => Verdict::Found,
        Ended::Interrupted => Verdict::Interrupted,
        _ if !subject.is_whole() => Verdict::NotWhole,
        Ended::Trials | Ended::Time => Verdict::Nothing,
    })
}

/// Interrupts the search when the process that has started this one closes the input.
fn stop_with_input(patience: &Patience) {
    let patience = patience.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        patience.interrupt();
    });
}

/// Searches as one of several processes, until that which has started it closes the input.
fn one_of_several<T: Subject>(
    args: &Args,
    (subject, scope): (T, Scope),
    until: Until,
    port: u16,
) -> Result<Verdict, FuzzError> {
    let mut listener = OneOfSeveral { until, told: Instant::now(), ended: Ended::Trials };
    let begin = Begin { seed: args.seed, corpus: args.corpus.as_deref(), port: Some(port) };
    let (subject, _) = search(subject, scope, &begin, &mut listener)?;
    let told = Message::Ended(subject.report(listener.ended)).tell();
    told.map(|()| Verdict::Nothing).map_err(|error| FuzzError::Search(error.to_string()))
}

/// Starts several processes, keeps what they find, and adds up what they have shown.
fn together<T: Subject>(
    args: &Args,
    mut subject: T,
    until: &Until,
    folder: &Folder<'_>,
    mut progress: Progress,
) -> Result<(T, Vec<Finding>, Ended), FuzzError> {
    let many = args.jobs as usize;
    let others = Others { broker: args.broker, join: args.join };
    let mut jobs = Jobs::start(many, others, |job, port| args.of_job(job, port))?;
    let mut far = vec![Far::default(); many];
    let mut findings: Vec<Finding> = Vec::new();
    let mut ended = Ended::Trials;
    while let Some(event) = jobs.wait()? {
        match event {
            Event::Told(job, Message::Progress { trials, places, states }) => {
                if let Some(own) = far.get_mut(job) {
                    *own = Far { trials, places, states, found: 0 };
                }
            }
            Event::Told(_, Message::Found(finding)) => {
                if !findings.iter().any(|known| known.fallen == finding.fallen) {
                    progress.clear();
                    keep(folder, &finding, &mut subject)?;
                    findings.push(finding);
                }
            }
            Event::Told(_, Message::Ended(report)) => {
                subject.add(&report);
                ended = ended.max(report.ended);
            }
            Event::Lost(job) => eprintln!("trapline: job {} has ended early; the others go on", job + 1),
            Event::Nothing => {}
        }
        if until.patience.ended() == Some(Ended::Interrupted) {
            jobs.stop();
        }
        progress.tell(|| Far {
            trials: far.iter().map(|far| far.trials).sum(),
            places: far.iter().map(|far| far.places).max().unwrap_or_default(),
            states: far.iter().map(|far| far.states).max().unwrap_or_default(),
            found: findings.len(),
        });
    }
    progress.clear();
    Ok((subject, findings, ended))
}
