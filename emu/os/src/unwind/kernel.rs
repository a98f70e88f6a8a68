//! The kernel's stack: by ORC if the kernel has it, else by call frame information, else by frame pointers.

use std::ops::Range;
use std::sync::Arc;

use trapline_emu::load::LoadPlan;
use trapline_emu::symbols::{Btf, Symbols};
use trapline_emu::{Core, Seg};

use super::cfi::Cfi;
use super::frame::{self, Hints};
use super::orc::{Form, OrcTable};
use super::{BP, CodePointer, Edge, LINUX, Linear, SP, State, Step, Unwinder};
use crate::profile::{LoadedModule, OsProfile, Switched};

/// Most ORC entries of a loaded module.
const MAX_ENTRIES: u64 = 1 << 18;
/// Modules whose tables are kept after they are gone, so that records still get their names; past this only loaded ones are.
const MOST_KNOWN: usize = 1024;
/// Bytes of an ORC entry, and of its place.
const ORC: [u64; 2] = [6, 4];

/// The kernel's file, whose tables are read when a stack is first asked for.
pub struct KernelImage {
    plan: LoadPlan,
    name: Arc<str>,
    /// Addresses of functions, ascending.
    functions: Vec<u64>,
}

impl KernelImage {
    /// The kernel that `plan` loads and `symbols` names, called `name` in stacks.
    pub fn new(plan: &LoadPlan, symbols: &Symbols, name: &str) -> Self {
        let functions = symbols.functions().map(|symbol| symbol.addr).collect();
        Self { plan: plan.clone(), name: name.into(), functions }
    }

    /// Whether an address is in the kernel's image.
    fn holds(&self, address: u64) -> bool {
        self.plan.vaddr_to_paddr(address).is_some()
    }

    /// Where the function begins and ends that an address is in.
    fn function(&self, address: u64) -> Option<(u64, u64)> {
        let next = self.functions.partition_point(|function| *function <= address);
        let begin = self.functions.get(next.checked_sub(1)?)?;
        Some((*begin, *self.functions.get(next)?))
    }

    fn is_code(&self, address: u64) -> bool {
        self.plan.is_executable(address) == Some(true)
    }

    fn tables(&self) -> Kernel {
        let cfi = Cfi::from_elf(&self.plan.image);
        let Some(sections) = OrcSections::of(&self.plan) else {
            return Kernel { orc: OrcTable::default(), cfi, form: None, is_unknown: false };
        };
        let btf = Btf::from_vmlinux(&self.plan.image).ok().flatten();
        let form = Form::of(btf.as_ref(), &sections.entries);
        let orc = form.map(|form| OrcTable::new(&sections.ips, sections.at, &sections.entries, form));
        Kernel { orc: orc.unwrap_or_default(), cfi, form, is_unknown: form.is_none() }
    }
}

/// Whether a kernel with these types has ORC in a form that is not known: then its stacks end at the first frame.
pub fn has_unknown_orc(plan: &LoadPlan, btf: Option<&Btf>) -> bool {
    OrcSections::of(plan).is_some_and(|sections| Form::of(btf, &sections.entries).is_none())
}

/// The content of `.orc_unwind_ip`, which is loaded at an address, and of `.orc_unwind`.
struct OrcSections {
    at: u64,
    ips: Vec<u8>,
    entries: Vec<u8>,
}

impl OrcSections {
    /// Those of a kernel; `None` if it has none.
    fn of(plan: &LoadPlan) -> Option<Self> {
        let section = |name: &str| {
            let section = plan.sections.iter().find(|section| section.name == name)?;
            let bytes = plan.bytes_at(section.vaddr, usize::try_from(section.size).ok()?)?;
            Some((section.vaddr, bytes))
        };
        let ((at, ips), (_, entries)) = section(".orc_unwind_ip").zip(section(".orc_unwind"))?;
        Some(Self { at, ips, entries })
    }
}

/// A frame of the kernel's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFrame {
    /// Instruction pointer or return address.
    pub ip: u64,
    /// Whether the instruction at `ip` is about to run: it was interrupted, and is not the target of a return.
    pub exact: bool,
    /// The stack pointer there, if known: after the return address that leads there.
    pub sp: Option<u64>,
}

