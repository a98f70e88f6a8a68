//! The verdict on handlers: what was reached, what was not, what was found.

use trapline_rpn::{Insn, Op};

use crate::finding::Finding;
use crate::trials::{Ended, Trials};

/// The operations without the exit that the assembler adds after an end, and that nothing reaches.
fn written(code: &[Insn]) -> &[Insn] {
    match code {
        [rest @ .., last] if last.op == Op::Exit => match rest {
            [.., before] if matches!(before.op, Op::Exit | Op::Abort) => rest,
            _ => code,
        },
        _ => code,
    }
}

/// The verdict, one line each.
#[must_use]
pub fn verdict(trials: &Trials, findings: &[Finding], ended: Ended) -> Vec<String> {
    let summary = &trials.summary;
    let ended = match ended {
        Ended::Trials => "",
        Ended::Time => " when the time was over",
        Ended::Interrupted => " when it was interrupted",
    };
    let hits = trials.hits().list.len() as u64;
    let mut lines = vec![format!(
        "{} from {}{ended}",
        trapline_session::counted(summary.trials, "execution"),
        trapline_session::counted(hits, "real hit")
    )];
    for code in trials.code() {
        let (mut reached, mut all, mut not) = (0, 0, Vec::new());
        for (_, handler) in &code.handlers {
            let operations = handler.code();
            for (own, insn) in (0u32..).zip(written(&operations)) {
                all += 1;
                let place = handler.of_program(own).unwrap_or(own) as usize;
                if code.reached.get(place) == Some(&true) {
                    reached += 1;
                } else {
                    not.push(format!("{own} {}", insn.to_text()));
                }
            }
        }
        if not.is_empty() {
            lines.push(format!("{}: all {all} operations were reached", code.name));
        } else {
            let more = if not.len() > 8 { format!(", and {} more", not.len() - 8) } else { String::new() };
            not.truncate(8);
            lines.push(format!(
                "{}: {reached} of {all} operations were reached; not: {}{more}",
                code.name,
                not.join(", ")
            ));
        }
    }
    lines.push(format!(
        "the longest run has {}, the longest log {}",
        trapline_session::counted(summary.longest.into(), "operation"),
        trapline_session::counted(summary.longest_log as u64, "byte")
    ));
    for ((name, program, at), count) in &summary.exceptions {
        let times = trapline_session::counted(*count, "time");
        lines.push(format!("{program}: {name} at operation {at}, {times}"));
    }
    if summary.exceptions.is_empty() {
        lines.push("no exception ended a handler".to_owned());
    }
    let on: Vec<_> = trials.objectives().all().iter().map(|one| one.name()).collect();
    let count = findings.len() as u64;
    lines.push(match count {
        0 => format!("nothing was found; objectives: {}", on.join(", ")),
        _ => format!("{}; objectives: {}", trapline_session::counted(count, "finding"), on.join(", ")),
    });
    lines
}
