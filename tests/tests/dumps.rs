//! Crash dumps of small guests, as gdb and readelf read them, and dumps that qemu writes, as we read them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::cli::{Ran, folder, trapline};
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use tempfile::TempDir;
use trapline_session::trapline_emu::PhysMem;
use trapline_session::{
    Compression, Condition, DumpFile, GuestBuilder, How, Limits, Listing, Session, Wanted,
};
use trapline_tests::{guest, root};

/// Runs a tool of the host; its output, standard error included.
pub fn tool(folder: &Path, program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; run scripts/bootstrap"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

pub fn ran(folder: &Path, args: &[&str]) -> Ran {
    let ran = trapline(folder, args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    ran
}

pub fn write(session: &Session, path: &Path, compression: Compression) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    session.vmcore().write(&mut file, compression).unwrap();
}

/// A list of the live machine, as the command prints it.
pub fn listed(session: &Session, wanted: &Wanted) -> String {
    let target = Arc::clone(session.target());
    let how = How { digits: 2 + 2 * target.width().bytes(), ..How::default() };
    let found = session.present(|present| Listing::find(&target, Some(present), wanted)).unwrap();
    found.text(how).iter().map(|line| format!("{line}\n")).collect()
}

/// Modules without the column of their files, which a dump does not have.
fn without_files(lines: &str) -> String {
    let kept = lines.lines().map(|line| line.rsplit_once("  ").unwrap().0.trim_end().to_owned() + "\n");
    kept.collect()
}

/// The stacks of a live machine, as the command prints their frames.
pub fn frames(session: &Session) -> Vec<String> {
    let digits = 2 + 2 * session.target().width().bytes();
    let all = session.stacks(64).into_iter().flat_map(|stack| stack.frames);
    all.map(|frame| format!("{:#0digits$x}  {}", frame.ip, frame.symbol.unwrap_or("-".to_owned()))).collect()
}

/// Asserts that a dump has the lists of the live machine.
pub fn assert_lists(folder: &Path, file: &str, live: &Session, more: &[&str]) {
    let list = |what: &str| ran(folder, &[&["-q", "dump", file, "--list", what], more].concat()).out;
    assert_eq!(list("processes"), listed(live, &Wanted::Processes), "{file}");
    assert_eq!(without_files(&list("modules")), without_files(&listed(live, &Wanted::Modules)), "{file}");
    let stacks = list("stacks");
    let found: Vec<&str> = stacks.lines().filter_map(|line| line.strip_prefix("        ")).collect();
    let expected = frames(live);
    assert!(found.len() > 5 && found == expected, "{file}: {stacks}");
}

#[test]
fn a_dump_is_the_machines_memory_and_probes_do_not_show_in_it() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    for guest in ["embedded:ia32", "embedded:x86_64"] {
        let mut session = GuestBuilder::image(guest).memory(64 << 20).start().unwrap();
        session.run_until(&Condition::end(), &Limits::insns(3_000_000));
        let probe = "fbt::do_fork: { push pid; log 1 }";
        let record =
            ["record", guest, "--mem", "64M", "--rpn", probe, "--limit-insns", "4M", "-o", "run.tlr"];
        assert_eq!(trapline(here, &record).code, 124);
        ran(here, &["dump", guest, "--mem", "64M", "--at", "3M", "-o", "live"]);
        ran(here, &["dump", "run.tlr", "--at", "3M", "-o", "recorded"]);
        let (live, recorded) = (std::fs::read(here.join("live")), std::fs::read(here.join("recorded")));
        assert!(live.unwrap() == recorded.unwrap(), "{guest}");
        ran(here, &["dump", "run.tlr", "--at", "hit:1", "-o", "hit"]);
        a_small_guest_is_read(here, guest, &session);
        let dump = DumpFile::open(&here.join("live")).unwrap();
        let ram = session.core().ram();
        for range in dump.info().memory {
            let mut bytes = vec![0; range.size as usize];
            assert!(dump.read(range.paddr, &mut bytes));
            assert!(
                bytes == ram.bytes()[range.paddr as usize..range.end() as usize],
                "{guest}: {:#x}",
                range.paddr
            );
        }
        let info = dump.info();
        assert_eq!(info.cpus[0].0.ip, session.core().env().eip());
        // gdb sees the kernel's code at its addresses.
        let examine = format!("x/i {:#x}", session.symbols().sole("do_fork").unwrap().addr);
        let shown = tool(here, "gdb", &["-nx", "-batch", "-c", "live", "-ex", &examine, "-ex", "p/x $pc"]);
        assert!(shown.contains("push ") && shown.contains(&format!("= {:#x}", info.cpus[0].0.ip)), "{shown}");
        let headers = tool(here, "readelf", &["-l", "live"]);
        assert!(headers.contains("CORE (Core file)") && !headers.contains("Warning"), "{headers}");
    }
}

