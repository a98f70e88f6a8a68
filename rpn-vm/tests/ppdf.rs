//! PPDF files: the parts of a program that they keep, errors, versions and signatures.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::TestHost;
use crate::files::{EVERYTHING, everything, everything_built, fixed, section};
use trapline_rpn::ppdf::{
    KeyError, MAGIC, Ppdf, PpdfError, SigningKey, VERSION, VerifyingKey, disassemble, is_ppdf, write,
};
use trapline_rpn::{
    AnySymbol, FileLoader, NoSymbols, ParseOptions, Program, REGISTERS, TABLE, Termination, Vars, Vm, Width,
    parse, parse_with,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(bytes: &[u8]) -> Program {
    Ppdf::read(bytes).unwrap_or_else(|error| panic!("{error}")).program
}

/// Builds, disassembles and builds again.
fn same_bytes(name: &str, program: &Program) {
    let built = write(program, None).unwrap();
    let shown = disassemble(&read(&built), None);
    let again = parse("shown.rpn", &shown).unwrap_or_else(|found| panic!("{name}\n{shown}\n{found}"));
    assert!(write(&again, None).unwrap() == built, "{name}\n{shown}");
    for width in [Width::W32, Width::W64] {
        let (one, other) = (program.link(width, &AnySymbol), read(&built).link(width, &AnySymbol));
        match (one, other) {
            (Ok(one), Ok(other)) => {
                assert_eq!(one.header, other.header);
                for (mut a, mut b) in one.probes.into_iter().zip(other.probes) {
                    (a.span, b.span) = Default::default();
                    assert_eq!(format!("{a:?}"), format!("{b:?}"), "{name}");
                }
            }
            (one, other) => assert_eq!(one.is_ok(), other.is_ok(), "{name}"),
        }
    }
}

#[test]
fn programs_of_examples_and_documents_survive() {
    let mut seen = 0;
    for folder in ["examples/man", "docs/examples"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            // test.rpn is included by another file.
            if path.extension().is_none_or(|e| e != "rpn") || name.ends_with("/test.rpn") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let program = parse_with(&name, &text, &ParseOptions::default(), &mut FileLoader::default());
            same_bytes(&name, &program.unwrap_or_else(|found| panic!("{found}")));
            seen += 1;
        }
    }
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        let text = if path.is_file() { std::fs::read_to_string(&path).unwrap() } else { continue };
        for block in text.split("```rpn\n").skip(1) {
            let body = block.split("```").next().unwrap();
            let head = "name = vmlinux\nmodtype = kernel\nvars = 8\ngvars = 8\noffset = f\nopcode = 0x55\n";
            let whole = body.lines().any(|line| line.trim_start().starts_with("name"));
            let text = if whole { body.to_owned() } else { format!("{head}{body}") };
            same_bytes(&text, &parse("block.rpn", &text).unwrap_or_else(|found| panic!("{found}")));
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen}");
}

#[test]
fn a_disassembly_is_source_with_its_places() {
    insta::assert_snapshot!(disassemble(&read(&everything_built()), Some("A remark.")));
    same_bytes("everything", &everything());
}

#[test]
fn a_line_without_a_mark_counts_as_one_of_the_disassembly() {
    let shown = disassemble(&read(&everything_built()), None);
    let edited = shown.replace("    push pid  ", "    push pid\n    push pid  ");
    assert_ne!(shown, edited);
    let number = edited.lines().position(|line| line == "    push pid").unwrap() + 1;
    let built = write(&parse("edited.rpn", &edited).unwrap(), None).unwrap();
    let program = read(&built);
    let body = &program.probes[1].handler.body;
    let places: Vec<(&str, u32)> =
        body.iter().map(|i| (program.sources.name(i.span.file), i.span.line)).collect();
    assert_eq!(places[1], ("edited.rpn", u32::try_from(number).unwrap()));
    assert_eq!(places[0].0, "everything.rpn");
    assert_eq!(places[2], ("everything.rpn", places[0].1 + 1));
    // Without its first line it is an ordinary source.
    let (_, rest) = shown.split_once('\n').unwrap();
    let plain = read(&write(&parse("plain.rpn", rest).unwrap(), None).unwrap());
    assert_eq!(plain.sources.name(plain.probes[0].span.file), "plain.rpn");
}

