//! `trapline demo`: three questions, asked with command lines that a reader can type, and what they answer.

mod manual;

use std::io::{self, Write};
use std::path::Path;

use clap::Parser;

use crate::cli::{Cli, Command, DemoArgs};
use crate::cmd::{replay, run as running};
use crate::failure::{Exit, Failure};
use crate::talk::Talk;

/// The file that the third question reads, under the name that it has in a clone.
const BAD_FRAME: (&str, &str) =
    ("examples/bad-frame.rpn", include_str!("../../../../examples/bad-frame.rpn"));

/// What the recorded guest wrote to its serial line.
const CONSOLE: &str = "console.txt";

/// A question: what is asked, and the command lines that ask it.
struct Question {
    text: &'static str,
    lines: &'static [&'static [&'static str]],
}

const FORKS: Question = Question {
    text: "An embedded guest, a small kernel, is asked three questions. What follows $ can be typed as it is.\n\n1. Who forks?",
    lines: &[&[
        "run",
        "embedded:ia32",
        "-qx",
        "quiet",
        "-n",
        "do_fork:entry { @[execname, pid] = count(); }",
    ]],
};

const SIZES: Question = Question {
    text: "\n2. How large are allocations?",
    lines: &[&["run", "embedded:ia32", "-qx", "quiet", "-n", "kmalloc:entry { @ = quantize(arg0); }"]],
};

const CRASH: Question = Question {
    text: "3. The network driver gets a bad frame, and the kernel crashes. What did the driver do?",
    lines: &[&[
        "record",
        "embedded:planted-ia32",
        "-p",
        BAD_FRAME.0,
        "-q",
        "-o",
        "crash.tlr",
        "--console",
        CONSOLE,
    ]],
};

/// The addresses are those of the recording, which is the same on every machine.
const BEFORE: Question = Question {
    text: "   Back in time: which instruction went to that address, and who wrote the address to its stack?",
    lines: &[
        &["replay", "crash.tlr", "-q", "--when", "eip == 0xcfe026f7", "--from", "1990K"],
        &["replay", "crash.tlr", "-q", "--who-wrote", "0xc0166f4c:4", "--last", "1", "--before", "1995385"],
    ],
};

const NEXT: &str = "   So vortex_control let memcpy write the frame over its own return address.

Next: trapline tui embedded:ia32 -n do_page_fault:entry    the same on the screen, in both directions
      trapline list embedded:ia32                          what else can be asked for
      trapline demo --manual                               the examples of DProbes' manual page
      make guests                                          fetches Debian's kernels. What does an init open?
      trapline run .guests/linux-cloud-amd64 --initrd .guests/initramfs-amd64.cpio.gz -n syscall::openat: --until '/ # '
";

/// Runs the command.
///
/// # Errors
/// Output or a file that cannot be written, or a machine that cannot be built.
pub fn run(args: &DemoArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    if args.manual {
        return manual::run(args, out, talk);
    }
    let folder = tempfile::tempdir().map_err(|error| unwritable(&std::env::temp_dir(), error))?;
    let began_in = std::env::current_dir();
    std::env::set_current_dir(folder.path()).map_err(|error| unwritable(folder.path(), error))?;
    let asked = ask_all(out, &talk.silenced());
    if let Ok(began_in) = began_in {
        // The folder may be gone by now; nothing more is read or written.
        _ = std::env::set_current_dir(began_in);
    }
    asked
}

fn ask_all(out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let file = Path::new(BAD_FRAME.0);
    let written = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    written.and_then(|()| std::fs::write(file, BAD_FRAME.1)).map_err(|error| unwritable(file, error))?;
    for question in [FORKS, SIZES, CRASH] {
        ask(&question, out, talk)?;
    }
    let console = std::fs::read_to_string(CONSOLE).map_err(|error| unwritable(Path::new(CONSOLE), error))?;
    let last = console.lines().rev().take(2).collect::<Vec<_>>();
    for line in last.iter().rev() {
        writeln!(out, "{line}").map_err(Failure::Output)?;
    }
    ask(&BEFORE, out, talk)?;
    out.write_all(NEXT.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)?;
    Ok(Exit::Ok)
}

/// Shows a question and its command lines, each followed by its output.
fn ask(question: &Question, out: &mut dyn Write, talk: &Talk) -> Result<(), Failure> {
    writeln!(out, "{}", question.text).map_err(Failure::Output)?;
    for line in question.lines {
        let typed: Vec<String> = line.iter().map(|word| typed(word)).collect();
        writeln!(out, "$ trapline {}", typed.join(" ")).map_err(Failure::Output)?;
        carry_out(line, out, talk)?;
    }
    Ok(())
}

fn carry_out(line: &[&str], out: &mut dyn Write, talk: &Talk) -> Result<(), Failure> {
    let words = std::iter::once(&"trapline").chain(line);
    let mut cli = Cli::try_parse_from(words).map_err(|error| Failure::Usage(error.to_string()))?;
    match &mut cli.command {
        Command::Run(args) | Command::Record(args) => {
            args.settle();
            running::run(args, out, talk)?;
        }
        Command::Replay(args) => {
            replay::run(args, out, talk)?;
        }
        _ => return Err(Failure::Usage(format!("the demo does not ask with {line:?}"))),
    }
    Ok(())
}

/// A word as it is typed into a shell. None has an apostrophe.
fn typed(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{word}'") }
}

fn unwritable(path: &Path, error: io::Error) -> Failure {
    Failure::Write { path: path.to_owned(), error }
}
