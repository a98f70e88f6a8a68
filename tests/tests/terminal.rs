//! A pseudo-terminal with `trapline` in it, which `script` makes: keys go in, and what a terminal shows comes out.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use crate::cli::{binary, programs};
use crate::patience::PATIENCE;
use trapline_tests::{guests_of, root};

/// What encloses a frame of a program that has the whole screen.
const FRAME: [&[u8]; 2] = [b"\x1b[?2026h", b"\x1b[?2026l"];
/// Parts of the output that wait to be taken. There is no test with more, so that none but an unread terminal waits.
const MANY: usize = 1 << 20;

/// A terminal of 80x24 with a program in it.
pub struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// What has come and is not shown yet.
    left: VecDeque<u8>,
    /// All that it has shown.
    log: Vec<u8>,
    /// Where the log was when keys were pressed last.
    pressed: usize,
    /// Whether a frame has begun and not ended.
    in_frame: bool,
    pid_file: tempfile::NamedTempFile,
}

impl Terminal {
    pub fn new(args: &[&str]) -> Self {
        Self::running(&root(), args, "")
    }

    /// Shows the terminal's modes when the program has ended.
    pub fn with_modes(args: &[&str]) -> Self {
        Self::in_folder(&root(), args)
    }

    /// The same in a folder.
    pub fn in_folder(folder: &Path, args: &[&str]) -> Self {
        Self::running(folder, args, "; code=$?; echo the modes:; stty -a; exit $code")
    }

    /// A shell with job control, which starts the program by `trapline`.
    pub fn shell() -> Self {
        let pid_file = tempfile::NamedTempFile::new().unwrap();
        let folder = programs();
        let line = format!("stty cols 80 rows 24; PATH='{folder}':$PATH PS1='ready> ' ENV= exec sh -i");
        Self::of_script(&line, &root(), pid_file, true)
    }

    /// A terminal that reads only while a test waits for what it shows.
    pub fn unread(args: &[&str]) -> Self {
        Self::of_args(&root(), args, "", false)
    }

    fn running(folder: &Path, args: &[&str], after: &str) -> Self {
        Self::of_args(folder, args, after, true)
    }

    fn of_args(folder: &Path, args: &[&str], after: &str, reads: bool) -> Self {
        let pid_file = tempfile::NamedTempFile::new().unwrap();
        let (program, pid) = (binary(), pid_file.path().to_owned());
        let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
        let line = format!(
            "stty cols 80 rows 24; sh -c 'echo $$ > {}; exec \"$@\"' sh {} {}{after}",
            pid.display(),
            program.display(),
            quoted.join(" ")
        );
        Self::of_script(&line, folder, pid_file, reads)
    }

    fn of_script(line: &str, folder: &Path, pid_file: tempfile::NamedTempFile, reads: bool) -> Self {
        guests_of(line);
        let mut script = Command::new("script");
        script.args(["-qefc", line, "/dev/null"]).current_dir(folder);
        script
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env("XDG_CONFIG_HOME", "/nonexistent");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut from = child.stdout.take().unwrap();
        if !reads {
            // Little waits on the way from `script` to here.
            rustix::pipe::fcntl_setpipe_size(&from, 4096).unwrap();
        }
        let (told, output) = mpsc::sync_channel(if reads { MANY } else { 0 });
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                if told.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(24, 80, 0);
        Self {
            child,
            output,
            screen,
            left: VecDeque::new(),
            log: Vec::new(),
            pressed: 0,
            in_frame: false,
            pid_file,
        }
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        self.pressed = self.log.len();
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// What is shown, once this is among it and no move is under way. It must not have been there when the keys were
    /// pressed that are to show it: what is on the screen already counts.
    pub fn shows(&mut self, wanted: &str) -> String {
        // A prompt may end with a space.
        self.waits(wanted, |shown, _| shown.contains(wanted) && !shown.contains("  going "))
    }

    /// Waits until the screen ends with the text, as with a shell's prompt; the screen.
    pub fn ends_with(&mut self, wanted: &str) -> String {
        self.shows_that(wanted, |shown| shown.trim_end().ends_with(wanted))
    }

    /// The first screen for which this holds. A program that has the whole screen marks its frames, and no part of one is
    /// looked at; each whole one is, however fast the next one comes.
    pub fn shows_that(&mut self, wanted: &str, holds: impl Fn(&str) -> bool) -> String {
        self.waits(wanted, |_, shown| holds(shown))
    }

    /// The same with the screen as it is, and without the spaces at the ends of its lines.
    fn waits(&mut self, wanted: &str, holds: impl Fn(&str, &str) -> bool) -> String {
        loop {
            let shown = text(&self.screen);
            if !self.in_frame && holds(&self.screen.screen().contents(), &shown) {
                return shown;
            }
            self.take_for(&format!("`{wanted}` is not shown"));
        }
    }

    /// Waits until this was written since keys were pressed last, on the screen or as a code, even if it is gone by now.
    pub fn writes(&mut self, wanted: &str) {
        let is_there = |log: &[u8]| log.windows(wanted.len()).any(|part| part == wanted.as_bytes());
        while !is_there(&self.log[self.pressed..]) {
            self.take_for(&format!("{wanted:?} is not written"));
        }
    }

    /// Waits until anything was written since keys were pressed last.
    pub fn writes_more(&mut self) {
        while self.log.len() == self.pressed {
            self.take_for("nothing is written");
        }
    }

    /// [`Self::take`], for a test that fails where nothing comes.
    fn take_for(&mut self, missing: &str) {
        if !self.take() {
            let _ = self.child.kill();
            panic!("{missing}:\n{}", text(&self.screen));
        }
    }

    /// Shows what comes next, up to the end of a frame; whether anything came.
    fn take(&mut self) -> bool {
        if self.left.is_empty() {
            let Ok(bytes) = self.output.recv_timeout(PATIENCE) else { return false };
            self.left.extend(bytes);
        }
        while let Some(byte) = self.left.pop_front() {
            self.log.push(byte);
            self.screen.process(&[byte]);
            if self.log.ends_with(FRAME[0]) {
                self.in_frame = true;
            }
            if self.log.ends_with(FRAME[1]) {
                self.in_frame = false;
                break;
            }
        }
        true
    }

    /// Bytes that it has shown so far.
    pub const fn received(&self) -> usize {
        self.log.len()
    }

    /// Whether a program has the whole screen.
    pub fn is_full_screen(&self) -> bool {
        self.screen.screen().alternate_screen()
    }

    /// Waits for the end; the exit code.
    pub fn end(mut self) -> (Option<i32>, vt100::Parser) {
        while self.take() {}
        (self.child.wait().unwrap().code(), self.screen)
    }

    /// The process of the program.
    pub fn pid(&self) -> u32 {
        std::fs::read_to_string(self.pid_file.path()).unwrap().trim().parse().unwrap()
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

/// The lines of a screen, without spaces at their ends.
fn text(screen: &vt100::Parser) -> String {
    screen.screen().contents().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
