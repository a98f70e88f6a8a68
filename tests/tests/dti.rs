//! Channels of the Driver Tracing Interface in the embedded guests: of a machine, a snapshot, a recording and a dump.

use std::ops::Range;
use std::path::Path;

use super::cli::{Ran, folder, trapline};
use trapline_session::trapline_dti::{Channel, View, find, show};
use trapline_session::trapline_emu::PhysMem;
use trapline_session::{Command, Condition, DumpFile, Ending, GuestBuilder, Limits, Session};

const GUESTS: [&str; 2] = ["embedded:dti", "embedded:dti-ia32"];

fn ran(here: &Path, args: &[&str], code: i32) -> Ran {
    let ran = trapline(here, args);
    assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
    ran
}

/// The memory of the kernel's image, where its channels are.
const IMAGE: Range<u64> = 0x10_0000..0x20_0000;

/// Each channel's name and records.
fn records(memory: &dyn PhysMem) -> Vec<(String, Vec<String>)> {
    let found = find(memory, &[IMAGE]);
    assert_eq!(found.damaged, []);
    let of = |channel: &Channel| {
        let contents = channel.read(memory);
        assert!(contents.cpus.iter().all(|cpu| cpu.damage.is_none()), "{:?}", contents.cpus);
        contents
            .records()
            .map(|record| format!("{} {}", record.time, show(record.data, View::Auto)))
            .collect()
    };
    found.channels.iter().map(|channel| (channel.name().to_owned(), of(channel))).collect()
}