#[test]
fn an_exception_names_the_line_of_the_source() {
    let text = "name = t\n// a comment\noffset = 0\nopcode = 0x55\n\npush 1\npush 0\n// here:\ndiv\n";
    let program = read(&write(&parse("div.rpn", text).unwrap(), None).unwrap());
    let linked = program.link(Width::W32, &NoSymbols).unwrap();
    let probe = &linked.probes[0];
    let mut vm = Vm::new();
    let out = vm.run(&probe.handler, &mut TestHost::default(), Vars::default());
    assert_eq!(out.termination, Termination::Exception);
    assert_eq!(probe.lines.line(vm.unhandled().at), 9);
    assert_eq!(probe.origin, ("div.rpn".to_owned(), 3));
}

#[test]
fn a_diagnostic_shows_the_line_printed_again() {
    let text = "name = vmlinux\nmodtype = kernel\n#define WHERE do_frok\n\naddress=WHERE+4:(end_of-1)\nopcode=0x55\n\
                nop\nPUSH   8 -(nr_fre + 16)\ncall P\nproc P\npush base\nendproc\n";
    let program = read(&write(&parse("x.rpn", text).unwrap(), None).unwrap());
    let symbols = BTreeMap::from([("do_fork".to_owned(), 1u64), ("base".to_owned(), 1 << 40)]);
    let found = program.link(Width::W32, &symbols).unwrap_err();
    insta::assert_snapshot!(found.to_string());
}

#[test]
fn a_source_file_may_have_any_name() {
    let text = "name = t\noffset = 0\nopcode = 0x55\nnop\n";
    for (name, kept) in [
        ("", ""),
        (" a  b ", " a  b "),
        ("a\"b//@ 7", "a\"b//@ 7"),
        ("x\ny", "x\u{fffd}y"),
        ("back\\slash\\", "back\\slash\u{fffd}"),
        ("λ", "λ"),
        ("12", "12"),
    ] {
        let built = write(&parse(name, text).unwrap(), None).unwrap();
        let program = read(&built);
        assert_eq!(program.sources.name(program.probes[0].span.file), kept);
        let shown = disassemble(&program, None);
        assert!(write(&parse("shown.rpn", &shown).unwrap(), None).unwrap() == built, "{shown}");
    }
}

/// One file serves both widths: whether values fit is checked when it is applied.
#[test]
fn a_file_serves_both_widths() {
    let text = "name = t\noffset = 0\nopcode = 0x55\npush -1\npush 0x100000000\n";
    let program = read(&write(&parse("t", text).unwrap(), None).unwrap());
    let narrow = program.link(Width::W32, &NoSymbols).unwrap_err();
    assert!(narrow.to_string().contains("4294967296 does not fit 32 bits"), "{narrow}");
    let wide = program.link(Width::W64, &NoSymbols).unwrap();
    let args: Vec<u64> = wide.probes[0].handler.code().iter().map(|insn| insn.arg).collect();
    assert_eq!(args, [u64::MAX, 1 << 32, 0]);
}

#[test]
fn names_that_cannot_be_printed_cannot_be_written() {
    let bell = "name = \"a\u{7}\"\noffset = 0\nopcode = 0x55\n";
    let symbol = "name = t\noffset = 0\nopcode = 0x55\nexit\npush \"a\tb\"\n";
    let long = format!("name = t\noffset = 0\nopcode = 0x55\npush 1{}\n", "+1".repeat(30_000));
    let name = format!("name = t\noffset = \"{}\"\nopcode = 0x55\n", "x".repeat(40_000));
    let said = [bell, symbol, &long, &name].map(|text| {
        let program = parse("t.rpn", text).unwrap();
        write(&program, None).unwrap_err().to_string()
    });
    insta::assert_snapshot!(said.join("\n"));
}

/// A file with some bytes replaced, and its checksum corrected.
fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    fixed(bytes)
}

/// The offset of a text.
fn find(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|window| window == text).unwrap()
}

