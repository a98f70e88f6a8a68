//! Carries out commands. Each is either carried out completely, or changes nothing.

use std::collections::HashSet;
use std::sync::Arc;

use trapline_dump::CrashDump;
use trapline_interposer::{Clock, Interposer, Output, Place, PointView, ProgramId, ProgramView};
use trapline_providers::{Clause, Resolved, enable, insert_error, resolve};
use trapline_rpn::Program;
use trapline_rpn::ppdf::VerifyingKey;

use super::still::{at_begin, at_events};
use super::{Origin, Session};
use crate::commands::{Command, CommandError, DSource, InputLine, Selection, clause_option, short_name};
use crate::files::file_name;
use crate::listing::{How, Listing, Wanted};
use crate::plural::counted;
use crate::recording::Event;
use crate::replies::{DescriptionMatch, PointState, ProgramState, ProgramVariables, Reply};
use crate::types::GuestTypes;

pub(super) type Answer = Result<Reply, CommandError>;

impl Session {
    /// Carries out a command between two instructions. This is the only way to change a run from outside.
    ///
    /// ```
    /// use trapline_session::{Command, GuestBuilder, Reply, Selection};
    ///
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    /// session.apply(Command::clause("fbt::do_fork:entry { exit }"))?;
    /// let points = Selection { name: Some("fbt::do_fork:entry".into()), ..Selection::default() };
    /// session.apply(Command::Switch { points, on: false })?;
    /// let Reply::Query { programs, .. } = session.apply(Command::Query)? else { unreachable!() };
    /// assert_eq!(programs[0].name, "--rpn fbt::do_fork:entry");
    /// assert!(!programs[0].points[0].enabled);
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`CommandError`]. The run is then as if the command had not been tried.
    pub fn apply(&mut self, command: Command) -> Answer {
        let at = self.machine.moment();
        let logged = self.course.is_recorded().then(|| command.clone());
        let answer = self.carry_out(command);
        if let (Some(command), Ok(_)) = (logged, &answer) {
            self.course.event(at, || Event::Command(command));
        }
        answer
    }

    /// From now on, only programs that this key has signed can be inserted or restored, if there is a key. It does not look
    /// at what is inserted already.
    ///
    /// ```
    /// use trapline_rpn::ppdf::SigningKey;
    /// use trapline_session::{Command, GuestBuilder};
    ///
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    /// session.require_signed(Some(SigningKey::from_secret(&[7; 32]).verifying()));
    /// assert!(session.apply(Command::clause("fbt::do_fork:entry { exit }")).is_err());
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    pub fn require_signed(&mut self, key: Option<VerifyingKey>) {
        self.signed_by = key;
    }

    fn carry_out(&mut self, command: Command) -> Answer {
        command.check_signed(self.signed_by)?;
        match command {
            Command::Insert { name, program, only } => self.insert(&name, &program, &only),
            Command::Clause { text, only } => self.insert_clause(&text, &only),
            Command::Remove { name } => self.remove(&name),
            Command::Switch { points, on } => self.switch(&points, on),
            Command::Query => Ok(self.query()),
            Command::GetVars { name } => self.get_vars(name.as_deref()),
            Command::List { wanted, how } => self.list(&wanted, how),
            Command::Snapshot { label } => {
                let saved = self.save();
                self.saved.insert(label.clone(), saved);
                Ok(self.done("snapshot", &label, format!("snapshot {label}")))
            }
            Command::Restore { label } => self.restore_label(&label),
            Command::Type { line, bytes } => self.type_at(line, &bytes),
            Command::Nmi => {
                self.machine.core_mut().raise_nmi();
                Ok(self.done("nmi", "", "raised an NMI".to_owned()))
            }
            Command::Silence => {
                if let Some(interposer) = &mut self.interposer {
                    interposer.silence(self.machine.core_mut());
                }
                Ok(self.done("silence", "", String::new()))
            }
            Command::Stop => Ok(self.done("stop", "", "stopped".to_owned())),
            Command::D(source) => self.insert_d_source(&source),
            Command::End => {
                self.end_d();
                self.end_still();
                Ok(self.done("end", "", String::new()))
            }
            Command::Dump => {
                let dump = CrashDump::copy(self.vmcore(), self.icount());
                Ok(Reply::Dump { icount: self.icount(), dump: Some(Arc::new(dump)) })
            }
            Command::DtiLevel { name, level } => self.set_dti_level(&name, level),
            Command::Alter { name, runs } => self.alter(&name, runs),
            Command::Put { values } => self.put(&values),
        }
    }

    /// The reply to an action: a row for JSON, and a sentence for a person.
    pub(super) fn done(&self, action: &str, name: &str, sentence: String) -> Reply {
        let icount = self.icount();
        let note = if sentence.is_empty() {
            sentence
        } else {
            format!("{sentence} at {}", counted(icount, "instruction"))
        };
        Reply::Action {
            icount,
            action: action.to_owned(),
            name: name.to_owned(),
            note,
            matched: Vec::new(),
            convention: None,
        }
    }

    pub(super) fn programs(&self) -> Vec<ProgramView<'_>> {
        self.interposer.as_ref().map(Interposer::programs).unwrap_or_default()
    }

    /// The error that no program has this name, with the names that there are.
    pub(super) fn unknown_program(&self, name: &str) -> CommandError {
        let programs = self.programs();
        let names: Vec<String> = programs.iter().map(|program| format!("`{}`", program.name)).collect();
        let known = match names.as_slice() {
            [] => "no program is inserted at all".to_owned(),
            [only] => format!("only {only} is"),
            names => format!("the inserted programs are {}", names.join(", ")),
        };
        CommandError::UnknownProgram { name: name.to_owned(), known }
    }

    /// The program of this path, else the only one of this file name or with these descriptions.
    pub(super) fn find(&self, name: &str) -> Result<ProgramId, CommandError> {
        let there = self.programs();
        let exact: Vec<_> = there.iter().filter(|program| program.name == name).collect();
        let by_short_name = || there.iter().filter(|program| short_name(program.name) == name).collect();
        let found = if exact.is_empty() { by_short_name() } else { exact };
        match found.as_slice() {
            [only] => Ok(only.id),
            [] => Err(self.unknown_program(name)),
            several => Err(CommandError::Ambiguous { name: name.to_owned(), count: several.len() }),
        }
    }

    fn insert(&mut self, name: &str, program: &Program, only: &Selection) -> Answer {
        if self.programs().iter().any(|there| there.name == name) {
            return Err(CommandError::Inserted(name.to_owned()));
        }
        let resolved = resolve(&self.target, program)
            .map_err(|findings| CommandError::DoesNotFit { name: name.to_owned(), findings })?;
        let resolved = if self.is_still() { at_begin(name, resolved)? } else { resolved };
        self.arm(name, &resolved, only, || Origin::program(name, program))?;
        self.begin_still();
        let mut reply = self.done("insert", name, format!("inserted {name}"));
        if let Reply::Action { convention, .. } = &mut reply {
            *convention = resolved.convention;
        }
        Ok(reply)
    }

    fn insert_clause(&mut self, text: &str, only: &Selection) -> Answer {
        let clause = Clause::parse(text)?;
        let types = GuestTypes::new(Arc::clone(&self.target));
        let (resolved, matched) = match self.is_still() {
            true => at_events(&self.target, text, &clause)?,
            false => enable(&self.target, &clause, &types)?,
        };
        let name = format!("{} {}", clause_option(text), clause.descriptions.join(","));
        let name = self.free_name(&name);
        self.arm(&name, &resolved, only, || Origin::clause(&name, text))?;
        self.begin_still();
        let mut reply = self.done("insert", &name, format!("inserted {name}"));
        if let Reply::Action { matched: found, convention, .. } = &mut reply {
            *found = matched.into_iter().map(Into::into).collect();
            *convention = resolved.convention;
        }
        Ok(reply)
    }

    fn insert_d_source(&mut self, source: &DSource) -> Answer {
        let compiled = source.compile(&self.target)?;
        let program = self.insert_d(source, &compiled)?;
        // One text needs no second look.
        let matches = match source.texts.len() {
            1 => vec![program.matched],
            _ => compiled.by_text(&source.matches(&self.target, &compiled)?),
        };
        self.begin_d(program);
        let name = source.name();
        let mut reply = self.done("insert", &name, format!("inserted {name}"));
        if let Reply::Action { matched, .. } = &mut reply {
            let texts = source.texts.iter().zip(matches);
            matched.extend(
                texts.map(|(text, probes)| DescriptionMatch { description: text.name.clone(), probes }),
            );
        }
        Ok(reply)
    }

    /// Applies commands in order, up to the first that fails.
    ///
    /// # Errors
    /// As [`Session::apply`].
    pub fn apply_all(&mut self, commands: &[Command]) -> Result<(), CommandError> {
        commands.iter().try_for_each(|command| self.apply(command.clone()).map(drop))
    }

    /// This name, with a number after it if a program has it already.
    pub(super) fn free_name(&self, name: &str) -> String {
        let programs = self.programs();
        let taken: HashSet<&str> = programs.iter().map(|program| program.name).collect();
        let numbered = (2..).map(|n| format!("{name} ({n})"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        names.find(|name| !taken.contains(name.as_str())).unwrap_or_default()
    }

    /// Inserts a program, with the probe points enabled that `only` selects.
    fn arm(
        &mut self,
        name: &str,
        resolved: &Resolved,
        only: &Selection,
        origin: impl FnOnce() -> Origin,
    ) -> Result<(), CommandError> {
        let armed = self.arm_selected(name, resolved, only);
        self.note_origin(origin);
        armed
    }

    /// Notes the origin of the program inserted last. One that cannot be armed still uses up a number.
    pub(super) fn note_origin(&mut self, origin: impl FnOnce() -> Origin) {
        if self.interposer.as_ref().map_or(0, Interposer::inserted) > self.origins.len() {
            Arc::make_mut(&mut self.origins).push(origin());
        }
    }

    fn arm_selected(
        &mut self,
        name: &str,
        resolved: &Resolved,
        only: &Selection,
    ) -> Result<(), CommandError> {
        let selects = !only.groups.is_empty() || !only.kinds.is_empty();
        let (machine, interposer) = self.probed();
        if selects {
            interposer.begin_selection();
        }
        let core = machine.core_mut();
        let inserted = interposer.insert(core, name, &resolved.program, resolved.points.clone());
        let id = match inserted {
            Ok(id) => id,
            Err(error) => {
                if selects {
                    let _ = interposer.end_selection();
                }
                let findings = insert_error(&resolved.program, error.probe, &error.kind);
                let name = name.to_owned();
                return Err(if findings.list.is_empty() {
                    CommandError::NotArmed { name, reason: error.kind.to_string() }
                } else {
                    CommandError::DoesNotFit { name, findings }
                });
            }
        };
        if !selects {
            return Ok(());
        }
        let left_out: Vec<usize> = interposer
            .programs()
            .iter()
            .filter(|program| program.id == id)
            .flat_map(|program| program.points.iter().enumerate())
            .filter(|(_, point)| !only.holds(point))
            .map(|(n, _)| n)
            .collect();
        for point in left_out {
            // Disabling cannot fail.
            let _ = interposer.set_enabled(core, id, point, false);
        }
        let ended = interposer.end_selection().map_err(|(_, kind)| kind.to_string());
        ended.map_err(|reason| {
            interposer.remove(core, id);
            CommandError::NotArmed { name: name.to_owned(), reason }
        })
    }

    fn remove(&mut self, name: &str) -> Answer {
        let id = self.find(name)?;
        let found = self.programs().into_iter().find(|program| program.id == id);
        let name = found.map_or_else(|| name.to_owned(), |program| program.name.to_owned());
        if let Some(interposer) = &mut self.interposer {
            interposer.remove(self.machine.core_mut(), id);
        }
        Ok(self.done("remove", &name, format!("removed {name}")))
    }

    /// Enables or disables what is selected. If one cannot be enabled, those before it are disabled again.
    fn switch(&mut self, points: &Selection, on: bool) -> Answer {
        let only = points.name.as_deref().map(|name| self.find(name)).transpose()?;
        let mut chosen = Vec::new();
        for program in self.programs().iter().filter(|program| only.is_none_or(|id| id == program.id)) {
            let count = program.points.len();
            if let Some(point) = points.point.filter(|point| *point >= count) {
                let name = program.name.to_owned();
                return Err(CommandError::UnknownPoint { name, point, points: count });
            }
            let numbered = program.points.iter().enumerate();
            let held =
                numbered.filter(|(n, point)| points.point.is_none_or(|p| p == *n) && points.holds(point));
            chosen.extend(held.map(|(n, point)| (program.id, n, point.enabled)));
        }
        if chosen.is_empty() {
            return Err(CommandError::Nothing(points.words()));
        }
        if let Some(interposer) = &mut self.interposer {
            let core = self.machine.core_mut();
            for (done, &(id, point, _)) in chosen.iter().enumerate() {
                if let Err(error) = interposer.set_enabled(core, id, point, on) {
                    for &(id, point, was) in chosen.iter().take(done).rev().filter(|(.., was)| *was != on) {
                        // Only enabling can fail, so this disables what was disabled before.
                        let _ = interposer.set_enabled(core, id, point, was);
                    }
                    return Err(CommandError::NotEnabled(error.to_string()));
                }
            }
        }
        let (action, done) = if on { ("enable", "enabled") } else { ("disable", "disabled") };
        let many = counted(chosen.len() as u64, "probe point");
        Ok(self.done(action, &points.words(), format!("{done} {} ({many})", points.words())))
    }

    fn query(&self) -> Reply {
        let state = |program: &ProgramView<'_>| ProgramState {
            name: program.name.to_owned(),
            hits: program.hits,
            points: program.points.iter().map(point_state).collect(),
        };
        Reply::Query { icount: self.icount(), programs: self.programs().iter().map(state).collect() }
    }

    fn get_vars(&self, name: Option<&str>) -> Answer {
        let only = name.map(|name| self.find(name)).transpose()?;
        let programs = self.programs();
        let asked = programs.iter().filter(|program| only.is_none_or(|id| id == program.id));
        let variables = |program: &ProgramView<'_>| ProgramVariables {
            name: program.name.to_owned(),
            lv: program.locals.to_vec(),
        };
        let globals = self.interposer.as_ref().map(Interposer::globals).unwrap_or_default();
        let programs = asked.map(variables).collect();
        Ok(Reply::GetVars { icount: self.icount(), programs, gv: globals.to_vec() })
    }

    /// Lists what the guest has now. An empty list is a valid reply if the files have what memory lacks now.
    fn list(&self, wanted: &Wanted, how: How) -> Answer {
        let icount = self.icount();
        let target = &self.target;
        let found = self.present(|present| Listing::find(target, Some(present), wanted));
        let mut found = found
            .and_then(|found| found.or_nothing(target, wanted, target.kernel_name()))
            .map_err(CommandError::List)?;
        if how.verbose {
            found.show_parameters(target);
        }
        let how = How { digits: 2 + 2 * target.width().bytes(), ..how };
        let lines = found.text(how).iter().map(|line| format!("list {icount} {line}")).collect();
        Ok(Reply::List { icount, rows: found.rows(), lines })
    }

    fn restore_label(&mut self, label: &str) -> Answer {
        let Some(saved) = self.saved.get(label).cloned() else {
            let names: Vec<String> = self.saved.keys().map(|label| format!("`{label}`")).collect();
            let known = match names.as_slice() {
                [] => "none was taken".to_owned(),
                [only] => format!("the only one is {only}"),
                names => format!("there are {}", names.join(", ")),
            };
            return Err(CommandError::UnknownSnapshot { label: label.to_owned(), known });
        };
        let from = self.icount();
        self.go_to(&saved, Output::GoesOn)?;
        Ok(self.done("restore", label, format!("from {from} back to {label}")))
    }

    fn type_at(&mut self, line: InputLine, bytes: &[u8]) -> Answer {
        match line {
            InputLine::Com1 => self.machine.console_input(bytes),
            InputLine::Virtio if self.machine.virtio_console_input(bytes) => {}
            InputLine::Virtio => return Err(CommandError::NoVirtioConsole),
            InputLine::Keyboard => self.machine.keyboard_input(bytes).map_err(CommandError::NoKey)?,
        }
        let text = bytes.escape_ascii().to_string();
        Ok(self.done("type", &text, format!("typed \"{text}\"")))
    }
}

