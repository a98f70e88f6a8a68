//! The profile of Trapline's own guests, found through the symbol `trapline_os_info`.
//!
//! The structure is described in `guest-images/src-guest/include/trapos.h`. It is a constant, so it is read once, from
//! the image; the data it points to is read from guest memory at each query. The kernel's own variables have a fixed
//! place in RAM and are read there, so that they can be read before the guest has turned paging on.

use trapline_emu::Core;
use trapline_emu::load::LoadPlan;
use trapline_emu::symbols::Symbols;

use crate::profile::{Birth, Module, ModuleKind, OsProfile, Task};

/// The symbol that marks the guest.
const SYMBOL: &str = "trapline_os_info";
const MAGIC: &[u8; 8] = b"TRAPOS1\0";
/// Bytes of the structure.
const INFO_SIZE: usize = 80;
/// Bytes of a module entry that are read.
const MODULE_SIZE: usize = 48;
/// Bytes of a module's name.
const MODULE_NAME: usize = 24;
/// Largest offset within a task descriptor.
const MAX_OFFSET: u32 = 0x1000;
/// Longest task name.
const MAX_COMM: u32 = 64;
/// Most entries of the module array.
const MAX_MODULES: u32 = 1024;
/// Most tasks that a walk of the list visits; a list that is longer, or circular, ends there.
const MAX_TASKS: usize = 4096;

/// Why an image has no such profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrapOsError {
    /// Another system.
    #[error("the image has no symbol {SYMBOL}, so it is not one of Trapline's own guests")]
    NoSymbol,
    /// The symbol lies outside the image.
    #[error("{SYMBOL} at {address:#x} does not lie in the image with its {INFO_SIZE} bytes")]
    Outside {
        /// Its address.
        address: u64,
    },
    /// It is not the structure, or has another version.
    #[error("{SYMBOL} at {address:#x} does not begin with \"TRAPOS1\"")]
    Magic {
        /// Its address.
        address: u64,
    },
    /// A field with an invalid value.
    #[error("the field {field} of {SYMBOL} is {value}; it must be {wanted}")]
    Field {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The valid values.
        wanted: &'static str,
    },
}

/// The structure, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    word: usize,
    pid: u64,
    uid: u64,
    comm: u64,
    comm_size: usize,
    next: u64,
    current_task: u64,
    task_list: u64,
    modules: u64,
    module_slots: u64,
    module_stride: u64,
}

/// A piece of the image that stays where it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fixed {
    vaddr: u64,
    paddr: u64,
    size: u64,
}

/// Reads tasks and modules of the embedded guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrapOs {
    layout: Layout,
    fixed: Vec<Fixed>,
}

impl TrapOs {
    /// The profile of the kernel that `plan` loads and `symbols` names.
    ///
    /// # Errors
    /// The image is not such a guest, or its description is invalid.
    pub fn find(plan: &LoadPlan, symbols: &Symbols) -> Result<Self, TrapOsError> {
        let address = symbols.sole(SYMBOL).ok_or(TrapOsError::NoSymbol)?.addr;
        let info = plan.bytes_at(address, INFO_SIZE).ok_or(TrapOsError::Outside { address })?;
        if !info.starts_with(MAGIC) {
            return Err(TrapOsError::Magic { address });
        }
        let fixed = plan
            .segments
            .iter()
            .map(|segment| Fixed { vaddr: segment.vaddr, paddr: segment.paddr, size: segment.mem_size })
            .collect();
        Ok(Self { layout: Layout::parse(&info)?, fixed })
    }

    /// NOFAULT read of guest memory; false when not all of it can be read.
    fn read(&self, core: &Core, va: u64, to: &mut [u8]) -> bool {
        let len = to.len() as u64;
        for fixed in &self.fixed {
            if let Some(offset) = va.checked_sub(fixed.vaddr)
                && offset.checked_add(len).is_some_and(|end| end <= fixed.size)
            {
                return core.ram().read(fixed.paddr + offset, to);
            }
        }
        core.peek(va, to).is_ok()
    }

