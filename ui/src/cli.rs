//! The command line. DProbes' own option names are accepted, unlisted, where they mean the same.

mod diff;
mod dti;
mod dump;
mod fuzz;
mod gdb;
mod listings;
mod machine;
mod output;
mod probes;
mod profile;
mod recording;
mod trace;
mod tui;
mod verify;

pub use diff::DiffArgs;
pub use dti::{
    DtiArgs, DtiCommand, DtiFollowArgs, DtiListArgs, DtiRecordArgs, DtiShowArgs, DtiSource, DtiView,
};
pub use dump::{DumpArgs, Listed};
pub use fuzz::FuzzArgs;
pub use gdb::GdbArgs;
pub use machine::{MachineArgs, is_recording};
pub use output::OutputArgs;
pub use probes::ProbeArgs;
pub use profile::{CountedBy, ProfileArgs, SampledArgs, TopArgs};
pub use recording::{RecordingArgs, ReplayArgs};
pub use trace::{CatArgs, ConvertArgs, TraceArgs, TraceCommand};
pub use tui::{Theme, TuiArgs};
pub use verify::VerifyArgs;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use trapline_providers::{Abi, TargetProcess};
use trapline_session::numbers::{self, NumberError};

use crate::devices::DeviceArgs;
use crate::progress::When;
use crate::talk::Color;

/// The exit codes below the help.
pub const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  an exception ended a handler (--fail-on-exception), runs differ (diff), fuzz found a state
    2  the command line or a script is wrong
    3  a probe program does not compile, verify or fit
    4  the guest crashed
    5  a replay is not the recorded run
    6  records were lost (--fail-on-loss)
    7  a file cannot be read or written, or has the wrong content
  124  the instruction limit was reached
  130  interrupted
  141  the reader of standard output closed it, as head does

Data goes to standard output, messages to standard error. An input file named - is standard input.";

