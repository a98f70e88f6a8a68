//! The profile on a small kernel made here: its initial data, a process, a module; and on garbage.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use trapline_emu::load::{EntryMode, Perms, SectionRange, Segment, Width};
use trapline_emu::symbols::TableEntry;
use trapline_emu::{CpuModel, Machine, MachineConfig};

use super::modules::MAX_MODULES;
use super::*;
use crate::profile::ModuleKind;

#[path = "dump_tests.rs"]
mod dumps;
#[path = "stacks_tests.rs"]
mod stacks;
#[path = "version_tests.rs"]
mod versions;

/// Where the kernel lies, and how much of it there is.
const SIZE: u64 = 0x8_0000;
const INIT_TASK: u64 = 0x1000;
const INIT_MM: u64 = 0x4000;
const TABLES: u64 = 0x6000;
const CURRENT: u64 = 0x8000;
const MODULES: u64 = 0x8100;
const CODE: u64 = 0x9000;
const TASK: u64 = 0xa000;
const MM: u64 = 0xd000;

/// The forms of initial data, by the version that has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    V5_10,
    V6_1,
    V6_12,
}

use Version::{V5_10, V6_1, V6_12};

/// A kernel's memory, by words.
struct Kernel {
    w: u64,
    version: Version,
    bytes: Vec<u8>,
}

impl Layout {
    /// Offset of the list of a process's threads in `task_struct`.
    fn group(&self) -> u64 {
        match self.task.threads {
            Threads::Group(link) => link,
            Threads::Signal { node, .. } => node,
        }
    }
}

impl Kernel {
    fn base(&self) -> u64 {
        if self.w == 8 { 0xffff_ffff_8100_0000 } else { 0xc100_0000 }
    }

