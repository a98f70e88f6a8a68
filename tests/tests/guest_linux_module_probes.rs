//! Macro-declared probes of a Linux module, in Debian's kernels: their arguments, what the module and the kernel see of
//! them, loading it again, and that a run with them can be saved, recorded and replayed. The module is
//! guest-images/linux/probed.c.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;

use super::cli::{Ran, trapline, trapline_from_init};
use tempfile::TempDir;
use trapline_tests::guest;
use trapline_tests::linux::{QUICK, drivers_image};

/// Loads the module twice; each time it is asked, written to and asked.
const TWICE: &str = "
for load in first second; do
    insmod /lib/probed.ko
    echo $load $(cat /dev/probed)
    echo hi > /dev/probed
    echo longer > /dev/probed
    echo $load $(cat /dev/probed)
    echo writes at $(cat /sys/module/probed/sections/.bss)
    rmmod probed
done
";

/// All its probes with their arguments.
const ALL: &str = "sdt:probed:: { printf(\"%s\", probename); } \
    sdt:probed::started { printf(\" %d %s\\n\", args[0], stringof(args[1])); } \
    sdt:probed::stopped { printf(\" %d\\n\", args[0]); } \
    sdt:probed::request { printf(\" %d %s\", args[0], stringof(args[1])); \
    printf(\" %d %x\\n\", args[2], (uintptr_t)args[3]); }";

/// A guest with the module.
struct Guest {
    folder: TempDir,
    kernel: String,
    initrd: String,
}

impl Guest {
    fn new(flavour: &str, test: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let initrd = drivers_image(folder.path(), flavour, test).unwrap().display().to_string();
        let kernel = guest(&format!("linux-{flavour}"));
        Self { folder, kernel, initrd }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs it from its first process to its end; what it wrote after that on the console is there too.
    fn run(&self, more: &[&str]) -> (Ran, Vec<String>) {
        let args = ["run", &self.kernel, "--initrd", &self.initrd, "--console", "console", "--stats"];
        let ran = trapline_from_init(
            self.path(),
            &[&args[..], &["--digest", "--limit-insns", "40G"], more].concat(),
        );
        assert_eq!(ran.code, 0, "{}", ran.err);
        (ran, self.console())
    }

    fn console(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&std::fs::read(self.path().join("console")).unwrap()).into_owned();
        let own = text.lines().skip_while(|line| !line.contains("Run /init")).skip(1);
        own.filter(|line| !line.starts_with('[')).map(str::to_owned).collect()
    }
}

fn digest(ran: &Ran) -> &str {
    ran.out.lines().chain(ran.err.lines()).find(|line| line.starts_with("digest")).unwrap()
}

