//! The real gdb in MI mode, driven as VS Code's adapter `cppdbg` drives it: the commands that it sends to a server that listens,
//! in its order. VS Code itself is not used.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::cli::patient;
use crate::gdb::server;
use serde_json::{Map, Value};
use trapline_session::{Condition, Ending, GuestBuilder, Limits, PlatformKind, Session};
use trapline_tests::{guests_of, root};

/// A gdb that speaks MI, and what it has said so far.
struct Mi {
    gdb: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    said: String,
    sent: u32,
}

impl Drop for Mi {
    fn drop(&mut self) {
        let _ = self.gdb.kill();
        let _ = self.gdb.wait();
    }
}

/// Results as an object: the values of MI are strings, tuples and lists. A list of results has only their values.
fn results(text: &str) -> Map<String, Value> {
    let mut rest = text;
    let mut found = Map::new();
    while let Some((name, value)) = rest.split_once('=') {
        let (value, after) = value_of(value);
        found.insert(name.to_owned(), value);
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    found
}

fn value_of(text: &str) -> (Value, &str) {
    match text.as_bytes().first() {
        Some(b'"') => {
            let mut escaped = false;
            let end = text.bytes().skip(1).position(|byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            });
            let (string, rest) = text.split_at(end.unwrap() + 2);
            (Value::String(string[1..string.len() - 1].replace("\\\"", "\"").replace("\\n", "\n")), rest)
        }
        Some(open @ (b'{' | b'[')) => {
            let (mut rest, mut named, mut list) = (&text[1..], Map::new(), Vec::new());
            while !rest.starts_with(['}', ']']) {
                let name = rest.split(['=', '"', '{', '[']).next().unwrap();
                let is_named = rest[name.len()..].starts_with('=');
                let (value, after) = value_of(if is_named { &rest[name.len() + 1..] } else { rest });
                if is_named && *open == b'{' {
                    named.insert(name.to_owned(), value);
                } else {
                    list.push(value);
                }
                rest = after.strip_prefix(',').unwrap_or(after);
            }
            (if *open == b'{' { Value::Object(named) } else { Value::Array(list) }, &rest[1..])
        }
        _ => panic!("no value of MI: {text}"),
    }
}

/// The configuration of docs/gdb.md, which a user pastes.
fn configuration() -> Value {
    let text = std::fs::read_to_string(root().join("docs/gdb.md")).unwrap();
    let block = text.split_once("```json\n").unwrap().1.split_once("```").unwrap().0;
    let file: Value = serde_json::from_str(block).unwrap();
    let one = file["configurations"][0].clone();
    assert_eq!((&one["type"], &one["MIMode"]), (&"cppdbg".into(), &"gdb".into()));
    assert_eq!(one["miDebuggerServerAddress"], "127.0.0.1:1234");
    one
}

/// The number that a value of MI begins with.
fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("no text: {value}"));
    let word = text.split(' ').next().unwrap();
    let parsed =
        word.strip_prefix("0x").map_or_else(|| word.parse(), |digits| u64::from_str_radix(digits, 16));
    parsed.unwrap_or_else(|_| panic!("no number: {text}"))
}

impl Mi {
    fn new() -> Self {
        trapline_tests::turns::take().unwrap();
        let mut command = patient("gdb");
        command.args(["-nx", "--interpreter=mi2"]).current_dir(root());
        let mut gdb = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (gdb.stdin.take().unwrap(), gdb.stdout.take().unwrap());
        Self { gdb, to, from: BufReader::new(from), said: String::new(), sent: 0 }
    }