    /// Puts the words at the offset; `p` distinguishes an offset into the kernel from a number.
    fn put(&mut self, at: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            let at = (at + index as u64 * self.w) as usize;
            self.bytes[at..at + self.w as usize].copy_from_slice(&word.to_le_bytes()[..self.w as usize]);
        }
    }

    fn u32(&mut self, at: u64, value: u32) {
        self.bytes[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, at: u64, text: &str) {
        self.bytes[at as usize..at as usize + text.len()].copy_from_slice(text.as_bytes());
    }

    /// The address of an offset.
    fn p(&self, offset: u64) -> u64 {
        self.base() + offset
    }

    fn empty_list(&mut self, at: u64) {
        let own = self.p(at);
        self.put(at, &[own, own]);
    }

    /// `init_task` and `init_mm` as Linux 6.1 fills them in.
    fn new(w: u64) -> Self {
        Self::of(w, V6_1)
    }

    fn of(w: u64, version: Version) -> Self {
        let mut to = Self { w, version, bytes: vec![0; SIZE as usize] };
        let (task, mm, cred) = (to.p(INIT_TASK), to.p(INIT_MM), to.p(0x800));
        // The stack, two users, PF_KTHREAD.
        to.put(INIT_TASK + 4 * w, &[to.p(0x4_0000)]);
        to.u32(INIT_TASK + 5 * w, 2);
        to.u32(INIT_TASK + 5 * w + 4, 0x20_0000);
        // tasks, the priority and its lists, an rb_node, mm, active_mm.
        to.empty_list(INIT_TASK + 10 * w);
        to.u32(INIT_TASK + 12 * w, 140);
        to.empty_list(INIT_TASK + 13 * w);
        to.empty_list(INIT_TASK + 15 * w);
        to.put(INIT_TASK + 21 * w, &[mm]);
        // The restart block's function; its union; pid, tgid, a canary; the parents.
        let function = INIT_TASK + 30 * w;
        to.put(function, &[to.p(0x900)]);
        let parent = function + w + if w == 8 { 40 } else { 28 } + 8 + w;
        to.put(parent, &[task, task]);
        to.empty_list(parent + 2 * w);
        to.empty_list(parent + 4 * w);
        to.put(parent + 6 * w, &[task]);
        match version {
            V5_10 | V6_1 => to.empty_list(parent + 20 * w),
            // The thread alone in the list of its signals' structure.
            V6_12 => {
                to.put(parent + 20 * w, &[to.p(0xc10), to.p(0xc10)]);
                to.put(0xc10, &[to.p(parent + 20 * w), to.p(parent + 20 * w)]);
                to.put(INIT_TASK + 110 * w, &[to.p(0xc00)]);
            }
        }
        // All capabilities.
        to.u32(0x800 + if w == 8 { 56 } else { 48 }, u32::MAX);
        to.put(INIT_TASK + 100 * w, &[cred, cred, 0]);
        to.text(INIT_TASK + 103 * w, "swapper");
        // The tree's flags, the page table, two users and a reference, the namespace.
        match version {
            V5_10 => {}
            V6_1 => to.u32(INIT_MM + 2 * w, 0x303),
            V6_12 => to.u32(INIT_MM + 64 + 4, 0x303),
        }
        let pgd = to.pgd();
        to.put(INIT_MM + pgd, &[to.p(TABLES)]);
        to.u32(INIT_MM + pgd + w + 4, 2);
        to.u32(INIT_MM + if version == V6_12 { 0 } else { pgd + w + 8 }, 1);
        to.put(INIT_MM + 40 * w, &[to.p(0xa00)]);
        to.put(CURRENT, &[task, 0]);
        to.empty_list(MODULES);
        to.u32(CODE + 5, to.p(MODULES) as u32);
        to.u32(CODE + 0x45, to.p(INIT_MM) as u32);
        to
    }

    /// Offset of the page table in `mm_struct`.
    fn pgd(&self) -> u64 {
        if self.version == V6_12 { 64 + 9 * self.w } else { 9 * self.w }
    }

    fn symbols(&self) -> Symbols {
        let entry = |name: &str, offset: u64, letter| TableEntry {
            name: name.to_owned(),
            addr: self.p(offset),
            size: 0x20,
            letter,
        };
        let table = vec![
            entry("init_task", INIT_TASK, 'D'),
            entry(if self.version == V6_12 { "pcpu_hot" } else { "current_task" }, CURRENT, 'D'),
            entry("__per_cpu_offset", CURRENT + self.w, 'R'),
            entry("do_no_restart_syscall", 0x900, 't'),
            entry("init_user_ns", 0xa00, 'D'),
            entry("print_modules", CODE, 'T'),
            entry("leave_mm", CODE + 0x40, 'T'),
        ];
        Symbols::from_table("vmlinux", table)
    }

    fn plan(&self) -> LoadPlan {
        let width = if self.w == 8 { Width::Bits64 } else { Width::Bits32 };
        let segment = Segment {
            paddr: 0x10_0000,
            vaddr: self.base(),
            file: 0..self.bytes.len(),
            mem_size: SIZE,
            perms: Perms::EXECUTE,
        };
        let text = SectionRange { name: ".text".into(), vaddr: self.p(CODE), size: 0x100, executable: true };
        LoadPlan {
            name: "vmlinux".into(),
            image: Arc::from(self.bytes.as_slice()),
            segments: vec![segment],
            entry: 0x10_0000,
            mode: EntryMode::Flat32,
            width,
            protocol: None,
            linux: None,
            sections: vec![text],
        }
    }

    fn profile(&self) -> Result<Linux, LinuxError> {
        Linux::find(&self.plan(), &self.symbols(), None)
    }

    fn machine(&self) -> Machine {
        let model = if self.w == 8 { CpuModel::X86_64 } else { CpuModel::Ia32 };
        let mut machine = Machine::new(&MachineConfig { mem_size: 4 << 20, model }).unwrap();
        machine.write_physical(0x10_0000, &self.bytes);
        machine
    }

    /// A process 7, thread 7 and 8, that runs /mnt/prog and maps it twice, and its own memory once.
    fn with_process(mut self, layout: &Layout) -> Self {
        let (mnt, root, file) = (0x1_0000, 0x1_1000, 0x1_2000);
        let threads = [TASK, TASK + 0x1000];
        let (group, files) = (|task: u64| task + layout.group(), layout.files.as_ref().unwrap());
        for (index, task) in threads.into_iter().enumerate() {
            self.u32(task + layout.task.pid, 7 + index as u32);
            self.u32(task + layout.task.tgid, 7);
            self.put(task + layout.task.cred, &[self.p(0xb00)]);
            self.put(task + layout.task.mm, &[self.p(MM)]);
            self.put(task + layout.task.group_leader, &[self.p(threads[0])]);
            self.text(task + layout.task.comm, "prog");
            self.put(group(task), &[self.p(group(threads[1 - index]))]);
        }
        self.u32(0xb00 + layout.cred_uid, 1234);
        let head = INIT_TASK + layout.task.tasks;
        self.put(head, &[self.p(TASK + layout.task.tasks)]);
        self.put(TASK + layout.task.tasks, &[self.p(head)]);
        // The file's dentry in the root of a mount at /mnt of the root mount.
        let path = &files.path;
        let (inner, outer) = (mnt + path.vfsmount, root + path.vfsmount);
        let dentry = |n: u64| 0x1_3000 + n * 0x100;
        self.put(file + path.file_mnt, &[self.p(inner)]);
        self.put(file + path.file_dentry, &[self.p(dentry(0))]);
        self.put(inner + path.mnt_root, &[self.p(dentry(1))]);
        self.put(mnt + path.mnt_parent, &[self.p(root)]);
        self.put(mnt + path.mountpoint, &[self.p(dentry(2))]);
        self.put(outer + path.mnt_root, &[self.p(dentry(3))]);
        self.put(root + path.mnt_parent, &[self.p(root)]);
        for (n, name, parent) in [(0, "prog", 1), (1, "/", 1), (2, "mnt", 3), (3, "/", 3)] {
            self.put(dentry(n) + path.parent, &[self.p(dentry(parent))]);
            self.u32(dentry(n) + path.name_len, name.len() as u32);
            self.put(dentry(n) + path.name, &[self.p(dentry(n) + 0x80)]);
            self.text(dentry(n) + 0x80, name);
        }
        self.put(MM + files.exe_file, &[self.p(file)]);
        let vma = |n: u64| 0x2_1000 + n * 0x100;
        match files.mappings {
            Mappings::Tree(root) => self.put_tree(MM + root, vma),
            Mappings::List { first, next } => {
                self.put(MM + first, &[self.p(vma(0))]);
                self.put(vma(0) + next, &[self.p(vma(1))]);
                self.put(vma(1) + next, &[self.p(vma(2))]);
            }
        }
        let made =
            [(0x1000, 0x2000, 5, 3, file), (0x2000, 0x3000, 0x83, 4, file), (0x5_0000, 0x5_8000, 3, 9, 0)];
        for (n, (start, end, flags, page, file)) in (0..).zip(made) {
            let vm = &files.vma;
            self.put(vma(n) + vm.start, &[start]);
            self.put(vma(n) + vm.end, &[end]);
            self.put(vma(n) + vm.mm, &[self.p(MM)]);
            self.put(vma(n) + vm.flags, &[flags]);
            self.put(vma(n) + vm.pgoff, &[page]);
            self.put(vma(n) + vm.file, &[if file == 0 { 0 } else { self.p(file) }]);
        }
        self
    }

    /// The tree of three mappings, its root at `root`.
    fn put_tree(&mut self, root: u64, vma: impl Fn(u64) -> u64) {
        let w = self.w;
        // An inner node of both kinds over two leaves.
        let (top, left, right) = (0x2_0000, 0x2_0100, 0x2_0200);
        self.put(root, &[self.p(top) | 3 << 3 | 6]);
        let slots = if w == 8 { 10 } else { 21 };
        self.put(top + w, &[0x4_ffff]);
        self.put(top + slots * w, &[self.p(left) | 1 << 3 | 4, self.p(right) | 1 << 3 | 4]);
        let slots = if w == 8 { 16 } else { 32 };
        self.put(left + w, &[0xfff, 0x1fff, 0x2fff, 0x4_ffff]);
        self.put(left + slots * w, &[0, self.p(vma(0)), self.p(vma(1)), 0]);
        self.put(right + w, &[0x5_7fff]);
        self.put(right + slots * w, &[self.p(vma(2)), 0]);
    }

    /// A module with one section and two symbols.
    fn with_module(mut self) -> Self {
        let w = self.w;
        let (base, at) = (0x3_0000, 0x3_1000);
        self.put(MODULES, &[self.p(at + w)]);
        self.put(at + w, &[self.p(MODULES)]);
        self.text(at + 3 * w, "e1000");
        if self.version == V6_12 {
            // Code, and data with the module; each names it after base and size.
            self.put(at + 40 * w, &[self.p(base), 0x1000, self.p(at)]);
            self.put(at + 49 * w, &[self.p(at), 0x1000, self.p(at)]);
        } else {
            self.put(at + 40 * w, &[self.p(base)]);
            for (n, size) in [0x2000, 0x800, 0x1000].into_iter().enumerate() {
                self.u32(at + 41 * w + n as u64 * 4, size);
            }
        }
        let core = at + 120 * w;
        self.put(core - w, &[self.p(core), self.p(0x3_2000), 3, self.p(0x3_3000), self.p(0x3_3100)]);
        self.put(core + 4 * w, &[self.p(0x3_4000)]);
        self.text(0x3_3000, "\0init\0buffer\0");
        self.text(0x3_3100, "?td");
        let entry = if w == 8 { 24 } else { 16 };
        for (n, name, value) in [(1, 1, base), (2, 6, base + 0x1800)] {
            let symbol = 0x3_2000 + n * entry;
            self.u32(symbol, name);
            self.put(symbol + if w == 8 { 8 } else { 4 }, &[self.p(value), 0x10]);
        }
        self.u32(0x3_4000 + 5 * w, 1);
        self.put(0x3_4000 + 6 * w, &[self.p(0x3_5000)]);
        self.put(0x3_4000 + 14 * w, &[self.p(base)]);
        self.text(0x3_5000, ".text");
        self
    }

    /// The profile of its image, and the kernel once it runs a process and has loaded a module.
    fn full(w: u64) -> (Linux, Self) {
        Self::full_of(w, V6_1)
    }

    fn full_of(w: u64, version: Version) -> (Linux, Self) {
        let kernel = Self::of(w, version);
        let os = kernel.profile().unwrap();
        let mut kernel = kernel.with_process(&os.layout).with_module();
        kernel.put(CURRENT, &[kernel.p(TASK + 0x1000)]);
        (os, kernel)
    }
}

