//! Clauses of D programs: how they begin and end, and what they see of the guest.

use super::Interposer;
use super::host::Guest;
use super::view::View;
use crate::d::{DClause, DDrops, DFault, DSetup, DVariable, Reading, World};
use crate::model::{Definition, Event, InsertError, Place, Point, ProgramId, Word};
use std::collections::BTreeMap;
use std::sync::Arc;
use trapline_emu::{Access, Core, PAGE};
use trapline_os::{Birth, CodePointer, KernelFrame, UserFrame};
use trapline_rpn::services::ASSERTION;
use trapline_rpn::services::d::{Builtin, fault};
use trapline_rpn::{
    Argument, Context, Host, LinkedProgram, Outcome, Shape, Termination, by_index, exception,
};
use trapline_trace::Kind;
use trapline_trace::d::{Code, ERROR_PART, ShowSymbols, Snapshot, SymbolForm, Writer};

/// Nanoseconds from 1970 to 2000, when the guest's clock begins.
const CLOCK_BEGINS: u64 = 946_684_800_000_000_000;
/// Frames that are counted for `stackdepth`.
const DEEPEST: usize = 256;

impl<V: View> Guest<'_, V> {
    /// Whether this is an event of the run itself, which has no code address, unless the machine is only looked at.
    fn is_nowhere(&self) -> bool {
        let is_event = self.probe.rest.provided.as_ref().is_some_and(|provided| provided.id <= LAST_EVENT);
        is_event && !self.core.is_still()
    }

    fn kernel_frames(&mut self, most: usize) -> Vec<KernelFrame> {
        if self.is_nowhere() {
            return Vec::new();
        }
        self.unwinder.kernel_stack(self.core, self.profile.as_deref(), self.probe.at_call, most)
    }

    fn user_frames(&mut self, most: usize) -> Vec<UserFrame> {
        if self.is_nowhere() {
            return Vec::new();
        }
        self.unwinder.user_stack(self.core, self.profile.as_deref(), self.probe.at_call, most)
    }

    /// The symbol at an address in a module, and the offset in it.
    pub(super) fn function_at(&self, user: bool, module: &str, address: u64) -> Option<(String, u64)> {
        let kind = if user { Kind::UserStack } else { Kind::KernelStack };
        let named = self.asked.names.as_ref().and_then(|names| names(kind, module, address));
        named.or_else(|| self.unwinder.module_symbol(module, address).filter(|_| !user))
    }

    /// Begins a clause of a D program, if the handler is one. Returns false after `exit()`: then it does not run,
    /// unless it belongs to END or ERROR.
    #[inline]
    pub fn begin_clause(&mut self, lv: &mut [u64]) -> bool {
        self.begin_clause_at(self.core.icount(), lv)
    }

    /// The same, at this instruction count: clauses of one firing share their variables.
    #[inline]
    pub fn begin_clause_at(&mut self, icount: u64, lv: &mut [u64]) -> bool {
        let Some(d) = &mut self.d else { return true };
        let probe = self.probe;
        let id = || probe.rest.provided.as_ref().map_or(0, |provided| provided.id);
        if d.exit().is_some() && !(END..=LAST_EVENT).contains(&id()) {
            return false;
        }
        let traps = self.stats.traps;
        d.begin(|| (icount, traps ^ u64::from(id()) << 40), lv);
        true
    }

    /// A built-in variable of the guest as it is.
    fn guest_builtin(&mut self, which: Builtin, text: &mut Vec<u8>) -> Reading {
        let profile = self.profile.as_deref();
        let core: &Core = self.core;
        let name = self.probe.rest.provided.as_ref().map(|provided| &provided.name);
        let mut copied = |part: Option<&Arc<str>>| {
            text.extend_from_slice(part.map(|part| part.as_bytes()).unwrap_or_default());
            Reading::Text
        };
        Reading::Int(match which {
            Builtin::Probeprov => return copied(name.map(|name| &name.provider)),
            Builtin::Probemod => return copied(name.map(|name| &name.module)),
            Builtin::Probefunc => return copied(name.map(|name| &name.function)),
            Builtin::Probename => return copied(name.map(|name| &name.name)),
            Builtin::Execname => {
                if let Some(profile) = profile {
                    profile.name_into(core, text);
                }
                return Reading::Text;
            }
            Builtin::Timestamp | Builtin::Vtimestamp => core.virtual_ns(),
            Builtin::Walltimestamp => CLOCK_BEGINS.wrapping_add(core.virtual_ns()),
            Builtin::Icount => core.icount(),
            Builtin::Hit => self.firing.1,
            Builtin::Epid => u64::from(self.firing.0) + 1,
            Builtin::Id => self.probe.rest.provided.as_ref().map_or(0, |provided| provided.id.into()),
            Builtin::Pid => profile.map_or(0, |profile| profile.tgid(core).into()),
            Builtin::Tid => profile.map_or(0, |profile| profile.pid(core).into()),
            Builtin::Uid | Builtin::Gid => profile.map_or(0, |profile| profile.uid(core).into()),
            Builtin::Curthread => profile.map_or(0, |profile| profile.current_task(core)),
            Builtin::Caller => self.kernel_frames(2).get(1).map_or(0, |frame| frame.ip),
            Builtin::Ucaller => self.user_frames(2).get(1).map_or(0, |frame| frame.ip),
            Builtin::Stackdepth => self.kernel_frames(DEEPEST).len() as u64,
            Builtin::Ustackdepth => self.user_frames(DEEPEST).len() as u64,
            Builtin::Errno => self.probe.arguments.as_deref().map_or(0, |arguments| arguments.errno(core)),
            Builtin::Cpu | Builtin::Ipl | Builtin::Ppid => 0,
            argument => {
                let number = argument.number().saturating_sub(Builtin::Arg0.number()) as u8;
                self.argument(Argument::Number(number)).unwrap_or(0)
            }
        })
    }
}