/// A text that is not empty.
fn text(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("the text is empty; write the text to look for".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// The frames of a stack.
fn depth(text: &str) -> Result<usize, NumberError> {
    numbers::within(text, 1, 256).map(|depth| depth as usize)
}

/// The instructions of a handler.
fn steps(text: &str) -> Result<u32, NumberError> {
    numbers::within(text, 1, u32::MAX.into()).map(|steps| steps as u32)
}

/// The bits of a guest's word.
fn width(text: &str) -> Result<u8, String> {
    match numbers::count(text) {
        Ok(32) => Ok(32),
        Ok(64) => Ok(64),
        _ => Err("use 32 or 64".to_owned()),
    }
}

/// Dynamic probes on a deterministic full-system emulator.
#[derive(Debug, Parser)]
#[command(name = "trapline", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub color: Color,
    /// When to show on standard error how far a run, a replay or a conversion has come (docs/shell.md)
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub progress: When,
    /// Print only errors and the requested data
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Do not show listings that are longer than the screen in a pager (docs/shell.md)
    #[arg(long, global = true)]
    pub no_pager: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const RUN_EXAMPLES: &str = "\
Examples:
  Guest              trapline run bzImage --initrd initrd.gz --append quiet --mem 512M
  Probes             trapline run embedded:ia32 --rpn 'fbt::do_fork:entry { push pid; log 1 }'
  Probe programs     trapline run embedded:ia32 -p probes.rpn -D DEBUG=1
  Course of the run  trapline run bzImage -n 'fbt::do_exit:entry' --until '/ # ' --limit-insns 2G
  Output             trapline run embedded:ia32 -n 'fbt::do_fork:' -f json -o hits.json --stats
  By hand            trapline run -i bzImage --initrd initrd.gz";

const RECORD_EXAMPLES: &str = "\
Examples:
  A boot             trapline record bzImage --initrd initrd.gz --until '/ # ' -o boot.tlr
  With probes        trapline record embedded:ia32 -n 'fbt::do_fork:entry' -o forks.tlr";

const REPLAY_EXAMPLES: &str = "\
Examples:
  The same run       trapline replay boot.tlr --verify
  New probes         trapline replay boot.tlr -n 'fbt::do_exit:entry'
  A position         echo query | trapline replay boot.tlr --at end-1000
  What it holds      trapline replay boot.tlr --info";

const TUI_IMAGE: &str = "\
A recording, whose name ends in .tlr; or what `run` takes: Linux bzImage or vmlinux, Multiboot or ELF kernel, also gzipped; \
embedded:ia32 or embedded:x86_64";

const TUI_EXAMPLES: &str = "\
Examples:
  A live run         trapline tui embedded:ia32 -p probes.rpn
  A recording        trapline tui boot.tlr
  New probes         trapline tui boot.tlr -n 'fbt::do_exit:entry'

On the screen, ? shows all keys.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  All of a folder    trapline verify tests/recordings --jobs 4 --junit results.xml
  After a change     trapline verify tests/recordings --update";

const DIFF_EXAMPLES: &str = "\
Examples:
  Two recordings     trapline diff before.tlr after.tlr
  A changed image    trapline diff boot.tlr --image bzImage.new
  A command line     trapline diff boot.tlr --append nosmp
  Calls              trapline diff before.tlr after.tlr --hits='fbt::do_*:entry' -f json

The exit code is 0 if nothing differs and 1 if something does; the others are those of `trapline --help`.";

const LIST_EXAMPLES: &str = "\
Examples:
  Functions          trapline list embedded:ia32 'do_*' --opcode
  Probes             trapline list embedded:ia32 'fbt::do_*:entry' -v
  A running guest    trapline list embedded:ia32 --processes --at insns=3M";

const DIS_EXAMPLES: &str = "\
Examples:
  A function         trapline dis embedded:ia32 do_fork --armed
  A PPDF file        trapline dis probes.ppdf
  A D program        trapline dis probes.d";

const CHECK_EXAMPLES: &str = "\
Examples:
  Files              trapline check probes.rpn --disassemble
  A D program        trapline check probes.d --guest bzImage
  Standard input     trapline check - < probes.rpn
  A finding          trapline check --explain unreachable-code";

const BUILD_EXAMPLES: &str = "\
Examples:
  A PPDF file        trapline build probes.rpn -o probes.ppdf
  Signed             trapline build --new-key my.key; trapline build probes.rpn --sign my.key";

const DUMP_EXAMPLES: &str = "\
Examples:
  A crash            trapline dump bzImage --initrd initrd.gz --append init=/crash -o vmcore
  A position         trapline dump boot.tlr --at 300M -o vmcore --compress zstd
  What it holds      trapline dump vmcore --info
  Its processes      trapline dump vmcore --list processes
  A D program on it  trapline dump vmcore -n 'BEGIN { print(*(struct task_struct *)curthread); }'";

const DTI_EXAMPLES: &str = "\
Examples:
  A guest            trapline dti list embedded:dti
  A position         trapline dti show boot.tlr 3c59x --at 300M
  A crash dump       trapline dti show vmcore
  A running guest    trapline dti follow embedded:dti 3c59x --view hex";

const DEMO_EXAMPLES: &str = "\
Examples:
  Three questions    trapline demo
  The manual page's  trapline demo --manual x86_64";

const MAN_EXAMPLES: &str = "\
Examples:
  To read            trapline man tui | man -l -
  To install         trapline man --all /usr/local/share/man/man1";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  For this shell     source <(trapline completions bash)
  bash               trapline completions bash > ~/.local/share/bash-completion/completions/trapline
  zsh                trapline completions zsh > /usr/local/share/zsh/site-functions/_trapline
  fish               trapline completions fish > ~/.config/fish/completions/trapline.fish";

const REFERENCE_EXAMPLES: &str = "\
Examples:
  RPN                trapline reference rpn
  As a web page      trapline reference d | pandoc -o d.html";

const TRACE_EXAMPLES: &str = "\
Example:
  trapline run embedded:ia32 -n 'fbt::do_fork:' -f raw -o hits.trace; trapline trace cat hits.trace";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an image with probes and print their records
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Run an image as `run` does, and record the run into a file
    #[command(after_help = RECORD_EXAMPLES)]
    #[command(mut_arg("output", |arg| arg.short(None)))]
    #[command(mut_arg("record", |arg| arg.short('o').required(true)))]
    Record(Box<RunArgs>),
    /// Replay a recording, optionally with new probes
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Box<ReplayArgs>),
    /// Compare two recordings, or a recording with a changed guest: find the first difference
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Step back and forth through the hits of a run or a recording in the terminal (docs/tui.md)
    #[command(after_help = TUI_EXAMPLES)]
    #[command(mut_arg("image", |arg| arg.value_name("IMAGE|FILE.tlr").help(TUI_IMAGE)))]
    Tui(Box<TuiArgs>),
    /// Debug a run or a recording with gdb, forwards and backwards (docs/gdb.md)
    #[command(after_help = gdb::EXAMPLES)]
    #[command(mut_arg("image", |arg| arg.value_name("IMAGE|FILE.tlr").help(TUI_IMAGE)))]
    Gdb(Box<GdbArgs>),
    /// Replay recordings as tests: each must give its recorded results and meet its assertions
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Write a crash dump of a machine, for crash, makedumpfile and gdb; or print what a dump contains (docs/dumps.md)
    #[command(after_help = DUMP_EXAMPLES)]
    Dump(Box<DumpArgs>),
    /// Search for states of the guest in which a handler does what it must not (docs/fuzzing.md)
    #[command(after_help = fuzz::EXAMPLES)]
    Fuzz(Box<FuzzArgs>),
    /// Read the channels that drivers trace to: of a guest, a recording, a snapshot or a crash dump (docs/dti.md)
    #[command(after_help = DTI_EXAMPLES)]
    Dti(DtiArgs),
    /// List functions, or the probes that match a SPEC
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Disassemble a function, and show how each instruction would be displaced; or disassemble a PPDF file
    #[command(after_help = DIS_EXAMPLES)]
    Dis(DisArgs),
    /// Compile and verify probe programs without running a guest
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Compile a probe program to a PPDF file, which runs without its source
    #[command(after_help = BUILD_EXAMPLES)]
    Build(BuildArgs),
    /// Ask an embedded guest three questions, or run the examples of DProbes' manual page
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Run D programs, with the options and the output of dtrace(1)
    Dtrace(DtraceArgs),
    /// Print a manual page in the format of man(1): of the program, or of one command
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
    /// Print a shell's completion of commands, options, images, and the probes of the image on the line
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print the reference of the languages, options, errors and keys as Markdown
    #[command(after_help = REFERENCE_EXAMPLES)]
    Reference(ReferenceArgs),
    /// Show where a run or a recording spends its instructions, as a flame graph, folded stacks or a table
    /// (docs/export.md)
    #[command(after_help = profile::EXAMPLES)]
    Profile(ProfileArgs),
    /// Show the hottest functions and processes while a guest or a recording runs
    #[command(after_help = profile::TOP_EXAMPLES)]
    Top(TopArgs),
    /// Work with trace files, which `run -f raw -o FILE` writes
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(TraceArgs),
}

