//! A Perfetto trace and a profile of pprof as protoc reads them, by the published definitions: events with their names, values and
//! flows; stacks with their weights.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::{objects, ok, trapline};
use crate::cli;
use serde_json::Value;
use trapline_tests::linux::QUICK;
use trapline_tests::{guest, root};

/// The end of a flow to a thread that does not run again.
const NEVER: &str = "does not run before the end";

/// A message of protoc's text: its fields, each a text or a message.
#[derive(Debug, Default)]
struct Message(Vec<(String, Field)>);

#[derive(Debug)]
enum Field {
    Text(String),
    Message(Message),
}

impl Message {
    /// Reads lines up to the end of the message.
    fn read<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Self {
        let mut message = Self::default();
        while let Some(line) = lines.next() {
            let line = line.trim();
            if line == "}" {
                break;
            }
            let (name, field) = match (line.strip_suffix(" {"), line.split_once(": ")) {
                (Some(name), _) => (name, Field::Message(Self::read(lines))),
                (None, Some((name, text))) => (name, Field::Text(text.trim_matches('"').to_owned())),
                _ => panic!("{line}"),
            };
            assert!(
                !name.starts_with(|c: char| c.is_ascii_digit()),
                "the definitions have no such field: {line}"
            );
            message.0.push((name.to_owned(), field));
        }
        message
    }

    fn texts<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self.0.iter().filter(move |(own, _)| own == name);
        own.filter_map(|(_, field)| if let Field::Text(text) = field { Some(text.as_str()) } else { None })
    }

    fn text<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.texts(name).next()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).map(|text| text.parse().unwrap())
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        self.texts(name).map(|text| text.parse().unwrap()).collect()
    }

    fn messages<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        let own = self.0.iter().filter(move |(own, _)| own == name);
        own.filter_map(|(_, field)| if let Field::Message(message) = field { Some(message) } else { None })
    }
}

/// An event with its texts in full.
#[derive(Debug)]
struct Event {
    time: u64,
    kind: String,
    track: u64,
    name: String,
    category: String,
    annotations: BTreeMap<String, String>,
    begins: Vec<u64>,
    ends: Vec<u64>,
}

