//! The target of the command line's probe descriptions.

use crate::Checks;
use trapline_providers::{Clause, Description};

/// A `-n`: its frame, its descriptions, its source.
pub fn clause(bytes: &[u8], _: Checks) {
    let text = String::from_utf8_lossy(bytes);
    let clause = match Clause::parse(&text) {
        Ok(clause) => clause,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(!clause.descriptions.is_empty());
    for one in &clause.descriptions {
        match Description::parse(one) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(description) => {
                // The printed form has the same meaning.
                let again = Description::parse(&description.to_string()).unwrap();
                assert_eq!(again.written(), description.written());
                for name in ["", "entry", "do_fork", "a:b", one] {
                    assert_eq!(again.name(name), description.name(name));
                }
            }
        }
    }
    let source = clause.source("vmlinux", 6);
    match trapline_rpn::parse("-n", &source) {
        Ok(program) => assert_eq!(program.probes.len(), 1, "the handler has made probe points:\n{source}"),
        Err(found) => assert!(!found.list.is_empty()),
    }
}
