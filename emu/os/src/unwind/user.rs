//! A program's stack: by the call frame information of the program and its libraries, else by frame pointers.

use std::collections::BTreeMap;
use std::sync::Arc;

use trapline_emu::Core;
use trapline_emu::symbols::UserModule;

use super::cfi::Cfi;
use super::frame::{self, Hints};
use super::{CodePointer, KernelImage, LINUX, Linear, State, Step, Unwinder};
use crate::profile::{Mapping, OsProfile, UserRegisters};

/// Finds the guest's file at a path.
pub type FindProgram = Box<dyn Fn(&str) -> Option<Arc<UserModule>> + Send>;

/// Largest piece of memory without a file that is taken for an ELF image, bytes.
const MAX_IMAGE: u64 = 0x1_0000;

/// Paths that are remembered, of files and of what is no file: a guest can map new ones without end.
const MOST_KNOWN: usize = 4096;

/// The selector of 32-bit code of programs under a 64-bit Linux (__USER32_CS).
const CS32: u16 = 0x23;

/// A frame of a program's stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFrame {
    /// Instruction pointer or return address.
    pub ip: u64,
    /// Whether the instruction at `ip` is about to run.
    pub exact: bool,
    /// The stack pointer there, if known.
    pub sp: Option<u64>,
    /// The path of the file that is mapped there, and the address that the file's offset 0 would have.
    pub file: Option<(Arc<str>, u64)>,
}

impl UserFrame {
    /// Its address, as it is looked up.
    pub fn pointer(&self) -> CodePointer {
        CodePointer::of(self.ip, self.exact)
    }
}

/// A file that code of a program was in.
struct Program {
    module: Arc<UserModule>,
    cfi: Option<Cfi>,
}

/// The known files.
pub(super) struct Programs {
    find: FindProgram,
    /// Programs that are where they are linked, for a system whose profile knows no mappings.
    fixed: Vec<Arc<UserModule>>,
    known: BTreeMap<String, Option<Program>>,
}

impl Programs {
    fn get(&mut self, path: &str) -> Option<&mut Program> {
        if !self.known.contains_key(path) {
            // They are found again where they are needed again.
            if self.known.len() >= MOST_KNOWN {
                self.known.clear();
            }
            let load = |module: Arc<UserModule>| Program { cfi: Cfi::from_elf(module.bytes()), module };
            self.known.insert(path.to_owned(), (self.find)(path).map(load));
        }
        self.known.get_mut(path)?.as_mut()
    }
}

/// What a process has mapped.
struct Space {
    mappings: Vec<Mapping>,
}

impl Space {
    /// The mappings in the profile, else the files at their linked addresses.
    fn of(core: &Core, profile: Option<&dyn OsProfile>, fixed: &[Arc<UserModule>]) -> Self {
        let said = profile.map(|profile| profile.mappings(core, profile.current_task(core)));
        let mut mappings = said.unwrap_or_default();
        if mappings.is_empty() && !is_linux(profile) {
            let linked = fixed.iter().flat_map(|module| {
                module.segments().iter().map(|segment| Mapping {
                    start: segment.vaddr,
                    end: segment.vaddr.saturating_add(segment.mem_size),
                    offset: segment.offset,
                    readable: true,
                    writable: false,
                    executable: segment.executable,
                    shared: false,
                    path: module.name().to_owned(),
                })
            });
            mappings.extend(linked);
        }
        Self { mappings }
    }

    /// Only what can be run.
    fn executable(mut self) -> Self {
        self.mappings.retain(|mapping| mapping.executable);
        self
    }

    fn at(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))
    }

    /// The file at an address and where its offset 0 would be.
    fn file(&self, address: u64) -> Option<(&str, u64)> {
        let mapping = self.at(address).filter(|mapping| !mapping.path.is_empty())?;
        Some((&mapping.path, mapping.start.wrapping_sub(mapping.offset)))
    }
}

/// What an address of code lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePlace {
    /// Whether it is a file that the current process has mapped. Otherwise it is the kernel or one of its modules.
    pub user: bool,
    /// The kernel, a kernel module, or the file's path.
    pub module: Arc<str>,
    /// What an address in the module is subtracted from: 0 for the kernel, the load address of a kernel module, the
    /// address that the file's offset 0 would have.
    pub base: u64,
}

impl Unwinder {
    /// What an address of code lies in now: in the kernel, in a module that it has loaded, or in a file that the current
    /// process has mapped.
    pub fn place(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        pointer: CodePointer,
    ) -> Option<CodePlace> {
        let address = pointer.within();
        if let Some((module, base)) = self.kernel_module(core, profile, address) {
            return Some(CodePlace { user: false, module, base });
        }
        let space = Space::of(core, profile, &self.programs.fixed);
        let (path, base) = space.file(address)?;
        Some(CodePlace { user: true, module: path.into(), base })
    }

    /// An unwinder that reads the tables of the kernel `image`, and of the files that `find` finds by their paths;
    /// `fixed` are the programs that are where they are linked, for a system whose profile knows no mappings.
    pub fn new(image: Option<KernelImage>, find: FindProgram, fixed: Vec<Arc<UserModule>>) -> Self {
        let programs = Programs { find, fixed, known: BTreeMap::new() };
        Self { image, kernel: None, modules: BTreeMap::new(), programs }
    }

