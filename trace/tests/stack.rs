//! Stack trace records as the printers show them, and data that is none.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use proptest::prelude::*;
use trapline_trace::{
    Frame, Header, HeaderItems, JsonSink, Kind, RecordView, Sink, StackError, StackRecord, StackTrace,
    TextSink,
};

fn sample() -> StackTrace {
    let outer =
        Frame { called: 9, returns: 3, entries: vec![1, 0xffff_fff0], locals: vec![7], globals: vec![] };
    let inner = Frame { called: 20, returns: 12, ..Frame::default() };
    let first = StackRecord { code: 0x20, handler: None, parm1: 0, parm2: 0, frames: vec![] };
    let second =
        StackRecord { code: 0x1_0001, handler: Some(5), parm1: 0xdead, parm2: 2, frames: vec![outer, inner] };
    StackTrace {
        name: "p.rpn".to_owned(),
        offset: 0x40f,
        program: 3,
        major: 1,
        minor: 2,
        records: vec![first, second],
    }
}

/// The layout of rpn.md, section 5, written by hand.
fn encode(trace: &StackTrace, width: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let word = |out: &mut Vec<u8>, value: u64| out.extend(&value.to_le_bytes()[..usize::from(width / 8)]);
    let prefix = |out: &mut Vec<u8>, token: u8, count: usize| {
        out.push(token);
        out.extend((count as u16).to_le_bytes());
    };
    prefix(&mut out, 1, trace.name.len());
    out.extend(trace.name.as_bytes());
    word(&mut out, trace.offset);
    for value in [trace.program, trace.major, trace.minor] {
        out.extend(value.to_le_bytes());
    }
    prefix(&mut out, 2, trace.records.len());
    for record in &trace.records {
        for value in [record.code, record.handler.unwrap_or(u64::MAX), record.parm1, record.parm2] {
            word(&mut out, value);
        }
        prefix(&mut out, 3, record.frames.len());
        for frame in &record.frames {
            word(&mut out, frame.called);
            word(&mut out, frame.returns);
            for (token, values) in [(4, &frame.entries), (5, &frame.locals), (6, &frame.globals)] {
                prefix(&mut out, token, values.len());
                values.iter().for_each(|value| word(&mut out, *value));
            }
        }
    }
    out
}

fn shown(data: &[u8]) -> String {
    let header =
        Header { kind: Kind::StackTrace, width: 32, major: 1, minor: 2, ip: 0x1000, ..Header::default() };
    let record = RecordView { header, name: b"", data };
    let mut text = TextSink::new(Vec::new(), HeaderItems::default());
    text.record(&record, &|_| None).unwrap();
    let mut json = JsonSink::new(Vec::new(), HeaderItems::default());
    json.record(&record, &|_| None).unwrap();
    String::from_utf8([text.into_inner(), json.into_inner()].concat()).unwrap()
}

#[test]
fn a_stack_trace_is_shown_with_its_exceptions_and_calls() {
    let whole = encode(&sample(), 32);
    let cut = &whole[..whole.len() - 1];
    insta::assert_snapshot!(format!("{}\n{}\n{}", shown(&whole), shown(cut), shown(b"")));
}

#[test]
fn it_is_read_at_both_widths() {
    for width in [32, 64] {
        let bytes = encode(&sample(), width);
        assert_eq!(StackTrace::decode(&bytes, width).unwrap(), sample());
        for end in 0..bytes.len() {
            assert!(matches!(StackTrace::decode(&bytes[..end], width), Err(StackError::Short(_))), "{end}");
        }
        let more = [bytes.as_slice(), &[0]].concat();
        assert_eq!(StackTrace::decode(&more, width), Err(StackError::Trailing { at: bytes.len() }));
        let mut other = bytes.clone();
        other[0] = 7;
        let error = StackTrace::decode(&other, width).unwrap_err();
        assert_eq!(error.to_string(), "the token at byte 0 is 0x07; 0x01 would be right");
    }
}

proptest! {
    #[test]
    fn any_data_is_shown(data in proptest::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..200)) {
        prop_assert!(!shown(&data).is_empty());
    }
}