#[test]
fn a_kernel_without_btf_is_laid_out_by_its_own_data() {
    for w in [4, 8] {
        let os = Kernel::new(w).profile().unwrap();
        let task = &os.layout.task;
        assert_eq!((task.tasks, task.mm, task.comm, task.cred), (10 * w, 20 * w, 103 * w, 101 * w));
        assert_eq!((task.pid, task.tgid - task.pid), (31 * w + if w == 8 { 40 } else { 28 }, 4));
        assert_eq!((task.flags, task.group_leader), (5 * w + 4, task.pid + 8 + 7 * w));
        let files = os.layout.files.unwrap();
        assert_eq!((os.layout.pgd, files.exe_file, files.mappings), (9 * w, 41 * w, Mappings::Tree(w)));
        assert_eq!(task.stack, Some(4 * w));
        assert_eq!(os.modules_head, Some(Kernel::new(w).p(MODULES)));
    }
}

/// What differs once the kernel has run: names, lists, flags, counts. All else is outside its image.
fn has_run(kernel: &mut Kernel, layout: &Layout) {
    let w = kernel.w;
    let outside = kernel.p(SIZE + 0x1000);
    kernel.text(INIT_TASK + layout.task.comm, "swapper/0");
    kernel.put(INIT_TASK + layout.task.tasks, &[outside, outside + 0x40]);
    kernel.put(INIT_TASK + layout.task.group_leader - 4 * w, &[outside + 0x80, outside + 0xc0]);
    kernel.u32(INIT_TASK + layout.task.flags, 0x0420_0002);
    kernel.u32(INIT_MM + 10 * w + 8, 7);
    kernel.put(MODULES, &[outside + 0x100, outside + 0x200]);
}

