//! The command line of dtrace(1).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use trapline_d::Options;

use crate::d_text::Cpp;
use crate::talk::Talk;

/// What is wrong with the command line; dtrace(1)'s sentences.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// An unknown option.
    #[error("invalid option -- '{0}'")]
    Unknown(char),
    /// An option without its argument.
    #[error("option requires an argument -- '{0}'")]
    Missing(char),
    /// A long option without its argument.
    #[error("option {0} requires an argument")]
    Alone(&'static str),
    /// An option of dtrace(1) that has no sense here, and what to do instead.
    #[error("option -{0} does not exist here: {1}")]
    Absent(char, &'static str),
    /// The number of a process that is none.
    #[error("invalid pid: {0}")]
    Pid(String),
    /// `-c` and `-p`, or one of them twice.
    #[error("there is one target process: give -c COMMAND or -p PID, once")]
    Targets,
    /// An option of `-x` that cannot be set.
    #[error("failed to set -x {name}: {why}")]
    Set {
        /// The option.
        name: String,
        /// Why not.
        why: String,
    },
}

/// A text of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// `-s FILE`.
    File(PathBuf),
    /// `-n`, `-P`, `-m`, `-f`: the text of clauses.
    Given(String),
}

/// The process that the program is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// `-c COMMAND`: it is started for the program, and the run ends with it.
    Command(String),
    /// `-p PID`: it runs already.
    Running(u32),
}

/// The command line.
#[derive(Debug, Default)]
pub struct Line {
    /// The program's texts, in order.
    pub texts: Vec<Text>,
    /// `-x`, and the options that stand for one.
    pub options: Options,
    /// `-e`: compile only.
    pub compile_only: bool,
    /// `-l`: list the probes.
    pub list: bool,
    /// `-S`: show the code.
    pub show_code: bool,
    /// `-h` or `--help`.
    pub help: bool,
    /// `-V`.
    pub version: bool,
    /// `-o FILE`.
    pub output: Option<PathBuf>,
    /// `-D` (true) and `-U`, in order.
    pub defines: Vec<(String, bool)>,
    /// `-I`.
    pub folders: Vec<PathBuf>,
    /// `--guest IMAGE`.
    pub guest: Option<String>,
    /// `--initrd FILE`.
    pub initrd: Option<PathBuf>,
    /// `--sym FILE`.
    pub symbols: Vec<PathBuf>,
    /// `--begin-at TEXT`: BEGIN fires when the guest's console has shown it.
    pub begin_at: Option<String>,
    /// `-H`: tell the paths of included files.
    pub tell_included: bool,
    /// `-c` or `-p`.
    pub process: Option<Wish>,
    /// What `$1` and its kin stand for.
    pub operands: Vec<Vec<u8>>,
}

/// Options with an argument.
const WITH_ARGUMENT: &str = "bcDfiILmnoPpsUxX";

