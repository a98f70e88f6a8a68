//! The texts of D programs: read, and preprocessed where that is asked for.

use std::path::{Path, PathBuf};

use trapline_d::{Error, header};
use trapline_rpn::{FileLoader, Loader, ParseOptions, preprocess};
use trapline_session::{DError, DText, FileError, SourceOptions, read_file};

use crate::talk::Talk;

/// Whether a file is a D program, by its name.
pub fn is_d(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "d")
}

/// Why a text cannot be used.
pub enum TextError {
    /// Its file cannot be read.
    File(FileError),
    /// The preprocessor refuses it.
    Cpp(DError),
}

/// How texts are preprocessed.
#[derive(Debug, Clone, Default)]
pub struct Cpp {
    /// Also a text without directives: `-C`.
    pub always: bool,
    /// Whether `__STDC__` is defined.
    pub stdc: bool,
    /// Macros to define (true) with their texts, and to undefine, in order.
    pub defines: Vec<(String, bool)>,
    /// Folders that are searched for `#include`.
    pub folders: Vec<PathBuf>,
    /// Where the paths of included files are told: `-H`.
    pub tells: Option<Talk>,
}

/// Finds included files, and the headers of C that come with D.
struct Files {
    files: FileLoader,
    /// The paths of what was included.
    included: Vec<String>,
}

impl Loader for Files {
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String> {
        let built_in = |why| header(path).map(|text| (path.to_owned(), text.to_owned())).ok_or(why);
        let found = self.files.load(path, from).or_else(built_in)?;
        self.included.push(found.0.clone());
        Ok(found)
    }
}

impl Cpp {
    /// As the options `-D` and `-I` say.
    pub fn of(source: &SourceOptions) -> Self {
        let defines = source.defines.iter().map(|(name, text)| (format!("{name}={text}"), true));
        Self { defines: defines.collect(), folders: source.folders.clone(), ..Self::default() }
    }

    /// The program in a file; `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read or preprocessed.
    pub fn file(&self, path: &Path) -> Result<DText, TextError> {
        let text = read_file(path).map_err(TextError::File)?;
        self.done(DText { name: path.display().to_string(), is_file: true, text })
    }

    /// Clauses of the command line.
    ///
    /// # Errors
    /// They cannot be preprocessed.
    pub fn clauses(&self, text: &str) -> Result<DText, TextError> {
        self.done(DText::clauses(text))
    }

    /// A text after the preprocessor.
    fn done(&self, text: DText) -> Result<DText, TextError> {
        let whole = String::from_utf8_lossy(&text.text).into_owned();
        if !self.always && !whole.lines().any(is_directive) {
            return Ok(DText { text: whole.into_bytes(), ..text });
        }
        let (whole, kept) = without_pragmas(&whole);
        let files = FileLoader { folders: self.folders.clone() };
        let mut loader = Files { files, included: Vec::new() };
        let options = ParseOptions { defines: self.macros(), ..ParseOptions::default() };
        let done = preprocess(&text.name, &whole, &options, &mut loader);
        if let Some(talk) = self.tells {
            loader.included.iter().for_each(|path| talk.line(path));
        }
        let error = done.found.list.iter().find(|found| found.severity == trapline_rpn::Severity::Error);
        match error {
            None => Ok(DText { text: with_pragmas(done.text, &kept).into_bytes(), ..text }),
            Some(found) => {
                let message = format!("the preprocessor refuses the text: {}", found.message);
                let (line, text_line) = (found.line, found.source.clone());
                let error = Box::new(Error {
                    tag: "D_CPP_ERR",
                    line,
                    column: 0,
                    text_line: line,
                    text: 0,
                    message,
                    help: None,
                });
                // It may be in an included file.
                let (name, is_file) = match found.file == text.name {
                    true => (text.name, text.is_file),
                    false => (found.file.clone(), true),
                };
                Err(TextError::Cpp(DError::Text { name, is_file, error, text_line }))
            }
        }
    }

    fn macros(&self) -> Vec<(String, String)> {
        let mut defines: Vec<(String, String)> =
            PREDEFINED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if self.stdc {
            defines.push(("__STDC__".to_owned(), "1".to_owned()));
        }
        for (text, on) in &self.defines {
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (text.clone(), "1".to_owned()),
            };
            defines.retain(|(known, _)| *known != name);
            if *on {
                defines.push((name, value));
            }
        }
        defines
    }
}

/// Macros that `-C` defines.
const PREDEFINED: &[(&str, &str)] = &[
    ("__linux", "1"),
    ("__linux__", "1"),
    ("__unix", "1"),
    ("__unix__", "1"),
    ("__SVR4", "1"),
    ("__x86_64", "1"),
    ("__x86_64__", "1"),
    ("__amd64", "1"),
    ("__SUNW_D", "1"),
    ("__SUNW_D_VERSION", "0x02000000"),
];

/// Whether a line is a directive of the preprocessor. A text that has one is preprocessed without `-C` too.
fn is_directive(line: &str) -> bool {
    let words = ["if", "ifdef", "ifndef", "elif", "else", "endif", "define", "undef", "include"];
    let Some(rest) = line.trim_start().strip_prefix('#') else { return false };
    let rest = rest.trim_start();
    let length = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    rest.get(..length).is_some_and(|word| words.contains(&word))
}

/// Directives that are D's own, which the preprocessor does not know: a placeholder replaces each meanwhile.
fn without_pragmas(text: &str) -> (String, Vec<String>) {
    let mut kept = Vec::new();
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let own = line
                .trim_start()
                .strip_prefix('#')
                .is_some_and(|rest| rest.trim_start().starts_with("pragma"));
            if !own && !line.starts_with("#!") {
                return line.to_owned();
            }
            kept.push(line.to_owned());
            format!("{PLACEHOLDER}{}_", kept.len() - 1)
        })
        .collect();
    (lines.join("\n") + "\n", kept)
}

/// The word that replaces a directive of D; the number of the directive follows it.
const PLACEHOLDER: &str = "__trapline_pragma_";

/// Puts D's directives back.
fn with_pragmas(mut text: String, kept: &[String]) -> String {
    for (n, line) in kept.iter().enumerate() {
        text = text.replace(&format!("{PLACEHOLDER}{n}_"), line);
    }
    text
}
