//! Inserting and removing programs; enabling and disabling probes.

use super::Interposer;
use crate::model::{
    Address, Definition, INT3, InsertError, InsertErrorKind, Place, Point, Processes, Program, ProgramId, Who,
};
use crate::sources::disable_watch;
use std::borrow::Borrow;
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use trapline_emu::{Core, PAGE};
use trapline_rpn::LinkedProgram;

/// The bytes at a `lock nop` site: in place of a call, and in place of a tail call.
const FIVE_NOPS: [u8; 5] = [0x90; 5];
const FOUR_NOPS_AND_RET: [u8; 5] = [0x90, 0x90, 0x90, 0x90, 0xc3];

impl Interposer {
    /// Adds a linked program with a place for each of its probe points, in order, and arms it.
    ///
    /// # Errors
    /// The first probe point that cannot be armed; nothing of the program stays.
    pub fn insert<P: Into<Point>>(
        &mut self,
        core: &mut Core,
        name: &str,
        program: impl Borrow<LinkedProgram>,
        places: Vec<P>,
    ) -> Result<ProgramId, InsertError> {
        let program = program.borrow();
        let definition = Definition::new(name, program, places)?;
        self.insert_defined(core, program, definition)
    }

    /// Adds a program by its definition, and enables its probes.
    ///
    /// # Errors
    /// As [`Interposer::insert`].
    pub(super) fn insert_defined(
        &mut self,
        core: &mut Core,
        program: &LinkedProgram,
        definition: Definition,
    ) -> Result<ProgramId, InsertError> {
        for (probe, (linked, own)) in program.probes.iter().zip(&definition.probes).enumerate() {
            let checked = self.sources.watches.check(&own.place);
            let checked = checked.and_then(|()| check_opcode(core, &own.place, linked.opcode));
            let checked = checked.and_then(|()| self.check_processes(own.rest.processes.as_deref()));
            checked.map_err(|kind| InsertError { probe, kind })?;
        }
        let first = self.inserted.probes.len();
        let awaited = self.awaits_hits();
        let id = self.inserted.push(Arc::new(definition), &mut self.filters, awaited);
        self.sources.modules.note_points(first, &self.inserted.probes);
        let mut users = Vec::new();
        for probe in first..self.inserted.probes.len() {
            // Probes on user modules are enabled together: each enabling searches the pages that are executed already.
            if self.inserted.probes[probe].place.in_user_code().is_some() {
                self.inserted.probes[probe].enabled = true;
                users.push(probe as u32);
            } else if let Err(kind) = self.enable(core, probe) {
                self.enable_user(core, &users);
                self.remove(core, ProgramId(id));
                return Err(InsertError { probe: probe - first, kind });
            }
        }
        self.enable_user(core, &users);
        self.arm_modules(core);
        Ok(ProgramId(id))
    }

    /// Checks that the current process can be determined, if the probe needs it.
    fn check_processes(&self, processes: Option<&Processes>) -> Result<(), InsertErrorKind> {
        let matters = processes.is_some_and(|processes| processes.who != Who::Any);
        if matters && self.profile.is_none() { Err(InsertErrorKind::NoProcesses) } else { Ok(()) }
    }

    /// Takes a program out: its probes are disarmed, what they recorded stays.
    pub fn remove(&mut self, core: &mut Core, id: ProgramId) {
        let Some(program) = self.inserted.programs.get_mut(id.0) else { return };
        program.removed = true;
        for probe in program.probes.clone() {
            self.disable(core, probe);
        }
        if !self.inserted.probes.iter().any(|probe| probe.enabled && probe.returns_later) {
            self.sites.wait_nowhere(core);
        }
    }

    /// Enables or disables one probe point of a program. Unknown numbers and removed programs are ignored.
    ///
    /// # Errors
    /// It cannot be armed, for example as a fifth watch. It is then disabled.
    pub fn set_enabled(
        &mut self,
        core: &mut Core,
        id: ProgramId,
        probe: usize,
        on: bool,
    ) -> Result<(), InsertErrorKind> {
        let Some(program) = self.inserted.programs.get(id.0).filter(|p| !p.removed) else { return Ok(()) };
        let Some(index) = program.probes.clone().nth(probe) else { return Ok(()) };
        if !on {
            self.disable(core, index);
            return Ok(());
        }
        self.enable(core, index).inspect_err(|_| self.disable(core, index))?;
        self.arm_modules(core);
        Ok(())
    }

