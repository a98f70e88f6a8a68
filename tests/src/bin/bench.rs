//! `make bench`: the speed of Trapline as ratios, measured in one run, interleaved.
//!
//! Times are this thread's CPU time, so that other work on the machine does not count; each ratio is taken within a round and the medians are shown.
//! A target that is missed is marked and does not fail the run: no test depends on time.

#[path = "../bench/arming.rs"]
mod arming;
#[path = "../bench/boot.rs"]
mod boot;
#[path = "../bench/d.rs"]
mod d;
#[path = "../bench/dumps.rs"]
mod dumps;
#[path = "../bench/floats.rs"]
mod floats;
#[path = "../bench/forms.rs"]
mod forms;
#[path = "../bench/fuzzing.rs"]
mod fuzzing;
#[path = "../bench/hits.rs"]
mod hits;
#[path = "../bench/linux.rs"]
mod linux;
#[path = "../bench/memory.rs"]
mod memory;
#[path = "../bench/positions.rs"]
mod positions;
#[path = "../bench/probes.rs"]
mod probes;
#[path = "../bench/providers.rs"]
mod providers;
#[path = "../bench/recording.rs"]
mod recording;
#[path = "../bench/screen.rs"]
mod screen;
#[path = "../bench/snapshot.rs"]
mod snapshot;
#[path = "../bench/table.rs"]
mod table;
#[path = "../bench/vm.rs"]
mod vm;
#[path = "../bench/watching.rs"]
mod watching;

use clap::{Parser, ValueEnum};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;
use trapline_tests::linux::{KERNELS, Linux};

/// The name of the section of opcode forms for `--only`.
const FORMS: &str = "forms";
/// The name of the sections of probes by name for `--only`.
const PROVIDERS: &str = "providers";
/// The name of the section of dumps for `--only`.
const DUMPS: &str = "dumps";
/// The name of the section of the fuzzer for `--only`.
const FUZZING: &str = "fuzzing";
/// The name of the section of large memory for `--only`.
const MEMORY: &str = "memory";
const MEMORY_TITLE: &str = "Memory that the guest does not touch: 4 GiB against 256 MiB";
/// The name of the sections of Linux boots for `--only`.
const LINUX: &str = "linux";

/// Measures Trapline against bare Unicorn, qemu and rbpf.
#[derive(Parser)]
#[command(name = "bench")]
struct Options {
    /// About a minute: fewer rounds, and no boot of GNU Mach and Linux
    #[arg(long)]
    quick: bool,
    /// Show every opcode form; without this their summary
    #[arg(long)]
    forms: bool,
    /// Only the rows of hits, sites and handlers that contain this text; `forms`: only the opcode forms; `providers`: only
    /// the probes by name; `dumps`: only crash dumps; `fuzzing`: only the fuzzer; `memory`: only the costs of memory that the guest does not touch; `linux`: only the boots of Linux, `linux-686`, `linux-686-stress` and so on: some of them
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    format: Format,
    /// Rounds of the boots of GNU Mach and Linux
    #[arg(long, default_value_t = 3)]
    boots: usize,
    /// Only print the resident memory of the stress script on this kernel, bytes: the benchmark runs itself so
    #[arg(long, value_name = "FLAVOUR", hide = true)]
    resident: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// JSON lines
    Json,
}

/// The rows of a hit, of many sites, and the forms, as far as `--only` asks for them.
fn hit_sections(options: &Options, table: &mut table::Table) -> Result<(), Box<dyn Error>> {
    let (rounds, scale) = if options.quick { (7, 2) } else { (15, 5) };
    let only = options.only.as_deref().unwrap_or("");
    if only != FORMS {
        let title = "One hit: the paper's experiments, loop dec eax; nop; jnz";
        table.section(title, &hits::paper(rounds, scale, only)?);
        table.section("Arguments of probes by name", &hits::arguments(rounds, scale, only)?);
        table.section("4000 armed sites", &hits::sites(rounds, scale, only)?);
        table.section("Watchpoints, loop of 6 with a memory operand", &watching::rows(rounds, scale, only)?);
        table.section("Floating point: the speed of the bare engine", &floats::rows(rounds, scale, only)?);
        table.section("A handler against an eBPF program that does the same", &vm::programs(rounds, only)?);
        table.section("The compiler", &vm::compiler(rounds, only)?);
        table.section("A clause of D above one that does nothing", &d::clauses(rounds, scale, only)?);
        table.section("D against hand-written RPN", &d::arithmetic(rounds, only)?);
        table.section("The compiler of D", &d::compiler(rounds, only)?);
    }
    if only.is_empty() || only == FORMS {
        let lines = forms::lines(if options.quick { 1 } else { 5 })?;
        table.forms(&lines, hits::bare_iteration(rounds, scale)?, options.forms);
    }
    Ok(())
}

