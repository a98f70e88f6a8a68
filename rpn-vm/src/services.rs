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

/// Number of `assert`.
pub const ASSERT: u64 = 6;
/// u-field of the exception that `assert` throws.
pub const ASSERTION: u16 = 0xa55e;
/// Number of `dti_log`.
pub const DTI_LOG: u64 = 7;

/// First number of the services that a program which embeds Trapline has registered, and that only observe.
pub const OBSERVING: u64 = 0x1_0000;
/// First number of those that may change the guest, and so the end of those that only observe.
pub const CHANGING: u64 = 0x2_0000;
/// The prefix of a registered service's name, where a program names it as a symbol.
pub const PREFIX: &str = "service:";

/// Whether a service changes neither the guest nor the length of the run; false for a number that none can have.
#[must_use]
pub fn observes(number: u64) -> bool {
    (OBSERVING..CHANGING).contains(&number) || service(number).is_some_and(|service| service.observes)
}

/// Whether the element that a service pops first says what it reads or writes: a host may then serve it without the
/// stack ([`crate::Host::read_operand`], [`crate::Host::write_operand`]).
pub(crate) const fn has_operand(number: u64) -> bool {
    matches!(number, d::GET | d::PUT | d::BUILTIN)
}

/// Numbers of the services that compiled D programs call.
pub mod d {
    /// Number of `d_record`.
    pub const RECORD: u64 = 0x100;
    /// Number of `d_aggregate`.
    pub const AGGREGATE: u64 = 0x101;
    /// Number of `d_get`.
    pub const GET: u64 = 0x102;
    /// Number of `d_put`.
    pub const PUT: u64 = 0x103;
    /// Number of `d_reference`.
    pub const REFERENCE: u64 = 0x104;
    /// Number of `d_store`.
    pub const STORE: u64 = 0x105;
    /// Number of `d_copy`.
    pub const COPY: u64 = 0x106;
    /// What [`COPY`] copies: bytes, a string into an array of characters, a string to where one lies.
    pub const COPY_BYTES: u64 = 0;
    /// A string, and zeroes after it up to the end of the array.
    pub const COPY_TEXT: u64 = 1;
    /// A string and its end.
    pub const COPY_STRING: u64 = 2;
    /// Number of `d_assign`.
    pub const ASSIGN: u64 = 0x107;
    /// Number of `d_builtin`.
    pub const BUILTIN: u64 = 0x108;
    /// Number of `d_call`.
    pub const CALL: u64 = 0x109;
    /// Number of `d_less`.
    pub const LESS: u64 = 0x10a;
    /// Number of `d_below`.
    pub const BELOW: u64 = 0x10b;
    /// Number of `d_aggregate_fixed`.
    pub const AGGREGATE_FIXED: u64 = 0x10c;
    /// Number of `d_change`.
    pub const CHANGE: u64 = 0x10d;
    /// Number of `d_dti`.
    pub const DTI: u64 = 0x10e;
    /// First address of the constants of a D program, in a part of the address space that no guest has.
    pub const CONSTANTS: u64 = 0x00d7_0100_0000_0000;
    /// First address of its variables that have an address.
    pub const VARIABLES: u64 = 0x00d7_0200_0000_0000;
    /// First address of the variables of one firing of a probe.
    pub const CLAUSE: u64 = 0x00d7_0300_0000_0000;
    /// First address of memory from `alloca()`.
    pub const SCRATCH: u64 = 0x00d7_0400_0000_0000;
    /// First address of strings that functions have made.
    pub const STRINGS: u64 = 0x00d7_0500_0000_0000;
    /// First address of the values of associative arrays and thread-local variables.
    pub const DYNAMIC: u64 = 0x00d7_0600_0000_0000;

