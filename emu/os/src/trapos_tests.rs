//! The profile on the embedded guest that has not run yet, and on garbage. No guest runs here.

#![allow(clippy::unwrap_used)]

use trapline_emu::load::Image;
use trapline_emu::{BootFiles, CpuModel, Machine, MachineConfig};

use super::*;

fn guest() -> (Machine, Image, Symbols) {
    let image = Image::parse(trapline_guests::IA32.image, "vmlinux").unwrap();
    let symbols = Symbols::from_elf(image.bytes(), "vmlinux").unwrap();
    let mut machine = Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 }).unwrap();
    machine.load(&image, &BootFiles::default()).unwrap();
    (machine, image, symbols)
}

fn physical(image: &Image, symbols: &Symbols, name: &str) -> u64 {
    image.plan().vaddr_to_paddr(symbols.sole(name).unwrap().addr).unwrap()
}

#[test]
fn the_first_task_and_the_kernel_can_be_read_before_the_first_instruction() {
    let (machine, image, symbols) = guest();
    let os = TrapOs::find(image.plan(), &symbols).unwrap();
    let task = os.current(machine.core()).unwrap();
    assert_eq!((task.pid, task.name.as_str()), (0, "swapper"));
    assert_eq!(task.task, os.current_task(machine.core()));
    let modules = os.modules(machine.core());
    assert_eq!(modules.len(), 1);
    assert_eq!(modules[0].kind, ModuleKind::Kernel);
    assert_eq!(modules[0].base, 0xc010_0000);
}

#[test]
fn an_image_without_the_symbol_has_no_profile() {
    let (_, image, _) = guest();
    assert_eq!(TrapOs::find(image.plan(), &Symbols::new("other")), Err(TrapOsError::NoSymbol));
}

#[test]
fn garbage_in_guest_memory_gives_unknown() {
    let (mut machine, image, symbols) = guest();
    let os = TrapOs::find(image.plan(), &symbols).unwrap();
    let current = physical(&image, &symbols, "current_task");
    for value in [0u32, 1, 0xffff_ffff, 0xdead_beef, 0xc010_0000] {
        machine.write_physical(current, &value.to_le_bytes());
        let _ = os.current(machine.core());
        let mut name = Vec::new();
        os.name_into(machine.core(), &mut name);
        assert!(name.len() <= 16);
    }
    machine.write_physical(current, &0xffff_fff0u32.to_le_bytes());
    assert_eq!(os.pid(machine.core()), 0);
    machine.write_physical(current, &0u32.to_le_bytes());
    assert_eq!(os.current(machine.core()), None);
}

#[test]
fn a_circular_task_list_ends() {
    let (mut machine, image, symbols) = guest();
    let os = TrapOs::find(image.plan(), &symbols).unwrap();
    let first = os.current_task(machine.core());
    let list = image.plan().vaddr_to_paddr(os.layout.task_list).unwrap();
    let task = image.plan().vaddr_to_paddr(first).unwrap();
    machine.write_physical(list, &(first as u32).to_le_bytes());
    machine.write_physical(task + os.layout.next, &(first as u32).to_le_bytes());
    assert_eq!(os.tasks(machine.core()).len(), MAX_TASKS);
}

#[test]
fn bad_fields_are_named() {
    let mut info = [0u8; INFO_SIZE];
    info[8] = 80;
    info[12] = 5;
    let error = Layout::parse(&info).unwrap_err();
    assert_eq!(error.to_string(), "the field word_size of trapline_os_info is 5; it must be 4 or 8");
}
