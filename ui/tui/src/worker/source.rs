//! The text of the guest's source lines, from files of the host.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use trapline_providers::Target;

/// Most bytes of a source file.
const MOST: u64 = 8 << 20;

/// Parts of paths as the compiler knew them, each with the part to use in its place.
pub type Substitutions = Vec<(String, String)>;

/// Reads source files.
#[derive(Debug, Default)]
pub struct Sources {
    substitutions: Substitutions,
    /// The lines of each file that was asked for; none if it cannot be read.
    files: BTreeMap<String, Option<Arc<Vec<String>>>>,
}

impl Sources {
    /// No file has been read.
    pub fn new(substitutions: Substitutions) -> Self {
        Self { substitutions, files: BTreeMap::new() }
    }

    /// The line that begins at each of these instructions, if its text is known.
    pub fn begun(&mut self, target: &Target, code: impl Iterator<Item = u64>) -> Vec<Option<(u32, String)>> {
        let mut before = None;
        let mut line = |address| {
            let line = target.source_line(address).filter(|line| before.as_ref() != Some(line))?;
            before = Some(line.clone());
            Some((line.line, self.text(&line.file, line.line)?))
        };
        code.map(&mut line).collect()
    }

    /// A line of a file.
    fn text(&mut self, file: &str, number: u32) -> Option<String> {
        if !self.files.contains_key(file) {
            let lines = read(&substituted(file, &self.substitutions)).map(Arc::new);
            self.files.insert(file.to_owned(), lines);
        }
        let lines = self.files.get(file)?.as_ref()?;
        lines.get((number as usize).checked_sub(1)?).cloned()
    }
}

/// A path whose first part is replaced, by the first substitution that fits. Names are compared as a whole.
fn substituted(file: &str, substitutions: &[(String, String)]) -> String {
    let fits = |(from, to): &(String, String)| {
        let rest = file.strip_prefix(from.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{}{rest}", to.trim_end_matches('/')))
    };
    substitutions.iter().find_map(fits).unwrap_or_else(|| file.to_owned())
}

/// The lines of an ordinary file.
fn read(path: &str) -> Option<Vec<String>> {
    let path = Path::new(path);
    std::fs::metadata(path).ok().filter(|file| file.is_file() && file.len() <= MOST)?;
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).lines().map(|line| line.replace('\t', "    ")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_a_path_that_fits_is_substituted() {
        let with = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let all = [with("/build/gnumach", "/home/me/src/"), with("/build/", "/b"), with("x", "")];
        for (file, found) in [
            ("/build/gnumach/kern/thread.c", "/home/me/src/kern/thread.c"),
            ("/build/gnumach-1/kern/thread.c", "/b/gnumach-1/kern/thread.c"),
            ("/usr/thread.c", "/usr/thread.c"),
            ("x/y.c", "/y.c"),
        ] {
            assert_eq!(substituted(file, &all), found);
        }
    }

    #[test]
    fn only_ordinary_files_are_read() {
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/src/worker/source.rs");
        let mut sources = Sources::default();
        assert!(sources.text(own, 1).unwrap().starts_with("//! The text of"));
        assert_eq!((sources.text(own, 0), sources.text(own, 1_000_000)), (None, None));
        for other in ["/dev/zero", "/proc/self", "/nonexistent/a.c", ""] {
            assert_eq!(sources.text(other, 1), None);
        }
    }
}
