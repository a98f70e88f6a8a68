//! `trapline verify`: replays recordings, and checks what each of them must give.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffy::DiffOptions;
use trapline_session::{Case, CaseError, Failed, FileError, Meter, Passed, Places, counted};
use trapline_trace::{Paint, Role};

use crate::cli::VerifyArgs;
use crate::failure::{Exit, Failure};
use crate::progress::{Look, Sight, short};
use crate::talk::Talk;
use crate::{ctrl_c, no_effect};

/// Most lines of a difference that are shown.
const SHOWN: usize = 40;

/// The result of one recording.
struct Outcome {
    path: PathBuf,
    result: Result<Result<Passed, Vec<Failed>>, CaseError>,
    updated: bool,
    took: Duration,
}

impl Outcome {
    fn passed(&self) -> bool {
        matches!(self.result, Ok(Ok(_)))
    }

    /// The line that is printed.
    fn line(&self) -> String {
        let path = self.path.display();
        match &self.result {
            Ok(Ok(_)) if self.updated => format!("updated {path}"),
            Ok(Ok(passed)) => format!(
                "ok      {path}: {}, {}, {}",
                counted(passed.insns, "instruction"),
                counted(passed.checkpoints as u64, "checkpoint"),
                counted(passed.assertions as u64, "assertion")
            ),
            Ok(Err(failed)) => {
                let all: Vec<String> = failed.iter().map(ToString::to_string).collect();
                format!("FAILED  {path}: {}", all.join("; "))
            }
            Err(error) => format!("ERROR   {path}: {error}"),
        }
    }

    /// The same, whose first word has a colour.
    fn painted(&self, paint: Paint) -> String {
        let line = self.line();
        let (word, rest) = line.split_at(line.find(' ').unwrap_or(line.len()));
        let role = if self.passed() { Role::Second } else { Role::First };
        format!("{}{rest}", paint.text(role, word))
    }

    /// The differences, in lines.
    fn difference(&self) -> String {
        let mut text = String::new();
        for failed in self.result.iter().filter_map(|result| result.as_ref().err()).flatten() {
            let (what, kept, found) = match failed {
                Failed::Diverged { console: (kept, found), .. } => ("console", kept, found),
                Failed::Records(kept, found) => ("records", kept, found),
                _ => continue,
            };
            let mut options = DiffOptions::new();
            options.set_context_len(2);
            options.set_original_filename(format!("{what}, kept"));
            options.set_modified_filename(format!("{what}, found"));
            let diff = options.create_patch(kept, found).to_string();
            let all = diff.lines().count();
            for line in diff.lines().take(SHOWN) {
                let _ = writeln!(text, "  {line}");
            }
            if all > SHOWN {
                let _ = writeln!(text, "  ... {} more", counted((all - SHOWN) as u64, "line"));
            }
        }
        text
    }
}

/// Runs the command.
///
/// # Errors
/// A path does not exist, or an output cannot be written.
pub fn run(args: &VerifyArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    crate::options::check_folders(&args.image_dir)?;
    let paths = recordings(&args.paths)?;
    no_effect::reads_stdin_once(paths.iter().map(PathBuf::as_path))?;
    if args.update && paths.iter().any(|path| path == Path::new("-")) {
        let text = "--update rewrites files, and standard input (-) is not a file; name the recording's file";
        return Err(Failure::Usage(text.to_owned()));
    }
    let junit_file = args.junit.as_deref().map(|path| ("the results", path));
    crate::overwrite::check(paths.iter().map(PathBuf::as_path), junit_file)?;
    let watched: Arc<Vec<Watched>> = Arc::new(paths.iter().map(|_| Watched::default()).collect());
    let progress = talk.progress(of_all(Arc::clone(&watched)));
    let outcomes = run_all(&paths, args, &watched, &ctrl_c::listen());
    drop(progress);
    let paint = talk.paint(true);
    for outcome in &outcomes {
        let text = format!("{}\n{}", outcome.painted(paint), painted(&outcome.difference(), paint));
        out.write_all(text.as_bytes()).map_err(Failure::Output)?;
    }
    // Data must come before the messages about it.
    out.flush().map_err(Failure::Output)?;
    if let Some(path) = &args.junit {
        std::fs::write(path, junit(&outcomes)).map_err(|error| Failure::writing(Some(path), error))?;
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    let good = counted((outcomes.len() - failed) as u64, "recording");
    let left = paths.len() - outcomes.len();
    if left > 0 {
        let left = counted(left as u64, "recording");
        talk.note(&format!("{good} verified, {failed} failed; interrupted, with {left} left"));
        return Ok(Exit::Interrupted);
    }
    talk.note(&format!("{good} verified, {failed} failed"));
    let unreadable = outcomes.iter().any(|outcome| outcome.result.is_err());
    let diverged = outcomes.iter().any(|outcome| matches!(outcome.result, Ok(Err(_))));
    Ok(match (diverged, unreadable) {
        (true, _) => Exit::Diverged,
        (false, true) => Exit::BadFile,
        (false, false) => Exit::Ok,
    })
}

/// The lines of differences in colours.
fn painted(difference: &str, paint: Paint) -> String {
    let line = |line: &str| {
        let role = match line.trim_start().chars().next() {
            Some('-') => Role::First,
            Some('+') => Role::Second,
            Some('@') => Role::Number,
            _ => return format!("{line}\n"),
        };
        format!("{}\n", paint.text(role, line))
    };
    difference.lines().map(line).collect()
}

/// The recordings that the paths name, folders in the order of names.
fn recordings(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        collect(path, &mut inside)?;
        if inside.is_empty() {
            return Err(Failure::Usage(format!("{} holds no recording (*.tlr)", path.display())));
        }
        inside.sort();
        found.extend(inside);
    }
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error| Failure::from(FileError::Read { path: folder.to_owned(), error });
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "tlr") {
            found.push(path);
        }
    }
    Ok(())
}