#[test]
fn each_error_names_place_and_value() {
    let base = everything_built();
    let at = |tag: &str, n: usize| section(&base, tag).0 + n;
    let word = |n: u32| n.to_le_bytes();
    let jump = find(&base[at("CODE", 0)..], &[0x08]) + 1;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("no magic", b"name = vmlinux".to_vec()),
        ("only a magic", MAGIC.to_vec()),
        ("version 2.3", with(&base, 8, &[2, 0, 3, 0])),
        ("version 0", with(&base, 8, &[0, 0])),
        ("cut short", base[..base.len() - 1].to_vec()),
        ("one bit", {
            let mut bytes = base.clone();
            bytes[40] ^= 1;
            bytes
        }),
        ("a section of another name", with(&base, 16, b"head")),
        ("a section that is too long", with(&base, 20, &word(0x7fff_ffff))),
        ("modtype", with(&base, at("HEAD", 0), &[3])),
        ("flags", with(&base, at("HEAD", 1), &[0x80])),
        ("kept free", with(&base, at("HEAD", 2), &[1])),
        ("vars", with(&base, at("HEAD", 4), &word(65_537))),
        ("logmax", with(&base, at("HEAD", 20), &word(u32::MAX))),
        ("a long name", with(&base, at("HEAD", 36), &word(u32::MAX))),
        ("not UTF-8", with(&base, at("HEAD", 44), &[0xff])),
        ("a quote in a name", with(&base, at("HEAD", 44), b"\"")),
        ("a line end in a name", with(&base, at("HEAD", 44), b"\n")),
        ("the same group twice", with(&base, find(&base, b"leave"), b"ENTER")),
        ("a group that is not there", with(&base, find(&base, b"Process"), b"Princes")),
        ("no probe points", with(&base, at("PROB", 0), &word(0))),
        ("many probe points", with(&base, at("PROB", 0), &word(60_000))),
        ("form", with(&base, at("PROB", 4), &[3])),
        ("a watchpoint without an address", with(&base, at("PROB", 5), &[2])),
        ("kind", with(&base, at("PROB", 5), &[5])),
        ("flags of a probe point", with(&base, at("PROB", 6), &[0])),
        ("instructions", with(&base, at("PROB", 24), &word(400))),
        ("no terms", with(&base, at("PROB", 28), &word(0))),
        ("kind of a term", with(&base, at("PROB", 32), &[4])),
        ("a procedure's name", with(&base, find(&base, b"unused"), b"un sed")),
        ("the same procedure", with(&base, find(&base, b"Log_it"), b"Unused")),
        ("an opcode", with(&base, at("CODE", 0), &[0xee])),
        ("a label", with(&base, at("CODE", jump), &word(12))),
        ("a procedure", with(&base, find(&base, &[0x09, 0, 0, 0, 0]) + 1, &word(2))),
        ("a variable", with(&base, find(&base, &[0x26, 2, 0]) + 1, &[3])),
        ("a register", with(&base, find(&base, &[0x61, 0x54]) + 1, &[0x25])),
        ("a register that may not be", with(&base, find(&base, &[0x61, 0x54]) + 1, &[0x24])),
        ("an expression of another instruction", with(&base, at("RELO", 4), &word(0))),
        ("an expression of no instruction", with(&base, section(&base, "RELO").1 - 52, &word(400))),
        (
            "a number beside an expression",
            with(&base, find(&base, &[0x7f, 0, 0, 0, 0, 0, 0, 0, 0]) + 1, &[1]),
        ),
        ("a file that is not there", with(&base, section(&base, "LINE").1 - 8, &word(1))),
        ("many files", with(&base, at("LINE", 0), &word(70_000))),
        ("a checksum of another length", with(&base, base.len() - 8, &word(3))),
    ];
    let said = cases.iter().map(|(name, bytes)| match Ppdf::read(bytes) {
        Ok(_) => panic!("{name} is taken"),
        Err(error) => format!("{name}: {error}\n"),
    });
    insta::assert_snapshot!(said.collect::<String>());
}

#[test]
fn a_newer_minor_version_is_read_as_far_as_it_is_known() {
    let base = everything_built();
    let newer = Ppdf::read(&with(&base, 10, &[9, 0])).unwrap();
    assert_eq!((newer.version, VERSION), ((1, 9), (1, 0)));
    // Building from it gives a file of this version.
    assert!(write(&newer.program, None).unwrap() == base);
}

#[test]
fn a_signature_follows_from_key_and_content() {
    let key = SigningKey::from_secret(&[3; 32]);
    let other = SigningKey::from_secret(&[4; 32]);
    let signed = write(&everything(), Some(&key)).unwrap();
    assert!(is_ppdf(&signed) && signed == write(&everything(), Some(&key)).unwrap());
    assert_eq!(Ppdf::read(&signed).unwrap().signer, Some(key.verifying()));
    assert_ne!(key.verifying(), other.verifying());
    assert_eq!(Ppdf::read(&everything_built()).unwrap().signer, None);

    let (at, _) = section(&signed, "SIGN");
    let (head, _) = section(&signed, "HEAD");
    // `major` is 8 instead of 7.
    let tampered = Ppdf::read(&with(&signed, head + 12, &[8])).unwrap_err();
    assert_eq!(tampered, PpdfError::Signature { offset: at + 36, key: key.verifying() });
    // Another key in its place.
    let theirs = write(&everything(), Some(&other)).unwrap();
    assert!(Ppdf::read(&with(&signed, at, &theirs[at..at + 36])).is_err());
    // The signature of another program.
    let second = write(&parse("t", "name = t\noffset = 0\nopcode = 1\n").unwrap(), Some(&key)).unwrap();
    let (from, to) = section(&second, "SIGN");
    assert!(Ppdf::read(&with(&signed, at, &second[from..to])).is_err());
    // Another kind of signature, and no key.
    let kind = Ppdf::read(&with(&signed, at, &[2])).unwrap_err().to_string();
    assert!(kind.ends_with("the kind of signature is 2; it must be 1 (Ed25519)"), "{kind}");
    let no_key = Ppdf::read(&with(&signed, at + 4, &[0xff; 32])).unwrap_err().to_string();
    assert!(
        no_key.ends_with("it must be a point of the Ed25519 curve") || no_key.contains("the signature by"),
        "{no_key}"
    );
}

