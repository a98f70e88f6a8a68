//! Which pager shows long texts, as git finds it: TRAPLINE_PAGER, then PAGER, then less.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::{Child, Command, Stdio};

use crate::terminal;

/// Characters that make a command one for the shell.
const FOR_THE_SHELL: &str = "|&;<>()$`\\\"'*?[#~=%{}";

/// A pager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// less, if it is installed.
    Less,
    /// The command that a variable names.
    Named(String),
}

impl Choice {
    /// The pager for standard output; none if it is no terminal, or the user wants none.
    pub fn of_environment() -> Option<Self> {
        let capable = std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
        if !capable || !io::stdout().is_terminal() {
            return None;
        }
        Self::of(std::env::var_os("TRAPLINE_PAGER"), std::env::var_os("PAGER"))
    }

    /// The choice by the values of TRAPLINE_PAGER and PAGER.
    fn of(own: Option<OsString>, common: Option<OsString>) -> Option<Self> {
        let Some(value) = own.or(common) else { return Some(Self::Less) };
        match value.to_string_lossy().trim() {
            "" | "cat" => None,
            "less" => Some(Self::Less),
            command => Some(Self::Named(command.to_owned())),
        }
    }

    /// Whether a shell starts it, so that one learns late whether there is such a program.
    pub fn needs_shell(&self) -> bool {
        matches!(self, Self::Named(text) if text.contains(|c| FOR_THE_SHELL.contains(c)))
    }

    /// Starts it; nothing if it cannot be started.
    pub fn start(&self) -> Option<Child> {
        let mut command = match self {
            Self::Less => Command::new("less"),
            Self::Named(text) if self.needs_shell() => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(text);
                command
            }
            Self::Named(text) => {
                let mut words = text.split_whitespace();
                let mut command = Command::new(words.next()?);
                command.args(words);
                command
            }
        };
        // F: end at once if the text fits; R: show colours; X: leave the text on the screen.
        for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
            if std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::piped()).spawn().ok()
    }

    /// Says that a pager that the user has named cannot be started.
    pub fn complain(&self) {
        if let Self::Named(text) = self {
            let shown: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            // If standard error is closed, there is nowhere to report that.
            let _ = terminal::message(
                format!("trapline: the pager `{shown}` cannot be started; the text is shown without it\n")
                    .as_bytes(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_variable_comes_before_the_common_one_and_less_is_last() {
        let of = |own: Option<&str>, common: Option<&str>| {
            Choice::of(own.map(OsString::from), common.map(OsString::from))
        };
        let named = |text: &str| Some(Choice::Named(text.to_owned()));
        assert_eq!(of(None, None), Some(Choice::Less));
        assert_eq!(of(None, Some("more")), named("more"));
        assert_eq!(of(Some("most -s"), Some("more")), named("most -s"));
        for none in ["", " ", "cat"] {
            assert_eq!(of(Some(none), Some("more")), None, "{none:?}");
            assert_eq!(of(None, Some(none)), None, "{none:?}");
        }
        assert_eq!(of(Some("less"), Some("cat")), Some(Choice::Less));
    }

    #[test]
    fn a_pager_that_is_not_installed_is_not_started() {
        assert!(Choice::Named("/nonexistent/pager -x".to_owned()).start().is_none());
    }
}
