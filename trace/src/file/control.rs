//! Control records: everything in a trace file besides the records of the run, to bytes and back.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::names::Name;
use super::{FileHead, HASH};
use crate::bytes::{DecodeError, Reader};
use crate::channel::Counts;
use crate::record::Kind;
use crate::sink::Shown;
use crate::sink::{End, Reply, RunInfo};

/// The first byte of a control record's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Control {
    /// The start of the run: a JSON object with `image` and the further fields of the JSON header line.
    Begin = 1,
    /// The symbol of an address: the address (8 bytes), the symbol.
    Symbol = 2,
    /// The answer to a line of a script: a JSON object with `lines` and `object`.
    Reply = 3,
    /// The end of the run: seven counts, the exit code, a JSON object, the hash.
    End = 4,
    /// The symbol of an address in a module: the kind of stack record (1 byte), the address (8), the length of the
    /// module's name (2), the name, the offset of the address in its symbol (8), the symbol.
    Frame = 5,
    /// The name of a provider's probe: its number (4 bytes), its identifier (4), a JSON array of the four names.
    Probe = 6,
    /// A piece of a D program's output: the instruction count (8 bytes), or all ones at the end of the run, the length
    /// of the text (4), the text, a JSON array of objects.
    D = 7,
    /// What the records of a probe hold: its number (4 bytes), a JSON object.
    Layout = 8,
}

/// A decoded control record.
pub(super) enum Said {
    Begin(RunInfo),
    Name(Name),
    Reply(Reply),
    D(Shown),
    End { end: Box<End>, records: u64, hash: u64 },
}

/// The data of the record that begins the run.
pub(super) fn begin(run: &RunInfo) -> Vec<u8> {
    let mut fields = object(&[("image".to_owned(), json!(run.image))]);
    fields.extend(run.extra.iter().cloned());
    with(Control::Begin, &[Value::Object(fields).to_string().as_bytes()])
}

/// The data of a record that gives a name.
pub(super) fn name(name: &Name) -> Vec<u8> {
    match name {
        Name::Symbol { ip, name } => with(Control::Symbol, &[&ip.to_le_bytes(), name.as_bytes()]),
        Name::Frame { kind, module, address, name, offset } => {
            let length = u16::try_from(module.len()).unwrap_or(u16::MAX);
            let module = module.as_bytes().get(..length.into()).unwrap_or_default();
            let place = [&[*kind as u8][..], &address.to_le_bytes(), &length.to_le_bytes(), module].concat();
            with(Control::Frame, &[&place, &offset.to_le_bytes(), name.as_bytes()])
        }
        Name::Probe { number, id, name } => {
            let parts = json!([&*name.provider, &*name.module, &*name.function, &*name.name]).to_string();
            with(Control::Probe, &[&number.to_le_bytes(), &id.to_le_bytes(), parts.as_bytes()])
        }
        Name::Layout { number, layout } => {
            let layout = json!(**layout).to_string();
            with(Control::Layout, &[&number.to_le_bytes(), layout.as_bytes()])
        }
    }
}

/// The data of the answer to a line of a script.
pub(super) fn reply(reply: &Reply) -> Vec<u8> {
    let fields = json!({"lines": reply.lines, "object": reply.object});
    with(Control::Reply, &[fields.to_string().as_bytes()])
}

/// The data of a piece of a D program's output.
pub(super) fn d(shown: &Shown) -> Vec<u8> {
    let icount = shown.icount.unwrap_or(u64::MAX).to_le_bytes();
    let length = u32::try_from(shown.text.len()).unwrap_or(u32::MAX);
    let text = shown.text.get(..length as usize).unwrap_or_default();
    let objects = Value::Array(shown.objects.clone()).to_string();
    with(Control::D, &[&icount, &length.to_le_bytes(), text, objects.as_bytes()])
}

/// The data of the end record, with zeros for the hash. `records` counts the records in the file.
pub(super) fn end(end: &End, records: u64) -> Vec<u8> {
    let c = end.counts;
    let counts = [records, c.committed, c.overwritten, c.oversized, end.insns, end.hits, end.lost];
    let counts = counts.map(u64::to_le_bytes);
    let fields =
        json!({"digest": end.digest, "extra": object(&end.extra), "counters": object(&end.counters)});
    let (exit, json) = (end.exit.to_le_bytes(), fields.to_string());
    with(Control::End, &[counts.as_flattened(), &exit, json.as_bytes(), &[0; HASH]])
}

fn with(control: Control, parts: &[&[u8]]) -> Vec<u8> {
    [&[control as u8], parts.concat().as_slice()].concat()
}

fn object(fields: &[(String, Value)]) -> Map<String, Value> {
    fields.iter().cloned().collect()
}

