//! `trapline check --explain CODE`: what a finding means. A view of the table of codes.

use std::io::Write;

use serde_json::json;
use trapline_rpn::{CODES, CodeRow, code_by_name, near_code};

use super::finding::severity;
use crate::cli::Format;
use crate::failure::{Exit, Failure};

/// Explains `code`, or lists all codes if it is `list`.
///
/// # Errors
/// There is no such code, or output cannot be written.
pub fn run(code: &str, format: Format, out: &mut dyn Write) -> Result<Exit, Failure> {
    let rows: Vec<&CodeRow> = match (code, code_by_name(code)) {
        ("list", _) => CODES.iter().collect(),
        (_, Some(row)) => vec![row],
        (_, None) => {
            let near = near_code(code).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let all = "`trapline check --explain list` prints all codes";
            return Err(Failure::Usage(format!("unknown finding code `{code}`{near}\n  help: {all}")));
        }
    };
    for row in rows {
        let written = match format {
            Format::Json => writeln!(out, "{}", object(row)),
            Format::Text if code == "list" => {
                writeln!(out, "{:22} {:8} {}", row.name, severity(row.severity), row.title)
            }
            Format::Text => text(row, out),
        };
        written.map_err(Failure::Output)?;
    }
    Ok(Exit::Ok)
}

fn object(row: &CodeRow) -> serde_json::Value {
    json!({
        "type": "code", "code": row.name, "severity": severity(row.severity), "title": row.title,
        "explanation": row.explanation, "wrong": row.wrong, "right": row.right,
    })
}

fn text(row: &CodeRow, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{} ({}): {}\n\n{}", row.name, severity(row.severity), row.title, row.explanation)?;
    for (heading, example) in [("Wrong", row.wrong), ("Right", row.right)] {
        writeln!(out, "\n{heading}:")?;
        for line in example.lines() {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}
