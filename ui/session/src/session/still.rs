//! A machine that is only looked at: that of a dump. Symbols, tasks, stacks and programs are those of a machine that runs, by the
//! same code; nothing runs.

use std::path::Path;

use trapline_dump::cpu::{self, Tables};
use trapline_dump::{DumpFile, DumpInfo, kernel};
use trapline_emu::load::{LoadError, Width};
use trapline_emu::{CpuModel, CpuState, Machine, MachineError, PhysMem};
use trapline_interposer::{Event, Place, Point};
use trapline_providers::{Clause, Matched, Resolved, Target, handler};
use trapline_rpn::LinkedProgram;

use super::Session;
use super::d_program::{Placed, events};
use crate::commands::{CommandError, DError, DSource};
use crate::guest::{Guest, GuestBuilder, GuestError, at_its_place, in_still};
use crate::probing::Probing;

/// Most bytes of a kernel's code that are compared with a dump.
const COMPARED: u64 = 256 << 10;

/// Why a dump is no machine that can be looked at.
#[derive(Debug, thiserror::Error)]
pub enum StillError {
    /// The file of symbols.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// Not enough memory for the machine itself.
    #[error("cannot build the machine: {0}")]
    Machine(#[from] MachineError),
    /// No kernel, and no file of one.
    #[error(
        "no Linux kernel with symbols is found in this dump; give the file of its kernel with --symbols FILE"
    )]
    NoKernel,
    /// The kernel is another one.
    #[error(
        "{file} is not the kernel of this dump, or not at the address where the dump has it: {equal} of {all} bytes of its code \
         are in the dump; give the right file, or leave --symbols out"
    )]
    Foreign {
        /// The file.
        file: String,
        /// Bytes that agree.
        equal: usize,
        /// Bytes that were compared.
        all: usize,
    },
    /// A kernel without types.
    #[error(
        "the kernel in the dump does not show where it keeps its tasks and modules, since it has no BTF; give its file with \
         --symbols FILE"
    )]
    NoTasks,
    /// Tables of a kind that is not read.
    #[error("the dump's kernel uses five levels of page tables (CR4.LA57), and at most four are read")]
    FiveLevels,
}

/// How a dump is looked at.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// The kernel's file, or a System.map; without one, the kernel in the dump is its own file.
    pub symbols: Option<String>,
    /// The physical address of the top page table, if the dump does not say it.
    pub cr3: Option<u64>,
    /// What probes record.
    pub probing: Probing,
}

impl Session {
    /// The machine of a dump. It cannot run: D and RPN programs see it at BEGIN and END.
    ///
    /// # Errors
    /// No kernel is found, or the file of symbols is not that of the dump's kernel.
    pub fn of_dump(dump: DumpFile, look: &Look) -> Result<(Guest, Self), StillError> {
        let info = dump.info();
        Self::of_memory(Box::new(dump), &info, look)
    }

    /// The same of any memory, of which `info` says what a dump would say.
    ///
    /// # Errors
    /// As [`Session::of_dump`].
    pub fn of_memory(
        memory: Box<dyn PhysMem + Send>,
        info: &DumpInfo,
        look: &Look,
    ) -> Result<(Guest, Self), StillError> {
        let mut state = info.cpu();
        let mut machine = Machine::still(CpuModel::X86_64, memory, info.end(), &state)?;
        let told = tables(&machine, info, look);
        if let Some((tables, root)) = told {
            cpu::with_paging(&mut state, tables, root);
        }
        if cpu::has_five_levels(&state) {
            return Err(StillError::FiveLevels);
        }
        machine.set_still(&state);
        let guest = guest(&machine, info, look.symbols.as_deref())?;
        kernel_tables(&mut machine, &guest, &mut state);
        let mut session = guest.session(machine, look.probing.clone());
        if info.state.is_none() {
            session.use_own_tables(state);
        }
        Ok((guest, session))
    }

