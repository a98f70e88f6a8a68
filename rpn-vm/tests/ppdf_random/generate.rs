//! A generator of probe programs as source: mixed case, old forms, macros, includes, labels before labels, comments,
//! names in quotes, expressions with signs and parentheses. Everything it makes compiles.

use std::fmt::Write as _;
use std::sync::OnceLock;

use trapline_rpn::{ALIASES, Loader, OperandKind, REGISTERS, Row, TABLE, parse};

/// A stream of numbers determined by its seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// A text with its letters in any case.
    fn cased(&mut self, text: &str) -> String {
        if self.one_in(3) {
            return text.to_owned();
        }
        text.chars().map(|c| if self.one_in(2) { c.to_ascii_uppercase() } else { c }).collect()
    }
}

/// The files that a program includes.
#[derive(Default)]
pub struct Files {
    texts: Vec<(String, String)>,
}

impl Loader for Files {
    fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
        let found = self.texts.iter().find(|(name, _)| name == path);
        found
            .map(|(name, text)| (format!("lib/{name}"), text.clone()))
            .ok_or_else(|| "no such file".to_owned())
    }
}

const NUMBERS: [u64; 14] =
    [0, 1, 9, 10, 15, 16, 255, 256, 65_535, 65_536, 0x7fff_ffff, 0xffff_ffff, 0x1_0000_0000, u64::MAX];
const SYMBOLS: [&str; 14] = [
    "do_fork",
    "nr_free_pages",
    "_start",
    "func.part.0",
    ".text",
    "Name",
    "\"eax\"",
    "\"a b\"",
    "\"x//@ 3\"",
    "\"\"",
    "\"-1\"",
    "sum$1",
    "\"λ\"",
    "\"pid\"",
];
const GROUPS: [&str; 8] =
    ["process", "Memory", "\"two words\"", "eax", "file.sys", "\"a//@ 7 b\"", "exit", "_g"];
const LABELS: [&str; 6] = ["again", "Done", "L0", "l1", "_x", "exit"];
const PROCS: [&str; 5] = ["twice", "Log_it", "a.b", "L0", "endproc_"];
const COMMENTS: [&str; 4] = ["// a comment", "//@ 12 not a mark here", "//", "// \"quoted"];

/// The rows of the table that this version compiles.
pub fn compiled() -> &'static [&'static Row] {
    static ROWS: OnceLock<Vec<&'static Row>> = OnceLock::new();
    let good = |row: &&Row| {
        let text = format!("name = t\noffset = 0\nopcode = 0\n{}\n", row.form);
        row.operand != OperandKind::None || parse("t", &text).is_ok()
    };
    ROWS.get_or_init(|| TABLE.iter().filter(good).collect())
}

struct Writer<'a> {
    random: &'a mut Random,
    out: String,
    vars: usize,
    gvars: usize,
    kernel: bool,
    groups: Vec<String>,
    types: Vec<String>,
    procs: Vec<&'static str>,
}

