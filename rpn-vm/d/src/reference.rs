//! What D has, for the reference: a view of the checker's tables, with a sentence for each name.

use trapline_rpn::services::d::{Builtin, Function};

use crate::check::{self, Callable};
use crate::options;
pub use crate::options::Documented;

/// A name of D.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: &'static str,
    /// How it is written, with its type.
    pub form: String,
    /// What it is or does.
    pub meaning: &'static str,
}

/// The options of `-x`.
pub fn options() -> impl Iterator<Item = Documented> {
    options::documented()
}

/// The built-in variables, without the numbered arguments beyond the first.
#[must_use]
pub fn variables() -> Vec<Entry> {
    let others = Builtin::ALL.iter().filter(|builtin| builtin.argument().is_none_or(|number| number == 0));
    let entry = |builtin: &Builtin| {
        let (name, ty) = (builtin.name(), check::builtin_type(*builtin));
        let form =
            if *builtin == Builtin::Arg0 { format!("{ty} arg0 .. arg9") } else { format!("{ty} {name}") };
        Entry { name, form, meaning: of_variable(*builtin) }
    };
    let typed = [
        ("args", "args[n]", "the arguments with their types"),
        ("uregs", "uint64_t uregs[R_PC]", "a register of the program, by its name"),
        ("curpsinfo", "psinfo_t *curpsinfo", "the current process; for Linux with type information"),
        ("curlwpsinfo", "lwpsinfo_t *curlwpsinfo", "the current thread; for Linux with type information"),
        ("curcpu", "cpuinfo_t *curcpu", "the current processor"),
        ("fds", "fileinfo_t fds[n]", "an open file of the current process; for Linux with type information"),
    ];
    let typed = typed.into_iter().map(|(name, form, meaning)| Entry { name, form: form.to_owned(), meaning });
    others.map(entry).chain(typed).collect()
}

/// The functions that have a value.
#[must_use]
pub fn functions() -> Vec<Entry> {
    of(check::functions(), |name| match Function::from_name(name) {
        Some(function) => of_function(function),
        None if name == "progenyof" => of_function(Function::Progenyof),
        None => "writes a record to a channel of a driver; 0, or -1 if it is not written (docs/dti.md)",
    })
}

/// The actions.
#[must_use]
pub fn actions() -> Vec<Entry> {
    of(check::actions(), of_action)
}

/// The aggregating functions.
#[must_use]
pub fn aggregating() -> Vec<Entry> {
    of(check::aggregating(), of_aggregating)
}

fn of(found: Vec<Callable>, meaning: fn(&str) -> &'static str) -> Vec<Entry> {
    let entry = |one: Callable| Entry { name: one.name, meaning: meaning(one.name), form: one.form() };
    found.into_iter().map(entry).collect()
}

const fn of_variable(builtin: Builtin) -> &'static str {
    match builtin {
        Builtin::Arg0
        | Builtin::Arg1
        | Builtin::Arg2
        | Builtin::Arg3
        | Builtin::Arg4
        | Builtin::Arg5
        | Builtin::Arg6
        | Builtin::Arg7
        | Builtin::Arg8
        | Builtin::Arg9 => "the arguments of the probe",
        Builtin::Caller => "the return address in the kernel",
        Builtin::Ucaller => "the return address in the program",
        Builtin::Cpu => "the number of the processor",
        Builtin::Curthread => "the current task's structure; typed if the kernel's types are known",
        Builtin::Epid => "the number of the enabled probe",
        Builtin::Errno => "the error of the last system call of this thread",
        Builtin::Execname => "the name of the current process",
        Builtin::Gid => "the group id of the current process",
        Builtin::Hit => "the number of hits of this enabling",
        Builtin::Icount => "the number of instructions that the machine has executed",
        Builtin::Id => "the identifier of the probe, as `trapline list` prints it",
        Builtin::Ipl => "the interrupt priority level: always 0, because that of a guest is not known",
        Builtin::Pid => "the process id",
        Builtin::Ppid => "the process id of the parent",
        Builtin::Probefunc => "the third field of the probe's name: the function",
        Builtin::Probemod => "the second field of the probe's name: the module",
        Builtin::Probename => "the fourth field of the probe's name",
        Builtin::Probeprov => "the first field of the probe's name: the provider",
        Builtin::Stackdepth => "the depth of the kernel's stack",
        Builtin::Tid => "the thread id",
        Builtin::Timestamp => "virtual time in nanoseconds",
        Builtin::Uid => "the user id of the current process",
        Builtin::Ustackdepth => "the depth of the program's stack",
        Builtin::Vtimestamp => {
            "nanoseconds that the current thread has run since the program has seen it first"
        }
        Builtin::Walltimestamp => {
            "nanoseconds since 1970 by the guest's clock, which begins at the year 2000"
        }
    }
}

