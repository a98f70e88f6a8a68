//! `run -i` and `record -i`: the terminal is the guest's console. Keys go to the guest; a key after Ctrl-A is a
//! command.
//!
//! Idle time of the guest passes in real time: while there is no input and no timer of the guest is due, the program
//! sleeps.

mod keys;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use trapline_session::{CommandError, Deed, InputLine, Operator, SavedSession, io_sentence};

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::raw::Raw;
use crate::talk::Talk;
use keys::{Key, Keys};

/// How long the program sleeps before it checks for signals.
const NAP: Duration = Duration::from_millis(100);
/// The keys.
const HELP: [&str; 5] = [
    "Ctrl-A x ends the run",
    "Ctrl-A s saves a snapshot into a file",
    "Ctrl-A n raises an NMI",
    "Ctrl-A a, or Ctrl-A twice, types Ctrl-A",
    "Ctrl-A h shows this",
];
/// Most bytes that are read at a time.
const READ: usize = 4096;

/// Checks that there is a terminal for `-i`, if this option is given.
///
/// # Errors
/// Standard input, or the destination of the console, is not a terminal.
pub fn check(args: &RunArgs, probed: bool) -> Result<(), Failure> {
    if !args.interactive {
        return Ok(());
    }
    let refused = |text: &str| Err(Failure::Usage(text.to_owned()));
    if !io::stdin().is_terminal() {
        return refused("-i needs a terminal as standard input; --script FILE types without one");
    }
    if probed && args.output.output.is_none() {
        if io::stdout().is_terminal() {
            return refused(
                "with -i the terminal is the guest's console; write the records into a file with -o FILE",
            );
        }
        if io::stderr().is_terminal() {
            return Ok(());
        }
    }
    if io::stdout().is_terminal() {
        return Ok(());
    }
    refused("-i needs a terminal for the guest's console; -o FILE writes records into a file")
}

/// A person at the terminal.
pub struct Person {
    keys: Keys,
    line: InputLine,
    /// Whether there is a second line for input.
    has_virtio: bool,
    /// The beginning of the names of snapshots.
    name: String,
    cancelled: Arc<AtomicBool>,
    talk: Talk,
    /// Restores the terminal at the end.
    _terminal: Raw,
}

impl Person {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It has no raw mode.
    pub fn sits_down(
        image: &str,
        has_virtio: bool,
        cancelled: Arc<AtomicBool>,
        talk: Talk,
    ) -> Result<Self, Failure> {
        talk.note("the terminal is the guest's console; Ctrl-A x ends the run, Ctrl-A h shows all keys");
        let terminal = Raw::enter().map_err(|error| {
            Failure::Usage(format!("the terminal cannot be used: {}", io_sentence(&error)))
        })?;
        let name = image.replace(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-'), "-");
        let (keys, line) = (Keys::default(), InputLine::Com1);
        Ok(Self { keys, line, has_virtio, name, cancelled, talk, _terminal: terminal })
    }

    fn say(&self, line: &str) {
        self.talk.warn(line);
    }

    fn help(&self) {
        let other = ["Ctrl-A c types at the other console: ttyS0 or hvc0"];
        let lines: Vec<&str> = HELP.iter().chain(other.iter().filter(|_| self.has_virtio)).copied().collect();
        self.talk.line(&lines.join("\n"));
    }

    fn deed(&mut self, key: Key) -> Option<Deed> {
        match key {
            Key::Typed(bytes) => return Some(Deed::Type(self.line, bytes)),
            Key::Command(b'x') => return Some(Deed::Leave),
            Key::Command(b's') => return Some(Deed::Save),
            Key::Command(b'n') => return Some(Deed::Nmi),
            Key::Command(b'h' | b'?') => self.help(),
            Key::Command(b'c') if self.has_virtio => {
                let (line, name) = match self.line {
                    InputLine::Com1 => (InputLine::Virtio, "hvc0"),
                    InputLine::Virtio | InputLine::Keyboard => (InputLine::Com1, "ttyS0"),
                };
                self.line = line;
                self.say(&format!("input now goes to {name}"));
            }
            Key::Command(other) => {
                self.say(&format!("Ctrl-A {} means nothing; Ctrl-A h shows all keys", other.escape_ascii()));
            }
        }
        None
    }

    /// Waits for input, at most for a given time; returns whether there is any.
    fn waits(&self, time: Duration) -> bool {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // A signal interrupts the wait; it is handled afterwards.
        matches!(poll(&mut fds, Some(&time)), Ok(1..))
    }

    /// Writes a snapshot to a file with a new name.
    fn save(&self, saved: &SavedSession) -> Result<PathBuf, String> {
        let bytes = saved.to_bytes().map_err(|error| error.to_string())?;
        let count = saved.icount();
        let mut numbers = 1u64..;
        loop {
            let path = match numbers.next() {
                None | Some(1) => PathBuf::from(format!("{}-{count}.snapshot", self.name)),
                Some(n) => PathBuf::from(format!("{}-{count}-{n}.snapshot", self.name)),
            };
            match File::create_new(&path).and_then(|mut file| file.write_all(&bytes)) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(format!("cannot write {}: {}", path.display(), io_sentence(&error)));
                }
            }
        }
    }
}

impl Operator for Person {
    fn deeds(&mut self) -> Vec<Deed> {
        if !self.waits(Duration::ZERO) {
            return Vec::new();
        }
        let mut bytes = [0; READ];
        match io::stdin().lock().read(&mut bytes) {
            Ok(read @ 1..) => {
                let keys = self.keys.take(bytes.get(..read).unwrap_or_default());
                keys.into_iter().filter_map(|key| self.deed(key)).collect()
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Vec::new(),
            // The terminal is gone.
            Ok(0) | Err(_) => vec![Deed::Leave],
        }
    }

    fn idle(&mut self, ns: Option<u64>) -> u64 {
        let (began, all) = (Instant::now(), ns.map_or(Duration::MAX, Duration::from_nanos));
        loop {
            let passed = began.elapsed();
            let left = all.saturating_sub(passed);
            let ends = left.is_zero() || self.cancelled.load(Ordering::SeqCst);
            if ends || self.waits(left.min(NAP)) {
                return u64::try_from(began.elapsed().min(all).as_nanos()).unwrap_or(u64::MAX);
            }
        }
    }

    fn saved(&mut self, saved: &SavedSession) {
        match self.save(saved) {
            Ok(path) => self.say(&format!("snapshot {} at {} instructions", path.display(), saved.icount())),
            Err(why) => self.say(&format!("no snapshot: {why}")),
        }
    }

    fn refused(&mut self, error: &CommandError) {
        self.say(&error.to_string());
    }
}
