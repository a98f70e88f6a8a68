//! The template formatter: the paper's examples byte for byte, every control at both widths, data that does not fit,
//! invalid template files, and random input.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use proptest::prelude::*;
use trapline_trace::{Formatter, Header, MAX_TEXT, RecordView, TemplateErrors};

/// A formatter of these files, the directory among them as `dir`.
fn formatter(files: &[(&str, &[u8])]) -> Result<Formatter, TemplateErrors> {
    let files: BTreeMap<&Path, &[u8]> = files.iter().map(|(name, text)| (Path::new(*name), *text)).collect();
    Formatter::initialise_with(Path::new("dir"), &mut |path| {
        files.get(path).map(|bytes| bytes.to_vec()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    })
}

const DIRECTORY: &[u8] = b"major=1 file=\"one.fmt\"\n";

/// One template, in C notation.
fn one(fmt: &str) -> Result<Formatter, TemplateErrors> {
    let file = format!("major=1\nminor=1, desc=\"a test\"\nfmt=\"{fmt}\"\n");
    formatter(&[("dir", DIRECTORY), ("one.fmt", file.as_bytes())])
}

fn format_with(formatter: &Formatter, (major, minor): (u32, u32), width: u8, data: &[u8]) -> String {
    let header = Header { major, minor, width, ..Header::default() };
    formatter.format(&RecordView { header, name: b"", watch: None, data }).text
}

/// Data by a template, at a width.
fn at(width: u8, fmt: &str, data: &[u8]) -> String {
    let made = one(fmt).unwrap_or_else(|errors| panic!("{fmt}: {errors}"));
    format_with(&made, (1, 1), width, data)
}

/// Data by a template whose result does not depend on the width.
fn both(fmt: &str, data: &[u8]) -> String {
    let narrow = at(32, fmt, data);
    assert_eq!(narrow, at(64, fmt, data), "{fmt}");
    narrow
}

/// A prefix and its data.
fn prefixed(token: u8, count: u16, data: &[u8]) -> Vec<u8> {
    [&[token], count.to_le_bytes().as_slice(), data].concat()
}

#[test]
fn the_papers_array_of_structures() {
    // The paper prints the literal "function" with a capital letter; literal text is copied.
    let data = prefixed(0, 12, &[0, 0, 0, 0, 0, 0, 3, 0, 2, 0, 0, 0]);
    let expected = "function=0x0000 return code=0x0000\nfunction=0x0000 return code=0x0003\n\
                    function=0x0002 return code=0x0000\n";
    assert_eq!(both(r"%r(function=0x%2x return code=0x%2x\n)", &data), expected);
}

#[test]
fn the_papers_table_of_pointers_to_strings() {
    // The paper's pointers have nine digits by mistake.
    let mut entries = Vec::new();
    for (pointer, text) in
        [(0x8012_3445_u32, "this is an example string"), (0x8022_3445, "this is another example string")]
    {
        entries.extend(pointer.to_le_bytes());
        entries.extend(prefixed(1, text.len() as u16, text.as_bytes()));
    }
    let expected = "pointer=0x80123445, string='this is an example string'\n\
                    pointer=0x80223445, string='this is another example string'\n";
    let data = prefixed(0, entries.len() as u16, &entries);
    assert_eq!(both(r"%r(pointer=0x%4x, string='%ps'\n)", &data), expected);
}

#[test]
fn the_papers_controls_that_stand_next_to_each_other() {
    assert_eq!(both("%4us", &[7, 0, 0, 0]), "7s");
    assert_eq!(both("%4u%s", &[7, 0, 0, 0, b'a', b'b', 0]), "7ab");
    assert_eq!(both("%ps", &prefixed(1, 2, b"ab")), "ab");
}

#[test]
fn the_papers_literals() {
    assert_eq!(both("%% %( %)", &[]), "% ( )");
}

#[test]
fn the_papers_dump() {
    let line =
        [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x20, 0xc4, 0xa8, 0xfe, 0xae, 0xef, 0xff, 0xbb];
    let data = [line.as_slice(), &line, &line, &line, &line[..6]].concat();
    // 0x20 bytes a line, as the paper's text says; its print breaks each line in the middle.
    let hex = "21 22 23 24 25 26 27 28 20 c4 a8 fe ae ef ff bb";
    let text = "!\"#$%&'( .......";
    let pad = " ".repeat(3 * (32 - 6));
    let expected = format!(
        "+00000000 {hex} {hex} *{text}{text}*\n+00000020 {hex} {hex} *{text}{text}*\n\
         +00000040 21 22 23 24 25 26{pad} *!\"#$%&*"
    );
    assert_eq!(both("%z", &data), expected);
    // No template of its own: the default is the dump.
    let made = one("%4x").unwrap();
    assert_eq!(format_with(&made, (1, 2), 32, &data), expected);
    assert_eq!(format_with(&made, (2, 1), 64, &data), expected);
}

#[test]
fn characters_outside_the_printable_range_become_periods() {
    assert_eq!(both("%9c", b"a\x1b[2J\x7f\x80\xff~"), "a.[2J...~");
    assert_eq!(both("%c%c", b"ab"), "ab");
    assert_eq!(both("%s", b"a\x1b\n\0"), "a..");
}

#[test]
fn integers_of_every_size() {
    assert_eq!(both("%d %u %x", &[0xff, 0xff, 0x0f]), "-1 255 0f");
    assert_eq!(both("%2d %2u %2x", &[0xfe, 0xff, 0xfe, 0xff, 0x34, 0x12]), "-2 65534 1234");
    assert_eq!(both("%3d|%3u|%3x", &[0, 0, 0x80, 0, 0, 0x80, 3, 2, 1]), "-8388608|8388608|010203");
    assert_eq!(both("%4d", &i32::MIN.to_le_bytes()), "-2147483648");
    assert_eq!(both("%8d", &i64::MIN.to_le_bytes()), i64::MIN.to_string());
    assert_eq!(both("%8u", &u64::MAX.to_le_bytes()), u64::MAX.to_string());
    assert_eq!(both("%16d", &i128::MIN.to_le_bytes()), i128::MIN.to_string());
    assert_eq!(both("%16u", &u128::MAX.to_le_bytes()), u128::MAX.to_string());
    assert_eq!(both("%4d %4u", &[0; 8]), "0 0");
    assert_eq!(both("%10x", &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]), "80000000000000000001");
}

