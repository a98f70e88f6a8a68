//! Panics of a run: caught before they would unwind through C code, and reported with their location.
//!
//! `catch_unwind` gives the message alone. Only the process's panic hook knows the location, so a hook is installed
//! before the existing one. It notes both on a thread that runs a machine, and passes all other panics on.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether this thread runs a machine.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    /// The last panic of a run on this thread.
    static NOTED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The payload that resumes a caught panic whose message has been noted.
pub(crate) struct Known;

/// Runs a machine; its panics are noted, not printed. The error says what has panicked, and where.
pub(crate) fn noting<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(install);
    let before = RUNNING.replace(true);
    let result = catch(AssertUnwindSafe(run));
    RUNNING.set(before);
    result
}

/// Calls `act`; if that panics, the error says what has panicked, and where. It costs nothing unless there is a panic.
#[inline(always)]
pub(crate) fn catch<T>(act: AssertUnwindSafe<impl FnOnce() -> T>) -> Result<T, String> {
    catch_unwind(act).map_err(text)
}

fn install() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !RUNNING.get() {
            return others(info);
        }
        let place = info
            .location()
            .map_or_else(|| "an unknown place".into(), |at| format!("{}:{}", at.file(), at.line()));
        let text = format!("{}, at {place}", message(info.payload()));
        NOTED.with(|noted| noted.replace(text));
    }));
}

#[cold]
fn text(payload: Box<dyn Any + Send>) -> String {
    let noted = NOTED.take();
    let text = if noted.is_empty() { message(&*payload) } else { noted };
    // Dropping the payload may panic in turn, and C code may be further up the stack.
    std::mem::forget(payload);
    text
}

/// The message of a panic's payload.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_reported_with_its_location() {
        let text = noting(|| panic!("no {}", "luck")).unwrap_err();
        assert!(text.starts_with("no luck, at ") && text.contains("panics.rs:"), "{text}");
    }

    #[test]
    fn a_panic_without_text_is_reported_too() {
        let text = noting(|| std::panic::panic_any(7)).unwrap_err();
        assert!(text.starts_with("a panic without a message, at "), "{text}");
    }

    #[test]
    fn a_run_that_does_not_panic_gives_its_result() {
        assert_eq!(noting(|| 7), Ok(7));
        assert!(!RUNNING.get());
    }
}