/// RFC 8032, 7.1, test 1, and the forms of RFC 8410.
#[test]
fn keys_are_pem_text() {
    let secret: [u8; 32] = std::array::from_fn(|n| {
        let text = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap()
    });
    let key = SigningKey::from_secret(&secret);
    let public = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    assert_eq!(key.verifying().to_string(), public);
    assert_eq!(format!("{key:?}"), format!("SigningKey(of {public})"));
    let (private, shown) = (key.to_pem().unwrap(), key.verifying().to_pem().unwrap());
    assert_eq!(SigningKey::from_pem(&private).unwrap().verifying(), key.verifying());
    assert_eq!(VerifyingKey::from_pem(&shown).unwrap(), key.verifying());
    assert_eq!(SigningKey::from_pem(&shown).unwrap_err(), KeyError::PublicGiven);
    assert_eq!(VerifyingKey::from_pem(&private).unwrap_err(), KeyError::PrivateGiven);
    for text in ["", "-----BEGIN PRIVATE KEY-----\n", "\u{0}", EVERYTHING] {
        assert_eq!(SigningKey::from_pem(text).unwrap_err(), KeyError::Private);
        assert_eq!(VerifyingKey::from_pem(text).unwrap_err(), KeyError::Public);
    }
}

#[test]
fn the_document_has_every_opcode_and_register() {
    let text = std::fs::read_to_string(root().join("docs/ppdf.md")).unwrap();
    let blocks: Vec<&str> =
        text.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let shown: Vec<Vec<&str>> = blocks[0].lines().map(|line| line.splitn(2, ' ').collect()).collect();
    let mut rows: Vec<_> = TABLE.iter().collect();
    rows.sort_by_key(|row| row.code);
    assert_eq!(shown.len(), rows.len());
    for (line, row) in shown.iter().zip(rows) {
        let (operand, form) = line[1].split_once(' ').unwrap();
        let kind = format!("{:?}", row.operand).to_lowercase();
        let kind = match kind.as_str() {
            "none" => "-".to_owned(),
            kind => kind
                .replace("pushr", "push_r")
                .replace("pushu", "push_u")
                .replace("popr", "pop_r")
                .replace("popu", "pop_u"),
        };
        let told = (u8::from_str_radix(line[0], 16).unwrap(), operand, form.trim());
        assert_eq!(told, (row.code, kind.as_str(), row.form));
    }
    let words: Vec<&str> = blocks[1].split_whitespace().collect();
    let told: Vec<(u8, &str)> =
        words.chunks(2).map(|pair| (u8::from_str_radix(pair[0], 16).unwrap(), pair[1])).collect();
    assert_eq!(told, REGISTERS.iter().map(|row| (row.index, row.name)).collect::<Vec<_>>());
}

/// The instruction table as PPDF sees it: the form of each opcode byte and the encoding of its operand.
fn encoding() -> u32 {
    let row = |row: &trapline_rpn::Row| format!("{:02x} {} {:?}\n", row.code, row.form, row.operand);
    crc32fast::hash(trapline_rpn::TABLE.iter().map(row).collect::<String>().as_bytes())
}

/// A new instruction, or another operand, is something that an older reader does not know: the minor version goes up,
/// and this table gets a line. A changed or removed opcode needs a new major version.
#[test]
fn the_minor_version_goes_up_with_the_instruction_table() {
    let known = [((1, 0), 128, 3_249_952_438)];
    let now = (trapline_rpn::ppdf::VERSION, trapline_rpn::TABLE.len(), encoding());
    assert_eq!(known.last(), Some(&now), "give `ppdf::VERSION` the next minor number, and add this line");
}
