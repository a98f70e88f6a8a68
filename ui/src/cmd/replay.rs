//! `trapline replay`: replays a recorded run, as it was, with other probes, or with a branch.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::Value;
use trapline_session::{
    Command, Ending, Followed, Guest, GuestBuilder, HISTORY_MEM, Limits, Observer, OwnPrograms, Places,
    Position, Probing, RecordedCourse, Recorder, Recording, Session, SourceOptions, Timeline, TravelError,
    Way, counted,
};
use trapline_trace::RunInfo;

use super::by_count::by_count;
use super::insert::{insert_all, probing};
use super::only::Only;
use super::position::{Actions, EndedBy, Said};
use super::reach::count_of;
use super::report::{self, Ended};
use super::run::{Own, ask, begin_recording, bits, end_d, with_observe_only};
use super::travel::Travel;
use super::{info, position, questions, travel};
use crate::cli::{ProbeArgs, RecordingArgs, ReplayArgs};
use crate::failure::{Exit, Failure};
use crate::late_file::LateFile;
use crate::no_effect::Uses;
use crate::output::{Outputs, Wants, choose};
use crate::progress::of_runs;
use crate::talk::Talk;
use crate::{ctrl_c, no_effect, options, overwrite};

/// Runs the command.
///
/// # Errors
/// Before the run: bad files, programs and options. During it: an output that cannot be written.
pub fn run(args: &ReplayArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    run_for(args, Own::default(), out, talk)
}

/// Runs the command for another one.
///
/// # Errors
/// Those of [`run`].
pub fn run_for<'a>(
    args: &'a ReplayArgs,
    own: Own<'a>,
    out: &'a mut dyn Write,
    talk: &Talk,
) -> Result<Exit, Failure> {
    no_effect::of_replay(args)?;
    let inputs = std::iter::once(args.file.as_path()).chain(overwrite::of_probes(&args.probes));
    let branch = args.branch.as_deref().map(|path| ("the new recording", path));
    overwrite::check(inputs, branch.into_iter().chain(overwrite::of_output(&args.output)))?;
    options::check_folders(&args.image_dir)?;
    let recording = Recording::read(&args.file)?;
    if args.info {
        info::print(&args.file, &recording, &args.output, out)?;
        return Ok(Exit::Ok);
    }
    let source = options::source_of_run(&args.probes)?;
    recording.check_signed(source.signed_by)?;
    if let Some(exit) = questions::answer(args, &recording, out, talk)? {
        return Ok(exit);
    }
    let signals = ctrl_c::prepare();
    let mut replay = Replay::begin(args, &recording, &source, talk)?;
    own.count(&mut replay.session)?;
    let from = Instant::now();
    replay.cancelled = signals.run();
    let probed = replay.is_probed() || own.sink.is_some();
    let items = (replay.probing.header, args.probes.core_dir.as_deref());
    let wants = Wants { probed, by_hand: false, asked: args.at.is_some(), flow: false };
    let outputs = choose(&args.output, items, wants, own.sink, out, *talk)?;
    let length = recording.end().icount;
    let end = args.to.or(args.at).map_or(Some(length), |position| count_of(position, length));
    let progress = talk.progress(of_runs(end));
    let exit = replay.run(outputs)?;
    drop(progress);
    if args.speed_report {
        replay.say_speed(from);
    }
    Ok(exit)
}

/// A replay in progress.
struct Replay<'a> {
    args: &'a ReplayArgs,
    recording: &'a Recording,
    source: &'a SourceOptions,
    talk: &'a Talk,
    guest: Guest,
    probing: Probing,
    session: Session,
    course: RecordedCourse<'a>,
    own: OwnPrograms,
    /// The programs of the recording by name: those of its command line, and those that it inserts later.
    own_names: Vec<String>,
    /// The file of the branch.
    file: Option<LateFile>,
    /// Raised by a signal.
    cancelled: Arc<AtomicBool>,
    /// Whether the probes of the command line have been inserted.
    inserted: bool,
    /// The number of the last record that was shown, where only some are.
    seq: u64,
}