fn point_state(point: &PointView<'_>) -> PointState {
    PointState {
        place: place(point),
        enabled: point.enabled,
        major: point.major,
        minor: point.minor,
        sites: point.sites,
        hits: point.hits,
        ignored: point.ignored,
        group: point.group.map(str::to_owned),
        kind: point.kind.map(str::to_owned),
    }
}

/// `0xc0100c61`, or `appln+0x40f`.
fn place(point: &PointView<'_>) -> String {
    match point.place {
        Place::Kernel { linear, .. } | Place::LockNop { linear, .. } | Place::Pointer { linear, .. } => {
            format!("{linear:#x}")
        }
        Place::Event(event) => format!("at {event:?}"),
        Place::Timer(timer) => match timer.clock {
            Clock::Virtual => format!("every {} ns", timer.period),
            Clock::Instructions => format!("every {}", counted(timer.period, "instruction")),
        },
        Place::Watch(watch) => {
            let prefix = if watch.kind == trapline_emu::WatchKind::Io { "port:" } else { "" };
            format!("{prefix}{:#x}:{:#x}", watch.low, watch.high)
        }
        Place::User { module, offset }
        | Place::UserExit { module, offset, .. }
        | Place::IsEnabled { module, offset } => format!("{}+{offset:#x}", file_name(module.name())),
        Place::Semaphore { module, address } | Place::UserPointer { module, address, .. } => {
            format!("{}:{address:#x}", file_name(module.name()))
        }
        Place::Module { module, offset } | Place::ModulePointer { module, offset, .. } => {
            match module.section_at(*offset) {
                Some((section, into)) => format!("{}:{section}+{into:#x}", module.name()),
                None => module.name().to_owned(),
            }
        }
    }
}
