//! A firing of a probe, from a record or from an object of a D program, and the members of a record's JSON line.

use std::io;
use std::sync::Arc;

use serde_json::{Map, Value};
use trapline_trace::{HeaderItems, JsonSink, ProbeName, RecordView, Sink, Symbolize};

/// When, where and in which thread a probe fired.
#[derive(Debug, Clone)]
pub(crate) struct Hit {
    pub icount: u64,
    /// Virtual time in nanoseconds.
    pub time: u64,
    pub cpu: u32,
    /// The task, if records hold it, else 0.
    pub pid: u32,
    /// Whether it is known which task that is.
    pub has_task: bool,
    /// The process of the task, if that is known, else 0.
    pub process: u32,
    /// The name of the task; empty if it is not recorded.
    pub task: String,
    pub probe: Option<Arc<ProbeName>>,
    pub id: u32,
    /// The code segment and the stack pointer, if records hold them, else 0.
    pub stack: (u32, u64),
}

impl Hit {
    pub fn of_record(record: &RecordView<'_>, symbols: &dyn Symbolize, items: HeaderItems) -> Self {
        let h = &record.header;
        let named = symbols.probe(h.probe);
        Self {
            icount: h.icount,
            time: h.time_ns,
            cpu: h.cpu,
            pid: h.pid,
            has_task: items.contains(HeaderItems::PID),
            process: if h.process == 0 { h.tgid.unwrap_or(0) } else { h.process },
            task: String::from_utf8_lossy(record.name).into_owned(),
            probe: named.map(|probe| Arc::new(probe.name.clone())),
            id: named.map_or(0, |probe| probe.id),
            stack: (h.cs, h.sp),
        }
    }

    /// The firing of an object of a D program; `None` if the object is no firing, or says no time.
    pub fn of_d(object: &Map<String, Value>) -> Option<Self> {
        let number = |name: &str| object.get(name).and_then(Value::as_u64);
        let word = |name: &str| object.get(name).and_then(self::number).unwrap_or(0);
        let small = |name: &str| number(name).and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
        Some(Self {
            icount: number("icount")?,
            time: number("time_ns")?,
            cpu: small("cpu"),
            pid: small("pid"),
            has_task: object.contains_key("pid"),
            process: small("process"),
            task: object.get("name").map(plain).unwrap_or_default(),
            probe: object.get("probe").and_then(Value::as_str).and_then(probe_name).map(Arc::new),
            id: small("id"),
            stack: (word("cs") as u32, word("sp")),
        })
    }

    /// The part of a probe's name.
    pub fn part(&self, part: impl Fn(&ProbeName) -> &Arc<str>) -> &str {
        self.probe.as_ref().map_or("", |probe| part(probe))
    }
}

/// The parts of `provider:module:function:name`. A function of C++ has colons itself.
fn probe_name(text: &str) -> Option<ProbeName> {
    let (provider, rest) = text.split_once(':')?;
    let (module, rest) = rest.split_once(':')?;
    let (function, name) = rest.rsplit_once(':')?;
    let [provider, module, function, name] = [provider, module, function, name].map(Arc::from);
    Some(ProbeName { provider, module, function, name })
}

/// The members of the JSON line of a record.
pub(crate) fn members(
    record: &RecordView<'_>,
    symbols: &dyn Symbolize,
    items: HeaderItems,
) -> io::Result<Map<String, Value>> {
    let mut sink = JsonSink::new(Vec::new(), items);
    sink.record(record, symbols)?;
    Ok(serde_json::from_slice(&sink.into_inner())?)
}

/// A member of an object as text: texts as they are, everything else as JSON.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number, or one in hexadecimal with `0x`.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        Value::Bool(value) => Some(u64::from(*value)),
        Value::Object(object) => object.get("value").or_else(|| object.get("address")).and_then(number),
        other => other.as_u64().or_else(|| other.as_i64().map(i64::cast_unsigned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_cpp_keeps_its_colons() {
        let name = probe_name("pid7:libx.so:std::swap(a, b):entry").unwrap();
        assert_eq!([&*name.module, &*name.function, &*name.name], ["libx.so", "std::swap(a, b)", "entry"]);
        assert!(probe_name("fbt::").is_none());
    }

    #[test]
    fn numbers_are_read_in_each_form_of_a_json_line() {
        let of = |text: &str| number(&serde_json::from_str(text).unwrap());
        assert_eq!(of("7"), Some(7));
        assert_eq!(of("-1"), Some(u64::MAX));
        assert_eq!(of("\"0x10\""), Some(16));
        assert_eq!(of("{\"value\":3,\"name\":\"A\"}"), Some(3));
        assert_eq!(of("{\"address\":\"0x20\",\"text\":\"x\"}"), Some(32));
        assert_eq!(of("\"x\""), None);
    }
}
