//! Shows a position: its place, registers, memory.

use super::Timeline;
use crate::replies::Reply;

/// Bytes on a line of memory.
const LINE: usize = 16;

impl Timeline {
    /// The place: position, symbol, task, and the next instruction.
    pub fn place(&self) -> Reply {
        let core = self.session.core();
        let ip = core.linear_ip();
        let task = self.session.current_task();
        let symbol = self.session.symbol_here();
        let instruction = self.session.instruction_here();
        let icount = self.session.icount();
        let end = self.end.is_some_and(|end| self.session.moment() >= end);
        let mut line = format!("at {icount} {ip:#x}");
        line.extend(symbol.iter().map(|symbol| format!(" {symbol}")));
        line.extend(instruction.iter().map(|instruction| format!(": {instruction}")));
        line.extend(task.iter().map(|(pid, name)| format!("  [{pid} {name}]")));
        if end {
            line.push_str("  (the end)");
        }
        let (pid, task) = task.unzip();
        Reply::Place { icount, ip, symbol, instruction, pid, task, end, lines: vec![line] }
    }

    /// The extent and cost of the history, as a reply.
    pub fn history_reply(&self) -> Reply {
        let history = self.history();
        let end = history.end.map_or("the run has not ended".to_owned(), |end| format!("it ends at {end}"));
        let mut line = format!(
            "history from {}, {end}; {} saved states in {} KiB, at most {} instructions apart",
            history.first,
            history.rungs,
            history.bytes >> 10,
            history.widest
        );
        if history.thinned > 0 {
            line += &format!("; {} were given up for want of memory (--history-mem)", history.thinned);
        }
        Reply::Lines { icount: self.session.icount(), action: "history".to_owned(), lines: vec![line] }
    }

    /// The registers, as a reply.
    pub fn registers(&self) -> Reply {
        let mut lines: Vec<String> =
            self.session.core().dump_registers().lines().map(str::to_owned).collect();
        lines.extend(self.registers_in_hit());
        Reply::Lines { icount: self.session.icount(), action: "registers".to_owned(), lines }
    }

    /// Reads linear memory up to the first unmapped address, and returns the number of bytes. Within a hit, the bytes
    /// include the changes of the handlers up to the operation.
    pub fn peek(&self, address: u64, bytes: &mut [u8]) -> usize {
        let core = self.session.core();
        // No address is beyond the width of the mode, and the memory at its end does not go on at 0.
        let reach = core.wrap_linear(u64::MAX).checked_sub(address).map_or(0, |last| last.saturating_add(1));
        let within = bytes.len().min(usize::try_from(reach).unwrap_or(usize::MAX));
        let read = core.peek_prefix(address, bytes.get_mut(..within).unwrap_or_default());
        if let (Some(inside), Some(bytes)) = (&self.inside, bytes.get_mut(..read)) {
            inside.overlay(address, bytes);
        }
        read
    }

    /// Linear memory, as a reply: a line for 16 bytes. It ends at the first unmapped address.
    pub fn examine(&self, address: u64, length: u64) -> Reply {
        let wanted = usize::try_from(length).unwrap_or_default();
        let mut bytes = vec![0; wanted];
        let read = self.peek(address, &mut bytes);
        bytes.truncate(read);
        let mut lines: Vec<String> = (address..).step_by(LINE).zip(bytes.chunks(LINE)).map(line).collect();
        if bytes.len() < wanted {
            let at = address.wrapping_add(bytes.len() as u64);
            lines.push(format!("{at:#x}: nothing is mapped here"));
        }
        Reply::Lines { icount: self.session.icount(), action: "examine".to_owned(), lines }
    }
}

fn line((at, bytes): (u64, &[u8])) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
    let text: String = bytes.iter().map(shown).collect();
    format!("{at:#x}: {:<47}  {text}", hex.join(" "))
}
