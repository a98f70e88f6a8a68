//! The verdict on handlers, or on a function: what was reached, what was not, what was found.

use trapline_session::counted;

use crate::finding::Finding;
use crate::patience::Ended;
use crate::subject::Subject;

/// The verdict, one line each. The search has begun with so many states that were kept before.
#[must_use]
pub fn verdict(subject: &impl Subject, findings: &[Finding], kept: usize, ended: Ended) -> Vec<String> {
    let ended = match ended {
        Ended::Trials => "",
        Ended::Time => " when the time was over",
        Ended::Interrupted => " when it was interrupted",
    };
    let hits = subject.hits().list.len() as u64;
    let kept = match kept as u64 {
        0 => String::new(),
        kept => format!(" and {} that were kept", counted(kept, "state")),
    };
    let made = counted(subject.made(), "execution");
    let mut lines = vec![format!("{made} from {}{kept}{ended}", counted(hits, "real hit"))];
    lines.extend(subject.shown());
    let on: Vec<_> = subject.objectives().all().iter().map(|one| one.name()).collect();
    let count = findings.len() as u64;
    lines.push(match count {
        0 => format!("nothing was found; objectives: {}", on.join(", ")),
        _ => format!("{}; objectives: {}", counted(count, "finding"), on.join(", ")),
    });
    lines
}
