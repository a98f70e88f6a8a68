//! Shows a position: its place, registers, memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use trapline_d::{Field, Fields, Found, Inspector, Standing};
use trapline_os::CodePointer;
use trapline_providers::Target;
use trapline_rpn::Width;

use super::Timeline;
use crate::replies::Reply;
use crate::session::registers;
use crate::types::{GuestTypes, model_of};

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

/// What evaluates expressions over a guest.
pub fn inspector(target: &Arc<Target>) -> Inspector {
    Inspector::new(model_of(target), Arc::new(GuestTypes::new(Arc::clone(target))))
}

impl Timeline {
    /// What an expression of D names, as a reply: a line for each member or element, with its value and its type.
    ///
    /// # Errors
    /// It is no expression, or what it reads is not mapped.
    pub fn print(&self, text: &str) -> Result<Reply, trapline_d::Error> {
        let mut inspector = inspector(self.session.target());
        let lines = match inspector.evaluate(text, self)? {
            Found::Bytes(value) => vec![format!("{text} = {value:#x}")],
            Found::Value(seen) => {
                let shown = inspector.fields(seen, &BTreeSet::new(), self);
                let Fields { type_name, address, value, fields, left_out } = shown;
                let mut lines = vec![format!("{text} = {value}  {type_name} at {address:#x}")];
                let line =
                    |Field { name, value, type_name, .. }: &Field| format!("  {name} = {value}  {type_name}");
                // The elements of a text are its characters.
                let parts = fields.iter().filter(|field| !field.name.is_empty() && !value.starts_with('"'));
                lines.extend(parts.map(line));
                lines.extend((left_out > 0).then(|| format!("  {left_out} more are not shown")));
                lines
            }
        };
        Ok(Reply::Lines { icount: self.session.icount(), action: "print".to_owned(), lines })
    }
}

/// The guest at the position.
impl Standing for Timeline {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        self.peek(address, to)
    }

    fn register(&self, name: &str) -> Option<u64> {
        registers::named(self.session.core(), name, self.session.target().width() == Width::W64)
    }

    fn builtin(&self, name: &str) -> Option<u64> {
        match name {
            "curthread" => self.session.current_task_address(),
            "pid" => self.session.current_task().map(|(pid, _)| pid.into()),
            "icount" => Some(self.session.icount()),
            "cpu" => Some(0),
            _ => None,
        }
    }

    fn symbol(&self, address: u64) -> Option<String> {
        self.session.symbol_of(CodePointer::At(address))
    }
}

fn line((at, bytes): (u64, &[u8])) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
    let text: String = bytes.iter().map(shown).collect();
    format!("{at:#x}: {:<47}  {text}", hex.join(" "))
}
