//! `list` of a Linux guest that has run, compared with the guest's own files in /proc at that time.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use std::sync::Arc;

use crate::cli::trapline;
use serde_json::Value;
use tempfile::TempDir;
use trapline_emu::TrapInterposer;
use trapline_emu::load::Image;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_interposer::Place;
use trapline_os::Linux as Profile;
use trapline_providers::Present;
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::boot::{LINUX_LIMIT, LinuxBoot, PROMPT};
use trapline_tests::linux::KERNELS;
use trapline_tests::{fetched, guest, interposer, root};

/// Loads a module, keeps a process asleep, and lists modules and processes.
const INIT: &str = "\
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
insmod /loop.ko
sleep 100000 &
sleep 1
echo 0 > /proc/sys/kernel/kptr_restrict
echo section modules; cat /proc/modules
echo section symbols; grep '\\[loop\\]' /proc/kallsyms
echo section maps; cat /proc/$!/maps
echo section tasks; for p in /proc/[0-9]*; do read -r stat < $p/stat; echo $stat; done
echo section end
";

/// The commands after the guest's last line.
const ASKED: [&str; 6] = [
    "list --modules",
    "list --processes",
    "list loop_*",
    "list -v --opcode sdt::sched:sched_switch",
    "list fbt::vfs_read:entry",
    "list --opcode fbt:::entry",
];

