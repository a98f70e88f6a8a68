//! The place of a probe, and the form in which it is armed.

use std::ops::Range;
use std::sync::Arc;
use trapline_emu::Watch;
use trapline_emu::symbols::{KernelModule, UserModule};

/// The patch of a breakpoint probe.
pub(crate) const INT3: u8 = 0xcc;
/// The patch of a `lock nop` site: the prefix, before a NOP.
const LOCK: u8 = 0xf0;

/// What a timer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Virtual nanoseconds.
    Virtual,
    /// Instructions.
    Instructions,
}

/// A place in time: each multiple of a period since the machine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// What it counts.
    pub clock: Clock,
    /// The period.
    pub period: u64,
}

/// An event of the run itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The run begins.
    Begin,
    /// The run ends.
    End,
    /// A clause of a D program has ended by a fault.
    Error,
}

/// The place of a probe.
#[derive(Debug, Clone)]
pub enum Place {
    /// In the kernel: the physical address that holds the linear one.
    Kernel {
        /// Linear address, for messages.
        linear: u64,
        /// Physical address.
        paddr: u64,
    },
    /// The first of five one-byte NOPs in the kernel that a static probe's call was turned into (sdt on x86,
    /// docs/providers.md, "Calls to functions that do not exist"). The second NOP is patched with `f0`: `lock nop`
    /// raises
    /// #UD, and IP in a hit is the address after the first NOP.
    LockNop {
        /// Linear address of the first, for messages.
        linear: u64,
        /// Its physical address.
        paddr: u64,
    },
    /// In a user module, on every physical page that holds that page of the file.
    User {
        /// The module.
        module: Arc<UserModule>,
        /// Offset in the module's file.
        offset: u64,
    },
    /// After an instruction of a user module that leaves its function: handlers run when it has completed.
    UserExit {
        /// The module.
        module: Arc<UserModule>,
        /// The instruction's offset in the module's file.
        offset: u64,
        /// For a jump, the file offsets of the function: a jump inside them does not leave the function. `None` for a
        /// return.
        stays_in: Option<Range<u64>>,
    },
    /// In a kernel module, at the address where the guest has loaded it; needs a profile.
    Module {
        /// The module.
        module: Arc<KernelModule>,
        /// Offset in the module's file.
        offset: u64,
    },
    /// The pointer of a macro-declared probe in a kernel module, written where the guest has loaded the module; needs a
    /// profile. See [`Place::Pointer`].
    ModulePointer {
        /// The module.
        module: Arc<KernelModule>,
        /// Its offset in the module's file.
        offset: u64,
        /// Whether it has 8 bytes, not 4.
        wide: bool,
    },
    /// An event of the run itself, for probes of D's `dtrace` provider; nothing is patched.
    Event(Event),
    /// A periodic timer; nothing is patched.
    Timer(Timer),
    /// The pointer of a macro-declared probe in the kernel. Enabling writes a stub's address into it, disabling 0: the
    /// guest can see that, by design (docs/providers.md, "Statically defined probes").
    Pointer {
        /// Linear address of the pointer, for messages.
        linear: u64,
        /// Its physical address.
        paddr: u64,
        /// Whether it has 8 bytes, not 4.
        wide: bool,
    },
    /// A semaphore of a user module: it is never hit, but raised by 1 in each process while an enabled probe uses it.
    /// The guest can see that, by design.
    Semaphore {
        /// The module.
        module: Arc<UserModule>,
        /// Its address as linked.
        address: u64,
    },
    /// An is-enabled site of a user module, on every physical page that holds that page of the file: a hit sets AX to
    /// 1, runs no handler and is not counted.
    IsEnabled {
        /// The module.
        module: Arc<UserModule>,
        /// Offset in the module's file of the byte that is patched.
        offset: u64,
    },
    /// The pointer of a macro-declared probe in a user module, written in each process: see [`Place::Pointer`].
    UserPointer {
        /// The module.
        module: Arc<UserModule>,
        /// Its address as linked.
        address: u64,
        /// Whether it has 8 bytes, not 4.
        wide: bool,
    },
    /// A range of linear addresses or ports, in every address space; nothing is patched.
    Watch(Watch),
}

