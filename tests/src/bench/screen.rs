//! The terminal UI with all hits of all functions of Debian's cloud kernel, from its start to the shell: how long its frames and
//! answers take, by its own measure (`--frame-stats`).

use super::table::{Row, Target};
use std::error::Error;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use trapline_tests::linux::Linux;
use trapline_tests::{built, root};

/// Upper bounds: ms for a frame and for the answer to an input, and bytes of a hit.
const FRAME: f64 = 16.0;
const ANSWER: f64 = 50.0;
const BYTES: f64 = 24.0;

/// The longest wait for a text.
const PATIENCE: Duration = Duration::from_secs(600);
/// A screen that has not changed for so long is complete.
const QUIET: Duration = Duration::from_millis(300);
/// Keys, one group after the other, each when the screen is complete: to hits, to both ends, sorted by probe, filtered, the other
/// panes, another probe.
const KEYS: &[&str] = &[
    "g#13500000\r",
    "g#1\r",
    "g#7000000\r",
    "g#13999999\r",
    "g#200000\r",
    "]",
    "[",
    "}",
    "{",
    "\x1b[F",
    "\x1b[H",
    "tt",
    "v",
    "tt",
    "\x1b[6~",
    "/kmalloc\r",
    "/\x15\r",
    "/init\r",
    "/\x15\r",
    "8",
    "\x1b[F",
    "9",
    "0",
    "5",
    "4",
    "2",
    "?",
    "?",
    "1z",
    "z",
    "w\x15/dev/null\r",
    "afbt::do_exit:entry { push pid; log 1 }\r",
];

/// The program in a terminal, which `script` makes.
struct Screen {
    child: Child,
    output: Receiver<Vec<u8>>,
    text: String,
}

impl Screen {
    fn start(linux: &Linux) -> Result<Self, Box<dyn Error>> {
        let guests = root().join(".guests");
        let line = format!(
            "stty cols 200 rows 60; exec '{}' tui '{}' --initrd '{}' --rpn 'fbt:::entry {{ }}' --until '/ # ' --frame-stats",
            built::trapline()?.display(),
            guests.join(format!("linux-{}", linux.flavour)).display(),
            guests.join(format!("initramfs-{}.cpio.gz", linux.arch)).display()
        );
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        script.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn()?;
        let mut from = child.stdout.take().ok_or("script has no output")?;
        let (told, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                if told.send(bytes.get(..read).unwrap_or_default().to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, output, text: String::new() })
    }

    /// Waits until this is shown. Words are shown as a whole, sentences perhaps in parts.
    fn shows(&mut self, word: &str) -> Result<(), Box<dyn Error>> {
        let from = Instant::now();
        while !self.text.contains(word) {
            let left = PATIENCE.saturating_sub(from.elapsed());
            let bytes =
                self.output.recv_timeout(left).map_err(|_| format!("the screen does not show `{word}`"))?;
            self.text += &String::from_utf8_lossy(&bytes);
        }
        Ok(())
    }

    /// Waits until nothing more is shown.
    fn rest(&mut self) {
        while let Ok(bytes) = self.output.recv_timeout(QUIET) {
            self.text += &String::from_utf8_lossy(&bytes);
        }
    }

    fn press(&mut self, keys: &str) -> Result<(), Box<dyn Error>> {
        self.text.clear();
        let input = self.child.stdin.as_mut().ok_or("script has no input")?;
        input.write_all(keys.as_bytes())?;
        Ok(input.flush()?)
    }
}

/// The number after a text.
fn after(text: &str, mark: &str) -> Result<f64, Box<dyn Error>> {
    let rest = text.split_once(mark).ok_or_else(|| format!("no `{mark}` in {text}"))?.1;
    Ok(rest.split_whitespace().next().unwrap_or_default().parse()?)
}

/// Frames, answers, bytes of a hit.
///
/// # Errors
/// The guest is missing, or the program does not show what it should.
pub fn rows(linux: &Linux, _: usize) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut screen = Screen::start(linux)?;
    screen.shows("listed")?;
    for keys in KEYS {
        screen.rest();
        screen.press(keys)?;
    }
    screen.shows("listed")?;
    screen.press("q")?;
    screen.shows("MiB of their data")?;
    screen.child.wait()?;
    let said = screen.text;
    let frame = after(&said, " frames, the longest ")?;
    let own = after(&said, "without waiting for a processor, the longest ")?;
    let answer = after(&said, " inputs, the longest answered after ")?;
    let bytes = after(&said, " hits in the list, ")?;
    let row = |what: &str, value: f64, unit, of, bound: f64| {
        Row::plain(what, value, unit).against(value / bound, of, Target::AtMost(1.0))
    };
    Ok(vec![
        Row::plain("the longest frame, by the clock", frame, "ms"),
        row("the longest frame, processor time", own, "ms", "16 ms", FRAME),
        row("the longest time from an input to its frame", answer, "ms", "50 ms", ANSWER),
        row("bytes of a hit in the list", bytes, "B", "24 bytes", BYTES),
    ])
}