impl<'a> Replay<'a> {
    fn begin(
        args: &'a ReplayArgs,
        recording: &'a Recording,
        source: &'a SourceOptions,
        talk: &'a Talk,
    ) -> Result<Self, Failure> {
        let asks = args.probes.any();
        let places = Places { folders: args.image_dir.clone(), ..Places::of(&args.file) };
        let builder = options::of_recording(recording, &places)?.require_signed(source.signed_by);
        let probing = if asks { probing(&args.probes) } else { recording.config().probing.clone() };
        let guest = options::open(&builder, talk)?;
        if asks {
            let mut trial = guest.start(probing.clone())?;
            if args.branch.is_none() {
                refuse_writers(&args.probes, source, &mut trial, talk)?;
            } else {
                insert_all(&args.probes, source, false, &mut trial, talk)?;
            }
            // The programs that standard input inserts at a position are not known yet.
            if args.at.is_none() {
                Uses::of(&trial).check(&args.probes)?;
            }
        }
        let own = match asks && args.branch.is_none() {
            true => recording.own_programs(&guest),
            false => OwnPrograms::Stay,
        };
        let way = if args.branch.is_some() { Way::Branch } else { Way::Same };
        let (mut session, mut course) = (guest.start(probing.clone())?, recording.course(way, own));
        let mut file = None;
        if let Some(path) = &args.branch {
            let (recorder, late) = branch(&builder, recording, &probing, path)?;
            session.record(recorder).map_err(|error| Failure::Usage(error.to_string()))?;
            file = Some(late);
        }
        if args.verify {
            session.verify(recording, !asks);
        }
        if asks {
            course = course.with_others();
        }
        let begun = session.begin_as(&mut course);
        begun.map_err(|diverged| Failure::Diverged(diverged.to_string()))?;
        let later = recording.commands().filter_map(|command| match command {
            Command::Insert { name, .. } => Some(name.clone()),
            Command::D(source) => Some(source.name()),
            _ => None,
        });
        let first = session.interposer().map(|i| i.programs()).unwrap_or_default();
        let own_names = first.iter().map(|program| program.name.to_owned()).chain(later).collect();
        let inserted = !asks;
        Ok(Self {
            args,
            recording,
            source,
            talk,
            guest,
            probing,
            session,
            course,
            own,
            own_names,
            file,
            cancelled: Arc::default(),
            inserted,
            seq: 0,
        })
    }

    /// Whether there may be records.
    fn is_probed(&self) -> bool {
        let recorded = self.recording.config().about.get("probed").and_then(Value::as_bool);
        let recorded = recorded.unwrap_or_else(|| self.recording.commands().any(Command::inserts));
        self.args.probes.any() || self.args.at.is_some() || recorded
    }

    fn run(&mut self, mut outputs: Outputs<'_>) -> Result<Exit, Failure> {
        let mut followed = None;
        if !self.inserted {
            if let Some(from) = self.args.from {
                let reached = match by_count(&self.guest, self.recording, &self.cancelled, ("--from", from))?
                {
                    Ok(from) => self.follow(Some(from), &mut outputs)?,
                    Err(followed) => followed,
                };
                followed = Some(reached).filter(|f| *f != Followed::Reached);
            }
            if followed.is_none() {
                self.insert()?;
            }
        }
        outputs.begin(&RunInfo {
            image: self.guest.name().to_owned(),
            width: bits(&self.guest),
            extra: self.header_fields(),
        })?;
        self.file.as_ref().map_or(Ok(()), LateFile::open)?;
        let followed = followed.map_or_else(|| self.go(&mut outputs), Ok);
        let followed = followed.and_then(|f| self.end_d(&mut outputs).map(|()| f));
        let followed =
            followed.and_then(|f| ask(&self.args.output, &mut self.session, &mut outputs).map(|()| f));
        let recorded = self.session.finish_recording();
        let recorded = recorded.map_err(|error| Failure::writing(self.args.branch.as_deref(), error));
        let (exit, followed, finished) = match followed {
            Ok(followed) => {
                let (ended, exit) = self.how_it_ended(&followed);
                let finished =
                    report::finish(&self.args.output, &mut self.session, &ended, outputs, self.talk);
                self.tell(&followed);
                (exit, Ok(()), finished)
            }
            Err(failure) => {
                let ended = Ended::failed(&failure);
                let finished =
                    report::finish(&self.args.output, &mut self.session, &ended, outputs, self.talk);
                (ended.exit, Err(failure), finished)
            }
        };
        report::first([followed, finished, recorded], self.talk)?;
        Ok(exit)
    }

