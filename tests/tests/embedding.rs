//! A program outside the workspace, which depends on `trapline-session` alone, builds and does what the command does.

use std::path::Path;
use std::process::Command;

use trapline_tests::root;

use super::cli::{Ran, binary, finish, trapline};

/// Builds and runs a program of `tests/embedding` beside the tests, without network and with the workspace's versions of
/// all crates.
fn embedding(program: &[&str]) -> Ran {
    let folder = root().join("tests/embedding");
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let built = binary();
    let target = built.parent().and_then(Path::parent).unwrap();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--offline", "--profile", "ci", "--target-dir"]).arg(target);
    command.args(program).current_dir(folder);
    finish(command)
}

#[test]
fn a_program_outside_the_workspace_boots_probes_and_prints() {
    for guest in ["ia32", "x86_64"] {
        let ran = embedding(&[guest]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let image = format!("embedded:{guest}");
        let clause = "fbt::do_fork:entry { push pid; log 1 }";
        let args = ["run", &image, "--mem", "32M", "--rpn", clause, "-f", "json"];
        let direct = trapline(&root(), &args);
        let lines: Vec<serde_json::Value> =
            direct.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let hits: Vec<String> = lines
            .iter()
            .filter(|line| line["type"] == "hit")
            .map(|hit| {
                let pid = u8::from_str_radix(&hit["data"].as_str().unwrap()[..2], 16).unwrap();
                format!("{:>9} do_fork pid {pid}", hit["icount"].as_u64().unwrap())
            })
            .collect();
        assert!(!hits.is_empty());
        let end = lines.last().unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let ending = format!(
            "{} after {} instructions, {} forks\ndigest {}\n",
            text(&end["reason"]),
            end["insns"],
            hits.len(),
            text(&end["digest"])
        );
        assert_eq!(ran.out, format!("{}\n{ending}", hits.join("\n")));
    }
}

#[test]
fn an_observer_of_everything_needs_no_other_crate() {
    let ran = embedding(&["--example", "observe"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let expected = "the guest halted, and time has passed: true\nrecords of do_fork appln:swap do_fork, failed divides.rpn:9\n\
                    1 replies, core files: appln of process 2\nall that was sent is the console's text: true\n";
    assert_eq!(ran.out, expected);
}

#[test]
fn a_program_takes_what_d_prints_and_counts_as_values() {
    let ran = embedding(&["--example", "d"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    // The command's own answer.
    let program =
        "fbt::do_fork:entry { @forks[execname] = count(); } fbt::kmalloc:entry { @sizes = quantize(arg0); }";
    let args = ["run", "embedded:ia32", "--mem", "32M", "-n", program, "-f", "json", "--console", "none"];
    let direct = trapline(&root(), &args);
    let end: Vec<serde_json::Value> =
        direct.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entries = |name: &str| {
        let of = end.iter().find(|line| line["name"] == name).unwrap();
        of["entries"].as_array().unwrap().clone()
    };
    for entry in entries("@forks") {
        let line = format!("@forks [Text({})] = {}\n", entry["keys"][0], entry["value"]);
        assert!(ran.out.contains(&line), "{line}{}", ran.out);
    }
    let sizes = entries("@sizes")[0]["value"].as_array().unwrap().clone();
    let all: i64 = sizes.iter().map(|bucket| bucket["count"].as_i64().unwrap()).sum();
    let most = &sizes.last().unwrap()["max"];
    let line = format!("@sizes: {all} values, all at most Some({most})\n");
    assert!(ran.out.contains(&line) && all > 10, "{line}{}", ran.out);
    assert!(ran.out.contains("\"fork by appln\\n\" has the value \"appln\""), "{}", ran.out);
}

#[test]
fn a_program_registers_services_that_handlers_call_by_name() {
    let ran = embedding(&["--example", "service"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let expected = "difference of stack pointers: [0], observes only: true\n\
                    the sum of the bytes on top is right: true, observes only: true\n\
                    set: [4d], observes only: false\n\
                    cheat: [ba], observes only: true\n\
                    --rpn:1:27: error: no service `nothing` is registered\n\
                    the service sum is registered already\n";
    assert_eq!(ran.out, expected);
}