#[test]
fn a_kernel_that_has_run_has_the_same_layout() {
    for w in [4, 8] {
        let before = Kernel::new(w).profile().unwrap();
        // The first task uses its own memory, that of another task, or none.
        let other = Kernel::new(w).p(SIZE + 0x2000);
        for active in [Kernel::new(w).p(INIT_MM), other, 0] {
            let mut kernel = Kernel::new(w);
            has_run(&mut kernel, &before.layout);
            kernel.put(INIT_TASK + 21 * w, &[active]);
            assert_eq!(kernel.profile().unwrap(), before, "{w} {active:#x}");
        }
        // What is ambiguous is refused.
        let mut kernel = Kernel::new(w);
        has_run(&mut kernel, &before.layout);
        kernel.text(INIT_TASK + 0xa00, "swapper/0");
        assert!(kernel.profile().is_err());
    }
}

#[test]
fn the_mark_of_a_member_must_occur_once() {
    let sentence = |change: &dyn Fn(&mut Kernel)| {
        let mut kernel = Kernel::new(8);
        change(&mut kernel);
        kernel.profile().unwrap_err().to_string()
    };
    assert!(sentence(&|k| k.text(INIT_TASK + 824, "Swapper")).contains("nowhere what marks comm, the name"));
    assert!(
        sentence(&|k| k.text(INIT_TASK + 0xa00, "swapper")).contains("at several places what marks comm")
    );
    assert!(sentence(&|k| k.u32(INIT_TASK + 96, 120)).contains("a priority of 140"));
    assert!(sentence(&|k| k.put(INIT_TASK + 240, &[0])).contains("restart_block.fn"));
    assert!(sentence(&|k| k.u32(INIT_TASK + 44, 0)).contains("nowhere what marks stack, before two"));
    assert!(sentence(&|k| k.put(INIT_MM + 320, &[0])).contains("user_ns"));
    assert!(sentence(&|k| k.put(INIT_MM + 72, &[0x1000])).contains("mm_users 2"));
    assert!(sentence(&|k| k.u32(0x800 + 44, 1)).contains("cred.cap_permitted"));
    let kernel = Kernel::new(8);
    let other = Linux::find(&kernel.plan(), &Symbols::new("other"), None).unwrap_err();
    assert_eq!(other.to_string(), "the kernel has no symbol init_task, so its tasks cannot be found");
}

