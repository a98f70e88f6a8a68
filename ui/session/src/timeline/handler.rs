//! Shows a handler at one of its operations.

use trapline_interposer::HandlerTrace;
use trapline_os::CodePointer;
use trapline_rpn::{Change, Context, Insn, Termination, Unhandled, exception};
use trapline_trace::Symbolize;

use super::{Operation, Timeline, TravelError};
use crate::replies::Reply;

/// Most elements of the operand stack, and most bytes of the log, that a line shows.
const MOST_SHOWN: usize = 64;

impl Operation<'_> {
    /// How the handler has ended, if it has no further operations.
    pub fn ending(&self) -> Option<String> {
        self.state.at.is_none().then(|| ending(self.run))
    }

    /// How the preceding handler has ended, if this one has executed nothing.
    pub fn ending_before(&self) -> Option<String> {
        self.ended.map(ending)
    }
}

impl Timeline {
    /// The next operation, as a reply: in one line, or with the whole handler.
    ///
    /// # Errors
    /// The timeline is not in a hit.
    pub fn operation_reply(&self, whole: bool) -> Result<Reply, TravelError> {
        let operation = self.operation().ok_or(TravelError::Outside)?;
        let code = operation.run.handler().code();
        let text = |at: u32| code.get(at as usize).map(Insn::to_text);
        let instruction = operation.state.at.and_then(text);
        let program = self.program_of_run(&operation);
        let place = self.place_of_run(&operation);
        let exception = operation.state.thrown.as_ref().map(sentence);
        let changes: Vec<String> = self.changes_in_hit().into_iter().map(change).collect();
        let lines = if whole {
            let listing: Vec<String> = code.iter().map(Insn::to_text).collect();
            whole_lines(&operation, (&program, &place), &listing, &changes)
        } else {
            vec![short_line(&operation, &program, instruction.as_deref())]
        };
        let at = operation.state.at;
        let state = operation.state;
        Ok(Reply::Operation {
            icount: self.session.icount(),
            executed: operation.executed,
            operations: operation.all,
            handler: operation.handler.0,
            handlers: operation.handler.1,
            program,
            place,
            probe: operation.run.probe,
            at,
            line: at.map_or(0, |at| operation.run.line(at)),
            instruction,
            calls: state.calls,
            stack: state.stack,
            lv: state.lv,
            gv: state.gv,
            log: hex(&state.log),
            exception,
            changes,
            lines,
        })
    }

    /// The registers that the handlers have written up to this operation.
    pub(super) fn registers_in_hit(&self) -> Vec<String> {
        let registers =
            self.changes_in_hit().into_iter().filter(|change| matches!(change, Change::Register { .. }));
        registers.map(|written| format!("written by the handler: {}", change(written))).collect()
    }

    /// The program of a run, with the clause if it is one of D.
    fn program_of_run(&self, operation: &Operation<'_>) -> String {
        let names = self.session.names();
        let program = names.program(operation.run.probe).unwrap_or_default();
        operation.run.clause.map_or(program.to_owned(), |clause| format!("{program} clause {}", clause + 1))
    }