#[test]
fn a_crash_in_the_middle_of_a_write_leaves_the_same_records_everywhere() {
    for guest in GUESTS {
        let folder = folder(&[]);
        let here = folder.path();
        let crash = ["--append", "dti=crash", "--mem", "64M"];
        let with = |args: &[&'static str]| [args, &crash[..]].concat();
        let show = |args: &[&str], code| {
            let ran = ran(here, &[&["dti", "show"], args].concat(), code);
            assert!(
                ran.err.contains("channel 3c59x: 1 record of CPU 0 not complete"),
                "{args:?}: {}",
                ran.err
            );
            ran.out
        };
        let live = show(&[&[guest][..], &crash, &["-f", "json"]].concat(), 0);
        let last = live.lines().last().unwrap_or_default();
        assert!(last.contains("\"text\":\"panic: page fault in the kernel\""), "{live}");
        assert!(live.contains("\"channel\":\"3c59x\""), "{live}");
        ran(here, &[&["run", guest, "--console", "none", "--save", "saved"], &crash[..]].concat(), 0);
        ran(here, &[&["record", guest, "--console", "none", "-o", "run.tlr"], &crash[..]].concat(), 0);
        ran(here, &[&["dump", guest, "-o", "core"], &crash[..]].concat(), 0);
        ran(here, &[&["dump", guest, "-o", "core.z", "--compress", "zlib"], &crash[..]].concat(), 0);
        write_image(here, 64 << 20);
        let restored = [&[guest, "--restore", "saved"][..], &crash, &["-f", "json"]].concat();
        for other in [
            &restored[..],
            &["run.tlr", "-f", "json"],
            &["core", "-f", "json"],
            &["core.z", "-f", "json"],
            &["image", "--raw", "-f", "json"],
        ] {
            assert!(show(other, 0) == live, "{guest}: {other:?}");
        }
        // Raw bytes too, of one channel.
        let raw = |args: &[&str]| show(&[args, &["3c59x", "--view", "raw"]].concat(), 0);
        assert_eq!(raw(&with(&[guest])), raw(&["core"]));
    }
}

/// Writes the memory of the dump `core` and nothing else to the file `image`.
fn write_image(here: &Path, size: usize) {
    let core = DumpFile::open(&here.join("core")).unwrap();
    let mut image = vec![0; size];
    for range in core.info().memory {
        assert!(core.read(range.paddr, &mut image[range.paddr as usize..range.end() as usize]));
    }
    std::fs::write(here.join("image"), image).unwrap();
}

/// A guest that stands before a call of `dti_log`: the first, or later ones.
fn before_a_write(guest: &str, hits: u64) -> Session {
    let mut session = GuestBuilder::image(guest).memory(16 << 20).start().unwrap();
    session.apply(Command::clause("fbt::dti_log:entry { push pid; log 1 }")).unwrap();
    let ending = session.run_until(&Condition::end().or_hits(hits), &Limits::none());
    assert_eq!(ending, Ending::EnoughHits(hits), "{guest}");
    session
}

#[test]
fn memory_is_consistent_before_and_after_each_instruction_of_a_write() {
    let mut switches = 0;
    for guest in GUESTS {
        // The 40th write and later ones enter sub-buffers of the timer's channel.
        for hits in [1, 2, 5, 6, 20].into_iter().chain(40..56) {
            let mut session = before_a_write(guest, hits);
            let before = records(session.core().ram());
            let mut seen = before.clone();
            for _ in 0..600 {
                session.step(1);
                let now = records(session.core().ram());
                if now == seen {
                    continue;
                }
                for (name, lines) in &now {
                    let old =
                        seen.iter().find(|(other, _)| other == name).map_or(&[][..], |(_, lines)| lines);
                    // A record more at the end, or the oldest sub-buffer less at the beginning.
                    let kept = old.iter().position(|line| lines.first() == Some(line)).unwrap_or(old.len());
                    let appended = lines.get(old.len() - kept..).unwrap_or_default();
                    assert_eq!(&lines[..lines.len() - appended.len()], &old[kept..], "{guest} {hits} {name}");
                    assert!(appended.len() <= 1, "{guest} {hits} {name}: {appended:?}");
                    switches += usize::from(kept > 0);
                }
                seen = now;
            }
            assert_ne!(seen, before, "{guest} {hits}: nothing was written");
        }
    }
    assert!(switches > 0, "no sub-buffer was overwritten");
}

#[test]
fn early_records_are_shown_before_and_after_they_move() {
    for guest in GUESTS {
        let folder = folder(&[]);
        let list = |at: &str| ran(folder.path(), &["dti", "list", guest, "--at", at], 0).out;
        let show = |at: &str| ran(folder.path(), &["dti", "show", guest, "kernel", "--at", at], 0).out;
        let state = |list: &str| {
            let line = list.lines().find(|line| line.starts_with("kernel")).unwrap_or_default().to_owned();
            line.split_whitespace().nth(1).unwrap_or_default().to_owned()
        };
        // Before memory can be allocated; the console is written to after that.
        let mut session = before_a_write(guest, 2);
        let early = session.icount().to_string();
        session.run_until(&Condition::console("module 3c59x"), &Limits::none());
        let later = session.icount().to_string();
        assert_eq!((state(&list(&early)).as_str(), state(&list(&later)).as_str()), ("early", "channel"));
        let (early, later) = (show(&early), show(&later));
        assert!(early.contains("kernel  text 0x") && later.starts_with(&early), "{early}\n{later}");
    }
}

#[test]
fn each_record_is_followed_once() {
    let folder = folder(&[]);
    let here = folder.path();
    let shown = ran(here, &["dti", "show", "embedded:dti", "3c59x"], 0).out;
    let followed = ran(here, &["dti", "follow", "embedded:dti", "3c59x", "--every", "100k"], 0).out;
    assert_eq!(followed, shown);
    ran(here, &["record", "embedded:dti", "--console", "none", "-o", "run.tlr"], 0);
    assert_eq!(ran(here, &["dti", "follow", "run.tlr", "3c59x"], 0).out, shown);
    // The timer's ring is overwritten between two looks that are far apart.
    let timer = |every: &str| ran(here, &["dti", "follow", "embedded:dti", "timer", "--every", every], 0);
    let (often, seldom) = (timer("100k"), timer("1G"));
    assert!(often.err.is_empty() && often.out.lines().count() > seldom.out.lines().count(), "{}", often.err);
}

#[test]
fn what_has_no_channels_or_no_effect_is_refused() {
    let folder = folder(&[]);
    let here = folder.path();
    ran(here, &["dump", "embedded:dti", "--at", "1M", "--mem", "16M", "-o", "core"], 0);
    for (args, code, sentence) in [
        (
            &["show", "embedded:dti", "floppy"][..],
            2,
            "there is no channel floppy; use one of 3c59x, ext2, kernel, timer",
        ),
        (&["show", "embedded:ia32", "floppy"], 2, "there is no channel floppy, nor any other"),
        (&["list", "embedded:ia32"], 0, "there are no channels"),
        (&["list", "core", "--at", "5"], 2, "--at has no effect on a dump, which does not run"),
        (&["list", "core", "--raw", "--at", "5"], 2, "--at has no effect on a dump, which does not run"),
        (&["follow", "core", "--raw"], 2, "a crash dump does not run; use `dti show`"),
        (&["list", "core", "--mem", "5M"], 2, "--mem has no effect on a dump, which does not run"),
        (&["follow", "core"], 2, "a crash dump does not run; use `dti show`"),
        (&["show", "embedded:dti", "-f", "json", "--view", "hex"], 2, "--view has no effect with -f json"),
        (&["show", "embedded:dti", "--template", "%q"], 2, "after `%` write one of"),
        (&["list", "absent"], 7, "absent: No such file or directory"),
        (&["show", "embedded:dti", "--at", "hit:1"], 2, "--at hit:1 is a position in a recording"),
    ] {
        let ran = trapline(here, &[&["dti"], args].concat());
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(sentence), "{args:?}: {}", ran.err);
    }
}

