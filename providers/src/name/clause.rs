//! The clauses of `--rpn`, and the descriptions of `-n`: `SPEC[,SPEC..] [/ predicate /] [{ handler }]`, with the predicate and the handler in RPN.
//!
//! Instructions are separated by `;` or a line end. A predicate leaves its value on top of the stack: if it is 0, the
//! handler does not run, and the hit leaves no record. The text is compiled as an ordinary probe program, so errors
//! in it are reported as in a file.

use std::fmt::Write as _;

/// Most bytes of a clause.
const LONGEST: usize = 65_536;
/// The label that a predicate which holds jumps to.
const HOLDS: &str = "trapline_predicate_holds";

/// An error in the form of a clause. Errors in descriptions and instructions have their own types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClauseError {
    /// No description.
    #[error("{0:?} has no probe description; write -n 'provider:module:function:name'")]
    NoDescription(String),
    /// A `/` without its end.
    #[error("the predicate of {0} is not closed; write / predicate /")]
    OpenPredicate(String),
    /// A predicate without instructions.
    #[error("the predicate of {0} is empty; it must leave a value on top of the stack")]
    EmptyPredicate(String),
    /// A `{` without its end.
    #[error("the handler of {0} is not closed; write {{ handler }}")]
    OpenHandler(String),
    /// Unexpected text.
    #[error("unexpected {text:?} after {after}; write SPEC / predicate / {{ handler }}")]
    Unexpected {
        /// The text.
        text: String,
        /// The part before it.
        after: &'static str,
    },
    /// A statement, which could define further probe points.
    #[error(
        "`{0}` is not an instruction: the only statement that a handler on the command line may have is \
         `logonfault = yes`, before its instructions; -p FILE.rpn takes all of them"
    )]
    Statement(String),
    /// The clause is too long.
    #[error("a clause has {0} bytes; at most {LONGEST} are allowed")]
    TooLong(usize),
}

/// A parsed clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    /// The descriptions as written.
    pub descriptions: Vec<String>,
    /// The predicate's instructions.
    pub predicate: Vec<String>,
    /// The handler's instructions; `None` without braces.
    pub handler: Option<Vec<String>>,
    /// Whether a hit whose instruction faults is recorded: the statement `logonfault = yes`.
    pub log_on_fault: bool,
    /// Line and column of each instruction in the clause: the predicate's, then the handler's.
    places: Vec<(usize, usize)>,
}

impl Clause {
    /// Whether a text is descriptions only, without a predicate or a handler, and so shows arguments. One of D's own probes is a
    /// clause of D, with D's default action.
    #[must_use]
    pub fn is_bare(text: &str) -> bool {
        let (descriptions, rest) = text.split_at(description_end(text));
        let is_event = |description: &str| {
            let (provider, name) = (description.split(':').next(), description.rsplit(':').next());
            provider == Some("dtrace") || name.is_some_and(|name| ["BEGIN", "END", "ERROR"].contains(&name))
        };
        rest.trim().is_empty() && !descriptions.split(',').map(str::trim).any(is_event)
    }

    /// Whether a text is a clause whose predicate and handler are RPN.
    #[must_use]
    pub fn is_rpn(text: &str) -> bool {
        Self::parse(text)
            .is_ok_and(|clause| trapline_rpn::parse("--rpn", &clause.source("kernel", 0)).is_ok())
    }

    /// Parses a clause.
    ///
    /// # Errors
    /// See [`ClauseError`].
    pub fn parse(text: &str) -> Result<Self, ClauseError> {
        if text.len() > LONGEST {
            return Err(ClauseError::TooLong(text.len()));
        }
        let (spec, rest) = text.split_at(description_end(text));
        let spec = spec.trim();
        let descriptions = descriptions(spec);
        if descriptions.iter().any(String::is_empty) {
            return Err(ClauseError::NoDescription(text.trim().to_owned()));
        }
        let mut places = Vec::new();
        let (predicate, rest) = match rest.strip_prefix('/') {
            None => (Vec::new(), rest),
            Some(rest) => {
                let (inside, rest) =
                    rest.split_once('/').ok_or_else(|| ClauseError::OpenPredicate(spec.to_owned()))?;
                let predicate = instructions(inside, text, &mut places);
                if predicate.is_empty() {
                    return Err(ClauseError::EmptyPredicate(spec.to_owned()));
                }
                (predicate, rest.trim())
            }
        };
        let handler = match rest.strip_prefix('{') {
            None if rest.is_empty() => None,
            None => return Err(unexpected(rest, "the predicate")),
            Some(rest) => {
                let (inside, after) =
                    rest.rsplit_once('}').ok_or_else(|| ClauseError::OpenHandler(spec.to_owned()))?;
                if !after.trim().is_empty() {
                    return Err(unexpected(after, "the handler"));
                }
                Some(instructions(inside, text, &mut places))
            }
        };
        let mut handler = handler;
        let mut log_on_fault = false;
        if let Some(lines) = &mut handler
            && let Some(yes) = lines.first().and_then(|line| logs_on_fault(line))
        {
            // An empty line, so that errors name the lines of the clause.
            (log_on_fault, lines[0]) = (yes, String::new());
        }
        let mut lines = predicate.iter().chain(handler.iter().flatten());
        if let Some(statement) = lines.find(|line| line.contains('=')) {
            return Err(ClauseError::Statement(statement.clone()));
        }
        Ok(Self { descriptions, predicate, handler, log_on_fault, places })
    }

