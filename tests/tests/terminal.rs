//! A pseudo-terminal with `trapline` in it, which `script` makes: keys go in, and what a terminal shows comes out.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::cli::binary;
use trapline_tests::root;

const PATIENCE: Duration = Duration::from_secs(200);
/// A screen that has not changed for this long is complete.
const QUIET: Duration = Duration::from_millis(40);
/// Reads a second of a terminal that reads slowly.
const PARTS: usize = 50;

/// A terminal of 80x24 with a program in it.
pub struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Bytes that it has shown.
    received: usize,
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
        let folder = binary().parent().unwrap().display().to_string();
        let line = format!("stty cols 80 rows 24; PATH='{folder}':$PATH PS1='ready> ' ENV= exec sh -i");
        Self::of_script(&line, &root(), pid_file, None)
    }

    /// A terminal that reads so many bytes a second.
    pub fn slow(args: &[&str], bytes_per_second: usize) -> Self {
        Self::of_args(&root(), args, "", Some(bytes_per_second))
    }

    fn running(folder: &Path, args: &[&str], after: &str) -> Self {
        Self::of_args(folder, args, after, None)
    }

    fn of_args(folder: &Path, args: &[&str], after: &str, speed: Option<usize>) -> Self {
        let pid_file = tempfile::NamedTempFile::new().unwrap();
        let (program, pid) = (binary(), pid_file.path().to_owned());
        let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
        let line = format!(
            "stty cols 80 rows 24; sh -c 'echo $$ > {}; exec \"$@\"' sh {} {}{after}",
            pid.display(),
            program.display(),
            quoted.join(" ")
        );
        Self::of_script(&line, folder, pid_file, speed)
    }

    fn of_script(line: &str, folder: &Path, pid_file: tempfile::NamedTempFile, speed: Option<usize>) -> Self {
        let mut script = Command::new("script");
        script.args(["-qefc", line, "/dev/null"]).current_dir(folder);
        script
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env("XDG_CONFIG_HOME", "/nonexistent");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut from = child.stdout.take().unwrap();
        if speed.is_some() {
            // Little waits on the way from `script` to here.
            rustix::pipe::fcntl_setpipe_size(&from, 4096).unwrap();
        }
        let (told, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            let part = speed.map_or(bytes.len(), |speed| (speed / PARTS).clamp(1, bytes.len()));
            while let Ok(read @ 1..) = from.read(&mut bytes[..part]) {
                if told.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
                if speed.is_some() {
                    std::thread::sleep(Duration::from_secs(1) / PARTS as u32);
                }
            }
        });
        Self { child, output, screen: vt100::Parser::new(24, 80, 0), received: 0, pid_file }
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// What is shown, once this is among it and no move is under way.
    pub fn shows(&mut self, wanted: &str) -> String {
        self.shows_that(wanted, |shown| shown.contains(wanted) && !shown.contains("  going "))
    }

    /// Waits until the screen ends with the text, as with a shell's prompt; the screen.
    pub fn ends_with(&mut self, wanted: &str) -> String {
        self.shows_that(wanted, |shown| shown.trim_end().ends_with(wanted))
    }

    /// The screen, once this holds and nothing more is written: a frame may come in pieces.
    fn shows_that(&mut self, wanted: &str, holds: impl Fn(&str) -> bool) -> String {
        let from = Instant::now();
        loop {
            let shown = self.screen.screen().contents();
            match self.output.recv_timeout(QUIET) {
                Ok(bytes) => {
                    self.received += bytes.len();
                    self.screen.process(&bytes);
                }
                Err(_) if holds(&shown) => {
                    return shown.lines().map(|line| format!("{}\n", line.trim_end())).collect();
                }
                Err(_) => std::thread::sleep(QUIET),
            }
            if from.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("`{wanted}` is not shown:\n{shown}");
            }
        }
    }

    /// Bytes that it has shown so far.
    pub const fn received(&self) -> usize {
        self.received
    }

    /// Whether a program has the whole screen.
    pub fn is_full_screen(&self) -> bool {
        self.screen.screen().alternate_screen()
    }

    /// Waits for the end; the exit code.
    pub fn end(mut self) -> (Option<i32>, vt100::Parser) {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.screen.process(&bytes);
        }
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