#[test]
fn the_provider_fires_for_each_record_and_does_not_change_the_guest() {
    for guest in GUESTS {
        let folder = folder(&[]);
        let here = folder.path();
        let program = "dti:3c59x::event { printf(\"%d %d\\n\", arg0, arg2); }";
        let probed =
            ran(here, &["run", guest, "-n", program, "-x", "quiet", "--console", "none", "--digest"], 0);
        let shown = ran(here, &["dti", "show", guest, "3c59x", "-f", "json"], 0).out;
        let lengths = shown.lines().map(|line| {
            let hex = line.split("\"data\":\"").nth(1).and_then(|rest| rest.split('"').next());
            hex.unwrap_or_default().len() / 2
        });
        // Frames are written at level 7, texts at level 5.
        let expected: Vec<String> = lengths
            .zip(shown.lines())
            .map(|(length, line)| format!("{} {length}", if line.contains("\"text\":") { 5 } else { 7 }))
            .collect();
        let fired: Vec<&str> = probed.out.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(fired, expected, "{guest}");
        assert!(fired.len() > 5, "{fired:?}");
        let digest = |ran: &Ran| ran.err.lines().find(|line| line.starts_with("digest")).map(str::to_owned);
        let plain = ran(here, &["run", guest, "--console", "none", "--digest"], 0);
        assert!(digest(&plain).is_some() && digest(&plain) == digest(&probed), "{guest}");
        // The level of ext2 excludes its records, and another channel's are not its own.
        let none = ran(here, &["run", guest, "-n", "dti:ext2::event", "-q", "--console", "none"], 0);
        assert_eq!(none.out, "", "{guest}");
    }
    let folder = folder(&[]);
    let list = ran(folder.path(), &["list", "embedded:dti", "dti:::"], 0).out;
    for name in ["3c59x", "ext2", "kernel", "timer"] {
        let line = list.lines().find(|line| line.contains(name)).unwrap_or_default();
        assert!(line.contains(" dti ") && line.ends_with("dti_log event"), "{list}");
    }
    assert!(!ran(folder.path(), &["list", "embedded:x86_64", ":::"], 0).out.contains("dti"));
}

#[test]
fn a_script_sets_levels_and_a_recording_has_that() {
    for guest in GUESTS {
        let folder =
            folder(&[("levels", b"at insns=100k dti level ext2 7\nat insns=1M dti level timer -1\n")]);
        let here = folder.path();
        let args = ["record", guest, "--script", "levels", "--console", "none", "-o", "run.tlr"];
        ran(here, &args, 0);
        ran(here, &["replay", "run.tlr", "--verify"], 0);
        let list = ran(here, &["dti", "list", "run.tlr"], 0).out;
        let line =
            |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        assert!(line("ext2").contains("7 debug") && line("timer").contains("-1 off"), "{list}");
        assert_eq!(ran(here, &["dti", "show", "run.tlr", "ext2"], 0).out.lines().count(), 40);
        assert!(ran(here, &["dti", "show", guest, "ext2"], 0).out.is_empty());
        // Nothing is written to the timer's channel after it was switched off.
        let show = |at: &[&str]| ran(here, &[&["dti", "show", "run.tlr", "timer"], at].concat(), 0).out;
        assert_eq!(show(&["--at", "1M"]), show(&[]));
    }
    let folder = folder(&[
        ("unknown", b"at insns=100k dti level floppy 7\n"),
        ("wrong", b"at insns=1 dti level timer 8\n"),
    ]);
    for (script, sentence) in [
        ("unknown", "there is no channel floppy; use one of 3c59x, ext2, kernel, timer"),
        ("wrong", "`8` is no level"),
    ] {
        let refused = ran(folder.path(), &["run", "embedded:dti", "--script", script], 2);
        assert!(refused.err.contains(sentence), "{}", refused.err);
    }
}