/// The identifier of END.
const END: u32 = 2;
/// The greatest identifier of a probe of the `dtrace` provider.
const LAST_EVENT: u32 = 3;

impl<V: View> World for Guest<'_, V> {
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), u64> {
        self.view.read(self.core, address, to)
    }

    fn builtin(&mut self, which: Builtin, text: &mut Vec<u8>) -> Reading {
        if V::ALTERS
            && which == Builtin::Execname
            && let Some(name) = self.view.name()
        {
            text.extend_from_slice(name);
            return Reading::Text;
        }
        let word = match which {
            Builtin::Timestamp | Builtin::Vtimestamp => Word::Time,
            Builtin::Icount => Word::Instructions,
            Builtin::Hit => Word::Hit,
            Builtin::Pid => Word::Process,
            Builtin::Tid => Word::Thread,
            Builtin::Uid | Builtin::Gid => Word::User,
            Builtin::Curthread => Word::Task,
            _ => return self.guest_builtin(which, text),
        };
        let value = self.word(word, |guest| match guest.guest_builtin(which, &mut Vec::new()) {
            Reading::Int(value) => value,
            Reading::Text => 0,
        });
        Reading::Int(value)
    }

    fn stack(&mut self, user: bool, most: usize) -> Code {
        let mut code = Code { user, ..Code::default() };
        if user {
            for frame in self.user_frames(most) {
                let file = frame.file.as_ref().map(|(path, base)| (&**path, *base));
                code.stack.push(frame.ip, frame.exact, file);
            }
            return code;
        }
        for frame in self.kernel_frames(most) {
            let at = frame.pointer().within();
            let module = self.unwinder.kernel_module(self.core, self.profile.as_deref(), at);
            code.stack.push(frame.ip, frame.exact, module.as_ref().map(|(name, base)| (&**name, *base)));
        }
        code
    }

    fn code(&mut self, address: u64, exact: bool) -> Code {
        let pointer = CodePointer::of(address, exact);
        let place = self.unwinder.place(self.core, self.profile.as_deref(), pointer);
        let module = place.as_ref().map(|place| (&*place.module, place.base));
        Code::one(address, exact, place.as_ref().is_some_and(|place| place.user), module)
    }

    fn pointer_bytes(&self) -> usize {
        if self.core.env().long_mode() { 8 } else { 4 }
    }

    fn user_register(&mut self, index: u64) -> Option<Option<u64>> {
        let row = by_index(u8::try_from(index).ok()?)?;
        let is_word = matches!(row.shape, Shape::Plain | Shape::Low32) && row.push_u;
        if !is_word || (row.only64 && !self.core.env().long_mode()) {
            return None;
        }
        let is_known = self.core.env().cpl() == 3 || self.user_context().is_some();
        // Where the guest has none, a view that changes the register has it.
        if !is_known && self.view.word(Word::register(Context::User, row.reg)).is_none() {
            self.view.lacks(Word::register(Context::User, row.reg));
            return Some(None);
        }
        let value = self.read_reg(Context::User, row.reg);
        Some(Some(if matches!(row.shape, Shape::Low32) { value & 0xffff_ffff } else { value }))
    }

    fn path(&mut self, path: u64) -> Option<Vec<u8>> {
        self.profile.as_deref()?.path(self.core, path).map(String::into_bytes)
    }

    fn write_record(&mut self, channel: &[u8], prio: i32, data: &[u8]) -> bool {
        self.write_to_channel(channel, prio, data)
    }

    fn is_in_memory(&mut self, task: u64) -> bool {
        let Some(profile) = self.profile.as_deref() else { return false };
        let own = profile.page_table(self.core, profile.current_task(self.core));
        own.is_some() && own == profile.page_table(self.core, task)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), u64> {
        let end = address.checked_add(bytes.len() as u64).ok_or(address)?;
        // An address that the guest does not have is not one of its addresses with a wrap.
        if !bytes.is_empty() && self.core.wrap_linear(end - 1) != end - 1 {
            return Err(address);
        }
        if V::ALTERS {
            return self.view.write(self.core, address, bytes);
        }
        let mut at = address;
        while at < end {
            let found = self.core.peek_translate(at, Access::Write, true);
            if found.is_none_or(|found| !found.writable) {
                return Err(at);
            }
            at = (at / PAGE + 1) * PAGE;
        }
        (self.asked.any, self.asked.wrote) = (true, true);
        self.core.poke(address, bytes)
    }

    fn now(&self) -> u64 {
        self.core.virtual_ns()
    }

    fn pass_time(&mut self, ns: u64) {
        if V::ALTERS {
            return;
        }
        (self.asked.any, self.asked.passed) = (true, true);
        self.core.pass_time(ns);
    }

    fn end(&mut self, panics: bool) {
        (self.asked.any, self.asked.stop) = (true, true);
        self.asked.panics |= panics;
    }

    fn thread(&mut self) -> u64 {
        self.task()
    }

    fn birth(&self, task: u64) -> Birth {
        self.profile.as_deref().map_or_else(Birth::default, |profile| profile.birth(self.core, task))
    }

    fn threads(&mut self) -> Option<BTreeMap<u64, Birth>> {
        let task = self.task();
        let profile = self.profile.as_deref()?;
        let all = profile.tasks_damage(self.core).is_none().then(|| profile.tasks(self.core))?;
        // A thread that ends leaves the guest's list before it has run for the last time.
        let current = (task, profile.birth(self.core, task));
        let listed = all.into_iter().map(|task| (task.task, profile.birth(self.core, task.task)));
        Some(listed.chain([current]).collect())
    }

    fn instructions(&self) -> u64 {
        self.core.icount()
    }

    fn is_altered(&self) -> bool {
        V::ALTERS
    }

    fn start(&self, form: SymbolForm, code: Code) -> Code {
        let stack = &code.stack;
        let place = stack.frames.first().and_then(|frame| stack.place(*frame, 64));
        let Some((module, address)) = place.filter(|_| form != SymbolForm::Address) else { return code };
        // Wherever the module is mapped, its start is one.
        let (name, start) = match form {
            SymbolForm::Module => (&module.name, Some(0)),
            _ => (
                &module.name,
                self.function_at(code.user, &module.name, address).map(|(_, into)| address - into),
            ),
        };
        match start {
            Some(start) => Code::one(start, true, code.user, Some((name, 0))),
            None => code,
        }
    }

    fn probe(&self) -> u32 {
        self.firing.0
    }

    fn compared(&mut self, one: &[u8], other: &[u8]) {
        self.view.compared(one, other);
    }
}