/// The manual page.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// A command, such as `run`, or two words such as `trace cat`; without one, the page of the program
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of the program and of all commands into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub all: Option<PathBuf>,
}

/// The completion of a shell.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// The reference.
#[derive(Debug, Args)]
pub struct ReferenceArgs {
    /// The subject
    pub topic: Topic,
}

/// The subjects of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Topic {
    /// The instructions of RPN
    Rpn,
    /// The variables, functions, actions and options of D
    D,
    /// The options of every command
    Options,
    /// The exit codes
    ExitCodes,
    /// The errors and warnings of probe programs
    Errors,
    /// The keys of the terminal UI
    Keys,
}

/// A shell that has completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// From version 4.4
    Bash,
    /// The Z shell
    Zsh,
    /// From version 3.1
    Fish,
}

/// What makes up a guest.
#[derive(Debug, Args)]
#[command(next_help_heading = "Guest")]
pub struct GuestArgs {
    /// Linux bzImage or vmlinux, Multiboot or ELF kernel, also gzipped; embedded:ia32 or embedded:x86_64
    #[arg(help_heading = "Arguments")]
    pub image: String,
    // The brackets are part of the help, not a link.
    #[allow(rustdoc::broken_intra_doc_links)]
    /// Load this Multiboot module, and allow user probes in it: 'FILE [ARGUMENTS]'; may be repeated
    #[arg(long, value_name = "FILE")]
    pub module: Vec<String>,
    /// Initial RAM disk for a Linux kernel
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
    /// Allow probes in a file of the guest: its path in the guest, and a copy here; may be repeated. Files in an initial
    /// RAM disk (cpio, also gzipped) need no such option
    #[arg(long, value_name = "GUEST=FILE")]
    pub file: Vec<String>,
    /// Read kernel symbols from this System.map or ELF file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub sym: Vec<PathBuf>,
    /// Which functions and sites fbt probes: full, or strict for those of DTrace [default: full]
    #[arg(long, value_enum, value_name = "RULES")]
    pub fbt: Option<FbtRules>,
    /// Calling convention of the kernel's functions: cdecl, regparm or sysv [default: derived from the kernel's code]
    #[arg(long, value_name = "CONVENTION")]
    pub abi: Option<Abi>,
    /// The process of pid$target: its name, its process id, or the path of its program in the guest
    #[arg(long, value_name = "NAME|PID|PATH")]
    pub target: Option<TargetProcess>,
    /// With --target NAME or PATH: include forked children, until they execute another program
    #[arg(long, requires = "target")]
    pub follow_fork: bool,
}