    /// The next line that begins so, without its beginning.
    fn line(&mut self, begins: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "gdb has ended:\n{}", self.said);
            self.said.push_str(&line);
            if let Some(rest) = line.trim_end().strip_prefix(begins) {
                return rest.to_owned();
            }
        }
    }

    /// The kind of a command's result, and the result.
    fn ask(&mut self, command: &str) -> (String, Map<String, Value>) {
        self.sent += 1;
        self.said.push_str(&format!("-> {}{command}\n", self.sent));
        writeln!(self.to, "{}{command}", self.sent).unwrap();
        let line = self.line(&format!("{}^", self.sent));
        let (kind, rest) = line.split_once(',').unwrap_or((&line, ""));
        (kind.to_owned(), results(rest))
    }

    fn done(&mut self, command: &str) -> Map<String, Value> {
        let (kind, result) = self.ask(command);
        assert!(matches!(&*kind, "done" | "connected"), "{command}: {kind} {result:?}\n{}", self.said);
        result
    }

    /// Lets the run go on; the stop.
    fn goes(&mut self, command: &str) -> Map<String, Value> {
        let (kind, result) = self.ask(command);
        assert_eq!(kind, "running", "{command}: {result:?}\n{}", self.said);
        results(&self.line("*stopped,"))
    }

    /// The last line that a command of the server prints first.
    fn monitor(&mut self, command: &str) -> String {
        let before = self.said.len();
        self.done(&format!("-interpreter-exec console \"monitor {command}\""));
        let said = self.said[before..].lines().find_map(|line| line.strip_prefix("@\""));
        said.unwrap_or_else(|| panic!("{}", self.said)).split("\\n").next().unwrap().to_owned()
    }

    /// The instruction count.
    fn icount(&mut self) -> u64 {
        self.monitor("info").split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// What the adapter sends, with the settings of docs/gdb.md, before the run goes on the first time.
    fn connects(&mut self, program: &str, address: &str) {
        // An old name, and a setting that gdb may not know.
        self.ask("-gdb-set target-async on");
        self.done("-gdb-set mi-async on");
        self.done("-interpreter-exec console \"set pagination off\"");
        for setting in configuration()["setupCommands"].as_array().unwrap() {
            self.done(setting["text"].as_str().unwrap());
        }
        self.done(&format!("-environment-cd {}", root().display()));
        self.done(&format!("-file-exec-and-symbols {program}"));
        self.done("-interpreter-exec console \"show architecture\"");
        // The names of instructions that the other run has.
        self.done("-gdb-set disassembly-flavor intel");
        // `main`, which a kernel need not have.
        self.ask("-break-insert main");
        let connected = self.ask(&format!("-target-select remote {address}")).0;
        assert_eq!(connected, "connected", "{}", self.said);
        let features = self.done("-list-target-features")["features"].to_string();
        assert!(features.contains("\"reverse\"") && features.contains("\"async\""), "{features}");
        let refused = self.ask("-exec-run");
        assert_eq!(refused.0, "error", "{}", self.said);
        assert!(refused.1["msg"].as_str().unwrap().contains("does not support \"run\""), "{refused:?}");
        assert_eq!(self.icount(), 0);
    }

    /// The bytes of memory at an expression.
    fn memory(&mut self, at: &str, count: u32) -> String {
        let read = self.done(&format!("-data-read-memory-bytes {at} {count}"));
        read["memory"][0]["contents"].as_str().unwrap().to_owned()
    }

    /// The views of a stop: threads, frames, code and memory at the instruction pointer agree with each other and with this
    /// run at the same instruction.
    fn shows(&mut self, plain: &mut Session) -> Vec<Value> {
        let icount = self.icount();
        assert_eq!(plain.run_until(&Condition::end(), &Limits::insns(icount)), Ending::Limit);
        let at = plain.core().linear_ip();
        let threads = self.done("-thread-info");
        let current = threads["current-thread-id"].as_str().unwrap().to_owned();
        let all = threads["threads"].as_array().unwrap();
        let shown = all.iter().find(|thread| thread["id"] == current.as_str()).unwrap();
        assert_eq!(
            (number(&shown["frame"]["addr"]), &shown["state"]),
            (at, &"stopped".into()),
            "{threads:?}"
        );
        let frames = self.done(&format!("-stack-list-frames --thread {current} 0 1000"))["stack"].clone();
        let frames = frames.as_array().unwrap().clone();
        assert_eq!(number(&frames[0]["addr"]), at);
        let pc = self.done("-data-evaluate-expression \"(unsigned long)$pc\"");
        assert_eq!(number(&pc["value"]), at);
        let mut bytes = [0; 16];
        assert_eq!(plain.core().peek(at, &mut bytes), Ok(()));
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(self.memory("$pc", 16), digits);
        let code = self.done("-data-disassemble -s $pc -e \"$pc + 12\" -- 2");
        let code = code["asm_insns"].as_array().unwrap();
        assert!(code.len() >= 2 && number(&code[0]["address"]) == at, "{code:?}");
        let opcodes: String =
            code.iter().map(|one| one["opcodes"].as_str().unwrap().replace(' ', "")).collect();
        let common = opcodes.len().min(digits.len());
        assert_eq!(opcodes[..common], digits[..common]);
        let mnemonic = plain.core().decode_original(at).unwrap().mnemonic();
        let mnemonic = format!("{mnemonic:?}").to_lowercase();
        assert!(code[0]["inst"].as_str().unwrap().starts_with(&mnemonic), "{mnemonic}: {code:?}");
        frames
    }

    /// Leaves the run where it is; the digest there is that of the other run.
    fn leaves(mut self, plain: &mut Session) {
        let icount = self.icount();
        assert_eq!(plain.run_until(&Condition::end(), &Limits::insns(icount)), Ending::Limit);
        assert_eq!(self.monitor("digest"), format!("digest {}", plain.digest()));
        self.done("-target-detach");
        assert_eq!(self.ask("-gdb-exit").0, "exit");
    }
}

