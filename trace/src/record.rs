//! Trace records: the envelope and header of docs/records.md, "Bytes", to bytes and back.
//!
//! A [`Record`] holds everything that is known about a hit; which header items appear in its
//! encoded or printed form is the user's choice for the run ([`HeaderItems`]).
//! It does not interpret the data.

use std::fmt;
use std::str::FromStr;

use bitflags::bitflags;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bytes::{DecodeError, Reader};
use crate::watch::{WATCH_FLAG, WatchItem};

bitflags! {
    /// Header items, with the flag values of the paper (section 5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct HeaderItems: u32 {
        /// Major code, u32.
        const MAJOR = 0x0001;
        /// Minor code, u32.
        const MINOR = 0x0002;
        /// Processor number, u32.
        const CPU = 0x0004;
        /// Process id, u32.
        const PID = 0x0008;
        /// User id, u32.
        const UID = 0x0010;
        /// CS selector, u32.
        const CS = 0x0020;
        /// Instruction pointer, of the guest's word.
        const EIP = 0x0040;
        /// SS selector, u32.
        const SS = 0x0080;
        /// Stack pointer, of the guest's word.
        const ESP = 0x0100;
        /// Virtual time-stamp counter, u64.
        const TSC = 0x0200;
        /// Process name, NUL-terminated.
        const NAME = 0x0400;
    }
}

impl Default for HeaderItems {
    /// Major and minor code, which every record has.
    fn default() -> Self {
        Self::MAJOR | Self::MINOR
    }
}

/// The words of `--header` and their items.
const ITEMS: &[(&str, HeaderItems)] = &[
    ("major", HeaderItems::MAJOR),
    ("minor", HeaderItems::MINOR),
    ("cpu", HeaderItems::CPU),
    ("pid", HeaderItems::PID),
    ("uid", HeaderItems::UID),
    ("cs", HeaderItems::CS),
    ("eip", HeaderItems::EIP),
    ("rip", HeaderItems::EIP),
    ("ip", HeaderItems::EIP),
    ("ss", HeaderItems::SS),
    ("esp", HeaderItems::ESP),
    ("rsp", HeaderItems::ESP),
    ("sp", HeaderItems::ESP),
    ("tsc", HeaderItems::TSC),
    ("name", HeaderItems::NAME),
];

/// A word of `--header` that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseItemsError {
    /// It names no item.
    #[error("unknown header item `{0}`: the items are cpu, name, pid, uid, cs, eip, ss, esp, tsc, all, none")]
    Unknown(String),
    /// It stands for all items or none, and there are others.
    #[error("the header item `{0}` goes with no other item; give it alone")]
    NotAlone(String),
    /// Its item was named before.
    #[error("the header item `{0}` was named before; name each item once")]
    Twice(String),
}

impl FromStr for HeaderItems {
    type Err = ParseItemsError;

    /// Parses `pid,uid,tsc`, `all` or `none`. `cs` does not include eip, and `ss` does not include esp. Major and minor
    /// code are always included.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut items = Self::empty();
        let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        for word in &words {
            let low = word.to_ascii_lowercase();
            let known = ITEMS.iter().find(|(name, _)| *name == low).map(|(_, item)| *item);
            let more = match low.as_str() {
                "all" | "none" if words.len() > 1 => {
                    return Err(ParseItemsError::NotAlone((*word).to_owned()));
                }
                "all" => Self::all(),
                "none" => Self::empty(),
                _ => known.ok_or_else(|| ParseItemsError::Unknown((*word).to_owned()))?,
            };
            if !more.is_empty() && items.contains(more) {
                return Err(ParseItemsError::Twice((*word).to_owned()));
            }
            items |= more;
        }
        Ok(Self::default() | items)
    }
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    /// The data that a probe handler logged.
    #[default]
    Data = 0,
    /// A stack trace of the RPN program.
    StackTrace = 1,
    /// A message of Trapline itself.
    Control = 2,
    /// The kernel's stack at a hit, a [`GuestStack`](crate::GuestStack).
    KernelStack = 3,
    /// The program's stack at a hit, likewise.
    UserStack = 4,
}

impl Kind {
    /// Whether it is a stack of the guest.
    #[must_use]
    pub const fn is_guest_stack(self) -> bool {
        matches!(self, Self::KernelStack | Self::UserStack)
    }

    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Data),
            1 => Some(Self::StackTrace),
            2 => Some(Self::Control),
            3 => Some(Self::KernelStack),
            4 => Some(Self::UserStack),
            _ => None,
        }
    }
}