    /// The source of a program with this handler on one probe point. Without a handler it logs `logged` arguments.
    /// Its `gvars` and `vars` suffice for the handler's immediate indices.
    pub fn source(&self, module: &str, logged: u8) -> String {
        let handler = self.handler.clone().unwrap_or_else(|| default_handler(logged));
        let most = |group: &str| self.predicate.iter().chain(&handler).filter_map(|i| index(i, group)).max();
        let count = |group| most(group).map_or(0, |most| (most + 1).min(65_536));
        let log_on_fault = if self.log_on_fault { "logonfault = yes\n" } else { "" };
        let mut text = format!(
            "name = \"{module}\"\nmodtype = kernel\nvars = {}\ngvars = {}\n{log_on_fault}offset = \":\"\n",
            count("lv"),
            count("gv")
        );
        let mut places = self.places.iter().copied();
        for instruction in &self.predicate {
            add_at(&mut text, places.next(), instruction);
        }
        if !self.predicate.is_empty() {
            text.push_str(&format!("jnz {HOLDS}\nabort\n{HOLDS}:\n"));
        }
        for instruction in &handler {
            add_at(&mut text, places.next(), instruction);
        }
        text.push_str("exit\n");
        text
    }
}

/// Adds an instruction at the line and column that it has in the clause, so that messages name these.
fn add_at(text: &mut String, place: Option<(usize, usize)>, instruction: &str) {
    let (line, column) = place.unwrap_or((1, 1));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "#line {line} \"--rpn\"\n{:indent$}{instruction}", "", indent = column - 1);
}

/// The value of the statement `logonfault`; `None` for any other line.
fn logs_on_fault(line: &str) -> Option<bool> {
    let (key, value) = line.split_once('=')?;
    if !key.trim().eq_ignore_ascii_case("logonfault") {
        return None;
    }
    match value.trim().to_ascii_lowercase().as_str() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// The end of the descriptions: before white space without a comma, a predicate or a handler. A `{` inside a word
/// belongs to a glob, and a `/` after a colon begins a module's path.
fn description_end(text: &str) -> usize {
    let mut before = None;
    let mut braces = 0u32;
    let mut path_end = 0;
    for (at, c) in text.char_indices() {
        match c {
            _ if at < path_end => {}
            '/' if before == Some(':') && path(&text[at..]) > 0 => path_end = at + path(&text[at..]),
            '{' if before.is_some_and(|c: char| !c.is_whitespace()) && glob_brace(&text[at..]) => braces += 1,
            '}' if braces > 0 => braces -= 1,
            '/' | '{' if braces == 0 => return at,
            _ => {}
        }
        before = Some(c);
    }
    text.len()
}

/// Length of the path at the start of a text that is a field of a description: up to the next colon.
fn path(text: &str) -> usize {
    let end = text.find(|c: char| c == ':' || c.is_whitespace()).filter(|end| text[*end..].starts_with(':'));
    end.unwrap_or_default()
}

/// The descriptions between commas that are not in braces.
fn descriptions(spec: &str) -> Vec<String> {
    let mut braces = 0;
    let split = spec.split(|c| {
        braces += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && braces == 0
    });
    split.map(|one| one.trim().to_owned()).collect()
}

/// Whether the brace at the start of a text belongs to a glob: it contains names separated by commas.
fn glob_brace(text: &str) -> bool {
    let inside = text.get(1..).and_then(|rest| rest.split_once('}')).map_or("", |(inside, _)| inside);
    let is_code = |c: char| c.is_whitespace() || matches!(c, ';' | '/' | '(' | '=' | '@' | '"');
    inside.contains(',') && !inside.contains(is_code)
}

fn unexpected(text: &str, after: &'static str) -> ClauseError {
    ClauseError::Unexpected { text: text.trim().to_owned(), after }
}

/// The instructions in a part of a clause; their lines and columns in the clause go to `places`.
fn instructions(part: &str, clause: &str, places: &mut Vec<(usize, usize)>) -> Vec<String> {
    let mut found = Vec::new();
    for line in part.split([';', '\n']).map(str::trim).filter(|line| !line.is_empty()) {
        let before = clause.get(..line.as_ptr() as usize - clause.as_ptr() as usize).unwrap_or_default();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        places.push((before.matches('\n').count() + 1, column));
        found.push(line.to_owned());
    }
    found
}

/// Logs the first arguments, the first one first.
fn default_handler(logged: u8) -> Vec<String> {
    let push = (0..logged).rev().map(|n| format!("push arg, {n}"));
    push.chain((logged > 0).then(|| format!("log {logged}"))).collect()
}

/// The index of an instruction such as `inc lv, 3` or `inc lv, 0x3`.
fn index(instruction: &str, group: &str) -> Option<u32> {
    let words = instruction.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    let mut after = words.skip_while(|word| !word.eq_ignore_ascii_case(group)).skip(1);
    let number = after.next()?.to_ascii_lowercase();
    match number.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    }
}