/// The functions of frames.
fn functions(frames: &[Value]) -> Vec<&str> {
    frames.iter().filter_map(|frame| frame["func"].as_str()).collect()
}

/// What a stop says of the innermost frame: function and line.
fn place(stop: &Map<String, Value>) -> (String, String) {
    let text = |name: &str| stop["frame"][name].as_str().unwrap_or_default().to_owned();
    (text("func"), text("line"))
}

#[test]
fn mi_commands_of_an_editor_debug_the_embedded_guest() {
    let (mut server, address) = server(&["embedded:x86_64", "--mem", "32M"]);
    let start = || GuestBuilder::embedded("x86_64").memory(32 << 20).start().unwrap();
    let mut plain = start();
    let mut mi = Mi::new();
    mi.connects("guest-images/prebuilt/vmlinux-x86_64", &address);
    let set = mi.done("-break-insert -f do_fork");
    let function = plain.symbols().sole("do_fork").unwrap().addr;
    assert_eq!(number(&set["bkpt"]["addr"]), function);
    let stop = mi.goes("-exec-continue");
    assert_eq!((&stop["reason"], &stop["bkptno"]), (&"breakpoint-hit".into(), &set["bkpt"]["number"]));
    let first = mi.icount();
    let frames = mi.shows(&mut plain);
    assert_eq!(functions(&frames)[..3], ["do_fork", "do_syscall", "trap_dispatch"]);
    // No source, and so no variables; expressions of registers and symbols.
    assert_eq!(
        mi.done("-stack-list-variables --thread 2 --frame 0 --simple-values")["variables"],
        Value::Array(Vec::new())
    );
    let created = mi.done("-var-create - * \"(unsigned long)$rip\"");
    assert_eq!(number(&created["value"]), function);
    let task = mi.done("-var-create - @ \"*(unsigned long*)&current_task\"");
    let word = mi.memory("&current_task", 8);
    let bytes = (0..8).map(|n| u8::from_str_radix(&word[2 * n..2 * n + 2], 16).unwrap());
    let bytes: Vec<u8> = bytes.collect();
    assert_eq!(number(&task["value"]), u64::from_le_bytes(bytes.try_into().unwrap()));
    let names = mi.done("-data-list-register-names")["register-names"].clone();
    let rip = names.as_array().unwrap().iter().position(|name| name == "rip").unwrap();
    let values = mi.done(&format!("-data-list-register-values --thread 2 x {rip}"));
    assert_eq!(number(&values["register-values"][0]["value"]), function);

    mi.goes("-exec-step-instruction");
    mi.shows(&mut plain);
    assert_eq!(mi.icount(), first + 1);
    mi.goes("-exec-step-instruction --reverse");
    assert_eq!(mi.icount(), first);
    // Without lines, gdb goes on to the caller.
    assert_eq!(place(&mi.goes("-exec-next")).0, "do_syscall");
    let returned = mi.icount();
    mi.shows(&mut plain);
    assert_eq!(place(&mi.goes("-exec-step")).0, "trap_dispatch");
    mi.goes("-exec-next --reverse");
    assert_eq!(mi.icount(), first);
    assert_eq!(place(&mi.goes("-exec-finish")).0, "do_syscall");
    assert_eq!(mi.icount(), returned);
    mi.goes("-exec-finish --reverse");
    assert_eq!(mi.icount(), first);
    // The second one, and back to the beginning.
    mi.goes("-exec-continue");
    assert!(mi.icount() > returned);
    mi.goes("-exec-continue --reverse");
    assert_eq!(mi.icount(), first);
    mi.goes("-exec-continue --reverse");
    assert!(mi.said.contains("No more reverse-execution history"), "{}", mi.said);
    assert_eq!(mi.icount(), 0);
    mi.done("-break-delete");
    let watch = mi.done("-break-watch *(int*)&current_task");
    let stop = mi.goes("-exec-continue");
    assert_eq!(stop["reason"], "watchpoint-trigger", "{watch:?}");
    assert_ne!(stop["value"]["old"], stop["value"]["new"]);
    mi.leaves(&mut start());
    server.kill().unwrap();
    server.wait().unwrap();
}

