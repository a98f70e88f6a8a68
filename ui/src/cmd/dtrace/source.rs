//! The texts of a D program: read, and preprocessed with `-C`.

use trapline_d::Error;
use trapline_rpn::{FileLoader, ParseOptions, preprocess};
use trapline_session::read_file;

use super::options::{Line, Text};
use super::{Stop, said};

/// What messages call a text, what `$0` is in it, and its bytes.
pub fn read(text: &Text) -> Result<(String, Vec<u8>, Vec<u8>), Stop> {
    match text {
        Text::File(path) => {
            let bytes = read_file(path).map_err(|error| said(error.to_string()))?;
            let shown = path.display().to_string();
            Ok((format!("failed to compile script {shown}"), shown.into_bytes(), bytes))
        }
        Text::Given(bytes) => {
            let shown = String::from_utf8_lossy(bytes).into_owned();
            let name = shown.split(['{', '/']).next().unwrap_or_default().trim().to_owned();
            Ok((format!("invalid probe specifier {name}"), b"dtrace".to_vec(), bytes.clone()))
        }
    }
}

/// Macro variables that are not arguments.
pub fn variable(name: &str) -> Option<Vec<u8>> {
    match name {
        "target" => Some(b"0".to_vec()),
        // A run is the same for every user who starts it.
        "pid" | "ppid" | "pgid" | "sid" | "uid" | "euid" | "gid" | "egid" | "projid" | "taskid" => {
            Some(b"0".to_vec())
        }
        _ => None,
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

/// A text after the preprocessor, if `-C` asks for it.
pub fn preprocessed(text: Vec<u8>, called: &str, line: &Line, cpp: bool) -> Result<Vec<u8>, Error> {
    let text = String::from_utf8_lossy(&text).into_owned();
    if !cpp && !text.lines().any(is_directive) {
        return Ok(text.into_bytes());
    }
    let (text, kept) = without_pragmas(&text);
    let mut defines: Vec<(String, String)> =
        PREDEFINED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    if line.options.text("stdc") != "s" {
        defines.push(("__STDC__".to_owned(), "1".to_owned()));
    }
    let asked = line.options.defines().map(|(text, on)| (text.to_owned(), on));
    for (text, on) in line.defines.iter().cloned().chain(asked) {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (text.clone(), "1".to_owned()),
        };
        defines.retain(|(known, _)| *known != name);
        if on {
            defines.push((name, value));
        }
    }
    let file = called.strip_prefix("failed to compile script ").unwrap_or(called);
    let mut loader = FileLoader { folders: line.folders.clone() };
    let done = preprocess(file, &text, &ParseOptions { defines, ..ParseOptions::default() }, &mut loader);
    let error = done.found.list.iter().find(|found| found.severity == trapline_rpn::Severity::Error);
    match error {
        None => Ok(with_pragmas(done.text, &kept).into_bytes()),
        Some(found) => Err(Error {
            tag: "D_CPP_ERR",
            line: found.line,
            column: 0,
            message: format!("the preprocessor refuses the text: {}", found.message),
        }),
    }
}
