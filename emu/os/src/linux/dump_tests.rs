//! The profile compared with a guest's own output, on physical memory that `scripts/linux-oracle boot` took under qemu.
//!
//! `TRAPLINE_LINUX_DUMPS` names pairs `VMLINUX=FOLDER`, separated by spaces. Dumps are large and not committed.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use trapline_emu::load::Image;
use trapline_emu::{CpuModel, Machine, MachineConfig};

use super::*;

fn register(text: &str, name: &str) -> u64 {
    let rest = text.split_once(&format!("{name}=")).unwrap().1;
    u64::from_str_radix(&rest[..rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap()], 16).unwrap()
}

fn machine(folder: &Path, width: trapline_emu::load::Width) -> Machine {
    let memory = std::fs::read(folder.join("memory")).unwrap();
    let registers = std::fs::read_to_string(folder.join("registers")).unwrap();
    let wide = width == trapline_emu::load::Width::Bits64;
    let model = if wide { CpuModel::X86_64 } else { CpuModel::Ia32 };
    let mut machine = Machine::new(&MachineConfig { mem_size: memory.len() as u64, model }).unwrap();
    machine.write_physical(0, &memory);
    let env = machine.core().env();
    [0, 3, 4].iter().for_each(|&n| env.set_cr_raw(n, register(&registers, &format!("CR{n}"))));
    if wide {
        env.set_efer(register(&registers, "EFER"));
    }
    machine
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap_or("")
}

fn check_processes(os: &Linux, core: &Core, said: &Value) {
    let tasks: BTreeMap<u32, Task> = os.tasks(core).into_iter().map(|task| (task.pid, task)).collect();
    let mut seen = (0, 0);
    for (pid, process) in said["processes"].as_object().unwrap() {
        let status = process["status"].as_str().unwrap();
        let Some(task) = tasks.get(&pid.parse().unwrap()) else { continue };
        let name = status.lines().next().unwrap().split_once('\t').unwrap().1;
        assert!(name.starts_with(task.name.as_str()), "{name} {task:?}");
        assert_eq!(field(status, "Tgid:"), task.tgid.to_string());
        assert_eq!(field(status, "Uid:"), task.uid.to_string());
        seen.0 += 1;
        let exe = process["exe"].as_str().unwrap().trim();
        assert_eq!(os.executable(core, task.task).unwrap_or_default(), exe);
        let wanted: Vec<String> = process["maps"].as_str().unwrap().lines().map(maps_line).collect();
        let found: Vec<String> =
            os.mappings(core, task.task).iter().map(shown).filter(|l| !l.contains("vsyscall")).collect();
        assert_eq!(
            found,
            wanted.iter().filter(|l| !l.starts_with("ffffffffff")).cloned().collect::<Vec<_>>(),
            "{pid}"
        );
        seen.1 += usize::from(!wanted.is_empty());
        if !exe.is_empty() {
            assert!(os.user_modules(core, task.task).iter().any(|module| module.name == exe));
        }
    }
    println!("{} processes agree, {} with mappings", seen.0, seen.1);
    assert!(seen.0 > 20 && seen.1 >= 3);
}

/// Range, rights, offset and path of a line of /proc/PID/maps; names that are not files are left out.
fn maps_line(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let path = words.get(5).filter(|path| path.starts_with('/')).copied().unwrap_or("");
    let offset = if words[4] == "0" { "0" } else { words[2].trim_start_matches('0') };
    format!("{} {} {} {path}", words[0], words[1], if offset.is_empty() { "0" } else { offset })
}

fn shown(mapping: &Mapping) -> String {
    let flag = |set: bool, letter: char| if set { letter } else { '-' };
    format!(
        "{:08x}-{:08x} {}{}{}{} {:x} {}",
        mapping.start,
        mapping.end,
        flag(mapping.readable, 'r'),
        flag(mapping.writable, 'w'),
        flag(mapping.executable, 'x'),
        if mapping.shared { 's' } else { 'p' },
        mapping.offset,
        mapping.path
    )
}

fn check_modules(os: &Linux, core: &Core, said: &Value, kallsyms: &str) {
    let wanted: Vec<(String, u64, u64)> = said["modules"]
        .as_str()
        .unwrap()
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[0].to_owned(), words[1].parse().unwrap(), u64::from_str_radix(&words[5][2..], 16).unwrap())
        })
        .collect();
    let found: Vec<(String, u64, u64)> =
        os.modules(core).into_iter().map(|module| (module.name, module.size, module.base)).collect();
    assert!(!found.is_empty());
    assert_eq!(found, wanted);
    for details in os.module_details(core) {
        let tag = format!("[{}]", details.module.name);
        let mut wanted: Vec<(u64, &str)> = kallsyms
            .lines()
            .filter(|line| line.ends_with(&tag))
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .map(|words| (u64::from_str_radix(words[0], 16).unwrap(), words[2]))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut found: Vec<(u64, &str)> =
            details.symbols.iter().map(|symbol| (symbol.addr, symbol.name.as_ref())).collect();
        found.sort_unstable();
        assert_eq!(found, wanted, "{tag}");
        println!("{tag} {} symbols, {} sections", found.len(), details.sections.len());
        assert!(
            details
                .sections
                .iter()
                .any(|section| section.name == ".text" && section.address == details.module.base)
        );
    }
}

#[test]
#[ignore = "needs TRAPLINE_LINUX_DUMPS"]
fn a_dump_agrees_with_what_the_guest_said() {
    for (image, folder) in std::env::var("TRAPLINE_LINUX_DUMPS")
        .unwrap()
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
    {
        let folder = Path::new(folder);
        let image = Image::parse(&std::fs::read(image).unwrap(), "vmlinux").unwrap();
        let symbols = Symbols::from_kallsyms(image.bytes(), "vmlinux").unwrap();
        let btf = Btf::from_vmlinux(image.bytes()).unwrap();
        let os = Linux::find(image.plan(), &symbols, btf.as_ref()).unwrap();
        let inferred = Linux::find(image.plan(), &symbols, None).unwrap();
        assert_eq!(inferred, os.clone().as_inferred(), "the inferred layout differs from BTF's");
        let machine = machine(folder, image.plan().width);
        let core = machine.core();
        println!("{:?} {:?}", os.current(core), os.executable(core, os.current_task(core)));
        let said: Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("guest.json")).unwrap()).unwrap();
        check_processes(&os, core, &said);
        check_modules(&os, core, &said, &std::fs::read_to_string(folder.join("kallsyms")).unwrap());
    }
}