    macro_rules! numbered {
        ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
            #[repr(u16)]
            pub enum $name {
                $(#[doc = concat!("`", $text, "`")] $variant,)*
            }

            impl $name {
                /// All of them, in order.
                pub const ALL: &[Self] = &[$(Self::$variant,)*];

                /// The item with a number.
                #[must_use]
                pub fn from_number(number: u64) -> Option<Self> {
                    Self::ALL.get(usize::try_from(number).ok()?).copied()
                }

                /// Its number.
                #[must_use]
                pub const fn number(self) -> u64 {
                    self as u64
                }

                /// Its name in D.
                #[must_use]
                pub const fn name(self) -> &'static str {
                    match self {
                        $(Self::$variant => $text,)*
                    }
                }

                /// The item with a name.
                #[must_use]
                pub fn from_name(name: &str) -> Option<Self> {
                    Some(match name {
                        $($text => Self::$variant,)*
                        _ => return None,
                    })
                }
            }
        };
    }

    numbered! {
        /// A function that `d_call` calls.
        Function {
            Alloca = "alloca", Basename = "basename", Bcopy = "bcopy", Cleanpath = "cleanpath", Copyin = "copyin",
            Copyinstr = "copyinstr", Copyinto = "copyinto", Dirname = "dirname", Getmajor = "getmajor",
            Getminor = "getminor", Htonl = "htonl", Htonll = "htonll", Htons = "htons", Index = "index",
            InetNtoa = "inet_ntoa", InetNtoa6 = "inet_ntoa6", InetNtop = "inet_ntop", LinkNtop = "link_ntop",
            Lltostr = "lltostr", Ntohl = "ntohl", Ntohll = "ntohll", Ntohs = "ntohs", Rand = "rand", Rindex = "rindex", Speculation = "speculation", Strchr = "strchr", Strjoin = "strjoin",
            Strlen = "strlen", Strrchr = "strrchr", Strstr = "strstr", Strtok = "strtok", Strtoll = "strtoll",
            Substr = "substr", Tolower = "tolower", Toupper = "toupper", Clear = "clear", Trunc = "trunc",
            Normalize = "normalize", Denormalize = "denormalize", Exit = "exit", Speculate = "speculate",
            Commit = "commit", Discard = "discard", Compare = "strcmp", Stack = "stack", UserStack = "ustack",
            Null = "NULL", Bounds = "<bounds>", DPath = "d_path", Psargs = "__psargs",
            Copyout = "copyout", Copyoutstr = "copyoutstr", Chill = "chill", Breakpoint = "breakpoint",
            Panic = "panic", Assert = "assert", Uregs = "uregs", Progenyof = "__progenyof",
        }
    }

    numbered! {
        /// A variable that `d_builtin` reads.
        Builtin {
            Arg0 = "arg0", Arg1 = "arg1", Arg2 = "arg2", Arg3 = "arg3", Arg4 = "arg4", Arg5 = "arg5",
            Arg6 = "arg6", Arg7 = "arg7", Arg8 = "arg8", Arg9 = "arg9", Caller = "caller", Ucaller = "ucaller",
            Cpu = "cpu", Curthread = "curthread", Epid = "epid", Errno = "errno", Execname = "execname",
            Gid = "gid", Hit = "hit", Icount = "icount", Id = "id", Ipl = "ipl", Pid = "pid", Ppid = "ppid",
            Probefunc = "probefunc", Probemod = "probemod", Probename = "probename", Probeprov = "probeprov",
            Stackdepth = "stackdepth", Tid = "tid", Timestamp = "timestamp", Uid = "uid",
            Ustackdepth = "ustackdepth", Vtimestamp = "vtimestamp", Walltimestamp = "walltimestamp",
        }
    }

    impl Builtin {
        /// Whether it is a part of the probe's name.
        #[must_use]
        pub const fn names_probe(self) -> bool {
            matches!(self, Self::Probefunc | Self::Probemod | Self::Probename | Self::Probeprov)
        }

        /// Whether its value is a text.
        #[must_use]
        pub const fn is_text(self) -> bool {
            self.names_probe() || matches!(self, Self::Execname)
        }

        /// The number of the argument that it is.
        #[must_use]
        pub const fn argument(self) -> Option<u64> {
            if (self as u16) <= Self::Arg9 as u16 { Some(self.number()) } else { None }
        }
    }

    impl Function {
        /// Whether it changes the guest, its time, or the course of the run; `d_change` calls it then.
        #[must_use]
        pub const fn changes(self) -> bool {
            matches!(self, Self::Copyout | Self::Copyoutstr | Self::Chill | Self::Breakpoint | Self::Panic)
        }
    }

    /// u-field of the exceptions that services throw, as DTrace numbers faults.
    pub mod fault {
        /// An address that cannot be accessed.
        pub const ADDRESS: u16 = 1;
        /// An operation that is not possible.
        pub const OPERATION: u16 = 3;
        /// A division by zero.
        pub const DIVISION: u16 = 4;
        /// No scratch memory is left.
        pub const SCRATCH: u16 = 5;
        /// An index outside its array.
        pub const INDEX: u16 = 11;
    }
}

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
        does: "the symbol that contains the address: its name as elements, and their count, 0 if there is no symbol. A call may be the last instruction of its function, so subtract 1 from a return address",
        observes: true,
    },
    Service {
        number: ASSERT,
        name: "assert",
        stack: "flag --",
        does: "throws USER_EX with the u-field 0xa55e if the flag is 0; while USER_EX is masked, only `trapline fuzz` \
               notices it",
        observes: true,
    },
    Service {
        number: DTI_LOG,
        name: "dti_log",
        stack: "data length priority name.. count -- result",
        does: "writes a record to a driver's channel: bytes of memory, and the name of the channel as `symbol` gives \
               names; 0, or -1 if it is not written",
        observes: false,
    },
    Service {
        number: d::RECORD,
        name: "d_record",
        stack: "fields.. part --",
        does: "adds a part to the D program's record",
        observes: true,
    },
    Service {
        number: d::AGGREGATE,
        name: "d_aggregate",
        stack: "keys.. value weight aggregation --",
        does: "adds a value to an aggregation",
        observes: true,
    },
    Service {
        number: d::GET,
        name: "d_get",
        stack: "keys.. variable -- value",
        does: "reads an element of an associative array or a thread-local variable",
        observes: true,
    },
    Service {
        number: d::PUT,
        name: "d_put",
        stack: "value keys.. variable --",
        does: "writes an element of an associative array or a thread-local variable",
        observes: true,
    },
    Service {
        number: d::REFERENCE,
        name: "d_reference",
        stack: "keys.. variable -- address",
        does: "finds the address of an element, which it makes if there is none",
        observes: true,
    },
    Service {
        number: d::STORE,
        name: "d_store",
        stack: "address value size --",
        does: "writes an integer to memory of the D program; never to the guest's",
        observes: true,
    },
    Service {
        number: d::COPY,
        name: "d_copy",
        stack: "to from size text --",
        does: "copies bytes, a string into an array of characters if `text` is 1, or a string with its end if it is 2, to memory of the D program; never to the guest's",
        observes: true,
    },
    Service {
        number: d::ASSIGN,
        name: "d_assign",
        stack: "to from -- string",
        does: "copies a string to a variable of the D program; pushes 0 if there is none",
        observes: true,
    },
    Service {
        number: d::BUILTIN,
        name: "d_builtin",
        stack: "number -- value",
        does: "reads a built-in variable of D",
        observes: true,
    },
    Service {
        number: d::CALL,
        name: "d_call",
        stack: "arguments.. number -- value",
        does: "calls a function of D that does not change the guest",
        observes: true,
    },
    Service {
        number: d::LESS,
        name: "d_less",
        stack: "a b -- flag",
        does: "whether a is less than b, both with a sign",
        observes: true,
    },
    Service {
        number: d::BELOW,
        name: "d_below",
        stack: "a b -- flag",
        does: "whether a is less than b, both without a sign",
        observes: true,
    },
    Service {
        number: d::AGGREGATE_FIXED,
        name: "d_aggregate_fixed",
        stack: "value weight place --",
        does: "adds a value to an aggregation whose keys at this place are the same at each hit of a probe",
        observes: true,
    },
    Service {
        number: d::CHANGE,
        name: "d_change",
        stack: "arguments.. number -- value",
        does: "calls a destructive action of D: it writes the guest's memory, lets time pass, or ends the run",
        observes: false,
    },
    Service {
        number: d::DTI,
        name: "d_dti",
        stack: "name priority data length -- result",
        does: "writes a record to a driver's channel: strings, or bytes if `length` is not the least integer; 0, or -1 \
               if it is not written",
        observes: false,
    },
];

/// The service with a number.
#[must_use]
pub fn service(number: u64) -> Option<&'static Service> {
    SERVICES.iter().find(|s| s.number == number)
}