    /// Runs the clauses of END where the run ends, and writes what the D programs leave.
    fn end_d(&mut self, outputs: &mut Outputs<'_>) -> Result<(), Failure> {
        let travels = self.args.at.is_some() && self.args.branch.is_none();
        let hidden = self.hidden();
        if travels { Ok(()) } else { end_d(&mut self.session, outputs, hidden, self.seq) }
    }

    /// The programs whose records are not shown: those of the recording, where others ask.
    fn hidden(&self) -> Option<Vec<String>> {
        let hides = self.own == OwnPrograms::Stay && self.args.probes.any() && self.args.branch.is_none();
        hides.then(|| self.own_names.clone())
    }

    /// Goes to the requested position, and carries out the lines of standard input there.
    fn go(&mut self, outputs: &mut Outputs<'_>) -> Result<Followed, Failure> {
        let wrong = || Failure::Usage("a line of standard input was not carried out".to_owned());
        if let Some(at) = self.args.at.filter(|_| self.travels(outputs)) {
            let said = self.travel(at, outputs)?;
            return match said.by {
                EndedBy::Signal => Ok(Followed::Interrupted),
                _ if said.right => Ok(Followed::Reached),
                _ => Err(wrong()),
            };
        }
        let branches = self.args.branch.is_some();
        // The end of the recording includes what is compared there.
        let to = self.args.to.filter(|to| !self.recording.ends_at(*to));
        let followed = self.follow(to.or(self.args.at), outputs)?;
        if self.args.at.is_none() || followed != Followed::Reached {
            if branches && followed == Followed::Reached {
                self.session.leave(&mut self.course, Ending::Limit);
            }
            return Ok(followed);
        }
        let mut shell = Actions { session: &mut self.session, source: self.source };
        let said = position::shell(&mut shell, outputs, &self.cancelled, self.talk)?;
        let ending = match said.by {
            EndedBy::Input if said.right => {
                return if branches { self.follow(None, outputs) } else { Ok(followed) };
            }
            EndedBy::Stop => Ending::Stopped,
            EndedBy::Input | EndedBy::Signal => Ending::Interrupted,
        };
        self.session.leave(&mut self.course, ending.clone());
        match said.by {
            EndedBy::Signal => Ok(Followed::Interrupted),
            _ if !said.right => Err(wrong()),
            _ if branches => Ok(Followed::End(Some(ending))),
            _ => Ok(followed),
        }
    }

    /// Whether commands of travel are available at `--at`: not in a run that is recorded or verified, nor if only a
    /// part of the records is shown, or if records go to a serial port.
    fn travels(&self, outputs: &Outputs<'_>) -> bool {
        let args = self.args;
        let plain = args.branch.is_none() && !args.verify && args.from.is_none() && !outputs.wants_sent();
        plain && (self.own == OwnPrograms::LeftOut || !args.probes.any())
    }

    /// Goes to a position and travels from there.
    fn travel(&mut self, at: Position, outputs: &mut Outputs<'_>) -> Result<Said, Failure> {
        let own = self.own;
        let keep = |command: &Command| own == OwnPrograms::Stay || !command.is_about_programs();
        // The timeline owns the session for this time.
        let session = std::mem::replace(&mut self.session, self.guest.start(self.probing.clone())?);
        let memory = self.args.history_mem.unwrap_or(HISTORY_MEM);
        let timeline = Timeline::of(session, self.recording, keep, memory).map_err(travel::failure)?;
        let timeline = timeline.cancelled_by(Arc::clone(&self.cancelled));
        let mut shell = Travel { timeline, source: self.source };
        let said = self.travel_with(&mut shell, at, outputs);
        self.session = shell.timeline.into_session();
        said
    }

