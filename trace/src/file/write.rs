//! Writing trace files.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::names::Name;
use super::{FileHead, HASH, MAX_RECORD, VERSION, checksum, control};
use crate::guest_stack::GuestStack;
use crate::layout::Layout;
use crate::names::{ProbeName, Symbolize};
use crate::record::{Header, HeaderItems, Kind, RecordView};
use crate::sink::Shown;
use crate::sink::{End, Reply, RunInfo, Sink};

/// Writes a trace file.
pub struct RawSink<W> {
    out: W,
    head: FileHead,
    /// Symbols as the file has them, by address.
    symbols: BTreeMap<u64, String>,
    /// Symbols of frames as the file has them, by kind, module and address.
    frames: BTreeMap<(Kind, String, u64), Option<(String, u64)>>,
    /// Probes as the file has them, by number.
    probes: BTreeMap<u32, (u32, ProbeName)>,
    /// Layouts as the file has them, by the number of the probe.
    layouts: BTreeMap<u32, Arc<Layout>>,
    /// Records written; control records do not count.
    records: u64,
    buffer: Vec<u8>,
    /// The hash of all bytes written.
    hash: Xxh3,
    /// The last checksum.
    check: u32,
}

impl<W: Write> RawSink<W> {
    /// A sink for records of which printed forms show `items`.
    pub fn new(out: W, items: HeaderItems) -> Self {
        Self {
            out,
            head: FileHead { version: VERSION, width: 32, items },
            symbols: BTreeMap::new(),
            frames: BTreeMap::new(),
            probes: BTreeMap::new(),
            layouts: BTreeMap::new(),
            records: 0,
            buffer: Vec::new(),
            hash: Xxh3::new(),
            check: 0,
        }
    }

    /// The destination.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn control(&mut self, data: &[u8]) -> io::Result<()> {
        self.encode_control(data);
        self.write()
    }

    fn encode_control(&mut self, data: &[u8]) {
        let header = Header { kind: Kind::Control, width: self.head.width, ..Header::default() };
        self.buffer.clear();
        RecordView { header, name: b"", watch: None, data }.encode(HeaderItems::empty(), &mut self.buffer);
    }

    /// Writes the names that a record refers to and that the file does not hold yet.
    fn name(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let ip = record.header.ip;
        // Two programs may have code at one address.
        if let Some(name) = symbols.symbol(ip, record.header.probe)
            && self.symbols.get(&ip) != Some(&name)
        {
            self.control(&control::name(&Name::Symbol { ip, name: name.clone() }))?;
            self.symbols.insert(ip, name);
        }
        let number = record.header.probe;
        if let Some(probe) = symbols.probe(number)
            && self.probes.get(&number).is_none_or(|(id, name)| (*id, name) != (probe.id, probe.name))
        {
            let (id, name) = (probe.id, probe.name.clone());
            self.control(&control::name(&Name::Probe { number, id, name: name.clone() }))?;
            self.probes.insert(number, (id, name));
        }
        let same = |own: &Arc<Layout>, other: &Arc<Layout>| Arc::ptr_eq(own, other) || own == other;
        if let Some(layout) = symbols.layout(number).filter(|_| record.header.kind == Kind::Data)
            && !self.layouts.get(&number).is_some_and(|known| same(known, layout))
        {
            self.control(&control::name(&Name::Layout { number, layout: Arc::clone(layout) }))?;
            self.layouts.insert(number, Arc::clone(layout));
        }
        if record.header.kind.is_guest_stack() { self.name_frames(record, symbols) } else { Ok(()) }
    }

    /// Modules come and go, so the symbols of a stack are asked for each time, and written when they have changed.
    fn name_frames(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        let (kind, width) = (record.header.kind, record.header.width);
        let Ok(stack) = GuestStack::decode(record.data, width) else { return Ok(()) };
        for (module, address) in stack.frames.iter().filter_map(|frame| stack.place(*frame, width)) {
            let found = symbols.frame(kind, &module.name, address);
            let key = (kind, module.name.clone(), address);
            let written = self.frames.get(&key).cloned().flatten();
            if written == found {
                continue;
            }
            let (name, offset) = found.clone().unwrap_or_default();
            let module = module.name.clone();
            self.control(&control::name(&Name::Frame { kind, module, address, name, offset }))?;
            self.frames.insert(key, found);
        }
        Ok(())
    }

    /// Writes the record in the buffer and its checksum.
    fn write(&mut self) -> io::Result<()> {
        if self.buffer.len() as u64 - 4 > u64::from(MAX_RECORD) {
            return Err(io::Error::other(format!("a record has {} bytes", self.buffer.len())));
        }
        self.check = checksum(&self.buffer, self.check);
        self.buffer.extend_from_slice(&self.check.to_le_bytes());
        self.hash.update(&self.buffer);
        self.out.write_all(&self.buffer)
    }
}

impl<W: Write> Sink for RawSink<W> {
    fn begin(&mut self, run: &RunInfo) -> io::Result<()> {
        self.head.width = run.width;
        let head = self.head.encode();
        self.hash.update(&head);
        self.check = checksum(&head, 0);
        self.out.write_all(&head)?;
        self.control(&control::begin(run))
    }

    fn record(&mut self, record: &RecordView<'_>, symbols: &dyn Symbolize) -> io::Result<()> {
        self.name(record, symbols)?;
        self.records += 1;
        self.buffer.clear();
        record.encode_whole(self.head.items, &mut self.buffer);
        self.write()
    }

    fn d(&mut self, shown: &Shown) -> io::Result<()> {
        self.control(&control::d(shown))
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        self.control(&control::reply(reply))
    }

    fn end(&mut self, end: &End) -> io::Result<()> {
        self.encode_control(&control::end(end, self.records));
        let before = self.buffer.len() - HASH;
        let (before, last) = self.buffer.split_at_mut(before);
        self.hash.update(before);
        last.copy_from_slice(&self.hash.digest().to_le_bytes());
        self.write()?;
        self.out.flush()
    }
}
