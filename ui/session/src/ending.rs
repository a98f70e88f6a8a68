//! Why a run ended, and the conditions that end one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use trapline_emu::CrashReport;

use crate::plural::counted;

/// Why a run ended. It displays as the beginning of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// HLT with interrupts disabled, or nothing that could wake the CPU.
    Halted,
    /// The guest switched the machine off.
    PoweredOff,
    /// The guest asked for a reset.
    Reset(String),
    /// The console showed an awaited text.
    Until(String),
    /// The console showed a text that means a crash.
    CrashText(String),
    /// The kernel reported a panic or an oops.
    KernelCrashed(String),
    /// A triple fault.
    TripleFault(Box<CrashReport>),
    /// The machine cannot continue.
    CannotGoOn(String),
    /// The instruction limit.
    Limit,
    /// The flag in `Limits::cancel` was raised.
    Interrupted,
    /// The recording of the run cannot be written;
    /// [`Session::finish_recording`](crate::Session::finish_recording) says why.
    Unrecorded,
    /// [`Command::Stop`](crate::Command::Stop).
    Stopped,
    /// The operator at the console left: [`Deed::Leave`](crate::Deed::Leave).
    Left,
    /// A handler of this program called the service `stop`.
    HandlerStopped(String),
    /// The number of hits given to [`Condition::or_hits`] was reached.
    EnoughHits(u64),
    /// A line of the script could not be carried out; the text says which, and why.
    ScriptFailed(String),
    /// The guest wrote this value to the debug-exit port.
    DebugExit(u32),
}

impl Ending {
    /// Whether the guest crashed, or the machine cannot go on.
    pub fn is_crash(&self) -> bool {
        matches!(
            self,
            Self::CrashText(_) | Self::KernelCrashed(_) | Self::TripleFault(_) | Self::CannotGoOn(_)
        )
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halted => f.write_str("the guest halted"),
            Self::PoweredOff => f.write_str("the guest powered off"),
            Self::Reset(how) => write!(f, "the guest asked for a reset ({how})"),
            Self::Until(text) => write!(f, "the console showed {text:?}"),
            Self::CrashText(text) => write!(f, "the guest crashed: the console showed {text:?}"),
            Self::KernelCrashed(how) => write!(f, "the guest crashed: {how}"),
            Self::TripleFault(report) => {
                let vectors: Vec<String> = report.vectors.iter().map(u8::to_string).collect();
                let list = vectors.join(", ");
                write!(f, "the guest crashed: triple fault at {:#x} (exceptions {list})", report.ip)
            }
            Self::CannotGoOn(why) => write!(f, "the machine cannot go on: {why}"),
            Self::Limit => f.write_str("the instruction limit was reached"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Unrecorded => f.write_str("the run ended, because its recording cannot be written,"),
            Self::Stopped => f.write_str("the script stopped the run"),
            Self::Left => f.write_str("the run was ended at the terminal"),
            Self::HandlerStopped(name) => write!(f, "a handler of {name} stopped the run"),
            Self::EnoughHits(1) => f.write_str("there was 1 hit"),
            Self::EnoughHits(hits) => write!(f, "there were {}", counted(*hits, "hit")),
            Self::ScriptFailed(why) => f.write_str(why),
            Self::DebugExit(value) => {
                write!(f, "the guest wrote {value:#x} to the debug-exit port")
            }
        }
    }
}

/// The conditions that end a run, besides the guest itself. The default has none.
///
/// ```
/// use trapline_session::Condition;
/// let prompt_or_panic = Condition::console("/ # ").or_crash_text("Kernel panic");
/// let tenth_hit = Condition::end().or_hits(10);
/// # let _ = (prompt_or_panic, tenth_hit);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Condition {
    /// Texts on the console that end the run successfully.
    pub(crate) until: Vec<String>,
    /// Texts on the console that mean a crash.
    pub(crate) crash_on: Vec<String>,
    /// Hits of any probe, counted from where the run begins.
    pub(crate) hits: Option<u64>,
}

impl Condition {
    /// Runs until the guest ends by itself.
    #[must_use]
    pub fn end() -> Self {
        Self::default()
    }

    /// Runs until the console shows this text.
    #[must_use]
    pub fn console(text: &str) -> Self {
        Self::end().or_console(text)
    }

    /// The same, however many hits there are.
    #[must_use]
    pub fn without_hits(self) -> Self {
        Self { hits: None, ..self }
    }

    /// Also ends when the console shows this text.
    #[must_use]
    pub fn or_console(mut self, text: &str) -> Self {
        self.until.push(text.to_owned());
        self
    }

    /// Also ends, as a crash, when the console shows this text.
    #[must_use]
    pub fn or_crash_text(mut self, text: &str) -> Self {
        self.crash_on.push(text.to_owned());
        self
    }

    /// Also ends after this number of hits that leave a record, counted over all probes from the start of this run. A
    /// session that runs again with the same condition counts from 1 again.
    #[must_use]
    pub fn or_hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }
}

/// The limits of a run.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicBool;
/// use trapline_session::Limits;
///
/// let cancel = Arc::new(AtomicBool::new(false));
/// let limits = Limits::insns(300_000_000).cancelled_by(Arc::clone(&cancel));
/// # let _ = limits;
/// ```
#[derive(Debug, Clone)]
pub struct Limits {
    /// The instruction count at which it ends, counted from the machine's start.
    pub(crate) icount: u64,
    /// Ends the run at the next check when it is true.
    pub(crate) cancel: Option<Arc<AtomicBool>>,
    /// Whether a stop at the instruction count leaves records in the channel.
    pub(crate) passes: bool,
}

impl Limits {
    /// No limit.
    #[must_use]
    pub fn none() -> Self {
        Self { icount: u64::MAX, cancel: None, passes: false }
    }

    /// Ends the run when this many instructions have retired since the machine started.
    #[must_use]
    pub fn insns(icount: u64) -> Self {
        Self { icount, ..Self::none() }
    }

    /// Also ends the run, with [`Ending::Interrupted`], soon after the flag has become true.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: Arc<AtomicBool>) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Leaves records in the channel when the instruction count is reached in the middle of a slice. Then the run
    /// continues as if it had not been stopped there, even if the channel is so small that it loses records within a
    /// slice. [`Session::waiting`](crate::Session::waiting) shows them. A run that is recorded or verified still reads
    /// them at each stop.
    #[must_use]
    pub fn in_passing(mut self) -> Self {
        self.passes = true;
        self
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::SeqCst))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::none()
    }
}
