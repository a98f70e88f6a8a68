//! A panic gives the terminal back, and is shown. The tests that end with `in_a_terminal` panic; the others run them in a
//! pseudo-terminal, which `script` makes, and look at what that gets.

use std::io::{Read, Write};
use std::process::{Child, Command as Process, Stdio};

use super::*;
use crate::terminal;

/// What turns the alternate screen on and off.
const SCREEN: (&str, &str) = ("\x1b[?1049h", "\x1b[?1049l");

struct Pty {
    child: Child,
    output: Receiver<Vec<u8>>,
    text: String,
    /// What a terminal shows of it: where two frames have the same letters, no letters are sent.
    screen: vt100::Parser,
}

impl Pty {
    /// Runs a test in a terminal that has other modes at the end if it was not given back.
    fn running(test: &str) -> Self {
        let own = std::env::current_exe().unwrap();
        let line = format!(
            "stty cols 80 rows 24; '{}' --ignored --exact tests::panics::{test} --nocapture; echo the modes:; stty -a",
            own.display()
        );
        let mut script = Process::new("script");
        script.args(["-qfc", &line, "/dev/null"]).env("TERM", "xterm");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut from = child.stdout.take().unwrap();
        let (told, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                if told.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, output, text: String::new(), screen: vt100::Parser::new(24, 80, 0) }
    }

    /// Waits until this was written or is shown.
    fn shows(&mut self, wanted: &str) {
        while !self.text.contains(wanted) && !self.screen.screen().contents().contains(wanted) {
            let bytes = self
                .output
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("no `{wanted}` in\n{}", self.text));
            self.screen.process(&bytes);
            self.text += &String::from_utf8_lossy(&bytes);
        }
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// The panic is shown after the screen was left, and the terminal has its own modes again.
    fn assert_given_back(mut self, panic: &str) {
        self.shows("the modes:");
        self.shows("echoke");
        let (on, off) = (self.text.rfind(SCREEN.0).unwrap(), self.text.rfind(SCREEN.1).unwrap());
        let said = self.text.rfind(panic).unwrap_or_else(|| panic!("no `{panic}` in\n{}", self.text));
        assert!(on < off && off < said, "{}", self.text);
        let modes = self.text.split_once("the modes:").unwrap().1;
        let set = |mode: &str| modes.split_whitespace().any(|word| word.trim_end_matches(';') == mode);
        assert!(set("icanon") && set("echo") && set("isig"), "{modes}");
        self.child.wait().unwrap();
    }
}

#[test]
#[ignore = "panics; another test runs it"]
fn of_the_screen_in_a_terminal() {
    terminal::restore_at_panic();
    let guard = terminal::Guard;
    terminal::enter(true).unwrap();
    let told = "the screen is defective";
    assert!(told.is_empty(), "{told}");
    drop(guard);
}

#[test]
fn a_panic_of_the_user_interface_gives_the_terminal_back_and_is_shown() {
    Pty::running("of_the_screen_in_a_terminal").assert_given_back("the screen is defective");
}

/// A run that panics when it is made again.
struct Defective(SameRun);

impl Again for Defective {
    fn session(&self) -> Result<Session, String> {
        self.0.session()
    }

    fn timeline(&self, _: &[Command]) -> Result<Timeline, String> {
        panic!("the timeline is defective")
    }

    fn program(&self, path: &str) -> Result<Command, String> {
        self.0.program(path)
    }

    fn clauses(&self, text: &str) -> Result<Command, String> {
        Err(format!("{text} is not compiled"))
    }

    fn observes(&self, command: &Command) -> bool {
        self.0.observes(command)
    }
}

#[test]
#[ignore = "panics; another test runs it"]
fn of_another_thread_in_a_terminal() {
    let opening = opening(|guest| Arc::new(Defective(SameRun(guest))));
    let settings =
        crate::Settings { look: PLAIN, keys: String::new(), programs: Vec::new(), session: None, at: None };
    let shown = crate::run(opening, settings);
    println!("{}", shown.unwrap_err());
}

#[test]
fn a_panic_of_another_thread_ends_the_user_interface_and_is_shown() {
    let mut terminal = Pty::running("of_another_thread_in_a_terminal");
    terminal.shows("listed");
    terminal.press("afbt::do_fork:entry\r");
    terminal.assert_given_back("the timeline is defective");
}