/// The sites of fbt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FbtRules {
    /// The first instruction of every function, every return, and jumps out of the function
    Full,
    /// The sites of DTrace's fbt
    Strict,
}

/// How probe programs are read: the preprocessor's part, and whose files are taken.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Probe programs")]
pub struct SourceArgs {
    /// Define a macro for probe programs, as in C; may be repeated
    #[arg(short = 'D', value_name = "KEY[=VALUE]")]
    pub define: Vec<String>,
    /// Search this folder for included files; may be repeated
    #[arg(short = 'I', value_name = "DIR")]
    pub include: Vec<PathBuf>,
    /// Accept only handlers from PPDF files that this public key has signed
    #[arg(long, value_name = "KEY")]
    pub require_signed: Option<PathBuf>,
}

/// How records are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines in the format of DProbes
    Text,
    /// One JSON object per line, with a header and an end line
    Json,
}

/// The form of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RecordFormat {
    /// Lines in the format of DProbes
    Text,
    /// One JSON object per line, with a header and an end line
    Json,
    /// CPU, ID and FUNCTION:NAME, in the format of dtrace(1)
    Dtrace,
    /// A trace file, for `trapline trace cat` and `trace convert`
    Raw,
    /// A table with one line per record (docs/export.md)
    Csv,
    /// Folded stacks, one line per stack, at the end (docs/export.md)
    Folded,
    /// A flame graph, at the end (docs/export.md)
    Svg,
    /// Stacks for pprof, in binary, at the end (docs/export.md)
    Pprof,
    /// A trace for Perfetto, in binary (docs/export.md)
    Perfetto,
    /// A CTF 1.8 trace: -o is a folder (docs/export.md)
    Ctf,
}

impl RecordFormat {
    /// Whether it is no text.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Raw | Self::Pprof | Self::Perfetto | Self::Ctf)
    }
}

/// The kernel command line.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Guest")]
pub struct CmdlineArgs {
    /// Kernel command line; for a Multiboot kernel the part after the image's name [default: that of the image; Linux gets
    /// its console on ttyS0, nokaslr and options for the platform]
    #[arg(long, value_name = "TEXT")]
    pub cmdline: Option<String>,
    /// Append this to the kernel command line; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub append: Vec<String>,
}

impl CmdlineArgs {
    /// Each option, and whether it was given.
    pub fn given(&self) -> [(bool, &'static str); 2] {
        [(self.cmdline.is_some(), "--cmdline"), (!self.append.is_empty(), "--append")]
    }
}

/// `run`, and `record`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The guest.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// The kernel command line.
    #[command(flatten)]
    pub cmdline: CmdlineArgs,
    /// Guest memory in bytes, from 1M to 32G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = numbers::memory, help_heading = "Guest")]
    pub mem: u64,
    /// Devices.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Probes, and what they record.
    #[command(flatten)]
    pub probes: ProbeArgs,
    /// Use the terminal as the guest's console; Ctrl-A h shows the keys (docs/interactive.md)
    #[arg(short, long, conflicts_with_all = ["console", "com2", "log_to"], help_heading = "Course of the run")]
    pub interactive: bool,
    /// Show hits as a tree of calls: entries and returns indented, and how long each call took in virtual time
    #[arg(short = 'F', long, help_heading = "Output")]
    pub flow: bool,
    /// End the run after N hits, with exit code 0; other probes of the same instruction still run
    #[arg(long, value_name = "N", value_parser = numbers::positive, help_heading = "Course of the run")]
    pub stop_after: Option<u64>,
    /// Run the commands of this script at instruction counts and hits (docs/script.md)
    #[arg(long, value_name = "FILE", help_heading = "Course of the run")]
    pub script: Option<PathBuf>,
    /// Continue from this snapshot of the same guest, written by --save (docs/snapshots.md)
    #[arg(long, value_name = "FILE", conflicts_with = "record", help_heading = "Course of the run")]
    pub restore: Option<PathBuf>,
    /// Write a snapshot to this file at the end of the run
    #[arg(long, value_name = "FILE", help_heading = "Course of the run")]
    pub save: Option<PathBuf>,
    /// End the run when the console shows this text, with exit code 0; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = text, help_heading = "Course of the run")]
    pub until: Vec<String>,
    /// End the run when the console shows this text, with exit code 4; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = text, help_heading = "Course of the run")]
    pub crash_on: Vec<String>,
    /// End the run after N instructions, such as 300M or 2G, with exit code 124
    #[arg(long, value_name = "N", value_parser = numbers::positive, help_heading = "Course of the run")]
    pub limit_insns: Option<u64>,
    /// Write a crash dump to this file if the guest crashes (docs/dumps.md)
    #[arg(long, value_name = "FILE", help_heading = "Course of the run")]
    pub dump_on_crash: Option<PathBuf>,
    /// Save the channels that drivers trace to in this folder, if the guest crashes or --until ends the run (docs/dti.md)
    #[arg(long, value_name = "DIR", help_heading = "Course of the run")]
    pub dti_on_crash: Option<PathBuf>,
    /// Exit 1 if an exception ended a handler
    #[arg(long, help_heading = "Course of the run")]
    pub fail_on_exception: bool,
    /// Exit 6 if records were lost
    #[arg(long, help_heading = "Course of the run")]
    pub fail_on_loss: bool,
    /// What is written, and where.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The recording of the run.
    #[command(flatten)]
    pub recording: RecordingArgs,
}

