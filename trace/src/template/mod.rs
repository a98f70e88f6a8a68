//! The template formatter of the paper, section 6: binary records to text by templates.
//!
//! A *template directory* names a template file for each major code, a template file holds a template for each minor
//! code. [`Formatter::initialise`] reads all of them, so that errors are reported before the run; formatting
//! itself reads nothing and cannot fail: data that does not fit its template is shown as a marked dump. A record's text
//! is bounded ([`MAX_TEXT`]). The sinks write the header line of a record.

mod apply;
mod error;
mod parse;
mod scan;
mod syntax;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use apply::MAX_TEXT;
pub use error::{TemplateError, TemplateErrors};

use crate::dump::dump;
use crate::record::RecordView;
use error::Errors;
use scan::Scanner;
use syntax::Node;

/// Largest template file or directory, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// How one kind of record is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Template {
    desc: String,
    /// All `fmt` statements together; `None` without any, which means a dump.
    nodes: Option<Vec<Node>>,
}

/// A record as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formatted<'a> {
    /// The `desc` of its template; `None` when it has no template.
    pub desc: Option<&'a str>,
    /// Its data, without a line end after it.
    pub text: String,
}

/// The templates of a directory, held in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Formatter {
    directory: PathBuf,
    majors: BTreeMap<u32, BTreeMap<u32, Template>>,
}

/// Reads a file. Tests give their own.
type Load<'l> = &'l mut dyn FnMut(&Path) -> io::Result<Vec<u8>>;

impl Formatter {
    /// Reads a template directory and every file that it names.
    ///
    /// # Errors
    /// All errors in the files, with their places.
    pub fn initialise(directory: &Path) -> Result<Self, TemplateErrors> {
        Self::initialise_with(directory, &mut read)
    }

    /// Like [`Formatter::initialise`], with files that `load` reads.
    ///
    /// # Errors
    /// All errors in the files, with their places.
    pub fn initialise_with(directory: &Path, load: Load<'_>) -> Result<Self, TemplateErrors> {
        let mut errors = Errors::default();
        let mut majors = BTreeMap::new();
        if let Some(text) = load_text(directory, load, None, &mut errors) {
            let name = directory.display().to_string();
            let entries = parse::directory(&mut Scanner::new(&name, &text), &mut errors);
            for entry in entries {
                let path =
                    directory.parent().map_or_else(|| PathBuf::from(&entry.file), |p| p.join(&entry.file));
                let named_at = Some(&entry.named_at);
                let Some(text) = load_text(&path, load, named_at, &mut errors) else { continue };
                let mut scanner_of_file = Scanner::new(&path.display().to_string(), &text);
                let templates = parse::templates(&mut scanner_of_file, entry.major, &mut errors);
                majors.insert(entry.major, templates);
            }
        }
        errors.into_result(Self { directory: directory.to_owned(), majors })
    }

    /// One template for all data, given as the text of a `fmt` statement.
    ///
    /// # Errors
    /// All errors in the text, with their places.
    pub fn of_text(fmt: &str) -> Result<Self, TemplateErrors> {
        let mut errors = Errors::default();
        let text = format!("major=0 minor=0 desc=\"\" fmt=\n\"{}\"", fmt.replace('"', "\\\""));
        let templates = parse::templates(&mut Scanner::new("the template", &text), 0, &mut errors);
        errors.into_result(Self { directory: PathBuf::new(), majors: BTreeMap::from([(0, templates)]) })
    }

    /// Formats data that are not of a record, by the template of the codes 0; `word` is the guest's, in bytes.
    #[must_use]
    pub fn format_data(&self, data: &[u8], word: usize) -> String {
        let template = self.majors.get(&0).and_then(|minors| minors.get(&0));
        match template.and_then(|template| template.nodes.as_ref()) {
            Some(nodes) => apply::apply(nodes, data, word),
            None => {
                let mut text = String::new();
                dump(data, 0, &mut text);
                text
            }
        }
    }

    /// Drops the templates. Until they are read again, every record is shown as a dump.
    pub fn terminate(&mut self) {
        self.majors.clear();
    }

    /// Reads the templates from disk again.
    ///
    /// # Errors
    /// The errors in the files; the templates are then unchanged.
    pub fn reread(&mut self) -> Result<(), TemplateErrors> {
        *self = Self::initialise(&self.directory)?;
        Ok(())
    }

    /// How many templates there are.
    #[must_use]
    pub fn templates(&self) -> usize {
        self.majors.values().map(BTreeMap::len).sum()
    }

    /// Formats a record's data by the template of its major and minor code, or as a dump if it has no template.
    #[must_use]
    pub fn format(&self, record: &RecordView<'_>) -> Formatted<'_> {
        let h = &record.header;
        let template = self.majors.get(&h.major).and_then(|minors| minors.get(&h.minor));
        let text = match template.and_then(|template| template.nodes.as_ref()) {
            Some(nodes) => apply::apply(nodes, record.data, if h.width == 64 { 8 } else { 4 }),
            None => {
                let mut text = String::new();
                dump(record.data, 0, &mut text);
                text
            }
        };
        Formatted { desc: template.map(|template| template.desc.as_str()), text }
    }
}

/// A file's bytes, one more than is accepted at the most.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file as text. An error in the file as a whole is reported at the place that names it, if there is one.
fn load_text(
    path: &Path,
    load: Load<'_>,
    named_at: Option<&error::Place>,
    errors: &mut Errors,
) -> Option<String> {
    let name = path.display().to_string();
    let whole = error::Place { file: name.clone(), line: 0, col: 0 };
    let bytes = match load(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let text = error.to_string();
            let reason = text.split(" (os error").next().unwrap_or(&text);
            match named_at {
                Some(place) => errors.add(place.clone(), format!("cannot read {name}: {reason}")),
                None => errors.add(whole, format!("the file cannot be read: {reason}")),
            }
            return None;
        }
    };
    if bytes.len() as u64 > MAX_FILE {
        errors.add(whole, format!("the file has more than {MAX_FILE} bytes, the most for a template file"));
        return None;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            errors.add(whole, format!("the file is not text: byte {at} is not UTF-8"));
            None
        }
    }
}
