//! Resumes snapshots in new processes.
//!
//! `resume GUEST FILE` runs the guest from the snapshot in FILE to its end, and prints how it ended.
//! `resume GUEST all N [SEED]` runs it to its end once, then takes snapshots at N random counts, resumes each in a
//! separate process, and compares.

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use trapline_tests::resume::Course;

/// Random counts, ascending.
fn counts(n: usize, mut seed: u64, from: u64, end: u64) -> Vec<u64> {
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        from + seed % (end - from)
    };
    let mut counts: Vec<u64> = (0..n).map(|_| random()).collect();
    counts.sort_unstable();
    counts
}

fn all(name: &str, n: usize, seed: u64) -> Result<(), Box<dyn Error>> {
    let course = Course::new(name)?;
    let expected = course.finish(&mut course.start()?)?;
    let file = std::env::temp_dir().join(format!("trapline-resume-{}", std::process::id()));
    let mut session = course.start()?;
    for (done, at) in counts(n, seed, course.from(expected.icount), expected.icount).into_iter().enumerate() {
        course.save(&mut session, at, &file)?;
        let found = child(name, &file)?;
        if found != expected.to_string() {
            let kept = file.display();
            return Err(format!("{name} from {at}: {found}\nexpected: {expected}\nkept: {kept}").into());
        }
        if (done + 1) % 10 == 0 {
            eprintln!("{name}: {} of {n}", done + 1);
        }
    }
    std::fs::remove_file(&file)?;
    if course.finish(&mut session)? != expected {
        return Err(format!("{name}: taking snapshots has changed the run").into());
    }
    println!("{name}: {n} snapshots, each resumed in a new process, {} instructions", expected.icount);
    println!("{}", expected.probes);
    Ok(())
}

/// The output of a new process that resumes from a file.
fn child(name: &str, file: &Path) -> Result<String, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?).arg(name).arg(file).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [name, "all", n] => all(name, n.parse()?, 0x9e37_79b9_7f4a_7c15),
        [name, "all", n, seed] => all(name, n.parse()?, seed.parse::<u64>()?.max(1)),
        [name, file] => {
            print!("{}", Course::new(name)?.resume(Path::new(file))?);
            Ok(())
        }
        _ => Err("usage: resume GUEST FILE, or resume GUEST all N [SEED]".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resume: {error}");
            ExitCode::FAILURE
        }
    }
}
