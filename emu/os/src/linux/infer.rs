//! The layout of a kernel without BTF, derived from its initial data.
//!
//! The compiler fills in `init_task` and `init_mm`, with values known from the kernel's sources: lists that point to
//! themselves, a priority of 140, pointers to each other, the name "swapper". Each member is found by such a pattern,
//! which must occur exactly once; otherwise there is an error, never a guess. On kernels with BTF, the result equals
//! that of BTF. How files and mappings are laid out cannot be seen here; it is known up to Linux 6.1.
//!
//! The image of a dump is that of a kernel that has run: lists have members, the name has got the number of its CPU, and
//! counts have grown. What such a kernel may have changed has a second, wider pattern, for it alone.

use trapline_emu::load::LoadPlan;
use trapline_emu::symbols::Symbols;

use super::LinuxError;
use super::layout::{FileLayout, Layout, Mappings, TaskLayout, Threads};
use super::stacks::STACK;

/// Most bytes searched of `task_struct` and `mm_struct`.
const TASK_SIZE: u64 = 0x3000;
const MM_SIZE: u64 = 0x800;
/// References to `init_task`, and its flags: PF_KTHREAD.
const USAGE_AND_FLAGS: [u32; 2] = [2, 0x0020_0000];
/// Flags that the first task may have got: PF_IDLE, PF_FORKNOEXEC, PF_NOFREEZE, PF_NO_SETAFFINITY.
const LATER_FLAGS: u32 = 0x0400_8042;
/// Most references to `init_mm` of a kernel that has run: each task without memory of its own may hold one.
const MOST_COUNT: u32 = 1 << 20;
/// Most bytes of a function that are searched for addresses.
const CODE: u64 = 0x1000;
/// MAX_PRIO, the priority of `init_task.pushable_tasks`.
const MAX_PRIO: u64 = 140;
/// Most bytes from the start of a `signal_struct` to the list of its threads.
const SIGNAL_HEAD: u64 = 0x40;
/// The flags of `init_mm`'s tree: MT_FLAGS_ALLOC_RANGE and MT_FLAGS_LOCK_EXTERN; perhaps MT_FLAGS_USE_RCU too.
const TREE_FLAGS: u32 = 0x301;
const TREE_FLAG_RCU: u32 = 2;
/// Where `mm_struct` has its tree: from 6.6 after a cache line with the count of references.
const TREES: [u64; 2] = [0, 64];
/// The permitted capabilities of `init_cred`, all of them, end the part whose place depends on the size of the count
/// before the user id: (their offset, that of the id).
const PERMITTED: [(u64, u64); 3] = [(48, 4), (52, 8), (56, 8)];

/// A structure of the image, by words.
struct Words<'a> {
    plan: &'a LoadPlan,
    base: u64,
    size: u64,
    w: u64,
    /// Whether the kernel has run.
    has_run: bool,
}

impl Words<'_> {
    /// The word at an offset; `None` outside the image.
    fn at(&self, offset: u64) -> Option<u64> {
        let bytes = self.plan.bytes_at(self.base.checked_add(offset)?, self.w as usize)?;
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(u64::from_le_bytes(word))
    }

    fn is(&self, offset: u64, value: u64) -> bool {
        self.at(offset) == Some(value)
    }

    /// Whether an empty list's head lies there.
    fn empty_list(&self, offset: u64) -> bool {
        let own = self.base.wrapping_add(offset);
        self.is(offset, own) && self.is(offset + self.w, own)
    }

    /// Whether a list's head lies there; in a kernel that has run, with or without members.
    fn list(&self, offset: u64) -> bool {
        let pointer = |at: u64| {
            self.at(at).is_some_and(|to| {
                to.is_multiple_of(self.w)
                    && to >> (8 * self.w - 1) != 0
                    && to != self.base.wrapping_add(offset)
            })
        };
        self.empty_list(offset) || self.has_run && pointer(offset) && pointer(offset + self.w)
    }

    /// The 32-bit number at an offset.
    fn u32(&self, offset: u64) -> Option<u32> {
        let bytes = self.plan.bytes_at(self.base.checked_add(offset)?, 4)?;
        bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// The only offset at which `fits`.
    fn only(&self, what: &'static str, fits: impl Fn(u64) -> bool) -> Result<u64, LinuxError> {
        let mut places = (0..self.size / self.w).map(|n| n * self.w).filter(|offset| fits(*offset));
        match (places.next(), places.next()) {
            (Some(offset), None) => Ok(offset),
            (None, _) => Err(LinuxError::NotInferred { what, found: "nowhere" }),
            (Some(_), Some(_)) => Err(LinuxError::NotInferred { what, found: "at several places" }),
        }
    }
}

