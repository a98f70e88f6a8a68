//! The preprocessor at the level that the man page's examples need:
//! `#define NAME value`, `#include "file"`, and `-D key=value`.
//!
//! It turns a file into lines of tokens. It is not yet the whole preprocessor:
//! every other directive gets one clear error. Depth of includes and of macro
//! expansion is bounded, so no input makes it run away.

use std::collections::BTreeMap;

use super::lex::{Kind, Token, scan};
use crate::diag::{Sink, near_miss};
use crate::source::{Sources, Span};

/// Gives the preprocessor the text of included files.
pub trait Loader {
    /// Finds `path` as written in an `#include` of the file `from`; answers its name and text.
    ///
    /// # Errors
    /// Why it cannot be read, as the user should see it.
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String>;
}

/// A loader that reads the file system: relative to the including file, then to the search folders.
#[derive(Debug, Clone, Default)]
pub struct FileLoader {
    /// Folders searched after the including file's own (`-I`).
    pub folders: Vec<std::path::PathBuf>,
}

impl Loader for FileLoader {
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String> {
        let own = std::path::Path::new(from).parent().map(std::path::Path::to_path_buf).unwrap_or_default();
        let mut reason = String::from("no such file");
        for folder in std::iter::once(&own).chain(&self.folders) {
            let full = folder.join(path);
            match std::fs::read(&full) {
                Ok(bytes) => {
                    return Ok((full.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => reason = e.to_string(),
            }
        }
        Err(reason)
    }
}

/// A loader that has no files: every `#include` fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Loader for NoFiles {
    fn load(&mut self, _: &str, _: &str) -> Result<(String, String), String> {
        Err("files cannot be included here".to_owned())
    }
}

/// Deepest nesting of `#include`.
const MAX_INCLUDES: usize = 32;
/// Most files that one compilation may include, repetitions counted.
const MAX_FILES: usize = 1000;
/// Most bytes of a line.
const MAX_LINE: usize = 65_536;
/// Most tokens one line may grow to by macros.
const MAX_LINE_TOKENS: usize = 4096;
/// Most lines of a compilation, includes included.
const MAX_LINES: usize = 1_000_000;

const DIRECTIVES: &[&str] = &[
    "define", "include", "undef", "ifdef", "ifndef", "if", "elif", "elseif", "else", "endif", "error",
    "line", "pragma",
];

/// One line after preprocessing: its tokens with macros replaced, and as written.
#[derive(Debug)]
pub(crate) struct Line {
    pub tokens: Vec<Token>,
}

pub(crate) struct Preprocessor<'a> {
    pub sources: &'a mut Sources,
    pub sink: &'a mut Sink,
    pub loader: &'a mut dyn Loader,
    macros: BTreeMap<String, Vec<Token>>,
    open: Vec<String>,
    included: usize,
    lines: Vec<Line>,
}

impl<'a> Preprocessor<'a> {
    pub fn new(sources: &'a mut Sources, sink: &'a mut Sink, loader: &'a mut dyn Loader) -> Self {
        Self {
            sources,
            sink,
            loader,
            macros: BTreeMap::new(),
            open: Vec::new(),
            included: 0,
            lines: Vec::new(),
        }
    }

    /// Defines a macro from the command line.
    pub fn define(&mut self, key: &str, value: &str) {
        let file = self.sources.add("<command line>", &format!("#define {key} {value}"));
        let mut tokens = scan(value, file, 1);
        for token in &mut tokens {
            token.span.col += u32::try_from("#define ".len() + key.len() + 1).unwrap_or(0);
        }
        self.macros.insert(key.to_owned(), tokens);
    }

    /// Preprocesses one text and what it includes.
    pub fn run(mut self, name: &str, text: &str) -> Vec<Line> {
        let file = self.sources.add(name, text);
        self.open.push(name.to_owned());
        self.file(file);
        self.lines
    }

    fn file(&mut self, file: u32) {
        for number in 1..=self.sources.line_count(file) {
            if self.lines.len() >= MAX_LINES {
                let span = Span { file, line: number, col: 1, len: 1 };
                self.error(span, "too-long", format!("more than {MAX_LINES} lines after preprocessing"));
                return;
            }
            let text = self.sources.line(file, number);
            if text.len() > MAX_LINE {
                let span = Span { file, line: number, col: 1, len: 1 };
                self.error(span, "too-long", format!("the line has more than {MAX_LINE} bytes"));
                continue;
            }
            let is_directive = text.trim_start().starts_with('#');
            let tokens = scan(text, file, number);
            if is_directive {
                self.directive(&tokens);
            } else if !tokens.is_empty() {
                let tokens = self.expand(tokens);
                self.lines.push(Line { tokens });
            }
        }
    }

