//! Findings and programs of `check -f json`, as objects.

use std::path::Path;

use serde_json::{Value, json};
use trapline_rpn::{Diagnostic, LinkedProgram, Severity, Width};

/// The word for it.
pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// One finding. `width` is there when the finding holds for that width only.
pub fn object(found: &Diagnostic, width: Option<Width>) -> Value {
    let notes: Vec<Value> = found
        .notes
        .iter()
        .map(|note| {
            json!({"message": note.message, "file": note.file, "line": note.line, "col": note.col, "len": note.len})
        })
        .collect();
    json!({
        "type": "finding", "code": found.code, "severity": severity(found.severity),
        "file": found.file, "line": found.line, "col": found.col, "len": found.len,
        "message": found.message, "notes": notes, "help": found.help, "source": found.source,
        "width": width.map(Width::bits),
    })
}

/// A program that can be used.
pub fn program(path: &Path, program: &LinkedProgram, widths: &[u8]) -> Value {
    json!({
        "type": "program", "file": path.display().to_string(), "widths": widths,
        "name": program.header.name, "modtype": program.header.modtype.word(), "major": program.header.major,
        "probe_points": program.probes.len(),
        "observe_only": program.probes.iter().all(|probe| probe.handler.observe_only()),
    })
}