    fn travel_with(
        &self,
        shell: &mut Travel<'_>,
        at: Position,
        outputs: &mut Outputs<'_>,
    ) -> Result<Said, Failure> {
        match shell.timeline.goto_telling(at, outputs)? {
            Ok(_) => {
                shell.timeline.session_mut().tell_waiting(outputs)?;
                position::shell(shell, outputs, &self.cancelled, self.talk)
            }
            Err(TravelError::Interrupted) => Ok(Said { by: EndedBy::Signal, right: true }),
            Err(error @ TravelError::FewerHits { .. }) => {
                Err(Failure::Usage(format!("{error}{}", self.which_hits())))
            }
            Err(error) => Err(travel::failure(error)),
        }
    }

    fn follow(&mut self, to: Option<Position>, outputs: &mut Outputs<'_>) -> Result<Followed, Failure> {
        let mut observer = Only::new(outputs, self.hidden(), self.seq);
        let limits = Limits::none().cancelled_by(Arc::clone(&self.cancelled));
        let followed = self.session.follow(&mut self.course, to, &limits, &mut observer);
        self.seq = observer.seq();
        let followed = followed?;
        followed.map_err(|unknown| Failure::Usage(unknown.to_string()))
    }

    /// Inserts the probes of the command line. Messages about them were printed when they were tried.
    fn insert(&mut self) -> Result<(), Failure> {
        self.inserted = true;
        insert_all(&self.args.probes, self.source, false, &mut self.session, &self.talk.silenced())
    }

    /// The fields of the recorded run, with the programs of the command line in place of its own.
    fn header_fields(&self) -> Vec<(String, Value)> {
        let about = self.recording.config().about.get("header").and_then(Value::as_object);
        let mut fields: Vec<(String, Value)> =
            about.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect();
        if self.args.probes.any() {
            let names = super::insert::names_of(&self.args.probes);
            for (_, value) in fields.iter_mut().filter(|(name, _)| name == "programs") {
                *value = names.clone().into();
            }
        }
        let later = self.recording.commands().filter(|command| command.inserts()).cloned();
        let own = self.own == OwnPrograms::LeftOut
            || trapline_session::only_observe(&self.guest, &self.probing, later);
        let observe_only = own && self.session.observe_only();
        fields.into_iter().map(|field| with_observe_only(field, observe_only)).collect()
    }

    /// Whether `--verify` had no checkpoint to compare, though the replay came to the recording's end.
    fn verifies_nothing(&self, followed: &Followed) -> bool {
        self.args.verify && matches!(followed, Followed::End(_)) && self.recording.checkpoints().is_empty()
    }

    /// Whether `--verify` came to the end of a recording that is incomplete: `trapline verify` fails then, too.
    fn breaks_off(&self, followed: &Followed) -> bool {
        self.args.verify && matches!(followed, Followed::End(_)) && !self.recording.is_whole()
    }