#[test]
fn floating_point_numbers() {
    assert_eq!(both("%4f %4f", &[0.1f32.to_le_bytes(), (-2.5f32).to_le_bytes()].concat()), "0.1 -2.5");
    assert_eq!(both("%8f %8f", &[1.0f64.to_le_bytes(), 1e300f64.to_le_bytes()].concat()), "1.0 1e300");
    assert_eq!(both("%8f", &f64::NEG_INFINITY.to_le_bytes()), "-inf");
    let extended = |sign: u16, exponent: u16, mantissa: u64| {
        [mantissa.to_le_bytes().as_slice(), &(sign << 15 | exponent).to_le_bytes()].concat()
    };
    let of = |bytes: Vec<u8>| both("%10f", &bytes);
    assert_eq!(of(extended(0, 16383, 1 << 63)), "1.0");
    assert_eq!(of(extended(1, 16384, 0xc90f_daa2_2168_c235)), "-3.14159265358979323851");
    assert_eq!(of(extended(0, 0, 0)), "0.0");
    assert_eq!(of(extended(1, 0x7fff, 1 << 63)), "-inf");
    assert_eq!(of(extended(0, 0x7fff, 3 << 62)), "nan");
    // Beyond a double, and no valid operand.
    assert_eq!(of(extended(0, 0x7ffe, 1 << 63)), "5.94865747678615882543e+4931");
    assert_eq!(of(extended(0, 16383 + 1023, u64::MAX)), "1.79769313486231590763e+308");
    assert_eq!(of(extended(0, 16383, 5)), "nan");
}

