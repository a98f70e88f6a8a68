//! What a handler logs, for showing its records: known if its code has one path on which it logs.

use trapline_trace::{Layout, LoggedItem};

use crate::code::Insn;
use crate::instructions::Op;

/// What a handler that logs text logs, in order; `None` if it logs no text, or if that depends on the guest.
pub(crate) fn layout(code: &[Insn]) -> Option<Layout> {
    let mut items = Vec::new();
    let mut has_text = false;
    let mut at = 0;
    while let Some(insn) = code.get(at) {
        match insn.op {
            Op::LogN => items.push(LoggedItem::Words(insn.arg)),
            Op::LogStr => {
                has_text = true;
                items.push(LoggedItem::Prefixed);
            }
            Op::LogMrf | Op::Log | Op::LogLv | Op::LogGv => items.push(LoggedItem::Prefixed),
            Op::Exit | Op::ExitN | Op::Abort => break,
            // A predicate: the other path leaves no record.
            Op::Jlt | Op::Jle | Op::Jgt | Op::Jge | Op::Jz | Op::Jnz => {
                let to = usize::try_from(insn.arg).ok().filter(|to| *to > at)?;
                if !code.get(at + 1..to)?.iter().all(|skipped| skipped.op == Op::Abort) {
                    return None;
                }
                at = to;
                continue;
            }
            Op::Jmp | Op::Loop | Op::Call | Op::Ret | Op::Sx | Op::PopLp => return None,
            _ => {}
        }
        at += 1;
    }
    has_text.then_some(Layout::Logged(items))
}