    fn u32_at(&self, core: &Core, va: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(core, va, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// The pointer at `va`; `None` when it cannot be read or is null.
    fn pointer_at(&self, core: &Core, va: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let read = self.read(core, va, bytes.get_mut(..self.layout.word)?);
        let pointer = u64::from_le_bytes(bytes);
        (read && pointer != 0).then_some(pointer)
    }

    /// A field of the current task.
    fn current_u32(&self, core: &Core, offset: u64) -> u32 {
        self.pointer_at(core, self.layout.current_task)
            .and_then(|task| self.u32_at(core, task.wrapping_add(offset)))
            .unwrap_or(0)
    }

    /// Appends the name of the task at `task`.
    fn comm_into(&self, core: &Core, task: u64, to: &mut Vec<u8>) -> Option<()> {
        let mut comm = [0; MAX_COMM as usize];
        let comm = comm.get_mut(..self.layout.comm_size)?;
        if !self.read(core, task.wrapping_add(self.layout.comm), comm) {
            return None;
        }
        to.extend_from_slice(until_nul(comm));
        Some(())
    }

    fn task_at(&self, core: &Core, task: u64) -> Option<Task> {
        let pid = self.u32_at(core, task.wrapping_add(self.layout.pid))?;
        let uid = self.u32_at(core, task.wrapping_add(self.layout.uid))?;
        let mut name = Vec::new();
        self.comm_into(core, task, &mut name)?;
        Some(Task { task, pid, tgid: pid, uid, name: String::from_utf8_lossy(&name).into_owned() })
    }

    fn module_at(&self, core: &Core, va: u64) -> Option<Module> {
        let mut entry = [0; MODULE_SIZE];
        if !self.read(core, va, &mut entry) {
            return None;
        }
        let kind = match u32_in(&entry, 40) {
            1 => ModuleKind::Kernel,
            2 => ModuleKind::User,
            _ => return None,
        };
        let name = String::from_utf8_lossy(until_nul(entry.get(..MODULE_NAME)?)).into_owned();
        Some(Module { name, base: u64_in(&entry, 24), size: u64_in(&entry, 32), kind })
    }
}

impl OsProfile for TrapOs {
    fn system(&self) -> &'static str {
        "trapos"
    }

    fn current_task(&self, core: &Core) -> u64 {
        self.pointer_at(core, self.layout.current_task).unwrap_or(0)
    }

    fn pid(&self, core: &Core) -> u32 {
        self.current_u32(core, self.layout.pid)
    }

    fn birth(&self, core: &Core, task: u64) -> Birth {
        let pid = self.u32_at(core, task.wrapping_add(self.layout.pid)).unwrap_or(0);
        Birth { pid, tgid: pid, start: 0 }
    }

    fn uid(&self, core: &Core) -> u32 {
        self.current_u32(core, self.layout.uid)
    }

    fn name_into(&self, core: &Core, to: &mut Vec<u8>) {
        if let Some(task) = self.pointer_at(core, self.layout.current_task) {
            // A name that cannot be read is empty.
            let _ = self.comm_into(core, task, to);
        }
    }

    fn tasks(&self, core: &Core) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut next = self.pointer_at(core, self.layout.task_list);
        while let Some(at) = next.filter(|_| tasks.len() < MAX_TASKS) {
            let Some(task) = self.task_at(core, at) else { break };
            tasks.push(task);
            next = self.pointer_at(core, at.wrapping_add(self.layout.next));
        }
        tasks
    }

    fn modules(&self, core: &Core) -> Vec<Module> {
        let layout = &self.layout;
        (0..layout.module_slots)
            .filter_map(|slot| self.module_at(core, layout.modules.wrapping_add(slot * layout.module_stride)))
            .collect()
    }
}

impl Layout {
    fn parse(info: &[u8]) -> Result<Self, TrapOsError> {
        let field = |name, at, low: u32, high: u32, wanted| {
            let value = u32_in(info, at);
            if (low..=high).contains(&value) {
                Ok(value)
            } else {
                Err(TrapOsError::Field { field: name, value, wanted })
            }
        };
        let offset = |name, at| field(name, at, 0, MAX_OFFSET, "0 to 4096").map(u64::from);
        field("size", 8, INFO_SIZE as u32, u32::MAX, "at least 80")?;
        let word = field("word_size", 12, 4, 8, "4 or 8")?;
        if word != 4 && word != 8 {
            return Err(TrapOsError::Field { field: "word_size", value: word, wanted: "4 or 8" });
        }
        Ok(Self {
            word: word as usize,
            pid: offset("task_pid", 16)?,
            uid: offset("task_uid", 20)?,
            comm: offset("task_comm", 24)?,
            comm_size: field("comm_size", 28, 1, MAX_COMM, "1 to 64")? as usize,
            next: offset("task_next", 36)?,
            current_task: u64_in(info, 40),
            task_list: u64_in(info, 48),
            modules: u64_in(info, 56),
            module_slots: field("module_slots", 64, 0, MAX_MODULES, "0 to 1024")?.into(),
            module_stride: field("module_stride", 68, MODULE_SIZE as u32, MAX_OFFSET, "48 to 4096")?.into(),
        })
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The integer at `at`, 0 beyond the end.
fn u32_in(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

/// The integer at `at`, 0 beyond the end.
fn u64_in(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |eight| u64::from_le_bytes(*eight))
}

#[cfg(test)]
#[path = "trapos_tests.rs"]
mod tests;
