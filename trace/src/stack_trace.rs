//! The data of a stack trace record, to bytes and back: header, records, call stack frames (man page, STACK TRACING;
//! docs/records.md, "Stack traces").
//!
//! All integers are little-endian, one word (W) wide unless their type says otherwise. The values are not interpreted.

use serde_json::{Value, json};

use crate::bytes::{DecodeError, Reader};
use crate::log_prefix::Token;
use crate::printable::Printable;
use crate::watch::WatchItem;

/// The header: the probe point whose handler was traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceHead<'a> {
    /// `name =` of the program.
    pub module: &'a [u8],
    /// The probe point's offset from the start of its module; the first address or port of a watchpoint.
    pub offset: u64,
    /// `id =` of the program.
    pub id: u32,
    /// Its major code.
    pub major: u32,
    /// The probe point's minor code.
    pub minor: u32,
}

impl TraceHead<'_> {
    /// Appends the header, and the prefix of `count` records that follow it. A name is cut at 65,535 bytes.
    pub fn encode(&self, width: u8, count: u16, out: &mut Vec<u8>) {
        let module = self.module.get(..usize::from(u16::MAX)).unwrap_or(self.module);
        out.push(Token::Text as u8);
        out.extend_from_slice(&(module.len() as u16).to_le_bytes());
        out.extend_from_slice(module);
        let word = if width == 64 { 8 } else { 4 };
        out.extend_from_slice(&self.offset.to_le_bytes()[..word]);
        for code in [self.id, self.major, self.minor] {
            out.extend_from_slice(&code.to_le_bytes());
        }
        out.push(Token::TraceRecords as u8);
        out.extend_from_slice(&count.to_le_bytes());
    }
}

/// A decoded stack trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackTrace {
    /// `name =` of the program.
    pub module: Vec<u8>,
    /// The probe point's offset from the start of its module; the first address or port of a watchpoint.
    pub offset: u64,
    /// `id =` of the program.
    pub id: u32,
    /// Its major code.
    pub major: u32,
    /// The probe point's minor code.
    pub minor: u32,
    /// In the order in which they were made.
    pub records: Vec<TraceRecord>,
}

/// The state of a handler at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRecord {
    /// Code of the last exception, or 0.
    pub code: u64,
    /// Instruction that it went to, or all ones.
    pub handler: u64,
    /// Its first parameter.
    pub parm1: u64,
    /// Its second parameter.
    pub parm2: u64,
    /// Call scopes, the innermost first; the last is the handler's own.
    pub frames: Vec<TraceFrame>,
}

/// A call scope. Addresses are instruction indices in the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFrame {
    /// Where its code begins: 0 for the handler.
    pub called: u64,
    /// Where it returns to; all ones for the handler.
    pub ret: u64,
    /// Entries of the RPN stack.
    pub stack: Vec<u64>,
    /// Local variables.
    pub lv: Vec<u64>,
    /// Global variables.
    pub gv: Vec<u64>,
}

impl StackTrace {
    /// Decodes the data of a stack trace record; nothing may follow it.
    ///
    /// # Errors
    /// The data is cut short, has the wrong token somewhere, or continues after its last record.
    pub fn decode(data: &[u8], width: u8) -> Result<Self, DecodeError> {
        let mut r = Reader { bytes: data, at: 0 };
        let length = prefix(&mut r, Token::Text, "module name's token")?;
        let module = r.bytes(length.into())?.to_vec();
        let offset = r.word(width)?;
        let (id, major, minor) = (r.u32()?, r.u32()?, r.u32()?);
        let count = prefix(&mut r, Token::TraceRecords, "token of stack trace records")?;
        let records = (0..count).map(|_| record(&mut r, width)).collect::<Result<_, _>>()?;
        if r.at < data.len() {
            let more = u32::try_from(data.len() - r.at).unwrap_or(u32::MAX);
            return Err(DecodeError::Field { field: "number of bytes after its stack trace", value: more });
        }
        Ok(Self { module, offset, id, major, minor, records })
    }

