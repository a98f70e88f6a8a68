//! PPDF files as users have them: `dis` agrees with a decoder written from the document, a run of one gives the same
//! records as a run of its source, and signatures can be required.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use crate::cli::{Ran, finish, patient, trapline};
use serde_json::Value;
use tempfile::TempDir;
use trapline_tests::root;

/// The man page's examples, but for the piece that one of them includes.
const EXAMPLES: [&str; 7] = [
    "1-appln.rpn",
    "2-do_fork.rpn",
    "2b-vortex.rpn",
    "3-count.rpn",
    "4-swap_out.rpn",
    "5-general_protection.rpn",
    "6-groups.rpn",
];

fn good(args: &[&str]) -> Ran {
    let ran = trapline(&root(), args);
    assert_eq!(ran.code, 0, "{args:?}: {}{}", ran.out, ran.err);
    ran
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Builds a program in the repository's folder.
fn build(folder: &TempDir, source: &str, more: &[&str]) -> PathBuf {
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let path = folder.path().join(format!("{name}.ppdf"));
    let mut args = vec!["build", source, "-q", "-o", text(&path)];
    args.extend(more);
    assert_eq!(good(&args).out, "");
    path
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_decoder_written_from_the_document_agrees() {
    let folder = TempDir::new().unwrap();
    let everything = folder.path().join("everything.rpn");
    std::fs::write(&everything, EVERYTHING).unwrap();
    let key = folder.path().join("key");
    good(&["build", "--new-key", text(&key)]);
    let mut files: Vec<PathBuf> =
        EXAMPLES.iter().map(|name| build(&folder, &format!("examples/man/{name}"), &[])).collect();
    files.extend(
        ["cpuid", "gnumach-panic"].map(|name| build(&folder, &format!("docs/examples/{name}.rpn"), &[])),
    );
    files.push(build(&folder, text(&everything), &["--sign", text(&key)]));
    for file in &files {
        let mut python = patient("python3");
        python.arg("tests/tests/ppdf/ppdf_decode.py").arg("docs/ppdf.md").arg(file).current_dir(root());
        let decoded = finish(python);
        assert_eq!(decoded.code, 0, "{}: {}", file.display(), decoded.err);
        let mut shown = json_lines(&good(&["dis", text(file), "-f", "json"]).out);
        for line in &mut shown {
            // Fields unknown to the decoder: the file's path, and the text of instructions.
            let fields = line.as_object_mut().unwrap();
            fields.remove("file");
            fields.remove("text");
        }
        let decoded = json_lines(&decoded.out);
        assert!(decoded.len() > 3, "{}", file.display());
        assert_eq!(decoded.len(), shown.len(), "{}", file.display());
        for (one, other) in decoded.iter().zip(&shown) {
            assert_eq!(one, other, "{}", file.display());
        }
    }
}

/// Every kind of statement, operand and expression.
const EVERYTHING: &str = "\
name = \"/lib/Mod+1\"
modtype = kernel
vars = 3
gvars = 2
major = 7
id = 0x12345678
excpt_mask = 0xf0
logonfault = yes
groupdef = process \"zwei Wörter\"
typedef = enter
proc Log_it
push r, eip
log 1
endproc
address = low - 1:low + 3
opcode = 0x55
group = PROCESS
type = enter
logonfault = no
excpt_mask = 0
again:
Back: inc lv, 2
loop again
jz back
call LOG_IT
push -1
push 18446744073709551615
push nr_free_pages - (base - 4) + \"a b\"
push sbp, -3
push sbp, 2147483647
exit 4294967295
";

#[test]
fn openssl_reads_keys_and_checks_signatures() {
    if std::process::Command::new("openssl").arg("version").output().is_err() {
        eprintln!("no openssl: nothing compared");
        return;
    }
    let folder = TempDir::new().unwrap();
    let openssl = |args: &[&str]| {
        let mut command = patient("openssl");
        command.args(args).current_dir(folder.path());
        let ran = finish(command);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran.out
    };
    good(&["build", "--new-key", text(&folder.path().join("ours"))]);
    let public = std::fs::read_to_string(folder.path().join("ours.pub")).unwrap();
    assert_eq!(openssl(&["pkey", "-in", "ours", "-pubout"]), public);
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", "theirs"]);
    openssl(&["pkey", "-in", "theirs", "-pubout", "-out", "theirs.pub"]);
    let theirs = folder.path().join("theirs");
    let file = build(&folder, "examples/man/3-count.rpn", &["--sign", text(&theirs)]);
    good(&["check", text(&file), "--require-signed", text(&folder.path().join("theirs.pub"))]);
    // The signature covers everything before its section, which is followed by the checksum's.
    let bytes = std::fs::read(&file).unwrap();
    let section = bytes.len() - 12 - 108;
    std::fs::write(folder.path().join("message"), &bytes[..section]).unwrap();
    std::fs::write(folder.path().join("signature"), &bytes[section + 44..section + 108]).unwrap();
    let args =
        ["-verify", "-pubin", "-inkey", "theirs.pub", "-rawin", "-in", "message", "-sigfile", "signature"];
    openssl(&[&["pkeyutl"][..], &args].concat());
}

#[test]
fn a_key_is_written_over_no_file() {
    let folder = TempDir::new().unwrap();
    let key = folder.path().join("key");
    good(&["build", "--new-key", text(&key)]);
    let before = std::fs::read(&key).unwrap();
    let again = trapline(&root(), &["build", "--new-key", text(&key)]);
    assert_eq!(again.code, 7);
    assert!(again.err.contains("cannot write") && again.err.contains("File exists"), "{}", again.err);
    assert_eq!(std::fs::read(&key).unwrap(), before);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

fn records(ran: &Ran) -> Vec<&str> {
    ran.out.lines().collect()
}

#[test]
fn runs_of_a_file_and_of_its_source_write_the_same() {
    let folder = TempDir::new().unwrap();
    for (guest, more) in [("ia32", &[][..]), ("x86_64", &["-D", "eip=rip"][..])] {
        for name in EXAMPLES {
            let source = format!("examples/man/{name}");
            let file = build(&folder, &source, more);
            let image = format!("embedded:{guest}");
            let run = |program: &str, more: &[&str]| {
                let args =
                    ["run", &image, "-p", program, "--limit-insns", "100000000", "-q", "--channel", "1Mx4"];
                good(&[&args[..], &["--header", "all", "--symbols", "--digest"], more].concat())
            };
            let (one, other) = (run(&source, more), run(text(&file), &[]));
            assert_eq!(one, other, "{guest} {name}");
            // Example 3 only counts; the last line is the digest.
            assert!(
                one.err.starts_with("digest ") && (name == "3-count.rpn" || !one.out.is_empty()),
                "{name}"
            );
        }
    }
}

/// A hit ended by an exception names the line of the source, with nothing but the file there.
#[test]
fn exceptions_name_the_line_of_the_source() {
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("div.rpn");
    let program = "name = vmlinux\nmodtype = kernel\n#define ZERO 0\n\noffset = do_fork\nopcode = 0x55\nmaxhits = 1\n\
                   push 1\npush ZERO\n// here:\ndiv\nexit\n";
    std::fs::write(&source, program).unwrap();
    let run = |program: &Path| {
        good(&["run", "embedded:ia32", "-p", text(program), "-f", "json", "-q", "--limit-insns", "100000000"])
    };
    let first = run(&source);
    let file = build(&folder, text(&source), &[]);
    std::fs::remove_file(&source).unwrap();
    let second = run(&file);
    let hit = |ran: &Ran| json_lines(&ran.out).into_iter().find(|line| line["type"] == "hit").unwrap();
    assert_eq!(hit(&first), hit(&second));
    assert!(hit(&second).to_string().contains("\"line\":11"), "{}", hit(&second));
}

#[test]
fn groups_and_types_take_the_forms_of_dprobes() {
    let folder = TempDir::new().unwrap();
    let file = build(&folder, "examples/man/6-groups.rpn", &[]);
    let run = |more: &[&str]| {
        let args = ["run", "embedded:ia32", "--apply-ppdf", text(&file), "-q", "--limit-insns", "100000000"];
        let ran = good(&[&args[..], more].concat());
        let mut minors: Vec<String> = records(&ran)
            .iter()
            .map(|line| line.split(')').next().unwrap().replace("DProbes(1,", ""))
            .collect();
        minors.sort();
        minors.dedup();
        minors.join(" ")
    };
    for (more, minors) in [
        (&[][..], "0 1 2 4 5 6 7 8"),
        (&["--group", "process", "--type", "enter"], "0"),
        (&["--group", "=", "filesys"], "5 6"),
        (&["--group", "=filesys"], "5 6"),
        (&["--group=filesys"], "5 6"),
        (&["--type", "=", "leave"], "1 4 6 8"),
        (&["--group", "process", "memory", "--type", "leave"], "1 4"),
        (&["--group", "process,memory", "--type", "leave"], "1 4"),
        (&["--group", "Process", "--group", "MEMORY", "--type", "LEAVE"], "1 4"),
    ] {
        assert_eq!(run(more), minors, "{more:?}");
    }
    let args = ["run", "--group=process", "embedded:ia32", "-p", text(&file), "--limit-insns", "1000", "-q"];
    let ran = trapline(&root(), &args);
    assert_eq!((ran.code, ran.out.as_str()), (124, ""), "{}", ran.err);
    let none = trapline(&root(), &["run", "embedded:ia32", "-p", text(&file), "--group", "nothing"]);
    assert_eq!((none.code, none.out.as_str()), (2, ""));
    assert!(none.err.contains("no probe point of the programs has group=nothing"), "{}", none.err);
}

#[test]
fn scripts_insert_files() {
    let folder = TempDir::new().unwrap();
    let file = build(&folder, "examples/man/2-do_fork.rpn", &[]);
    let script = folder.path().join("script");
    let run = |program: &str| {
        std::fs::write(&script, format!("at insns=1000 insert \"{program}\"\nat insns=3M stop\n")).unwrap();
        let ran = good(&["run", "embedded:ia32", "--script", text(&script), "-q"]);
        assert!(records(&ran).len() > 1, "{}", ran.out);
        ran.out
    };
    assert_eq!(run("examples/man/2-do_fork.rpn"), run(text(&file)));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    std::fs::write(&script, format!("at insns=1000 insert \"{}\"\n", file.display())).unwrap();
    let bad = trapline(&root(), &["run", "embedded:ia32", "--script", text(&script), "-q"]);
    assert_eq!((bad.code, bad.out.as_str()), (2, ""));
    assert!(bad.err.contains("the file is damaged"), "{}", bad.err);
}

#[test]
fn only_files_signed_by_the_required_key_are_accepted() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for key in ["mine", "other"] {
        good(&["build", "--new-key", &path(key)]);
    }
    let source = "examples/man/3-count.rpn";
    for (name, more) in
        [("plain", vec![]), ("signed", vec!["--sign", "mine"]), ("foreign", vec!["--sign", "other"])]
    {
        let output = path(name);
        let key = more.get(1).map(|key| path(key));
        let mut args = vec!["build", source, "-o", &output, "-q"];
        args.extend(key.iter().flat_map(|key| ["--sign", key.as_str()]));
        good(&args);
    }
    // Signing the file is signing the program; the same bytes come of the same key.
    good(&["build", &path("plain"), "-o", &path("again"), "--sign", &path("mine"), "-q"]);
    let signed = std::fs::read(path("signed")).unwrap();
    assert_eq!(std::fs::read(path("again")).unwrap(), signed);
    good(&["dis", &path("signed")]);
    let shown = good(&["dis", &path("signed")]).out;
    std::fs::write(path("shown.rpn"), &shown).unwrap();
    good(&["build", &path("shown.rpn"), "-o", &path("again"), "--sign", &path("mine"), "-q"]);
    assert_eq!(std::fs::read(path("again")).unwrap(), signed);

    let public = path("mine.pub");
    let ask = |program: &str| {
        let checked = trapline(&root(), &["check", program, "--require-signed", &public]);
        let run = trapline(
            &root(),
            &[
                "run",
                "embedded:ia32",
                "-p",
                program,
                "--require-signed",
                &public,
                "--limit-insns",
                "1000",
                "-q",
            ],
        );
        assert_eq!(
            checked.code,
            if run.code == 124 { 0 } else { run.code },
            "{program}: {} {}",
            checked.err,
            run.err
        );
        (checked.code, checked.err.trim_end().to_owned())
    };
    assert_eq!(ask(&path("signed")), (0, String::new()));
    for (program, said) in [
        (path("plain"), "is not signed; only programs signed by ed25519:"),
        (path("foreign"), "is signed by ed25519:"),
        (source.to_owned(), "is not a PPDF file; only programs signed by ed25519:"),
    ] {
        let (code, err) = ask(&program);
        assert!(code == 7 && err.contains(said) && !err.contains('\n'), "{program}: {code} {err}");
    }
    // A file that was changed after it was signed is always refused, whether a signature is required or not.
    let at = signed.windows(7).position(|window| window == b"vmlinux").unwrap();
    let mut tampered = signed.clone();
    tampered[at] = b'w';
    std::fs::write(path("tampered"), with_checksum(tampered)).unwrap();
    for more in [&[][..], &["--require-signed", &public]] {
        let ran = trapline(&root(), &[&["check", &path("tampered")][..], more].concat());
        assert_eq!(ran.code, 7);
        assert!(ran.err.contains("the file was changed after it was signed"), "{}", ran.err);
    }
    for (key, said) in
        [("mine", "it contains a private key"), ("plain", "is not text"), ("nothing", "cannot read")]
    {
        let ran = trapline(&root(), &["check", &path("signed"), "--require-signed", &path(key)]);
        assert!(ran.code == 7 && ran.err.contains(said), "{key}: {}", ran.err);
    }
}

/// Every way in which a handler enters a run: only a signed PPDF file is accepted.
#[test]
fn only_a_signed_file_enters_a_run_that_requires_one_whatever_the_way() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    good(&["build", "--new-key", &path("key")]);
    let (key, signed, source) = (path("key.pub"), path("signed"), "examples/man/3-count.rpn");
    good(&["build", source, "-o", &signed, "--sign", &path("key"), "-q"]);
    let d = path("program.d");
    std::fs::write(&d, "BEGIN { trace(1); }\n").unwrap();
    std::fs::write(path("script"), format!("at insns=1000 insert \"{source}\"\n")).unwrap();
    let run = ["run", "embedded:ia32", "--limit-insns", "1M", "-q"];
    let record = |name: &str, more: &[&str]| {
        let file = path(name);
        let ran = trapline(&root(), &[&["record", "-o", &file], &run[1..], more].concat());
        assert_eq!(ran.code, 124, "{}", ran.err);
        file
    };
    let of_signed = record("signed.tlr", &["-p", &signed, "--require-signed", &key]);
    let of_unsigned = record("unsigned.tlr", &["-p", source]);
    let of_d = record("d.tlr", &["-s", &d]);
    let (with_signed, with_clause) = (path("signed.state"), path("clause.state"));
    let saved = trapline(&root(), &[&run[..], &["-p", &signed, "--save", &with_signed]].concat());
    assert_eq!(saved.code, 124, "{}", saved.err);
    let saved =
        trapline(&root(), &[&run[..], &["-n", "fbt::do_fork:entry", "--save", &with_clause]].concat());
    assert_eq!(saved.code, 124, "{}", saved.err);

    let (bare, body, rpn) =
        ("fbt::do_fork:entry", "fbt::do_fork:entry { trace(1); }", "fbt::do_fork:entry { exit }");
    let (out, found) = (path("out.tlr"), path("found"));
    let refused: &[&[&str]] = &[
        &["run", "embedded:ia32", "-n", bare],
        &["run", "embedded:ia32", "-n", body],
        &["run", "embedded:ia32", "-s", &d],
        &["run", "embedded:ia32", "--rpn", rpn],
        &["run", "embedded:ia32", "-p", source],
        &["run", "embedded:ia32", "-p", &signed, "--rpn", rpn],
        &["run", "embedded:ia32", "-p", &signed, "-s", &d],
        &["run", "embedded:ia32", "--restore", &with_clause],
        &["record", "embedded:ia32", "-o", &out, "-n", body],
        &["fuzz", "embedded:ia32", "--findings", &found, "--rpn", rpn],
        &["replay", &of_unsigned],
        &["replay", &of_d],
        &["replay", &of_signed, "-n", body],
        &["replay", &of_signed, "-p", source],
        &["check", &d],
        &["check", source],
        &["check", "-E", source],
        &["check", "-E", &d],
        &["build", source, "-o", &out],
        &["dis", "embedded:ia32", "do_fork", "-p", source],
    ];
    for args in refused {
        let ran = trapline(&root(), &[args, &["--require-signed", &key, "-q"][..]].concat());
        assert_eq!((ran.code, ran.out.as_str()), (7, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("; only programs signed by ed25519:"), "{args:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
    }
    // A line of a script is refused as a line.
    let ran =
        trapline(&root(), &[&run[..], &["--script", &path("script"), "--require-signed", &key]].concat());
    assert!(ran.code == 2 && ran.err.contains("is not a PPDF file"), "{}", ran.err);

    // A signature lasts as long as its program: in a recording, and in a snapshot.
    let accepted: &[(&[&str], i32)] = &[
        (&["run", "embedded:ia32", "--limit-insns", "2M", "-p", &signed], 124),
        (&["run", "embedded:ia32", "--limit-insns", "2M", "--restore", &with_signed], 124),
        (&["replay", &of_signed, "--verify"], 0),
        (&["replay", &of_signed, "-p", &signed], 0),
        (&["check", &signed], 0),
    ];
    for (args, code) in accepted {
        let ran = trapline(&root(), &[args, &["--require-signed", &key, "-q"][..]].concat());
        assert_eq!(ran.code, *code, "{args:?}: {}", ran.err);
    }
}

/// The file with its checksum corrected by the decoder's library.
fn with_checksum(bytes: Vec<u8>) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, &bytes).unwrap();
    let mut python = patient("python3");
    let code = "import sys, zlib; d = open(sys.argv[1], 'rb').read()[:-4]; \
                open(sys.argv[1], 'wb').write(d + zlib.crc32(d).to_bytes(4, 'little'))";
    python.args(["-c", code]).arg(&path);
    assert_eq!(finish(python).code, 0);
    std::fs::read(&path).unwrap()
}

/// A compiled program passes the verifier as any other: it refuses the same in source and in a file.
#[test]
fn the_verifier_is_not_passed_by() {
    let folder = TempDir::new().unwrap();
    let file = build(&folder, "examples/man/1-appln.rpn", &[]);
    let mut bytes = std::fs::read(&file).unwrap();
    // The first instruction of section CODE becomes `push r, rax`, which IA32 does not have.
    let at = bytes.windows(4).position(|window| window == b"CODE").unwrap() + 8;
    assert_eq!(bytes[at], 0x61);
    bytes[at] = 0x60;
    bytes[at + 1] = 0x80;
    std::fs::write(&file, with_checksum(bytes)).unwrap();
    let ran = trapline(&root(), &["run", "embedded:ia32", "-p", text(&file), "--limit-insns", "1000"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("examples/man/1-appln.rpn:"), "{}", ran.err);
    assert!(ran.err.contains("`rax` exists on x86-64 only"), "{}", ran.err);
}
