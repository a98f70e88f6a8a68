//! The host services of `callk` (docs/probe-language.md, "Host services and exits") as data: the extension point of the
//! language.
//!
//! A service pops its arguments and pushes its results. The host implements it; this table holds
//! what programs may rely on and what the verifier must know.

/// A service of `callk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// The number that `callk` pops.
    pub number: u64,
    /// Its name.
    pub name: &'static str,
    /// What it pops and pushes, the top of the stack on the right.
    pub stack: &'static str,
    /// What it does.
    pub does: &'static str,
    /// Whether it changes neither the guest nor the length of the run.
    pub observes: bool,
}

/// Number of `stop`.
pub const STOP: u64 = 1;
/// Number of `freeze`.
pub const FREEZE: u64 = 2;
/// Number of `resume`.
pub const RESUME: u64 = 3;
/// Number of `kernel_stack`.
pub const KERNEL_STACK: u64 = 4;
/// Number of `symbol`.
pub const SYMBOL: u64 = 5;

/// All services, by number.
pub const SERVICES: &[Service] = &[
    Service {
        number: STOP,
        name: "stop",
        stack: "--",
        does: "ends the run after the probed instruction has completed",
        observes: false,
    },
    Service {
        number: FREEZE,
        name: "freeze",
        stack: "--",
        does: "freezes the channel after this hit's record; later hits leave no record and are counted",
        observes: true,
    },
    Service {
        number: RESUME,
        name: "resume",
        stack: "--",
        does: "resumes recording, from this hit on",
        observes: true,
    },
    Service {
        number: KERNEL_STACK,
        name: "kernel_stack",
        stack: "max -- outermost .. innermost count",
        does: "the instruction pointer in the kernel and the return addresses above it, \
               `max` at most; none in user code",
        observes: true,
    },
    Service {
        number: SYMBOL,
        name: "symbol",
        stack: "address -- offset name.. count",
        does: "the symbol that contains the address: its name as elements, and their count, 0 if there is no symbol",
        observes: true,
    },
];

/// The service of a number.
#[must_use]
pub fn service(number: u64) -> Option<&'static Service> {
    SERVICES.iter().find(|s| s.number == number)
}