/// The texts that packets have described so far, by their kind and number.
#[derive(Default)]
struct Texts(BTreeMap<(&'static str, u64), String>);

impl Texts {
    fn describe(&mut self, packet: &Message) {
        let kinds =
            ["event_categories", "event_names", "debug_annotation_names", "debug_annotation_string_values"];
        for data in packet.messages("interned_data") {
            for kind in kinds {
                for entry in data.messages(kind) {
                    let text = entry.text("name").or_else(|| entry.text("str")).unwrap().to_owned();
                    assert!(self.0.insert((kind, entry.number("iid").unwrap()), text).is_none());
                }
            }
        }
    }

    /// A text by its number, or in full.
    fn of(&self, message: &Message, kind: &'static str, (by_number, in_full): (&str, &str)) -> String {
        match message.number(by_number) {
            Some(number) => self.0[&(kind, number)].clone(),
            None => message.text(in_full).unwrap_or_default().to_owned(),
        }
    }

    fn event(&self, packet: &Message, event: &Message) -> Event {
        let annotations = event.messages("debug_annotations").map(|one| {
            let value = self.of(one, "debug_annotation_string_values", ("string_value_iid", "string_value"));
            let number = || one.text("uint_value").unwrap_or_default().to_owned();
            let name = self.of(one, "debug_annotation_names", ("name_iid", "name"));
            (name, if value.is_empty() { number() } else { value })
        });
        Event {
            time: packet.number("timestamp").unwrap(),
            kind: event.text("type").unwrap().to_owned(),
            track: event.number("track_uuid").unwrap(),
            name: self.of(event, "event_names", ("name_iid", "name")),
            category: self.of(event, "event_categories", ("category_iids", "categories")),
            annotations: annotations.collect(),
            begins: event.numbers("flow_ids"),
            ends: event.numbers("terminating_flow_ids"),
        }
    }
}

/// A file as a message of this type, which a file of a folder defines.
fn decoded(file: &Path, kind: &str, (definitions, name): (&Path, &str)) -> Message {
    let mut protoc = Command::new("protoc");
    protoc.arg(format!("--decode={kind}")).arg("-I").arg(definitions).arg(name);
    let output = protoc.stdin(std::fs::File::open(file).unwrap()).output();
    let output = output.unwrap_or_else(|error| {
        panic!("protoc: {error}; install it: sudo apt-get install protobuf-compiler")
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Message::read(&mut text.lines())
}

/// The events of a trace, in its order.
fn events(file: &Path) -> Vec<Event> {
    let definitions = root().join("tests/tests/exports");
    let trace = decoded(file, "perfetto.protos.Trace", (&definitions, "perfetto.proto"));
    let (mut texts, mut events) = (Texts::default(), Vec::new());
    for packet in trace.messages("packet") {
        texts.describe(packet);
        events.extend(packet.messages("track_event").map(|event| texts.event(packet, event)));
    }
    events
}

/// The flows, by what the JSON lines say: the instruction count of the hit in a system call, and the thread that goes on.
fn expected(records: &[Value]) -> Vec<(u64, u64)> {
    let (mut open, mut flows) = (BTreeMap::<u64, Vec<&str>>::new(), Vec::new());
    for record in records {
        let parts: Vec<&str> = record["probe"].as_str().unwrap().split(':').collect();
        let (pid, icount) = (record["pid"].as_u64().unwrap(), record["icount"].as_u64().unwrap());
        let calls = open.entry(pid).or_default();
        let fields = |argument: usize| &record["args"][argument]["value"]["fields"];
        let goes_on = match (parts[0], parts[3]) {
            ("syscall", "entry") => {
                calls.push(parts[2]);
                continue;
            }
            ("syscall", _) => {
                let at = calls.iter().rposition(|own| *own == parts[2]);
                calls.truncate(at.unwrap_or(calls.len()));
                continue;
            }
            ("sched", "wakeup") | ("proc", "lwp-create") => fields(0)["pr_lwpid"].as_u64().unwrap(),
            ("proc", "create") => fields(0)["pr_pid"].as_u64().unwrap(),
            ("sched", "off-cpu") => pid,
            _ => continue,
        };
        let flow = (icount, goes_on);
        if !calls.is_empty() && flows.last() != Some(&flow) {
            flows.push(flow);
        }
    }
    flows
}

/// A trace file `t` of Debian's kernel that starts its shell, with the records that show who wakes whom.
fn recorded() -> tempfile::TempDir {
    let folder = cli::folder(&[]);
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let probes = "sched:::on-cpu,sched:::off-cpu,sched:::wakeup,proc:::create,proc:::lwp-create,syscall:::";
    let run = ["run", &kernel, "--initrd", &initrd, "--append", QUICK];
    let rest = [
        "-n",
        probes,
        "--header",
        "pid,name",
        "--until",
        "/ # ",
        "-q",
        "--console",
        "none",
        "-f",
        "raw",
        "-o",
        "t",
    ];
    let ran = cli::trapline(folder.path(), &[&run[..], &rest].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    folder
}

#[test]
fn guest_linux_flows_lead_from_system_calls_to_the_threads_that_go_on() {
    trapline_tests::turns::take().unwrap();
    let folder = recorded();
    let here = folder.path();
    ok(here, &["trace", "convert", "t", "--to", "perfetto", "-o", "p"]);
    let all = objects(here);
    let events = events(&here.join("p"));
    assert!(events.is_sorted_by_key(|event| event.time));
    // What is open on each track, and where each flow begins and ends.
    let mut open = BTreeMap::<u64, Vec<&Event>>::new();
    let (mut begins, mut ends) = (BTreeMap::new(), BTreeMap::new());
    for event in &events {
        let slices = open.entry(event.track).or_default();
        match event.kind.as_str() {
            "TYPE_SLICE_BEGIN" => slices.push(event),
            "TYPE_SLICE_END" => drop(slices.pop().expect("a slice ends that has not begun")),
            other => assert_eq!(other, "TYPE_INSTANT"),
        }
        for flow in &event.begins {
            assert!(slices.iter().any(|slice| slice.category == "syscall"), "{event:?}");
            assert!(begins.insert(*flow, event).is_none(), "flow {flow} begins twice");
        }
        for flow in &event.ends {
            let begin = begins.get(flow).unwrap_or_else(|| panic!("flow {flow} has not begun"));
            let elsewhere = begin.track != event.track || event.name == NEVER;
            assert!(elsewhere && begin.time <= event.time, "{event:?}");
            assert_ne!(event.kind, "TYPE_SLICE_END");
            assert!(ends.insert(*flow, event).is_none(), "flow {flow} ends twice");
        }
    }
    assert!(open.values().all(Vec::is_empty));
    assert!(begins.keys().eq(ends.keys()));
    let expected = expected(&all[1..all.len() - 1]);
    assert!(expected.len() > 10, "{}", expected.len());
    let found: Vec<(u64, u64)> = begins
        .iter()
        .map(|(flow, begin)| {
            let end = &ends[flow];
            let thread = match end.name.as_str() {
                NEVER => expected[*flow as usize - 1].1,
                task => task.rsplit_once(' ').unwrap().1.parse().unwrap(),
            };
            (begin.annotations["icount"].parse().unwrap(), thread)
        })
        .collect();
    assert_eq!(found, expected);
    // Threads that end in a call do not come back.
    let comes_back = ends.values().filter(|end| end.category == "sched").count();
    assert!(comes_back > 10, "{comes_back} of {} flows", ends.len());
}

/// Where Debian's golang-github-google-pprof-dev has the definitions.
const PPROF: &str = "/usr/share/gocode/src/github.com/google/pprof/proto";

/// The stacks of a profile as folded stacks, and the names of their values.
fn folded(file: &Path) -> (BTreeMap<String, Vec<u64>>, Vec<String>) {
    let profile = decoded(file, "perftools.profiles.Profile", (Path::new(PPROF), "profile.proto"));
    let strings: Vec<&str> = profile.texts("string_table").collect();
    let text = |message: &Message, name: &str| strings[message.number(name).unwrap() as usize].to_owned();
    let numbered = |name: &'static str| -> BTreeMap<u64, &Message> {
        profile.messages(name).map(|message| (message.number("id").unwrap(), message)).collect()
    };
    let (locations, functions) = (numbered("location"), numbered("function"));
    let name = |location: &u64| {
        let line = locations[location].messages("line").next().unwrap();
        text(functions[&line.number("function_id").unwrap()], "name")
    };
    let stacks = profile.messages("sample").map(|sample| {
        let frames: Vec<String> = sample.numbers("location_id").iter().rev().map(name).collect();
        (frames.join(";"), sample.numbers("value"))
    });
    let kinds = profile.messages("sample_type");
    (stacks.collect(), kinds.map(|kind| format!("{} {}", text(kind, "type"), text(kind, "unit"))).collect())
}

#[test]
fn a_profile_of_pprof_has_the_folded_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run =
        ["run", "embedded:ia32", "-q", "--rpn", "fbt:::{}", "--header", "pid,name,cs,sp", "-f", "raw", "-o"];
    ok(here, &[&run[..], &["now"]].concat());
    // It ends at its limit, with the exit code for that.
    trapline(here, &[&run[..], &["before", "--limit-insns", "400K"]].concat());
    for (more, kinds) in [
        (&[][..], &["instructions count"][..]),
        (&["--weight", "count"], &["calls count"]),
        (&["--weight", "ns"], &["time nanoseconds"]),
        (&["--diff", "before"], &["before count", "instructions count"]),
    ] {
        let convert = ["trace", "convert", "now", "--to"];
        let lines = ok(here, &[&convert[..], &["folded"], more].concat()).out;
        ok(here, &[&convert[..], &["pprof", "-o", "pb"], more].concat());
        let wanted = lines.lines().map(|line| {
            let words: Vec<&str> = line.rsplitn(kinds.len() + 1, ' ').collect();
            let numbers = words[..kinds.len()].iter().rev().map(|word| word.parse().unwrap());
            (words[kinds.len()].to_owned(), numbers.collect())
        });
        let wanted: BTreeMap<String, Vec<u64>> = wanted.collect();
        assert!(wanted.len() > 20, "{lines}");
        let (stacks, named) = folded(&here.join("pb"));
        assert_eq!((stacks, named.iter().map(String::as_str).collect::<Vec<_>>()), (wanted, kinds.to_vec()));
    }
    let command = ["profile", "embedded:ia32", "-q", "--insns", "1009"];
    let lines = ok(here, &command).out;
    ok(here, &[&command[..], &["-o", "profile.pb"]].concat());
    let (stacks, named) = folded(&here.join("profile.pb"));
    let stacks: Vec<String> = stacks.iter().map(|(frames, count)| format!("{frames} {}", count[0])).collect();
    let mut wanted: Vec<&str> = lines.lines().collect();
    wanted.sort_unstable();
    assert_eq!(
        (stacks.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(), named),
        (wanted.into_iter().collect(), vec!["samples count".to_owned()])
    );
}
