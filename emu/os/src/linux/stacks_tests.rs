//! User registers on a kernel stack, and which module code lies in, on the small kernel of the other tests.

use super::*;

/// Offset of the current task's stack.
const STACK: u64 = 0x4_8000;

/// The profile, and the kernel with a process whose registers are saved: register n is 0x100 + n.
fn with_registers(w: u64, padding: u64, (cs, ss, flags): (u64, u64, u64)) -> (Linux, Kernel) {
    let (os, mut kernel) = Kernel::full(w);
    let task = TASK + 0x1000;
    kernel.put(task + os.layout.task.stack.unwrap(), &[kernel.p(STACK)]);
    let (size, order): (u64, &[u64]) = match w {
        8 => (0x4000, &[15, 14, 13, 12, 5, 3, 11, 10, 9, 8, 0, 1, 2, 6, 7]),
        // Segments take the place of further registers.
        _ => (0x2000, &[3, 1, 2, 6, 7, 5, 0, 0x20, 0x21, 0x22, 0x23]),
    };
    let saved: Vec<u64> =
        order.iter().map(|n| 0x100 + n).chain([0x999, 0x40_1000, cs, flags, 0x104, ss]).collect();
    kernel.put(STACK + size - padding - saved.len() as u64 * w, &saved);
    (os, kernel)
}

#[test]
fn user_registers_are_at_the_end_of_the_kernel_stack() {
    for (w, padding, cs) in [(8, 0, 0x33), (8, 0, 0x23), (4, 8, 0x73), (4, 16, 0x73)] {
        let (os, kernel) = with_registers(w, padding, (cs, 0x2b, 0x202));
        let found = os.user_registers(kernel.machine().core()).unwrap();
        assert_eq!((found.ip, u64::from(found.cs)), (0x40_1000, cs));
        let count = if w == 8 { 16 } else { 8 };
        let wanted: Vec<u64> = (0x100..0x100 + count).collect();
        assert_eq!(found.gpr[..count as usize], wanted);
    }
}

/// The machine has noted nothing of this task.
#[test]
fn a_context_is_what_the_kernel_has_saved() {
    for (w, padding, cs) in [(8, 0, 0x33), (4, 8, 0x73)] {
        let (os, kernel) = with_registers(w, padding, (cs, 0x2b, 0x202));
        let machine = kernel.machine();
        let (found, saved) =
            (os.user_context(machine.core()).unwrap(), os.user_registers(machine.core()).unwrap());
        assert_eq!(
            (found.ip, found.flags, found.selectors[1..3].to_vec()),
            (0x40_1000, 0x202, vec![cs as u16, 0x2b])
        );
        // The number of the system call, and not what it will return.
        assert_eq!((found.gpr[0], &found.gpr[1..]), (0x999, &saved.gpr[1..]));
    }
}

#[test]
fn a_program_that_is_about_to_start_has_registers() {
    let (os, kernel) = with_registers(8, 0, (0x33, 0x2b, 0x200));
    assert_eq!(os.user_registers(kernel.machine().core()).map(|found| found.ip), Some(0x40_1000));
}

#[test]
fn invalid_user_registers_are_rejected() {
    // The kernel's code segment, its stack segment, flags that no CPU has.
    for wrong in [(0x10, 0x2b, 0x202), (0x33, 0x18, 0x202), (0x33, 0x2b, 0x244)] {
        let (os, kernel) = with_registers(8, 0, wrong);
        assert_eq!(os.user_registers(kernel.machine().core()), None, "{wrong:x?}");
    }
    // A kernel thread.
    let (os, mut kernel) = with_registers(8, 0, (0x33, 0x2b, 0x202));
    kernel.put(TASK + 0x1000 + os.layout.task.mm, &[0]);
    assert_eq!(os.user_registers(kernel.machine().core()), None);
    assert_eq!(os.user_context(kernel.machine().core()), None);
    // An unmapped stack.
    let (os, mut kernel) = with_registers(8, 0, (0x33, 0x2b, 0x202));
    kernel.put(TASK + 0x1000 + os.layout.task.stack.unwrap(), &[u64::MAX]);
    assert_eq!(os.user_registers(kernel.machine().core()), None);
}

#[test]
fn code_of_a_module_is_known_by_its_range() {
    for w in [4, 8] {
        let (os, kernel) = Kernel::full(w);
        let machine = kernel.machine();
        let found = |offset: u64| os.module_at(machine.core(), kernel.p(offset));
        let module = found(0x3_1fff).unwrap();
        assert_eq!((module.name.as_str(), module.base), ("e1000", kernel.p(0x3_0000)));
        assert_eq!((found(0x2_ffff), found(0x3_2000)), (None, None));
        let symbols = os.module_symbols(machine.core(), "e1000");
        assert_eq!(symbols.at(kernel.p(0x3_0008)).unwrap().to_string(), "init+0x8");
        assert!(os.module_symbols(machine.core(), "e100").is_empty());
    }
}
