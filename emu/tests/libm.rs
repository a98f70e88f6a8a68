//! The library of mathematical functions of musl, on the host's CPU and in a guest: equal results, and equal exceptions.
//!
//! musl has one code for every CPU, so both execute the same instructions: SSE for `float` and `double`, the x87 for `long double`.

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
fn compiled(to: &Path, more: &[&str]) {
    let mut command = Command::new("musl-gcc");
    // Calls are not to be replaced by instructions, and stay where the rounding is set.
    command.args(["-O1", "-fno-builtin", "-frounding-math", "-fno-stack-protector", "-fno-pic", "-no-pie"]);
    command.args(["-static", "-fcf-protection=none"]).args(more).arg("-o").arg(to).args([SOURCE, "-lm"]);
    run(&mut command);
}

/// The guest: its code, and where that begins.
fn guest(folder: &Path) -> (Vec<u8>, u64) {
    let (elf, flat) = (folder.join("guest"), folder.join("flat"));
    let at = format!("-Wl,-Ttext={CODE:#x}");
    compiled(&elf, &["-DGUEST", "-nostartfiles", "-Wl,-e,guest", &at]);
    run(Command::new("objcopy").args(["-O", "binary"]).arg(&elf).arg(&flat));
    let header = std::fs::read(&elf).unwrap();
    let entry = u64::from_le_bytes(header[24..32].try_into().unwrap());
    (std::fs::read(flat).unwrap(), entry)
}

/// By how much the results of a function may differ. `lgammal` subtracts numbers that are nearly equal, which leaves fewer digits.
fn units(name: &str) -> u128 {
    if name == "lgammal" { 8 * UNITS } else { UNITS }
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

/// Whether two numbers of the x87 have at most so many units of the last place between them.
fn are_near(one: &[u8], other: &[u8], units: u128) -> bool {
    let [one, other] = [one, other]
        .map(|bytes| bytes[..10].iter().rev().fold(0u128, |all, byte| all << 8 | u128::from(*byte)));
    let place = |value: u128| (value >> 64) << 63 | value & ((1 << 63) - 1);
    place(one).abs_diff(place(other)) <= units
}

/// Compares the functions for so many seeds.
fn check(seeds: usize) {
    let seeds: Vec<u64> = (1..=seeds as u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("libm-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let host = folder.join("host");
    compiled(&host, &[]);
    let (code, entry) = guest(&folder);
    let rows = rows();
    let size = rows.len() * RESULT * INPUTS;
    let (mut bad, mut near) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, usize>::new());
    for seed in &seeds {
        let expected = run(Command::new(&host).arg(format!("{seed:x}")));
        assert_eq!(expected.len(), size);
        let mut setup = Setup::bits(64).code(&code).at(SEED, &seed.to_le_bytes());
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
            let near_enough = name.ends_with('l') && are_near(one, other, units(name));
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
    check(2);
}

#[test]
fn libm_gives_what_it_gives_on_the_host_at_length() {
    check(100);
}