    /// The stack of the current process: its current instruction, or the one where it will continue, and the return
    /// addresses above that, innermost first, `most` at most. Empty for a kernel thread. `at_call` says that in user
    /// mode the stack pointer is known to be at the return address.
    pub fn user_stack(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        at_call: bool,
        most: usize,
    ) -> Vec<UserFrame> {
        let space = Space::of(core, profile, &self.programs.fixed).executable();
        let frame = |state: State| {
            let file = space.file(state.within()).map(|(path, base)| (Arc::from(path), base));
            UserFrame { ip: state.ip, exact: state.exact, sp: state.sp(), file }
        };
        self.user_walk(core, profile, &space, at_call, most).into_iter().map(frame).collect()
    }

    /// The same, with the known registers of each frame.
    pub(super) fn user_states(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        most: usize,
    ) -> Vec<State> {
        let space = Space::of(core, profile, &self.programs.fixed).executable();
        self.user_walk(core, profile, &space, false, most)
    }

    fn user_walk(
        &mut self,
        core: &Core,
        profile: Option<&dyn OsProfile>,
        space: &Space,
        at_call: bool,
        most: usize,
    ) -> Vec<State> {
        let mut found = Vec::new();
        let Some((mut state, wide)) = registers(core, profile).filter(|_| most > 0) else {
            return found;
        };
        let in_user_mode = core.env().cpl() == 3;
        let memory = if in_user_mode { Linear::current(core, wide) } else { Linear::flat(core, wide) };
        let mut hints = Hints { at_call: at_call && in_user_mode, ..Hints::default() };
        found.push(state.clone());
        while found.len() < most {
            let before = state.sp();
            let (step, known) = self.user_step(space, &memory, &mut state, hints);
            if step != Step::Caller || !state.goes_on(before) {
                break;
            }
            // A frame pointer may lead anywhere; a table is the program's own statement.
            if !known && !space.mappings.is_empty() && space.at(state.within()).is_none() {
                break;
            }
            found.push(state.clone());
            hints.at_call = false;
        }
        found
    }

    /// Goes to the caller, and says whether by a table.
    fn user_step(
        &mut self,
        space: &Space,
        memory: &Linear<'_>,
        state: &mut State,
        hints: Hints,
    ) -> (Step, bool) {
        let file = space.file(state.within());
        if let Some((path, base)) = file
            && let Some(program) = self.programs.get(path)
            && let Some(cfi) = program.cfi.as_mut().filter(|cfi| cfi.wide() == memory.wide)
            && let Some(linked) = program.module.offset_to_vaddr(state.within().wrapping_sub(base))
            && let Some(step) = cfi.step(memory, state, state.within().wrapping_sub(linked))
        {
            return (step, true);
        }
        if let Some((start, mut cfi)) = image(space, memory, state.within())
            && let Some(step) = cfi.step(memory, state, start)
        {
            return (step, true);
        }
        (frame::step(memory, state, hints), false)
    }
}

/// The tables of an ELF image without a file, such as the vDSO that the kernel maps into each process, and its address.
/// Only pages that the process has touched can be read.
fn image(space: &Space, memory: &Linear<'_>, at: u64) -> Option<(u64, Cfi)> {
    let mapping = space.at(at).filter(|mapping| mapping.path.is_empty())?;
    let size = (mapping.end - mapping.start).min(MAX_IMAGE);
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    let read = memory.core.peek_prefix(mapping.start, &mut bytes);
    bytes.truncate(read);
    // Its sections may lie in a page that was not touched: e_shoff, and e_shnum with e_shstrndx.
    let (offset, counts) = if memory.wide { (0x28..0x30, 0x3c..0x40) } else { (0x20..0x24, 0x30..0x34) };
    bytes.get_mut(offset)?.fill(0);
    bytes.get_mut(counts)?.fill(0);
    let cfi = Cfi::from_elf(&bytes).filter(|cfi| cfi.wide() == memory.wide)?;
    Some((mapping.start, cfi))
}

/// The registers of the current process, and whether it runs 64-bit code.
fn registers(core: &Core, profile: Option<&dyn OsProfile>) -> Option<(State, bool)> {
    let env = core.env();
    if env.cpl() == 3 {
        return Some((State::of(core), env.code64()));
    }
    let found = match profile {
        Some(profile) => profile.user_registers(core)?,
        None => UserRegisters::noted(core)?,
    };
    let narrow = is_linux(profile) && found.cs == CS32;
    Some((State::new(found.gpr, found.ip), env.long_mode() && !narrow))
}

/// Whether it is Linux, whose profile knows what a process has mapped.
fn is_linux(profile: Option<&dyn OsProfile>) -> bool {
    profile.is_some_and(|profile| profile.system() == LINUX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_maps_ever_new_files_fills_no_table() {
        let mut programs = Programs { find: Box::new(|_| None), fixed: Vec::new(), known: BTreeMap::new() };
        for n in 0..3 * MOST_KNOWN {
            assert!(programs.get(&format!("/tmp/{n}")).is_none());
            assert!(programs.known.len() <= MOST_KNOWN);
        }
    }
}
