//! Linux's data for stacks: where a task's user registers are saved, and which module contains code.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use trapline_emu::load::{LoadPlan, Width};
use trapline_emu::symbols::{Btf, Symbols};
use trapline_emu::{Core, Seg, UserContext};

use super::memory::Memory;
use super::modules::{Found, MAX_SYMBOLS, Memories};
use super::{Linux, listed};
use crate::profile::{LoadedModule, Module, Switched, UserRegisters};
use crate::unwind::{REGISTERS32, REGISTERS64};

/// Bytes of a kernel stack (THREAD_SIZE).
pub(super) const STACK: [u64; 2] = [0x2000, 0x4000];
/// Bytes between `struct pt_regs` and the end of the stack (TOP_OF_KERNEL_STACK_PADDING): on IA32 16 with CONFIG_VM86.
const PADDING: [&[u64]; 2] = [&[8, 16], &[0]];
/// Bytes of the stack on which the CPU enters a 64-bit kernel, and a 32-bit one, from user mode.
const ENTRY_STACK: u64 = 0x1000;
/// Bit 1 of EFLAGS, which is always set.
const ALWAYS: u64 = 2;
/// The flags that the kernel gives a program that it starts (`start_thread`): IF alone. The CPU adds the fixed one.
const STARTED: u64 = 0x200;
/// Flags of a task (include/linux/sched.h).
const PF_EXITING: u32 = 4;
const PF_KTHREAD: u32 = 0x20_0000;
/// Most bytes of `__switch_to_asm` that are decoded.
const SWITCH: u64 = 0x40;
/// Most modules visited.
const MAX_MODULES: usize = 4096;

/// Where `struct module` has its memory and its ORC tables, which the guest's data alone does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodeLayout {
    list: u64,
    name: u64,
    /// The pointer to all its symbols, those of its start among them while it is starting.
    kallsyms: u64,
    /// Bases and sizes of its parts, code first: the permanent part and that of its start, from 6.4 on more.
    parts: Vec<(u64, u64)>,
    /// `.orc_unwind_ip`, `.orc_unwind`, the number of entries.
    orc: Option<(u64, u64, u64)>,
}

impl CodeLayout {
    /// From BTF; `None` for a kernel that divides modules in another way than those that are known.
    pub(super) fn from_btf(btf: &Btf) -> Option<Self> {
        let at = |path: &str| btf.member("module", path).map(|member| member.offset());
        let orc = at("arch.orc_unwind_ip").zip(at("arch.orc_unwind")).zip(at("arch.num_orcs"));
        Some(Self {
            list: at("list")?,
            name: at("name")?,
            kallsyms: at("kallsyms")?,
            parts: match Memories::from_btf(btf) {
                Some(memories) => memories.places().collect(),
                None => vec![
                    (at("core_layout.base")?, at("core_layout.size")?),
                    (at("init_layout.base")?, at("init_layout.size")?),
                ],
            },
            orc: orc.map(|((ips, entries), count)| (ips, entries, count)),
        })
    }

    fn read(&self, memory: &Memory<'_>, at: u64) -> Option<LoadedModule> {
        let word = |offset: u64| memory.word(memory.add(at, offset));
        let mut ranges = Vec::new();
        for (base, size) in &self.parts {
            let (base, size) = (word(*base)?, memory.u32(memory.add(at, *size))?);
            if base != 0 && size != 0 {
                ranges.push(base..base.checked_add(size.into())?);
            }
        }
        let orc = self.orc.and_then(|(ips, entries, count)| {
            Some((word(ips)?, word(entries)?, u64::from(memory.u32(memory.add(at, count))?)))
        });
        let name = memory.text(memory.add(at, self.name), 56);
        let name = String::from_utf8_lossy(&name).into_owned();
        Some(LoadedModule { name, base: ranges.first()?.start, ranges, orc })
    }
}

/// Where a task that does not run has its registers: `struct inactive_task_frame` at `thread.sp`, with the return address
/// last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SwitchedLayout {
    sp: u64,
    bp: u64,
    back: u64,
}

impl SwitchedLayout {
    pub(super) fn from_btf(btf: &Btf) -> Option<Self> {
        let at = |name: &str, path: &str| btf.member(name, path).map(|member| member.offset());
        let frame = "inactive_task_frame";
        Some(Self { sp: at("task_struct", "thread.sp")?, bp: at(frame, "bp")?, back: at(frame, "ret_addr")? })
    }

