//! Which references may exist while the engine runs.
//!
//! Translated code calls hooks, and hooks change the core, which runs the engine. These rules ensure that no two
//! exclusive references to one value are alive at a time, whatever hooks and interposers do.
//!
//! - **The core** is *published* ([`Core::publish_core`]) for every call into the engine that may call a hook: to run
//!   code. The exclusive reference of the caller becomes a raw pointer in [`Hot`](crate::blocks::Hot), and is not used
//!   before the engine returns. A hook makes the exclusive reference anew from that pointer, and drops it when it
//!   returns. A hook may publish the core again; the previous pointer is restored afterwards, so that no pointer
//!   outlives the reference it was made from. While nothing is published, hooks do nothing. When it drops blocks, the
//!   engine asks the fill hook for the page's physical address; the hook answers from the hot state, without the core.
//! - **The hot state** is a separate allocation. On its hot path the block hook touches nothing else of the core.
//!   References to it are as short as one statement, and never alive during a call into the engine.
//! - **Cells** are named by engine, hooks and core at once, so only shared references to them exist, and their fields are
//!   [`Cell`](std::cell::Cell)s.
//! - **The engine's own memory** is only reached through raw pointers, in `engine/`.
//! - **Guest RAM** is written by translated code through raw pointers. Rust borrows it through the core, so no such borrow is
//!   alive while the engine runs.
//! - **The interposer** is taken out of the core while it is called ([`Core::with_interposer`]): so its use of the core
//!   cannot call it recursively. It cannot swap that core for another machine's either: [`Core`] is unsized.
//!
//! An abort of the engine is caught (`engine/rescue.rs`); an abort in a hook is not.
//!
//! A hook never lets a panic unwind, since its callers are C and translated code. It stops the engine, and the machine
//! has *failed*: the panic resumes in the caller of the engine and ends the run.

use crate::engine::{Handle, Outside};
use crate::panics;
use crate::run::interpose::{Trap, TrapInterposer, Verdict};
use crate::run::{Core, Halt};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::ptr::NonNull;

/// An interposer lent to the core for a run.
pub(crate) struct Lent(NonNull<dyn TrapInterposer>);

// SAFETY: it exists during `Core::run` only, which holds the exclusive borrow that it was made from, on one thread.
unsafe impl Send for Lent {}

impl Lent {
    /// Lends an interposer.
    ///
    /// # Safety
    /// The result is used and dropped while the given borrow is alive.
    pub unsafe fn new<'a>(interposer: &'a mut (dyn TrapInterposer + 'a)) -> Self {
        let short: NonNull<dyn TrapInterposer + 'a> = NonNull::from(interposer);
        // SAFETY: only the lifetime is extended, by the contract above.
        Lent(unsafe {
            std::mem::transmute::<NonNull<dyn TrapInterposer + 'a>, NonNull<dyn TrapInterposer + 'static>>(
                short,
            )
        })
    }

    /// The interposer, while this is taken out of the core.
    #[inline(always)]
    fn taken_out(&mut self) -> &mut (dyn TrapInterposer + 'static) {
        // SAFETY: `run` holds the exclusive borrow that this was made from, and nothing else can reach it.
        unsafe { self.0.as_mut() }
    }
}

impl Core {
    /// The core that [`Core::publish_core`] has published.
    pub(super) fn from_published(core: NonNull<()>) -> NonNull<Core> {
        core.cast::<Core<[(); 0]>>()
    }

    /// Calls into the engine, whose hooks may use the core meanwhile.
    #[inline]
    pub(crate) fn publish_core<T>(&mut self, call: impl FnOnce(Handle) -> T) -> T {
        let handle = self.cpu.engine.handle();
        let hot = self.cpu.hot.as_ptr();
        let core = NonNull::from(&mut *self).cast::<()>();
        // SAFETY: the hot state lives as long as the core, and no reference to it is alive here.
        let before = unsafe { (*hot.as_ptr()).core.replace(core) };
        let result = call(handle);
        // SAFETY: as above; the hooks have dropped the references that they made from `core`.
        unsafe { (*hot.as_ptr()).core = before };
        if self.failure.is_some() {
            // A hook has panicked meanwhile.
            resume_unwind(Box::new(panics::Known));
        }
        result
    }

    /// Calls the interposer, if there is one.
    #[inline(always)]
    pub(crate) fn with_interposer<T>(
        &mut self,
        call: impl FnOnce(&mut dyn TrapInterposer, &mut Core) -> T,
    ) -> Option<T> {
        let mut lent = self.interposer.take()?;
        let answer = call(lent.taken_out(), self);
        self.interposer = Some(lent);
        Some(answer)
    }

    /// Asks the interposer about a trap, and tells `then` its verdict; without an interposer the verdict is to step.
    /// The verdict is not returned, because it would be copied at each hit.
    #[inline(always)]
    pub(crate) fn on_verdict<T>(&mut self, trap: &Trap, then: impl Fn(&mut Core, &Verdict) -> T) -> T {
        let Some(mut lent) = self.interposer.take() else { return then(self, &Verdict::Step) };
        let verdict = lent.taken_out().trap(self, trap);
        self.interposer = Some(lent);
        then(self, &verdict)
    }

    /// Does the work of a hook. If that panics, the machine has failed, and the engine stops.
    #[inline(always)]
    pub(crate) fn guarded<T>(&mut self, otherwise: T, hook: impl FnOnce(&mut Core) -> T) -> T {
        let _outside = Outside::enter();
        match panics::catch(AssertUnwindSafe(|| hook(self))) {
            Ok(answer) => answer,
            Err(text) => {
                self.fail(text);
                self.cpu.engine.stop_after_block();
                otherwise
            }
        }
    }

    /// The machine has failed: it stops at the next boundary, and does not run again.
    #[cold]
    pub(crate) fn fail(&mut self, text: String) {
        self.failure.get_or_insert(text);
        self.halt = Some(Halt::Finished);
        self.cpu.hot.clock.limit = 0;
    }
}
