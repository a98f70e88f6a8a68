//! Stack trace records (kind 1): what the data of one says, by rpn.md, section 5.
//!
//! Both printers ask [`StackTrace::decode`]; data that it refuses is printed as any other record's.

use serde_json::{Value, json};

use crate::prefix::{Prefix, Token};
use crate::record::{DecodeError, Reader};
use crate::sink::printable;

/// The stack trace of a probe program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackTrace {
    /// Name of the probe program.
    pub name: String,
    /// Offset of the probe.
    pub offset: u64,
    /// Id of the program.
    pub program: u32,
    /// Major code.
    pub major: u32,
    /// Minor code.
    pub minor: u32,
    /// What was thrown, in the order of the data.
    pub records: Vec<StackRecord>,
}

/// One exception.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackRecord {
    /// The last exception's code; 0 for none.
    pub code: u64,
    /// Address of the last handler; `None` when none was set.
    pub handler: Option<u64>,
    /// First parameter.
    pub parm1: u64,
    /// Second parameter.
    pub parm2: u64,
    /// Calls that had not returned.
    pub frames: Vec<Frame>,
}

/// A call of a procedure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// Where the procedure begins, an index of instructions.
    pub called: u64,
    /// Where it returns to.
    pub returns: u64,
    /// Entries of the RPN stack.
    pub entries: Vec<u64>,
    /// Local variables.
    pub locals: Vec<u64>,
    /// Global variables.
    pub globals: Vec<u64>,
}

/// Why data is no stack trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// It ends early.
    #[error(transparent)]
    Short(#[from] DecodeError),
    /// A prefix is another one.
    #[error("the token at byte {at} is {found:#04x}; {right:#04x} would be right")]
    Token {
        /// Its offset.
        at: usize,
        /// The byte there.
        found: u8,
        /// What the layout has there.
        right: u8,
    },
    /// There is more than it says.
    #[error("the stack trace goes on at byte {at}, behind its last record")]
    Trailing {
        /// Where.
        at: usize,
    },
}

impl StackTrace {
    /// Decodes the data of a record; `width` is the guest's word in bits.
    ///
    /// # Errors
    /// The data is no stack trace.
    pub fn decode(data: &[u8], width: u8) -> Result<Self, StackError> {
        let mut layout = Layout { reader: Reader { bytes: data, at: 0 }, width };
        let mut name = Vec::new();
        for _ in 0..layout.count(Token::Text)? {
            name.push(layout.reader.u8()?);
        }
        let mut trace = Self {
            name: printable(&name),
            offset: layout.word()?,
            program: layout.reader.u32()?,
            major: layout.reader.u32()?,
            minor: layout.reader.u32()?,
            records: Vec::new(),
        };
        for _ in 0..layout.count(Token::TraceRecords)? {
            let record = layout.record()?;
            trace.records.push(record);
        }
        let at = layout.reader.at;
        if at < data.len() { Err(StackError::Trailing { at }) } else { Ok(trace) }
    }

    /// As lines, each with a line end before it.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { name, offset, program, major, minor, .. } = self;
        let mut out =
            format!("\n  {name}+{offset:#x} program {program} ({},{})", *major as i32, *minor as i32);
        for record in &self.records {
            let handler = record.handler.map_or_else(|| "none".to_owned(), |at| format!("at {at}"));
            let StackRecord { code, parm1, parm2, .. } = record;
            out.push_str(&format!(
                "\n  exception {code:#x} parm1 {parm1:#x} parm2 {parm2:#x}, handler {handler}"
            ));
            for frame in &record.frames {
                out.push_str(&format!("\n    call of {} returns to {}", frame.called, frame.returns));
                for (what, values) in [("rpn", &frame.entries), ("lv", &frame.locals), ("gv", &frame.globals)]
                {
                    if !values.is_empty() {
                        let values: Vec<String> = values.iter().map(|value| format!("{value:x}")).collect();
                        out.push_str(&format!("\n      {what} {}", values.join(" ")));
                    }
                }
            }
        }
        out
    }

    /// As an object; addresses, codes and values are hex strings.
    #[must_use]
    pub fn json(&self) -> Value {
        let hex = |value: u64| format!("{value:#x}");
        let list = |values: &[u64]| values.iter().map(|value| hex(*value)).collect::<Vec<_>>();
        let frame = |f: &Frame| {
            json!({
                "called": f.called, "returns": f.returns, "rpn": list(&f.entries), "lv": list(&f.locals),
                "gv": list(&f.globals),
            })
        };
        let record = |r: &StackRecord| {
            json!({
                "code": hex(r.code), "handler": r.handler, "parm1": hex(r.parm1), "parm2": hex(r.parm2),
                "frames": r.frames.iter().map(frame).collect::<Vec<_>>(),
            })
        };
        json!({
            "name": self.name, "offset": hex(self.offset), "program": self.program, "major": self.major,
            "minor": self.minor, "records": self.records.iter().map(record).collect::<Vec<_>>(),
        })
    }
}

/// Reads the pieces of the layout. Counts are not trusted: nothing is allocated before it is read.
struct Layout<'d> {
    reader: Reader<'d>,
    width: u8,
}

impl Layout<'_> {
    fn word(&mut self) -> Result<u64, StackError> {
        Ok(self.reader.word(self.width)?)
    }

    /// A prefix of this token.
    fn count(&mut self, right: Token) -> Result<u16, StackError> {
        let at = self.reader.at;
        let raw = [self.reader.u8()?, self.reader.u8()?, self.reader.u8()?];
        let [found, ..] = raw;
        match Prefix::parse(&raw) {
            Some(prefix) if prefix.token == right => Ok(prefix.count),
            _ => Err(StackError::Token { at, found, right: right as u8 }),
        }
    }

    fn words(&mut self, token: Token) -> Result<Vec<u64>, StackError> {
        (0..self.count(token)?).map(|_| self.word()).collect()
    }

    fn record(&mut self) -> Result<StackRecord, StackError> {
        let none = if self.width == 64 { u64::MAX } else { u32::MAX.into() };
        let code = self.word()?;
        let handler = Some(self.word()?).filter(|at| *at != none);
        let mut record =
            StackRecord { code, handler, parm1: self.word()?, parm2: self.word()?, ..StackRecord::default() };
        for _ in 0..self.count(Token::Frames)? {
            record.frames.push(Frame {
                called: self.word()?,
                returns: self.word()?,
                entries: self.words(Token::Entries)?,
                locals: self.words(Token::Locals)?,
                globals: self.words(Token::Globals)?,
            });
        }
        Ok(record)
    }
}
