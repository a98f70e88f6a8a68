//! A stream of events in a file: packets with their headers.
//!
//! The UUID and the counts of discarded events are known at the end only. They are filled in then.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// Identifies CTF.
const MAGIC: u32 = 0xc1fc_1fc1;
/// Where a packet's UUID, and its count of discarded events, lie in it.
const UUID_AT: u64 = 4;
const DISCARDED_AT: u64 = 4 + 16 + 4 + 4 * 8;
/// Bytes of a packet's header and context.
const HEAD: usize = DISCARDED_AT as usize + 8 + 8 + 4;
/// Bytes of events after which a packet ends.
const FULL: usize = 64 << 10;

/// The declarations of what [`Stream`] writes before the events.
pub(super) const HEADER: &str = "    packet.header := struct {
        integer { size = 32; align = 8; signed = false; base = 16; } magic;
        integer { size = 8; align = 8; signed = false; base = 16; } uuid[16];
        integer { size = 32; align = 8; signed = false; } stream_id;
    };
";

/// The declarations of a packet's context.
pub(super) const CONTEXT: &str = "    packet.context := struct {
        clock_t timestamp_begin;
        clock_t timestamp_end;
        integer { size = 64; align = 8; signed = false; } content_size;
        integer { size = 64; align = 8; signed = false; } packet_size;
        integer { size = 64; align = 8; signed = false; } events_discarded;
        integer { size = 64; align = 8; signed = false; } packet_seq_num;
        integer { size = 32; align = 8; signed = false; } cpu_id;
    };
    event.header := struct {
        integer { size = 32; align = 8; signed = false; } id;
        clock_t timestamp;
    };
";

/// The stream of a CPU.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    cpu: u32,
    /// The events of the packet that is not written yet.
    events: Vec<u8>,
    begin: u64,
    end: u64,
    /// Bytes written.
    written: u64,
    /// Where each packet begins, and how many records had been lost up to its end.
    packets: Vec<(u64, u64)>,
    /// Records lost so far.
    pub lost: u64,
}

impl Stream {
    pub fn create(folder: &Path, cpu: u32) -> io::Result<Self> {
        let file = File::create(folder.join(format!("stream_{cpu}")))?;
        let (events, packets) = (Vec::new(), Vec::new());
        let mut stream = Self { file, cpu, events, begin: 0, end: 0, written: 0, packets, lost: 0 };
        // An empty packet: readers count discarded events from one packet to the next.
        stream.packet()?;
        Ok(stream)
    }

    /// Adds an event of class `id`. A timestamp that is earlier than the last one becomes it; returns whether it was.
    pub fn event(&mut self, id: u32, time: u64, body: &[u8]) -> io::Result<bool> {
        let early = time < self.end;
        self.end = self.end.max(time);
        if self.events.is_empty() {
            self.begin = self.end;
        }
        self.events.extend_from_slice(&id.to_le_bytes());
        self.events.extend_from_slice(&self.end.to_le_bytes());
        self.events.extend_from_slice(body);
        if self.events.len() >= FULL {
            self.packet()?;
        }
        Ok(early)
    }

    /// Writes a packet.
    fn packet(&mut self) -> io::Result<()> {
        let bits = (HEAD + self.events.len()) as u64 * 8;
        let mut packet = Vec::with_capacity(HEAD + self.events.len());
        packet.extend_from_slice(&MAGIC.to_le_bytes());
        packet.extend_from_slice(&[0; 16]);
        packet.extend_from_slice(&0u32.to_le_bytes());
        for value in [self.begin, self.end, bits, bits, 0, self.packets.len() as u64] {
            packet.extend_from_slice(&value.to_le_bytes());
        }
        packet.extend_from_slice(&self.cpu.to_le_bytes());
        packet.append(&mut self.events);
        self.file.write_all(&packet)?;
        self.packets.push((self.written, self.lost));
        self.written += packet.len() as u64;
        self.begin = self.end;
        Ok(())
    }

    /// Writes the rest, and fills in what is known now. `most` limits the records lost in each packet; the last packet has
    /// `further` ones beside.
    pub fn finish(&mut self, uuid: [u8; 16], most: u64, further: u64) -> io::Result<()> {
        self.packet()?;
        let last = self.packets.len().saturating_sub(1);
        for (n, (at, lost)) in self.packets.iter().enumerate() {
            let lost = lost.min(&most) + if n == last { further } else { 0 };
            self.file.seek(SeekFrom::Start(at + UUID_AT))?;
            self.file.write_all(&uuid)?;
            self.file.seek(SeekFrom::Start(at + DISCARDED_AT))?;
            self.file.write_all(&lost.to_le_bytes())?;
        }
        self.file.flush()
    }
}