#[test]
fn a_process_is_read() {
    for w in [4, 8] {
        let (os, kernel) = Kernel::full(w);
        let machine = kernel.machine();
        let core = machine.core();
        let task = os.current(core).unwrap();
        assert_eq!((task.pid, task.tgid, task.uid, task.name.as_str()), (8, 7, 1234, "prog"));
        let all: Vec<(u32, u32)> = os.tasks(core).iter().map(|task| (task.pid, task.tgid)).collect();
        assert_eq!(all, [(0, 0), (7, 7), (8, 7)]);
        assert_eq!(os.executable(core, task.task).as_deref(), Some("/mnt/prog"));
        let shown: Vec<_> = os
            .mappings(core, task.task)
            .into_iter()
            .map(|m| (m.start, m.end, m.offset, m.readable, m.writable, m.executable, m.shared, m.path))
            .collect();
        assert_eq!(
            shown,
            [
                (0x1000, 0x2000, 0x3000, true, false, true, false, "/mnt/prog".to_owned()),
                (0x2000, 0x3000, 0x4000, true, true, false, true, "/mnt/prog".to_owned()),
                (0x5_0000, 0x5_8000, 0, true, true, false, false, String::new()),
            ]
        );
        let module = Module { name: "/mnt/prog".into(), base: 0x1000, size: 0x2000, kind: ModuleKind::User };
        assert_eq!(os.user_modules(core, task.task), [module]);
        assert_eq!(os.mappings(core, kernel.p(INIT_TASK)), [], "a kernel thread maps nothing");
    }
}