/// What the initial data of a kernel shows.
pub(super) struct Inferred {
    pub layout: Layout,
    /// Virtual address of the kernel's top page table.
    pub root: u64,
    /// Why the layout lacks that of files.
    pub lacks: Option<LinuxError>,
}

/// The layout. `current` is the address of the first task in the image's per-CPU data.
pub(super) fn infer(
    plan: &LoadPlan,
    symbols: &Symbols,
    (init_task, current): (u64, u64),
) -> Result<Inferred, LinuxError> {
    let by = |has_run| infer_from(plan, symbols, init_task, has_run);
    let found = by(false).or_else(|error| by(true).map_err(|_| error))?;
    // Kernels from 6.2 on have the current task in a structure; nothing names its member but its initial value.
    let w = u64::from(plan.width.bits() / 8);
    let per_cpu = Words { plan, base: current, size: w, w, has_run: false };
    let moved = symbols.sole("current_task").is_none();
    if moved && !per_cpu.is(0, init_task) {
        let what = "pcpu_hot.current_task, the first task";
        return Err(LinuxError::NotInferred { what, found: "nowhere" });
    }
    if moved { Ok(found.without_files()) } else { Ok(found) }
}

impl Inferred {
    /// The same for a kernel from 6.2 on, whose files and mappings are laid out by its configuration.
    fn without_files(self) -> Self {
        let lacks = self.lacks.unwrap_or(LinuxError::NewerFiles);
        Self { layout: Layout { files: None, ..self.layout }, lacks: Some(lacks), ..self }
    }
}

fn infer_from(
    plan: &LoadPlan,
    symbols: &Symbols,
    init_task: u64,
    has_run: bool,
) -> Result<Inferred, LinuxError> {
    let w = u64::from(plan.width.bits() / 8);
    let task = Words { plan, base: init_task, size: TASK_SIZE, w, has_run };
    let layout = task_layout(&task, symbols)?;
    let active = task.at(layout.mm + w).filter(|active| *active != 0 && task.is(layout.mm, 0));
    let words = |base| Words { plan, base, size: MM_SIZE, w, has_run };
    let in_image = active.map(words).filter(|mm| !has_run || mm_layout(mm, symbols).is_ok());
    let mm = in_image.or_else(|| has_run.then(|| init_mm(plan, symbols, words)).flatten());
    let mm =
        mm.ok_or(LinuxError::NotInferred { what: "active_mm, after pushable_dl_tasks", found: "nowhere" })?;
    let (pgd, exe_file) = mm_layout(&mm, symbols)?;
    let (files, lacks) = match mappings(&mm, pgd) {
        Ok(mappings) => (Some(FileLayout::ordered(w, mappings, exe_file)), None),
        Err(error) => (None, Some(error)),
    };
    let cred_uid = cred_uid(&task, layout.cred)?;
    let root = mm.at(pgd).unwrap_or(0);
    Ok(Inferred { layout: Layout { task: layout, cred_uid, pgd, files }, root, lacks })
}

/// `init_mm` of a kernel whose first task uses the memory of another one: the only structure like it whose address is in the
/// code of `leave_mm`, which goes back to it.
fn init_mm<'p>(plan: &LoadPlan, symbols: &Symbols, words: impl Fn(u64) -> Words<'p>) -> Option<Words<'p>> {
    let fits = |address: u64| mm_layout(&words(address), symbols).is_ok();
    only_address_in(plan, symbols, "leave_mm", fits).map(words)
}

/// The only address of data in the code of a function that `fits`.
fn only_address_in(
    plan: &LoadPlan,
    symbols: &Symbols,
    function: &str,
    fits: impl Fn(u64) -> bool,
) -> Option<u64> {
    let function = symbols.sole(function)?;
    let code = plan.bytes_at(function.addr, usize::try_from(function.size.min(CODE)).ok()?)?;
    let wide = plan.width.bits() == 64;
    let mut found: Option<u64> = None;
    for window in code.windows(4) {
        let low = window.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        // An address in 64-bit code is 32 bits, sign-extended.
        let address = if wide { low as i32 as u64 } else { low.into() };
        let is_data =
            address.is_multiple_of(if wide { 8 } else { 4 }) && plan.is_executable(address) == Some(false);
        if is_data && found != Some(address) && fits(address) {
            if found.is_some() {
                return None;
            }
            found = Some(address);
        }
    }
    found
}