/// What is armed for a place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Address<'a> {
    /// One byte of physical memory, as fetches see it.
    Patch {
        /// Linear address of the place, for messages.
        linear: u64,
        paddr: u64,
        patch: u8,
    },
    /// The instruction at an offset of a program's file, on every page that holds it.
    Program {
        module: &'a Arc<UserModule>,
        offset: u64,
    },
    /// The instruction at an offset of a kernel module's file, where the guest has loaded it.
    Module {
        module: &'a Arc<KernelModule>,
        offset: u64,
    },
    /// A pointer in the kernel.
    Pointer {
        linear: u64,
        paddr: u64,
        wide: bool,
    },
    /// The pointer at an offset of a kernel module's file, where the guest has loaded it.
    ModulePointer {
        module: &'a Arc<KernelModule>,
        offset: u64,
        wide: bool,
    },
    /// A word of each process that runs a program: a pointer of 8 or 4 bytes, or a semaphore.
    Word {
        module: &'a Arc<UserModule>,
        address: u64,
        pointer: Option<bool>,
    },
    Watch(Watch),
    Timer(Timer),
    Event,
}

impl Place {
    /// The form in which it is armed.
    pub(crate) fn address(&self) -> Address<'_> {
        match self {
            Self::Kernel { linear, paddr } => Address::Patch { linear: *linear, paddr: *paddr, patch: INT3 },
            Self::LockNop { linear, paddr } => {
                Address::Patch { linear: *linear, paddr: paddr + 1, patch: LOCK }
            }
            Self::User { module, offset }
            | Self::UserExit { module, offset, .. }
            | Self::IsEnabled { module, offset } => Address::Program { module, offset: *offset },
            Self::Module { module, offset } => Address::Module { module, offset: *offset },
            Self::Pointer { linear, paddr, wide } => {
                Address::Pointer { linear: *linear, paddr: *paddr, wide: *wide }
            }
            Self::ModulePointer { module, offset, wide } => {
                Address::ModulePointer { module, offset: *offset, wide: *wide }
            }
            Self::Semaphore { module, address } => Address::Word { module, address: *address, pointer: None },
            Self::UserPointer { module, address, wide } => {
                Address::Word { module, address: *address, pointer: Some(*wide) }
            }
            Self::Watch(watch) => Address::Watch(*watch),
            Self::Timer(timer) => Address::Timer(*timer),
            Self::Event(_) => Address::Event,
        }
    }

    /// The byte that arming it puts into code, as fetches see it, and how many bytes behind the place; none where no code is
    /// patched.
    pub fn patch(&self) -> Option<(u64, u8)> {
        match (self, self.address()) {
            (Self::LockNop { .. }, _) => Some((1, LOCK)),
            (_, Address::Patch { .. } | Address::Program { .. } | Address::Module { .. }) => Some((0, INT3)),
            _ => None,
        }
    }

    /// Whether it only tells a guest program that the probe is enabled.
    pub(crate) fn only_tells(&self) -> bool {
        matches!(self, Self::Semaphore { .. } | Self::IsEnabled { .. })
    }

    /// Whether arming it is visible to the guest by design.
    pub(crate) fn is_visible(&self) -> bool {
        self.only_tells()
            || matches!(self, Self::Pointer { .. } | Self::UserPointer { .. } | Self::ModulePointer { .. })
    }

    /// Whether handlers run after the instruction at this place has completed.
    pub(crate) fn runs_after(&self) -> bool {
        matches!(self, Self::UserExit { .. })
    }

    /// The module and the offset in its file of a place in a user module's code.
    pub fn in_user_code(&self) -> Option<(&Arc<UserModule>, u64)> {
        match self.address() {
            Address::Program { module, offset } => Some((module, offset)),
            _ => None,
        }
    }

    /// The kernel module that it is in, if it is in one.
    pub(crate) fn kernel_module(&self) -> Option<&Arc<KernelModule>> {
        match self {
            Self::Module { module, .. } | Self::ModulePointer { module, .. } => Some(module),
            _ => None,
        }
    }

    /// Its watch, if it is one.
    pub(crate) fn watch(&self) -> Option<Watch> {
        match self {
            Self::Watch(watch) => Some(*watch),
            _ => None,
        }
    }
}
