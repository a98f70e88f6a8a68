//! `watchpoint =` and the range of `address =`.

#![allow(clippy::unwrap_used)]

use trapline_rpn::{AnySymbol, Watch, Width, parse};

fn program(statements: &str) -> String {
    format!("name = vmlinux\nmodtype = kernel\n{statements}\npush 1\nlog 1\nexit\n")
}

#[test]
fn every_kind_of_watchpoint_keeps_its_range_and_prints_back() {
    for (word, watch) in
        [("x", Watch::Execute), ("w", Watch::Write), ("RW", Watch::ReadWrite), ("io", Watch::Io)]
    {
        let text = program(&format!("address = 0x1000:0x1003\nwatchpoint = {word}"));
        let parsed = parse("watch.rpn", &text).unwrap();
        let again = parse("again.rpn", &parsed.to_source()).unwrap();
        for program in [&parsed, &again] {
            let linked = program.link(Width::W32, &AnySymbol).unwrap();
            let probe = &linked.probes[0];
            assert_eq!(probe.watch, Some(watch));
            assert_eq!((probe.location.value, probe.location.end), (0x1000, Some(0x1003)));
        }
        assert_eq!(parsed.to_source(), again.to_source());
    }
}

#[test]
fn a_watchpoint_needs_an_address_but_no_opcode() {
    let error =
        |statements: &str| parse("watch.rpn", &program(statements)).unwrap_err().list[0].message.clone();
    assert_eq!(
        error("offset = main\nwatchpoint = w"),
        "a watchpoint needs an address: write `address =` instead of `offset =`"
    );
    assert_eq!(error("address = 1\nwatchpoint = y"), "`watchpoint =` takes `x`, `w`, `rw` or `io`");
    assert!(parse("watch.rpn", &program("address = 1\nwatchpoint = x\nopcode = 0x55")).is_ok());
}
