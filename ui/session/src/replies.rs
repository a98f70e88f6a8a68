//! Replies: the results of commands, as typed values, as JSON, and as lines of text.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trapline_dump::CrashDump;
use trapline_providers::{Abi, Matched};
use trapline_trace as trace;

use crate::listing::Rows;
use crate::plural::counted;

/// The answer to a [`Command`](crate::Command).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Reply {
    /// An action was carried out.
    Action {
        /// The instruction count at which it was done.
        icount: u64,
        /// The action, in a script's word.
        action: String,
        /// The object of the action.
        name: String,
        /// A sentence for a person.
        #[serde(skip)]
        note: String,
        /// The matches of a clause's descriptions.
        #[serde(skip)]
        matched: Vec<DescriptionMatch>,
        /// The convention by which arguments of the kernel's functions are found, if it was derived from the kernel's
        /// code.
        #[serde(skip)]
        convention: Option<Abi>,
    },
    /// All programs and their probe points.
    Query {
        /// The instruction count.
        icount: u64,
        /// The programs in the order of their insertion.
        programs: Vec<ProgramState>,
    },
    /// Variables.
    GetVars {
        /// The instruction count.
        icount: u64,
        /// The programs that were asked for.
        programs: Vec<ProgramVariables>,
        /// The global variables.
        gv: Vec<u64>,
    },
    /// What the guest has now.
    List {
        /// The instruction count.
        icount: u64,
        /// What was found.
        #[serde(flatten)]
        rows: Rows,
        /// The same as lines of text.
        #[serde(skip)]
        lines: Vec<String>,
    },
    /// The position of a timeline.
    Place {
        /// The instruction count.
        icount: u64,
        /// Linear address of the next instruction.
        ip: u64,
        /// Its symbol.
        symbol: Option<String>,
        /// The next instruction, disassembled.
        instruction: Option<String>,
        /// The current task.
        pid: Option<u32>,
        /// Its name.
        task: Option<String>,
        /// Whether it is the end of the known run.
        end: bool,
        /// The same as lines of text.
        #[serde(skip)]
        lines: Vec<String>,
    },
    /// Where a timeline is within a hit.
    Operation {
        /// The instruction count.
        icount: u64,
        /// Operations of the handlers there that have been executed.
        executed: u64,
        /// How many they execute in all.
        operations: u64,
        /// The number of the handler's run there, from 1.
        handler: usize,
        /// How many handlers run there.
        handlers: usize,
        /// The program, and the clause of a D program.
        program: String,
        /// The probe by its name, or by its address.
        place: String,
        /// The number of the probe, as records have it.
        probe: u32,
        /// Index of the next operation; none after the last.
        at: Option<u32>,
        /// Its source line, 0 if it is not known.
        line: u32,
        /// It, as text.
        instruction: Option<String>,
        /// Calls that have not returned.
        calls: u32,
        /// The operand stack, top last.
        stack: Vec<u64>,
        /// Local variables.
        lv: Vec<u64>,
        /// Global variables.
        gv: Vec<u64>,
        /// What has been logged so far, as hexadecimal digits.
        log: String,
        /// The last exception.
        exception: Option<String>,
        /// What the handlers have changed of the guest.
        changes: Vec<String>,
        /// The same as lines of text.
        #[serde(skip)]
        lines: Vec<String>,
    },
    /// A crash dump was taken.
    Dump {
        /// The instruction count.
        icount: u64,
        /// Its content.
        #[serde(skip)]
        dump: Option<Arc<CrashDump>>,
    },
    /// A reply that consists of lines only.
    Lines {
        /// The instruction count.
        icount: u64,
        /// The query, in the command's word.
        action: String,
        /// The lines.
        lines: Vec<String>,
    },
}

/// How many probes a description matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptionMatch {
    /// The description as written.
    pub description: String,
    /// Probes.
    pub probes: usize,
}

impl From<Matched> for DescriptionMatch {
    fn from(matched: Matched) -> Self {
        Self { description: matched.description, probes: matched.probes }
    }
}

impl DescriptionMatch {
    /// The sentence in dtrace(1)'s words.
    pub fn sentence(&self) -> String {
        format!("description '{}' matched {}", self.description, counted(self.probes as u64, "probe"))
    }
}

/// A program that is inserted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramState {
    /// Its name.
    pub name: String,
    /// Handlers run, over all its probe points.
    pub hits: u64,
    /// Its probe points, in order.
    pub points: Vec<PointState>,
}

/// A probe point of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointState {
    /// Its place: an address, or a module and an offset.
    pub place: String,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Major code.
    pub major: u32,
    /// Minor code.
    pub minor: u32,
    /// Physical addresses that are armed for it; 1 for a watch.
    pub sites: usize,
    /// Handlers run.
    pub hits: u64,
    /// Hits that `ignore` passed over.
    pub ignored: u64,
    /// Its group.
    pub group: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// The local variables of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramVariables {
    /// The program's name.
    pub name: String,
    /// Its local variables.
    pub lv: Vec<u64>,
}

impl Reply {
    /// A sentence for a person; `None` for replies with data.
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Action { note, .. } if !note.is_empty() => Some(note),
            _ => None,
        }
    }

    /// The lines of a text output; empty for an action.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Action { .. } | Self::Dump { .. } => Vec::new(),
            Self::Query { icount, programs } => query_lines(*icount, programs),
            Self::GetVars { icount, programs, gv } => variable_lines(*icount, programs, gv),
            Self::List { lines, .. }
            | Self::Place { lines, .. }
            | Self::Operation { lines, .. }
            | Self::Lines { lines, .. } => lines.clone(),
        }
    }

    /// In the form for sinks.
    pub fn for_sink(&self) -> trace::Reply {
        // These types have string keys only, so this cannot fail.
        let object = serde_json::to_value(self).unwrap_or_default();
        trace::Reply { lines: self.lines(), object }
    }
}

fn query_lines(icount: u64, programs: &[ProgramState]) -> Vec<String> {
    let mut lines = Vec::new();
    for ProgramState { name, hits, points } in programs {
        lines.push(format!("query {icount} {name} hits={hits}"));
        for (n, point) in points.iter().enumerate() {
            let PointState { place, major, minor, sites, hits, ignored, .. } = point;
            let state = if point.enabled { "enabled" } else { "disabled" };
            let mut line = format!(
                "query {icount} {name}[{n}] {place} {state} major={major} minor={minor} sites={sites} hits={hits} \
                 ignored={ignored}"
            );
            for (key, value) in [("group", &point.group), ("type", &point.kind)] {
                line.extend(value.iter().map(|value| format!(" {key}={value}")));
            }
            lines.push(line);
        }
    }
    if lines.is_empty() {
        lines.push(format!("query {icount} no programs"));
    }
    lines
}

fn variable_lines(icount: u64, programs: &[ProgramVariables], gv: &[u64]) -> Vec<String> {
    let list = |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let mut lines: Vec<String> = programs
        .iter()
        .map(|ProgramVariables { name, lv }| format!("getvars {icount} {name} lv={}", list(lv)))
        .collect();
    lines.push(format!("getvars {icount} gv={}", list(gv)));
    lines
}