#[test]
fn a_process_is_forked_until_it_executes_a_program() {
    for w in [4, 8] {
        let (os, mut kernel) = Kernel::full(w);
        assert!(!os.is_forked(kernel.machine().core()));
        // Each thread was cloned; its leader's state counts.
        kernel.u32(TASK + 0x1000 + os.layout.task.flags, 0x40);
        assert!(!os.is_forked(kernel.machine().core()));
        kernel.u32(TASK + os.layout.task.flags, 0x40_0040);
        assert!(os.is_forked(kernel.machine().core()));
    }
}

#[test]
fn a_module_is_read() {
    for w in [4, 8] {
        let (os, kernel) = Kernel::full(w);
        let machine = kernel.machine();
        let found = os.module_details(machine.core());
        assert_eq!(found.len(), 1);
        let module = &found[0].module;
        assert_eq!((module.name.as_str(), module.base, module.size), ("e1000", kernel.p(0x3_0000), 0x2000));
        assert_eq!(found[0].sections, [ModuleSection { name: ".text".into(), address: kernel.p(0x3_0000) }]);
        let symbols: Vec<_> = found[0].symbols.iter().map(|s| (s.name.as_ref(), s.addr, s.size)).collect();
        assert_eq!(symbols, [("init", kernel.p(0x3_0000), 0x10), ("buffer", kernel.p(0x3_1800), 0x10)]);
        assert_eq!(os.module_symbols(machine.core(), "e1000").len(), 2);
        assert!(os.module_symbols(machine.core(), "e100").is_empty(), "no such module");
    }
}

/// Calls every query; any result is allowed whose length is limited.
fn ask_all(os: &Linux, core: &Core, task: u64) {
    let _ = (os.current(core), os.uid(core), os.tgid(core), os.executable(core, task), os.is_forked(core));
    assert!(os.tasks(core).len() <= MAX_TASKS);
    assert!(
        os.mappings(core, task).len() <= MAX_MAPPINGS && os.user_modules(core, task).len() <= MAX_MAPPINGS
    );
    assert!(os.modules(core).len() <= MAX_MODULES && os.module_details(core).len() <= MAX_MODULES);
}

#[test]
fn hostile_pointers_end_every_walk() {
    for w in [4, 8] {
        let (os, kernel) = Kernel::full(w);
        let mut machine = kernel.machine();
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..60 {
            machine.write_physical(0x10_0000, &kernel.bytes);
            for _ in 0..round * 40 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (at, kind, value) = (random >> 40 & 0x3_fff8, random >> 30 & 3, random >> 12 & 0x3_ffff);
                let word = match kind {
                    0 => kernel.p(at),
                    1 => kernel.p(value),
                    2 => kernel.p(value) & !0xff | 0x1e,
                    _ => u64::MAX >> (value & 63),
                };
                machine.write_physical(0x10_0000 + 0x8000 + at, &word.to_le_bytes()[..w as usize]);
            }
            ask_all(&os, machine.core(), kernel.p(TASK));
        }
    }
}