#[test]
fn skipping() {
    assert_eq!(both("%i%3i%x", &[1, 2, 3, 4, 5]), "05");
    assert_eq!(both("%ri%x", &prefixed(0, 3, &[1, 2, 3, 9])), "09");
}

#[test]
fn strings_end_at_a_nul_or_at_the_prefixs_length() {
    // Token 1: to the NUL, and what follows it is the next item, or to the length.
    assert_eq!(both("%ps|%x", &prefixed(1, 9, b"ab\0\x05")), "ab|05");
    assert_eq!(both("%ps|%x", &prefixed(1, 3, b"abc\x05")), "abc|05");
    // Token 0: to the NUL, and the rest of the length is skipped.
    assert_eq!(both("%ps|%x", &prefixed(0, 5, b"ab\0cd\x05")), "ab|05");
    assert_eq!(both("%ps|%x", &prefixed(0, 3, b"abc\x05")), "abc|05");
    assert_eq!(both("%s|%s", b"ab\0cd"), "ab|cd");
    assert_eq!(both("[%ps]", &prefixed(1, 0, &[])), "[]");
}

#[test]
fn a_prefix_goes_with_other_controls() {
    assert_eq!(both("%p4x %4x", &prefixed(0, 8, &[1, 0, 0, 0, 2, 0, 0, 0])), "00000001 00000002");
    assert_eq!(
        both("%p2d %p3c", &[prefixed(0, 2, &[0xff, 0xff]), prefixed(0, 3, b"abc")].concat()),
        "-1 abc"
    );
    assert_eq!(both("%p4f", &prefixed(0, 4, &0.5f32.to_le_bytes())), "0.5");
    assert_eq!(both("%p2i%x", &prefixed(0, 3, &[1, 2, 3])), "03");
    let dumped = both(r"%pz\n%x", &prefixed(0, 1, b"ab"));
    assert!(dumped.starts_with("+00000000 61  ") && dumped.ends_with("*a*\n62"), "{dumped}");
    assert_eq!(both("%p-%x", &prefixed(0, 1, &[5])), "-05");
}

#[test]
fn repetition_of_one_control() {
    assert_eq!(both("%r2x", &prefixed(0, 4, &[1, 0, 2, 0])), "00010002");
    assert_eq!(both("%rs", &prefixed(0, 5, b"a\0bc\0")), "abc");
    let strings = [prefixed(1, 1, b"a"), prefixed(1, 1, b"b")].concat();
    assert_eq!(both("%rps", &prefixed(0, strings.len() as u16, &strings)), "ab");
    assert_eq!(both("[%rx]", &prefixed(0, 0, &[])), "[]");
    let rows = [prefixed(0, 2, &[1, 2]), prefixed(0, 1, &[3])].concat();
    assert_eq!(both("%r(<%r(%x,)>)", &prefixed(0, rows.len() as u16, &rows)), "<01,02,><03,>");
    assert_eq!(both("%rrx", &prefixed(0, rows.len() as u16, &rows)), "010203");
    assert_eq!(both("%r(%%%(%x%))", &prefixed(0, 2, &[1, 2])), "%(01)%(02)");
}

