//! Probe descriptions, completed field by field.

use std::collections::BTreeSet;

use trapline_providers::{Target, find};

/// The fields of a description.
const FIELDS: usize = 4;

/// What a text of probe descriptions may be completed to. Only the field that is being typed is completed: a kernel has a
/// hundred thousand probes. Where there is one choice, the next field follows, since bash closes quotes after one choice.
pub fn of(target: &Target, text: &str) -> BTreeSet<String> {
    let found = field(target, text);
    match found.first() {
        Some(only) if found.len() == 1 && only.ends_with(':') => of(target, only),
        _ => found,
    }
}

fn field(target: &Target, text: &str) -> BTreeSet<String> {
    let (earlier, typed) = text.split_at(text.rfind(',').map_or(0, |comma| comma + 1));
    let before: Vec<&str> = typed.split(':').collect();
    let field = before.len() - 1;
    // A predicate or a handler has begun, or the name is a pattern.
    let is_name = !typed.contains(|c: char| c.is_whitespace() || "/{}*?[]\\".contains(c));
    if !is_name || field >= FIELDS {
        return BTreeSet::new();
    }
    let rest = ":".repeat(FIELDS - 1 - field);
    let found = find(target, &format!("{typed}*{rest}")).unwrap_or_default();
    let kept = &typed[..typed.rfind(':').map_or(0, |colon| colon + 1)];
    let after = if rest.is_empty() { "" } else { ":" };
    let mut ends: BTreeSet<String> = found
        .iter()
        .map(|probe| {
            let name = &probe.name;
            let value = [&name.provider, &name.module, &name.function, &name.name][field];
            format!("{earlier}{kept}{value}{after}")
        })
        .collect();
    if field == 1 && typed.ends_with(':') && !ends.is_empty() {
        // The module is usually left out.
        ends.insert(format!("{earlier}{typed}:"));
    }
    ends
}
