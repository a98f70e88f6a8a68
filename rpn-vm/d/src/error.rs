//! What is wrong with a program: DTrace's tag, the place, one sentence.

use trapline_rpn::near_miss;

/// An error in the text of a D program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Error {
    /// DTrace's tag, such as `D_SYNTAX`; `-xerrtags` shows it.
    pub tag: &'static str,
    /// Line of the file, from 1: of the included one, where the preprocessor has put it into the text.
    pub line: u32,
    /// Column of that line in characters, from 1; 0 where only the line is known.
    pub column: u32,
    /// Line of the text as the compiler was given it, from 1.
    pub text_line: u32,
    /// The number of the text.
    pub text: usize,
    /// What is wrong, in DTrace's words where it has some.
    pub message: String,
    /// What was probably meant.
    pub help: Option<Box<str>>,
}

/// Words of bpftrace that D does not have, and what D has for them.
const BPFTRACE: &[(&str, &str)] = &[
    ("comm", "execname"),
    ("kstack", "stack()"),
    ("nsecs", "timestamp"),
    ("elapsed", "a difference of timestamp"),
    ("func", "probefunc"),
    ("probe", "probeprov, probemod, probefunc and probename"),
    ("retval", "arg1 of a return probe"),
    ("args", "args[0], args[1] and so on"),
    ("hist", "quantize()"),
    ("lhist", "lquantize()"),
    ("str", "copyinstr() of user memory, and stringof() of the kernel's"),
    ("buf", "tracemem()"),
    ("ksym", "sym()"),
    ("kaddr", "`symbol, as in &`jiffies"),
    ("reg", "uregs[]"),
    ("print", "printa()"),
    ("zero", "clear()"),
    ("delete", "an assignment of 0 to the element"),
    ("ntop", "inet_ntop()"),
];

/// Words and marks of other languages where D's grammar has none, and what D has for them.
const GRAMMAR: &[(&str, &str)] = &[
    ("for", "D has no loops: a probe runs its clause at each hit"),
    ("while", "D has no loops: a probe runs its clause at each hit"),
    ("do", "D has no loops: a probe runs its clause at each hit"),
    (".", "members of self and this are named by an arrow: self->x"),
    (
        "$",
        "$1, $target and the like are given on the command line; variables of a program have no $: x, self->x, this->x",
    ),
    ("probe", "a probe is named provider:module:function:name, such as fbt::do_fork:entry"),
    ("function", "D has no functions; an expression can be named by inline"),
];

impl Error {
    /// What is wrong and what to write, in one line without the place: for a text that is one line itself.
    #[must_use]
    pub fn sentence(&self) -> String {
        let help = self.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{}{help}", self.message)
    }

    /// The same, with what to write.
    #[must_use]
    pub(crate) fn help(self, text: impl Into<Box<str>>) -> Self {
        Self { help: Some(text.into()), ..self }
    }

    /// The same, with what D has for a word or mark of other languages.
    #[must_use]
    pub(crate) fn foreign(self, word: &str) -> Self {
        let known = GRAMMAR.iter().find(|(known, _)| *known == word);
        Self { help: known.map(|(_, in_d)| (*in_d).into()), ..self }
    }

    /// The same, with the known name that is nearest to the one that is wrong.
    #[must_use]
    pub(crate) fn near<'k>(self, name: &str, known: impl Iterator<Item = &'k str>) -> Self {
        let other = BPFTRACE.iter().find(|(word, _)| *word == name);
        let help = match other {
            Some((_, in_d)) => Some(format!("bpftrace's {name} is {in_d} in D").into()),
            None => near_miss(name, known).map(|near| format!("did you mean {near}?").into()),
        };
        Self { help, ..self }
    }
}

/// A place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pos {
    pub line: u32,
    pub column: u32,
    /// The line of the text, whatever its directives say.
    pub text_line: u32,
}

impl Pos {
    /// An error here.
    pub fn error(self, tag: &'static str, message: impl Into<String>) -> Error {
        let Self { line, column, text_line } = self;
        Error { tag, line, column, text_line, text: 0, message: message.into(), help: None }
    }
}

/// A result of the compiler.
pub(crate) type Result<T> = std::result::Result<T, Error>;