/// The fixed part of a record, without its data and process name: plain values, cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Header {
    /// Sequence number, counted from 1 over all CPUs; assigned at commit.
    pub seq: u64,
    /// Instructions retired when the record was committed.
    pub icount: u64,
    /// Virtual time in nanoseconds.
    pub time_ns: u64,
    /// Number of the probe, as the caller counts them; not in the encoded form.
    pub probe: u32,
    /// Its kind.
    pub kind: Kind,
    /// Width of the guest's word in bits, 32 or 64.
    pub width: u8,
    /// 0 for an exit, else the exception's x-field.
    pub termination: u16,
    /// Major code.
    pub major: u32,
    /// Minor code.
    pub minor: u32,
    /// Processor.
    pub cpu: u32,
    /// Process id.
    pub pid: u32,
    /// For a probe of a process, the number of the process, else 0; not in the encoded form.
    pub process: u32,
    /// The process of the task that hit the probe, if the record says which task that was and the system is known. A trace
    /// file has it in the place of `process`.
    pub tgid: Option<u32>,
    /// User id.
    pub uid: u32,
    /// CS selector.
    pub cs: u32,
    /// SS selector.
    pub ss: u32,
    /// Instruction pointer at the probe point.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Virtual time-stamp counter.
    pub tsc: u64,
    /// The exception that ended the handler; not in the encoded form, which has only its x-field.
    pub exception: Option<Exception>,
}

/// An exception that ended a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Exception {
    /// The code: u-field in bits 31..16, x-field in 15..0.
    pub code: u64,
    /// First parameter.
    pub parm1: u64,
    /// Second parameter.
    pub parm2: u64,
    /// Line of the probe program, 0 when not known.
    pub line: u32,
}

/// A record that borrows its data and name, as it is committed and as a channel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// The fixed part.
    pub header: Header,
    /// Process name, without NUL; empty when not known.
    pub name: &'a [u8],
    /// What a watch hit saw; `None` for all other records.
    pub watch: Option<&'a WatchItem>,
    /// The logged data.
    pub data: &'a [u8],
}

/// A record that owns its data and name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Record {
    /// The fixed part.
    pub header: Header,
    /// Process name, without NUL; empty when not known.
    pub name: Vec<u8>,
    /// What a watch hit saw; `None` for all other records.
    pub watch: Option<WatchItem>,
    /// The logged data.
    pub data: Vec<u8>,
}

/// Bytes of the envelope after the length: sequence, time, kind, width, termination.
const ENVELOPE: usize = 8 + 8 + 1 + 1 + 2;

/// Flags beyond the paper's that trace files use. The items follow the process name. This one: the instruction count.
const ICOUNT: u32 = 0x0001_0000;
/// Code, parameters and line of the exception that ended the handler.
const EXCEPTION: u32 = 0x0002_0000;
/// Numbers of the probe and of the process.
const PROBE: u32 = 0x0004_0000;

impl Record {
    /// The record as a view.
    #[must_use]
    pub fn view(&self) -> RecordView<'_> {
        RecordView { header: self.header, name: &self.name, watch: self.watch.as_ref(), data: &self.data }
    }

    /// Decodes the first record of `bytes`; returns it, its items, and its size. Items that are not in the encoded form
    /// are 0 or empty.
    ///
    /// # Errors
    /// The bytes are cut short, or hold an impossible value.
    pub fn decode(bytes: &[u8]) -> Result<(Self, HeaderItems, usize), DecodeError> {
        let mut outer = Reader { bytes, at: 0 };
        let length = outer.u32()? as usize;
        let end = 4usize.saturating_add(length);
        let body = bytes.get(..end).ok_or(DecodeError::Truncated { needed: end, have: bytes.len() })?;
        let mut r = Reader { bytes: body, at: 4 };
        let mut h = Header { seq: r.u64()?, time_ns: r.u64()?, ..Header::default() };
        let (kind, width) = (r.u8()?, r.u8()?);
        h.kind = Kind::from_byte(kind).ok_or(DecodeError::Field { field: "kind", value: kind.into() })?;
        if width != 32 && width != 64 {
            return Err(DecodeError::Field { field: "width", value: width.into() });
        }
        h.width = width;
        h.termination = r.u16()?;
        let flags = r.u32()?;
        let ours = flags & (ICOUNT | EXCEPTION | PROBE | WATCH_FLAG);
        let items = HeaderItems::from_bits(flags & !ours)
            .ok_or(DecodeError::Field { field: "flags", value: flags })?;
        let mut name = Vec::new();
        for item in items.iter() {
            match item {
                HeaderItems::MAJOR => h.major = r.u32()?,
                HeaderItems::MINOR => h.minor = r.u32()?,
                HeaderItems::CPU => h.cpu = r.u32()?,
                HeaderItems::PID => h.pid = r.u32()?,
                HeaderItems::UID => h.uid = r.u32()?,
                HeaderItems::CS => h.cs = r.u32()?,
                HeaderItems::EIP => h.ip = r.word(width)?,
                HeaderItems::SS => h.ss = r.u32()?,
                HeaderItems::ESP => h.sp = r.word(width)?,
                HeaderItems::TSC => h.tsc = r.u64()?,
                _ => name = r.string()?,
            }
        }
        let mut watch = None;
        if ours & WATCH_FLAG != 0 {
            let (item, taken) =
                WatchItem::decode(body.get(r.at..).unwrap_or_default(), usize::from(width / 8))?;
            r.at += taken;
            watch = Some(item);
        }
        if ours & ICOUNT != 0 {
            h.icount = r.u64()?;
        }
        if ours & EXCEPTION != 0 {
            let e = Exception { code: r.u64()?, parm1: r.u64()?, parm2: r.u64()?, line: r.u32()? };
            h.exception = Some(e);
        }
        if ours & PROBE != 0 {
            (h.probe, h.process) = (r.u32()?, r.u32()?);
        }
        let data = body.get(r.at..).unwrap_or_default().to_vec();
        Ok((Self { header: h, name, watch, data }, items, end))
    }
}