#[test]
fn handlers_write_to_channels_and_say_what_was_refused() {
    for guest in GUESTS {
        let folder = folder(&[]);
        let here = folder.path();
        let program = "fbt::vortex_open:entry { @[dti(\"kernel\", 4, \"opened\")] = count(); dti(\"kernel\", 3, arg0, 4); \
                       dti(\"kernel\", 7, \"low\"); dti(\"floppy\", 1, \"none\"); dti(\"timer\", 1, arg0, 100); }";
        let args = ["record", guest, "-w", "-n", program, "--console", "none", "-o", "run.tlr"];
        let written = ran(here, &args, 0);
        let opened = |out: &str| out.lines().filter(|line| line.ends_with("kernel  opened")).count();
        let after = ran(here, &["dti", "show", "run.tlr", "kernel"], 0).out;
        ran(here, &["replay", "run.tlr", "--verify"], 0);
        let times = opened(&after);
        assert!(times > 0 && opened(&ran(here, &["dti", "show", guest, "kernel"], 0).out) == 0, "{after}");
        let counted = |text: &str| {
            written.err.contains(&format!("{times} record{} {text}", if times == 1 { "" } else { "s" }))
        };
        assert!(counted("not written to kernel: the level of the channel is lower"), "{}", written.err);
        assert!(counted("not written to floppy: there is no such channel"), "{}", written.err);
        assert!(counted("not written to timer: the record is longer than a sub-buffer"), "{}", written.err);
        // The records of the guest itself are as before, and the times are in order.
        let heads = after.lines().filter(|line| !line.trim_start().starts_with('+'));
        let times: Vec<u64> = heads.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        assert!(times.is_sorted(), "{after}");
        // Without -w it is refused, and observe-only it is not.
        let refused = trapline(here, &["run", guest, "-n", program, "--console", "none"]);
        assert!(
            refused.code != 0 && refused.err.contains("Destructive actions not allowed"),
            "{}",
            refused.err
        );
    }
}

/// The field of a JSON object, as it is written there.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or(("", line));
    rest.trim_start_matches('"').split(['"', ',', '}']).next().unwrap_or_default()
}

#[test]
fn a_handler_in_rpn_writes_a_record_that_only_such_a_program_leaves_in_the_guest() {
    let folder = folder(&[]);
    let here = folder.path();
    let run = |handler: &str, more: &[&str]| {
        let rpn = format!("fbt::vortex_open:entry {{ {handler} }}");
        let args = ["run", "embedded:dti", "--rpn", &rpn, "--console", "none", "--digest", "-f", "json"];
        ran(here, &[&args, more].concat(), 0)
    };
    // The result, and the same 8 bytes of the stack: in the handler's own record, and in that of the channel.
    const LOG: &str = "push 8; push r, rsp; log mrf";
    let write = "push r, rsp; push 8; push 4; push 0x6c656e72656b; push 1; push 7; callk; log 1; exit";
    let written = run(&format!("{LOG}; {write}"), &["--save", "saved"]);
    let observed = run(&format!("{LOG}; exit"), &[]);
    let plain = ran(here, &["run", "embedded:dti", "--console", "none", "--digest", "-f", "json"], 0);
    let records: Vec<&str> = written.out.lines().filter(|line| line.contains("\"data\":")).collect();
    assert!(!records.is_empty(), "{}", written.out);
    let restored = ["dti", "show", "embedded:dti", "kernel", "--restore", "saved", "-f", "json"];
    let shown = ran(here, &restored, 0).out;
    let own = ran(here, &["dti", "show", "embedded:dti", "kernel", "-f", "json"], 0).out;
    let added: Vec<&str> = shown.lines().filter(|line| !line.contains("\"text\"")).collect();
    assert_eq!(added.len(), records.len(), "{shown}");
    for (record, added) in records.iter().zip(&added) {
        let (stack, result) = field(record, "data").split_at(field(record, "data").len() - 16);
        assert_eq!(
            (result, field(added, "data")),
            ("0000000000000000", &stack[stack.len() - 16..]),
            "{record}"
        );
    }
    // The guest's own records are as they are without it, but for their times.
    let texts = |out: &str| -> Vec<String> {
        out.lines()
            .filter(|line| line.contains("\"text\""))
            .map(|line| field(line, "text").to_owned())
            .collect()
    };
    assert_eq!(texts(&shown), texts(&own));
    let digest = |ran: &Ran| field(ran.out.lines().last().unwrap_or_default(), "digest").to_owned();
    assert!(digest(&plain).len() == 32 && digest(&observed) == digest(&plain), "{}", plain.out);
    assert_ne!(digest(&written), digest(&plain));
    assert!(written.out.contains("\"observe_only\":false"), "{}", written.out);
    assert!(observed.out.contains("\"observe_only\":true"), "{}", observed.out);
}

