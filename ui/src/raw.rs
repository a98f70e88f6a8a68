//! The raw mode of the terminal, which always ends: at the end, on errors, on a panic, and on a signal.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

/// Whether the terminal is in raw mode.
static RAW: AtomicBool = AtomicBool::new(false);

/// The terminal in raw mode; the mode ends when this is dropped.
pub struct Raw(());

impl Raw {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It has no raw mode.
    pub fn enter() -> io::Result<Self> {
        static AT_PANIC: Once = Once::new();
        AT_PANIC.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                before(panic);
            }));
        });
        enable_raw_mode()?;
        RAW.store(true, Ordering::SeqCst);
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        leave();
    }
}

/// Whether lines must end in CR LF.
pub fn is_raw() -> bool {
    RAW.load(Ordering::SeqCst)
}

/// Ends the raw mode. If this fails, nothing more can be done.
pub fn leave() {
    if RAW.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// Set where the test runs again, in a terminal.
    const IN_TERMINAL: &str = "TRAPLINE_TEST_IN_TERMINAL";

    /// The modes of the terminal that is standard input, written to it.
    fn show_modes() {
        assert!(Command::new("stty").arg("-a").status().unwrap().success());
    }

    /// Panics in raw mode, where nothing is unwound that would end it.
    fn panics() {
        std::mem::forget(Raw::enter().unwrap());
        show_modes();
        panic!("a panic in raw mode");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_is_shown() {
        if std::env::var_os(IN_TERMINAL).is_some() {
            return panics();
        }
        let name = "raw::tests::a_panic_gives_the_terminal_back_and_is_shown";
        let program = std::env::current_exe().unwrap();
        let line = format!("'{}' --exact {name} --nocapture; echo the modes:; stty -a", program.display());
        let mut script = Command::new("script");
        script.args(["-qfc", &line, "/dev/null"]).env(IN_TERMINAL, "1");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // `script` ends when its input does.
        let input = child.stdin.take();
        let mut shown = String::new();
        child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
        child.wait().unwrap();
        drop(input);
        let (raw, rest) = shown.split_once(" panicked at ").unwrap_or_else(|| panic!("no panic in\n{shown}"));
        assert!(raw.contains("-icanon") && raw.contains("-opost"), "{shown}");
        // With the modes of raw mode the line would end with LF alone.
        assert!(rest.contains("a panic in raw mode\r\n"), "{shown}");
        let (_, modes) = rest.split_once("the modes:").unwrap_or_else(|| panic!("no modes in\n{shown}"));
        for mode in ["icanon", "echo", "isig", "opost"] {
            assert!(modes.split_whitespace().any(|word| word == mode), "{mode}:\n{shown}");
        }
    }
}