    /// The probe of a run by its name, or by its address.
    fn place_of_run(&self, operation: &Operation<'_>) -> String {
        let names = self.session.names();
        if let Some(probe) = names.probe(operation.run.probe) {
            return probe.name.to_string();
        }
        let symbol = self.session.symbol_of(CodePointer::At(operation.run.ip));
        let ip = format!("{:#x}", operation.run.ip);
        symbol.map_or(ip.clone(), |symbol| format!("{ip} {symbol}"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An exception in words.
fn sentence(thrown: &Unhandled) -> String {
    let Unhandled { code, parm1, parm2, at, .. } = thrown;
    format!(
        "{} at operation {at}: code {code:#x}, parameters {parm1:#x} and {parm2:#x}",
        exception::name(*code)
    )
}

fn change(change: &Change) -> String {
    match change {
        Change::Memory { address, old, new } => format!("memory {address:#x}: {} -> {}", hex(old), hex(new)),
        Change::Register { context, register, value } => {
            let whose = if *context == Context::User { "user register" } else { "register" };
            format!("{whose} {}: {value:#x}", format!("{register:?}").to_lowercase())
        }
        Change::Port { port, size, value } => format!("port {port:#x}: {value:#x} of {size} bytes"),
    }
}

/// Elements of the stack, top last; the lowest are left out if there are many.
fn stack_text(stack: &[u64]) -> String {
    let from = stack.len().saturating_sub(MOST_SHOWN);
    let shown: Vec<String> = stack.iter().skip(from).map(|value| format!("{value:#x}")).collect();
    let dots = if from > 0 { format!("({from} more) ") } else { String::new() };
    if stack.is_empty() { "empty".to_owned() } else { format!("{dots}{}", shown.join(" ")) }
}

fn log_text(log: &[u8]) -> String {
    let from = log.len().saturating_sub(MOST_SHOWN);
    let dots = if from > 0 { format!("({from} more) ") } else { String::new() };
    if log.is_empty() {
        "empty".to_owned()
    } else {
        format!("{dots}{}", hex(log.get(from..).unwrap_or_default()))
    }
}

fn variables_text(variables: &[u64]) -> String {
    let set: Vec<String> = (variables.iter().enumerate())
        .filter(|(_, value)| **value != 0)
        .take(MOST_SHOWN)
        .map(|(n, value)| format!("{n}={value:#x}"))
        .collect();
    if set.is_empty() { "all 0".to_owned() } else { set.join(" ") }
}

/// How a run has ended.
fn ending(run: &HandlerTrace) -> String {
    match run.outcome.termination {
        Termination::Exit => "the handler has ended".to_owned(),
        Termination::Abort => "the handler has ended by abort, and leaves no record".to_owned(),
        Termination::ExitTo(n) => format!("the handler has ended by exit {n}"),
        Termination::Exception => match run.unhandled() {
            Some(thrown) => format!("the handler was ended by {}", sentence(&thrown)),
            None => "the handler was ended by an exception".to_owned(),
        },
    }
}

fn short_line(operation: &Operation<'_>, program: &str, instruction: Option<&str>) -> String {
    let Operation { executed, all, state, run, .. } = operation;
    let next = instruction.map_or_else(|| ending(run), str::to_owned);
    let icount = run.at.icount;
    let stack = stack_text(&state.stack);
    let log = log_text(&state.log);
    format!("at {icount}.{executed} of {all}, {program}: {next}  [stack {stack}; log {log}]")
}

fn whole_lines(
    operation: &Operation<'_>,
    (program, place): (&str, &str),
    listing: &[String],
    changes: &[String],
) -> Vec<String> {
    let Operation { executed, all, state, run, handler: (number, of), .. } = operation;
    let icount = run.at.icount;
    let mut lines =
        vec![format!("at {icount}.{executed} of {all}, handler {number} of {of}: {program} at {place}")];
    lines.extend(operation.ending_before().map(|ending| format!("preceding  {ending}")));
    for (n, text) in (0u32..).zip(listing) {
        let mark = if state.at == Some(n) { '>' } else { ' ' };
        lines.push(format!("{mark}{n:5}  {text}"));
    }
    lines.extend(operation.ending());
    lines.push(format!("stack      {}", stack_text(&state.stack)));
    if state.calls > 0 {
        lines.push(format!("calls      {}", state.calls));
    }
    if !state.lv.is_empty() {
        lines.push(format!("locals     {}", variables_text(&state.lv)));
    }
    if !state.gv.is_empty() {
        lines.push(format!("globals    {}", variables_text(&state.gv)));
    }
    lines.push(format!("log        {}", log_text(&state.log)));
    lines.extend(state.thrown.map(|thrown| format!("exception  {}", sentence(&thrown))));
    lines.extend(changes.iter().map(|change| format!("changed    {change}")));
    lines
}
