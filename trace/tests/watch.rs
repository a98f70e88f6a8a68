//! The item of a watch hit: encoded, in text and in JSON.

#![allow(clippy::unwrap_used)]

use trapline_trace::{
    Accessed, ChannelConfig, Channels, Header, HeaderItems, HexStyle, JsonSink, Record, RecordView, Sink,
    Symbolize, TextSink, WatchItem, hex,
};

struct NoSymbols;

impl Symbolize for NoSymbols {
    fn symbol(&self, _: u64, _: u32) -> Option<String> {
        None
    }
}

fn value(n: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    bytes
}

fn item() -> WatchItem {
    WatchItem {
        access: Accessed::Write,
        address: 0xc010_5000,
        size: 4,
        old: value(1000),
        new: value(999),
        len: 4,
    }
}

fn record(watch: WatchItem) -> Record {
    let header = Header { seq: 1, width: 32, major: 7, minor: 1, ip: 0xc010_0c61, ..Header::default() };
    Record { header, name: Vec::new(), watch: Some(watch), data: vec![0xe7, 3, 0, 0] }
}

fn text(watch: WatchItem) -> String {
    let mut sink = TextSink::new(Vec::new(), HeaderItems::default());
    sink.record(&record(watch).view(), &NoSymbols).unwrap();
    String::from_utf8(sink.into_inner()).unwrap()
}

fn json(watch: WatchItem) -> serde_json::Value {
    let mut sink = JsonSink::new(Vec::new(), HeaderItems::default());
    sink.record(&record(watch).view(), &NoSymbols).unwrap();
    serde_json::from_slice::<serde_json::Value>(&sink.into_inner()).unwrap()["watch"].clone()
}

#[test]
fn the_item_follows_those_of_the_paper_and_has_the_next_flag() {
    let mut bytes = Vec::new();
    record(item()).view().encode(HeaderItems::default(), &mut bytes);
    // flags, major, minor; access, length, size, address, old, new; data
    let expected =
        "03080000 07000000 01000000 02 04 0400 005010c0 e8030000 e7030000 e7030000".replace(' ', "");
    assert_eq!(hex(&bytes[24..], HexStyle::Pairs), expected);
    let (decoded, items, used) = Record::decode(&bytes).unwrap();
    assert_eq!((decoded.watch, items, used), (Some(item()), HeaderItems::default(), bytes.len()));
}

#[test]
fn every_kind_of_access_has_its_words() {
    assert_eq!(
        text(item()),
        "DProbes(7,1) watch=w addr=c0105000 size=4 old=000003e8 new=000003e7 e7030000\n"
    );
    let execution =
        WatchItem { access: Accessed::Execute, address: 0xc010_0c61, size: 1, ..WatchItem::default() };
    assert_eq!(text(execution), "DProbes(7,1) watch=x addr=c0100c61 size=1 e7030000\n");
    let port = WatchItem {
        access: Accessed::Out,
        address: 0x3f8,
        size: 1,
        old: value(0x61),
        new: value(0x61),
        len: 1,
    };
    assert_eq!(text(port), "DProbes(7,1) watch=out port=3f8 size=1 value=61 e7030000\n");
    assert_eq!(
        json(item()),
        serde_json::json!({"access": "w", "address": "0xc0105000", "size": 4, "old": "0x000003e8", "new": "0x000003e7"})
    );
    assert_eq!(json(execution), serde_json::json!({"access": "x", "address": "0xc0100c61", "size": 1}));
    assert_eq!(json(port), serde_json::json!({"access": "out", "port": "0x3f8", "size": 1, "value": "0x61"}));
}

#[test]
fn a_channel_keeps_the_item() {
    let mut channels = Channels::new(1, ChannelConfig::fixed(2000, 2));
    let with = RecordView { header: Header::default(), name: b"appln", watch: Some(&item()), data: b"ab" };
    channels.commit(&with);
    channels.commit(&RecordView { watch: None, ..with });
    let seen: Vec<_> = channels.records().into_iter().map(|r| (r.name, r.watch, r.data)).collect();
    let (name, data) = (b"appln".to_vec(), b"ab".to_vec());
    assert_eq!(seen, [(name.clone(), Some(item()), data.clone()), (name, None, data)]);
}

#[test]
fn bytes_that_are_no_item_are_refused() {
    let mut bytes = Vec::new();
    record(item()).view().encode(HeaderItems::default(), &mut bytes);
    bytes[36] = 6;
    assert_eq!(
        Record::decode(&bytes).unwrap_err().to_string(),
        "the record's watched access is 6, which is not a valid value"
    );
    (bytes[36], bytes[37]) = (2, 17);
    assert_eq!(
        Record::decode(&bytes).unwrap_err().to_string(),
        "the record's watched length is 17, which is not a valid value"
    );
}