/// DTrace's fault for the exception that has ended a clause.
fn fault_of(code: u64, parm1: u64) -> (u64, u64) {
    match exception::lowest(code) {
        exception::INVALID_ADDR => (fault::ADDRESS.into(), parm1),
        exception::DIVIDE_BY_ZERO => (fault::DIVISION.into(), 0),
        exception::USER_EX => (code >> 16 & 0xffff, parm1),
        _ => (fault::OPERATION.into(), 0),
    }
}

impl Interposer {
    /// Adds a D program, whose clauses are the program's probe points in program order: the major code of each is the
    /// number of its clause.
    ///
    /// # Errors
    /// As [`Interposer::insert`].
    pub fn insert_d(
        &mut self,
        core: &mut Core,
        name: &str,
        (program, points): (&LinkedProgram, Vec<Point>),
        setup: Arc<DSetup>,
    ) -> Result<ProgramId, InsertError> {
        let definition = Definition::new(name, program, points)?.with_d(setup);
        self.insert_defined(core, program, definition)
    }

    /// The guest switches threads: a program that asks how long each has run notes it.
    #[cold]
    pub(super) fn switched(&mut self, core: &Core, index: u32) {
        let (probes, profile) = (&self.inserted.probes, self.profile.as_deref());
        let Some((probe, profile)) = probes.get(index as usize).zip(profile) else { return };
        let next = probe.arguments.as_ref().and_then(|own| own.argument(core, Argument::Number(0)).ok());
        let next = next.unwrap_or_else(|| profile.current_task(core));
        let program = self.inserted.programs.get_mut(probe.program as usize);
        if let Some(d) = program.and_then(|program| program.d.as_deref_mut()) {
            d.switch(next, profile.birth(core, next), core.icount());
        }
    }

