//! Texts of floating-point numbers, against those of C.

use super::*;

/// The number as C's compiler and `printf` show it: `%.0e` to `%.17e`, `%f` and `%g` in some precisions, per line. (Of `%#g`, glibc 2.36 rounds 999999.5 to `1.e+06`.)
fn c_lines(kind: &str, values: &[u64]) -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("trapline-float-{kind}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let list: Vec<String> = values.iter().map(|value| format!("{value:#x}ull")).collect();
    let read = match kind {
        "float" => "unsigned b = v[i]; float f; memcpy(&f, &b, 4); double d = f;",
        "double" => "double d; memcpy(&d, &v[i], 8);",
        // The significand with its integer bit, and an exponent made of it.
        _ => {
            "unsigned char b[16] = {0}; unsigned short e = v[i] >> 13 & 0xffff; unsigned long long s = v[i] | 1ull << 63; \
              if (e % 7 == 0) e &= 0x8000; else if ((e & 0x7fff) == 0x7fff) e--; if (!(e & 0x7fff)) s &= ~(1ull << 63); \
              memcpy(b, &s, 8); memcpy(b + 8, &e, 2); long double d; memcpy(&d, b, 16);"
        }
    };
    let print = match kind {
        "extended" => "printf(\"%.21Lg\\n\", d);",
        _ => "printf(\"%e %.0f %f %.3f %g %.1g %.17g %G\\n\", d, d, d, d, d, d, d, d);",
    };
    let text = format!(
        "#include <stdio.h>\n#include <string.h>\nunsigned long long v[] = {{ {} }};\n\
         int main(void) {{ for (unsigned i = 0; i < sizeof v / 8; i++) {{ {read} {print} }} }}\n",
        list.join(",")
    );
    std::fs::write(folder.join("a.c"), text).unwrap();
    let status =
        std::process::Command::new("gcc").args(["-w", "-o", "a", "a.c"]).current_dir(&folder).status();
    assert!(status.unwrap().success());
    let out = std::process::Command::new(folder.join("a")).output().unwrap().stdout;
    let _ = std::fs::remove_dir_all(&folder);
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

/// Edges, whole numbers, and numbers of all magnitudes.
fn values(edges: &[u64], mask: u64) -> Vec<u64> {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state & mask
    };
    edges.iter().copied().chain((0..2000).map(|_| next())).collect()
}

#[test]
fn formats_are_those_of_c() {
    let doubles: Vec<u64> = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.5,
        2.5,
        1e-5,
        1e-4,
        999_999.5,
        1e6,
        123_456_789.0,
        1e16,
        1e300,
        5e-324,
        0.1,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
    ]
    .iter()
    .map(|value: &f64| value.to_bits())
    .collect();
    let floats: Vec<u64> = [0.0f32, 12.141422, 0.1, f32::MAX, f32::MIN_POSITIVE, -1e-40, 16_777_216.0]
        .iter()
        .map(|value| u64::from(value.to_bits()))
        .collect();
    for (kind, edges, mask, size) in [("double", doubles, u64::MAX, 8), ("float", floats, 0xffff_ffff, 4)] {
        let all = values(&edges, mask);
        let theirs = c_lines(kind, &all);
        assert_eq!(all.len(), theirs.len());
        for (bits, theirs) in all.iter().zip(&theirs) {
            let float = Float::of_word(*bits, size).unwrap();
            let forms = [
                (b'e', 6, false),
                (b'f', 0, false),
                (b'f', 6, false),
                (b'f', 3, false),
                (b'g', 6, false),
                (b'g', 1, false),
                (b'g', 17, false),
                (b'G', 6, false),
            ];
            let ours =
                forms.map(|(letter, precision, alternate)| float.formatted(letter, precision, alternate));
            assert_eq!(ours.join(" "), *theirs, "{kind} {bits:#x}");
        }
    }
}

#[test]
fn eighty_bits_are_shown_as_c_shows_them() {
    let all = values(&[0, 1, 0x7fff << 13, 0x3fff << 13, 0x8000_0000_0000_0000], u64::MAX);
    let theirs = c_lines("extended", &all);
    for (given, theirs) in all.iter().zip(&theirs).take(300) {
        // As the program in C makes them.
        let mut exponent = (given >> 13) as u16;
        let mut significand = given | 1 << 63;
        if exponent.is_multiple_of(7) {
            exponent &= 0x8000;
        } else if exponent & 0x7fff == 0x7fff {
            exponent -= 1;
        }
        if exponent & 0x7fff == 0 {
            significand &= !(1 << 63);
        }
        let float = Float::Extended(exponent, significand);
        assert_eq!(float.to_string().trim_end_matches(".0"), theirs, "{exponent:#x} {significand:#x}");
    }
}

#[test]
fn a_number_is_as_short_as_it_can_be_and_looks_like_one() {
    let shown = |bits: u64, size| Float::of_word(bits, size).unwrap().to_string();
    assert_eq!(shown(0x4142_4344, 4), "12.141422");
    assert_eq!(shown(1.5f64.to_bits(), 8), "1.5");
    assert_eq!(shown(1e300f64.to_bits(), 8), "1e300");
    assert_eq!(Float::Double(1.5).formatted(b'g', 6, true), "1.50000");
    assert_eq!(shown(0x3c00, 2), "1.0");
    assert_eq!(shown(0xc100, 2), "-2.5");
    assert_eq!(shown(0x0001, 2), "5.9604645e-8");
    assert_eq!([shown(0x7c00, 2), shown(0xfe00, 2)], ["inf", "-nan"]);
    assert_eq!([shown(0x7f80_0000, 4), shown(f64::NEG_INFINITY.to_bits(), 8)], ["inf", "-inf"]);
    // The integer bit is missing: such an operand is invalid.
    assert_eq!(Float::Extended(0x3fff, 1).to_string(), "nan");
    assert_eq!(Float::Extended(0x7fff, 1 << 63).to_string(), "inf");
    assert_eq!(Float::Extended(0xbfff, 3 << 62).to_string(), "-1.5");
    assert_eq!(Float::Extended(0x3ffb, 0xcccc_cccc_cccc_cccd).narrowed(64).to_string(), "0.1");
    assert!(Float::of(&[0; 3]).is_none() && Float::of(&[0; 32]).is_none());
    assert_eq!(Float::of(&[0; 12]).unwrap().to_string(), "0.0");
}
