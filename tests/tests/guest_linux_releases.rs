//! The kernels of Debian 11, 13 and testing, two boots each: probes of every kind, stacks, modules and tasks agree with what the guest
//! says itself, and with these and with probes at more than 10,000 functions it ends as it does without any.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::{Ran, trapline};
use serde_json::Value;
use tempfile::TempDir;
use trapline_tests::guest;
use trapline_tests::linux::{Linux, QUICK};

/// The guest's script: its own stack, a module, tracepoints, system calls, and its tasks, which it lists without new ones.
const SCRIPT: &str = "\
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tracefs tracefs /sys/kernel/tracing
dmesg -n 1
echo 'releases: begin'
cat /proc/self/stack
insmod /dummy.ko
while read line; do echo \"module $line\"; done < /proc/modules
echo 1 > /sys/kernel/tracing/events/sched/sched_process_fork/enable
sync
sync
echo 0 > /sys/kernel/tracing/events/sched/sched_process_fork/enable
echo forks $(grep -c 'sched_process_fork: ' /sys/kernel/tracing/trace)
for task in /proc/[0-9]*; do read name < $task/comm; echo \"task ${task#/proc/} $name\"; done
echo 'releases: tasks'
echo 'releases: end'
poweroff -f
";
/// When the guest has listed its tasks, Trapline does.
const LISTING: &str = "on console \"releases: tasks\" list --processes\n\
                       on console \"releases: tasks\" list --modules\n";
/// Probes that record nothing at the entries of many functions, and their least number.
const MANY: (&str, usize) = ("fbt::[a-f]*:entry", 10_000);

/// A probed run, and what the guest's console showed.
struct Boot {
    linux: &'static Linux,
    ran: Ran,
    lines: Vec<Value>,
    console: String,
}

impl Boot {
    fn of(linux: &'static Linux, folder: &TempDir, more: &[&str]) -> Self {
        let folder = folder.path();
        let kernel = guest(&format!("linux-{}", linux.flavour));
        let mut args = vec!["run", &kernel, "--initrd", "initrd.gz", "--append", QUICK, "--script", "script"];
        args.extend(["--console", "console", "--limit-insns", "20000000000", "-f", "json", "--stats"]);
        args.extend(more);
        let ran = trapline(folder, &args);
        assert_eq!(ran.code, 0, "{}: {}", linux.flavour, ran.err);
        let lines = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let console =
            String::from_utf8_lossy(&std::fs::read(folder.join("console")).unwrap()).replace('\r', "");
        Self { linux, ran, lines, console }
    }

    /// The hits of a probe by the end of its name.
    fn hits(&self, name: &str) -> Vec<&Value> {
        let named = |line: &&Value| line["probe"].as_str().is_some_and(|probe| probe.ends_with(name));
        self.lines.iter().filter(|line| line["type"] == "hit").filter(named).collect()
    }

    /// The kernel's stack at the first hit of a probe.
    fn stack(&self, name: &str) -> Vec<String> {
        let named = |line: &&Value| line["probe"].as_str().is_some_and(|probe| probe.ends_with(name));
        let line = self.lines.iter().filter(|line| line["frames"].is_array()).find(named).unwrap();
        line["frames"].as_array().unwrap().iter().map(|frame| frame.as_str().unwrap().to_owned()).collect()
    }

    /// The rows of a list.
    fn listed(&self, what: &str) -> &[Value] {
        self.lines.iter().find_map(|line| line[what].as_array()).unwrap()
    }

    /// The lines of the console that begin with a word, without it.
    fn said(&self, word: &str) -> Vec<&str> {
        self.console.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
    }

    fn has_probes_that_agree(&self) {
        let flavour = self.linux.flavour;
        // Linux prints its stack from the function that takes it on.
        let own: Vec<String> = self.said("[<0>]").iter().map(|line| as_ours(line)).collect();
        assert!(own.len() > 5 && own[0].starts_with("vmlinux`proc_pid_stack+"), "{flavour}: {own:?}");
        assert_eq!(self.stack(":proc_pid_stack:entry"), own[1..], "{flavour}");
        let init = self.stack(":dummy:dummy_init_module:entry");
        assert!(init[0].starts_with("vmlinux`do_one_initcall+"), "{flavour}: {init:?}");
        // `poweroff` calls it too.
        assert_eq!(self.hits(":sync:entry").len(), 3, "{flavour}");
        assert_eq!(self.hits(":sync:return").len(), 3, "{flavour}");
        assert!(self.hits(":busybox:main:entry").len() >= 6, "{flavour}");
        assert!(!self.hits(":tick").is_empty(), "{flavour}");
        // The shell runs busybox's other programs by its own file.
        let executed = |path: &str| {
            let text = format!("exec {path}");
            self.lines.iter().filter(|line| line["parts"][0]["text"] == text.as_str()).count()
        };
        assert!(executed("/init") == 1 && executed("/proc/self/exe") >= 6, "{flavour}");
        if self.linux.arch == "amd64" {
            let forks: Vec<usize> = self.said("forks").iter().map(|n| n.parse().unwrap()).collect();
            assert_eq!(forks, [2], "{flavour}: {}", self.console);
            let traced = self.hits("tracepoint:vmlinux:sched:sched_process_fork");
            assert_eq!(traced.len(), 2, "{flavour}");
            assert!(self.hits("sdt:vmlinux:sched:sched_process_fork").len() > 10, "{flavour}");
        }
    }