impl KernelFrame {
    /// Its address, as it is looked up.
    pub fn pointer(self) -> CodePointer {
        CodePointer::of(self.ip, self.exact)
    }
}

impl State {
    fn kernel_frame(&self) -> KernelFrame {
        KernelFrame { ip: self.ip, exact: self.exact, sp: self.sp() }
    }
}

/// The kernel's unwind tables.
pub(super) struct Kernel {
    orc: OrcTable,
    cfi: Option<Cfi>,
    form: Option<Form>,
    /// Whether there are entries in no form that is known. A kernel with ORC has no frame pointers to follow.
    is_unknown: bool,
}

/// A kernel module that was met on a stack.
pub(super) struct KnownModule {
    loaded: LoadedModule,
    symbols: Symbols,
    orc: OrcTable,
}

impl KnownModule {
    /// Where the function begins and ends that an address is in.
    fn function(&self, address: u64) -> Option<(u64, u64)> {
        let at = self.symbols.at(address)?;
        Some((at.symbol.addr, at.symbol.addr.checked_add(at.symbol.size)?))
    }
}

impl Unwinder {
    /// Where the kernel's tables say that code is not called by code of the kernel; in the order of the addresses.
    pub fn edges(&mut self) -> Vec<(Range<u64>, Edge)> {
        let Some(image) = &self.image else { return Vec::new() };
        self.kernel.get_or_insert_with(|| image.tables()).orc.edges()
    }

    /// The instruction pointer in the kernel, then the return addresses above it, innermost first: `most` at most.
    /// Interrupts and exceptions are followed to the interrupted code. Empty in user mode. `at_call` says that the
    /// stack pointer is known to be at the return address.
    pub fn kernel_stack(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        at_call: bool,
        most: usize,
    ) -> Vec<KernelFrame> {
        if core.env().cpl() == 3 {
            return Vec::new();
        }
        self.kernel_walk(core, profile, at_call, most).iter().map(State::kernel_frame).collect()
    }

    /// The same, with the known registers of each frame; in the kernel only.
    pub(super) fn kernel_walk(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        at_call: bool,
        most: usize,
    ) -> Vec<State> {
        let memory = Linear::current(core, core.env().long_mode());
        let hints = Hints { at_call, ..self.hints(core, profile) };
        self.walk(profile, &memory, State::of(core), hints, most)
    }

    /// The stack of a task that does not run, from where it continues; innermost first, `most` at most.
    pub fn switched_stack(
        &mut self,
        core: &Core,
        profile: &dyn OsProfile,
        at: Switched,
        most: usize,
    ) -> Vec<KernelFrame> {
        self.switched_walk(core, profile, at, most).iter().map(State::kernel_frame).collect()
    }

    /// The same, with the known registers of each frame.
    pub(super) fn switched_walk(
        &mut self,
        core: &Core,
        profile: &dyn OsProfile,
        at: Switched,
        most: usize,
    ) -> Vec<State> {
        let wide = core.env().long_mode();
        let mut state = State::new([0; 16], at.ip);
        state.gpr = [None; 16];
        (state.gpr[SP], state.gpr[BP], state.exact) = (Some(at.sp), Some(at.bp), false);
        let hints = self.hints(core, Some(profile));
        self.walk(Some(profile), &Linear::flat(core, wide), state, hints, most)
    }

    fn hints(&self, core: &Core, profile: Option<&dyn OsProfile>) -> Hints {
        let encoded = profile.is_some_and(|profile| profile.system() == LINUX);
        let cs = core.env().seg(Seg::Cs).selector & 0xfffc;
        Hints { encoded, cs: cs.into(), ..Hints::default() }
    }

    fn walk(
        &mut self,
        profile: Option<&dyn OsProfile>,
        memory: &Linear<'_>,
        mut state: State,
        mut hints: Hints,
        most: usize,
    ) -> Vec<State> {
        if most == 0 {
            return Vec::new();
        }
        let mut found = vec![state.clone()];
        while found.len() < most {
            let before = state.sp();
            let (step, known) = self.kernel_step(profile, memory, &mut state, hints);
            if step != Step::Caller || !state.goes_on(before) {
                break;
            }
            // A frame pointer may lead anywhere, such as one left by user mode.
            if !known && !self.is_kernel_code(memory.core, profile, state.within()) {
                break;
            }
            found.push(state.clone());
            hints.at_call = false;
        }
        found
    }

