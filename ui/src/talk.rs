//! Standard error: messages for a person, never data.

use std::io::IsTerminal;

use clap::ValueEnum;
use trapline_rpn::{Diagnostic, Diagnostics, Severity};
use trapline_trace::{Paint, shortened};

use crate::failure::Failure;
use crate::progress::{Form, Look, Progress, When};
use crate::{raw, terminal, wrong_file};

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// Text of one or more lines without control characters, since it may contain file names and text of guests.
fn safe(text: &str) -> String {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

/// Whether a terminal of this name (TERM) has no colours: `dumb`, DEC's own terminals, and the variants that end in `-m`.
fn has_one_colour(name: &str) -> bool {
    let dec = name.strip_prefix("vt").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    name == "dumb" || dec || name.ends_with("-m") || name.ends_with("-mono")
}

/// What the environment says about colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Wishes {
    /// NO_COLOR is set and not empty.
    none: bool,
    /// CLICOLOR_FORCE is set and not 0.
    force: bool,
    /// CLICOLOR is 0, or the terminal has no colours.
    off: bool,
}

impl Wishes {
    fn of_environment() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let one_colour = std::env::var("TERM").is_ok_and(|name| has_one_colour(&name));
        Self {
            none: set("NO_COLOR").is_some(),
            force: set("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            off: one_colour || set("CLICOLOR").is_some_and(|value| value == "0"),
        }
    }

    /// Whether an output has colours.
    fn allow(self, is_terminal: bool) -> bool {
        !self.none && (self.force || is_terminal && !self.off)
    }
}

/// The way to standard error.
#[derive(Debug, Clone, Copy)]
pub struct Talk {
    color: bool,
    /// Whether data on standard output have colours.
    data: bool,
    /// Whether data have colours wherever they go.
    always: bool,
    quiet: bool,
    progress: Option<Form>,
}

