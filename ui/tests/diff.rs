//! `trapline diff`: two runs that differ by one thing, and the instruction that is named.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn trapline(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_trapline")).args(args).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// Records a run of an embedded guest.
fn record(folder: &Path, file: &str, more: &[&str]) {
    let args = [&["record", "embedded:ia32", "-q", "--output-file", "records", "-o", file], more].concat();
    let (code, _, err) = trapline(folder, &args);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{more:?}");
}

/// The exit code and the object of a comparison.
fn diff(folder: &Path, args: &[&str]) -> (Option<i32>, Value) {
    let (code, out, err) = trapline(folder, &[&["diff", "-f", "json"], args].concat());
    assert_eq!(err, "", "{args:?}");
    (code, serde_json::from_str(&out).unwrap())
}

/// Where registers or memory differ: the instruction count, the symbol and the instruction of the first run.
fn place(found: &Value) -> (u64, &str, &str) {
    let point = &found["point"];
    let at = &point["at"]["a"];
    let text = |value: &'_ Value| value.as_str().map(str::len).is_some();
    assert!(text(&at["symbol"]) && point["cause"] == "instruction", "{found:#}");
    let icount = point["icount"].as_u64().unwrap();
    (icount, at["symbol"].as_str().unwrap(), at["instruction"].as_str().unwrap())
}

fn register<'a>(found: &'a Value, name: &str) -> Option<(&'a str, &'a str)> {
    let rows = found["point"]["registers"].as_array()?;
    let row = rows.iter().find(|row| row["name"] == name)?;
    Some((row["a"].as_str()?, row["b"].as_str()?))
}

#[test]
fn runs_with_probes_that_only_observe_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "a.tlr", &[]);
    record(folder, "b.tlr", &["--rpn", "fbt::do_fork:entry { push pid; log 1 }", "--query"]);
    let (code, found) = diff(folder, &["a.tlr", "b.tlr"]);
    assert_eq!((code, &found["equal"], &found["ran"]), (Some(0), &true.into(), &false.into()), "{found:#}");
    assert!(found["checkpoints"]["compared"].as_u64().unwrap() > 0, "{found:#}");
    let (code, out, _) = trapline(folder, &["diff", "a.tlr", "b.tlr"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("nothing differs (by what the recordings hold)"), "{out}");
}

#[test]
fn a_register_that_a_handler_changes_is_found_although_it_is_soon_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "a.tlr", &[]);
    record(folder, "b.tlr", &["--rpn", "fbt::do_wait:entry { push 5; pop r, eax }"]);
    let (code, found) = diff(folder, &["a.tlr", "b.tlr"]);
    assert_eq!(code, Some(1), "{found:#}");
    let (_, symbol, instruction) = place(&found);
    assert!(symbol.starts_with("do_wait") && instruction == "push ebp", "{found:#}");
    assert_eq!(register(&found, "eax").map(|(_, b)| b), Some("0x5"), "{found:#}");
    assert!(found["inputs"]["b"]["what"].as_str().unwrap().contains("do_wait"), "{found:#}");
    assert!(found["point"]["inputs"]["a"].is_null(), "{found:#}");
    let stack = found["point"]["stacks"]["a"].as_array().unwrap();
    assert!(stack.len() > 1 && stack[0]["symbol"].as_str().unwrap().starts_with("do_wait"), "{found:#}");
}

#[test]
fn a_byte_of_memory_that_a_script_changes_is_named_by_address_and_symbol() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "a.tlr", &[]);
    let program = "name = vmlinux\nmodtype = kernel\noffset = do_wait\nopcode = 0x55\nmaxhits = 1\npush 0xc0111840\n\
         push 77\npop mem, u8\nexit\n";
    std::fs::write(folder.join("w.rpn"), program).unwrap();
    std::fs::write(folder.join("s"), "at insns=1M insert w.rpn\n").unwrap();
    record(folder, "b.tlr", &["--script", "s"]);
    let (code, found) = diff(folder, &["a.tlr", "b.tlr"]);
    assert_eq!(code, Some(1), "{found:#}");
    let (icount, symbol, _) = place(&found);
    assert!(icount > 1_000_000 && symbol.starts_with("do_wait"), "{found:#}");
    let memory = &found["point"]["memory"][0];
    assert_eq!((&memory["linear"], &memory["b"]), (&0xc011_1840_u64.into(), &"4d".into()), "{found:#}");
    assert!(memory["symbol"].is_string() && found["point"]["bytes"] == 1, "{found:#}");
    assert_eq!(found["point"]["inputs"]["b"]["what"], "insert w.rpn", "{found:#}");
    assert!(found["point"]["registers"].as_array().unwrap().is_empty(), "{found:#}");
}

