//! The verdict on handlers, or on a function: what was reached, what was not, what was found.

use trapline_rpn::{Insn, Op};

use crate::calls::Calls;
use crate::finding::Finding;
use crate::subject::Subject;
use crate::trials::{Ended, Trials};
use trapline_session::counted;

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
pub fn verdict(subject: &impl Subject, findings: &[Finding], ended: Ended) -> Vec<String> {
    let ended = match ended {
        Ended::Trials => "",
        Ended::Time => " when the time was over",
        Ended::Interrupted => " when it was interrupted",
    };
    let hits = subject.hits().list.len() as u64;
    let mut lines =
        vec![format!("{} from {}{ended}", counted(subject.made(), "execution"), counted(hits, "real hit"))];
    lines.extend(subject.shown());
    let on: Vec<_> = subject.objectives().all().iter().map(|one| one.name()).collect();
    let count = findings.len() as u64;
    lines.push(match count {
        0 => format!("nothing was found; objectives: {}", on.join(", ")),
        _ => format!("{}; objectives: {}", counted(count, "finding"), on.join(", ")),
    });
    lines
}

/// What handlers have shown.
#[must_use]
pub fn of_handlers(trials: &Trials) -> Vec<String> {
    let summary = &trials.summary;
    let mut lines = Vec::new();
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
        counted(summary.longest.into(), "operation"),
        counted(summary.longest_log as u64, "byte")
    ));
    for ((name, program, at), count) in &summary.exceptions {
        lines.push(format!("{program}: {name} at operation {at}, {}", counted(*count, "time")));
    }
    if summary.exceptions.is_empty() {
        lines.push("no exception ended a handler".to_owned());
    }
    if trials.insns_after() > 0 {
        let insns = counted(trials.insns_after(), "instruction");
        lines.push(format!("the guest ran on for {insns} after each first handler"));
    }
    lines
}

/// What calls of a function have shown.
#[must_use]
pub fn of_calls(calls: &Calls) -> Vec<String> {
    let endings = &calls.endings;
    let mut lines = vec![format!(
        "{}: {} returned, the longest after {}; {} places of the map of coverage were reached",
        calls.function(),
        endings.returned,
        counted(endings.longest, "instruction"),
        calls.coverage().reached()
    )];
    if endings.too_long > 0 {
        let limit = counted(calls.limit(), "instruction");
        lines.push(format!("{} had not returned after {limit}", counted(endings.too_long, "call")));
    }
    if endings.refused > 0 {
        let refused = counted(endings.refused, "time");
        lines.push(format!("inputs could not be written {refused}"));
    }
    lines.extend(endings.otherwise.iter().map(|(how, count)| format!("{how}: {}", counted(*count, "time"))));
    lines
}
