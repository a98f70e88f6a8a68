//! `trapline replay`: a recorded run again, as it was, seen by other probes, or left for another one.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use trapline_session::{
    Command, Ending, Followed, Guest, GuestBuilder, HISTORY_MEM, Limits, Observer, OwnPrograms, Places,
    Position, Probing, RecordedCourse, Recorder, Recording, Session, SourceOptions, Timeline, Way, counted,
};
use trapline_trace::RunInfo;

use super::insert::{insert_all, probing};
use super::only::Only;
use super::position::Actions;
use super::report::{self, Ended};
use super::run::{ask, begin_recording, bits, with_observe_only};
use super::travel::Travel;
use super::{info, position, travel};
use crate::cli::{RecordingArgs, ReplayArgs};
use crate::failure::{Exit, Failure};
use crate::output::{Outputs, choose};
use crate::talk::Talk;
use crate::{ctrl_c, no_effect, options, overwrite};

/// Runs the command.
///
/// # Errors
/// Before the run: bad files, programs and options. During it: an output that cannot be written.
pub fn run(args: &ReplayArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_replay(args)?;
    let inputs = std::iter::once(args.file.as_path()).chain(overwrite::of_probes(&args.probes));
    let branch = args.branch.as_deref().map(|path| ("the new recording", path));
    overwrite::check(inputs, branch.into_iter().chain(overwrite::of_output(&args.output)))?;
    let recording = Recording::read(&args.file)?;
    if args.info {
        info::print(&args.file, &recording, &args.output, out)?;
        return Ok(Exit::Ok);
    }
    let source = options::source(&args.probes.source)?;
    let mut replay = Replay::begin(args, &recording, &source, talk)?;
    let from = Instant::now();
    let outputs = choose(
        &args.output,
        (replay.probing.header, args.probes.core_dir.as_deref()),
        replay.is_probed(),
        out,
        *talk,
    )?;
    let exit = replay.run(outputs)?;
    if args.speed_report {
        replay.say_speed(from);
    }
    Ok(exit)
}

