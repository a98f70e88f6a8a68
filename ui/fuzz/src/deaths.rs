//! Where a Linux kernel itself says that something is wrong: the functions that it enters then.
//!
//! Text on the console may also come from a program; a program cannot enter these. The kernel enters `oops_begin` before the first line
//! of an oops (arch/x86/kernel/dumpstack.c), `panic` before that of a panic, and `add_taint` after the report of a mistake that it survives
//! (kernel/panic.c; Documentation/admin-guide/tainted-kernels.rst).

use std::fmt;
use std::ops::Range;

use trapline_emu::Core;
use trapline_emu::symbols::Symbol;
use trapline_session::Session;

/// How such a report begins on the console.
const REPORT: &[u8] = b"BUG: ";
/// Flags of `add_taint` that such reports set: TAINT_BAD_PAGE, TAINT_WARN, TAINT_SOFTLOCKUP.
const TAINTS: [u32; 3] = [5, 9, 14];
/// The registers that hold the first argument of the kernel's functions: EAX in 32-bit kernels, RDI in others.
const EAX: usize = 0;
const RDI: usize = 7;

/// What the kernel has entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// It dies.
    Dies,
    /// It has a mistake that it survives; there is a report if the console shows one.
    Taints,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dies => "the guest crashed: its kernel began to report an oops or a panic",
            Self::Taints => "the guest's kernel reported a mistake",
        })
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Deaths {
    /// The addresses of the functions.
    at: Vec<(u64, Death)>,
    /// What is behind the kernel's last function: its data.
    data: Range<u64>,
}

impl Deaths {
    /// Those of a guest; no function if it is not Linux, or has no symbols.
    #[must_use]
    pub fn of(session: &Session) -> Self {
        let target = session.target();
        let end = |symbol: &Symbol| symbol.addr.saturating_add(symbol.size.max(1));
        let of = |symbols: &mut dyn Iterator<Item = &Symbol>| symbols.map(end).max().unwrap_or_default();
        let data = of(&mut target.symbols().functions())..of(&mut target.symbols().iter());
        if target.image().plan().linux.is_none() {
            return Self { at: Vec::new(), data };
        }
        let names = [("oops_begin", Death::Dies), ("panic", Death::Dies), ("add_taint", Death::Taints)];
        let at = names.map(|(name, death)| Some((target.symbols().sole(name)?.addr, death)));
        // Only all of them make texts unnecessary.
        Self { at: at.into_iter().collect::<Option<_>>().unwrap_or_default(), data }
    }

    /// Whether they are known.
    #[must_use]
    pub fn are_known(&self) -> bool {
        !self.at.is_empty()
    }

    /// Whether the kernel's own data are at an address: code that runs there is none of its functions.
    #[inline]
    #[must_use]
    pub fn is_data(&self, address: u64) -> bool {
        self.data.contains(&address)
    }

    /// What begins at an address.
    #[inline]
    #[must_use]
    pub fn begins(&self, core: &Core, address: u64) -> Option<Death> {
        let (_, death) = self.at.iter().find(|(at, _)| *at == address)?;
        let env = core.env();
        let flag = env.gpr(if env.code64() { RDI } else { EAX }) as u32;
        (*death == Death::Dies || TAINTS.contains(&flag)).then_some(*death)
    }
}

/// Whether the console shows the report of a mistake that the kernel survives.
#[must_use]
pub fn is_reported(console: &[u8]) -> bool {
    memchr::memmem::find(console, REPORT).is_some()
}