    /// Enables a probe; a probe in a kernel module is armed by the next check of the modules.
    fn enable(&mut self, core: &mut Core, number: usize) -> Result<(), InsertErrorKind> {
        let Some(probe) = self.inserted.probes.get_mut(number) else { return Ok(()) };
        if std::mem::replace(&mut probe.enabled, true) {
            return Ok(());
        }
        let probes = &self.inserted.probes;
        let (sites, sources, id) = (&mut self.sites, &mut self.sources, number as u32);
        match probes[number].place.address() {
            Address::Patch { paddr, patch, .. } => sites.attach(core, (paddr, patch), id, &probes[number]),
            Address::Timer(timer) => {
                sources.timers.start(core, id, timer);
                Ok(())
            }
            Address::Pointer { linear, paddr, wide } => sites.attach_pointer(core, (linear, paddr, wide), id),
            Address::Word { module, address, pointer: None } => {
                sources.words.need_semaphore(core, module, address, id)
            }
            Address::Word { module, address, pointer: Some(wide) } => {
                sources.words.need_pointer(core, module, (address, wide), id, sites)
            }
            Address::Event => Ok(()),
            Address::Watch(watch) => sources.watches.enable(core, watch, id, probes, sites),
            Address::Module { module, .. } => {
                sources.modules.enable(module);
                Ok(())
            }
            Address::ModulePointer { module, wide, .. } => {
                sources.modules.enable_pointer(core, module, (id, wide), sites)
            }
            Address::Program { .. } => {
                self.enable_user(core, &[id]);
                Ok(())
            }
        }
    }

    /// Enables probes on user modules, and arms them where their pages are executed already.
    fn enable_user(&mut self, core: &mut Core, probes: &[u32]) {
        let (sources, mut reach) = self.reach();
        sources.user.enable(core, probes, &mut reach);
    }

    /// Disables a probe; sites without an enabled probe are disarmed.
    pub(super) fn disable(&mut self, core: &mut Core, number: usize) {
        let id = number as u32;
        let Some(probe) = self.inserted.probes.get_mut(number) else { return };
        if !std::mem::replace(&mut probe.enabled, false) {
            return;
        }
        probe.set_spent(false);
        self.parked.forget_probe(id);
        self.tail_calls.forget_probe(id);
        let (sources, mut reach) = self.reach();
        let probes = reach.probes;
        match probes[number].place.address() {
            Address::Patch { paddr, .. } | Address::Pointer { paddr, .. } => {
                reach.sites.leave_address(core, paddr, id)
            }
            Address::Word { .. } => reach.sites.leave_stubs(core, id),
            Address::Program { module, offset } => {
                sources.user.disable(core, module, offset, id, reach.sites)
            }
            Address::Module { module, .. } | Address::ModulePointer { module, .. } => {
                sources.modules.disable(core, module, id, &mut reach)
            }
            Address::Timer(_) => sources.timers.stop(core, id),
            Address::Event => {}
            Address::Watch(watch) => disable_watch(core, watch, id, reach.sites),
        }
        self.sources.words.release(core, id, self.profile.as_deref());
        self.forget_emptied(core);
        self.stop_telling(core, number);
    }

    /// When the last site of a provider's probe is disabled, its semaphores and is-enabled sites are disarmed.
    fn stop_telling(&mut self, core: &mut Core, probe: usize) {
        let program = &self.inserted.programs[self.inserted.probes[probe].program as usize];
        let Some(id) = self.inserted.probes[probe].rest.provided.as_ref().map(|provided| provided.id) else {
            return;
        };
        let same = |&other: &usize| {
            let other = &self.inserted.probes[other];
            other.enabled && other.rest.provided.as_ref().is_some_and(|provided| provided.id == id)
        };
        let tellers: Vec<usize> = program.tellers().filter(same).collect();
        if tellers.is_empty() {
            return;
        }
        let mut others = program.probes.clone().filter(same);
        if !others.any(|other| !self.inserted.probes[other].place.only_tells()) {
            tellers.into_iter().for_each(|teller| self.disable(core, teller));
        }
    }

    /// Accepts any number of watches of any range, not only what four debug registers can hold.
    pub fn set_watch_unlimited(&mut self, on: bool) {
        self.sources.watches.unlimited = on;
    }

    /// Postpones counting the watches: some of the programs inserted now will be deselected before the guest runs.
    pub fn begin_selection(&mut self) {
        self.sources.watches.selecting = true;
    }