    /// Whether the machine is only looked at.
    pub fn is_still(&self) -> bool {
        self.core().is_still()
    }

    /// Uses the page tables of the current process, so that its memory can be read.
    fn use_own_tables(&mut self, mut state: CpuState) {
        let root = (self.profile)().and_then(|profile| {
            let core = self.core();
            profile.page_table(core, profile.current_task(core))
        });
        if let Some(root) = root {
            state.control[2] = root;
            self.machine.set_still(&state);
        }
    }

    /// Runs the handlers of BEGIN of the program in RPN that was inserted last.
    pub(super) fn begin_still(&mut self) {
        let last = self.programs().last().map(|program| program.id).filter(|_| self.is_still());
        if let (Some(interposer), Some(id)) = (&mut self.interposer, last) {
            interposer.fire(self.machine.core_mut(), Event::Begin, id);
        }
    }

    /// Runs the handlers of END of all programs in RPN.
    pub(super) fn end_still(&mut self) {
        let programs: Vec<_> = self.programs().iter().map(|program| program.id).collect();
        if let Some(interposer) = self.interposer.as_mut().filter(|_| self.machine.core().is_still()) {
            let of_d: Vec<_> = interposer.d_programs().map(|(id, ..)| id).collect();
            for id in programs.into_iter().filter(|id| !of_d.contains(id)) {
                interposer.fire(self.machine.core_mut(), Event::End, id);
            }
        }
    }

    /// Refuses a D program that has probes beside BEGIN, END and ERROR, or that may change the guest.
    pub(super) fn check_still(
        &self,
        source: &DSource,
        placed: &Placed,
        destructive: bool,
    ) -> Result<(), DError> {
        let fires = |point: &Point| matches!(point.place, Place::Event(_));
        let why = if destructive {
            "it may change the guest, and a dump can only be read"
        } else if !placed.points.iter().all(fires) {
            "a dump does not run, so only BEGIN and END fire in it"
        } else {
            return Ok(());
        };
        Err(DError::NotArmed(format!("{}: {why}", source.name())))
    }
}

/// A program in RPN whose handlers run at BEGIN, one after the other, wherever its probe points are.
pub(super) fn at_begin(name: &str, resolved: Resolved) -> Result<Resolved, CommandError> {
    check_observes(name, &resolved.program)?;
    let points = resolved.points.iter().flat_map(|_| events("dtrace:::BEGIN")).collect();
    Ok(Resolved { points, ..resolved })
}

/// A clause in RPN at the events that it names.
pub(super) fn at_events(
    target: &Target,
    text: &str,
    clause: &Clause,
) -> Result<(Resolved, Vec<Matched>), CommandError> {
    let mut program = handler(target, clause)?;
    check_observes(text, &program)?;
    let (mut probes, mut points, mut matched) = (Vec::new(), Vec::new(), Vec::new());
    for description in &clause.descriptions {
        let found: Vec<Point> = events(description);
        if found.is_empty() {
            return Err(CommandError::NeverFires(description.clone()));
        }
        matched.push(Matched { description: description.clone(), probes: found.len() });
        for point in found {
            probes.extend(program.probes.first().cloned());
            points.push(point);
        }
    }
    program.probes = probes;
    Ok((Resolved { program, points, convention: None }, matched))
}

fn check_observes(name: &str, program: &LinkedProgram) -> Result<(), CommandError> {
    let observes = program.probes.iter().all(|probe| probe.handler.observe_only());
    if observes { Ok(()) } else { Err(CommandError::ChangesDump(name.to_owned())) }
}

/// The page tables that were given, or that the kernel describes; for an image of the memory those that are found. `None` if
/// the dump has the CPU's own.
fn tables(machine: &Machine, info: &DumpInfo, look: &Look) -> Option<(Tables, u64)> {
    let core = machine.core();
    if let Some(root) = look.cr3 {
        return Some((Tables::Four, root));
    }
    if info.state.is_some() {
        return None;
    }
    kernel::own_tables(core, info).or_else(|| {
        let is_bare = info.cpus.is_empty();
        is_bare.then(|| kernel::find_root(core)).flatten().map(|root| (Tables::Four, root))
    })
}