/// The lists of the embedded guests, by the symbols of their files; and what is refused.
fn a_small_guest_is_read(here: &Path, guest: &str, session: &Session) {
    let symbols = &["--symbols", guest][..];
    let list = |what: &str| ran(here, &[&["-q", "dump", "live", "--list", what], symbols].concat()).out;
    assert_eq!(list("processes"), listed(session, &Wanted::Processes));
    assert_eq!(list("modules"), listed(session, &Wanted::Modules));
    let stacks = list("stacks");
    assert!(frames(session).iter().all(|frame| stacks.contains(frame)), "{stacks}");
    let count = format!("{} tasks", session.processes().len());
    let d = "BEGIN { printf(\"%s %d\", execname, pid); } END { printf(\" ends\\n\"); }";
    let out = ran(here, &[&["-q", "dump", "live", "-x", "quiet", "-n", d], symbols].concat()).out;
    let current = session.stacks(1).into_iter().find(|stack| stack.running).unwrap();
    assert!(out.contains(&format!("{} {} ends\n", current.name, current.pid)), "{out} {count}");
    let writes = match guest {
        "embedded:ia32" => "BEGIN { push 1; pop r, eax }",
        _ => "BEGIN { push 1; pop r, rax }",
    };
    let other = if guest == "embedded:ia32" { "embedded:x86_64" } else { "embedded:ia32" };
    for (more, code, sentence) in [
        (&["--list", "processes"][..], 7, "give the file of its kernel with --symbols FILE"),
        (&["--list", "processes", "--symbols", other], 7, " is not the kernel of this dump"),
        (&["--list", "console", "--symbols", guest], 7, "the guest's system keeps no log that is known here"),
        (&["-n", "fbt::do_fork:entry { trace(1); }", "--symbols", guest], 2, "only BEGIN and END fire in it"),
        (&["--rpn", "fbt::do_fork:entry { exit }", "--symbols", guest], 2, "only BEGIN and END fire in it"),
        (
            &["-n", "BEGIN { trace(1); }", "-x", "destructive", "--symbols", guest],
            2,
            "a dump can only be read",
        ),
        (&["--rpn", writes, "--symbols", guest], 2, "a dump can only be read"),
    ] {
        let ran = trapline(here, &[&["dump", "live"], more].concat());
        assert!(ran.code == code && ran.err.contains(sentence), "{more:?}: {} {}", ran.code, ran.err);
    }
}

/// Asserts that an image of the machine's memory, with the address of its page table, shows what its dump shows.
fn assert_raw(here: &Path, session: &Session, (dump, symbols): (&str, &str), what: &[&str]) {
    std::fs::write(here.join("memory"), session.core().ram().bytes()).unwrap();
    let root = format!("{:#x}", session.core().env().cr(3));
    let of = |args: &[&str]| ran(here, &[&["-q", "dump"], args, &["--symbols", symbols], what].concat()).out;
    let raw = of(&["memory", "--raw", "--cr3", &root]);
    assert!(!raw.is_empty() && raw == of(&[dump]), "{what:?}: {raw}");
}

#[test]
fn images_of_memory_of_small_guests_are_read() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    for guest in ["embedded:ia32", "embedded:x86_64"] {
        let mut session = GuestBuilder::image(guest).memory(16 << 20).start().unwrap();
        session.run_until(&Condition::end(), &Limits::insns(3_000_000));
        write(&session, &here.join("vmcore"), Compression::None);
        for what in ["processes", "modules"] {
            assert_raw(here, &session, ("vmcore", guest), &["--list", what]);
        }
    }
}

#[test]
fn guest_gnumach_dumps_and_images_of_its_memory_are_read() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let kernel = guest("gnumach");
    let mut session = GuestBuilder::image(&kernel).start().unwrap();
    session.run_until(&Condition::end(), &Limits::insns(20_000_000));
    write(&session, &here.join("vmcore"), Compression::None);
    let symbols = ["--symbols", kernel.as_str()];
    let stacks = ran(here, &[&["-q", "dump", "vmcore", "--list", "stacks"], &symbols[..]].concat()).out;
    let expected = frames(&session);
    assert!(expected.len() > 3 && expected.iter().all(|frame| stacks.contains(frame)), "{stacks}");
    let version = session.symbols().sole("version").unwrap().addr;
    let d = format!("BEGIN {{ printf(\"%s\\n\", stringof((char *){version:#x})); }}");
    let program = ["-x", "quiet", "-n", d.as_str()];
    let out = ran(here, &[&["-q", "dump", "vmcore"], &symbols[..], &program].concat()).out;
    assert!(out.contains("GNU Mach 1.8"), "{out}");
    assert_raw(here, &session, ("vmcore", &kernel), &program);
    for (more, code, sentence) in [
        (&["--list", "processes"][..], 7, "give the file of its kernel with --symbols FILE"),
        (&["--list", "processes", "--symbols", &kernel], 2, "the guest's system is not known"),
        (&["--list", "console", "--symbols", &kernel], 7, "keeps no log that is known here"),
    ] {
        let refused = trapline(here, &[&["dump", "vmcore"], more].concat());
        assert!(
            refused.code == code && refused.err.contains(sentence),
            "{more:?}: {} {}",
            refused.code,
            refused.err
        );
    }
}