    /// Ends the selection: the watches enabled now are counted.
    ///
    /// # Errors
    /// The program of the first watch beyond the limit, and the error.
    pub fn end_selection(&mut self) -> Result<(), (&str, InsertErrorKind)> {
        self.sources.watches.selecting = false;
        match self.sources.watches.one_too_many(&self.inserted.probes) {
            Some((program, kind)) => {
                Err((self.inserted.programs.get(program as usize).map_or("", Program::name), kind))
            }
            None => Ok(()),
        }
    }

    /// Why probes of kernel modules may be misplaced: the profile's complaint about the guest's list of modules, if the
    /// list is implausible and an enabled probe needs it.
    pub fn modules_damage(&self, core: &Core) -> Option<String> {
        self.inserted.probes.iter().find(|probe| probe.enabled && probe.place.kernel_module().is_some())?;
        self.profile.as_deref()?.damage(core)
    }

    /// Lowers the words of programs in the guest at the end of the run. Without a profile, which alone knows the
    /// processes, they stay as they are.
    pub fn silence(&mut self, core: &mut Core) {
        for probe in self.sources.words.listening() {
            self.disable(core, probe as usize);
        }
    }

    /// The instruction count at which the next timer that counts instructions is due, or kernel modules are to be
    /// checked: a run must stop there, and [`Interposer::tick`] must follow each stop.
    pub fn next_tick(&self) -> Option<u64> {
        self.sources.timers.next_tick().into_iter().chain(self.sources.modules.next_look()).min()
    }

    /// Runs the handlers of timers that are due, and returns whether any was. The machine is between two instructions.
    pub fn tick(&mut self, core: &mut Core) -> bool {
        let probes = self.sources.timers.probes();
        if probes.is_empty() {
            return false;
        }
        let mut any = false;
        for number in probes {
            if self.sources.timers.take_due(core, number) {
                any = true;
                self.hit_without_site(core, number, None, None);
            }
        }
        self.sources.timers.set_alarm(core);
        any
    }
}

/// The byte at an offset in a module's file, and a name of that place for messages.
fn file_byte(module: &UserModule, offset: u64) -> Result<(u8, String), InsertErrorKind> {
    let at = format!("offset {offset:#x} of {}", module.name());
    match module.bytes_at(offset, 1) {
        Some([byte]) => Ok((*byte, at)),
        _ => Err(InsertErrorKind::NotMapped(at)),
    }
}

/// Whether nothing is in the page yet: the kernel's own code will unpack it there.
fn is_empty(core: &Core, paddr: u64) -> bool {
    let mut page = [0; PAGE as usize];
    core.icount() == 0
        && core.ram().read(paddr & !(PAGE - 1), &mut page)
        && page.iter().all(|byte| *byte == 0)
}

/// Whether the byte at a place is the one that its program expects.
fn check_opcode(core: &Core, place: &Place, expected: u8) -> Result<(), InsertErrorKind> {
    let (found, at) = match place.address() {
        Address::Patch { linear, paddr, patch: INT3 } => {
            let mut byte = [0];
            if !core.ram().read(paddr, &mut byte) {
                return Err(InsertErrorKind::NotMapped(format!("linear address {linear:#x}")));
            }
            // `opcode` is compared with the file. A running guest may have changed its code, as Linux does at its
            // tracing sites.
            if core.icount() > 0 || is_empty(core, paddr) {
                return Ok(());
            }
            (byte[0], format!("{linear:#x}"))
        }
        Address::Patch { linear, paddr, .. } => {
            // The patch is the second byte.
            let (mut found, at) = ([0; 5], format!("{linear:#x}"));
            if !core.ram().read(paddr - 1, &mut found) {
                return Err(InsertErrorKind::NotMapped(format!("linear address {at}")));
            }
            if is_empty(core, paddr) {
                return Ok(());
            }
            if found != FIVE_NOPS && found != FOUR_NOPS_AND_RET {
                return Err(InsertErrorKind::NotFiveNops { at, found });
            }
            (found[0], at)
        }
        Address::Program { module, offset } => file_byte(module, offset)?,
        Address::Module { module, offset } => file_byte(module.file(), offset)?,
        Address::Pointer { .. }
        | Address::ModulePointer { .. }
        | Address::Word { .. }
        | Address::Watch(_)
        | Address::Timer(_)
        | Address::Event => {
            return Ok(());
        }
    };
    if found == expected { Ok(()) } else { Err(InsertErrorKind::OpcodeMismatch { at, expected, found }) }
}
