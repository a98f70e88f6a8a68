//! What the views need to know of a Linux kernel: where its current task is, and where members lie in its structures.

use std::collections::BTreeMap;

use trapline_emu::Core;
use trapline_emu::load::Width;
use trapline_emu::symbols::{Btf, Parameter, Symbol};
use trapline_interposer::Place;
use trapline_os::Linux;

use super::table::ROWS;
use crate::target::{Abi, Target};

/// A Linux kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Width of its words.
    pub width: Width,
    /// Addresses of the current task in its per-CPU data, and of the distance of those.
    current: Option<(u64, u64)>,
    /// Offsets in `task_struct` of the id of a thread and of that of its process.
    ids: Option<(u64, u64)>,
    /// Offset in `task_struct` of the flag that a system call of 32 bits runs.
    pub compat_status: Option<u64>,
    /// Offset of `filename` in `struct linux_binprm`.
    pub program_path: Option<u64>,
    /// The types of the parameters of the table's functions, if the kernel has BTF.
    parameters: BTreeMap<&'static str, Vec<String>>,
    /// Name of the kernel, as probes have it.
    pub name: std::sync::Arc<str>,
}

impl Kernel {
    /// The kernel of the target, if it is Linux.
    pub fn new(target: &Target) -> Option<Self> {
        let plan = target.image().plan();
        plan.linux.as_ref()?;
        let symbols = target.symbols();
        let address = |name: &str| symbols.sole(name).map(|symbol| symbol.addr);
        let btf = Btf::from_vmlinux(&plan.image).ok().flatten();
        let profile = Linux::find(plan, symbols, btf.as_ref()).ok();
        let offset = |name: &str, path: &str| Some(btf.as_ref()?.member(name, path)?.offset());
        let named = ROWS.iter().flat_map(|row| row.at).map(|at| at.function());
        let parameters = |name| Some((name, btf.as_ref()?.parameters(name)?));
        let types = |(name, all): (_, Vec<Parameter>)| (name, all.into_iter().map(|p| p.type_name).collect());
        Some(Self {
            width: plan.width,
            current: profile
                .as_ref()
                .map(Linux::current_addresses)
                .or_else(|| address("current_task").zip(address("__per_cpu_offset"))),
            ids: profile.as_ref().map(Linux::id_offsets),
            compat_status: offset("task_struct", "thread_info.status"),
            program_path: offset("linux_binprm", "filename"),
            parameters: named.filter_map(parameters).map(types).collect(),
            name: target.kernel_name().into(),
        })
    }

    /// The type of a parameter of one of the table's functions: `None` if the types are unknown, an empty one if there is
    /// no such parameter.
    pub fn parameter(&self, function: &str, n: u8) -> Option<&str> {
        // Functions in assembly are described without parameters.
        let all = self.parameters.get(function).filter(|all| !all.is_empty())?;
        Some(all.get(usize::from(n)).map_or("", String::as_str))
    }

    /// Bytes of a word.
    pub fn word(&self) -> u64 {
        u64::from(self.width.bits() / 8)
    }

    /// The calling convention of its functions.
    pub fn abi(&self) -> Abi {
        if self.width == Width::Bits64 { Abi::SysV } else { Abi::Regparm }
    }

    /// Offsets of the ids of a thread and of its process in its task.
    pub fn ids(&self) -> Option<(u64, u64)> {
        self.ids
    }

    /// Whether the current task can be found.
    pub fn has_current(&self) -> bool {
        self.current.is_some()
    }

    /// The current task.
    pub fn current(&self, core: &Core) -> Option<u64> {
        let (task, distance) = self.current?;
        self.read(core, task.wrapping_add(self.read(core, distance)?))
    }

    /// The word at an address.
    pub fn read(&self, core: &Core, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let at = at & self.width.max_addr();
        core.peek(at, bytes.get_mut(..self.word() as usize)?).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The 32 bits at an address.
    pub fn read_u32(&self, core: &Core, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        core.peek(at & self.width.max_addr(), &mut bytes).ok()?;
        Some(u32::from_le_bytes(bytes))
    }
}

/// The place of a probe at a linear address of the kernel, and the byte there.
pub fn place(target: &Target, linear: u64) -> Option<(Place, u8)> {
    let plan = target.image().plan();
    let place = Place::Kernel { linear, paddr: plan.vaddr_to_paddr(linear)? };
    Some((place, plan.bytes_at(linear, 1)?.first().copied()?))
}

/// A function by its name, or by the name that the compiler has given to a copy of it, such as `NAME.isra.0`.
pub fn function<'a>(target: &'a Target, name: &str) -> Option<&'a Symbol> {
    let own = target.symbols().sole(name).filter(|symbol| symbol.is_function());
    own.or_else(|| {
        let copy = |symbol: &&Symbol| {
            let rest = symbol.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
            symbol.is_function()
                && rest.is_some_and(|rest| rest.starts_with("isra.") || rest.starts_with("constprop."))
        };
        let mut copies = target.symbols().iter().filter(copy);
        let first = copies.next();
        first.filter(|_| copies.next().is_none())
    })
}
