//! Arguments that are accepted and arguments that are refused, one per line.

#![allow(clippy::unwrap_used)]

use super::*;

/// The printed form of an argument of 64-bit code.
fn shown(text: &str) -> String {
    argument(text, Width::Bits64).map_or_else(|e| e.kind.to_string(), |a| a.to_string())
}

#[test]
fn every_form_of_the_grammar_is_read() {
    for same in [
        "1@%al",
        "-1@%ah",
        "2@%ax",
        "-2@%r8w",
        "4@%r8d",
        "-4@%eax",
        "8@%rax",
        "-8@%r15",
        "1@%sil",
        "16@%xmm15",
        "4f@%xmm0",
        "8f@%xmm1",
        "16f@(%rax)",
        "-8@$-1",
        "4@$0",
        "8@(%rax)",
        "8@-8(%rbp)",
        "4@16(%rsp,%rcx,8)",
        "8@(,%rdx,4)",
        "4@(%eax,%ebx,1)",
        "8@sym",
        "8@8+sym",
        "4@-8+sym",
        "4@0-sym",
        "4@sym(%rip)",
        "4@52+CheckpointStats(%rip)",
        "8@sym(%rax)",
        "8@sym@GOTOFF(%rbx)",
        "4@4+sym@GOTOFF(%rbx)",
        "8@4096",
        "4@.LC0(%rip)",
        "8@_ZN3fooE(,%rax,8)",
    ] {
        assert_eq!(shown(same), same);
    }
    for (text, canonical) in [
        ("%eax", "4@%eax"),
        ("$5", "8@$5"),
        ("sym@GOTOFF(%rbx)", "8@sym@GOTOFF(%rbx)"),
        ("4@sym+8(%rip)", "4@8+sym(%rip)"),
        ("4@sym-8", "4@-8+sym"),
        ("4@+$sym", "4@0+$sym"),
        ("4@sym+4@GOTOFF(%rbx)", "4@4+sym@GOTOFF(%rbx)"),
        ("4@sym@GOTOFF+4(%rbx)", "4@4+sym@GOTOFF(%rbx)"),
        ("4@-8+3+1(%rbp)", "4@-4(%rbp)"),
        ("4@(%rax,%rbx)", "4@(%rax,%rbx,1)"),
        ("8@0(%rax)", "8@(%rax)"),
        ("8@$0x10", "8@$16"),
        ("8@$010", "8@$8"),
        ("8@$0xffffffffffffffff", "8@$-1"),
        ("8@0xffffffff80000000(%rax)", "8@-2147483648(%rax)"),
        ("2@$-9223372036854775808", "2@$-9223372036854775808"),
    ] {
        assert_eq!(shown(text), canonical, "{text}");
    }
}

#[test]
fn arguments_outside_the_grammar_are_refused_with_the_reason() {
    for (text, reason) in [
        ("-8@%eax", "%eax has 4 bytes, fewer than the size 8"),
        ("2@%ah", "%ah has 1 bytes, fewer than the size 2"),
        (
            "3@%eax",
            "the size \"3\" is invalid; it must be 1, 2, 4, 8 or 16, optionally with - before and f after it",
        ),
        (
            "@%eax",
            "the size \"\" is invalid; it must be 1, 2, 4, 8 or 16, optionally with - before and f after it",
        ),
        (
            "--4@%eax",
            "the size \"--4\" is invalid; it must be 1, 2, 4, 8 or 16, optionally with - before and f after it",
        ),
        ("2f@%ax", "a floating-point number cannot have 2 bytes; it must have 4, 8 or 16"),
        ("4@", "there is no operand"),
        ("4@%", "% is not a register that can hold an argument"),
        ("4@%rip", "%rip is not a register that can hold an argument"),
        ("4@%st(1)", "%st(1) is not a register that can hold an argument"),
        ("4@%fs:16", "an operand in segment %fs cannot be read"),
        ("4@$", "\"\" is not a number of at most 64 bits"),
        ("4@$sym", "\"sym\" is not a number of at most 64 bits"),
        ("4@$-+5", "\"-+5\" is not a number of at most 64 bits"),
        ("8@$18446744073709551616", "\"18446744073709551616\" is not a number of at most 64 bits"),
        ("8@$-9223372036854775809", "\"-9223372036854775809\" is not a number of at most 64 bits"),
        ("8@$0x", "\"0x\" is not a number of at most 64 bits"),
        ("8@$08", "\"08\" is not a number of at most 64 bits"),
        ("4@8(%rax", "\"(%rax\" is not an address: it does not end with `)`"),
        ("4@()", "\"()\" is not an address: it has no register"),
        ("4@(%rax,%rcx,3)", "\"(%rax,%rcx,3)\" is not an address: a scale is 1, 2, 4 or 8"),
        ("4@(%rax,,8)", "\"(%rax,,8)\" is not an address: a scale needs an index"),
        (
            "4@(%rax,%rcx,8,1)",
            "\"(%rax,%rcx,8,1)\" is not an address: it must be a base, an index and a scale",
        ),
        ("4@(%rax,%rsp)", "\"(%rax,%rsp)\" is not an address: the stack pointer cannot be an index"),
        ("4@(%rax,%ecx)", "\"(%rax,%ecx)\" is not an address: base and index differ in width"),
        ("4@(%ax)", "\"(%ax)\" is not an address: base and index are general registers of 4 or 8 bytes"),
        ("4@(%xmm0)", "\"(%xmm0)\" is not an address: base and index are general registers of 4 or 8 bytes"),
        (
            "4@8(%rip)",
            "\"(%rip)\" is not an address: %rip without a symbol has no value outside its instruction",
        ),
        ("4@sym@TPOFF(%rax)", "@TPOFF is unknown; only @GOTOFF is supported"),
        ("4@8@GOTOFF(%rbx)", "the displacement \"8@GOTOFF\" is not a sum of numbers and at most one symbol"),
        ("4@a+b", "the displacement \"a+b\" is not a sum of numbers and at most one symbol"),
        ("4@8+", "the displacement \"8+\" is not a sum of numbers and at most one symbol"),
        ("4@8sym", "\"8sym\" is not a number of at most 64 bits"),
        ("4@a*b", "the displacement \"a*b\" is not a sum of numbers and at most one symbol"),
    ] {
        assert_eq!(shown(text), reason, "{text}");
    }
}

#[test]
fn a_file_of_32_bits_has_no_registers_of_64() {
    for (text, reason) in [
        ("4@%r8d", "%r8d does not exist in 32-bit code"),
        ("1@%sil", "%sil does not exist in 32-bit code"),
        ("4@(%rax)", "%rax does not exist in 32-bit code"),
        ("4@sym(%rip)", "\"(%rip)\" is not an address: 32-bit code has no %rip"),
    ] {
        assert_eq!(argument(text, Width::Bits32).unwrap_err().kind.to_string(), reason);
    }
    assert_eq!(argument("$1", Width::Bits32).unwrap().to_string(), "4@$1");
}

#[test]
fn one_bad_argument_leaves_the_others() {
    let read = arguments("  -4@%eax 8@%eax   1@$7 ", Width::Bits64);
    assert_eq!(read.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(
        read[1].as_ref().unwrap_err().to_string(),
        "argument \"8@%eax\": %eax has 4 bytes, fewer than the size 8"
    );
}
