//! The host services of `callk` (docs/probe-language.md, "Host services and exits"): the language's one extension point, as data.
//!
//! A service gets its arguments from the stack and leaves its results there. What it does is the host's business; here
//! is what a program may rely on, and what the verifier must know.

/// A service that `callk` finds under its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// What `callk` pops to find it.
    pub number: u64,
    /// Its name.
    pub name: &'static str,
    /// What it pops and pushes, the top of the stack on the right.
    pub stack: &'static str,
    /// What it does.
    pub does: &'static str,
    /// Whether it leaves the guest and the length of the run as they are.
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
        does: "ends the run when the probed instruction has completed",
        observes: false,
    },
    Service {
        number: FREEZE,
        name: "freeze",
        stack: "--",
        does: "keeps the channel as it is after this hit's record; hits from then on leave none and are counted",
        observes: true,
    },
    Service {
        number: RESUME,
        name: "resume",
        stack: "--",
        does: "lets records into the channel again, this hit's first",
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
        does: "the symbol that holds the address: the bytes of its name in elements, and how many they are, 0 when there is none",
        observes: true,
    },
];

/// The service of a number.
#[must_use]
pub fn service(number: u64) -> Option<&'static Service> {
    SERVICES.iter().find(|s| s.number == number)
}