fn initramfs(folder: &Path) -> String {
    std::fs::write(folder.join("init"), INIT).unwrap();
    let list = format!(
        "dir /bin 755\ndir /dev 755\ndir /proc 755\nnod /dev/console 600 c 5 1\nnod /dev/null 666 c 1 3\n\
         file /bin/busybox {} 755\nslink /bin/sh busybox 777\nfile /init init 755\nfile /loop.ko {} 644\n",
        guest("busybox-amd64"),
        guest("modules-cloud-amd64/loop.ko")
    );
    std::fs::write(folder.join("list"), list).unwrap();
    let made = Command::new(root().join("scripts/guests/newc"))
        .args(["--root", ".", "list", "initrd.gz"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder.join("initrd.gz").display().to_string()
}

/// The lines that the guest has printed, by section.
fn sections(console: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in console.lines().map(|line| line.trim_end_matches('\r')) {
        match line.strip_prefix("section ") {
            Some(name) => current = name.to_owned(),
            // The kernel's own messages come between.
            None if line.starts_with("[ ") => {}
            None => found.entry(current.clone()).or_default().push(line.to_owned()),
        }
    }
    found
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

#[test]
fn guest_linux_has_the_modules_processes_and_functions_that_it_says_it_has() {
    let folder = TempDir::new().unwrap();
    let initrd = initramfs(folder.path());
    let line = |asked: &&str| format!("on console \"section end\" {asked}\n");
    let script: String = ASKED.iter().map(line).collect::<String>() + "on console \"section end\" stop\n";
    std::fs::write(folder.path().join("s.script"), script).unwrap();
    let kernel = guest("linux-cloud-amd64");
    let args = ["run", &kernel, "--initrd", &initrd, "--script", "s.script", "--console", "console"];
    let more = ["--rpn", "fbt::vfs_read:entry / push 0 / { exit }", "-f", "json", "-q"];
    let ran = trapline(folder.path(), &[&args[..], &more].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let console = std::fs::read(folder.path().join("console")).unwrap();
    let said = sections(&String::from_utf8_lossy(&console));
    let lists: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["type"] == "list")
        .collect();
    let [modules, processes, functions, tracepoint, armed, entries] = lists.as_slice() else {
        panic!("{lists:?}")
    };

    // /proc/modules: name, size, users, dependencies, state, address.
    let row = &said["modules"][0];
    let words: Vec<&str> = row.split_whitespace().collect();
    let module = &modules["modules"][0];
    assert_eq!((text(module, "name").as_str(), text(module, "address").as_str()), (words[0], words[5]));
    assert_eq!((&module["size"].to_string()[..], text(module, "file").as_str()), (words[1], "/loop.ko"));

    // /proc/kallsyms: address, letter, name, module.
    let own: BTreeSet<(String, String)> = said["symbols"]
        .iter()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| matches!(words[1], "t" | "T") && words[2].starts_with("loop_"))
        .map(|words| (words[2].to_owned(), words[0].trim_start_matches('0').to_owned()))
        .collect();
    let ours = functions["functions"].as_array().unwrap().iter().filter(|f| f["module"] == "loop");
    let ours: BTreeSet<(String, String)> =
        ours.map(|f| (text(f, "name"), text(f, "address").trim_start_matches("0x").to_owned())).collect();
    assert!(own.len() > 20, "{own:?}");
    assert_eq!(ours, own);

    // /proc/N/stat: pid, name. For a kernel thread it gives a longer name than the task has.
    let stat = |line: &String| {
        let (pid, rest) = line.split_once(" (").unwrap();
        (pid.to_owned(), rest.rsplit_once(") ").unwrap().0.to_owned())
    };
    let told: BTreeMap<String, String> = said["tasks"].iter().map(stat).collect();
    let tasks = processes["processes"].as_array().unwrap();
    let listed: BTreeMap<String, String> = tasks
        .iter()
        .filter(|task| task["pid"] != 0)
        .map(|task| (task["pid"].to_string(), text(task, "name")))
        .collect();
    assert!(listed.keys().eq(told.keys()), "{listed:?} {told:?}");
    assert!(listed.iter().all(|(pid, name)| told[pid].starts_with(name)), "{listed:?} {told:?}");

    // The sleeping process's maps have its program at the listed address.
    let sleeping = tasks.iter().find(|task| text(task, "name") == "sleep").unwrap();
    assert_eq!(text(sleeping, "program"), "/bin/busybox");
    let first = said["maps"].iter().find(|line| line.ends_with("/bin/busybox")).unwrap();
    let base = first.split('-').next().unwrap().trim_start_matches('0');
    assert_eq!(text(&sleeping["modules"][0], "address"), format!("0x{base}"));

    // A static key that is off has the NOP of its file; calls of `__fentry__` are NOPs now; patches are not visible.
    let now = |list: &Value| list["probes"][0]["sites"][0]["now"][0].clone();
    assert_eq!(text(&now(tracepoint), "bytes"), text(&now(tracepoint), "fetched"));
    assert_eq!(text(&now(armed), "bytes"), "0f1f440000");
    assert_eq!(text(&now(armed), "fetched"), "cc1f440000");
    let all = entries["probes"].as_array().unwrap();
    let is = |probe: &&Value, opcode: &str, byte: &str| {
        let site = &probe["sites"][0];
        site["opcode"] == opcode && text(&site["now"][0], "bytes").starts_with(byte)
    };
    let nops = all.iter().filter(|probe| is(probe, "0xe8", "0f1f44")).count();
    assert!(nops > 20_000 && all.len() > 40_000, "{nops} of {}", all.len());
}

#[test]
fn guest_a_probe_in_a_program_is_where_its_process_has_it_mapped() {
    let linux = KERNELS.iter().find(|linux| linux.flavour == "cloud-amd64").unwrap();
    let image = Image::parse(&linux.kernel().unwrap(), "vmlinux").unwrap();
    let symbols = Symbols::from_kallsyms(&image.plan().image, "vmlinux").unwrap();
    let profile = Profile::find(image.plan(), &symbols, None).unwrap();
    let busybox = UserModule::parse(&fetched("busybox-amd64").unwrap(), "/bin/busybox").unwrap();
    let start = busybox.entry();
    let place = Place::User { offset: busybox.vaddr_to_offset(start).unwrap(), module: Arc::new(busybox) };
    let mut machine = LinuxBoot::quick(linux).unwrap().machine(PROMPT).unwrap();
    let now = |machine: &trapline_emu::Machine| Present::new(machine.core(), Some(&profile)).spots(&place);
    assert_eq!(now(&machine), [], "no process runs yet");
    let mut probes = interposer();
    let text = "name = busybox\nmodtype = user\noffset = 0\nopcode = 0xf3\nlog 0\nexit\n";
    let byte = match &place {
        Place::User { module, offset } => module.bytes_at(*offset, 5).unwrap().to_vec(),
        other => panic!("{other:?}"),
    };
    let text = text.replace("0xf3", &format!("{:#x}", byte[0]));
    let program = parse("start.rpn", &text).unwrap().link(Width::W64, &NoSymbols).unwrap();
    let id = probes.insert(machine.core_mut(), "start", program, vec![place.clone()]).unwrap();
    machine.run(Some(&mut probes as &mut dyn TrapInterposer), LINUX_LIMIT);
    assert!(probes.stats().hits > 0);
    let armed = now(&machine);
    let [init, shell] = armed.as_slice() else { panic!("{armed:?}") };
    assert!(
        init.process.as_ref().is_some_and(|process| (process.pid, process.name.as_str()) == (1, "init")),
        "{init:?}"
    );
    assert!(shell.process.as_ref().is_some_and(|process| process.name == "sh"), "{shell:?}");
    for spot in [init, shell] {
        assert_eq!((spot.linear, &spot.data), (Some(start), &byte));
        assert_eq!((spot.code[0], &spot.code[1..]), (0xcc, &byte[1..]));
    }
    probes.remove(machine.core_mut(), id);
    assert_eq!(now(&machine)[0].code, byte);
}