    /// From the code of `__switch_to_asm`, which pushes registers, the frame pointer first, and then stores the stack
    /// pointer into the task.
    pub(super) fn from_code(plan: &LoadPlan, symbols: &Symbols) -> Option<Self> {
        let bits = plan.width.bits();
        let function = symbols.sole("__switch_to_asm")?;
        let bytes = plan.bytes_at(function.addr, usize::try_from(function.size.min(SWITCH)).ok()?)?;
        let mut pushed = Vec::new();
        for i in &mut Decoder::with_ip(bits, &bytes, function.addr, DecoderOptions::NONE) {
            let of_stack = |register: Register| register.full_register() == Register::RSP;
            match i.mnemonic() {
                Mnemonic::Push => pushed.push(i.op0_register().full_register()),
                Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq => pushed.push(Register::None),
                Mnemonic::Mov if i.op0_kind() == OpKind::Memory && of_stack(i.op1_register()) => {
                    let words = pushed.len() as u64;
                    let bp = pushed.iter().position(|register| *register == Register::RBP)? as u64;
                    let w = u64::from(bits / 8);
                    return Some(Self {
                        sp: i.memory_displacement64(),
                        bp: (words - 1 - bp) * w,
                        back: words * w,
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// `stack` is the task's, from its lowest address; a task that has ended has none, though its stack pointer stays.
    pub(super) fn read(&self, memory: &Memory<'_>, task: u64, stack: Range<u64>) -> Option<Switched> {
        let frame = memory.pointer(memory.add(task, self.sp)).filter(|frame| stack.contains(frame))?;
        Some(Switched {
            ip: memory.pointer(memory.add(frame, self.back))?,
            sp: memory.add(frame, self.back + memory.word_size()),
            bp: memory.word(memory.add(frame, self.bp))?,
        })
    }
}

impl Linux {
    /// The addresses of a task's kernel stack, which it has until it has ended.
    pub(super) fn stack_of(&self, memory: &Memory<'_>, task: u64) -> Option<Range<u64>> {
        let low = memory.pointer(memory.add(task, self.layout.task.stack?))?;
        Some(low..low.checked_add(STACK[usize::from(self.map.width == Width::Bits64)])?)
    }

    /// As `OsProfile::module_at`.
    pub(super) fn loaded_module(&self, core: &Core, va: u64) -> Option<LoadedModule> {
        let (memory, head) = self.memory(core).zip(self.modules_head)?;
        let Some(code) = &self.code else {
            let all = self.module.list(&memory, head).into_iter();
            let loaded = |found: Found| {
                let Module { name, base, .. } = found.module;
                LoadedModule { name, base, ranges: found.ranges, orc: None }
            };
            return all.map(loaded).find(|module| module.holds(va));
        };
        let all = listed(&memory, head, code.list, MAX_MODULES).into_iter();
        // A cheap check of the two ranges comes first: there are many modules, and every hit does this.
        let holds = |at: u64| {
            code.parts.iter().any(|(base, size)| {
                let base = memory.word(memory.add(at, *base));
                let into = base.and_then(|base| va.checked_sub(base));
                into.zip(memory.u32(memory.add(at, *size))).is_some_and(|(into, size)| into < size.into())
            })
        };
        all.filter(|at| holds(*at)).find_map(|at| code.read(&memory, at))
    }

    /// As `OsProfile::module_symbols`.
    pub(super) fn loaded_symbols(&self, core: &Core, name: &str) -> Symbols {
        let none = || Symbols::new(name);
        let Some((memory, head)) = self.memory(core).zip(self.modules_head) else { return none() };
        let found = self.module.list(&memory, head).into_iter().find(|found| found.module.name == name);
        let Some(found) = found else { return none() };
        let mut budget = MAX_SYMBOLS;
        let all = self.code.as_ref().and_then(|code| memory.pointer(memory.add(found.at, code.kallsyms)));
        let all = all.and_then(|all| self.module.symbols(&memory, &found.module, all, &mut budget));
        all.unwrap_or_else(|| self.module.details(&memory, &found, &mut budget).symbols)
    }

    /// As `OsProfile::user_registers`: the `struct pt_regs` at the end of the task's kernel stack, but while the kernel
    /// has only just been entered and is about to fill it in.
    pub(super) fn saved_registers(&self, core: &Core) -> Option<UserRegisters> {
        let (memory, task) = self.now(core)?;
        self.saved(core, &memory, task, pt_regs, || UserRegisters::noted(core))
    }

    /// As `OsProfile::user_context`. All tasks of Linux enter the kernel on one stack of the CPU's, so the machine's note
    /// is of the task that entered it last. It is the current task's if it agrees with what the kernel has saved.
    pub(super) fn saved_context(&self, core: &Core) -> Option<UserContext> {
        let (memory, task) = self.now(core)?;
        let noted = || core.user_context().copied();
        self.saved(core, &memory, task, |memory, at| context(core, memory, at), noted)
    }

    /// Whether a task has been in user mode: one that exits gives its memory back before it ends.
    fn has_user_mode(&self, memory: &Memory<'_>, task: u64) -> bool {
        let flags = memory.u32(memory.add(task, self.layout.task.flags)).unwrap_or(0);
        self.mm(memory, task).is_some() || flags & (PF_EXITING | PF_KTHREAD) == PF_EXITING
    }

    /// What `read` finds in the `struct pt_regs` at the end of the stack of a task with user mode; what is `noted` while
    /// the kernel has only just been entered.
    fn saved<T>(
        &self,
        core: &Core,
        memory: &Memory<'_>,
        task: u64,
        read: impl Fn(&Memory<'_>, u64) -> Option<T>,
        noted: impl Fn() -> Option<T>,
    ) -> Option<T> {
        self.has_user_mode(memory, task).then_some(())?;
        let wide = self.map.width == Width::Bits64;
        let stack = memory.pointer(memory.add(task, self.layout.task.stack?))?;
        let end = memory.add(stack, STACK[usize::from(wide)]);
        let entering = |low: u64, high: u64| core.env().gpr(4) > low && core.env().gpr(4) <= high;
        let entry = core.entry_stack();
        PADDING[usize::from(wide)].iter().find_map(|padding| {
            let regs = end.checked_sub(padding + if wide { 21 * 8 } else { 17 * 4 })?;
            if entering(regs, end) || entering(entry.saturating_sub(ENTRY_STACK), entry) {
                return noted();
            }
            read(memory, regs)
        })
    }
}

/// The registers with which a task has left user mode, whose `struct pt_regs` is at `at`: the machine's note if that is of
/// the same departure. The kernel may since have changed what it saved; and SYSCALL and SYSENTER have changed registers
/// before it did.
fn context(core: &Core, memory: &Memory<'_>, at: u64) -> Option<UserContext> {
    const AX: usize = 0;
    /// Those that SYSCALL changes, and the number of a system call, which the kernel saves apart.
    const CHANGED: [usize; 3] = [AX, 1, 11];
    let saved = pt_regs(memory, at)?;
    let same = |noted: &&UserContext| {
        let kept = (0..16).filter(|n| !CHANGED.contains(n)).all(|n| noted.gpr[n] == saved.gpr[n]);
        kept && noted.ip == saved.ip
    };
    if let Some(noted) = core.user_context().filter(same) {
        return Some(*noted);
    }
    let w = memory.word_size();
    let word = |n: u64| memory.word(memory.add(at, n * w));
    let wide = w == 8;
    let number = word(if wide { 15 } else { 11 })?;
    let mut gpr = saved.gpr;
    // Other entries have a negative number here.
    if number >> (8 * w - 1) == 0 {
        gpr[AX] = number;
    }
    let first = if wide { 16 } else { 12 };
    let (flags, ss) = (word(first + 2)?, word(first + 4)? as u16);
    let env = core.env();
    let (selectors, bases) = if wide {
        let [es, ds, fs, gs] = [Seg::Es, Seg::Ds, Seg::Fs, Seg::Gs].map(|seg| env.seg(seg).selector as u16);
        ([es, saved.cs, ss, ds, fs, gs], [env.seg(Seg::Fs).base, env.kernel_gs_base()])
    } else {
        let [ds, es, fs, gs] = [7, 8, 9, 10].map(|n| word(n).unwrap_or(0) as u16);
        let base = |selector| core.selector_base(selector).unwrap_or(0);
        ([es, saved.cs, ss, ds, fs, gs], [base(fs), base(gs)])
    };
    Some(UserContext { gpr, ip: saved.ip, flags, selectors, bases, written: 0 })
}

/// The `struct pt_regs` of user mode at `at`; `None` if its values are impossible.
fn pt_regs(memory: &Memory<'_>, at: u64) -> Option<UserRegisters> {
    let w = memory.word_size();
    let word = |n: u64| memory.word(memory.add(at, n * w));
    let (order, ip): (&[usize], u64) = if w == 8 { (&REGISTERS64, 16) } else { (&REGISTERS32, 12) };
    let mut gpr = [0; 16];
    for (n, register) in (0..).zip(order) {
        gpr[*register] = word(n)?;
    }
    let (cs, flags, ss) = (word(ip + 1)? as u16, word(ip + 2)?, word(ip + 4)?);
    gpr[4] = word(ip + 3)?;
    let possible = cs & 3 == 3 && ss & 3 == 3 && (flags & ALWAYS != 0 || flags == STARTED);
    possible.then_some(UserRegisters { gpr, ip: word(ip)?, cs })
}