impl Talk {
    /// Decides on colours by the option, the environment and where there is a terminal.
    pub fn new(color: Color, quiet: bool) -> Self {
        let always = color == Color::Always;
        let of = |is_terminal| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => Wishes::of_environment().allow(is_terminal),
        };
        let (color, data) = (of(std::io::stderr().is_terminal()), of(std::io::stdout().is_terminal()));
        Self { color, data, always, quiet, progress: None }
    }

    /// Lets commands show how far they have come.
    pub fn with_progress(self, when: When) -> Self {
        let capable = std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
        Self { progress: when.form(capable && std::io::stderr().is_terminal(), self.quiet), ..self }
    }

    /// Shows how far the command has come, until what is returned is dropped.
    pub fn progress(self, look: Look) -> Progress {
        Progress::begin(self.progress, look)
    }

    /// Whether data on standard output have colours.
    pub fn colours_data(self) -> bool {
        self.data
    }

    /// The colours of data, which go to standard output or elsewhere.
    pub fn paint(self, to_stdout: bool) -> Paint {
        Paint::new(if to_stdout { self.data } else { self.always })
    }

    /// Whether `--color` and the environment let a screen have colours.
    pub fn colours_screen(self) -> bool {
        self.color
    }

    /// Whether `-q` was given.
    pub fn is_quiet(self) -> bool {
        self.quiet
    }

    /// The same, as with `-q`.
    pub fn silenced(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// A line that `-q` silences.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.mention(&format!("trapline: {}", safe(text)));
        }
    }

    /// The same, without the lines that `-q` silences.
    pub fn without_notes(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// A line about something that went wrong; `-q` does not silence it.
    pub fn warn(&self, text: &str) {
        self.mention(&format!("trapline: {}", safe(text)));
    }

    /// A line that was requested, or that must be shown: if it cannot be written, the command fails.
    pub fn line(&self, text: &str) {
        terminal::answer(ended(&shortened(text)).as_bytes());
    }

    /// A line that nobody has asked for.
    pub fn mention(&self, text: &str) {
        // If standard error is closed, there is nowhere to report that.
        let _ = terminal::message(ended(&shortened(text)).as_bytes());
    }

    /// A counter of a run.
    pub fn counter(&self, name: &str, value: &serde_json::Value) {
        self.line(&format!("{name:20} {value}"));
    }

    /// Bytes, such as a guest's console; `-q` silences them.
    pub fn remark_bytes(&self, bytes: &[u8]) {
        if !self.quiet {
            let _ = terminal::message(bytes);
        }
    }

    /// A heading over what follows; `-q` silences it.
    pub fn heading(&self, text: &str) {
        if !self.quiet {
            self.mention(&self.painted(CYAN, &format!("--- {text} ---")));
        }
    }

    /// Why a command failed.
    pub fn failure(&self, failure: &Failure) {
        match failure {
            Failure::Compile(diagnostics) => self.diagnostics(diagnostics),
            Failure::Script(diagnostics) => self.diagnostics(diagnostics),
            Failure::Templates(errors) => errors.to_string().lines().for_each(|line| self.error(line)),
            other => self.error(&other.to_string()),
        }
        if let Some(help) = wrong_file::help(failure) {
            self.mention(&format!("  help: {}", safe(&help)));
        }
    }

    /// One sentence about an error.
    pub fn error(&self, sentence: &str) {
        self.mention(&format!("trapline: {} {}", self.painted(RED, "error:"), safe(sentence)));
    }

    /// Diagnostics that are not a failure; `-q` silences them.
    pub fn remarks(&self, found: &Diagnostics) {
        if !self.quiet {
            self.diagnostics(found);
        }
    }

    /// Diagnostics with their source lines.
    pub fn diagnostics(&self, found: &Diagnostics) {
        self.findings(found).iter().for_each(|line| self.mention(line));
    }

    /// Diagnostics that were asked for; those that are not errors are silenced by `-q`.
    pub fn found(&self, found: &Diagnostics, remarks: bool) {
        if !(remarks && self.quiet) {
            self.findings(found).iter().for_each(|line| self.line(line));
        }
    }

    fn findings(&self, found: &Diagnostics) -> Vec<String> {
        let more = (found.more > 0).then(|| format!("{} more findings are not shown", found.more));
        found.list.iter().map(|diagnostic| self.diagnostic(diagnostic)).chain(more).collect()
    }

    fn diagnostic(&self, diagnostic: &Diagnostic) -> String {
        let text = safe(&diagnostic.to_string());
        if !self.color {
            return text;
        }
        let (word, color) = match diagnostic.severity {
            Severity::Error => ("error:", RED),
            Severity::Warning => ("warning:", YELLOW),
        };
        let marks = |line: &str| !line.trim().is_empty() && line.trim().bytes().all(|byte| byte == b'^');
        let painted = text.lines().enumerate().map(|(n, line)| match n {
            0 => line.replacen(word, &self.painted(color, word), 1),
            _ if marks(line) => self.painted(color, line),
            _ => line.to_owned(),
        });
        painted.collect::<Vec<String>>().join("\n")
    }

    fn painted(&self, color: &str, text: &str) -> String {
        if self.color { format!("{color}{text}{PLAIN}") } else { text.to_owned() }
    }
}

/// Lines with their ends.
fn ended(text: &str) -> String {
    match raw::is_raw() {
        // The guest may be in the middle of a line.
        true => format!("\r\n{}\r\n", text.replace('\n', "\r\n")),
        false => format!("{text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_asks_for_colours_or_refuses_them() {
        let (plain, all) = (Wishes::default(), Wishes { none: true, force: true, off: true });
        assert!(plain.allow(true) && !plain.allow(false));
        assert!(Wishes { none: false, ..all }.allow(false));
        assert!(!all.allow(true));
        assert!(!Wishes { off: true, ..plain }.allow(true));
    }
}
