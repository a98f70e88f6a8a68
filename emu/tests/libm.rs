//! The library of mathematical functions of musl, on the host's CPU and in a guest: equal results, and equal exceptions.
//!
//! musl has one code for every CPU of an architecture, so both execute the same instructions: on x86-64 SSE for `float` and
//! `double` and the x87 for `long double`, on i386 the x87 for all.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use crate::common::{CODE, Setup};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use trapline_emu::Stop;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/libm/libm.c");
/// Where the guest finds its seed, and where it leaves the results (`libm.c`).
const SEED: u64 = 0x10_0000;
const RESULTS: u64 = SEED + 16;
/// A value of 10 bytes, and the exceptions.
const RESULT: usize = 12;
const INPUTS: usize = 300;
/// By how much a `long double` may differ.
const UNITS: u128 = 8;

/// The functions in the order of `libm.c`, with what follows their names in each of their forms.
fn rows() -> Vec<String> {
    let source = std::fs::read_to_string(SOURCE).unwrap();
    let (_, all) = source.split_once("#define ALL").unwrap();
    let all = all.split("\n\n").next().unwrap();
    let mut rows = Vec::new();
    for call in all.split(')') {
        let Some((kind, name)) = call.split_once('(') else { continue };
        let forms: &[&str] = if kind.contains("NARROW") { &["", "f"] } else { &["", "f", "l"] };
        rows.extend(forms.iter().map(|form| format!("{name}{form}")));
    }
    rows
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Compiles the program, with more options.
fn compiled(bits: u32, to: &Path, more: &[&str]) {
    let mut command = Command::new(if bits == 64 { "musl-gcc" } else { "gcc" });
    // Calls are not to be replaced by instructions, and stay where the rounding is set.
    command.args(["-O1", "-fno-builtin", "-frounding-math", "-fno-stack-protector", "-fno-pic", "-no-pie"]);
    command.args(["-static", "-fcf-protection=none"]).args(more).arg("-o").arg(to).arg(SOURCE);
    if bits == 64 {
        command.arg("-lm");
    } else {
        musl_of_i386(&mut command, more.is_empty());
    }
    run(&mut command);
}

/// Debian has no musl of i386 for a machine of x86-64; Rust has one, without the headers. `starts`: with what calls `main`.
fn musl_of_i386(gcc: &mut Command, starts: bool) {
    const TARGET: &str = "i686-unknown-linux-musl";
    let folder = run(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    let folder = PathBuf::from(String::from_utf8(folder).unwrap().trim());
    let own = |name: &str| folder.join("self-contained").join(name);
    assert!(own("libc.a").exists(), "{} is missing: rustup target add {TARGET}", own("libc.a").display());
    let headers = run(Command::new("gcc").arg("-print-file-name=include"));
    gcc.args(["-m32", "-nostdlib", "-nostdinc", "-isystem", "/usr/include/x86_64-linux-musl", "-isystem"]);
    gcc.arg(String::from_utf8(headers).unwrap().trim());
    gcc.args(["crt1.o", "crti.o", "crtn.o"].map(own).iter().filter(|_| starts)).arg(own("libc.a"));
    // What gcc's own library has: division of 64 bits.
    let is_builtins = |name: &str| name.starts_with("libcompiler_builtins") && name.ends_with(".rlib");
    let mut all = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    gcc.arg(all.find(|path| is_builtins(&path.file_name().unwrap().to_string_lossy())).unwrap());
    gcc.arg(own("libc.a"));
}

/// The guest: its code, and where that begins.
fn guest(bits: u32, folder: &Path) -> (Vec<u8>, u64) {
    let (elf, flat) = (folder.join("guest"), folder.join("flat"));
    let at = format!("-Wl,-Ttext={CODE:#x}");
    compiled(bits, &elf, &["-DGUEST", "-nostartfiles", "-Wl,--build-id=none,-e,guest", &at]);
    run(Command::new("objcopy").args(["-O", "binary"]).arg(&elf).arg(&flat));
    let header = std::fs::read(&elf).unwrap();
    let entry = u32::from_le_bytes(header[24..28].try_into().unwrap());
    (std::fs::read(flat).unwrap(), entry.into())
}

/// By how much the results of a function may differ. `lgammal` subtracts numbers that are nearly equal, which leaves fewer digits. On i386,
/// `double` and `float` are rounded from what the x87 gives; a root is exact.
fn units(name: &str, bits: u32) -> u128 {
    match name {
        "lgammal" => 8 * UNITS,
        _ if name.ends_with('l') => UNITS,
        "sqrt" | "sqrtf" => 0,
        _ => u128::from(bits == 32),
    }
}

/// Whether both are NaNs that the function made of other NaNs, as no operation was invalid: which of two is taken is a known difference
/// of the engine (docs/cpu-model.md).
fn are_nans(name: &str, one: &[u8], other: &[u8]) -> bool {
    // A `float` has four bytes, the others are 0.
    let is_nan = |bytes: &[u8]| match u64::from_le_bytes(bytes[..8].try_into().unwrap()) {
        bits if bits >> 32 == 0 => f32::from_bits(bits as u32).is_nan(),
        bits => f64::from_bits(bits).is_nan(),
    };
    let is_invalid = |bytes: &[u8]| bytes[10] & 1 != 0;
    let both = |holds: fn(&[u8]) -> bool| holds(one) && holds(other);
    !name.ends_with('l') && both(is_nan) && !is_invalid(one) && !is_invalid(other)
}

/// Whether two numbers have at most so many units of the last place between them. Of the x87's, the first bit of the fraction is always
/// set.
fn are_near(long: bool, one: &[u8], other: &[u8], units: u128) -> bool {
    let [one, other] = [one, other]
        .map(|bytes| bytes[..10].iter().rev().fold(0u128, |all, byte| all << 8 | u128::from(*byte)));
    if !long {
        return one.abs_diff(other) <= units;
    }
    let place = |value: u128| (value >> 64) << 63 | value & ((1 << 63) - 1);
    place(one).abs_diff(place(other)) <= units
}

/// Compares the functions for so many seeds.
fn check(bits: u32, seeds: usize) {
    let seeds: Vec<u64> = (1..=seeds as u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("libm-{bits}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let host = folder.join("host");
    compiled(bits, &host, &[]);
    let (code, entry) = guest(bits, &folder);
    let rows = rows();
    let size = rows.len() * RESULT * INPUTS;
    let (mut bad, mut near) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, usize>::new());
    for seed in &seeds {
        let expected = run(Command::new(&host).arg(format!("{seed:x}")));
        assert_eq!(expected.len(), size);
        let mut setup = Setup::bits(bits).code(&code).at(SEED, &seed.to_le_bytes());
        setup.entry = entry;
        let mut guest = setup.boot();
        assert_eq!(guest.m.run(None, u64::MAX / 2), Stop::Halted);
        let words = (0..size as u64).step_by(4).map(|n| guest.mem(RESULTS + n, 4) as u32);
        let found: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        for (n, (one, other)) in expected.chunks(RESULT).zip(found.chunks(RESULT)).enumerate() {
            let name = rows[n % rows.len()].as_str();
            let flags = |result: &[u8]| u16::from_le_bytes([result[10], result[11]]);
            if one == other {
                continue;
            }
            // CPUs do not round the functions of the x87 alike, and the C library computes with what they give.
            let near_enough = are_near(name.ends_with('l'), one, other, units(name, bits));
            if (near_enough || are_nans(name, one, other)) && flags(one) == flags(other) {
                *near.entry(name).or_default() += 1;
                continue;
            }
            let count = bad.entry(name).or_default();
            *count += 1;
            if *count <= 3 {
                println!(
                    "{name}, seed {seed:x}, input {}: host {one:02x?} guest {other:02x?}",
                    n / rows.len()
                );
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    println!(
        "{} functions, {} calls; units or NaNs apart: {near:?}",
        rows.len(),
        rows.len() * INPUTS * seeds.len()
    );
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn libm_gives_what_it_gives_on_the_host() {
    check(64, 2);
}

#[test]
fn libm_gives_what_it_gives_on_the_host_at_length() {
    check(64, 100);
    check(32, 100);
}