#[test]
fn elements_are_counted_in_words_of_the_guest() {
    for token in [4, 5, 6, 7] {
        let narrow = prefixed(token, 2, &[1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(at(32, "%r(%4x )", &narrow), "00000001 00000002 ");
        let wide = prefixed(token, 2, &[1u64.to_le_bytes(), 2u64.to_le_bytes()].concat());
        assert_eq!(at(64, "%r(%8x )", &wide), "0000000000000001 0000000000000002 ");
        assert_ne!(at(32, "%r(%8x )", &wide), at(64, "%r(%8x )", &wide));
    }
    // Stack trace records and call frames have no fixed size: they are counted themselves.
    for token in [2, 3] {
        assert_eq!(both("%r(%2x )", &prefixed(token, 2, &[1, 0, 2, 0])), "0001 0002 ");
    }
}

#[test]
fn faults_are_shown_and_their_control_is_left_out() {
    let flat = prefixed(0xff, 4, &[0xef, 0xbe, 0xad, 0xde]);
    assert_eq!(both("%ps.", &flat), "(fault at address 0xdeadbeef).");
    assert_eq!(both("%p8x.", &flat), "(fault at address 0xdeadbeef).");
    assert_eq!(both("%r(%4x).", &flat), "(fault at address 0xdeadbeef).");
    let wide = prefixed(0xff, 8, &0xffff_8000_0000_1234_u64.to_le_bytes());
    assert_eq!(both("%ps.", &wide), "(fault at address 0xffff800000001234).");
    let selector = prefixed(0xfe, 4, &[0x23, 0, 0, 0]);
    assert_eq!(both("%pz%x", &[selector, vec![5]].concat()), "(fault at selector 0x00000023)05");
}

#[test]
fn what_does_not_fit_is_marked_and_dumped() {
    let cases: &[(&str, &[u8])] = &[
        (r"code=%4x", &[1, 2]),
        (r"code=%2x", &[1, 2, 3, 4, 5]),
        (r"%ps", &[1, 9, 0, b'a', b'b']),
        (r"%ps", &[0x55, 2, 0, b'a', b'b']),
        (r"%ps", &[0, 2]),
        (r"%r(%4x )", &[0, 6, 0, 1, 0, 0, 0, 2, 0]),
        (r"%r(%4x )", &[0, 9, 0, 1, 0, 0, 0, 2, 0]),
        (r"%ps", &[0xff, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (r"%ps", &[0xff, 4, 0, 1, 2]),
        (r"one\n%s", &[]),
        (r"%r(%x)", &[3, 3, 0, 1]),
    ];
    let shown: Vec<String> =
        cases.iter().map(|(fmt, data)| format!("{fmt}\n{}\n", both(fmt, data))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn text_is_bounded() {
    let literal = "x".repeat(1000);
    let text = both(&format!("%r({literal}%i)"), &prefixed(0, 60_000, &[0; 60_000]));
    assert!(text.len() < MAX_TEXT + 60_000 * 5, "{}", text.len());
    assert!(text.contains("(the text is cut here, at 1048576 bytes)"));
}

const FILES: &[(&str, &[u8])] = &[
    ("dir", b"/* which file */ major=0x10 file=\"a.fmt\" // hex\nmajor=17, file = \"b.fmt\",\n"),
    ("a.fmt", b"major=16\nminor=1, desc=\"one\", fmt=\"%x \", fmt=\"and\\t%x\\n\",\nMINOR=0x2 DESC=\"two \\\"q\\\" \\\\\"\n"),
    ("b.fmt", b"major=17 /* no template: dumps */"),
];

#[test]
fn a_directory_of_template_files() {
    let made = formatter(FILES).unwrap();
    assert_eq!(made.templates(), 2);
    assert_eq!(format_with(&made, (16, 1), 32, &[1, 2]), "01 and\t02\n");
    let header = Header { major: 16, minor: 2, width: 32, ..Header::default() };
    let formatted = made.format(&RecordView { header, name: b"", watch: None, data: b"A" });
    assert_eq!(formatted.desc, Some("two \"q\" \\"));
    assert!(
        formatted.text.starts_with("+00000000 41 ") && formatted.text.ends_with(" *A*"),
        "no fmt: a dump"
    );
    assert!(format_with(&made, (17, 1), 32, b"A").ends_with(" *A*"));
}

#[test]
fn templates_are_read_again_and_freed() {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let file = |fmt: &str| format!("major=1 minor=1 desc=\"d\" fmt=\"{fmt}\"");
    write("dir", "major=1 file=\"one.fmt\"");
    write("one.fmt", &file("%x"));
    let mut made = Formatter::initialise(&folder.path().join("dir")).unwrap();
    assert_eq!(format_with(&made, (1, 1), 32, &[10]), "0a");
    write("one.fmt", &file("%d"));
    assert_eq!(format_with(&made, (1, 1), 32, &[10]), "0a", "held in memory");
    made.reread().unwrap();
    assert_eq!(format_with(&made, (1, 1), 32, &[10]), "10");
    write("one.fmt", &file("%q"));
    assert_eq!(made.reread().unwrap_err().list.len(), 1);
    assert_eq!(format_with(&made, (1, 1), 32, &[10]), "10", "as it was");
    made.terminate();
    assert!(format_with(&made, (1, 1), 32, &[10]).starts_with("+00000000 0a "));
}

#[test]
fn bad_templates() {
    let long = format!("%{}x{}", "r(".repeat(0), "%r(".repeat(17)) + "%x" + &")".repeat(17);
    let fmts = [
        "%q", "%", "%4", "% p", "%0x", "%65536x", "%17d", "%f", "%2f", "%3p", "%4s", "%pu", "%p4u", "%pr4x",
        "%pp", "%r", "%r text", "%r(text)", "%r(%x", "a(b", "a)b", "%r(%x))", r"%\n", r"\q%x", &long,
    ];
    let shown: Vec<String> = fmts
        .iter()
        .map(|fmt| format!("{fmt}\n  {}\n", one(fmt).expect_err(fmt).to_string().replace('\n', "\n  ")))
        .collect();
    insta::assert_snapshot!(shown.join(""));
}

#[test]
fn bad_template_files() {
    let files: &[&[u8]] = &[
        b"",
        b"minor=1 desc=\"d\"",
        b"major=2",
        b"major=1 minor=1 fmt=\"%x\"",
        b"major=1 minor=1 desc=\"d\" minor=1 desc=\"e\"",
        b"major=1 minor=1 desc=\"d\" desc=\"e\"",
        b"major=1 desc=\"d\"",
        b"major=1 minor=one desc=\"d\"",
        b"major=1 minor=\"1\" desc=2 fmt=3",
        b"major=1 minor=08 desc=\"d\"",
        b"major=1 minor=0x1g desc=\"d\"",
        b"major=1 minor=4294967296 desc=\"d\"",
        b"major=1 minor=1 desc=\"d\n",
        b"major=1 /* minor=1",
        b"major=1 minor=1 desc=\"d\" colour=\"red\" fmt=\"%x\"",
        b"major=1 minor 1 desc=\"d\"",
        b"major=1 minor=1 desc=\"d\" ; fmt=\"%x\" / fmt=\"%x\"",
        b"major=1 major=1",
        b"major=1 minor=1 desc=\"a\\qb\"",
        b"major=1 minor=",
        b"major=1 \xff",
    ];
    let shown: Vec<String> = files
        .iter()
        .map(|text| {
            let errors = formatter(&[("dir", DIRECTORY), ("one.fmt", text)]).unwrap_err();
            format!("{}\n{errors}\n", text.escape_ascii())
        })
        .collect();
    let directories: &[&[u8]] = &[
        b"major=1",
        b"file=\"one.fmt\"",
        b"major=1 file=\"nothere.fmt\"",
        b"major=1 major=2 file=\"b\"",
        b"major=1 file=\"one.fmt\" major=1 file=\"one.fmt\"",
        b"minor=1",
    ];
    let of_directories = directories.iter().map(|text| {
        let errors = formatter(&[("dir", text), ("one.fmt", b"major=1")]).unwrap_err();
        format!("{}\n{errors}\n", text.escape_ascii())
    });
    let missing = formatter(&[]).unwrap_err();
    let all: Vec<String> = shown.into_iter().chain(of_directories).collect();
    insta::assert_snapshot!(format!("{}\n{missing}", all.join("\n")));
}

#[test]
fn errors_are_counted_beyond_the_limit() {
    let text = "major=1 ".to_owned() + &"; ".repeat(80);
    let errors = formatter(&[("dir", DIRECTORY), ("one.fmt", text.as_bytes())]).unwrap_err();
    assert_eq!((errors.list.len(), errors.more), (TemplateErrors::LIMIT, 30));
}

#[test]
fn every_change_of_one_byte_is_read_or_refused() {
    // Deterministic mutation: each byte of each file is replaced by each of these, removed, or doubled.
    let values =
        [0, b'\n', b'"', b'%', b'(', b')', b'\\', b'=', b'/', b'*', b'r', b'p', b'9', 0x7f, 0xc3, 0xff];
    let mut refused = 0;
    for (n, (_, text)) in FILES.iter().enumerate() {
        for at in 0..text.len() {
            let mut variants: Vec<Vec<u8>> = values
                .iter()
                .map(|&value| {
                    let mut text = text.to_vec();
                    text[at] = value;
                    text
                })
                .collect();
            variants.push([&text[..at], &text[at + 1..]].concat());
            variants.push([&text[..=at], &text[at..]].concat());
            variants.push(text[..at].to_vec());
            for variant in variants {
                let mut files = FILES.to_vec();
                files[n].1 = &variant;
                match formatter(&files) {
                    Ok(made) => drop(format_with(&made, (16, 1), 32, &[1, 2, 3])),
                    Err(errors) => {
                        refused += 1;
                        assert!(
                            errors
                                .list
                                .iter()
                                .all(|e| !e.message.contains('\n') && e.to_string().len() < 250)
                        );
                    }
                }
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

/// Pieces of templates, good and bad.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "%(r|p|rp|rr)?[0-9]{0,2}[cdfipsuxz]",
        1 => "%r\\((a%x|%ps|%r\\(%2x,\\)|%z)b?\\)",
        1 => "%r\\(",
        1 => "\\)",
        1 => "[a-z %]{0,4}",
    ]
}

proptest! {
    #[test]
    fn any_data_by_any_template_is_bounded_text(
        pieces in proptest::collection::vec(piece(), 0..6),
        data in proptest::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..300),
        wide: bool,
    ) {
        if let Ok(made) = one(&pieces.concat()) {
            let text = format_with(&made, (1, 1), if wide { 64 } else { 32 }, &data);
            prop_assert!(text.len() <= MAX_TEXT + 300 * 5 + 1000, "{}", text.len());
            let control = |c: char| c.is_control() && c != '\n';
            prop_assert!(!text.contains(control), "{text:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_as_templates_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = formatter(&[("dir", DIRECTORY), ("one.fmt", &bytes)]);
        let _ = formatter(&[("dir", &bytes)]);
    }
}

/// The cells of a table's row, each without the backticks around it.
fn cells(row: &str) -> Vec<String> {
    let cells = row.trim_matches('|').split(" | ").map(|cell| cell.trim());
    cells
        .map(|cell| cell.split("` / `").collect::<Vec<_>>().join("\n").trim_matches('`').to_owned())
        .collect()
}

#[test]
fn the_examples_of_the_document_are_true() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/records.md");
    let text = std::fs::read_to_string(document).unwrap();
    let mut shown = String::new();
    for table in text.split("| Template | Data | Text |\n|---|---|---|\n").skip(1) {
        for row in table.lines().take_while(|line| line.starts_with('|')) {
            let [fmt, data, expected] = cells(row).try_into().unwrap();
            let data: Vec<u8> = data.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            // A template that ends in a space shows it: line ends are not compared.
            let trim = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
            assert_eq!(trim(&at(32, &fmt, &data)), trim(&expected), "{row}");
            shown.push_str(&fmt);
        }
    }
    let missing: Vec<char> = "cdfiprsuxz".chars().filter(|c| !shown.contains(*c)).collect();
    assert!(missing.is_empty() && shown.len() > 80, "no example of {missing:?}");
}
