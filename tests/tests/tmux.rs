//! A terminal of tmux: keys are sent to it, and what it shows is captured.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::process::Command;

use crate::cli::programs;
use crate::patience::{looks, until};
use trapline_tests::root;

/// The settings of the server: only the program is on the screen, and Escape is a key of its own.
const SETTINGS: &str = "set -g status off\nset -sg escape-time 0\nset -g default-terminal screen-256color\n";

/// A window of tmux with a shell in it, in which `trapline` is the program. Its server is its own.
pub struct Tmux {
    folder: tempfile::TempDir,
}

impl Tmux {
    /// A window of this size.
    pub fn new(width: u16, height: u16) -> Self {
        let tmux = Self { folder: tempfile::tempdir().unwrap() };
        let settings = tmux.folder.path().join("settings");
        std::fs::write(&settings, SETTINGS).unwrap();
        let programs = programs();
        let shell = format!("PATH='{programs}':$PATH PS1='ready> ' ENV= exec sh -i");
        let (width, height) = (width.to_string(), height.to_string());
        let window = ["new-session", "-d", "-x", &width, "-y", &height, &shell];
        tmux.run(&[&["-f", settings.to_str().unwrap()], window.as_slice()].concat());
        tmux.shows("ready>");
        let log = format!("cat >> '{}'", tmux.log().display());
        tmux.run(&["pipe-pane", &log]);
        tmux
    }

    /// The file with all that was written to the window.
    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Runs a command of tmux; what it prints.
    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(self.folder.path().join("socket")).args(args).current_dir(root());
        command.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env("XDG_CONFIG_HOME", "/nonexistent");
        let output = command.env_remove("TMUX").env("TERM", "xterm").output().expect("tmux is not installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types characters.
    pub fn types(&self, text: &str) {
        self.run(&["send-keys", "-l", "--", text]);
    }

    /// Presses keys by their names in tmux: `Enter`, `Escape`, `C-o`.
    pub fn presses(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// What is shown, once this is among it and no move is under way. What the program draws after it may be missing.
    pub fn shows(&self, wanted: &str) -> String {
        self.shows_that(wanted, |shown| shown.contains(wanted) && !shown.contains("  going "))
    }

    /// What is shown, once this holds.
    pub fn shows_that(&self, wanted: &str, holds: impl Fn(&str) -> bool) -> String {
        let mut shown = String::new();
        for () in looks() {
            shown = self.run(&["capture-pane", "-p"]);
            if holds(&shown) {
                return shown;
            }
        }
        panic!("`{wanted}` is not shown:\n{shown}")
    }

    /// What the window got so far, on the screen or not.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log()).unwrap_or_default()).into_owned()
    }

    /// Waits until the window got this, even if it is gone from the screen by now.
    pub fn writes(&self, wanted: &str) {
        until(wanted, || self.written().contains(wanted));
    }

    /// Another size.
    pub fn resize(&self, width: u16, height: u16) {
        self.run(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// Whether a program has the whole screen, and whether the cursor is shown.
    pub fn modes(&self) -> (bool, bool) {
        let said = self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        let mut flags = said.split_whitespace().map(|flag| flag == "1");
        (flags.next().unwrap(), flags.next().unwrap())
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let socket = self.folder.path().join("socket");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}
