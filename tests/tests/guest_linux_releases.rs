//! Debian 11's and 13's kernels, one boot each: probes of every kind, stacks, modules and tasks agree with what the guest
//! says itself.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::trapline;
use serde_json::Value;
use tempfile::TempDir;
use trapline_tests::linux::{Linux, OTHER_RELEASES};
use trapline_tests::root;

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

/// What the run printed, and what the guest's console showed.
struct Boot {
    lines: Vec<Value>,
    listed: Vec<String>,
    console: String,
}

impl Boot {
    fn of(linux: &Linux) -> Self {
        let folder = TempDir::new().unwrap();
        linux.image(folder.path(), &["dummy"], &[], SCRIPT).unwrap();
        let listing = "on console \"releases: tasks\" list --processes\n\
                       on console \"releases: tasks\" list --modules\n";
        std::fs::write(folder.path().join("script"), listing).unwrap();
        let kernel = root().join(format!(".guests/linux-{}", linux.flavour)).display().to_string();
        let mut args =
            vec!["run", &kernel, "--initrd", "initrd.gz", "--console", "console", "--script", "script"];
        args.extend(["--until", "releases: end", "--limit-insns", "20000000000", "-f", "json", "--stack"]);
        args.extend(["--target", "/bin/busybox", "-n", "pid$target:a.out:main:entry"]);
        args.extend(["-n", "fbt::proc_pid_stack:entry", "-n", "fbt:dummy:dummy_init_module:entry"]);
        args.extend(["-n", "syscall::sync:", "-n", "proc:::exec", "-n", "sched:::tick"]);
        if linux.arch == "amd64" {
            args.extend([
                "-n",
                "sdt::sched:sched_process_fork",
                "-n",
                "tracepoint::sched:sched_process_fork",
            ]);
        }
        let ran = trapline(folder.path(), &args);
        assert_eq!(ran.code, 0, "{}: {}", linux.flavour, ran.err);
        let console = std::fs::read(folder.path().join("console")).unwrap();
        let (listed, records): (Vec<&str>, Vec<&str>) =
            ran.out.lines().partition(|line| !line.starts_with('{'));
        Self {
            lines: records.iter().map(|line| serde_json::from_str(line).unwrap()).collect(),
            listed: listed.into_iter().map(str::to_owned).collect(),
            console: String::from_utf8_lossy(&console).replace('\r', ""),
        }
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

    /// The lines of the console that begin with a word, without it.
    fn said(&self, word: &str) -> Vec<&str> {
        self.console.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
    }
}

#[test]
fn guest_linux_of_other_releases_is_probed_and_listed() {
    for linux in &OTHER_RELEASES {
        let boot = Boot::of(linux);
        let flavour = linux.flavour;
        // Linux prints its stack from the function that takes it on.
        let own: Vec<String> = boot.said("[<0>]").iter().map(|line| as_ours(line)).collect();
        assert!(own.len() > 5 && own[0].starts_with("vmlinux`proc_pid_stack+"), "{flavour}: {own:?}");
        assert_eq!(boot.stack(":proc_pid_stack:entry"), own[1..], "{flavour}");
        let init = boot.stack(":dummy:dummy_init_module:entry");
        assert!(init[0].starts_with("vmlinux`do_one_initcall+"), "{flavour}: {init:?}");
        assert_eq!(boot.hits(":sync:entry").len(), 2, "{flavour}");
        assert_eq!(boot.hits(":sync:return").len(), 2, "{flavour}");
        assert!(boot.hits(":busybox:main:entry").len() >= 6, "{flavour}");
        assert!(boot.hits(":exec").len() >= 6 && !boot.hits(":tick").is_empty(), "{flavour}");
        if linux.arch == "amd64" {
            let path = |hit: &&Value| hit.to_string().contains("/bin/sync");
            assert_eq!(boot.hits(":exec").iter().filter(|hit| path(hit)).count(), 2, "{flavour}");
            let forks: Vec<usize> = boot.said("forks").iter().map(|n| n.parse().unwrap()).collect();
            assert_eq!(forks, [2], "{flavour}: {}", boot.console);
            let traced = boot.hits("tracepoint:vmlinux:sched:sched_process_fork");
            assert_eq!(traced.len(), 2, "{flavour}");
            assert!(boot.hits("sdt:vmlinux:sched:sched_process_fork").len() > 10, "{flavour}");
        }
        lists_what_the_guest_says(flavour, &boot);
    }
}

/// `f+0x10/0x40` in our form.
fn as_ours(line: &str) -> String {
    format!("vmlinux`{}", line.split('/').next().unwrap())
}

fn lists_what_the_guest_says(flavour: &str, boot: &Boot) {
    let words = |line: &&String| line.split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>();
    let listed: Vec<Vec<String>> = boot.listed.iter().map(|line| words(&line)).collect();
    // Workers come and go, and rename themselves.
    let is_stable = |name: &str| !name.starts_with("kworker") && !name.starts_with("cryptomgr");
    let mut tasks: Vec<(u32, &str)> = boot
        .said("task")
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(pid, name)| (pid.parse().unwrap(), name))
        .filter(|(_, name)| is_stable(name))
        .collect();
    tasks.sort_unstable();
    assert!(tasks.len() > 15, "{flavour}: {}", boot.console);
    for (pid, name) in tasks {
        let row = listed.iter().find(|row| row.len() >= 4 && row[0] == pid.to_string() && row[1] == row[0]);
        let row = row.unwrap_or_else(|| panic!("{flavour}: {pid} {name} is not in {listed:?}"));
        assert!(row[3..].join(" ").starts_with(name), "{flavour}: {row:?}, not {name}");
    }
    let module = boot.said("module")[0].split_whitespace().collect::<Vec<_>>();
    let row = listed.iter().find(|row| row.len() >= 4 && row[3] == "dummy").unwrap();
    let [size, address] = [module[1], module[5]];
    assert_eq!((row[0].as_str(), row[1].as_str()), (address, size), "{flavour}: {module:?}");
}
