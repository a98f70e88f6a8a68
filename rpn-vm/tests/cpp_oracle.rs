//! The preprocessor against the host's `cpp`: random macros, calls and conditions, compared word for word.
//!
//! The programs avoid features that differ by design: names may contain dots here. Some findings that `cpp` does not
//! report are expected, [`BY_DESIGN`].

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use trapline_rpn::{NoFiles, ParseOptions, preprocess};

/// Programs of a run; `TRAPLINE_FUZZ=N` for another number.
const PROGRAMS: usize = 4000;
/// Programs per run of `cpp`.
const BATCH: usize = 250;
const NAMES: [&str; 6] = ["A", "B", "F", "G", "H", "V"];
const REST: &str = "__VA_ARGS__";
/// The name of a number that conditions use.
const NUMBER: &str = "N";
const PARAMETERS: [&str; 3] = ["p", "q", "r"];

/// Findings where `cpp` has none. C leaves such shifts undefined; operators of several characters are not one word here.
const BY_DESIGN: [&str; 6] = [
    "string of a string",
    "error: a shift by",
    "`##` makes `++` of",
    "`##` makes `--` of",
    "`##` makes `->` of",
    "`##` makes `##` of",
];

/// A small generator with a fixed sequence.
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn space(&mut self) -> &'static str {
        if self.chance(50) { " " } else { "" }
    }
}

/// A macro that the program has, with its number of parameters and whether `...` follows them.
#[derive(Clone, Copy)]
struct Known {
    name: &'static str,
    params: Option<usize>,
    variadic: bool,
}

/// A word that is not a call.
fn word(c: &mut Choices) -> &'static str {
    c.pick(&["x", "y", "1", "23", "+", "-", "*", ",", "x1", "A", "B", "F", "G"])
}

/// A call of a macro, or its bare name.
fn call(c: &mut Choices, known: &[Known], depth: usize, out: &mut String) {
    let Some(made) = known.get(c.below(known.len().max(1))).copied() else { return out.push('x') };
    out.push_str(made.name);
    let Some(named) = made.params.filter(|_| !c.chance(15)) else { return };
    out.push_str(c.space());
    out.push('(');
    let more = if made.variadic { c.below(3) } else { 0 };
    for n in 0..(named + more).max(usize::from(made.variadic)) {
        if n > 0 {
            out.push(',');
        }
        text(c, known, depth + 1, 3, out);
    }
    out.push(')');
}

/// Some words and calls. Within arguments commas and parentheses come in calls alone.
fn text(c: &mut Choices, known: &[Known], depth: usize, most: usize, out: &mut String) {
    for _ in 0..c.below(most + 1) {
        out.push_str(if c.chance(70) { " " } else { "" });
        // Words must not run together with the text before.
        if out.ends_with(|last: char| last.is_ascii_alphanumeric()) {
            out.push(' ');
        }
        match c.below(10) {
            0..4 if depth < 3 && !known.is_empty() => call(c, known, depth, out),
            4 if depth > 0 => {
                out.push('(');
                text(c, known, depth + 1, 2, out);
                out.push(')');
            }
            _ => {
                let word = word(c);
                out.push_str(if depth > 0 && word == "," { "y" } else { word });
            }
        }
    }
    out.push_str(c.space());
}

/// The text of a definition.
fn body(c: &mut Choices, made: Known, known: &[Known], out: &mut String) {
    let mut operands: Vec<&'static str> = PARAMETERS[..made.params.unwrap_or_default()].to_vec();
    if made.variadic {
        operands.push(REST);
    }
    for n in 0..c.below(6) {
        let name = |c: &mut Choices| match operands.len() {
            0 => c.pick(&["x", "A", "1"]),
            n if c.chance(70) => operands[c.below(n)],
            _ => c.pick(&["x", "F", "2"]),
        };
        if n > 0 && (c.chance(60) || out.ends_with(|last: char| last.is_ascii_alphanumeric())) {
            out.push(' ');
        }
        match c.below(8) {
            0 if !operands.is_empty() => {
                let operand = operands[c.below(operands.len())];
                write!(out, "#{}{operand}", c.space()).unwrap();
            }
            1 | 2 => {
                // GNU C pastes arguments that end with a comma in a way of its own.
                let named = |name: &'static str, left: &str| if left == REST { "x" } else { name };
                let left = name(c);
                let right = named(name(c), left);
                write!(out, "{left}{}##{}{right}", c.space(), c.space()).unwrap();
                if c.chance(30) {
                    write!(out, " ## {}", named(name(c), REST)).unwrap();
                }
            }
            3 | 4 => out.push_str(name(c)),
            5 if !known.is_empty() => call(c, known, 1, out),
            6 if made.variadic => out.push_str("F(y, ## __VA_ARGS__)"),
            _ => out.push_str(word(c)),
        }
    }
}

/// A condition of numbers, names and operators.
fn condition(c: &mut Choices, depth: usize, out: &mut String) {
    if depth > 3 || c.chance(25) {
        let atom =
            c.pick(&["0", "1", "7", "N", "M", "2u", "0x10", "x", "defined N", "defined(M)", "__COUNTER__"]);
        return out.push_str(atom);
    }
    match c.below(12) {
        0 => {
            out.push_str(c.pick(&["!", "~", "-", "+"]));
            out.push('(');
            condition(c, depth + 1, out);
            out.push(')');
        }
        1 => {
            out.push('(');
            condition(c, depth + 1, out);
            out.push_str(") ? (");
            condition(c, depth + 1, out);
            out.push_str(") : (");
            condition(c, depth + 1, out);
            out.push(')');
        }
        _ => {
            out.push('(');
            condition(c, depth + 1, out);
            let operators = [
                "+", "-", "*", "/", "%", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "&", "|", "^", "&&",
                "||",
            ];
            write!(out, ") {} (", c.pick(&operators)).unwrap();
            condition(c, depth + 1, out);
            out.push(')');
        }
    }
}