impl Line {
    /// Reads a command line.
    ///
    /// # Errors
    /// See [`Bad`].
    pub fn parse(arguments: &[OsString]) -> Result<Self, Bad> {
        let mut line = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let bytes = argument.as_bytes();
            match bytes {
                b"--guest" => {
                    let image = rest.next().ok_or(Bad::Alone("--guest"))?;
                    line.guest = Some(image.to_string_lossy().into_owned());
                }
                b"--initrd" => {
                    let file = rest.next().ok_or(Bad::Alone("--initrd"))?;
                    line.initrd = Some(file.into());
                }
                b"--sym" => {
                    let file = rest.next().ok_or(Bad::Alone("--sym"))?;
                    line.symbols.push(file.into());
                }
                b"--begin-at" => {
                    let text = rest.next().ok_or(Bad::Alone("--begin-at"))?;
                    line.begin_at = Some(text.to_string_lossy().into_owned());
                }
                b"--help" => line.help = true,
                b"--" => {
                    line.operands.extend(rest.by_ref().map(|operand| operand.as_bytes().to_vec()));
                }
                [b'-', letters @ ..] if !letters.is_empty() => line.letters(letters, &mut rest)?,
                operand => line.operands.push(operand.to_vec()),
            }
        }
        Ok(line)
    }

    /// How the texts are preprocessed.
    pub fn cpp(&self, talk: &Talk) -> Cpp {
        let options = self.options.defines().map(|(text, on)| (text.to_owned(), on));
        Cpp {
            always: self.options.flag("cpp"),
            stdc: self.options.text("stdc") != "s",
            defines: self.defines.iter().cloned().chain(options).collect(),
            folders: self.folders.clone(),
            tells: self.tell_included.then_some(*talk),
        }
    }

    /// Options that stand together, as in `-qC`.
    fn letters<'a>(
        &mut self,
        letters: &[u8],
        rest: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), Bad> {
        for (n, letter) in letters.iter().enumerate() {
            let letter = char::from(*letter);
            if !WITH_ARGUMENT.contains(letter) {
                self.flag(letter)?;
                continue;
            }
            let attached = letters.get(n + 1..).filter(|rest| !rest.is_empty());
            let value = match attached {
                Some(value) => value.to_vec(),
                None => rest.next().ok_or(Bad::Missing(letter))?.clone().into_vec(),
            };
            return self.value(letter, &value);
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), Bad> {
        self.options
            .set(name, value)
            .map_err(|error| Bad::Set { name: name.to_owned(), why: error.to_string() })
    }

    fn about(&mut self, process: Wish) -> Result<(), Bad> {
        if self.process.replace(process).is_some() { Err(Bad::Targets) } else { Ok(()) }
    }

    fn flag(&mut self, letter: char) -> Result<(), Bad> {
        match letter {
            'C' => self.set("cpp", None),
            'e' => {
                self.compile_only = true;
                Ok(())
            }
            'F' => self.set("flowindent", None),
            'h' => {
                self.help = true;
                Ok(())
            }
            'H' => {
                self.tell_included = true;
                Ok(())
            }
            'l' => {
                self.list = true;
                Ok(())
            }
            'q' => self.set("quiet", None),
            'S' => {
                self.show_code = true;
                Ok(())
            }
            'V' => {
                self.version = true;
                Ok(())
            }
            'v' => self.set("verbose", None),
            'w' => self.set("destructive", None),
            'Z' => self.set("zdefs", None),
            '6' | '3' => Ok(()),
            'A' | 'a' => Err(Bad::Absent(
                letter,
                "the guest's first instruction can be probed without it; leave it out",
            )),
            'G' => Err(Bad::Absent('G', "a guest's programs contain their own probes; name them with -n")),
            other => Err(Bad::Unknown(other)),
        }
    }

    fn value(&mut self, letter: char, value: &[u8]) -> Result<(), Bad> {
        let text = String::from_utf8_lossy(value).into_owned();
        let path = || PathBuf::from(OsStr::from_bytes(value));
        match letter {
            'b' => self.set("bufsize", Some(&text)),
            'D' | 'U' => {
                self.defines.push((text, letter == 'D'));
                Ok(())
            }
            'I' => {
                self.folders.push(path());
                Ok(())
            }
            'o' => {
                self.output = Some(path());
                Ok(())
            }
            's' => {
                self.texts.push(Text::File(path()));
                Ok(())
            }
            'n' | 'P' | 'm' | 'f' => {
                let clause = specified(letter, &text);
                self.texts.push(Text::Given(clause));
                Ok(())
            }
            'x' => {
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (text.as_str(), None),
                };
                self.set(name, value)
            }
            'X' => self.set("stdc", Some(&text)),
            'i' => Err(Bad::Absent('i', "identifiers differ from guest to guest; name the probe with -n")),
            'c' => self.about(Wish::Command(text)),
            'p' => {
                let number = text.parse().ok().filter(|number| *number > 0);
                self.about(Wish::Running(number.ok_or(Bad::Pid(text))?))
            }
            'L' => Err(Bad::Absent('L', "give the files of the folder with -s, before the program's own")),
            other => Err(Bad::Unknown(other)),
        }
    }
}

/// The clause of `-P`, `-m` or `-f`: the description stops at that field, and the later ones are empty.
fn specified(letter: char, text: &str) -> String {
    let colons = match letter {
        'P' => 3,
        'm' => 2,
        'f' => 1,
        _ => 0,
    };
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, '/' | '{')).unwrap_or(text.len());
    let (description, rest) = text.split_at(end);
    format!("{description}{}{rest}", ":".repeat(colons))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Result<Line, Bad> {
        Line::parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_may_be_joined_and_may_follow_operands() {
        let line = line(&["-qC", "-s", "a.d", "one", "-xstrsize=10", "-b64", "two"]).unwrap();
        assert_eq!(line.texts, [Text::File("a.d".into())]);
        assert_eq!(line.operands, [b"one".to_vec(), b"two".to_vec()]);
        assert!(line.options.flag("quiet") && line.options.flag("cpp"));
        assert_eq!((line.options.number("strsize"), line.options.number("bufsize")), (10, 64));
    }

    #[test]
    fn fields_are_filled_from_the_left_by_their_options() {
        let text = |words: &[&str]| match line(words).unwrap().texts.pop() {
            Some(Text::Given(text)) => text,
            _ => String::new(),
        };
        assert_eq!(text(&["-P", "fbt{ x }"]), "fbt:::{ x }");
        assert_eq!(text(&["-f", "do_fork"]), "do_fork:");
        assert_eq!(text(&["-n", "BEGIN { exit(0) }"]), "BEGIN { exit(0) }");
    }

    #[test]
    fn missing_features_are_refused_with_a_sentence() {
        assert_eq!(
            line(&["-i", "7"]).unwrap_err().to_string(),
            "option -i does not exist here: identifiers differ from guest to guest; name the probe with -n"
        );
        assert_eq!(line(&["-p", "x"]).unwrap_err().to_string(), "invalid pid: x");
        let twice = line(&["-p", "1", "-c", "ls"]).unwrap_err().to_string();
        assert_eq!(twice, "there is one target process: give -c COMMAND or -p PID, once");
        assert_eq!(line(&["-k"]).unwrap_err().to_string(), "invalid option -- 'k'");
        assert_eq!(line(&["-s"]).unwrap_err().to_string(), "option requires an argument -- 's'");
        let bad = line(&["-x", "strsize=x"]).unwrap_err();
        assert_eq!(bad.to_string(), "failed to set -x strsize: Invalid value for specified option");
    }
}
