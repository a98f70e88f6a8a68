//! Aborts of the engine: a guest cannot end the process with them.
//!
//! The engine's translator calls `abort` where it has no code for an instruction (LOCK BT with a register operand, for
//! example). It does so before any hook could see the instruction. `abort` raises SIGABRT on the thread that calls it,
//! and POSIX allows the handler to leave by a long jump. So while a thread runs the engine, the handler here does what
//! the engine itself does when the fetch of an instruction fails in the middle of a translation: it jumps to the
//! engine's main loop (`cpu_loop_exit`), which returns. The next translation begins anew.
//!
//! All other SIGABRTs go to the handler that was there before: signals from outside, and aborts of other code, our hooks
//! included ([`Outside`]). An abort while translated code runs ends the run ([`GaveUp::Running`]): the instruction may have
//! been executed in part.

use super::layout::{cpu, tcg, uc as uc_off};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Once, OnceLock};
use unicorn_engine_sys::{uc_engine, uc_error};

/// The engine's activity when it called `abort`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GaveUp {
    /// It translated the block at EIP. Nothing has happened.
    Translating,
    /// Translated code ran, or something else.
    Running,
}

thread_local! {
    /// The engine that this thread runs, unless it is in a hook.
    static RUNNING: Cell<*mut uc_engine> = const { Cell::new(ptr::null_mut()) };
    /// How the engine that ran last was left.
    static GAVE_UP: Cell<Option<GaveUp>> = const { Cell::new(None) };
}

/// The previous handler, for SIGABRTs that are not the engine's.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs the engine `uc` by calling `run`; returns its result, or how the engine gave up.
///
/// # Safety
/// `uc` is a live engine of the verified build, and `run` does nothing but call `uc_emu_start` for it.
pub(super) unsafe fn run(uc: *mut uc_engine, run: impl FnOnce() -> uc_error) -> Result<uc_error, GaveUp> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(install);
    // SAFETY: verified layout. An abandoned translation is no longer in progress; the next one sets both fields.
    unsafe {
        let tcg = tcg_of(uc);
        tcg.add(tcg::CPU).cast::<*mut c_void>().write(ptr::null_mut());
        tcg.add(tcg::CODE_BUF).cast::<*mut c_void>().write(ptr::null_mut());
    }
    let before = RUNNING.replace(uc);
    let error = run();
    RUNNING.set(before);
    GAVE_UP.take().map_or(Ok(error), Err)
}

/// While this lives, the thread runs a hook: an abort is not the engine's.
pub(crate) struct Outside(*mut uc_engine);

impl Outside {
    /// Enters a hook.
    #[inline(always)]
    pub fn enter() -> Self {
        Outside(RUNNING.replace(ptr::null_mut()))
    }
}

impl Drop for Outside {
    #[inline(always)]
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

fn install() {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a valid `sigaction`, and so are the fields set below. The handler is async-signal-safe.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = on_abort as *const () as usize;
        // The jump out of the handler does not restore the signal mask, so the signal is not masked.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGABRT, ptr::null(), before.as_mut_ptr());
        let _ = BEFORE.set(before.assume_init());
        libc::sigaction(libc::SIGABRT, &action, ptr::null_mut());
    }
}

extern "C" fn on_abort(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let uc = RUNNING.get();
    // SAFETY: the kernel gives a valid `siginfo_t`. `abort` has raised the signal on this thread, which runs `uc`.
    unsafe {
        if !uc.is_null() && (*info).si_code == libc::SI_TKILL && (*info).si_pid() == libc::getpid() {
            RUNNING.set(ptr::null_mut());
            leave(uc);
        }
        pass_on(signal, info, context);
    }
}

/// Jumps out of the engine, as the engine itself does when a fetch is refused in the middle of a translation.
///
/// # Safety
/// The thread is in `uc_emu_start` of `uc`, and in no frame above it that needs to be unwound.
unsafe fn leave(uc: *mut uc_engine) -> ! {
    unsafe extern "C-unwind" {
        fn cpu_loop_exit_x86_64(cpu: *mut u8) -> !;
    }
    // SAFETY: verified layout; the function is the pinned build's. The frames between here and the engine's loop are the C
    // library's `abort` and `raise`, C code of the engine, translated code, and those of this file, which own nothing.
    unsafe {
        let tcg = tcg_of(uc);
        let front = !tcg.add(tcg::CPU).cast::<*mut c_void>().read().is_null();
        let end = tcg.add(tcg::CODE_GEN_PTR).cast::<*mut c_void>().read();
        let back = tcg.add(tcg::CODE_BUF).cast::<*mut c_void>().read() == end;
        GAVE_UP.set(Some(if front || back { GaveUp::Translating } else { GaveUp::Running }));
        let engine = uc.cast::<u8>();
        engine.add(uc_off::INVALID_ERROR).cast::<c_int>().write(uc_error::EXCEPTION as c_int);
        let cpu = engine.add(uc_off::CPU).cast::<*mut u8>().read();
        cpu.add(cpu::EXIT_REQUEST).write(1);
        cpu_loop_exit_x86_64(cpu)
    }
}

/// Passes a SIGABRT to the handler that was installed before.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    type Plain = extern "C" fn(c_int);
    type Informed = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: the previous action is a handler of the kind that its flags say, or one of the two constants.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                libc::sigaction(libc::SIGABRT, before, ptr::null_mut());
                libc::raise(signal);
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                std::mem::transmute::<usize, Informed>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, Plain>(handler)(signal),
        }
    }
}

/// # Safety
/// `uc` is a live engine of the verified build.
unsafe fn tcg_of(uc: *mut uc_engine) -> *mut u8 {
    // SAFETY: by the contract.
    unsafe { uc.cast::<u8>().add(uc_off::TCG).cast::<*mut u8>().read() }
}
