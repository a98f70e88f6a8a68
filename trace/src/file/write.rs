//! Writing trace files.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::{Control, FileHead, HASH, MAX_RECORD};
use crate::guest_stack::GuestStack;
use crate::record::{Header, HeaderItems, Kind, RecordView};
use crate::sink::{End, Reply, RunInfo, Sink, Symbolize};

/// Writes a trace file.
pub struct RawSink<W> {
    out: W,
    head: FileHead,
    /// Addresses whose symbol was asked for.
    named: BTreeSet<u64>,
    /// Kinds, modules and addresses of frames whose symbol was asked for.
    frames: BTreeSet<(Kind, String, u64)>,
    /// Records written, control records not counted.
    records: u64,
    buffer: Vec<u8>,
    /// Of all bytes written.
    hash: Xxh3,
}

impl<W: Write> RawSink<W> {
    /// A sink whose records have the chosen items, and the instruction pointer.
    pub fn new(out: W, items: HeaderItems) -> Self {
        let head = FileHead { width: 32, items };
        Self {
            out,
            head,
            named: BTreeSet::new(),
            frames: BTreeSet::new(),
            records: 0,
            buffer: Vec::new(),
            hash: Xxh3::new(),
        }
    }

    /// The destination.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn control(&mut self, control: Control, data: &[&[u8]]) -> io::Result<()> {
        self.encode_control(control, data);
        self.write()
    }

    fn encode_control(&mut self, control: Control, data: &[&[u8]]) {
        let header = Header { kind: Kind::Control, width: self.head.width, ..Header::default() };
        let data = [&[control as u8], data.concat().as_slice()].concat();
        self.buffer.clear();
        RecordView { header, name: b"", watch: None, data: &data }
            .encode(HeaderItems::empty(), &mut self.buffer);
    }

    /// Names the frames of a stack that were not named yet.
    fn name_frames(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let (kind, width) = (record.header.kind, record.header.width);
        let Some(stack) = GuestStack::decode(record.data, width).ok().filter(|_| kind.is_guest_stack())
        else {
            return Ok(());
        };
        for (module, address) in stack.frames.iter().filter_map(|frame| stack.place(*frame, width)) {
            let name = &module.name;
            if self.frames.insert((kind, name.clone(), address))
                && let Some((symbol, offset)) = symbols.frame(kind, name, address)
            {
                let length = (name.len() as u16).to_le_bytes();
                let place = [&[kind as u8][..], &address.to_le_bytes(), &length, name.as_bytes()].concat();
                self.control(Control::Frame, &[&place, &offset.to_le_bytes(), symbol.as_bytes()])?;
            }
        }
        Ok(())
    }

    /// Writes the record in the buffer.
    fn write(&mut self) -> io::Result<()> {
        if self.buffer.len() as u64 - 4 > u64::from(MAX_RECORD) {
            return Err(io::Error::other(format!("a record has {} bytes", self.buffer.len())));
        }
        self.hash.update(&self.buffer);
        self.out.write_all(&self.buffer)
    }
}

fn object(fields: &[(String, Value)]) -> Map<String, Value> {
    fields.iter().cloned().collect()
}

impl<W: Write> Sink for RawSink<W> {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        self.head.width = run.width;
        let head = self.head.encode();
        self.hash.update(&head);
        self.out.write_all(&head)?;
        let mut fields = object(&[("image".to_owned(), json!(run.image))]);
        fields.extend(run.extra.iter().cloned());
        self.control(Control::Begin, &[Value::Object(fields).to_string().as_bytes()])
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let ip = record.header.ip;
        if self.named.insert(ip)
            && let Some(symbol) = symbols.symbol(ip)
        {
            self.control(Control::Symbol, &[&ip.to_le_bytes(), symbol.as_bytes()])?;
        }
        self.name_frames(record, symbols)?;
        self.records += 1;
        self.buffer.clear();
        record.encode_whole(self.head.items | HeaderItems::EIP, &mut self.buffer);
        self.write()
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        let fields = json!({"lines": reply.lines, "object": reply.object});
        self.control(Control::Reply, &[fields.to_string().as_bytes()])
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        let c = end.counts;
        let counts = [self.records, c.committed, c.overwritten, c.oversized, end.insns, end.hits, end.lost]
            .map(u64::to_le_bytes);
        let fields = json!({"digest": end.digest, "extra": object(&end.extra)});
        let exit = end.exit.to_le_bytes();
        let json = fields.to_string();
        self.encode_control(Control::End, &[counts.as_flattened(), &exit, json.as_bytes(), &[0; HASH]]);
        let before = self.buffer.len() - HASH;
        let (before, last) = self.buffer.split_at_mut(before);
        self.hash.update(before);
        last.copy_from_slice(&self.hash.digest().to_le_bytes());
        self.write()?;
        self.out.flush()
    }
}