/// What binutils says of a code address: function and line of it, and of the functions that it is inlined in.
fn lines(at: u64) -> Vec<(String, String)> {
    let mut command = Command::new("addr2line");
    command.args(["-f", "-i", "-e", ".guests/gnumach", &format!("{at:#x}")]);
    let out = command.current_dir(root()).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let all: Vec<&str> = text.lines().collect();
    let pair = |pair: &[&str]| {
        (pair[0].to_owned(), pair[1].rsplit(':').next().unwrap().split(' ').next().unwrap().to_owned())
    };
    all.chunks_exact(2).map(pair).collect()
}

/// A kernel with debugging information: lines, variables, and steps by lines, both ways.
#[test]
fn guest_gnumach_is_debugged_by_mi_commands_of_an_editor() {
    let image = ".guests/gnumach";
    guests_of(image);
    let (mut server, address) = server(&[image, "--platform", "minimal", "--cmdline", "console=com0"]);
    let start = || {
        let guest = GuestBuilder::image(&root().join(image).display().to_string());
        guest.platform(PlatformKind::Minimal).memory(256 << 20).cmdline("console=com0").start().unwrap()
    };
    let mut plain = start();
    let mut mi = Mi::new();
    mi.connects(image, &address);
    let set = mi.done("-break-insert -f vm_page_bootstrap");
    let stop = mi.goes("-exec-continue");
    assert_eq!((&stop["reason"], &stop["bkptno"]), (&"breakpoint-hit".into(), &set["bkpt"]["number"]));
    let first = mi.icount();
    let frames = mi.shows(&mut plain);
    assert_eq!(functions(&frames)[..2], ["vm_page_bootstrap", "vm_mem_bootstrap"]);
    for frame in frames.iter().skip(1).filter(|frame| frame["line"].is_string()) {
        let own = (frame["func"].as_str().unwrap().to_owned(), frame["line"].as_str().unwrap().to_owned());
        let known = lines(number(&frame["addr"]) - 1);
        assert!(known.contains(&own), "{own:?} {known:?}");
    }
    let variables =
        mi.done("-stack-list-variables --thread 1 --frame 0 --simple-values")["variables"].clone();
    let arguments: Vec<&Value> =
        variables.as_array().unwrap().iter().filter(|one| one["arg"] == "1").collect();
    let names: Vec<&str> = arguments.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["startp", "endp"]);
    // The first argument is above the return address.
    let mut word = [0; 4];
    let stack = number(&mi.done("-data-evaluate-expression \"(unsigned int)$esp\"")["value"]);
    assert_eq!(plain.core().peek(stack + 4, &mut word), Ok(()));
    let pushed = u64::from(u32::from_le_bytes(word));
    let created = mi.done("-var-create - * \"(unsigned int)startp\"");
    assert_eq!(number(&created["value"]), pushed);
    let size = plain.symbols().sole("vm_page_segs_size").unwrap().addr;
    assert_eq!(plain.core().peek(size, &mut word), Ok(()));
    let created = mi.done("-var-create - * vm_page_segs_size");
    assert_eq!(
        (number(&created["value"]), &created["type"]),
        (u64::from(u32::from_le_bytes(word)), &"unsigned int".into())
    );

    // Lines: forwards, into a function that is inlined, and back the same way.
    let next = mi.goes("-exec-next");
    assert_eq!(
        (place(&next).0.as_str(), &next["reason"]),
        ("vm_page_bootstrap", &"end-stepping-range".into())
    );
    let at = number(&next["frame"]["addr"]);
    assert!(lines(at).iter().any(|(_, line)| *line == place(&next).1), "{next:?} {:?}", lines(at));
    mi.shows(&mut plain);
    let step = mi.goes("-exec-step");
    assert!(lines(number(&step["frame"]["addr"])).contains(&place(&step)), "{step:?}");
    mi.goes("-exec-next --reverse");
    assert_eq!(mi.icount(), first);
    let caller = mi.goes("-exec-step --reverse");
    assert_eq!(
        place(&caller),
        (frames[1]["func"].as_str().unwrap().to_owned(), frames[1]["line"].as_str().unwrap().to_owned())
    );
    assert!(mi.icount() < first);
    mi.goes("-exec-continue");
    assert_eq!(mi.icount(), first);
    mi.done("-break-delete 1");
    assert_eq!(place(&mi.goes("-exec-finish")).0, "vm_mem_bootstrap");
    assert!(mi.icount() > first);
    // The button that pauses.
    assert_eq!(mi.ask("-exec-continue").0, "running");
    assert_eq!(mi.ask("-exec-interrupt").0, "done");
    let stop = results(&mi.line("*stopped,"));
    assert_eq!((&stop["reason"], &stop["signal-name"]), (&"signal-received".into(), &"SIGINT".into()));
    mi.leaves(&mut start());
    server.kill().unwrap();
    server.wait().unwrap();
}