    /// Runs the clauses of BEGIN of a D program.
    pub fn begin_d(&mut self, core: &mut Core, id: ProgramId) {
        self.fire(core, Event::Begin, id);
    }

    /// Runs the clauses of END of all D programs that have not run them yet, in program order.
    pub fn end_d(&mut self, core: &mut Core) {
        for number in 0..self.inserted.programs.len() {
            let program = self.inserted.programs.get_mut(number).filter(|program| !program.removed);
            if program.and_then(|program| program.d.as_mut()).is_some_and(|d| !d.end()) {
                self.fire(core, Event::End, ProgramId(number));
            }
        }
    }

    /// Runs the clauses of a program that wait for this event, in program order.
    pub fn fire(&mut self, core: &mut Core, event: Event, id: ProgramId) {
        let is_meant = |place: &Place| matches!(place, Place::Event(own) if *own == event);
        let of = self.inserted.programs.get(id.0).map(|program| program.probes.clone()).unwrap_or_default();
        let probes = (0u32..).zip(&self.inserted.probes).take(of.end).skip(of.start);
        let probes = probes.filter(|(_, probe)| is_meant(&probe.place));
        let numbers: Vec<u32> = probes.map(|(number, _)| number).collect();
        for number in numbers {
            self.hit_without_site(core, number, None, None);
        }
    }

    /// Whether a clause has ended and left nothing: no record, no fault, no `exit()`.
    #[inline]
    pub(super) fn ended_quietly(&self, index: u32, outcome: &Outcome) -> bool {
        let plain = matches!(outcome.termination, Termination::Exit | Termination::Abort);
        let Some(probe) = self.inserted.probes.get(index as usize).filter(|_| plain && !self.notes_hits())
        else {
            return false;
        };
        let program = self.inserted.programs.get(probe.program as usize);
        program.and_then(|program| program.d.as_ref()).is_some_and(|d| d.left_nothing())
    }

    /// Ends a clause of a D program. `at` is the instruction pointer, and whether a displaced instruction waits.
    #[cold]
    pub(super) fn end_clause(&mut self, core: &mut Core, index: u32, at: (u64, bool), outcome: &Outcome) {
        let Some(probe) = self.inserted.probes.get(index as usize) else { return };
        let (number, in_error) = (probe.program as usize, matches!(probe.place, Place::Event(Event::Error)));
        let (clause, id) = (probe.major, probe.rest.provided.as_ref().map_or(0, |provided| provided.id));
        self.note_hit(core, index, ProgramId(number), outcome);
        let thrown = self.runner.vm.unhandled();
        let line =
            self.inserted.probes.get(index as usize).map_or(0, |probe| probe.rest.lines.line(thrown.at));
        let Some(program) = self.inserted.programs.get_mut(number) else { return };
        let Some(d) = program.d.as_deref_mut() else { return };
        if outcome.termination == Termination::Exception {
            let (kind, address) = fault_of(thrown.code, thrown.parm1);
            if kind == u64::from(ASSERTION) {
                self.runner.asked.refute(index, thrown.at);
            }
            let fault =
                DFault { probe: id.into(), clause: clause.into(), at: thrown.at.into(), kind, address };
            let committed = d.fail(fault);
            self.stats.exceptions += 1;
            let before = d.of_firing(&program.lv);
            self.record_clauses(core, number, (&committed, at.0), outcome);
            let mut error = Writer::default();
            error.part(ERROR_PART);
            [fault.kind, fault.address, fault.clause, fault.probe, line.into()]
                .into_iter()
                .for_each(|value| error.int(value));
            self.record_clause(core, (index, at.0), error.written(), outcome);
            if !in_error {
                self.fire(core, Event::Error, ProgramId(number));
            }
            if let Some(program) = self.inserted.programs.get_mut(number)
                && let Some(d) = program.d.as_deref_mut()
            {
                d.recovered(&before, &mut program.lv);
            }
            self.count_clause(core, index, at.1, outcome);
        } else if outcome.recorded() {
            let records = d.take_records(index);
            self.record_clauses(core, number, (&records, at.0), outcome);
            if !records.is_empty() {
                self.count_clause(core, index, at.1, outcome);
            }
        }
        let exit = self.inserted.programs.get(number).and_then(|program| program.d.as_ref()?.exit());
        let asked = self.changed(core, at.1);
        if (exit.is_some() || asked) && self.stops.by.is_none() {
            self.stop_here(core, index, at.1);
        }
    }