/// Decodes the data of a control record; an error says what is wrong with it.
pub(super) fn decode(data: &[u8], head: FileHead) -> Result<Said, String> {
    let (first, rest) = data.split_first().ok_or("it is empty")?;
    Ok(match *first {
        1 => Said::Begin(decode_begin(rest, head)?),
        2 => Said::Name(symbol(rest).ok_or("it does not hold an address with a symbol")?),
        3 => {
            let said: SaidReply = serde_json::from_slice(rest).map_err(json_error)?;
            Said::Reply(Reply { lines: said.lines, object: said.object })
        }
        4 => decode_end(rest)?,
        5 => Said::Name(frame(rest).ok_or("it does not hold an address in a module with a symbol")?),
        6 if head.version > 1 => {
            Said::Name(probe(rest).ok_or("it does not hold a probe with its four names")?)
        }
        7 if head.version > 3 => Said::D(decode_d(rest)?),
        8 if head.version > 4 => Said::Name(layout(rest)?),
        first => return Err(format!("its first byte is {first:#04x}; it must be 1 to 8")),
    })
}

fn json_error(error: serde_json::Error) -> String {
    format!("its JSON is wrong: {error}")
}

fn decode_begin(bytes: &[u8], head: FileHead) -> Result<RunInfo, String> {
    let mut extra: Map<String, Value> = serde_json::from_slice(bytes).map_err(json_error)?;
    let Some(Value::String(image)) = extra.shift_remove("image") else {
        return Err("it names no image".to_owned());
    };
    Ok(RunInfo { image, width: head.width, extra: extra.into_iter().collect() })
}

fn symbol(bytes: &[u8]) -> Option<Name> {
    let (ip, name) = bytes.split_first_chunk()?;
    Some(Name::Symbol { ip: u64::from_le_bytes(*ip), name: str::from_utf8(name).ok()?.to_owned() })
}

fn frame(bytes: &[u8]) -> Option<Name> {
    let (&kind, rest) = bytes.split_first()?;
    let (address, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (module, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let (offset, name) = rest.split_first_chunk()?;
    Some(Name::Frame {
        kind: Kind::from_byte(kind).filter(|kind| kind.is_guest_stack())?,
        module: str::from_utf8(module).ok()?.to_owned(),
        address: u64::from_le_bytes(*address),
        name: str::from_utf8(name).ok()?.to_owned(),
        offset: u64::from_le_bytes(*offset),
    })
}

fn probe(bytes: &[u8]) -> Option<Name> {
    let (number, rest) = bytes.split_first_chunk()?;
    let (id, rest) = rest.split_first_chunk()?;
    let parts: [String; 4] = serde_json::from_slice(rest).ok()?;
    Some(Name::probe(u32::from_le_bytes(*number), u32::from_le_bytes(*id), &parts))
}

fn layout(bytes: &[u8]) -> Result<Name, String> {
    let (number, rest) = bytes.split_first_chunk().ok_or("it does not hold the number of a probe")?;
    let layout = Arc::new(serde_json::from_slice(rest).map_err(json_error)?);
    Ok(Name::Layout { number: u32::from_le_bytes(*number), layout })
}

fn decode_d(bytes: &[u8]) -> Result<Shown, String> {
    let short = "it does not hold the output of a D program";
    let (icount, rest) = bytes.split_first_chunk().ok_or(short)?;
    let (length, rest) = rest.split_first_chunk().ok_or(short)?;
    let (text, objects) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(short)?;
    let icount = Some(u64::from_le_bytes(*icount)).filter(|icount| *icount != u64::MAX);
    let objects: Vec<Map<String, Value>> = serde_json::from_slice(objects).map_err(json_error)?;
    let objects = objects.into_iter().map(Value::Object).collect();
    Ok(Shown { icount, text: text.to_vec(), objects })
}

fn decode_end(bytes: &[u8]) -> Result<Said, String> {
    let (records, mut end, left) = counts(bytes).map_err(|error| error.to_string())?;
    let (left, hash) = left.split_last_chunk().ok_or("it has no hash")?;
    let said: SaidEnd = serde_json::from_slice(left).map_err(json_error)?;
    end.digest = said.digest;
    end.extra = said.extra.into_iter().collect();
    end.counters = said.counters.into_iter().collect();
    Ok(Said::End { end: Box::new(end), records, hash: u64::from_le_bytes(*hash) })
}

/// The binary part of an end record: the count of records, the end without its JSON, and the rest.
fn counts(bytes: &[u8]) -> Result<(u64, End, &[u8]), DecodeError> {
    let mut r = Reader { bytes, at: 0 };
    let records = r.u64()?;
    let counts = Counts { committed: r.u64()?, overwritten: r.u64()?, oversized: r.u64()? };
    let (insns, hits, lost, exit) = (r.u64()?, r.u64()?, r.u64()?, r.u32()? as i32);
    let end = End { counts, insns, hits, lost, exit, ..End::default() };
    Ok((records, end, bytes.get(r.at..).unwrap_or_default()))
}

#[derive(Deserialize)]
struct SaidReply {
    lines: Vec<String>,
    object: Value,
}

#[derive(Deserialize)]
struct SaidEnd {
    digest: Option<String>,
    extra: Map<String, Value>,
    /// Since version 2.
    #[serde(default)]
    counters: Map<String, Value>,
}