    /// Goes to the caller, and says whether by a table.
    fn kernel_step(
        &mut self,
        profile: Option<&dyn OsProfile>,
        memory: &Linear<'_>,
        state: &mut State,
        mut hints: Hints,
    ) -> (Step, bool) {
        let at = state.within();
        if let Some(image) = self.image.as_ref().filter(|image| image.is_code(at)) {
            let kernel = self.kernel.get_or_insert_with(|| image.tables());
            if let Some(entry) = kernel.orc.find(at) {
                return (entry.step(memory, state), true);
            }
            if let Some(step) = kernel.cfi.as_mut().and_then(|cfi| cfi.step(memory, state, 0)) {
                return (step, true);
            }
            if kernel.is_unknown {
                return (Step::Lost, true);
            }
            hints.at_call |= state.exact && image.functions.binary_search(&state.ip).is_ok();
            hints.function = image.function(at);
        } else if let Some(module) = self.module(memory.core, profile, at) {
            if let Some(entry) = module.orc.find(at) {
                return (entry.step(memory, state), true);
            }
            hints.function = module.function(at);
            if self.kernel.as_ref().is_some_and(|kernel| kernel.is_unknown) {
                return (Step::Lost, true);
            }
        }
        (frame::step(memory, state, hints), false)
    }

    fn is_kernel_code(&mut self, core: &Core, profile: Option<&dyn OsProfile>, address: u64) -> bool {
        let Some(image) = &self.image else { return true };
        image.is_code(address) || self.module(core, profile, address).is_some()
    }

    /// The kernel or the kernel module that an address is in, and where that begins: 0 for the kernel.
    pub fn kernel_module(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        address: u64,
    ) -> Option<(Arc<str>, u64)> {
        if let Some(image) = self.image.as_ref().filter(|image| image.holds(address)) {
            return Some((Arc::clone(&image.name), 0));
        }
        let module = self.module(core, profile, address)?;
        Some((module.loaded.name.as_str().into(), module.loaded.base))
    }

    /// The symbol that holds a byte of a kernel module that was met on a stack, and the offset in it.
    pub fn module_symbol(&self, name: &str, offset: u64) -> Option<(String, u64)> {
        let module = self.modules.get(name)?;
        let at = module.symbols.at(module.loaded.base.wrapping_add(offset))?;
        Some((at.symbol.name.to_string(), at.offset))
    }

    /// The loaded module that an address is in. Its tables are read again if it was reloaded.
    fn module(&mut self, core: &Core, profile: Option<&dyn OsProfile>, address: u64) -> Option<&KnownModule> {
        let profile = profile?;
        let loaded = profile.module_at(core, address)?;
        let name = loaded.name.clone();
        if self.modules.get(&name).is_none_or(|known| known.loaded != loaded) {
            let form = match (&self.image, &mut self.kernel) {
                (Some(image), kernel) => kernel.get_or_insert_with(|| image.tables()).form,
                (None, _) => None,
            };
            let orc = form.and_then(|form| module_table(core, &loaded, form)).unwrap_or_default();
            let symbols = profile.module_symbols(core, &name);
            if self.modules.len() >= MOST_KNOWN && !self.modules.contains_key(&name) {
                let loaded = profile.modules(core);
                self.modules.retain(|name, _| loaded.iter().any(|module| module.name == *name));
            }
            self.modules.insert(name.clone(), KnownModule { loaded, symbols, orc });
        }
        self.modules.get(&name)
    }
}

/// A loaded module's table, which Linux has sorted.
fn module_table(core: &Core, module: &LoadedModule, form: Form) -> Option<OrcTable> {
    let (ips, entries, count) = module.orc.filter(|(.., count)| *count <= MAX_ENTRIES)?;
    let read = |at: u64, size: u64| {
        let mut bytes = vec![0; usize::try_from(count * size).ok()?];
        core.peek(at, &mut bytes).ok()?;
        Some(bytes)
    };
    let [entry, place] = ORC;
    Some(OrcTable::new(&read(ips, place)?, ips, &read(entries, entry)?, form))
}