impl RunArgs {
    /// Says to D programs what other options say about them: `-F` is `-x flowindent` there.
    pub fn settle(&mut self) {
        if self.flow && self.probes.has_d() {
            self.probes.d_options.push("flowindent".to_owned());
        }
    }

    /// Whether there may be probes: a snapshot may hold some.
    pub fn is_probed(&self) -> bool {
        self.brings_probes() || self.restore.is_some()
    }

    /// Whether there may be probes besides those of a snapshot.
    pub fn brings_probes(&self) -> bool {
        self.probes.any() || self.script.is_some()
    }
}

/// How a guest is run before something is done with it.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Before the listing")]
pub struct FirstArgs {
    /// Run the guest for N instructions before the listing
    #[arg(long, value_name = "insns=N", value_parser = numbers::position, conflicts_with = "until")]
    pub at: Option<u64>,
    /// Run the guest before the listing, until the console shows this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = text)]
    pub until: Vec<String>,
    /// With --until: stop after N instructions, with exit code 124
    #[arg(long, value_name = "N", requires = "until", value_parser = numbers::positive)]
    pub limit_insns: Option<u64>,
    /// The kernel command line.
    #[command(flatten)]
    pub cmdline: CmdlineArgs,
    /// Guest memory in bytes, from 1M to 32G [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = numbers::memory, help_heading = "Guest")]
    pub mem: Option<u64>,
    /// Devices.
    #[command(flatten)]
    pub devices: DeviceArgs,
}

impl FirstArgs {
    /// Whether the guest is to run.
    pub fn runs(&self) -> bool {
        self.at.is_some() || !self.until.is_empty()
    }

    /// An option that says how it runs, if one was given.
    pub fn given(&self) -> Option<&'static str> {
        let all = [(self.mem.is_some(), "--mem")];
        let mut all = all.into_iter().chain(self.cmdline.given()).chain(self.devices.given());
        all.find_map(|(given, option)| given.then_some(option))
    }
}

/// `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The guest.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// List only functions whose names match this glob (* ? [a-z] [!x] {a,b} \x), or with a colon, probes that match
    /// provider:module:function:name
    #[arg(value_name = "GLOB|SPEC", help_heading = "Arguments")]
    pub glob: Option<String>,
    /// The run before the listing.
    #[command(flatten)]
    pub first: FirstArgs,
    /// List the modules that the guest has loaded
    #[arg(long, conflicts_with_all = ["glob", "processes", "opcode", "bytes"], help_heading = "Output")]
    pub modules: bool,
    /// List the tasks of the guest; with -v also the files that they map
    #[arg(long, conflicts_with_all = ["glob", "opcode", "bytes"], help_heading = "Output")]
    pub processes: bool,
    /// Show the sites of each probe and the rule that found them
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Show the first byte, for `opcode =`; after --at or --until, the byte in memory
    #[arg(long, help_heading = "Output")]
    pub opcode: bool,
    /// Show the first bytes
    #[arg(long, help_heading = "Output")]
    pub bytes: bool,
    /// The form of the output.
    #[command(flatten)]
    pub form: FormArgs,
}

/// The form of what a command prints that makes no records.
#[derive(Debug, Args)]
pub struct FormArgs {
    /// Output format
    #[arg(
        short,
        long,
        visible_alias = "output",
        value_enum,
        default_value = "text",
        help_heading = "Output"
    )]
    pub format: Format,
}