/// A program, and the files that it includes.
pub fn source(random: &mut Random, files: &mut Files) -> String {
    let (vars, gvars) = (random.below(4), random.below(3));
    let mut writer = Writer {
        vars,
        gvars,
        kernel: random.one_in(2),
        groups: Vec::new(),
        types: Vec::new(),
        procs: Vec::new(),
        random,
        out: String::new(),
    };
    for _ in 0..writer.random.below(4) {
        let name = *writer.random.pick(&PROCS);
        if !writer.procs.contains(&name) {
            writer.procs.push(name);
        }
    }
    if writer.random.one_in(3) {
        writer.out.push_str("#define SITE do_fork + MORE\n#define MORE 0x10\n");
    }
    writer.header();
    if writer.random.one_in(2) {
        writer.include(files);
    }
    // Procedures come before the first probe point or between two.
    let early = writer.random.below(writer.procs.len() + 1);
    writer.procedures(0..early);
    for _ in 0..1 + writer.random.below(3) {
        writer.probe();
    }
    let all = writer.procs.len();
    writer.procedures(early..all);
    writer.out
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        while self.random.one_in(6) {
            let comment = *self.random.pick(&COMMENTS);
            self.out.push_str(if self.random.one_in(2) { "" } else { comment });
            self.out.push('\n');
        }
        let indent = if self.random.one_in(2) { "  " } else { "" };
        let comment = if self.random.one_in(8) { *self.random.pick(&COMMENTS) } else { "" };
        let _ = writeln!(self.out, "{indent}{text} {comment}");
    }

    fn number(&mut self, max: u64) -> String {
        let n = match self.random.one_in(2) {
            true => self.random.next(),
            false => *self.random.pick(&NUMBERS),
        };
        let n = if n > max { n % (max + 1) } else { n };
        match self.random.below(3) {
            0 => format!("{n:#x}"),
            1 => format!("{n:#X}").replace("0X", "0x"),
            _ => n.to_string(),
        }
    }

    fn statement(&mut self, key: &str, value: &str) {
        let key = self.random.cased(key);
        let equals = *self.random.pick(&["=", " = ", "= "]);
        self.line(&format!("{key}{equals}{value}"));
    }

    fn names(&mut self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for _ in 0..self.random.below(4) {
            let name = *self.random.pick(&GROUPS);
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    fn header(&mut self) {
        (self.groups, self.types) = (self.names(), self.names());
        let name =
            *self.random.pick(&["vmlinux", "\"/home/User/a+b\"", "\"two words\"", "App_1", "\"x//@ 1\""]);
        let mut statements = vec![("name", name.to_owned())];
        let modtype = if self.kernel { *self.random.pick(&["kernel", "kmod", "KERNEL"]) } else { "user" };
        if self.kernel || self.random.one_in(2) {
            statements.push(("modtype", modtype.to_owned()));
        }
        for (key, max) in [
            ("major", u64::from(u32::MAX)),
            ("id", u64::from(u32::MAX)),
            ("logmax", 65_535),
            ("jmpmax", u64::from(u32::MAX)),
            ("excpt_mask", u64::from(u32::MAX)),
            ("excpt_log", 65_535),
        ] {
            if self.random.one_in(4) {
                statements.push((key, self.number(max)));
            }
        }
        statements.push(("vars", self.vars.to_string()));
        statements.push(("gvars", self.gvars.to_string()));
        for (key, names) in [("groupdef", self.groups.clone()), ("typedef", self.types.clone())] {
            if !names.is_empty() {
                statements.push((key, names.join(*self.random.pick(&[" ", ", "]))));
            }
        }
        if self.random.one_in(4) {
            statements.push(("logonfault", (*self.random.pick(&["yes", "No"])).to_owned()));
        }
        let turn = self.random.below(statements.len());
        statements.rotate_left(turn);
        for (key, value) in statements {
            self.statement(key, &value);
        }
    }

    /// A file with a procedure in it; the same one may be included twice only under another name.
    fn include(&mut self, files: &mut Files) {
        let outside = std::mem::take(&mut self.out);
        let procs = std::mem::take(&mut self.procs);
        self.procs.push("included");
        self.procedures(0..1);
        let name = *self.random.pick(&["lib.rpn", "with blank.rpn", "λ.rpn"]);
        files.texts.push((name.to_owned(), std::mem::replace(&mut self.out, outside)));
        self.procs = procs;
        self.line(&format!("#include \"{name}\""));
    }

    fn procedures(&mut self, which: std::ops::Range<usize>) {
        let names: Vec<&str> = self.procs[which].to_vec();
        for name in names {
            let word = self.random.cased("proc");
            self.line(&format!("{word} {name}"));
            self.body();
            let word = self.random.cased("endproc");
            self.line(&word);
        }
    }

    /// A sum of numbers and symbols, of at most 64 bits.
    fn expression(&mut self) -> String {
        if self.random.one_in(8) && self.out.starts_with("#define") {
            return (*self.random.pick(&["SITE", "-MORE", "(MORE - 1)"])).to_owned();
        }
        let term = |own: &mut Self| match own.random.below(2) {
            0 => own.number(0x7fff_ffff),
            _ => (*own.random.pick(&SYMBOLS)).to_owned(),
        };
        let mut text = (*self.random.pick(&["", "", "-", "+", "- -"])).to_owned() + &term(self);
        for _ in 0..self.random.below(4) {
            let next = term(self);
            match self.random.below(4) {
                0 => text = format!("{text} + {next}"),
                1 => text = format!("{text}-{next}"),
                2 => text = format!("({text}) - (-{next})"),
                _ => text = format!("{next} - ({text})"),
            }
        }
        text
    }

    fn probe(&mut self) {
        let form = self.random.below(if self.kernel { 3 } else { 1 });
        match form {
            0 => {
                let place = self.expression();
                self.statement("offset", &place);
            }
            1 => {
                let place = self.expression();
                self.statement("address", &place);
            }
            _ => {
                let range = format!("{}:{}", self.expression(), self.expression());
                self.statement("address", &range);
            }
        }
        let watched = form > 0 && self.random.one_in(3);
        let mut statements = Vec::new();
        if watched {
            statements.push(("watchpoint", (*self.random.pick(&["x", "W", "rw", "io"])).to_owned()));
        }
        if !watched || self.random.one_in(2) {
            statements.push(("opcode", self.number(255)));
        }
        for key in ["minor", "ignore", "pass_count", "maxhits", "excpt_mask"] {
            let twice = key == "pass_count" && statements.iter().any(|(known, _)| *known == "ignore");
            if self.random.one_in(4) && !twice {
                let value = self.number(u64::from(u32::MAX));
                let zero = ["0", "0x0"].contains(&value.as_str());
                statements.push((key, if key == "maxhits" && zero { "1".to_owned() } else { value }));
            }
        }
        if self.random.one_in(4) {
            statements.push(("logonfault", (*self.random.pick(&["YES", "no"])).to_owned()));
        }
        for (key, names) in [("group", self.groups.clone()), ("type", self.types.clone())] {
            if !names.is_empty() && self.random.one_in(2) {
                let name = self.random.pick(&names).clone();
                statements.push((key, self.random.cased(&name)));
            }
        }
        let turn = self.random.below(statements.len());
        statements.rotate_left(turn);
        for (key, value) in statements {
            self.statement(key, &value);
        }
        self.body();
    }

    fn body(&mut self) {
        let mut labels: Vec<&str> = LABELS.to_vec();
        let count = self.random.below(12);
        // All labels are placed before it is known which are used.
        let first = self.random.below(labels.len());
        labels.truncate(if count == 0 { 0 } else { first });
        let mut open = labels.clone();
        for left in (0..count).rev() {
            while !open.is_empty() && (left == 0 || self.random.one_in(3)) {
                let label = open.remove(self.random.below(open.len()));
                let label = self.random.cased(label);
                let alone = open.len() != labels.len() && self.random.one_in(2);
                if alone || left == 0 || !open.is_empty() {
                    self.line(&format!("{label}:"));
                } else {
                    let text = self.instruction(&labels);
                    self.line(&format!("{label}: {text}"));
                }
            }
            let text = self.instruction(&labels);
            self.line(&text);
        }
    }

    fn instruction(&mut self, labels: &[&str]) -> String {
        loop {
            let (form, row): (&str, &Row) = if self.random.one_in(10) {
                let alias = self.random.pick(ALIASES);
                (alias.form, alias.op.row())
            } else {
                let row = *self.random.pick(compiled());
                (row.form, row)
            };
            let Some(operand) = self.operand(row.operand, labels) else { continue };
            let form = self.random.cased(form);
            return match row.operand {
                OperandKind::None => form,
                _ => form.replace('%', &operand),
            };
        }
    }

    fn operand(&mut self, kind: OperandKind, labels: &[&str]) -> Option<String> {
        Some(match kind {
            OperandKind::None => String::new(),
            OperandKind::Label if labels.is_empty() => return None,
            OperandKind::Label => {
                let label = *self.random.pick(labels);
                self.random.cased(label)
            }
            OperandKind::Proc if self.procs.is_empty() => return None,
            OperandKind::Proc => {
                let name = *self.random.pick(&self.procs);
                self.random.cased(name)
            }
            OperandKind::Value if self.random.one_in(2) => self.number(u64::MAX),
            OperandKind::Value => self.expression(),
            OperandKind::Count8 => self.number(255),
            OperandKind::Count16 => self.number(65_535),
            OperandKind::U32 => self.number(u64::from(u32::MAX)),
            OperandKind::Lv if self.vars == 0 => return None,
            OperandKind::Lv => self.random.below(self.vars).to_string(),
            OperandKind::Gv if self.gvars == 0 => return None,
            OperandKind::Gv => self.random.below(self.gvars).to_string(),
            OperandKind::Disp => {
                let sign = *self.random.pick(&["", "-"]);
                format!("{sign}{}", self.number(0x7fff_ffff))
            }
            OperandKind::PushR | OperandKind::PushU | OperandKind::PopR | OperandKind::PopU => {
                let row = self.random.pick(REGISTERS);
                row.permits(kind).ok()?;
                if self.random.one_in(2) { self.random.cased(row.name) } else { format!("{:#x}", row.index) }
            }
        })
    }
}