impl RecordView<'_> {
    /// A copy that owns its data and name.
    #[must_use]
    pub fn to_owned(&self) -> Record {
        Record {
            header: self.header,
            name: self.name.to_vec(),
            watch: self.watch.copied(),
            data: self.data.to_vec(),
        }
    }

    /// Appends the encoded record with the chosen items. All integers are little-endian.
    pub fn encode(&self, items: HeaderItems, out: &mut Vec<u8>) {
        self.encode_with(items, 0, out);
    }

    /// Appends the record in the form of a trace file: with everything that printed forms show beyond the chosen items.
    pub fn encode_whole(&self, items: HeaderItems, out: &mut Vec<u8>) {
        let exception = if self.header.exception.is_some() { EXCEPTION } else { 0 };
        let items = items | HeaderItems::CPU | HeaderItems::EIP;
        self.encode_with(items, ICOUNT | exception | PROBE, out);
    }

    fn encode_with(&self, items: HeaderItems, ours: u32, out: &mut Vec<u8>) {
        let start = out.len();
        let h = &self.header;
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&h.seq.to_le_bytes());
        out.extend_from_slice(&h.time_ns.to_le_bytes());
        out.push(h.kind as u8);
        out.push(h.width);
        out.extend_from_slice(&h.termination.to_le_bytes());
        let watch = if self.watch.is_some() { WATCH_FLAG } else { 0 };
        out.extend_from_slice(&(items.bits() | ours | watch).to_le_bytes());
        let word = if h.width == 64 { 8 } else { 4 };
        for item in items.iter() {
            match item {
                HeaderItems::MAJOR => out.extend_from_slice(&h.major.to_le_bytes()),
                HeaderItems::MINOR => out.extend_from_slice(&h.minor.to_le_bytes()),
                HeaderItems::CPU => out.extend_from_slice(&h.cpu.to_le_bytes()),
                HeaderItems::PID => out.extend_from_slice(&h.pid.to_le_bytes()),
                HeaderItems::UID => out.extend_from_slice(&h.uid.to_le_bytes()),
                HeaderItems::CS => out.extend_from_slice(&h.cs.to_le_bytes()),
                HeaderItems::EIP => out.extend_from_slice(&h.ip.to_le_bytes()[..word]),
                HeaderItems::SS => out.extend_from_slice(&h.ss.to_le_bytes()),
                HeaderItems::ESP => out.extend_from_slice(&h.sp.to_le_bytes()[..word]),
                HeaderItems::TSC => out.extend_from_slice(&h.tsc.to_le_bytes()),
                _ => {
                    // A NUL inside a name would end it early for every reader.
                    out.extend(self.name.iter().copied().take_while(|&b| b != 0));
                    out.push(0);
                }
            }
        }
        if let Some(watch) = &self.watch {
            watch.encode(word, out);
        }
        if ours & ICOUNT != 0 {
            out.extend_from_slice(&h.icount.to_le_bytes());
        }
        if let Some(e) = h.exception.filter(|_| ours & EXCEPTION != 0) {
            for value in [e.code, e.parm1, e.parm2] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.extend_from_slice(&e.line.to_le_bytes());
        }
        if ours & PROBE != 0 {
            out.extend_from_slice(&h.probe.to_le_bytes());
            let process = if h.process == 0 { h.tgid.unwrap_or(0) } else { h.process };
            out.extend_from_slice(&process.to_le_bytes());
        }
        out.extend_from_slice(self.data);
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl fmt::Display for HeaderItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for item in self.iter() {
            let name = ITEMS.iter().find(|(_, i)| *i == item).map_or("?", |(n, _)| n);
            write!(f, "{}{name}", if first { "" } else { "," })?;
            first = false;
        }
        Ok(())
    }
}

const _: () = assert!(ENVELOPE == 20, "the envelope has 20 bytes after its length");
const _: () = assert!(HeaderItems::all().bits() == 0x07ff, "the paper has eleven header items");
