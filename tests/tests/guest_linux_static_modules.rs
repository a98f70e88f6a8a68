//! Static probes in a Linux module, in the kernels of each release of Debian: macro-declared probes, and calls to functions
//! that do not exist, which are replaced here as a loader would. The module is Debian's `dummy`, linked with a
//! file of ours whose functions are begun and ended in place of its own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::cli::{Ran, finish, patient, trapline, trapline_from_init};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use tempfile::TempDir;
use trapline_emu::load::ElfView;
use trapline_providers::sdt::{CallSites, Domain};
use trapline_tests::linux::{Linux, QUICK};
use trapline_tests::{guest, root};

/// Loads the module twice.
const TWICE: &str = "insmod /dummy.ko\nrmmod dummy\ninsmod /dummy.ko\nrmmod dummy\npoweroff -f\n";

fn tool(folder: &Path, program: &str, args: &[&str]) {
    let mut command = patient(program);
    command.args(args).current_dir(folder);
    let ran = finish(command);
    assert_eq!(ran.code, 0, "{program} {args:?}: {}", ran.err);
}

/// The module, for this kernel. Its calls are replaced or not.
fn module(folder: &Path, linux: &Linux, replaced: bool) {
    let (bits, emulation, own) = match linux.arch {
        "i386" => ("-m32", "elf_i386", ["-mregparm=3", "-fno-pic"]),
        _ => ("-m64", "elf_x86_64", ["-mcmodel=kernel", "-mno-red-zone"]),
    };
    let include = format!("-I{}", root().join("guest-images/include").display());
    let source = root().join("tests/tests/static/unit.c").display().to_string();
    let plain =
        ["-O2", "-ffreestanding", "-fno-pie", "-fno-pic", "-mno-sse", "-mno-mmx", "-fcf-protection=none"];
    let more = ["-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-c", &source, "-o", "unit.o"];
    tool(folder, "gcc", &[&[bits, &include], &own[..], &plain, &more].concat());
    let dummy = guest(&format!("modules-{}/dummy.ko", linux.flavour));
    let weak = ["--weaken-symbol=init_module", "--weaken-symbol=cleanup_module"];
    tool(folder, "objcopy", &[&weak[..], &[&dummy, "dummy.o"]].concat());
    tool(folder, "ld", &["-m", emulation, "-r", "-o", "dummy.ko", "dummy.o", "unit.o"]);
    let mut file = std::fs::read(folder.join("dummy.ko")).unwrap();
    let sites = CallSites::read(&ElfView::parse(&file).unwrap(), Domain::Kernel).unwrap();
    assert_eq!((sites.probes().len(), sites.refused.len()), (2, 0), "{:?}", sites.refused);
    if replaced {
        sites.load_into(&mut file);
        std::fs::write(folder.join("dummy.ko"), file).unwrap();
    }
}

struct Guest {
    folder: TempDir,
    kernel: String,
    initrd: String,
}

impl Guest {
    fn new(flavour: &str, replaced: bool) -> Self {
        let linux = Linux::of(flavour).unwrap();
        let folder = TempDir::new().unwrap();
        module(folder.path(), linux, replaced);
        let initrd = linux.image(folder.path(), &[], &["dummy.ko"], TWICE).unwrap().display().to_string();
        let kernel = guest(&format!("linux-{flavour}"));
        Self { folder, kernel, initrd }
    }

    fn run(&self, more: &[&str]) -> Ran {
        let args = ["run", &self.kernel, "--initrd", &self.initrd, "--console", "console", "--append", QUICK];
        let more = [&args[..], &["--stats", "--digest", "--limit-insns", "40G"], more].concat();
        let ran = trapline_from_init(self.folder.path(), &more);
        let console = std::fs::read(self.folder.path().join("console")).unwrap();
        assert_eq!(ran.code, 0, "{}\n{}", ran.err, String::from_utf8_lossy(&console));
        ran
    }
}

/// The lines of `--stats` and `--digest` that begin so.
fn line<'a>(ran: &'a Ran, name: &str) -> &'a str {
    ran.err.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{}", ran.err)).trim()
}

fn are_hit(flavour: &str) {
    let guest = Guest::new(flavour, true);
    let plain = guest.run(&["-q"]);
    // Replaced calls are sites like any other: the guest does not notice them.
    let calls = "sdt:dummy::unit-round { printf(\"%d %s\\n\", (long)arg0, stringof((char *)arg1)); } \
                 sdt:dummy::unit-last { printf(\"last %d %s\\n\", (long)arg0, probefunc); }";
    let probed = guest.run(&["-x", "quiet", "-n", calls]);
    for name in ["digest", "instructions"] {
        assert_eq!(line(&probed, name), line(&plain, name), "{flavour} noticed its probes");
    }
    let mut wanted = String::new();
    for _ in 0..2 {
        (1..=5).for_each(|n| writeln!(wanted, "{n} round").unwrap());
        wanted += "last 5 cleanup_module\n";
    }
    assert_eq!(probed.out.trim(), wanted.trim(), "{flavour}: {}", probed.err);
    // With the macro-declared ones, whose pointers are written at each load.
    let all = "sdt:dummy::unit-round { printf(\"%d %s\\n\", (long)arg0, stringof((char *)arg1)); } \
               sdt:dummy::request { printf(\"%d %s\\n\", args[0], stringof(args[1])); } \
               sdt:dummy::stopped { printf(\"stopped %d\\n\", args[0]); }";
    let probed = guest.run(&["-x", "quiet", "-n", all]);
    let mut wanted = String::new();
    for _ in 0..2 {
        (1..=5).for_each(|n| writeln!(wanted, "{n} round\n{} square", n * n).unwrap());
        wanted += "stopped 5\n";
    }
    assert_eq!(probed.out.trim(), wanted.trim(), "{flavour}: {}", probed.err);
    assert_eq!((line(&probed, "words_raised"), line(&probed, "words_left")), ("4", "0"), "{flavour}");
}

#[test]
fn guest_static_probes_of_a_module_of_debian_13_are_hit() {
    are_hit("6.12-cloud-amd64");
}

#[test]
fn guest_static_probes_of_modules_of_any_release_are_hit_at_length() {
    let others =
        ["5.10-686", "5.10-cloud-amd64", "5.10-amd64", "686", "amd64", "6.12-amd64", "testing-cloud-amd64"];
    for kernel in others {
        are_hit(kernel);
    }
}

/// Linux does not load a module that still has the calls. They are listed as what cannot be probed.
#[test]
fn guest_calls_of_a_module_that_no_loader_has_replaced_are_refused() {
    let guest = Guest::new("6.12-cloud-amd64", false);
    guest.run(&["-q"]);
    let console = std::fs::read_to_string(guest.folder.path().join("console")).unwrap();
    assert!(console.contains("dummy: Unknown symbol __dtrace_probe_unit__round (err -2)"), "{console}");
    let args = ["list", &guest.kernel, "--initrd", &guest.initrd, "sdt:dummy::", "-v", "-f", "json", "-q"];
    let listed = trapline(guest.folder.path(), &args);
    let lines: Vec<serde_json::Value> =
        listed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    let names: BTreeSet<&str> = of("probe").iter().filter_map(|probe| probe["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["request", "stopped"]), "{}", listed.out);
    // Each call is refused; the compiler may make several of one.
    assert!(of("refused").len() >= 2, "{}", listed.out);
}