    /// As lines, each with a line end before it. Empty parts of a scope are left out. `watch` is that of the record.
    #[must_use]
    pub fn to_text(&self, width: u8, watch: Option<&WatchItem>) -> String {
        let none = if width == 64 { u64::MAX } else { u64::from(u32::MAX) };
        let Self { offset, id, major, minor, .. } = self;
        let module = Printable(&self.module);
        let place = match watched(watch) {
            Some(what) => format!("{module} {what} {offset:#x}"),
            None => format!("{module}+{offset:#x}"),
        };
        let mut out = format!("\n  {place} id {id} ({},{})", *major as i32, *minor as i32);
        for record in &self.records {
            let TraceRecord { code, parm1, parm2, handler, .. } = record;
            let caught = if *handler == none { String::new() } else { format!(", caught at {handler}") };
            out.push_str(&format!("\n  exception {code:#x} ({parm1:#x}, {parm2:#x}){caught}"));
            for frame in &record.frames {
                let TraceFrame { called, ret, .. } = frame;
                let scope = if *ret == none {
                    "handler".to_owned()
                } else {
                    format!("procedure at {called}, returns to {ret}")
                };
                out.push_str(&format!("\n    {scope}"));
                for (what, values) in [("stack", &frame.stack), ("lv", &frame.lv), ("gv", &frame.gv)] {
                    if !values.is_empty() {
                        let values: Vec<String> = values.iter().map(|value| format!("{value:#x}")).collect();
                        out.push_str(&format!("\n      {what} {}", values.join(" ")));
                    }
                }
            }
        }
        out
    }

    /// As JSON: values are hexadecimal strings, instruction indices are numbers, a missing address is `null`. `watch` is that
    /// of the record.
    #[must_use]
    pub fn to_json(&self, width: u8, watch: Option<&WatchItem>) -> Value {
        let none = if width == 64 { u64::MAX } else { u64::from(u32::MAX) };
        let address = |at: u64| if at == none { Value::Null } else { json!(at) };
        let hex = |value: u64| format!("{value:#x}");
        let list = |values: &[u64]| values.iter().copied().map(hex).collect::<Vec<_>>();
        let frame = |f: &TraceFrame| {
            json!({
                "called": f.called, "return": address(f.ret),
                "stack": list(&f.stack), "lv": list(&f.lv), "gv": list(&f.gv),
            })
        };
        let record = |r: &TraceRecord| {
            let frames: Vec<Value> = r.frames.iter().map(frame).collect();
            json!({
                "code": hex(r.code), "handler": address(r.handler), "parm1": hex(r.parm1),
                "parm2": hex(r.parm2), "frames": frames,
            })
        };
        json!({
            "module": String::from_utf8_lossy(&self.module), watched(watch).unwrap_or("offset"): hex(self.offset), "id": self.id,
            "major": self.major, "minor": self.minor,
            "records": self.records.iter().map(record).collect::<Vec<_>>(),
        })
    }
}

/// What the offset of a watchpoint is.
fn watched(watch: Option<&WatchItem>) -> Option<&'static str> {
    watch.map(|watch| if watch.access.is_port() { "port" } else { "address" })
}

fn record(r: &mut Reader<'_>, width: u8) -> Result<TraceRecord, DecodeError> {
    let (code, handler) = (r.word(width)?, r.word(width)?);
    let (parm1, parm2) = (r.word(width)?, r.word(width)?);
    let count = prefix(r, Token::Frames, "token of call stack frames")?;
    let frames = (0..count).map(|_| frame(r, width)).collect::<Result<_, _>>()?;
    Ok(TraceRecord { code, handler, parm1, parm2, frames })
}

fn frame(r: &mut Reader<'_>, width: u8) -> Result<TraceFrame, DecodeError> {
    Ok(TraceFrame {
        called: r.word(width)?,
        ret: r.word(width)?,
        stack: entries(r, width, Token::Entries, "token of stack entries")?,
        lv: entries(r, width, Token::Locals, "token of local variables")?,
        gv: entries(r, width, Token::Globals, "token of global variables")?,
    })
}

fn entries(
    r: &mut Reader<'_>,
    width: u8,
    token: Token,
    field: &'static str,
) -> Result<Vec<u64>, DecodeError> {
    let count = prefix(r, token, field)?;
    (0..count).map(|_| r.word(width)).collect()
}

/// The count of a prefix that must have this token.
fn prefix(r: &mut Reader<'_>, token: Token, field: &'static str) -> Result<u16, DecodeError> {
    let found = r.u8()?;
    if found != token as u8 {
        return Err(DecodeError::Field { field, value: found.into() });
    }
    r.u16()
}