fn task_layout(task: &Words<'_>, symbols: &Symbols) -> Result<TaskLayout, LinuxError> {
    let w = task.w;
    let comm = task.only("comm, the name \"swapper\"", |at| {
        let ends = |n: u64, with: &[u8; 4]| task.u32(at + n) == Some(u32::from_le_bytes(*with));
        let plain = ends(4, b"per\0") && task.is(at + 8, 0);
        // With the number of its CPU.
        let numbered = ends(4, b"per/") && ends(8, b"0\0\0\0") && task.u32(at + 12) == Some(0);
        ends(0, b"swap") && (plain || task.has_run && numbered)
    })?;
    // real_cred and cred, both init_cred; with CONFIG_KEYS a cached key before the name.
    let pair = |last: u64| task.at(last).is_some_and(|word| word != 0 && task.is(last - w, word));
    let cred = [comm.saturating_sub(w), comm.saturating_sub(2 * w)]
        .into_iter()
        .find(|last| *last > w && pair(*last))
        .ok_or(LinuxError::NotInferred { what: "cred, two equal pointers before comm", found: "nowhere" })?;
    let parent = task.only("real_parent, the task itself before its lists of children", |at| {
        let itself = |words: u64| task.is(at + words * w, task.base);
        itself(0) && itself(1) && itself(6) && task.list(at + 2 * w) && task.empty_list(at + 4 * w)
    })?;
    let pid = pid(task, symbols, parent)?;
    // Lists ptraced and ptrace_entry, thread_pid and four pid_links lie between.
    let threads = threads(task, parent + (6 + 1 + 4 + 1 + 8) * w)?;
    let prio = task.only("pushable_tasks, a priority of 140 after an empty list", |at| {
        task.at(at).is_some_and(|word| word & 0xffff_ffff == MAX_PRIO)
            && at >= 2 * w
            && task.list(at - 2 * w)
            && task.empty_list(at + w)
            && task.empty_list(at + 3 * w)
    })?;
    // The rest of the plist_node and an rb_node.
    let mm = prio + (1 + 4 + 3) * w;
    let stack = stack(task)?;
    let layout = TaskLayout {
        flags: stack + w + 4,
        tasks: prio - 2 * w,
        // After real_parent, parent, children and sibling.
        group_leader: parent + 6 * w,
        threads,
        mm,
        pid,
        tgid: pid + 4,
        comm,
        cred,
        stack: Some(stack),
    };
    Ok(layout)
}

/// The list of the threads: the first task is alone, so it is empty, or from 6.7 on has one element.
fn threads(task: &Words<'_>, at: u64) -> Result<Threads, LinuxError> {
    if task.empty_list(at) {
        return Ok(Threads::Group(at));
    }
    let none =
        LinuxError::NotInferred { what: "thread_group or thread_node, after pid_links", found: "nowhere" };
    let head = task.at(at).filter(|head| task.is(at + task.w, *head)).ok_or(none.clone())?;
    let list = Words { base: head, size: 2 * task.w, ..*task };
    let node = task.base.wrapping_add(at);
    if !list.is(0, node) || !list.is(task.w, node) {
        return Err(none);
    }
    let before = |word: u64| head.checked_sub(word).filter(|into| (1..=SIGNAL_HEAD).contains(into));
    let signal = task.only("signal, a structure that begins before the list of threads", |at| {
        task.at(at).and_then(before).is_some_and(|into| into.is_multiple_of(task.w))
    })?;
    let into = task.at(signal).and_then(before).unwrap_or_default();
    Ok(Threads::Signal { signal, head: into, node: at })
}

/// The user id in `init_cred`, a 0 like what is around it: the first number after it that is not 0 shows the place.
fn cred_uid(task: &Words<'_>, cred: u64) -> Result<u64, LinuxError> {
    let cred = Words { base: task.at(cred).unwrap_or_default(), ..*task };
    let first = (8..64).step_by(4).find(|at| cred.u32(*at) != Some(0));
    let found = PERMITTED.iter().find(|(permitted, _)| Some(*permitted) == first);
    found
        .map(|(_, uid)| *uid)
        .ok_or(LinuxError::NotInferred { what: "cred.cap_permitted, after the ids", found: "nowhere" })
}

/// stack, which begins at a multiple of its size, before the count of references and flags.
fn stack(task: &Words<'_>) -> Result<u64, LinuxError> {
    let [usage, flags] = USAGE_AND_FLAGS;
    let size = STACK[usize::from(task.w == 8)];
    task.only("stack, before two references and flags with PF_KTHREAD", |at| {
        let later = if task.has_run { LATER_FLAGS } else { 0 };
        let in_image = |stack: u64| !task.has_run || task.plan.bytes_at(stack, 1).is_some();
        task.at(at).is_some_and(|stack| stack != 0 && stack.is_multiple_of(size) && in_image(stack))
            && task.u32(at + task.w) == Some(usage)
            && task.u32(at + task.w + 4).is_some_and(|own| own & !later == flags)
    })
}