const fn of_function(function: Function) -> &'static str {
    match function {
        Function::Alloca => "memory of this many bytes until the clause ends",
        Function::Breakpoint => "ends the run after the probed instruction; needs -w",
        Function::Chill => "lets nanoseconds of virtual time pass; needs -w",
        Function::Copyout => "writes bytes to the program's memory; needs -w",
        Function::Copyoutstr => "writes a string to the program's memory; needs -w",
        Function::Panic => "ends the run as a crash, with a crash dump; needs -w",
        Function::Basename => "the part of a path after its last slash",
        Function::Bcopy => "copies bytes to memory of alloca()",
        Function::Cleanpath => "a path without `.`, `..` and double slashes",
        Function::Copyin => "bytes of the program's memory: address, length",
        Function::Copyinstr => "a string of the program's memory: address, longest length",
        Function::Copyinto => "copies bytes of the program's memory to memory of alloca()",
        Function::DPath => "the path of a `struct path *` of Linux",
        Function::Progenyof => "1 if the current process is this one or descends from it",
        Function::Dirname => "the part of a path before its last slash",
        Function::Getmajor => "the major number of a device",
        Function::Getminor => "the minor number of a device",
        Function::Htonl | Function::Htonll | Function::Htons => "a number in the byte order of networks",
        Function::Ntohl | Function::Ntohll | Function::Ntohs => "a number from the byte order of networks",
        Function::Index => {
            "the position of the first occurrence of a string in another, from a position on; -1 if there is none"
        }
        Function::Rindex => "the position of the last occurrence of a string in another; -1 if there is none",
        Function::InetNtoa => "an IPv4 address, given by its address, as text",
        Function::InetNtoa6 => "an IPv6 address, given by its address, as text",
        Function::InetNtop => "an address of a family, AF_INET or AF_INET6, as text",
        Function::LinkNtop => "a hardware address of a type, ARPHRD_ETHER or ARPHRD_INFINIBAND, as text",
        Function::Lltostr => "a number as text, in a base from 2 to 36; by default 10",
        Function::Rand => "a pseudo-random number, the same in every run",
        Function::Speculation => "a new speculation, or 0 if none is free",
        Function::Strchr => {
            "the rest of a string from the first occurrence of a character; NULL if there is none"
        }
        Function::Strrchr => {
            "the rest of a string from the last occurrence of a character; NULL if there is none"
        }
        Function::Strjoin => "two strings together",
        Function::Strlen => "the length of a string",
        Function::Strstr => {
            "the rest of a string from the first occurrence of another; NULL if there is none"
        }
        Function::Strtok => {
            "the next token of a string, by separators; NULL as the string continues with the last one"
        }
        Function::Strtoll => "the number in a string, in a base from 2 to 36; by default 10",
        Function::Substr => "a part of a string: index, length",
        Function::Tolower => "a string in lower case",
        Function::Toupper => "a string in upper case",
        // They are called by actions and by the library, not by programs.
        Function::Clear
        | Function::Trunc
        | Function::Normalize
        | Function::Denormalize
        | Function::Exit
        | Function::Speculate
        | Function::Commit
        | Function::Discard
        | Function::Compare
        | Function::Stack
        | Function::UserStack
        | Function::Null
        | Function::Bounds
        | Function::Assert
        | Function::Psargs
        | Function::Uregs => "",
    }
}

fn of_action(name: &str) -> &'static str {
    match name {
        "trace" => "prints a value",
        "tracemem" => "prints bytes at an address: address, length, number of bytes that are valid",
        "printf" => "prints values by a format",
        "printa" => "prints an aggregation, by a format if one is given",
        "print" => "prints a value with the names of its members, by its type",
        "exit" => "ends the run with this status",
        "assert" => "a fault if the value is 0; `trapline fuzz` searches for one",
        "speculate" => "the rest of the clause goes to this speculation",
        "commit" => "prints what a speculation holds",
        "discard" => "drops what a speculation holds",
        "clear" => "sets the values of an aggregation to 0",
        "trunc" => "removes the entries of an aggregation, all but the first N if N is given",
        "normalize" => "divides the values of an aggregation by a number when they are printed",
        "denormalize" => "ends `normalize`",
        "setopt" => "sets an option while the program runs",
        "freopen" => "sends the output to a file; needs -w, and `trapline dtrace`",
        "ftruncate" => "truncates the file of `freopen`; needs -w",
        "system" => "runs a command of the host; needs -w and -x system, and `trapline dtrace`",
        "stop" | "raise" | "pcap" => "not supported yet",
        "stack" => "the kernel's stack, at most N frames",
        "ustack" => "the program's stack, at most N frames",
        "jstack" => "the same as ustack()",
        "sym" | "func" => "the kernel's symbol of an address",
        "mod" => "the module of an address of the kernel",
        "usym" | "ufunc" => "the program's symbol of an address",
        "umod" => "the file that contains an address of the program",
        "uaddr" => "file and symbol of an address of the program",
        _ => "",
    }
}

fn of_aggregating(name: &str) -> &'static str {
    match name {
        "count" => "how often",
        "sum" => "the sum of the values",
        "avg" => "their mean",
        "min" => "the least of them",
        "max" => "the greatest of them",
        "stddev" => "their standard deviation",
        "quantize" => "a histogram by powers of two; with a weight",
        "lquantize" => "a histogram of steps of equal width: value, from, to, step, weight",
        "llquantize" => {
            "a histogram by powers of a factor, each in steps: value, factor, lowest, highest, steps, weight"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_sentence() {
        for entry in [variables(), functions(), actions(), aggregating()].concat() {
            assert!(!entry.meaning.is_empty(), "{}", entry.form);
        }
        assert!(functions().len() > 40);
    }
}