/// `dis`.
#[derive(Debug, Args)]
pub struct DisArgs {
    /// The guest.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Function of the kernel or a module, MODULE:FUNCTION, or 0xADDRESS for the kernel's function that has this address;
    /// omitted for a PPDF file and for a D program (FILE.d), which are given as the image
    #[arg(help_heading = "Arguments")]
    pub symbol: Option<String>,
    /// Show original and patched bytes side by side; without -p, as if every instruction were probed
    #[arg(long, help_heading = "Output")]
    pub armed: bool,
    /// Mark the sites of this probe program; may be repeated
    #[arg(
        short,
        long = "probe",
        alias = "insert",
        short_alias = 'i',
        value_name = "FILE.rpn",
        help_heading = "Probe programs"
    )]
    pub probe: Vec<PathBuf>,
    /// The preprocessor.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub form: FormArgs,
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Probe programs, in RPN, or in D if the name ends in .d
    #[arg(required_unless_present = "explain", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Compile D programs with the types and the probes of this guest
    #[arg(long, value_name = "IMAGE", help_heading = "Guest")]
    pub guest: Option<String>,
    /// Its initial RAM disk
    #[arg(long, value_name = "FILE", requires = "guest", help_heading = "Guest")]
    pub initrd: Option<PathBuf>,
    /// More symbols and types of its kernel: a System.map or an ELF file; may be repeated
    #[arg(long, value_name = "FILE", requires = "guest", help_heading = "Guest")]
    pub sym: Vec<PathBuf>,
    /// The preprocessor.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Check for 32 or 64 bits only [default: both; the program must be valid for one]
    #[arg(long, value_name = "BITS", value_parser = width, help_heading = "Output")]
    pub width: Option<u8>,
    /// Print the verified code
    #[arg(long, help_heading = "Output")]
    pub disassemble: bool,
    /// Print the preprocessed text only
    #[arg(short = 'E', conflicts_with_all = ["format", "disassemble", "width"], help_heading = "Output")]
    pub preprocess: bool,
    /// Explain a finding by its code, with a wrong and a right example; `list` lists all codes
    #[arg(long, value_name = "CODE", conflicts_with_all = ["files", "preprocess"], help_heading = "Output")]
    pub explain: Option<String>,
    /// The form of the output.
    #[command(flatten)]
    pub form: FormArgs,
}

/// `build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Probe program; a PPDF file is accepted too, for signing it
    #[arg(value_name = "FILE.rpn", required_unless_present_any = ["build_ppdf", "new_key"])]
    pub file: Option<PathBuf>,
    /// DProbes' option for the probe program.
    #[arg(long, hide = true, value_name = "FILE.rpn", conflicts_with = "file")]
    pub build_ppdf: Option<PathBuf>,
    /// The file to write [default: FILE.ppdf]
    #[arg(short, long = "output-file", alias = "output", value_name = "FILE.ppdf", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// The preprocessor.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Check for 32 or 64 bits only [default: both; the program must be valid for one]. It does not change the file
    #[arg(long, value_name = "BITS", value_parser = width, help_heading = "Output")]
    pub width: Option<u8>,
    /// Sign with this private key (Ed25519, PEM)
    #[arg(long, value_name = "KEYFILE", help_heading = "Output")]
    pub sign: Option<PathBuf>,
    /// Only make a new key pair: KEYFILE for --sign, and KEYFILE.pub for --require-signed
    #[arg(long, value_name = "KEYFILE", exclusive = true, help_heading = "Output")]
    pub new_key: Option<PathBuf>,
}

/// `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Run the examples 1 to 6 of DProbes' manual page instead
    #[arg(long)]
    pub manual: bool,
    /// The guest of --manual, without `embedded:`: ia32 or x86_64
    #[arg(default_value = "ia32", requires = "manual")]
    pub guest: String,
    /// End the run of --manual after N instructions, such as 300M or 2G, with exit code 124
    #[arg(long, value_name = "N", default_value = "2G", value_parser = numbers::positive, requires = "manual")]
    pub limit_insns: u64,
}

/// `dtrace`.
#[derive(Debug, Args)]
pub struct DtraceArgs {
    /// The options of dtrace(1), such as -n 'BEGIN { trace(1); exit(0); }' and -s SCRIPT, and --guest IMAGE
    #[arg(value_name = "OPTION", last = true)]
    pub arguments: Vec<std::ffi::OsString>,
}
