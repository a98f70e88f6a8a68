//! The fuzzer: executions a second of one core, beside LibAFL with a subject that does nothing, and two jobs against one.

use super::table::{Row, Target, median};
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Instant;

use trapline_session::{Command, Condition, GuestBuilder, Limits, Recorder, SourceOptions, compile};
use trapline_tests::built;

/// 20 operations, of which some read memory.
const HANDLER: &str = "name = vmlinux\nmodtype = kernel\nlogmax = 64\noffset = do_fork\nopcode = 0x55\n\
    push r, esp\npush mem, u32\npush 0xff\nand\nlog 1\npush r, eax\npush 3\nand\nlog 1\npush r, esp\npush 4\nadd\n\
    push mem, u32\npush 1\nadd\nlog 1\npush pid\nlog 1\nnop\nexit\n";
/// A function of the guest, of 2,000 instructions, and an input that it does not look at: each call is as long.
const FUNCTION: &str = "fbt::printk:entry";
const INPUT: &str = "ebx";

/// Records a run with these commands, into a file.
fn record(path: &Path, guest: &str, commands: Vec<Command>, insns: u64) -> Result<(), Box<dyn Error>> {
    let builder = GuestBuilder::embedded(guest).memory(32 << 20);
    let (builder, config, blobs) = builder.recorded(false)?;
    let recorder = Recorder::begin(Box::new(File::create(path)?), &config, &blobs)?;
    let mut session = builder.start()?;
    session.record(recorder)?;
    for command in commands {
        session.apply(command)?;
    }
    session.run_until(&Condition::end(), &Limits::insns(insns));
    session.finish_recording()?;
    Ok(())
}

/// A search whose speed is measured.
struct Search<'a> {
    what: &'static str,
    recording: &'a Path,
    execs: u64,
    /// What `--speed` takes.
    kind: &'static str,
    options: &'a [&'a str],
    /// Executions a second, and how the table names them; no target without them.
    target: Option<(f64, &'static str)>,
}

impl Search<'_> {
    /// Executions a second, as the fuzzer measures itself.
    fn speed(&self, fuzzer: &Path) -> Result<f64, Box<dyn Error>> {
        let mut process = Process::new(fuzzer);
        process.arg(self.recording).args(["--findings", "."]).args(["--speed", self.kind]).args(self.options);
        let output = process.args(["--execs", &self.execs.to_string()]).output()?;
        let told: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| format!("trapline-fuzz: {}", String::from_utf8_lossy(&output.stderr)))?;
        let number = |key: &str| told.get(key).and_then(serde_json::Value::as_f64).unwrap_or_default();
        Ok(number("executions") / number("seconds").max(1e-9))
    }

    fn row(&self, fuzzer: &Path, rounds: usize) -> Result<Row, Box<dyn Error>> {
        let speeds = (0..rounds).map(|_| self.speed(fuzzer)).collect::<Result<Vec<_>, _>>()?;
        let speed = median(speeds);
        let row = Row::plain(self.what, 1e6 / speed, "us");
        Ok(match self.target {
            Some((wanted, of)) => row.against(speed / wanted, of, Target::AtLeast(1.0)),
            None => row,
        })
    }
}

/// Seconds that a search takes with so many jobs.
fn seconds(fuzzer: &Path, recording: &Path, folder: &Path, jobs: &str) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    let mut process = Process::new(fuzzer);
    process.arg(recording).arg("--findings").arg(folder).args(["--execs", "6000000", "--jobs", jobs, "-q"]);
    process.output()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// The rows; a sentence if the fuzzer is not built.
pub fn rows(rounds: usize) -> Result<Result<Vec<Row>, &'static str>, Box<dyn Error>> {
    let Some(fuzzer) = built::fuzzer() else {
        return Ok(Err("the fuzzer: skipped, it is not built (make fuzzer)"));
    };
    let folder: PathBuf = std::env::temp_dir().join(format!("trapline-bench-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (handler, function) = (folder.join("handler.tlr"), folder.join("function.tlr"));
    let program = compile("handler.rpn", HANDLER, &SourceOptions::default())?;
    record(&handler, "ia32", vec![Command::insert("handler.rpn", program)], 3_000_000)?;
    record(&function, "x86_64", vec![Command::clause(&format!("{FUNCTION} {{ abort }}"))], 30_000_000)?;
    let of_function = ["--function", FUNCTION, "--input", INPUT, "--hits", "1"];
    let search = Search {
        what: "LibAFL with an empty target",
        recording: &handler,
        execs: 2_000_000,
        kind: "empty",
        options: &[],
        target: None,
    };
    let searches = [
        Search {
            kind: "search",
            what: "a handler of 20 operations",
            target: Some((200_000.0, "200,000/s")),
            ..search
        },
        Search {
            kind: "search",
            what: "   and 1,000 instructions after it",
            execs: 200_000,
            options: &["--continue", "1000"],
            target: Some((20_000.0, "20,000/s")),
            ..search
        },
        Search {
            kind: "search",
            what: "a function of 2,000 instructions",
            recording: &function,
            execs: 60_000,
            options: &of_function,
            target: Some((5_000.0, "5,000/s")),
        },
    ];
    let mut rows = vec![search.row(&fuzzer, rounds)?];
    for search in &searches {
        rows.push(search.row(&fuzzer, rounds)?);
    }
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (one, two) =
            (seconds(&fuzzer, &handler, &folder, "1")?, seconds(&fuzzer, &handler, &folder, "2")?);
        times.push(two);
        ratios.push(one / two);
    }
    let row = Row::plain("6 million executions by two jobs", median(times), "s");
    rows.push(row.against(median(ratios), "one job", Target::AtLeast(1.7)));
    std::fs::remove_dir_all(&folder)?;
    Ok(Ok(rows))
}
