//! Stack trace records: their bytes, invalid data, and how sinks show them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use proptest::prelude::*;
use trapline_trace::{
    DecodeError, Header, HeaderItems, HexStyle, JsonSink, Kind, RecordView, Sink, StackTrace, TextSink,
    TraceFrame, TraceHead, TraceRecord, hex,
};

fn head() -> TraceHead<'static> {
    TraceHead { module: b"vmlinux", offset: 0x1f91, id: 77, major: 3, minor: 1 }
}

/// One record of two frames as docs/records.md has it, in words of the width.
fn data(width: u8) -> Vec<u8> {
    let mut out = Vec::new();
    head().encode(width, 1, &mut out);
    let bytes = usize::from(width / 8);
    let words = |out: &mut Vec<u8>, list: &[u64]| {
        list.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()[..bytes]));
    };
    words(&mut out, &[0x20, 8, 0, 5]);
    out.extend_from_slice(&[3, 2, 0]);
    words(&mut out, &[11, 7]);
    out.extend_from_slice(&[4, 0, 0, 5, 2, 0]);
    words(&mut out, &[1, u64::MAX]);
    out.extend_from_slice(&[6, 0, 0]);
    words(&mut out, &[0, u64::MAX]);
    out.extend_from_slice(&[4, 1, 0]);
    words(&mut out, &[0x11]);
    out.extend_from_slice(&[5, 0, 0, 6, 1, 0]);
    words(&mut out, &[9]);
    out
}

fn decoded(width: u8) -> StackTrace {
    let ones = if width == 64 { u64::MAX } else { 0xffff_ffff };
    let callee = TraceFrame { called: 11, ret: 7, stack: vec![], lv: vec![1, ones], gv: vec![] };
    let handler = TraceFrame { called: 0, ret: ones, stack: vec![0x11], lv: vec![], gv: vec![9] };
    let record = TraceRecord { code: 0x20, handler: 8, parm1: 0, parm2: 5, frames: vec![callee, handler] };
    StackTrace {
        module: b"vmlinux".to_vec(),
        offset: 0x1f91,
        id: 77,
        major: 3,
        minor: 1,
        records: vec![record],
    }
}

#[test]
fn the_header_has_the_bytes_of_the_reference() {
    let mut narrow = Vec::new();
    head().encode(32, 2, &mut narrow);
    let expected = "010700766d6c696e7578911f00004d0000000300000001000000020200";
    assert_eq!(hex(&narrow, HexStyle::Pairs), expected);
    let mut wide = Vec::new();
    head().encode(64, 2, &mut wide);
    assert_eq!(hex(&wide, HexStyle::Pairs), expected.replace("911f0000", "911f000000000000"));
}

#[test]
fn both_widths_decode() {
    for width in [32, 64] {
        assert_eq!(StackTrace::decode(&data(width), width).unwrap(), decoded(width));
    }
}

#[test]
fn every_truncation_and_what_follows_are_errors() {
    for width in [32, 64] {
        let mut data = data(width);
        for end in 0..data.len() {
            let error = StackTrace::decode(&data[..end], width).unwrap_err();
            assert!(matches!(error, DecodeError::Truncated { .. }), "{end}: {error}");
        }
        data.push(0);
        let error = StackTrace::decode(&data, width).unwrap_err().to_string();
        assert_eq!(
            error,
            "the record's number of bytes after its stack trace is 1, which is not a valid value"
        );
        data[0] = 7;
        let error = StackTrace::decode(&data, width).unwrap_err().to_string();
        assert_eq!(error, "the record's module name's token is 7, which is not a valid value");
    }
}

#[test]
fn sinks_say_what_a_stack_trace_says() {
    let data = data(32);
    let header = Header { seq: 2, kind: Kind::StackTrace, width: 32, ip: 0x10, ..Header::default() };
    let view = RecordView { header, name: b"", watch: None, data: &data };
    let nothing = |_: u64| None;
    let mut text = TextSink::new(Vec::new(), HeaderItems::default());
    text.record(&view, &nothing).unwrap();
    let digits = hex(&data, HexStyle::Pairs);
    let lines = [
        "DProbes(0,0) stack trace",
        "  vmlinux+0x1f91 id 77 (3,1)",
        "  exception 0x20 (0x0, 0x5), caught at 8",
        "    procedure at 11, returns to 7",
        "      lv 0x1 0xffffffff",
        "    handler",
        "      stack 0x11",
        "      gv 0x9",
        "",
    ];
    assert_eq!(String::from_utf8(text.into_inner()).unwrap(), lines.join("\n"));
    let mut json = JsonSink::new(Vec::new(), HeaderItems::default());
    json.record(&view, &nothing).unwrap();
    json.record(&RecordView { data: &data[1..], ..view }, &nothing).unwrap();
    let expected = concat!(
        r#"{"type":"stack-trace","seq":2,"icount":0,"time_ns":0,"ip":"0x10","symbol":null,"major":0,"minor":0,"trace":"#,
        r#"{"module":"vmlinux","offset":"0x1f91","id":77,"major":3,"minor":1,"records":[{"code":"0x20","#,
        r#""handler":8,"parm1":"0x0","parm2":"0x5","frames":[{"called":11,"return":7,"stack":[],"#,
        r#""lv":["0x1","0xffffffff"],"gv":[]},{"called":0,"return":null,"stack":["0x11"],"lv":[],"#,
        r#""gv":["0x9"]}]}]},"data":"DATA"}"#
    );
    let out = String::from_utf8(json.into_inner()).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], expected.replace("DATA", &digits));
    // Data that is not a stack trace is shown as bytes alone.
    assert!(!lines[1].contains("\"trace\":") && lines[1].contains(&digits[2..]), "{}", lines[1]);
}

proptest! {
    #[test]
    fn decoding_anything_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), wide: bool) {
        let _ = StackTrace::decode(&bytes, if wide { 64 } else { 32 });
    }

    #[test]
    fn a_byte_that_is_changed_never_panics(at in 0usize..90, to: u8, wide: bool) {
        let width = if wide { 64 } else { 32 };
        let mut bytes = data(width);
        if let Some(byte) = bytes.get_mut(at) { *byte = to; }
        let _ = StackTrace::decode(&bytes, width);
    }
}