/// A replay that is under way.
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
    limits: Limits,
    /// Whether the probes of the command line are in.
    inserted: bool,
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
        let builder = GuestBuilder::of_recording(recording, &places)?;
        let probing = if asks { probing(&args.probes) } else { recording.config().probing.clone() };
        let guest = options::open(&builder, talk)?;
        if asks {
            refuse_writers(args, source, guest.start(probing.clone())?, talk)?;
        }
        let own = match asks && args.branch.is_none() {
            true => recording.own_programs(&guest),
            false => OwnPrograms::Stay,
        };
        let way = if args.branch.is_some() { Way::Branch } else { Way::Same };
        let (mut session, mut course) = (guest.start(probing.clone())?, recording.course(way, own));
        if let Some(path) = &args.branch {
            let recorder = branch(&builder, recording, &probing, path)?;
            session.record(recorder).map_err(|error| Failure::Usage(error.to_string()))?;
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
            _ => None,
        });
        let first = session.interposer().map(|i| i.programs()).unwrap_or_default();
        let own_names = first.iter().map(|program| program.name.to_owned()).chain(later).collect();
        let limits = Limits::none().cancelled_by(ctrl_c::listen());
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
            limits,
            inserted,
        })
    }

    /// Whether records are to be expected.
    fn is_probed(&self) -> bool {
        let recorded = self.recording.config().about.get("probed").and_then(Value::as_bool);
        let recorded = recorded.unwrap_or_else(|| self.recording.commands().any(Command::inserts));
        self.args.probes.any() || self.args.at.is_some() || recorded
    }

    fn run(&mut self, mut outputs: Outputs<'_>) -> Result<Exit, Failure> {
        let mut followed = None;
        if !self.inserted {
            if let Some(from) = self.args.from {
                followed = Some(self.follow(Some(from), &mut outputs)?).filter(|f| *f != Followed::Reached);
            }
            if followed.is_none() {
                self.insert()?;
            }
        }
        let info = RunInfo {
            image: self.guest.name().to_owned(),
            width: bits(&self.guest),
            extra: self.header_fields(),
        };
        outputs.sink.begin(&info).map_err(|error| Failure::writing(outputs.records.as_deref(), error))?;
        let followed = match followed {
            Some(followed) => followed,
            None => self.go(&mut outputs)?,
        };
        ask(&self.args.output, &mut self.session, &mut outputs)?;
        let recorded = self.session.finish_recording();
        let exit = self.finish(&followed, outputs)?;
        recorded.map_err(|error| Failure::writing(self.args.branch.as_deref(), error))?;
        Ok(exit)
    }

    /// Goes where it is to go, and does there what standard input says.
    fn go(&mut self, outputs: &mut Outputs<'_>) -> Result<Followed, Failure> {
        let wrong = || Failure::Usage("a line of standard input was not carried out".to_owned());
        if let Some(at) = self.args.at.filter(|_| self.travels(outputs)) {
            return if self.travel(at, outputs)? { Ok(Followed::Reached) } else { Err(wrong()) };
        }
        let followed = self.follow(self.args.to.or(self.args.at), outputs)?;
        if self.args.at.is_none() || followed != Followed::Reached {
            return Ok(followed);
        }
        let mut shell = Actions { session: &mut self.session, source: self.source };
        if !position::shell(&mut shell, outputs, self.talk)? {
            return Err(wrong());
        }
        if self.args.branch.is_some() { self.follow(None, outputs) } else { Ok(followed) }
    }

    /// Whether one can travel from `--at`: not in a run that is recorded or verified, nor where what is shown is a part of
    /// what is recorded, or goes out of a serial port byte by byte.
    fn travels(&self, outputs: &Outputs<'_>) -> bool {
        let args = self.args;
        let plain = args.branch.is_none() && !args.verify && args.from.is_none() && !outputs.wants_sent();
        plain && (self.own == OwnPrograms::LeftOut || !args.probes.any())
    }

    /// Goes to a position and travels from there; whether each line was carried out.
    fn travel(&mut self, at: Position, outputs: &mut Outputs<'_>) -> Result<bool, Failure> {
        let own = self.own;
        let keep = |command: &Command| own == OwnPrograms::Stay || !command.is_about_programs();
        // The timeline owns its session meanwhile.
        let session = std::mem::replace(&mut self.session, self.guest.start(self.probing.clone())?);
        let memory = self.args.history_mem.unwrap_or(HISTORY_MEM);
        let timeline = Timeline::of(session, self.recording, keep, memory).map_err(travel::failure)?;
        let mut shell = Travel { timeline, source: self.source };
        let went = shell.timeline.goto_telling(at, outputs)?;
        let right = match went.map_err(travel::failure) {
            Ok(_) => {
                shell.timeline.session_mut().tell_waiting(outputs)?;
                position::shell(&mut shell, outputs, self.talk)
            }
            Err(failure) => Err(failure),
        };
        self.session = shell.timeline.into_session();
        right
    }

    fn follow(&mut self, to: Option<Position>, outputs: &mut Outputs<'_>) -> Result<Followed, Failure> {
        let own = self.own == OwnPrograms::Stay && self.args.probes.any() && self.args.branch.is_none();
        let own = own.then(|| self.own_names.clone());
        let mut observer = Only::new(outputs, own);
        let followed = self.session.follow(&mut self.course, to, &self.limits, &mut observer)?;
        followed.map_err(|unknown| Failure::Usage(unknown.to_string()))
    }

    /// Inserts the probes of the command line. What is to say of them was said when they were tried.
    fn insert(&mut self) -> Result<(), Failure> {
        self.inserted = true;
        insert_all(&self.args.probes, self.source, false, &mut self.session, &self.talk.silenced())
    }

    /// As the recorded run has them, with the programs of the command line in place of its own.
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

    /// Writes the end of the data, and says how it went.
    fn finish(&mut self, followed: &Followed, outputs: Outputs<'_>) -> Result<Exit, Failure> {
        let ended = |reason: &str, exit| Ended { ending: None, reason: reason.to_owned(), exit };
        let breaks_off = "the recording is incomplete, since its recorder was killed: it ends";
        let (ended, exit) = match followed {
            Followed::End(Some(ending)) => {
                let exit = if *ending == Ending::Interrupted { Exit::Ok } else { Exit::from(ending) };
                (Ended::by(ending, exit), Exit::Ok)
            }
            Followed::End(None) => (ended(breaks_off, Exit::Ok), Exit::Ok),
            Followed::Reached => (ended("the position was reached", Exit::Ok), Exit::Ok),
            Followed::NeverReached => {
                (ended("the recording ended before the position", Exit::Usage), Exit::Usage)
            }
            Followed::Diverged(_) => {
                (ended("the replay diverged from the recording: it ended", Exit::Diverged), Exit::Diverged)
            }
            Followed::Interrupted => (Ended::by(&Ending::Interrupted, Exit::Interrupted), Exit::Interrupted),
        };
        report::finish(&self.args.output, &mut self.session, &ended, outputs, self.talk)?;
        if matches!(followed, Followed::End(Some(_))) && !self.recording.is_whole() {
            self.talk.note(
                "the recording is incomplete, since its recorder was killed: the run's end is in it, the last checkpoint is not",
            );
        }
        if let Followed::Diverged(found) = followed {
            self.talk.error(&found.to_string());
        } else if *followed == Followed::NeverReached {
            self.talk.error(
                "the position was never reached; give one that lies in the recording (--info shows its end)",
            );
        } else if let Some(verifier) = self.session.verifier() {
            let all = self.recording.checkpoints().len();
            self.talk.note(&format!(
                "{} of {} verified",
                verifier.verified(),
                counted(all as u64, "checkpoint")
            ));
        }
        Ok(exit)
    }

    fn say_speed(&self, from: Instant) {
        let (seconds, insns) = (from.elapsed().as_secs_f64(), self.session.icount());
        let rate = insns as f64 / seconds / 1e6;
        self.talk.line(&format!(
            "replayed {insns} instructions in {seconds:.3} s: {rate:.0} million instructions per second"
        ));
    }
}

/// Refuses programs that write to the guest, unless another run is wanted.
fn refuse_writers(
    args: &ReplayArgs,
    source: &SourceOptions,
    mut trial: Session,
    talk: &Talk,
) -> Result<(), Failure> {
    insert_all(&args.probes, source, false, &mut trial, talk)?;
    if trial.observe_only() || args.branch.is_some() {
        return Ok(());
    }
    let text = "these probes write to the guest, so the run diverges at their first hit: --branch FILE.tlr records that run";
    Err(Failure::Usage(text.to_owned()))
}

/// What records a run that leaves the recording.
fn branch(
    builder: &GuestBuilder,
    recording: &Recording,
    probing: &Probing,
    path: &std::path::Path,
) -> Result<Recorder, Failure> {
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