fn stat(ran: &Ran, name: &str) -> u64 {
    let line = ran.err.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

/// The lines that the probes print for one load, by the source of the module: `writes` counts, and a text of more than four
/// bytes reaches a second point.
fn hits_of_a_load(writes_at: &str) -> Vec<String> {
    let sum = |text: &str| 0x12_3456_7890 + text.bytes().map(i64::from).sum::<i64>();
    let at = writes_at.trim_start_matches("0x");
    vec![
        "started 0 probed".to_owned(),
        format!("request 3 hi\n {} {at}", sum("hi\n")),
        format!("request 7 longer\n {} {at}", sum("longer\n")),
        format!("request -1 long {} ", -sum("longer\n")),
        "stopped 2".to_owned(),
    ]
}

fn arguments_at_every_load(flavour: &str) {
    let guest = Guest::new(flavour, TWICE);
    let off = |n: u32| format!("request is off, {n} writes");
    let (plain, seen) = guest.run(&[]);
    let said = |load: &str| -> Vec<&str> {
        seen.iter().filter_map(|line| line.strip_prefix(load)?.strip_prefix(' ')).collect()
    };
    assert_eq!([said("first"), said("second")], [[off(0), off(2)], [off(0), off(2)]]);

    // Listed, and asked for its state, the guest is the same.
    let script = guest.path().join("s.script");
    let text = "on console \"second request\" list -v --opcode sdt:probed::\n";
    std::fs::write(&script, text).unwrap();
    let (listed, _) = guest.run(&["--script", "s.script"]);
    assert_eq!(digest(&listed), digest(&plain));
    let line = "pointer of a macro-declared probe, visible to the guest";
    assert_eq!(listed.out.matches(line).count(), 3, "{}", listed.out);
    assert_eq!(listed.out.matches("holds 0x0").count(), 3, "{}", listed.out);

    let (probed, seen) = guest.run(&["-x", "quiet", "-n", ALL]);
    let said = |load: &str| -> Vec<&str> {
        seen.iter().filter_map(|line| line.strip_prefix(load)?.strip_prefix(' ')).collect()
    };
    let on = |n: u32| format!("request is on, {n} writes");
    assert_eq!([said("first"), said("second")], [[on(0), on(2)], [on(0), on(2)]], "{seen:?}");
    // Where the only variable of `.bss` is, as the guest says.
    let writes = said("writes at");
    let mut rest = probed.out.as_str();
    for at in &writes {
        for wanted in hits_of_a_load(at) {
            let (before, after) = rest.split_once(&wanted).unwrap_or_else(|| panic!("{wanted}: {rest}"));
            assert!(before.lines().count() <= 1, "{wanted}: {rest}");
            rest = after;
        }
    }
    assert_eq!((writes.len(), rest.trim()), (2, ""), "{}", probed.out);
    // Three pointers, at each load.
    assert_eq!((stat(&probed, "words_raised"), stat(&probed, "words_left")), (6, 0));
}

#[test]
fn guest_macro_declared_probes_of_a_module_have_their_arguments_at_every_load() {
    for flavour in ["cloud-amd64", "686"] {
        arguments_at_every_load(flavour);
    }
}

#[test]
fn guest_the_pointer_in_a_module_follows_what_is_enabled_at_length() {
    let ask = |what: &str| format!("echo '{what}?'\nsleep 1\necho {what} $(cat /dev/probed)\n");
    let test = [
        "insmod /lib/probed.ko\n",
        &ask("loaded"),
        "echo one > /dev/probed\n",
        &ask("removed"),
        "echo two > /dev/probed\n",
        &ask("again"),
        "echo three > /dev/probed\nrmmod probed\necho 'gone?'\nsleep 1\ninsmod /lib/probed.ko\n",
        &ask("back"),
        "echo four > /dev/probed\nrmmod probed\necho 'end?'\nsleep 1\n",
    ]
    .concat();
    for flavour in ["cloud-amd64", "686"] {
        let guest = Guest::new(flavour, &test);
        let program =
            "name = vmlinux\nmodtype = kernel\noffset = \"sdt:probed::request\"\npush arg, 0\nlog 1\nexit\n";
        for name in ["one.rpn", "two.rpn"] {
            std::fs::write(guest.path().join(name), program).unwrap();
        }
        // Two programs share the pointer. It is lowered with the last of them, at once, and raised at once when the module
        // is loaded; while it is not loaded, no site is armed.
        let script = "on console \"loaded?\" insert one.rpn\non console \"loaded?\" insert two.rpn\n\
            on console \"removed?\" remove two.rpn\non console \"removed?\" query\non console \"removed?\" disable one.rpn\n\
            on console \"removed?\" query\non console \"again?\" enable one.rpn\non console \"again?\" query\n\
            on console \"gone?\" query\non console \"back?\" query\non console \"end?\" query\n\
            on console \"end?\" disable one.rpn\n";
        std::fs::write(guest.path().join("s.script"), script).unwrap();
        let (ran, seen) = guest.run(&["--script", "s.script"]);
        let said: Vec<&str> =
            seen.iter().filter_map(|line| line.split_once("request is ")).map(|w| w.1).collect();
        let wanted = ["on, 0 writes", "off, 1 writes", "on, 2 writes", "on, 0 writes"];
        assert_eq!(said, wanted, "{flavour} {}", ran.err);
        let lengths: Vec<&str> =
            ran.out.lines().filter_map(|line| line.split_once("request ")).map(|w| w.1).collect();
        let low = |data: &str| i64::from(u8::from_str_radix(&data[..2], 16).unwrap());
        let lengths: Vec<i64> = lengths.iter().map(|data| low(data)).collect();
        // "one" by both programs, "three" and its second point, "four" and its second point.
        assert_eq!(lengths, [4, 4, 6, 0xff, 5, 0xff], "{flavour} {}", ran.out);
        let sites: Vec<&str> = ran
            .out
            .lines()
            .filter(|line| line.starts_with("query ") && line.contains("one.rpn["))
            .map(|line| line.split(" sites=").nth(1).unwrap().split(' ').next().unwrap())
            .collect();
        // The last check of the modules may have been before the module was unloaded.
        assert_eq!(sites[..3], ["1", "0", "1"], "{flavour} {}", ran.out);
        assert_eq!(sites[4], "1", "{flavour} {}", ran.out);
        assert_eq!((stat(&ran, "words_raised"), stat(&ran, "words_left")), (3, 0), "{flavour}");
    }
}

#[test]
fn guest_a_run_with_probes_of_a_module_is_saved_recorded_and_replayed_at_length() {
    let guest = Guest::new("cloud-amd64", TWICE);
    let clause = ["--rpn", "sdt:probed:: { push arg, 0; log 1 }"];
    let (whole, _) = guest.run(&clause);
    let records = |ran: &Ran| -> Vec<String> {
        ran.out.lines().filter(|line| line.starts_with("DProbes")).map(str::to_owned).collect()
    };
    assert_eq!(records(&whole).len(), 10, "{}", whole.out);
    // Saved while the pointers are raised, and while they are raised at another address.
    for text in ["first request is on, 0", "first request is on, 2", "second request is on, 2"] {
        let (begun, _) = guest.run(&[&clause[..], &["--until", text, "--save", "saved"]].concat());
        // The probes are in the snapshot.
        let args = ["run", &guest.kernel, "--initrd", &guest.initrd, "--append", QUICK, "--restore", "saved"];
        let ended = trapline(guest.path(), &[&args[..], &["--limit-insns", "40G", "--digest"]].concat());
        assert_eq!((ended.code, digest(&ended)), (0, digest(&whole)), "{text}: {}", ended.err);
        assert_eq!([records(&begun), records(&ended)].concat(), records(&whole), "{text}");
    }
    let args = ["record", &guest.kernel, "--initrd", &guest.initrd, "--append", QUICK, "--record", "run.tlr"];
    let more = ["--limit-insns", "40G", "-x", "quiet", "-n", ALL];
    let recorded = trapline(guest.path(), &[&args[..], &more].concat());
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    let replayed = trapline(guest.path(), &["replay", "run.tlr", "--verify"]);
    assert_eq!((replayed.code, replayed.out.as_str()), (0, recorded.out.as_str()), "{}", replayed.err);
}