    fn lists_what_the_guest_says(&self) {
        let flavour = self.linux.flavour;
        // Workers come and go, and rename themselves.
        let is_stable = |name: &str| !name.starts_with("kworker") && !name.starts_with("cryptomgr");
        let said: Vec<(u64, &str)> = self
            .said("task")
            .iter()
            .filter_map(|line| line.split_once(' '))
            .map(|(pid, name)| (pid.parse().unwrap(), name))
            .filter(|(_, name)| is_stable(name))
            .collect();
        assert!(said.len() > 15, "{flavour}: {}", self.console);
        let tasks = self.listed("processes");
        for (pid, name) in said {
            let row = tasks.iter().find(|task| task["pid"] == pid && task["tgid"] == pid);
            let row = row.unwrap_or_else(|| panic!("{flavour}: {pid} {name} is not in {tasks:?}"));
            // A kernel thread may have a longer name than a task.
            assert_eq!(row["name"], name[..name.len().min(15)], "{flavour}: {row}");
        }
        let init = tasks.iter().find(|task| task["pid"] == 1).unwrap();
        assert_eq!(init["program"], "/bin/busybox", "{flavour}: {init}");
        // Name, size, users, dependencies, state, address.
        let module = self.said("module")[0].split_whitespace().collect::<Vec<_>>();
        let own = self.listed("modules").iter().find(|own| own["name"] == "dummy").unwrap();
        assert_eq!((own["address"].as_str().unwrap(), &own["size"].to_string()[..]), (module[5], module[1]));
    }
}

/// `f+0x10/0x40` in our form.
fn as_ours(line: &str) -> String {
    format!("vmlinux`{}", line.split('/').next().unwrap())
}

/// The number of probes that a description has matched.
fn matched(err: &str, description: &str) -> usize {
    let mark = format!("description '{description}' matched ");
    let number = err.split_once(&mark).unwrap().1.split_whitespace().next().unwrap();
    number.parse().unwrap()
}

fn is_probed_and_listed(flavour: &str) {
    let linux = Linux::of(flavour).unwrap();
    let folder = TempDir::new().unwrap();
    linux.image(folder.path(), &["dummy"], &[], SCRIPT).unwrap();
    std::fs::write(folder.path().join("script"), LISTING).unwrap();
    let plain = Boot::of(linux, &folder, &[]);
    let silent = format!("{} / push 0 / {{ exit }}", MANY.0);
    let mut probes = vec!["--rpn", &silent, "--stack"];
    probes.extend(["--target", "/bin/busybox", "-n", "pid$target:a.out:main:entry"]);
    probes.extend(["-n", "fbt::proc_pid_stack:entry", "-n", "fbt:dummy:dummy_init_module:entry"]);
    probes.extend(["-n", "syscall::sync:", "-n", "sched:::tick"]);
    probes.extend(["-n", "proc:::exec { printf(\"exec %s\", stringof(args[0])); }"]);
    if linux.arch == "amd64" {
        probes.extend(["-n", "sdt::sched:sched_process_fork", "-n", "tracepoint::sched:sched_process_fork"]);
    }
    let probed = Boot::of(linux, &folder, &probes);
    let (end, plain_end) = (probed.lines.last().unwrap(), plain.lines.last().unwrap());
    for field in ["digest", "insns"] {
        assert_eq!(end[field], plain_end[field], "{flavour} noticed its probes");
    }
    let many = matched(&probed.ran.err, MANY.0);
    assert!(many > MANY.1, "{flavour}: {many}");
    println!("{flavour}: {many} functions, {}", end["stats"]);
    assert!(end["stats"]["rewritten"].as_u64().unwrap() > 1000, "{flavour}: {end}");
    probed.has_probes_that_agree();
    probed.lists_what_the_guest_says();
}

#[test]
fn guest_linux_5_10_686_is_probed_and_listed_at_length() {
    is_probed_and_listed("5.10-686");
}

#[test]
fn guest_linux_5_10_amd64_is_probed_and_listed_at_length() {
    is_probed_and_listed("5.10-amd64");
}

#[test]
fn guest_linux_5_10_cloud_amd64_is_probed_and_listed_at_length() {
    is_probed_and_listed("5.10-cloud-amd64");
}

#[test]
fn guest_linux_6_12_amd64_is_probed_and_listed_at_length() {
    is_probed_and_listed("6.12-amd64");
}

#[test]
fn guest_linux_6_12_cloud_amd64_is_probed_and_listed_at_length() {
    is_probed_and_listed("6.12-cloud-amd64");
}

#[test]
fn guest_linux_testing_cloud_amd64_is_probed_and_listed_at_length() {
    is_probed_and_listed("testing-cloud-amd64");
}