    fn error(&mut self, span: Span, code: &'static str, message: String) {
        self.sink.error(self.sources, span, code, message);
    }

    fn directive(&mut self, tokens: &[Token]) {
        let [hash, rest @ ..] = tokens else { return };
        let Some(name) = rest.first().and_then(Token::ident) else {
            self.error(hash.span, "bad-directive", "a preprocessor directive must follow `#`".to_owned());
            return;
        };
        match name {
            "define" => self.define_line(rest),
            "include" => self.include(rest),
            _ if DIRECTIVES.contains(&name) => self.error(
                hash.span.to(rest[0].span),
                "directive-not-available",
                format!("`#{name}` is not available yet: `#define` and `#include` are"),
            ),
            _ => {
                let message = format!("unknown directive `#{name}`");
                match near_miss(name, DIRECTIVES.iter().copied()) {
                    Some(near) => {
                        let help = format!("did you mean `#{near}`?");
                        self.sink.error_help(self.sources, rest[0].span, "bad-directive", message, help);
                    }
                    None => self.error(rest[0].span, "bad-directive", message),
                }
            }
        }
    }

    fn define_line(&mut self, rest: &[Token]) {
        let Some(name) = rest.get(1).filter(|t| t.ident().is_some()) else {
            self.error(rest[0].span, "bad-directive", "`#define` needs a name and a value".to_owned());
            return;
        };
        if rest.get(2).is_some_and(|t| t.is('(') && t.span.col == name.span.col + name.span.len) {
            self.error(
                name.span,
                "directive-not-available",
                "macros with parameters are not available yet; `#define NAME value` is".to_owned(),
            );
            return;
        }
        self.macros.insert(name.text.clone(), rest[2..].to_vec());
    }

    fn include(&mut self, rest: &[Token]) {
        let path = match rest {
            [_, one] if one.kind == Kind::Str => one.text.clone(),
            [_, open, middle @ .., close] if open.is('<') && close.is('>') => {
                middle.iter().map(|t| t.text.as_str()).collect()
            }
            _ => {
                let message = "`#include` needs a file name in quotes".to_owned();
                self.error(rest[0].span, "bad-directive", message);
                return;
            }
        };
        let span = rest[1].span;
        if self.open.len() >= MAX_INCLUDES {
            self.error(span, "include-depth", format!("more than {MAX_INCLUDES} nested includes"));
            return;
        }
        self.included += 1;
        if self.included > MAX_FILES {
            self.error(span, "include-depth", format!("more than {MAX_FILES} includes in one compilation"));
            return;
        }
        let from = self.open.last().cloned().unwrap_or_default();
        match self.loader.load(&path, &from) {
            Err(why) => self.error(span, "include-failed", format!("cannot include \"{path}\": {why}")),
            Ok((name, _)) if self.open.contains(&name) => {
                self.error(span, "include-cycle", format!("\"{path}\" includes itself"));
            }
            Ok((name, text)) => {
                let file = self.sources.add(&name, &text);
                self.open.push(name);
                self.file(file);
                self.open.pop();
            }
        }
    }

    /// Replaces macro names. What comes out of a macro has the span of the place where it was named.
    fn expand(&mut self, tokens: Vec<Token>) -> Vec<Token> {
        if self.macros.is_empty() || !tokens.iter().any(|t| self.is_macro(t)) {
            return tokens;
        }
        let mut out = Vec::with_capacity(tokens.len());
        let mut busy = Vec::new();
        for token in tokens {
            let span = token.span;
            if !self.expand_one(&token, span, &mut busy, &mut out) {
                let message = format!("macros make this line longer than {MAX_LINE_TOKENS} words");
                self.error(span, "too-long", message);
                return Vec::new();
            }
        }
        out
    }

    fn is_macro(&self, token: &Token) -> bool {
        token.ident().is_some_and(|name| self.macros.contains_key(name))
    }

    fn expand_one(&self, token: &Token, span: Span, busy: &mut Vec<String>, out: &mut Vec<Token>) -> bool {
        if out.len() >= MAX_LINE_TOKENS || busy.len() >= 64 {
            return false;
        }
        let body = token.ident().filter(|n| !busy.iter().any(|b| b == n)).and_then(|n| self.macros.get(n));
        let Some(body) = body else {
            out.push(Token { span, ..token.clone() });
            return true;
        };
        busy.push(token.text.clone());
        let fits = body.iter().all(|inner| self.expand_one(inner, span, busy, out));
        busy.pop();
        fits
    }
}
