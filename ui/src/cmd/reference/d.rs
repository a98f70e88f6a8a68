//! The variables, functions, actions and options of D.

use std::io::{self, Write};

use trapline_d::reference::{self, Entry};

use super::{cell, code, columns, head};

/// The page.
pub fn page(out: &mut dyn Write) -> io::Result<()> {
    head(out, "D", "d")?;
    writeln!(
        out,
        "\nThe language is that of dtrace(1); [d.md](../../d.md) says how it differs. Arguments in brackets may be left out."
    )?;
    let tables = [
        ("Variables", reference::variables()),
        ("Functions", reference::functions()),
        ("Actions", reference::actions()),
        ("Aggregating functions", reference::aggregating()),
    ];
    for (title, entries) in tables {
        writeln!(out, "\n## {title}")?;
        columns(out, &["Form", "What it is or does"])?;
        entries.iter().try_for_each(|entry| row(out, entry))?;
    }
    writeln!(out, "\n## Options\n\n`-x NAME=VALUE`, or `#pragma D option NAME=VALUE`.")?;
    columns(out, &["Option", "Takes", "Default"])?;
    for option in reference::options() {
        writeln!(out, "| {} | {} | {} |", code(option.name), option.takes, code(option.default))?;
    }
    Ok(())
}

fn row(out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
    writeln!(out, "| {} | {} |", code(&entry.form), cell(entry.meaning))
}