#[test]
fn exit_2_and_scripts_write_dumps() {
    let folder = folder(&[("s", b"at insns=1M dump\nat insns=2M dump\n")]);
    let here = folder.path();
    let ran = trapline(here, &["run", "embedded:ia32", "--script", "s", "--limit-insns", "3M"]);
    assert_eq!(ran.code, 124, "{}", ran.err);
    assert!(ran.err.contains("./vmcore.2: the machine after 2000000 instructions"), "{}", ran.err);
    ran_same(here, "1M", "vmcore.1");
    ran_same(here, "2M", "vmcore.2");
    // A handler: before the probed instruction, at each hit but only once.
    std::fs::create_dir(here.join("dumps")).unwrap();
    let probe = ["--rpn", "fbt::do_fork:entry { push pid; log 1; exit 2 }", "--core-dir", "dumps"];
    let ran = trapline(here, &[&["run", "embedded:ia32", "--digest"], &probe[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let files: Vec<_> =
        std::fs::read_dir(here.join("dumps")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(files, ["vmcore.1"], "{}", ran.err);
    let message = "`exit 2` wrote no dump, because a run writes only the first: the handler ended as with `exit` (5 times)";
    assert!(ran.err.contains(message), "{}", ran.err);
    let info = DumpFile::open(&here.join("dumps/vmcore.1")).unwrap().info();
    let session = GuestBuilder::image("embedded:ia32").start().unwrap();
    let entry = session.symbols().sole("do_fork").unwrap().addr;
    assert_eq!(info.cpus[0].0.ip, entry);
    // The guest does not notice.
    let plain = trapline(here, &["run", "embedded:ia32", "--digest"]);
    let digest = |ran: &Ran| ran.err.lines().find(|line| line.starts_with("digest")).map(str::to_owned);
    assert_eq!(digest(&ran), digest(&plain));
    assert!(digest(&plain).is_some(), "{}", plain.err);
}

/// Asserts that a file is the dump at this count.
fn ran_same(here: &Path, at: &str, file: &str) {
    ran(here, &["dump", "embedded:ia32", "--at", at, "-o", "same"]);
    assert!(std::fs::read(here.join("same")).unwrap() == std::fs::read(here.join(file)).unwrap(), "{file}");
}

#[test]
fn a_core_of_qemu_is_read() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    // The monitor's own copy of the memory is the oracle.
    let mut qemu = Command::new("qemu-system-x86_64")
        .args(["-M", "pc", "-m", "16", "-nodefaults", "-display", "none", "-monitor", "stdio", "-S"])
        .args(["-device", "loader,addr=0x7c00,data=0x1122334455667788,data-len=8"])
        .current_dir(here)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut monitor = qemu.stdin.take().unwrap();
    let commands = "dump-guest-memory core\ndump-guest-memory -z core.z\npmemsave 0 0xa0000 memory\nquit\n";
    monitor.write_all(commands.as_bytes()).unwrap();
    drop(monitor);
    assert!(qemu.wait().unwrap().success());
    let expected = std::fs::read(here.join("memory")).unwrap();
    for file in ["core", "core.z"] {
        let dump = DumpFile::open(&here.join(file)).unwrap();
        let mut found = vec![0xff; expected.len()];
        assert!(dump.read(0, &mut found), "{file}");
        assert!(found == expected && found.iter().any(|byte| *byte != 0), "{file}");
        assert_eq!(dump.info().cpus.len(), 1, "{file}");
    }
}

#[test]
fn positions_and_files_that_do_not_fit_are_refused() {
    let folder = folder(&[("text", b"no dump at all"), ("empty", b""), ("core", b"KDUMP   and no more")]);
    let here = folder.path();
    for (args, code, sentence) in [
        (
            &["dump", "text", "--info"][..],
            7,
            "text: its first bytes are 6e 6f 20 64: this is no ELF core, no compressed dump of kdump and no flattened dump of \
             makedumpfile",
        ),
        (&["dump", "empty", "--info"], 7, "empty: the file is empty (0 bytes)"),
        (&["dump", "empty", "--raw", "--list", "stacks"], 7, "empty: the file is empty (0 bytes)"),
        (&["dump", ".", "--info"], 7, ".: is a directory"),
        (
            &["dump", "core", "-o", "new"],
            2,
            "core is a crash dump, in which nothing runs; read it with --info",
        ),
        (&["dump", "absent", "--info"], 7, "absent: No such file or directory"),
        (
            &["dump", "embedded:ia32", "--at", "hit:2", "-o", "new"],
            2,
            "--at hit:2 is a position in a recording; give an instruction count, or record the run",
        ),
        (
            &["dump", "embedded:ia32", "--at", "2G", "-o", "new"],
            2,
            "before the position 2000000000; without --at the machine is taken there",
        ),
        (&["dump", "embedded:ia32", "-o", "no/where"], 7, "cannot write no/where: No such file or directory"),
        (&["dump", "text", "-o", "text"], 2, "the dump would overwrite an input of this command, text"),
        (&["dump", "text", "--list", "processes"], 7, "text: its first bytes are 6e 6f 20 64"),
        (
            &["dump", "text", "--list", "stacks", "--raw"],
            7,
            "text: no Linux kernel with symbols is found in this dump",
        ),
        (
            &["dump", "embedded:ia32", "-o", "new", "--raw"],
            2,
            "--raw has no effect without --list or a program",
        ),
    ] {
        let ran = trapline(here, args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(sentence), "{args:?}: {}", ran.err);
        assert!(!here.join("new").exists(), "{args:?}");
    }
}

/// A dump of the embedded guest whose drivers trace, in a folder.
fn traced(folder: &TempDir, name: &str, compress: &str) -> std::path::PathBuf {
    let path = folder.path().join(name);
    let to = path.to_str().unwrap();
    let made = trapline(
        &root(),
        &["dump", "embedded:dti", "--mem", "16M", "--at", "3M", "--compress", compress, "-o", to],
    );
    assert_eq!(made.code, 0, "{}", made.err);
    path
}

#[test]
fn a_dump_that_is_cut_off_is_said_to_be_so() {
    let folder = folder(&[]);
    for compress in ["none", "zlib", "zstd"] {
        let whole = traced(&folder, compress, compress);
        let listed = trapline(&root(), &["dti", "list", whole.to_str().unwrap()]);
        assert!(!listed.err.contains("cut off"), "{}", listed.err);
        let bytes = std::fs::read(&whole).unwrap();
        let cut = folder.path().join("cut");
        for left_out in [100, bytes.len() / 2] {
            std::fs::write(&cut, &bytes[..bytes.len() - left_out]).unwrap();
            let cut = cut.to_str().unwrap();
            for args in [&["dti", "list", cut][..], &["dti", "show", cut], &["dump", cut, "--info"]] {
                let ran = trapline(&root(), args);
                assert_eq!(ran.code, 0, "{}", ran.err);
                assert!(ran.err.contains("is cut off: "), "{compress} {left_out} {args:?}: {}", ran.err);
            }
        }
    }
}

#[test]
fn a_dump_that_cannot_be_written_whole_is_removed() {
    let folder = folder(&[]);
    let to = folder.path().join("vmcore");
    // Without the signal, the limit is an error of the write.
    let line = format!(
        "trap '' XFSZ; ulimit -f 200; exec {} dump embedded:dti --mem 16M --at 3M -q -o {}",
        super::cli::binary().display(),
        to.display()
    );
    let output = Command::new("bash").args(["-c", &line]).current_dir(root()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("vmcore") && !to.exists(), "{said}");
}

#[test]
fn a_script_dumps_into_the_folder_of_core_dir() {
    let folder = folder(&[]);
    std::fs::write(folder.path().join("script"), "at insns=1000k dump\n").unwrap();
    let args = ["run", "embedded:dti", "--mem", "16M", "--limit-insns", "2M", "--script", "script"];
    let ran = trapline(folder.path(), &[&args[..], &["--core-dir", ".", "-q", "--console", "none"]].concat());
    assert_eq!(ran.code, 124, "{}", ran.err);
    assert!(folder.path().join("vmcore.1").exists());
}

#[test]
fn a_dump_from_standard_input_or_a_pipe_is_refused_with_a_sentence() {
    let refused = trapline(&root(), &["dump", "-", "--info"]);
    assert!(refused.code == 2 && refused.err.contains("cannot come from standard input"), "{}", refused.err);
    let refused = trapline(&root(), &["dump", "/dev/zero", "--info"]);
    assert!(refused.code == 7 && refused.err.contains("no regular file"), "{}", refused.err);
}

#[test]
fn outputs_of_a_crash_are_removed_when_there_is_none() {
    let folder = folder(&[]);
    let args = ["run", "embedded:dti", "--mem", "16M", "--console", "none"];
    let outputs = ["--dti-on-crash", "channels", "--dump-on-crash", "vmcore"];
    let ran = trapline(folder.path(), &[&args[..], &outputs].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("did not crash, so vmcore was not written"), "{}", ran.err);
    assert!(ran.err.contains("no channels were saved in channels"), "{}", ran.err);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