/// How far the run of one recording has come.
#[derive(Clone, Default)]
struct Watched {
    meter: Meter,
    /// Instructions of the recorded run, once it was read.
    insns: Arc<AtomicU64>,
    /// Whether there is a result.
    done: Arc<AtomicBool>,
}

/// How far all of them have come.
fn of_all(watched: Arc<Vec<Watched>>) -> Look {
    Box::new(move || {
        let (mut done, mut executed, mut part) = (0, 0, 0.0);
        for one in watched.iter() {
            let (now, insns) = (one.meter.read(), one.insns.load(Ordering::Relaxed));
            executed += now.executed;
            if one.done.load(Ordering::Relaxed) {
                (done, part) = (done + 1, part + 1.0);
            } else if insns > 0 {
                part += (now.icount as f64 / insns as f64).min(1.0);
            }
        }
        let all = counted(watched.len() as u64, "recording");
        let words = format!("{done} of {all}, {} instructions", short(executed).trim());
        Sight { part: Some(part / watched.len().max(1) as f64), words, done: executed }
    })
}

/// Runs all recordings, a limited number at a time; returns the results in the order of the paths. When the flag is
/// raised, no further run begins, and runs in progress have no result.
fn run_all(
    paths: &[PathBuf],
    args: &VerifyArgs,
    watched: &[Watched],
    cancelled: &Arc<AtomicBool>,
) -> Vec<Outcome> {
    let left: Mutex<VecDeque<(usize, &PathBuf)>> = Mutex::new(paths.iter().enumerate().collect());
    let done: Mutex<Vec<(usize, Outcome)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.min(paths.len()) {
            scope.spawn(|| {
                // A thread that panicked would have poisoned a lock, and panics do not happen while one is held.
                let next = || left.lock().ok().and_then(|mut left| left.pop_front());
                while let Some((number, path)) = next().filter(|_| !cancelled.load(Ordering::SeqCst)) {
                    let seen = watched.get(number).cloned().unwrap_or_default();
                    let outcome = run_one(path, args, &seen, cancelled);
                    seen.done.store(true, Ordering::Relaxed);
                    if !matches!(outcome.result, Err(CaseError::Interrupted))
                        && let Ok(mut done) = done.lock()
                    {
                        done.push((number, outcome));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn run_one(path: &Path, args: &VerifyArgs, seen: &Watched, cancelled: &Arc<AtomicBool>) -> Outcome {
    let from = Instant::now();
    let places = Places { folders: args.image_dir.clone(), ..Places::of(path) };
    let mut updated = false;
    let read = || {
        let case = Case::read(path)?;
        seen.insns.store(case.insns(), Ordering::Relaxed);
        Ok::<Case, CaseError>(case.metered_by(&seen.meter).cancelled_by(Arc::clone(cancelled)))
    };
    let mut run = || {
        let result = read()?.run(&places);
        if !args.update || matches!(result, Ok(Ok(_)) | Err(CaseError::Interrupted)) {
            return result;
        }
        updated = true;
        let failed = read()?.update(&places)?;
        if failed.is_empty() { read()?.run(&places) } else { Ok(Err(failed)) }
    };
    let result = run();
    Outcome { path: path.to_owned(), result, updated, took: from.elapsed() }
}

/// The results as JUnit XML.
fn junit(outcomes: &[Outcome]) -> String {
    let count = |holds: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| holds(outcome)).count();
    let failures = count(|outcome| matches!(outcome.result, Ok(Err(_))));
    let errors = count(|outcome| outcome.result.is_err());
    let took: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"trapline\" tests=\"{}\" failures=\"{failures}\" \
         errors=\"{errors}\" time=\"{:.3}\">\n",
        outcomes.len(),
        took.as_secs_f64()
    );
    for outcome in outcomes {
        let name = escaped(&outcome.path.display().to_string());
        let seconds = outcome.took.as_secs_f64();
        let _ =
            write!(text, "  <testcase classname=\"trapline.verify\" name=\"{name}\" time=\"{seconds:.3}\"");
        let (line, more) = (escaped(&outcome.line()), escaped(&outcome.difference()));
        let _ = match &outcome.result {
            Ok(Ok(_)) => writeln!(text, "/>"),
            Ok(Err(_)) => writeln!(text, "><failure message=\"{line}\">{more}</failure></testcase>"),
            Err(_) => writeln!(text, "><error message=\"{line}\"/></testcase>"),
        };
    }
    text.push_str("</testsuite>\n");
    text
}

/// A text as XML has it. What XML cannot have becomes a question mark.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}
