//! How bash and zsh ask for completions, and how they are answered. (For fish, `clap_complete` has both.)
//!
//! bash gives the line as it was typed, because it splits words at colons, which the names of images and probes contain.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap_complete::CompletionCandidate;
use clap_complete::engine::complete;
use clap_complete::env::EnvCompleter;

use super::words::{Line, Quote};

/// The functions that `trapline completions` prints.
const BASH: &str = include_str!("bash.sh");
const ZSH: &str = include_str!("zsh.sh");

/// bash.
pub struct Bash;

/// zsh.
pub struct Zsh;

impl Bash {
    /// The line that is being completed.
    pub fn line() -> Option<Line> {
        let [before, after] = ["_TRAPLINE_BEFORE", "_TRAPLINE_AFTER"].map(|name| env::var(name).ok());
        Some(Line::split(&before?, &after?))
    }
}

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(&self, _: &str, _: &str, _: &str, _: &str, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(BASH.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        _: Vec<OsString>,
        folder: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let Some(line) = Self::line() else { return Ok(()) };
        let replaced = env::var("_TRAPLINE_WORD").unwrap_or_default();
        let kept = line.kept(&replaced);
        let words = line.words.iter().map(OsString::from).collect();
        for candidate in complete(command, words, line.current, folder)? {
            // A name that is not UTF-8 cannot be typed either.
            let Some(value) = candidate.get_value().to_str() else { continue };
            let Some(rest) = value.strip_prefix(kept) else { continue };
            writeln!(out, "{}", line.quote.written(rest))?;
        }
        Ok(())
    }
}

impl EnvCompleter for Zsh {
    fn name(&self) -> &'static str {
        "zsh"
    }

    fn is(&self, name: &str) -> bool {
        name == "zsh"
    }

    fn write_registration(&self, _: &str, _: &str, _: &str, _: &str, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(ZSH.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        mut words: Vec<OsString>,
        folder: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let index = env::var("_TRAPLINE_INDEX").ok().and_then(|index| index.parse().ok()).unwrap_or(0);
        if words.len() <= index {
            words.resize(index + 1, OsString::new());
        }
        for candidate in complete(command, words, index, folder)? {
            writeln!(out, "{}", described(&candidate))?;
        }
        Ok(())
    }
}

/// A line for zsh's `_describe`: `=` for a whole word or `+` for one that goes on, the value, and a colon and the help.
fn described(candidate: &CompletionCandidate) -> String {
    let value = candidate.get_value().to_string_lossy();
    let sign = if Quote::goes_on(&value) { '+' } else { '=' };
    let value = value.replace('\\', "\\\\").replace(':', "\\:");
    let help = candidate.get_help().map(|help| help.to_string());
    match help.as_deref().and_then(|help| help.lines().next()) {
        Some(help) => format!("{sign}{value}:{help}"),
        None => format!("{sign}{value}"),
    }
}