fn program(c: &mut Choices) -> String {
    let mut out = String::new();
    let mut known: Vec<Known> = Vec::new();
    for name in NAMES.into_iter().take(2 + c.below(NAMES.len() - 1)) {
        let params = if name < "C" && c.chance(80) { None } else { Some(c.below(PARAMETERS.len() + 1)) };
        let made = Known { name, params, variadic: params.is_some() && (name == "V" || c.chance(15)) };
        write!(out, "#define {name}").unwrap();
        if let Some(named) = made.params {
            let mut list: Vec<&str> = PARAMETERS[..named].to_vec();
            list.extend(made.variadic.then_some("..."));
            write!(out, "({})", list.join(", ")).unwrap();
        }
        out.push(' ');
        body(c, made, &known, &mut out);
        out.push('\n');
        known.push(made);
    }
    for _ in 0..1 + c.below(4) {
        let mut line = String::new();
        text(c, &known, 0, 5, &mut line);
        // The arguments of a call may span lines.
        if c.chance(20) {
            line = line.replacen(", ", ",\n ", 1).replacen("( ", "(\n ", 1);
        }
        out.push_str(if c.chance(10) { "__COUNTER__ " } else { "x " });
        out.push_str(&line);
        out.push('\n');
    }
    if c.chance(40) {
        let number = c.pick(&[
            "#define N 3\n",
            "#define N -1\n",
            "#define N 18446744073709551615u\n",
            "#define N M + 1\n",
        ]);
        out.push_str(if c.chance(70) { number } else { "" });
        out.push_str("#if ");
        condition(c, 0, &mut out);
        out.push_str("\nyes\n#else\nno\n#endif\n");
    }
    out
}

/// The words of a text; a string is one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(first) = chars.next() {
        let mut word = String::from(first);
        if first == '"' {
            word.extend(chars.by_ref().take_while(|c| *c != '"'));
        } else if first.is_ascii_alphanumeric() || first == '_' {
            while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                word.push(c);
            }
        } else if first.is_whitespace() {
            continue;
        }
        words.push(word);
    }
    words
}

/// The output of `cpp` for each program; `None` where it has found an error.
fn by_cpp(programs: &[String]) -> Vec<Option<Vec<String>>> {
    let mut input = String::new();
    let mut ends = Vec::new();
    for (n, program) in programs.iter().enumerate() {
        write!(input, "@@ {n}\n{program}").unwrap();
        NAMES.iter().chain(&[NUMBER]).for_each(|name| writeln!(input, "#undef {name}").unwrap());
        ends.push(input.lines().count());
    }
    let mut child = Command::new("cpp")
        .args(["-P", "-undef", "-w", "-x", "c", "-std=gnu17", "-fno-diagnostics-show-caret", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C")
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let mut found: Vec<Option<Vec<String>>> = vec![None; programs.len()];
    for piece in String::from_utf8(out.stdout).unwrap().split("@@ ").skip(1) {
        let (number, rest) = piece.split_at(piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len()));
        found[number.parse::<usize>().unwrap()] = Some(words(rest));
    }
    for line in String::from_utf8(out.stderr).unwrap().lines().filter(|line| line.contains(" error: ")) {
        let number: usize = line.split(':').nth(1).unwrap().parse().unwrap();
        found[ends.partition_point(|end| *end < number)] = None;
    }
    found
}

/// The output of this preprocessor for a program; `Err` with its findings. The counter begins with `counter`.
fn ours(program: &str) -> Result<Vec<String>, String> {
    let done = preprocess("t", program, &ParseOptions::default(), &mut NoFiles);
    let lines = done.text.lines().filter(|line| !line.starts_with("# "));
    if done.found.list.is_empty() {
        Ok(words(&lines.collect::<Vec<_>>().join("\n")))
    } else {
        Err(done.found.to_string())
    }
}

#[test]
fn random_programs_give_what_cpp_gives() {
    let wanted = std::env::var("TRAPLINE_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(PROGRAMS);
    let mut choices = Choices(0x7261_7070);
    let (mut same, mut wrong) = (0, 0);
    while same + wrong < wanted {
        // `__COUNTER__` counts on over the programs of one `cpp`, so each batch has one program with it.
        let mut programs: Vec<String> = (0..BATCH).map(|_| program(&mut choices)).collect();
        for (n, program) in programs.iter_mut().enumerate().skip(1) {
            *program = program.replace("__COUNTER__", &format!("{n}"));
        }
        for (program, theirs) in programs.iter().zip(by_cpp(&programs)) {
            match (ours(program), theirs) {
                (Ok(ours), Some(theirs)) => {
                    assert_eq!(ours.join(" "), theirs.join(" "), "\n{program}");
                    same += 1;
                }
                (Err(_), None) => wrong += 1,
                // By design.
                (Err(why), Some(_)) if BY_DESIGN.iter().any(|design| why.contains(design)) => {}
                (ours, theirs) => panic!("{program}\n{ours:?}\ncpp: {theirs:?}"),
            }
        }
    }
    assert!(same > wanted / 3 && wrong > wanted / 100, "{same} right, {wrong} wrong programs");
}
