//! The probes of `proc`, `sched` and `io` as data: what each is a view of.
//!
//! Names and arguments are DTrace's (the DTrace guide, chapters "proc Provider", "sched Provider", "io Provider"); the
//! functions are those of Linux 5.10, 6.1 and 6.12. If a kernel has BTF, its functions must take what a row expects.

use super::SystemError;

/// Where a probe fires.
#[derive(Debug, Clone, Copy)]
pub enum At {
    /// At the first instruction of a function.
    Entry(&'static str),
    /// The same, if the kernel has none of the functions before it.
    Else(&'static str),
    /// At the returns of a function.
    Return(&'static str),
}

impl At {
    /// The function.
    pub const fn function(self) -> &'static str {
        let (Self::Entry(name) | Self::Else(name) | Self::Return(name)) = self;
        name
    }
}

/// A value at such a place.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// An argument of the function, at its entry.
    Argument(u8),
    /// An `int` that the function returns, at its return.
    Returned,
    /// The error that it returns, positive.
    Error,
    /// The current task.
    Current,
    /// The path of the program that is loaded: `filename` of the first argument, a `struct linux_binprm`, if BTF tells
    /// where that is; else what the third argument, a `struct filename`, begins with.
    ProgramPath,
    /// The reason for the end of a process, from an exit code in an argument: CLD_EXITED, CLD_KILLED or CLD_DUMPED.
    ExitReason(u8),
    /// A number.
    Number(u64),
}

/// When a probe fires.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// Every time.
    Always,
    /// For a task that is the first thread of its process.
    FirstThread(Value),
    /// If an `int` is 0.
    Zero(Value),
    /// If an `int` is not 0.
    NotZero(Value),
    /// If an `int` is negative.
    Negative(Value),
}