/// The cost of probes by name: finding, listing and arming them, and while they are not enabled.
fn provider_sections(options: &Options, table: &mut table::Table) -> Result<(), Box<dyn Error>> {
    let rounds = if options.quick { 3 } else { 9 };
    table.section("A kernel of 45,000 functions", &probes::rows(rounds)?);
    let kernel = KERNELS.iter().find(|linux| linux.flavour == "amd64");
    match kernel.filter(|linux| linux.kernel().is_ok()) {
        Some(linux) => {
            table.section("Debian's amd64 kernel, 49,665 functions", &providers::linux(linux, rounds)?)
        }
        None => table.note("probes by name on Linux: skipped, the kernel is missing (make guests)"),
    }
    table.section(
        "Probes that are not enabled",
        &providers::dormant(rounds, if options.quick { 1 } else { 5 })?,
    );
    Ok(())
}

/// The speed of the fuzzer.
fn fuzzing_section(table: &mut table::Table, rounds: usize) -> Result<(), Box<dyn Error>> {
    match fuzzing::rows(rounds)? {
        Ok(rows) => table.section("The fuzzer, executions of one core", &rows),
        Err(why) => table.note(why),
    }
    Ok(())
}

/// The sections of Linux whose title begins with `only`, e.g. `linux-686-boot`.
fn linux_sections(options: &Options, table: &mut table::Table, only: &str) -> Result<(), Box<dyn Error>> {
    type Rows = fn(&Linux, usize) -> Result<Vec<table::Row>, Box<dyn Error>>;
    let parts: [(&str, Rows); 7] = [
        ("boot", linux::boot),
        ("stress", linux::stress),
        ("d", d::boot),
        ("recording", recording::rows),
        ("positions", positions::boot),
        ("stress-positions", positions::stress),
        ("tui", screen::rows),
    ];
    for kernel in &KERNELS {
        for (part, rows) in parts {
            let title = format!("{}-{part}", linux::title(kernel));
            // The bounds of recordings and of their positions are those of one kernel.
            let other = !["boot", "stress"].contains(&part) && kernel.flavour != "cloud-amd64";
            if other || !title.starts_with(only) {
                continue;
            }
            if kernel.kernel().is_err() {
                table.note(&format!("{title}: skipped, the kernel is missing (make guests)"));
                continue;
            }
            table.section(&title, &rows(kernel, options.boots.max(1))?);
        }
    }
    Ok(())
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    if let Some(flavour) = &options.resident {
        let kernel = KERNELS.iter().find(|linux| linux.flavour == flavour).ok_or("unknown kernel")?;
        println!("{}", linux::resident_here(kernel)?);
        return Ok(());
    }
    let mut table = table::Table::new(options.format == Format::Json);
    if let Some(only) = options.only.as_deref().filter(|only| only.starts_with(LINUX)) {
        linux_sections(options, &mut table, only)?;
        table.end(start.elapsed().as_secs_f64());
        return Ok(());
    }
    if options.only.as_deref() == Some(PROVIDERS) {
        let (rounds, scale) = if options.quick { (7, 2) } else { (15, 5) };
        table.section("Arguments of probes by name", &hits::arguments(rounds, scale, "")?);
        provider_sections(options, &mut table)?;
        table.end(start.elapsed().as_secs_f64());
        return Ok(());
    }
    if options.only.as_deref() == Some(DUMPS) {
        table.section("Crash dumps", &dumps::rows(3)?);
        table.end(start.elapsed().as_secs_f64());
        return Ok(());
    }
    if options.only.as_deref() == Some(FUZZING) {
        fuzzing_section(&mut table, 3)?;
        table.end(start.elapsed().as_secs_f64());
        return Ok(());
    }
    if options.only.as_deref() == Some(MEMORY) {
        table.section(MEMORY_TITLE, &memory::rows(15)?);
        table.end(start.elapsed().as_secs_f64());
        return Ok(());
    }
    hit_sections(options, &mut table)?;
    if options.only.is_some() {
        table.end(start.elapsed().as_secs_f64());
        return Ok(());
    }
    provider_sections(options, &mut table)?;
    table.section("Arming in a running guest", &arming::rows(if options.quick { 3 } else { 9 })?);
    table.section("Crash dumps", &dumps::rows(if options.quick { 1 } else { 3 })?);
    fuzzing_section(&mut table, if options.quick { 1 } else { 3 })?;
    table.section("Snapshot restore", &snapshot::rows(if options.quick { 50 } else { 200 })?);
    table.section(MEMORY_TITLE, &memory::rows(if options.quick { 5 } else { 15 })?);
    if options.quick {
        table.note("the boots of GNU Mach and Linux: left out by --quick");
    } else if let Some(guest) = boot::guest() {
        let (rows, notes) = boot::rows(&guest, options.boots.max(1))?;
        table.section("GNU Mach from its entry to db>", &rows);
        notes.iter().for_each(|n| table.note(n));
    } else {
        table.note("GNU Mach's boot: skipped, .guests/gnumach is missing (make guests)");
    }
    if !options.quick {
        linux_sections(options, &mut table, LINUX)?;
    }
    table.end(start.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e}");
            ExitCode::FAILURE
        }
    }
}
