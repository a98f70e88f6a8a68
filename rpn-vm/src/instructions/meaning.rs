//! What each instruction does, in a sentence, for the reference. `top` is the top of the stack, `next` the element below it.

use super::Op;

impl Op {
    /// What the instruction does; `%` is its operand.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Nop => "does nothing",
            Self::Jmp => "jumps to the label",
            Self::Jlt => "jumps if the top, as a signed number, is less than 0; the top stays",
            Self::Jle => "jumps if the top is less than or equal to 0; the top stays",
            Self::Jgt => "jumps if the top is greater than 0; the top stays",
            Self::Jge => "jumps if the top is greater than or equal to 0; the top stays",
            Self::Jz => "jumps if the top is 0; the top stays",
            Self::Jnz => "jumps if the top is not 0; the top stays",
            Self::Loop => "decrements the top in place, and jumps if it is not 0 then",
            Self::Call => "calls the procedure; at most 32 calls are nested",
            Self::Ret => "returns from the procedure",
            Self::Callk => {
                "pops the number of a host service and calls it; the service pops its arguments and pushes its results"
            }
            Self::Abort => "ends the handler without a record",
            Self::Exit => "ends the handler with its record",
            Self::ExitN => {
                "ends the handler with its record, and requests: 1 a message, 2 a crash dump (both in a kernel probe), 3 a core file (in a user probe)"
            }
            Self::Remove => "removes the probe point after this hit; the handler continues",
            Self::SetMinN => "sets the minor code of the record",
            Self::SetMin => "sets the minor code of the record to the low 32 bits of the top, which stays",
            Self::SetMajN => "sets the major code of the record",
            Self::SetMaj => "sets the major code of the record to the low 32 bits of the top, which stays",
            Self::LogStr => "pops an address, then a length; logs the memory there up to the first NUL",
            Self::LogMrf => "pops an address, then a length; logs the memory there",
            Self::LogN => "pops % elements and logs each, the top first",
            Self::Log => "pops a count, then that many elements, and logs each with a prefix",
            Self::PushLvN => "pushes local variable %",
            Self::PushLv => "pops an index, pushes that local variable",
            Self::PopLvN => "pops a value into local variable %",
            Self::PopLv => "pops a value, then an index; writes the value into that local variable",
            Self::MoveLvN => "copies the top into local variable %; the top stays",
            Self::MoveLv => "pops an index, copies the new top into that local variable",
            Self::IncLvN => "adds 1 to local variable %",
            Self::IncLv => "pops an index, adds 1 to that local variable",
            Self::DecLvN => "subtracts 1 from local variable %",
            Self::DecLv => "pops an index, subtracts 1 from that local variable",
            Self::LogLv => "pops a count, then a first index; logs that many local variables",
            Self::PushGvN => "pushes global variable %",
            Self::PushGv => "pops an index, pushes that global variable",
            Self::PopGvN => "pops a value into global variable %",
            Self::PopGv => "pops a value, then an index; writes the value into that global variable",
            Self::MoveGvN => "copies the top into global variable %; the top stays",
            Self::MoveGv => "pops an index, copies the new top into that global variable",
            Self::IncGvN => "adds 1 to global variable %",
            Self::IncGv => "pops an index, adds 1 to that global variable",
            Self::DecGvN => "subtracts 1 from global variable %",
            Self::DecGv => "pops an index, subtracts 1 from that global variable",
            Self::LogGv => "pops a count, then a first index; logs that many global variables",
            Self::Add => "top + next",
            Self::Sub => "top - next",
            Self::Mul => "top * next",
            Self::Div => {
                "pops a divisor, then a dividend, without a sign; pushes the remainder, then the quotient"
            }
            Self::Idiv => "as `div`, with a sign",
            Self::Neg => "inverts every bit of the top",
            Self::And => "top AND next",
            Self::Or => "top OR next",
            Self::Xor => "top XOR next",
            Self::RolN => "rotates the top left by % bits",
            Self::Rol => "pops a value, then a count; pushes the value rotated left",
            Self::RorN => "rotates the top right by % bits",
            Self::Ror => "pops a value, then a count; pushes the value rotated right",
            Self::ShlN => "shifts the top left by % bits; 0 from the word's width on",
            Self::Shl => "pops a value, then a count; pushes the value shifted left",
            Self::ShrN => "shifts the top right by % bits, without a sign; 0 from the word's width on",
            Self::Shr => "pops a value, then a count; pushes the value shifted right, without a sign",
            Self::PblN => "copies bit % of the top, counted from 1, to all bits to its left",
            Self::Pbl => {
                "pops n, then a value; pushes it with bit n, counted from 1, copied to all bits to its left"
            }
            Self::PbrN => "copies bit % of the top, counted from 1, to all bits to its right",
            Self::Pbr => {
                "pops n, then a value; pushes it with bit n, counted from 1, copied to all bits to its right"
            }
            Self::Xchg => "exchanges top and next",
            Self::DupN => "pushes the top % times more",
            Self::Dup => "pops a value, then a count; pushes the value once, and count times more",
            Self::Ros => "drops % elements",
            Self::PushR => {
                "pushes a register as it is at the hit; `cpuid` and `msr` pop a number first, and wide registers push several elements"
            }
            Self::PushU => "pushes the register that the current task had when it last left ring 3",
            Self::PopR => "pops a value into a register",
            Self::PopU => "pops a value into a register of the current task, for its return to ring 3",
            Self::PushMem8 => "pops an address, pushes the byte there",
            Self::PushMem16 => "pops an address, pushes the 16 bits there",
            Self::PushMem32 => "pops an address, pushes the 32 bits there",
            Self::PushMem64 => {
                "pops an address, pushes the 64 bits there; on IA32 two elements, the low half on top"
            }
            Self::PopMem8 => "pops a value, then an address; writes 8 bits",
            Self::PopMem16 => "pops a value, then an address; writes 16 bits",
            Self::PopMem32 => "pops a value, then an address; writes 32 bits",
            Self::PopMem64 => "pops a value (on IA32 two elements), then an address; writes 64 bits",
            Self::PushPid => "pushes the process id of the current task",
            Self::PushProcid => "pushes the number of the CPU",
            Self::PushTask => "pushes the address of the current task's structure",
            Self::PushArg => "pushes argument % of the function or event, counted from 0",
            Self::PushRet => "pushes the return value of the function",
            Self::PushIo8 => "pops a port, pushes a byte read from it",
            Self::PushIo16 => "pops a port, pushes 16 bits read from it",
            Self::PushIo32 => "pops a port, pushes 32 bits read from it",
            Self::PopIo8 => "pops a value, then a port; writes 8 bits to it",
            Self::PopIo16 => "pops a value, then a port; writes 16 bits to it",
            Self::PopIo32 => "pops a value, then a port; writes 32 bits to it",
            Self::Vfyr => "pops an address; pushes 0 if it is readable, otherwise 1",
            Self::Vfyrw => "pops an address; pushes 0 if it is readable and writable, otherwise 1",
            Self::Seg2lin => "pops an offset, then a selector; pushes the linear address",
            Self::Sx => "names the label at which the next exception of this routine continues",
            Self::Ux => "ends the scope of `sx`",
            Self::PushX => {
                "pushes the last exception: second parameter, first parameter, code on top; zeros if there was none"
            }
            Self::Rx => "pops a code, then two parameters; throws that exception, if it is not masked",
            Self::LogSt => "writes the handler's state into the stack trace buffer",
            Self::PurgeSt => "empties the stack trace buffer",
            Self::TracePv => {
                "pops a count, then a first index; selects these stack elements for this routine's traces"
            }
            Self::TraceLv => {
                "pops a count, then a first index; selects these local variables for this routine's traces"
            }
            Self::TraceGv => {
                "pops a count, then a first index; selects these global variables for this routine's traces"
            }
            Self::PushStp => "pushes the number of bytes in the stack trace buffer",
            Self::PopStp => "pops a number of bytes to which the stack trace buffer goes back",
            Self::PushLp => "pushes LP, the number of logged bytes",
            Self::PopLp => "pops LP: what was logged beyond it is dropped",
            Self::PushPlp => "pushes PLP, which is LP after the last log instruction that succeeded",
            Self::SaveSbp => "pushes SBP, the index of the stack's base",
            Self::RestoreSbp => "pops SBP",
            Self::SaveTsp => "pushes TSP, the index of the stack's top",
            Self::RestoreTsp => "pops TSP",
            Self::PushSbp => "pops n, pushes the element at SBP + n",
            Self::PopSbp => "pops a value, then n; writes the element at SBP + n",
            Self::CopySbp => "pops n, copies the new top to the element at SBP + n",
            Self::PushSbpN => "pushes the element at SBP + %",
            Self::PopSbpN => "pops a value into the element at SBP + %",
            Self::CopySbpN => "copies the top to the element at SBP + %; the top stays",
            Self::PushTsp => "pops n, pushes the element at TSP + n; TSP is that after the pop",
            Self::PopTsp => "pops a value, then n; writes the element at TSP + n; TSP is that after the pops",
            Self::CopyTsp => {
                "pops n, copies the new top to the element at TSP + n; TSP is that after the pop"
            }
            Self::PushTspN => "pushes the element at TSP + %",
            Self::PopTspN => "pops a value into the element at TSP + %; TSP is that before the pop",
            Self::CopyTspN => "copies the top to the element at TSP + %; the top stays",
            Self::Push => "pushes a number, or the address of a symbol with + and -",
        }
    }
}