/// An argument: its value, its type in the kernel, the type that D translates it to, empty if it does not, and its name.
pub type Typed = (Value, &'static str, &'static str, &'static str);

/// A probe.
#[derive(Debug)]
pub struct Row {
    /// Its provider.
    pub provider: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Where it fires; functions that a kernel lacks are left out as long as it has one.
    pub at: &'static [At],
    /// When.
    pub when: When,
    /// Its arguments.
    pub arguments: &'static [Typed],
}

const TASK: &str = "struct task_struct *";
const BIO: &str = "struct bio *";

const fn lwp(of: Value) -> Typed {
    (of, TASK, "lwpsinfo_t *", "lwp")
}

const fn process(of: Value) -> Typed {
    (of, TASK, "psinfo_t *", "process")
}

const CPU: Typed = (Value::Number(0), "int", "cpuinfo_t *", "cpu");
const FIRST: Value = Value::Argument(0);
const SECOND: Value = Value::Argument(1);
const BUFFER: &[Typed] = &[
    (FIRST, BIO, "bufinfo_t *", "buffer"),
    (FIRST, BIO, "devinfo_t *", "device"),
    (FIRST, BIO, "fileinfo_t *", "file"),
];

use At::{Else, Entry, Return};
use Value::{Argument, Current, Error, ExitReason, ProgramPath, Returned};

const fn row(
    provider: &'static str,
    name: &'static str,
    at: &'static [At],
    when: When,
    arguments: &'static [Typed],
) -> Row {
    Row { provider, name, at, when, arguments }
}

/// All rows.
pub const ROWS: &[Row] = &[
    row("io", "done", &[Entry("bio_endio")], When::Always, BUFFER),
    row(
        "io",
        "start",
        &[Entry("submit_bio_noacct_nocheck"), Else("submit_bio_noacct")],
        When::Always,
        BUFFER,
    ),
    // The function has given up the bio when it returns.
    row("io", "wait-done", &[Return("submit_bio_wait")], When::Always, &[]),
    row("io", "wait-start", &[Entry("submit_bio_wait")], When::Always, BUFFER),
    row("proc", "create", &[Entry("wake_up_new_task")], When::FirstThread(FIRST), &[process(FIRST)]),
    row("proc", "exec", &[Entry("bprm_execve")], When::Always, &[(ProgramPath, "char *", "", "path")]),
    row(
        "proc",
        "exec-failure",
        &[Return("bprm_execve")],
        When::Negative(Returned),
        &[(Error, "int", "", "error")],
    ),
    row("proc", "exec-success", &[Return("bprm_execve")], When::Zero(Returned), &[]),
    // Each thread calls it when it ends; the second argument says whether it is the last of its process.
    row(
        "proc",
        "exit",
        &[Entry("acct_collect")],
        When::NotZero(SECOND),
        &[(ExitReason(0), "int", "", "reason")],
    ),
    row("proc", "lwp-create", &[Entry("wake_up_new_task")], When::Always, &[lwp(FIRST), process(FIRST)]),
    row("proc", "lwp-exit", &[Entry("do_exit")], When::Always, &[]),
    row("proc", "lwp-start", &[Entry("schedule_tail")], When::Always, &[]),
    row(
        "proc",
        "signal-send",
        &[Entry("__send_signal_locked"), Else("__send_signal")],
        When::Always,
        &[lwp(Argument(2)), process(Argument(2)), (FIRST, "int", "", "signal")],
    ),
    row("proc", "start", &[Entry("schedule_tail")], When::FirstThread(Current), &[]),
    row(
        "sched",
        "dequeue",
        &[
            Entry("dequeue_task_dl"),
            Entry("dequeue_task_fair"),
            Entry("dequeue_task_rt"),
            Entry("dequeue_task_stop"),
        ],
        When::Always,
        &[lwp(SECOND), process(SECOND), CPU],
    ),
    row(
        "sched",
        "enqueue",
        &[
            Entry("enqueue_task_dl"),
            Entry("enqueue_task_fair"),
            Entry("enqueue_task_rt"),
            Entry("enqueue_task_stop"),
        ],
        When::Always,
        &[lwp(SECOND), process(SECOND), CPU],
    ),
    // The previous task is still the current one.
    row("sched", "off-cpu", &[Entry("__switch_to_asm")], When::Always, &[lwp(SECOND), process(SECOND)]),
    // The next task is already the current one.
    row("sched", "on-cpu", &[Entry("finish_task_switch")], When::Always, &[]),
    row("sched", "surrender", &[Entry("do_sched_yield")], When::Always, &[lwp(Current), process(Current)]),
    row(
        "sched",
        "tick",
        &[Entry("scheduler_tick"), Else("sched_tick")],
        When::Always,
        &[lwp(Current), process(Current)],
    ),
    // Where the first one is inlined, the second one contains it, for threads that were not in the run queue.
    row(
        "sched",
        "wakeup",
        &[Entry("ttwu_do_wakeup"), Else("ttwu_do_activate")],
        When::Always,
        &[lwp(SECOND), process(SECOND)],
    ),
];

/// Probes of DTrace without a place in Linux, and what to use instead.
const NO_PLACE: &[(&str, &str, &str)] = &[
    ("proc", "fault", "fbt::force_sig_fault*:entry"),
    ("proc", "signal-clear", "syscall::rt_sigtimedwait:return"),
    ("proc", "signal-discard", "sdt::signal:signal_generate"),
    ("proc", "signal-handle", "sdt::signal:signal_deliver"),
    ("sched", "change-pri", "fbt::set_user_nice:entry"),
    ("sched", "cpucaps-sleep", ""),
    ("sched", "cpucaps-wakeup", ""),
    ("sched", "preempt", "sdt::sched:sched_switch"),
    ("sched", "remain-cpu", ""),
    ("sched", "schedctl-nopreempt", ""),
    ("sched", "schedctl-preempt", ""),
    ("sched", "schedctl-yield", ""),
    ("sched", "sleep", "sched:::off-cpu"),
];

/// The error of a description that names such a probe.
pub fn no_place(provider: &str, name: &str) -> Option<SystemError> {
    let (provider, name, instead) = NO_PLACE.iter().find(|row| (row.0, row.1) == (provider, name))?;
    Some(SystemError::NoPlace { provider, name, instead })
}