    /// The ending of the replay, as in its data, and its exit code.
    fn how_it_ended<'f>(&self, followed: &'f Followed) -> (Ended<'f>, Exit) {
        match how_it_ended(followed) {
            (ended, Exit::Ok) if self.verifies_nothing(followed) || self.breaks_off(followed) => {
                (Ended { exit: Exit::Diverged, ..ended }, Exit::Diverged)
            }
            as_followed => as_followed,
        }
    }

    /// Prints messages about the replay besides the summary of its end.
    fn tell(&self, followed: &Followed) {
        if matches!(followed, Followed::End(Some(_))) && !self.recording.is_whole() {
            self.talk.warn(
                "the recording is incomplete, because its recorder was killed: the run's end is in it, the last checkpoint is not",
            );
        }
        if let Followed::Diverged(found) = followed {
            self.talk.error(&found.to_string());
        } else if *followed == Followed::NeverReached {
            self.talk.error(&self.why_never_reached());
        } else if self.verifies_nothing(followed) {
            self.talk.error(
                "--verify has nothing to compare: the recording ends before its first checkpoint; make it again",
            );
        } else if let Some(verifier) = self.session.verifier() {
            let all = self.recording.checkpoints().len();
            self.talk.note(&format!(
                "{} of {} verified",
                verifier.verified(),
                counted(all as u64, "checkpoint")
            ));
            if self.breaks_off(followed) {
                self.talk.error("--verify cannot vouch for an incomplete recording; make it again");
            }
        }
    }

    /// Why the position is not in this run.
    fn why_never_reached(&self) -> String {
        match self.args.to.or(self.args.at) {
            Some(hit @ Position::Hit(_)) => {
                let have = self.session.counted_hits();
                let error = TravelError::FewerHits { asked: hit, have };
                format!("{error}{}", self.which_hits())
            }
            _ => "the position was never reached; give one that lies in the recording (--info shows its end)"
                .to_owned(),
        }
    }

    /// Why there are too few hits, as the end of a sentence.
    fn which_hits(&self) -> &'static str {
        let (asks, own) = (self.args.probes.any(), self.recording.commands().any(Command::inserts));
        match (asks, own, self.own) {
            (false, false, _) => "; it has no probes, so give an instruction count",
            (true, true, OwnPrograms::LeftOut) => {
                "; those are the hits of the probes of this command line: the recording's programs, which only observe, are \
                 left out"
            }
            _ => "",
        }
    }

    fn say_speed(&self, from: Instant) {
        let (seconds, insns) = (from.elapsed().as_secs_f64(), self.session.icount());
        let rate = insns as f64 / seconds / 1e6;
        self.talk.line(&format!(
            "replayed {insns} instructions in {seconds:.3} s: {rate:.0} million instructions per second"
        ));
    }
}

/// How a replay ended, as its data says it, and its exit code.
fn how_it_ended(followed: &Followed) -> (Ended<'_>, Exit) {
    let ended = |reason: &str, exit| {
        (Ended { ending: None, reason: reason.to_owned(), exit, warns: false, is_refused: false }, exit)
    };
    match followed {
        Followed::End(Some(ending)) => {
            let exit = if *ending == Ending::Interrupted { Exit::Ok } else { Exit::from(ending) };
            (Ended::by(ending, exit), Exit::Ok)
        }
        Followed::End(None) => {
            let (ended, exit) =
                ended("the recording is incomplete, because its recorder was killed: it ends", Exit::Ok);
            (Ended { warns: true, ..ended }, exit)
        }
        Followed::Reached => ended("the position was reached", Exit::Ok),
        Followed::NeverReached => ended("the recording ended before the position", Exit::Usage),
        Followed::Diverged(_) => ended("the replay diverged from the recording: it ended", Exit::Diverged),
        Followed::Interrupted => (Ended::by(&Ending::Interrupted, Exit::Interrupted), Exit::Interrupted),
    }
}

/// Refuses programs that write to the guest, unless a branch is requested.
///
/// # Errors
/// They write to the guest, or cannot be inserted.
pub fn refuse_writers(
    probes: &ProbeArgs,
    source: &SourceOptions,
    trial: &mut Session,
    talk: &Talk,
) -> Result<(), Failure> {
    insert_all(probes, source, false, trial, talk)?;
    if trial.observe_only() {
        return Ok(());
    }
    let text = "these probes write to the guest, so the run diverges at their first hit: --branch FILE.tlr records that run";
    Err(Failure::Usage(text.to_owned()))
}

/// The recorder of a run that diverges from the recording.
pub(super) fn branch(
    builder: &GuestBuilder,
    recording: &Recording,
    probing: &Probing,
    path: &std::path::Path,
) -> Result<(Recorder, LateFile), Failure> {
    let how = RecordingArgs {
        record: Some(PathBuf::from(path)),
        embed: recording.brought().0 > 0,
        checkpoint_insns: Some(recording.config().checkpoint_insns),
        pages: !recording.changed_pages().is_empty(),
    };
    let (_, recorder) = begin_recording(builder, path, &how, |config| {
        config.probing = probing.clone();
        config.about = recording.config().about.clone();
    })?;
    Ok(recorder)
}
