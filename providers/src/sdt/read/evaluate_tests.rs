//! Arguments and their values, one per line, in a synthetic scene.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::super::grammar::argument;
use super::*;

/// Memory at 0x1000; general register n holds `0x1000 + 0x10 * n`, except AX, where all bits are set.
struct Scenery {
    width: Width,
    memory: [u8; 0x200],
}

const AX: u64 = 0x8899_aabb_ccdd_80ff;

impl Scene for Scenery {
    fn width(&self) -> Width {
        self.width
    }

    fn general(&self, number: u8) -> u64 {
        if number == 0 { AX } else { 0x1000 + 0x10 * u64::from(number) }
    }

    fn xmm(&self, number: u8) -> u128 {
        match number {
            0 => 1.5f32.to_bits().into(),
            1 => (-2.25f64).to_bits().into(),
            n => u128::MAX - u128::from(n),
        }
    }

    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let from = address.checked_sub(0x1000).map(|at| at as usize);
        let bytes = from.and_then(|at| self.memory.get(at..at + to.len()));
        bytes.is_some_and(|bytes| {
            to.copy_from_slice(bytes);
            true
        })
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        (name == "sym").then_some(0x1040)
    }

    fn offset_table(&self) -> Option<u64> {
        Some(0x1020)
    }
}

fn scenery(width: Width) -> Scenery {
    let mut memory = [0; 0x200];
    for (n, byte) in memory.iter_mut().enumerate() {
        *byte = n as u8 ^ 0x80;
    }
    // 3.0 as the x87 holds it.
    memory[0x1f0..0x1fa].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0x40]);
    Scenery { width, memory }
}

fn value(text: &str, width: Width) -> String {
    let argument = argument(text, width).unwrap();
    argument.evaluate(&scenery(width)).map_or_else(|e| e.to_string(), |v| v.to_string())
}

#[test]
fn a_value_is_cut_to_its_size_and_extended() {
    for (text, wanted) in [
        ("1@%al", "255"),
        ("-1@%al", "-1"),
        ("1@%ah", "128"),
        ("-1@%ah", "-128"),
        ("2@%ax", "33023"),
        ("-2@%ax", "-32513"),
        ("4@%eax", "3437068543"),
        ("-4@%eax", "-857898753"),
        ("8@%rax", "9843086184167604479"),
        ("-8@%rax", "-8603657889541947137"),
        ("-1@%rax", "-1"),
        ("1@$300", "44"),
        ("-1@$200", "-56"),
        ("8@$-1", "18446744073709551615"),
        ("-8@$-1", "-1"),
        ("16@$-1", "340282366920938463463374607431768211455"),
        ("-16@$-1", "-1"),
        ("16@%xmm2", "340282366920938463463374607431768211453"),
        ("-16@%xmm2", "-3"),
        ("4f@%xmm0", "1.5"),
        ("8f@%xmm1", "-2.25"),
        ("16f@0x11f0", "3"),
        ("4f@$0x40490fdb", "3.1415927410125732"),
    ] {
        assert_eq!(value(text, Width::Bits64), wanted, "{text}");
    }
}

#[test]
fn memory_is_found_by_base_index_scale_displacement_and_symbol() {
    for (text, byte) in [
        ("1@0x1000", 0x80),
        ("1@(%rcx)", 0x90),
        ("1@-1(%rcx)", 0x8f),
        ("1@8(%rcx)", 0x98),
        ("1@sym", 0xc0),
        ("1@sym(%rip)", 0xc0),
        ("1@4+sym(%rip)", 0xc4),
        ("1@sym-4", 0xbc),
        ("1@0x2080-sym", 0xc0),
        // sym - GOT + rcx.
        ("1@sym@GOTOFF(%rcx)", 0xb0),
        ("1@-0x1000(%rcx,%rdx)", 0xb0),
        ("1@-0x2000(%rcx,%rdx,2)", 0x80 ^ 0x50),
        ("1@-0x3000(,%rdx,4)", 0x80 ^ 0x80),
        ("1@-0x1000(%ecx,%edx)", 0xb0),
    ] {
        assert_eq!(value(text, Width::Bits64), byte.to_string(), "{text}");
    }
    assert_eq!(value("4@(%rcx)", Width::Bits64), 0x9392_9190u32.to_string());
    // All ones above the registers' 32 bits: cut.
    assert_eq!(value("1@0x100000000(%ecx)", Width::Bits64), "144");
    assert_eq!(value("1@-4294967296(%ecx)", Width::Bits32), "144");
}

#[test]
fn an_unreadable_value_is_an_error_of_that_argument_alone() {
    for (text, error) in [
        ("8@(%rax)", "invalid address (0x8899aabbccdd80ff)"),
        ("8@0x11fc", "invalid address (0x11fc)"),
        ("8@nowhere(%rip)", "no symbol \"nowhere\""),
    ] {
        assert_eq!(value(text, Width::Bits64), error);
    }
}

#[test]
fn the_80_bits_of_the_x87_are_doubles() {
    let wide = |mantissa: u64, top: u16| extended(u128::from(mantissa) | u128::from(top) << 64);
    assert_eq!(wide(1 << 63, 0x3fff), 1.0);
    assert_eq!(wide(0xc000_0000_0000_0000, 0xc000), -3.0);
    assert_eq!(wide(0, 0), 0.0);
    assert_eq!(wide(1 << 63, 0x7fff), f64::INFINITY);
    assert_eq!(wide(1 << 63, 0xffff), f64::NEG_INFINITY);
    assert!(wide(3 << 62, 0x7fff).is_nan());
    assert_eq!(wide(1 << 63, 0x3fff - 1022), f64::MIN_POSITIVE);
    assert_eq!(wide(u64::MAX, 1), 0.0, "too small for a double");
}

/// Shows that the value of a 64-bit register survives both extensions.
#[test]
fn the_full_width_of_a_register_is_kept() {
    assert_eq!(
        argument("8@%rax", Width::Bits64).unwrap().evaluate(&scenery(Width::Bits64)).unwrap().word(),
        AX
    );
}
