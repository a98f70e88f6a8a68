//! The modes of the terminal, which are always restored: at the end, on a panic, for the shell.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
    KeyboardEnhancementFlags, PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Whether the terminal is in the modes of the user interface.
static ENTERED: AtomicBool = AtomicBool::new(false);
/// Held while a frame is written, and while the terminal is restored.
static WRITING: Mutex<()> = Mutex::new(());
/// The message of another thread's panic.
static PANICKED: Mutex<Option<String>> = Mutex::new(None);

/// Takes the terminal.
///
/// # Errors
/// It cannot be written, or is not a terminal.
pub fn enter(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    // A terminal that knows no other codes for keys ignores the request, or shows it as text, which is cleared.
    let keys = PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES);
    execute!(out, EnterAlternateScreen, EnableBracketedPaste, keys, Clear(ClearType::All), Hide)?;
    if mouse { execute!(out, EnableMouseCapture) } else { Ok(()) }
}

/// Restores the terminal. If this fails, nothing more can be done.
pub fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        // A frame that is being written is completed first; a panic while one was written does not matter.
        let _writing = WRITING.lock();
        // Not `io::stdout()` itself, whose lock another thread may hold.
        let Ok(out) = io::stdout().as_fd().try_clone_to_owned() else { return };
        let mut out = File::from(out);
        let _ = execute!(out, DisableMouseCapture, PopKeyboardEnhancementFlags, DisableBracketedPaste);
        let _ = execute!(out, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = out.flush();
    }
}

/// Writes a frame as a whole, unless the terminal has been restored already.
///
/// # Errors
/// The terminal cannot be written.
pub fn write(frame: &[u8], out: &mut impl Write) -> io::Result<()> {
    let _writing = WRITING.lock();
    if ENTERED.load(Ordering::SeqCst) { out.write_all(frame).and_then(|()| out.flush()) } else { Ok(()) }
}

/// Uses the mouse, or leaves it to the terminal.
///
/// # Errors
/// The output cannot be written.
pub fn mouse(on: bool, out: &mut impl Write) -> io::Result<()> {
    if on { execute!(out, EnableMouseCapture) } else { execute!(out, DisableMouseCapture) }
}

/// Restores the terminal when it is dropped.
pub struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        leave();
    }
}

/// From now on, a panic of this thread restores the terminal before its message is shown. The message of another thread's first
/// panic is kept for `panicked`.
pub fn restore_at_panic() {
    let before = std::panic::take_hook();
    let own = std::thread::current().id();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == own {
            leave();
            before(panic);
        } else if let Ok(mut said) = PANICKED.lock() {
            said.get_or_insert_with(|| panic.to_string());
        }
    }));
}

/// The message of another thread's panic, if there was one.
pub fn panicked() -> Option<String> {
    PANICKED.lock().ok().and_then(|said| said.clone())
}

/// Copies a text to the clipboard of the terminal, by OSC 52.
///
/// # Errors
/// The output cannot be written.
pub fn copy(text: &str, out: &mut impl Write) -> io::Result<()> {
    write!(out, "\x1b]52;c;{}\x07", base64(text.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let value = (0..3).fold(0u32, |value, n| value << 8 | u32::from(three.get(n).copied().unwrap_or(0)));
        for n in 0..4 {
            let digit = DIGITS.get((value >> (18 - 6 * n) & 63) as usize).copied().unwrap_or(b'=');
            text.push(if n > three.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (text, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }
}