    /// Records what a clause of a program has released, and counts what does not fit the channel.
    fn record_clauses(
        &mut self,
        core: &mut Core,
        program: usize,
        (records, at): (&[(u32, Vec<u8>)], u64),
        outcome: &Outcome,
    ) {
        let mut dropped = 0;
        for (probe, data) in records {
            dropped += u64::from(!self.record_clause(core, (*probe, at), data, outcome));
        }
        if dropped > 0
            && let Some(d) = self.inserted.programs.get_mut(program).and_then(|p| p.d.as_deref_mut())
        {
            d.count_drops(dropped);
        }
    }

    /// Does what destructive actions of a clause ask of the run; whether it ends. `at_site`: a displaced instruction waits.
    fn changed(&mut self, core: &mut Core, at_site: bool) -> bool {
        if !std::mem::take(&mut self.runner.asked.any) {
            return false;
        }
        let asked = &mut self.runner.asked;
        let (stop, panics) = (std::mem::take(&mut asked.stop), std::mem::take(&mut asked.panics));
        let passed = std::mem::take(&mut asked.passed);
        if panics {
            self.take_crash_dump(core);
            self.stops.panicked = true;
        }
        self.take_overwritten(core, at_site);
        if passed && at_site {
            // Devices may be due right after the probed instruction.
            (self.hit.rare, self.hit.passed) = (true, true);
        }
        stop
    }

    /// Counts a clause that has left a record, where hits with a record are counted, and stops the run if they suffice.
    fn count_clause(&mut self, core: &mut Core, index: u32, at_site: bool, outcome: &Outcome) {
        let counts = self.stops.count(outcome);
        if counts > 0 && at_site {
            self.hit.counted += counts;
            self.hit.rare = true;
        }
        if counts > 0 && self.enough_hits().is_some() {
            self.stop_here(core, index, at_site);
        }
    }

    /// The D programs, removed ones included, and how they are set up.
    pub fn d_programs(&self) -> impl Iterator<Item = (ProgramId, &str, &Arc<DSetup>)> {
        let programs = self.inserted.programs.iter().enumerate();
        programs
            .filter_map(|(id, program)| Some((ProgramId(id), program.name(), program.definition.d.as_ref()?)))
    }

    /// The aggregations of a D program as they are now, by number.
    pub fn aggregations(&self, id: ProgramId) -> Vec<Snapshot> {
        let d = self.inserted.programs.get(id.0).and_then(|program| program.d.as_ref());
        d.map(|d| d.snapshots()).unwrap_or_default()
    }

    /// The variables of a D program as they are now, at most this many.
    pub fn d_variables(
        &self,
        core: &Core,
        id: ProgramId,
        most: usize,
        symbols: ShowSymbols<'_>,
    ) -> Vec<DVariable> {
        let Some(program) = self.inserted.programs.get(id.0) else { return Vec::new() };
        let read = |address: u64, to: &mut [u8]| core.peek(address, to).is_ok();
        let d = program.d.as_ref();
        d.map(|d| d.variables(&program.lv, most, &read, symbols)).unwrap_or_default()
    }

    /// Where a clause of a D program is from.
    pub fn d_clause(&self, id: ProgramId, clause: u32) -> Option<&DClause> {
        self.inserted.programs.get(id.0)?.definition.d.as_ref()?.clauses.get(clause as usize)
    }

    /// What a D program has dropped so far.
    pub fn d_drops(&self, id: ProgramId) -> DDrops {
        let d = self.inserted.programs.get(id.0).and_then(|program| program.d.as_ref());
        d.map(|d| d.drops()).unwrap_or_default()
    }

    /// The status that a D program has given to `exit()`.
    pub fn d_exit(&self, id: ProgramId) -> Option<i32> {
        self.inserted.programs.get(id.0)?.d.as_ref()?.exit()
    }
}