#[test]
fn our_own_position_moves_and_the_guests_does_not() {
    let folder = folder(&[("templates/timer.fmt", b"tick %4u of task %4u\n"), ("empty/none", b"")]);
    let here = folder.path();
    let show = |more: &[&str]| {
        ran(here, &[&["dti", "show", "embedded:dti", "3c59x", "-f", "json"], more].concat(), 0).out
    };
    let all = show(&[]);
    let first = show(&["--at", "2759K", "--cursor", "seen"]);
    let rest = show(&["--cursor", "seen"]);
    assert!(!first.is_empty() && !rest.is_empty());
    assert_eq!(first + &rest, all);
    assert_eq!(show(&["--cursor", "seen"]), "");
    assert_eq!(show(&["--cursor", "seen", "--reset"]), all);
    // A link stays one, and a position that cannot be written is kept.
    std::os::unix::fs::symlink("seen", here.join("link")).unwrap();
    assert_eq!(show(&["--cursor", "link"]), "");
    assert!(here.join("link").is_symlink());
    let seen = std::fs::read(here.join("seen")).unwrap();
    std::fs::create_dir(here.join("seen.new")).unwrap();
    let args = ["dti", "show", "embedded:dti", "--cursor", "seen", "--reset"];
    assert!(ran(here, &args, 7).err.contains("cannot write seen: "));
    assert_eq!(std::fs::read(here.join("seen")).unwrap(), seen);
    assert!(all.contains("\"unread\":true") && !all.contains("\"unread\":false"), "{all}");
    let shown = ran(here, &["dti", "show", "embedded:dti", "--templates", "templates"], 0).out;
    assert!(shown.contains("timer   tick 59 of task 0") && shown.contains("3c59x   eth0: open"), "{shown}");
    for (args, sentence) in [
        (&["show", "embedded:dti", "--templates", "empty"][..], "empty has no file CHANNEL.fmt"),
        (&["show", "embedded:dti", "--templates", "absent"], "absent: No such file or directory"),
        (&["show", "embedded:dti", "--cursor", "empty/none"], "is not a file that --cursor has written"),
        (&["show", "embedded:dti", "--reset"], "--cursor <FILE>"),
        (&["follow", "embedded:dti", "--cpu", "4"], "--cpu 4: the channels have 1 CPU"),
        (&["show", "embedded:dti", "--cpu", "4"], "--cpu 4: the channels have 1 CPU"),
    ] {
        let refused = ran(here, &[&["dti"], args].concat(), 2);
        assert!(refused.err.contains(sentence), "{args:?}: {}", refused.err);
    }
}

#[test]
fn channels_are_saved_when_the_guest_crashes_or_the_run_ends_at_a_text() {
    let folder = folder(&[("full/file", b"")]);
    let here = folder.path();
    let run = |more: &[&str]| trapline(here, &[&["run", "embedded:dti", "--console", "none"], more].concat());
    let crashed = run(&["--append", "dti=crash", "--crash-on", "panic", "--dti-on-crash", "saved"]);
    assert_eq!(crashed.code, 4, "{}", crashed.err);
    let records = std::fs::read_to_string(here.join("saved/records.json")).unwrap();
    assert!(
        records.lines().last().unwrap_or_default().contains("panic: page fault in the kernel"),
        "{records}"
    );
    let until = run(&["--until", "eth0", "--dti-on-crash", "until"]);
    assert_eq!(until.code, 0, "{}", until.err);
    let shown = ran(here, &["dti", "show", "embedded:dti", "--until", "eth0", "-f", "json"], 0).out;
    assert_eq!(std::fs::read_to_string(here.join("until/records.json")).unwrap(), shown);
    let level = std::fs::read_to_string(here.join("until/kernel/level")).unwrap();
    assert_eq!(level, "6\n");
    assert!(std::fs::read(here.join("until/kernel/data0")).unwrap().len() > 10);
    let full = run(&["--dti-on-crash", "full"]);
    assert_eq!(full.code, 2);
    assert!(full.err.contains("--dti-on-crash: full is not empty"), "{}", full.err);
}
