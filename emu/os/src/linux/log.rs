//! The log of a Linux kernel (`struct printk_ringbuffer` of 5.10 and later), by the offsets that the kernel's description of
//! itself gives (kernel/printk/printk.c, `log_buf_vmcoreinfo_setup`).
//!
//! The ring of descriptors has one per record, in the order of their identifiers; each has a state and the place of its text
//! in a ring of bytes. Records that are being written are left out. All sizes come from the guest, so they are checked.

use std::fmt::Write as _;

use crate::profile::LogError;

/// Most records and bytes of text: a ring of 2^22 records, and of 2^28 bytes.
const MOST_RECORD_BITS: u64 = 22;
const MOST_TEXT_BITS: u64 = 28;
/// Most records one after the other that a dump may lack.
const MOST_ABSENT: u32 = 4096;
/// States of a descriptor, in its two highest bits: written, and final.
const COMMITTED: u64 = 1;
const FINALIZED: u64 = 2;

/// Fills bytes from a virtual address of the kernel; false if one cannot be read.
type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// The kernel's description, and its memory.
struct Log<'a> {
    lines: &'a str,
    wide: bool,
    read: Read<'a>,
}

impl Log<'_> {
    fn line(&self, name: &str) -> Option<&str> {
        let mut lines = self.lines.lines().filter_map(|line| line.split_once('='));
        lines.find_map(|(key, value)| (key == name).then_some(value.trim()))
    }

    /// A number of the description: symbols are hexadecimal.
    fn field(&self, name: &str) -> Result<u64, LogError> {
        let parsed = self.line(name).and_then(|value| match name.starts_with("SYMBOL") {
            true => u64::from_str_radix(value, 16).ok(),
            false => value.parse().ok(),
        });
        parsed.ok_or_else(|| LogError::NoField(name.to_owned()))
    }

    fn offset(&self, member: &str) -> Result<u64, LogError> {
        self.field(&format!("OFFSET({member})"))
    }

    fn int(&self, va: u64, size: usize) -> Result<u64, LogError> {
        let mut bytes = [0; 8];
        let read = bytes.get_mut(..size).is_some_and(|part| (self.read)(va, part));
        if read { Ok(u64::from_le_bytes(bytes)) } else { Err(LogError::Unreadable(va)) }
    }

    fn word_size(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    fn word(&self, va: u64) -> Result<u64, LogError> {
        self.int(va, self.word_size())
    }

    /// The bits of an identifier: those of a word without the state.
    fn ids(&self) -> u64 {
        if self.wide { u64::MAX >> 2 } else { u64::from(u32::MAX >> 2) }
    }

    /// A power of 2 that is the size of something.
    fn bits(&self, va: u64, what: &'static str, most: u64) -> Result<u64, LogError> {
        let bits = self.int(va, 4)?;
        if (1..=most).contains(&bits) { Ok(bits) } else { Err(LogError::Damaged { what, bits }) }
    }
}

/// Where a log has its parts.
struct Parts {
    /// Descriptors and further data of the records, with their sizes, and their number.
    descs: (u64, u64),
    infos: (u64, u64),
    count: u64,
    /// Identifiers of the oldest and the newest record.
    ids: (u64, u64),
    /// The texts: address and size.
    text: (u64, u64),
    /// In a descriptor: the state, and the text's begin and end.
    state: u64,
    begin: u64,
    next: u64,
    /// In the further data.
    time: u64,
    length: u64,
}

impl Parts {
    fn find(log: &Log<'_>) -> Result<Self, LogError> {
        let ring = log.word(log.field("SYMBOL(prb)")?)?;
        let member = |of: u64, name: &str| Ok(of.wrapping_add(log.offset(name)?));
        let records = member(ring, "printk_ringbuffer.desc_ring")?;
        let texts = member(ring, "printk_ringbuffer.text_data_ring")?;
        let counter = log.offset("atomic_long_t.counter")?;
        let bits = member(records, "prb_desc_ring.count_bits")?;
        let bits = log.bits(bits, "number of records", MOST_RECORD_BITS)?;
        let text_bits = member(texts, "prb_data_ring.size_bits")?;
        let text_bits = log.bits(text_bits, "text in bytes", MOST_TEXT_BITS)?;
        let id = |name: &str| log.word(member(records, name)?.wrapping_add(counter));
        let place = log.offset("prb_desc.text_blk_lpos")?;
        Ok(Self {
            descs: (log.word(member(records, "prb_desc_ring.descs")?)?, log.field("SIZE(prb_desc)")?),
            infos: (log.word(member(records, "prb_desc_ring.infos")?)?, log.field("SIZE(printk_info)")?),
            count: 1 << bits,
            ids: (id("prb_desc_ring.tail_id")?, id("prb_desc_ring.head_id")?),
            text: (log.word(member(texts, "prb_data_ring.data")?)?, 1 << text_bits),
            state: member(counter, "prb_desc.state_var")?,
            begin: member(place, "prb_data_blk_lpos.begin")?,
            next: member(place, "prb_data_blk_lpos.next")?,
            time: log.offset("printk_info.ts_nsec")?,
            length: log.offset("printk_info.text_len")?,
        })
    }