/// The kernel with its symbols.
fn guest(machine: &Machine, info: &DumpInfo, symbols: Option<&str>) -> Result<Guest, StillError> {
    let core = machine.core();
    let own = || {
        let (_, elf) = kernel::find(core, info).ok_or(StillError::NoKernel)?;
        Ok::<_, StillError>(GuestBuilder::image_bytes("the kernel in the dump", elf))
    };
    let Some(file) = symbols else { return Ok(own()?.open()?) };
    match GuestBuilder::image(file).open() {
        Ok(guest) => match check(machine, &guest, file) {
            Ok(()) => Ok(guest),
            Err(error) => {
                let (by, image) = in_still(core, guest.target().image()).ok_or(error)?;
                Ok(at_its_place(guest, by, image))
            }
        },
        // No kernel: a table of symbols.
        Err(GuestError::Image { error: LoadError::UnknownFormat { .. } | LoadError::NoSegments, .. }) => {
            Ok(own()?.symbols(Path::new(file)).open()?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a kernel that the dump does not have where its file puts it. A kernel patches some of its code, but not a quarter.
fn check(machine: &Machine, guest: &Guest, file: &str) -> Result<(), StillError> {
    let plan = guest.target().image().plan();
    let (mut equal, mut all) = (0, 0);
    let code = plan.sections.iter().filter(|section| section.executable);
    let mut places: Vec<(u64, u64)> = code.map(|section| (section.vaddr, section.size)).collect();
    if places.is_empty() {
        places = plan.segments.iter().map(|segment| (segment.vaddr, segment.file.len() as u64)).collect();
    }
    for (vaddr, size) in places.into_iter().take(1) {
        let size = size.min(COMPARED) as usize;
        let bytes = plan.vaddr_to_paddr(vaddr).zip(plan.bytes_at(vaddr, size));
        let Some((paddr, expected)) = bytes else { continue };
        for (n, part) in expected.chunks(4096).enumerate() {
            let mut found = [0; 4096];
            let found = &mut found[..part.len()];
            if PhysMem::read(machine.core().ram(), paddr + 4096 * n as u64, found) {
                all += part.len();
                equal += part.iter().zip(found.iter()).filter(|(a, b)| a == b).count();
            }
        }
    }
    if all == 0 || equal < all / 4 * 3 {
        return Err(StillError::Foreign { file: file.to_owned(), equal, all });
    }
    Ok(())
}

/// The kernel's tables in place of those of user code, which lack the kernel; and for tables that were given their kind by the
/// kernel's width.
fn kernel_tables(machine: &mut Machine, guest: &Guest, state: &mut CpuState) {
    let plan = guest.target().image().plan();
    let Some(segment) = plan.segments.iter().find(|segment| segment.vaddr >> (plan.width.bits() - 1) != 0)
    else {
        return;
    };
    let (vaddr, paddr) = (segment.vaddr & !0xfff, segment.paddr & !0xfff);
    let maps = |machine: &Machine| {
        let found = machine.core().peek_translate(vaddr, trapline_emu::Access::Read, false);
        found.is_some_and(|page| page.paddr == paddr)
    };
    if state.control[0] >> 31 == 0 || maps(machine) {
        return;
    }
    let root = state.control[2];
    let kinds: &[Tables] =
        if plan.width == Width::Bits64 { &[Tables::Four] } else { &[Tables::Pae, Tables::Narrow] };
    let before = *state;
    for (kind, root) in kinds.iter().flat_map(|kind| [(*kind, root & !0x1000), (*kind, root)]) {
        cpu::with_paging(state, kind, root);
        machine.set_still(state);
        if maps(machine) {
            return;
        }
    }
    *state = before;
    machine.set_still(state);
}