#[test]
fn circles_end() {
    let (os, mut kernel) = Kernel::full(8);
    let layout = os.layout;
    // A list that does not return to its head, a dentry above itself, a tree that holds itself.
    let link = kernel.p(TASK + layout.task.tasks);
    kernel.put(TASK + layout.task.tasks, &[link]);
    kernel.put(0x1_3000 + layout.files.unwrap().path.parent, &[kernel.p(0x1_3000)]);
    let slots = 0x2_0000 + 10 * 8;
    kernel.put(slots, &[kernel.p(0x2_0000) | 3 << 3 | 4, kernel.p(0x2_0000) | 3 << 3 | 4]);
    let own = kernel.p(0x3_1000 + 8);
    kernel.put(0x3_1000 + 8, &[own]);
    let machine = kernel.machine();
    let core = machine.core();
    assert_eq!(os.tasks(core).len(), 3);
    assert_eq!(os.executable(core, kernel.p(TASK)).as_deref(), Some("/prog"), "a root without a mount");
    assert_eq!(os.mappings(core, kernel.p(TASK)), []);
    assert_eq!(os.modules(core).len(), 1);
    kernel.u32(0x1_3000 + layout.files.unwrap().path.name_len, u32::MAX);
    assert_eq!(os.executable(kernel.machine().core(), kernel.p(TASK)), None);
}

#[test]
fn a_damaged_list_of_modules_is_reported() {
    for w in [4, 8] {
        let (os, kernel) = Kernel::full(w);
        let (head, link) = (kernel.p(MODULES), 0x3_1000 + w);
        assert_eq!(os.damage(kernel.machine().core()), None);
        let told = |at: u64, word: u64| {
            let mut kernel = Kernel::full(w).1;
            kernel.put(at, &[word]);
            let machine = kernel.machine();
            assert!(os.modules(machine.core()).len() <= 1);
            os.damage(machine.core()).unwrap()
        };
        let begin = format!("the guest's list of kernel modules at {head:#x} is damaged: ");
        let link_at = kernel.p(link);
        assert_eq!(told(MODULES, 0), format!("{begin}after 0 entries the link at {head:#x} leads nowhere"));
        assert_eq!(told(link, 8), format!("{begin}after 2 entries the link at 0x8 leads nowhere"));
        let back = "leads back into the list, not to its head";
        assert_eq!(told(link, link_at), format!("{begin}after 1 entries the link at {link_at:#x} {back}"));
        assert_eq!(told(0x3_1000 + 40 * w, 0), format!("{begin}entry 1 of 1 is not a module"));
    }
}

#[test]
fn a_damaged_list_of_tasks_is_reported() {
    for w in [4, 8] {
        let (os, kernel) = Kernel::full(w);
        let machine = kernel.machine();
        let all = os.tasks(machine.core()).len();
        assert_eq!(os.tasks_damage(machine.core()), None);
        let link = TASK + os.layout.task.tasks;
        let told = |word: u64| {
            let mut kernel = Kernel::full(w).1;
            kernel.put(link, &[word]);
            let machine = kernel.machine();
            assert!((1..=all).contains(&os.tasks(machine.core()).len()));
            os.tasks_damage(machine.core()).unwrap()
        };
        let begin = "not all tasks of the guest are known: ";
        assert_eq!(told(8), format!("{begin}the link at 0x8 cannot be read"));
        let at = kernel.p(link);
        assert_eq!(told(at), format!("{begin}the link at {at:#x} leads back into a list"));
    }
}

#[test]
fn a_kernel_at_another_address_is_unknown() {
    let (os, kernel) = Kernel::full(4);
    let mut machine = kernel.machine();
    machine.write_physical(0x10_0000 + INIT_TASK + os.layout.task.comm, b"moved");
    let core = machine.core();
    assert_eq!(
        (os.current(core), os.pid(core), os.tasks(core).len(), os.modules(core).len()),
        (None, 0, 0, 0)
    );
    ask_all(&os, core, kernel.p(TASK));
}