    /// The record with this identifier: its time, and where its text is. `None` if it is not complete, or not there.
    fn record(&self, log: &Log<'_>, id: u64) -> Result<Option<(u64, u64, u64)>, LogError> {
        let n = id % self.count;
        let at = |(base, size): (u64, u64), offset: u64| {
            base.wrapping_add(n.wrapping_mul(size)).wrapping_add(offset)
        };
        let state = log.word(at(self.descs, self.state))?;
        let kind = state >> (8 * log.word_size() - 2) & 3;
        if state & log.ids() != id || (kind != COMMITTED && kind != FINALIZED) {
            return Ok(None);
        }
        let (begin, next) = (log.word(at(self.descs, self.begin))?, log.word(at(self.descs, self.next))?);
        let length = log.int(at(self.infos, self.length), 2)?;
        let (from, length) = piece(self.text.1, (begin, next), length, log.word_size() as u64);
        Ok(Some((log.int(at(self.infos, self.time), 8)?, self.text.0.wrapping_add(from), length)))
    }
}

/// The log as lines of text, each with its time, as dmesg shows them. Records that a dump lacks are left out.
///
/// # Errors
/// See [`LogError`].
pub fn read(vmcoreinfo: &[u8], wide: bool, read: Read<'_>) -> Result<Vec<u8>, LogError> {
    let lines = String::from_utf8_lossy(vmcoreinfo);
    let log = Log { lines: &lines, wide, read };
    let parts = Parts::find(&log)?;
    let (mut at, head) = (parts.ids.0 & log.ids(), parts.ids.1 & log.ids());
    let (mut found, mut absent, mut bytes) = (Vec::new(), 0, 0);
    for _ in 0..parts.count {
        match parts.record(&log, at) {
            Ok(Some((time, place, length))) => {
                absent = 0;
                bytes += length;
                let mut text = vec![0; length as usize];
                if !(log.read)(place, &mut text) {
                    text.clear();
                }
                record(time, &text, &mut found);
            }
            Ok(None) => {}
            Err(_) => absent += 1,
        }
        // The texts do not overlap, so there are not more of them than fit.
        if at == head || absent > MOST_ABSENT || bytes > parts.text.1 {
            break;
        }
        at = at.wrapping_add(1) & log.ids();
    }
    Ok(found)
}

/// Where in the ring of texts that of a record begins, and its length: after an identifier, and never around the end.
fn piece(size: u64, (begin, next): (u64, u64), length: u64, word: u64) -> (u64, u64) {
    // The lowest bit says that there is no text.
    if begin & 1 != 0 || begin == next {
        return (0, 0);
    }
    let (mut from, to) = (begin % size, next % size);
    let to = if to == 0 { size } else { to };
    // A record that would cross the end is at the beginning.
    if from > to {
        from = 0;
    }
    let from = (from + word).min(to);
    (from, length.min(to - from))
}

/// A record as dmesg shows it: further lines are indented, and other bytes than text are escaped.
fn record(time: u64, text: &[u8], to: &mut Vec<u8>) {
    let mut line = format!("[{:5}.{:06}] ", time / 1_000_000_000, time % 1_000_000_000 / 1000);
    let indent = line.len();
    for byte in text {
        // Writing to a string cannot fail.
        let _ = match byte {
            b'\n' => write!(line, "\n{:indent$}", ""),
            b' '..=b'~' | b'\t' | 0x0b | 0x0c | b'\r' => write!(line, "{}", char::from(*byte)),
            other => write!(line, "\\x{other:02x}"),
        };
    }
    to.extend(line.into_bytes());
    to.push(b'\n');
}
