//! The values of functions that end by jumps to others, against the guest's own kretprobes, in one run.
//!
//! The kernel prints each return between two marks: the function and its value. Its probes are enabled before the first
//! mark, one after the other, and ours are there from the beginning; so of calls that began before the mark it may know
//! only some. The others must be the same ones, in the same order.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tempfile::TempDir;
use trapline_tests::linux::Linux;
use trapline_tests::{guest, root};

use crate::cli::trapline_from_init;

/// What the guest does meanwhile.
const WORK: &str = "for i in 1; do\n\
    ls -R /bin /proc/self > /dev/null\n\
    cat /proc/1/status /proc/meminfo /proc/self/maps > /dev/null\n\
    mkdir /d$i; echo x > /d$i/f; mv /d$i/f /d$i/g; ln -s g /d$i/l; cat /d$i/l; chmod 600 /d$i/g; touch /d$i/g; rm -r /d$i\n\
    ps > /dev/null; usleep 2000; (exit 2); true | cat | wc -c\n\
    dd if=/dev/zero of=/z bs=4096 count=20 2> /dev/null; sync; rm /z\n\
    sh -c 'kill -USR1 $$'; kill -0 1; trap '' USR2; kill -USR2 $$\n\
    done\n";

/// A return of ours: the value, and whether the call began after the first mark.
type Ours = (u64, bool);

fn functions(flavour: &str) -> Vec<String> {
    let all = std::fs::read_to_string(root().join("tests/oracle/linux-tail-calls.tsv")).unwrap();
    let own = all.lines().filter_map(|line| line.strip_prefix(&format!("{flavour}\t")).map(str::to_owned));
    own.collect()
}

/// The script that enables a kretprobe for each function, works, and prints what they have seen.
fn script(functions: &[String]) -> String {
    let mut script = String::from(
        "mount -t proc proc /proc\nmount -t sysfs sysfs /sys\nmount -t devtmpfs devtmpfs /dev\n\
         mount -t tracefs tracefs /sys/kernel/tracing\n\
         export PATH=/bin\nT=/sys/kernel/tracing\necho 8192 > $T/buffer_size_kb\n",
    );
    for function in functions {
        writeln!(script, "echo 'r200:k/{function} {function} $retval' >> $T/kprobe_events").unwrap();
    }
    script += "echo 1 > $T/events/k/enable\necho begin > $T/trace_marker\n";
    script += WORK;
    script += "echo end > $T/trace_marker\necho 0 > $T/events/k/enable\ncat $T/kprobe_profile\ncat $T/trace\n\
               echo tail: end\npoweroff -f\n";
    script
}

/// What the kernel's probes have seen, by function.
fn of_the_guest(console: &str) -> BTreeMap<&str, Vec<u64>> {
    let mut found: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let marked = console.split_once("tracing_mark_write: begin").unwrap().1;
    for line in marked.split_once("tracing_mark_write: end").unwrap().0.lines() {
        // `task-1 [000] d.... 1.000000: function: (caller+0x1/0x2 <- function) arg1=0x0`
        let Some((before, value)) = line.trim().rsplit_once(") arg1=0x") else { continue };
        let function = before.rsplit_once(" <- ").unwrap().1;
        found.entry(function).or_default().push(u64::from_str_radix(value, 16).unwrap());
    }
    found
}

/// What ours have seen.
fn of_ours(out: &str) -> BTreeMap<&str, Vec<Ours>> {
    let mut found = BTreeMap::<&str, Vec<Ours>>::new();
    let mut open = BTreeMap::<(&str, &str), u64>::new();
    for line in out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["E", thread, function] => *open.entry((thread, function)).or_default() += 1,
            ["R", thread, function, value] => {
                let open = open.entry((thread, function)).or_default();
                let value = u64::from_str_radix(value, 16).unwrap();
                found.entry(function).or_default().push((value, *open > 0));
                *open = open.saturating_sub(1);
            }
            _ => {}
        }
    }
    found
}

/// Whether the guest's are ours, but for some that began before the mark.
fn agree(guest: &[u64], ours: &[Ours]) -> bool {
    let mut guest = guest.iter().peekable();
    let same = ours.iter().all(|(value, whole)| guest.next_if_eq(&value).is_some() || !whole);
    same && guest.next().is_none()
}

fn values_are_those_of_kretprobes(flavour: &str) {
    let functions = functions(flavour);
    let folder = TempDir::new().unwrap();
    let linux = Linux::of(flavour).unwrap();
    let image = linux.image(folder.path(), &[], &[], &script(&functions)).unwrap();
    let at = |name: &str| {
        functions.iter().map(|f| format!("fbt:vmlinux:{f}:{name}")).collect::<Vec<_>>().join(",")
    };
    let program = format!(
        "BEGIN {{ on = 0; }}\n\
         fbt::tracing_mark_write:entry {{ on = !on; }}\n\
         {} /on/ {{ printf(\"E %d %s\\n\", tid, probefunc); }}\n\
         {} /on/ {{ printf(\"R %d %s %x\\n\", tid, probefunc, arg1); }}\n\
         ERROR {{ printf(\"error\\n\"); }}\n",
        at("entry"),
        at("return")
    );
    std::fs::write(folder.path().join("p.d"), program).unwrap();
    let (kernel, image) = (guest(&format!("linux-{flavour}")), image.display().to_string());
    let run = ["run", &kernel, "--initrd", &image, "--until", "tail: end", "--console", "console", "-q"];
    let ran = trapline_from_init(
        folder.path(),
        &[&run[..], &["-x", "quiet", "-x", "bufsize=64m", "-s", "p.d"]].concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.out.lines().any(|line| line == "error"), "{}", ran.err);
    let console = std::fs::read_to_string(folder.path().join("console")).unwrap().replace('\r', "");
    // Function, hits, misses: the kernel misses calls inside of its own tracing.
    let profile = console.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [function, _, missed] = words[..] {
            Some((function.to_owned(), missed.parse::<u64>().ok()?))
        } else {
            None
        }
    });
    let missed: BTreeMap<String, u64> = profile.collect();
    let (theirs, ours) = (of_the_guest(&console), of_ours(&ran.out));
    let mut compared = 0;
    let mut wrong = String::new();
    for function in functions.iter().filter(|function| missed.get(*function) == Some(&0)) {
        let theirs = theirs.get(function.as_str()).cloned().unwrap_or_default();
        let ours = ours.get(function.as_str()).cloned().unwrap_or_default();
        compared += usize::from(!theirs.is_empty());
        if !agree(&theirs, &ours) {
            writeln!(wrong, "{function}: {} {theirs:x?}, ours {} {ours:x?}", theirs.len(), ours.len())
                .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared >= 200, "{compared} functions were compared");
}

#[test]
fn guest_linux_values_at_tail_calls_are_those_of_kretprobes() {
    values_are_those_of_kretprobes("cloud-amd64");
}