/// pid, found from both sides: it ends the restart block, and tgid and a stack canary, if any, lie before the parents.
fn pid(task: &Words<'_>, symbols: &Symbols, parent: u64) -> Result<u64, LinuxError> {
    let w = task.w;
    let what = "pid, between restart_block and real_parent";
    let restart = symbols
        .sole("do_no_restart_syscall")
        .ok_or(LinuxError::NotInferred { what: "do_no_restart_syscall, a symbol", found: "nowhere" })?;
    let function = task.only("restart_block.fn, do_no_restart_syscall", |at| task.is(at, restart.addr))?;
    // The largest restart data, that of futex: pointer, three u32, u64, pointer.
    let union = if w == 8 { 40 } else { 28 };
    let pid = function + w + union;
    match parent.checked_sub(pid) {
        Some(between) if between == 8 || between == 8 + w => Ok(pid),
        _ => Err(LinuxError::NotInferred { what, found: "nowhere" }),
    }
}

/// pgd and exe_file of `mm_struct`.
fn mm_layout(mm: &Words<'_>, symbols: &Symbols) -> Result<(u64, u64), LinuxError> {
    let w = mm.w;
    let most = if mm.has_run { MOST_COUNT } else { 1 };
    let is_count = |at: u64| mm.u32(at).is_some_and(|count| (1..=most).contains(&count));
    // A page of the image; membarrier_state 0, if it is there; two users; one reference, from 6.6 on at the start.
    let pgd = mm.only("pgd, a page of the image before mm_users 2 and mm_count 1", |at| {
        let table = mm.at(at).is_some_and(|page| {
            page != 0 && page.is_multiple_of(0x1000) && mm.plan.bytes_at(page, 0x1000).is_some()
        });
        let users = |at: u64| mm.u32(at) == Some(2);
        let counts = |at: u64| users(at) && (is_count(at + 4) || is_count(0));
        table && (counts(at + w) || mm.u32(at + w) == Some(0) && counts(at + w + 4))
    })?;
    let namespace = symbols
        .sole("init_user_ns")
        .ok_or(LinuxError::NotInferred { what: "init_user_ns, a symbol", found: "nowhere" })?;
    let user_ns = mm.only("user_ns, init_user_ns", |at| mm.is(at, namespace.addr))?;
    Ok((pgd, user_ns + w))
}

/// How `mm_struct` keeps its mappings.
fn mappings(mm: &Words<'_>, pgd: u64) -> Result<Mappings, LinuxError> {
    let w = mm.w;
    let flags = |at: u64| mm.u32(at).is_some_and(|flags| flags & !TREE_FLAG_RCU == TREE_FLAGS);
    // A lock, an empty root, flags.
    if mm.is(0, 0) && mm.is(w, 0) && flags(2 * w) {
        return Ok(Mappings::Tree(w));
    }
    // From 6.5 on the flags come second.
    if TREES.iter().any(|at| mm.u32(*at) == Some(0) && flags(at + 4) && mm.is(at + 8, 0)) {
        return Err(LinuxError::NewerFiles);
    }
    // No first mapping, an empty tree by red and black; then what the first task does not use either.
    if (0..pgd / w).all(|word| mm.is(word * w, 0)) {
        return Ok(Mappings::List { first: 0, next: 2 * w });
    }
    let what = "mm_mt or mmap, an empty root at the start of init_mm";
    Err(LinuxError::NotInferred { what, found: "nowhere" })
}

/// The head of the list of modules, for a kernel that does not name it: the only list in the image's data whose address is in
/// the code of `print_modules`. It is empty, or in a kernel that has run its first and its last member are outside the image.
pub(super) fn modules_head(plan: &LoadPlan, symbols: &Symbols) -> Option<u64> {
    let w = u64::from(plan.width.bits() / 8);
    let words = |base, has_run| Words { plan, base, size: 2 * w, w, has_run };
    let outside = |to: Option<u64>| to.is_some_and(|to| plan.bytes_at(to, 1).is_none());
    let has_members = |list: &Words<'_>| list.list(0) && outside(list.at(0)) && outside(list.at(w));
    let with = |fits: &dyn Fn(u64) -> bool| only_address_in(plan, symbols, "print_modules", fits);
    with(&|head| words(head, false).empty_list(0)).or_else(|| with(&|head| has_members(&words(head, true))))
}
