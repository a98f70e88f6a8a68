//! Kernels of other versions, without BTF: what differs in their data is seen from the data.

use super::*;

/// The profile says why what processes have mapped is unknown.
fn lacks(kernel: &Kernel) -> String {
    let os = kernel.profile().unwrap();
    assert_eq!(os.layout.files, None);
    os.lacks().unwrap().to_string()
}

#[test]
fn mappings_of_5_10_are_a_list() {
    for w in [4, 8] {
        let (os, kernel) = Kernel::full_of(w, V5_10);
        assert_eq!(os.layout.files.unwrap().mappings, Mappings::List { first: 0, next: 2 * w });
        let machine = kernel.machine();
        let task = os.current_task(machine.core());
        assert_eq!(os.executable(machine.core(), task).as_deref(), Some("/mnt/prog"));
        let mapped: Vec<_> =
            os.mappings(machine.core(), task).into_iter().map(|m| (m.start, m.end, m.offset)).collect();
        assert_eq!(mapped, [(0x1000, 0x2000, 0x3000), (0x2000, 0x3000, 0x4000), (0x5_0000, 0x5_8000, 0)]);
    }
}

#[test]
fn a_list_of_mappings_that_goes_back_ends_there() {
    let (os, mut kernel) = Kernel::full_of(8, V5_10);
    kernel.put(0x2_1200 + 16, &[kernel.p(0x2_1000)]);
    let machine = kernel.machine();
    assert_eq!(os.mappings(machine.core(), os.current_task(machine.core())).len(), 3);
}

#[test]
fn the_threads_of_6_12_are_listed_with_their_signals() {
    for w in [4, 8] {
        let mut kernel = Kernel::of(w, V6_12);
        let os = kernel.profile().unwrap();
        let Threads::Signal { signal, head, node } = os.layout.task.threads else { panic!() };
        assert_eq!((signal, head), (110 * w, 16));
        assert_eq!(kernel.profile().unwrap().current_task, kernel.p(CURRENT));
        assert!(lacks(&kernel).contains("only BTF shows how Linux from 6.2 on lays out files"));
        // A process 7 with the threads 7 and 8.
        let tasks = [TASK, TASK + 0x1000];
        for (index, task) in tasks.into_iter().enumerate() {
            kernel.u32(task + os.layout.task.pid, 7 + index as u32);
            kernel.u32(task + os.layout.task.tgid, 7);
            kernel.put(task + os.layout.task.cred, &[kernel.p(0xb00)]);
            kernel.text(task + os.layout.task.comm, "prog");
            kernel.put(task + signal, &[kernel.p(0xd00)]);
        }
        kernel.put(0xd00 + head, &[kernel.p(tasks[0] + node)]);
        kernel.put(tasks[0] + node, &[kernel.p(tasks[1] + node)]);
        kernel.put(tasks[1] + node, &[kernel.p(0xd00 + head)]);
        let tasks_link = INIT_TASK + os.layout.task.tasks;
        kernel.put(tasks_link, &[kernel.p(TASK + os.layout.task.tasks)]);
        kernel.put(TASK + os.layout.task.tasks, &[kernel.p(tasks_link)]);
        let machine = kernel.machine();
        let all: Vec<(u32, u32)> =
            os.tasks(machine.core()).iter().map(|task| (task.pid, task.tgid)).collect();
        assert_eq!(all, [(0, 0), (7, 7), (8, 7)]);
        assert_eq!(os.mappings(machine.core(), kernel.p(TASK)), []);
        assert_eq!(os.executable(machine.core(), kernel.p(TASK)), None);
    }
}

#[test]
fn a_per_cpu_structure_that_does_not_begin_with_the_task_is_refused() {
    let mut kernel = Kernel::of(8, V6_12);
    kernel.put(CURRENT, &[0]);
    let error = kernel.profile().unwrap_err().to_string();
    assert!(error.contains("pcpu_hot.current_task, the first task"), "{error}");
}

#[test]
fn an_unknown_start_of_mm_struct_leaves_the_tasks() {
    let mut kernel = Kernel::new(8);
    kernel.put(INIT_MM + 8, &[1]);
    assert!(lacks(&kernel).contains("nowhere what marks mm_mt or mmap"));
    // 6.5 has the flags before the root.
    let mut kernel = Kernel::new(8);
    kernel.put(INIT_MM + 16, &[0]);
    kernel.u32(INIT_MM + 4, 0x301);
    assert!(lacks(&kernel).contains("only BTF shows"));
}

#[test]
fn the_memory_of_a_module_of_6_12_has_pieces() {
    for w in [4, 8] {
        let os = Kernel::of(w, V6_12).profile().unwrap();
        let kernel = Kernel::of(w, V6_12).with_module();
        let machine = kernel.machine();
        let found = os.module_details(machine.core());
        assert_eq!(found.len(), 1);
        let module = &found[0].module;
        // As /proc/modules says: where the code is, and the bytes of all.
        assert_eq!((module.name.as_str(), module.base, module.size), ("e1000", kernel.p(0x3_0000), 0x2000));
        assert_eq!(found[0].sections.len(), 1);
        assert_eq!(found[0].symbols.len(), 2);
        let at = |offset: u64| os.module_at(machine.core(), kernel.p(offset)).map(|module| module.name);
        assert_eq!((at(0x3_0fff).as_deref(), at(0x3_1fff).as_deref()), (Some("e1000"), Some("e1000")));
        assert_eq!((at(0x2_ffff), at(0x3_2000)), (None, None));
        assert_eq!(os.damage(machine.core()), None);
    }
}

#[test]
fn sections_have_attributes_of_several_sizes() {
    for (words, listed) in [(8, false), (9, false), (10, false), (11, false), (9, true)] {
        let mut kernel = Kernel::new(8).with_module();
        // Two sections; what is between the name and the address is code's.
        for (n, (name, address)) in [(".text", 0x3_0000), (".data", 0x3_1000)].into_iter().enumerate() {
            let at = 0x3_4000 + (6 + words * n as u64) * 8;
            for word in 0..words {
                kernel.put(at + word * 8, &[kernel.p(0x9000)]);
            }
            kernel.text(0x3_5000 + 16 * n as u64, &format!("{name}\0"));
            kernel.put(at, &[kernel.p(0x3_5000 + 16 * n as u64)]);
            kernel.put(at + if listed { 3 } else { words - 1 } * 8, &[kernel.p(address)]);
        }
        if listed {
            // The list has the addresses of both attributes; Linux 7.2 has no number of them.
            kernel.put(0x3_4000 + 5 * 8, &[kernel.p(0x3_6000)]);
            kernel.put(0x3_6000, &[kernel.p(0x3_4000 + 6 * 8), kernel.p(0x3_4000 + 15 * 8), 0]);
        } else {
            kernel.u32(0x3_4000 + 5 * 8, 2);
        }
        let os = Kernel::new(8).profile().unwrap();
        let found = os.module_details(kernel.machine().core());
        let wanted = [(".text", 0x3_0000), (".data", 0x3_1000)]
            .map(|(name, at)| ModuleSection { name: name.into(), address: kernel.p(at) });
        assert_eq!(found[0].sections, wanted, "{words} {listed}");
    }
}