#[test]
fn a_typed_byte_is_told_with_the_field_of_the_device_that_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (file, text) in [("a", "a"), ("b", "b")] {
        std::fs::write(folder.join("s"), format!("at insns=300K type \"{text}\"\n")).unwrap();
        record(folder, &format!("{file}.tlr"), &["--script", "s"]);
    }
    let (code, found) = diff(folder, &["a.tlr", "b.tlr"]);
    assert_eq!((code, &found["inputs"]["b"]["what"]), (Some(1), &"type \"b\"".into()), "{found:#}");
    let devices = &found["devices"];
    assert_eq!((&devices["cause"], &devices["icount"]), (&"input".into(), &300_000.into()), "{found:#}");
    let field = &devices["devices"][0];
    assert!(field["name"].as_str().unwrap().starts_with("com1."), "{found:#}");
    // This guest does not read its serial port.
    assert!(found["point"].is_null(), "{found:#}");
}

#[test]
fn one_instruction_of_a_patched_image_is_named_with_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "a.tlr", &[]);
    // In do_fork `mov edx, 4Ch` becomes `mov edx, 48h`. The kernel sums up its own code before it executes that.
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-images/prebuilt/vmlinux-ia32");
    let mut bytes = std::fs::read(image).unwrap();
    let code = [0x89, 0xc3, 0xba, 0x4c, 0, 0, 0, 0xb8, 0, 0, 0, 0];
    let at = bytes.windows(code.len()).position(|window| window == code).unwrap();
    bytes[at + 3] = 0x48;
    std::fs::write(folder.join("patched"), bytes).unwrap();
    let (code, found) = diff(folder, &["a.tlr", "--image", "patched"]);
    assert_eq!(code, Some(1), "{found:#}");
    assert_eq!(found["start"]["bytes"], 1, "{found:#}");
    let (_, symbol, instruction) = place(&found);
    assert!(symbol.starts_with("fnv1a_more+") && instruction == "movzx ecx,byte [edx]", "{found:#}");
    assert_eq!(register(&found, "ecx"), Some(("0x4c", "0x48")), "{found:#}");
    let (code, out, _) = trapline(folder, &["diff", "a.tlr", "--image", "patched", "--hits=fbt::do_*:entry"]);
    assert_eq!(code, Some(1));
    assert!(out.contains("movzx ecx") && out.contains("hits         do_fork "), "{out}");
}

#[test]
fn another_command_line_is_named_where_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "a.tlr", &[]);
    let (code, found) = diff(folder, &["a.tlr", "--append", "more"]);
    assert_eq!(code, Some(1), "{found:#}");
    assert!(found["start"]["bytes"].as_u64().unwrap() > 4, "{found:#}");
    assert!(place(&found).1.starts_with("find_program+"), "{found:#}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(trapline(folder, &["diff", "none.tlr", "none.tlr"]).0, Some(7));
    let (code, _, err) = trapline(folder, &["diff", "none.tlr"]);
    assert_eq!(code, Some(2));
    let said = "there is nothing to compare none.tlr with: give a second recording, or change its guest with --image, --mem, \
                --cmdline or --append";
    assert!(err.contains(said), "{err}");
    record(folder, "a.tlr", &[]);
    let (code, _, err) = trapline(folder, &["diff", "a.tlr", "--image", "/dev/null"]);
    assert_eq!(code, Some(7), "{err}");
    assert!(err.contains("cannot load /dev/null: "), "{err}");
    let (code, _, err) = trapline(folder, &["diff", "a.tlr", "a.tlr", "--hits=fbt::no_such:entry"]);
    assert_eq!(code, Some(3), "{err}");
}
