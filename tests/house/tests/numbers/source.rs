//! What a row of the table compares a number with: a constant, a text, a count, a test.

use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Lit};

use super::document::{NUMBER, in_words, value_of_words};
use crate::tests_can_fail::all_tests;

/// Units, and how many of the least unit of their kind they are: bytes, nanoseconds, hertz, or things.
const UNITS: &[(&str, f64)] = &[
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("K", 1024.0),
    ("M", 1_048_576.0),
    ("G", 1_073_741_824.0),
    ("MB", 1e6),
    ("bytes", 1.0),
    ("byte", 1.0),
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("microseconds", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("seconds", 1e9),
    ("minutes", 6e10),
    ("Hz", 1.0),
    ("kHz", 1e3),
    ("MHz", 1e6),
    ("GHz", 1e9),
    ("million", 1e6),
    ("millionth", 1e6),
    ("billion", 1e9),
    ("%", 1.0),
    ("x", 1.0),
    ("times", 1.0),
    ("instructions", 1.0),
    ("executions", 1.0),
];

/// The unit at the beginning of a text that follows a number.
pub fn unit(after: &str) -> Option<f64> {
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[ -]?([A-Za-zµ]+|%)").unwrap());
    let word = WORD.captures(after)?.get(1)?.as_str();
    UNITS.iter().find(|(name, _)| *name == word).map(|(_, scale)| *scale)
}

/// A number as it is written, and with its unit.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    plain: f64,
    scale: Option<f64>,
}

impl Amount {
    /// A number without a unit.
    pub fn plain(plain: f64) -> Self {
        Self { plain, scale: None }
    }

    /// The number at the beginning of a text, hexadecimal ones too, with the unit behind it.
    pub fn read(digits: &str, after: &str) -> Option<Self> {
        let text = digits.replace([',', '_'], "");
        let plain = match (text.strip_prefix("0x"), text.split_once('^')) {
            (Some(hex), _) => u64::from_str_radix(hex, 16).ok()? as f64,
            (None, Some((base, power))) => base.parse::<f64>().ok()?.powi(power.parse().ok()?),
            (None, None) => match value_of_words(&text) {
                Some(value) => value as f64,
                None => text.parse().ok()?,
            },
        };
        Some(Self { plain, scale: unit(after) })
    }

    /// Whether a document's number is that of a source. A source without a unit may count in the document's unit or in
    /// the least one; with `about`, a tenth is allowed.
    pub fn is(self, source: Self, about: bool) -> bool {
        let near = |a: f64, b: f64| {
            if about { (a - b).abs() <= b.abs() / 10.0 } else { (a - b).abs() <= b.abs() * 1e-9 }
        };
        let scaled = |amount: Self| amount.plain * amount.scale.unwrap_or(1.0);
        let both = self.scale.is_some() && source.scale.is_some();
        near(scaled(self), scaled(source)) || !both && near(self.plain, source.plain)
    }

    /// The number.
    pub fn shown(self) -> String {
        match self.scale {
            Some(scale) if scale != 1.0 => format!("{} x {scale}", self.plain),
            _ => self.plain.to_string(),
        }
    }
}

/// How the numbers of a row are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The value of a constant, or the length of a list, in a Rust file; also an expression of its constants.
    Const { file: String, name: String },
    /// A number where a text of a file has `{}`.
    Text { file: String, fragment: String },
    /// How often a form occurs in files.
    Count { files: String, form: String },
    /// A test that compares, or works by, what the document says.
    Tested { file: String, name: String },
    /// A rule that is not ours.
    Spec(String),
}

impl Source {
    /// Reads `const FILE NAME`, `text FILE FRAGMENT`, `count FILES FORM`, `tested FILE TEST` or `spec WORDS`.
    pub fn read(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(' ').ok_or_else(|| format!("`{text}` is no source"))?;
        let two = || {
            let (first, second) = rest.split_once(' ').ok_or_else(|| format!("`{text}` lacks a part"))?;
            Ok::<_, String>((first.to_owned(), second.to_owned()))
        };
        match kind {
            "const" => two().map(|(file, name)| Self::Const { file, name }),
            "text" => two().map(|(file, fragment)| Self::Text { file, fragment }),
            "count" => two().map(|(files, form)| Self::Count { files, form }),
            "tested" => two().map(|(file, name)| Self::Tested { file, name }),
            "spec" => Ok(Self::Spec(rest.to_owned())),
            _ => Err(format!("`{kind}` is no kind of source")),
        }
    }

    /// The number of this source; none for a test and a rule, which stand for any numbers.
    pub fn value(&self, root: &Path) -> Result<Option<Amount>, String> {
        match self {
            Self::Const { file, name } => constant(&read(root, file)?, name)
                .map(|value| Some(Amount::plain(value)))
                .map_err(|why| format!("{file}: {why}")),
            Self::Text { file, fragment } => {
                text(&read(root, file)?, fragment).map(Some).map_err(|why| format!("{file}: {why}"))
            }
            Self::Count { files, form } => count(root, files, form).map(Some),
            Self::Tested { file, name } => tested(root, file, name).map(|()| None),
            Self::Spec(_) => Ok(None),
        }
    }
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
}

#[derive(Default)]
struct Constants(Vec<(String, Expr)>);

impl<'ast> Visit<'ast> for Constants {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.0.push((item.ident.to_string(), (*item.expr).clone()));
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.0.push((item.ident.to_string(), (*item.expr).clone()));
        visit::visit_item_static(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.0.push((item.ident.to_string(), item.expr.clone()));
    }
}

/// The value of a constant of a Rust file, or of an expression of its constants.
pub fn constant(text: &str, wanted: &str) -> Result<f64, String> {
    let mut constants = Constants::default();
    constants.visit_file(&syn::parse_file(text).map_err(|error| error.to_string())?);
    let expression = syn::parse_str(wanted).map_err(|error| format!("{wanted}: {error}"))?;
    evaluate(&expression, &constants.0)
        .ok_or_else(|| format!("{wanted} is not there, or no simple arithmetic"))
}

fn evaluate(expression: &Expr, known: &[(String, Expr)]) -> Option<f64> {
    let value = |inner: &Expr| evaluate(inner, known);
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse::<u64>().ok().map(|number| number as f64),
            Lit::Float(number) => number.base10_parse().ok(),
            _ => None,
        },
        Expr::Paren(inner) => value(&inner.expr),
        Expr::Cast(inner) => value(&inner.expr),
        Expr::Reference(inner) => value(&inner.expr),
        Expr::Array(list) => Some(list.elems.len() as f64),
        Expr::Repeat(list) => value(&list.len),
        Expr::Binary(both) => operate(&both.op, value(&both.left)?, value(&both.right)?),
        Expr::Path(path) => {
            let name = path.path.segments.last()?.ident.to_string();
            known.iter().find(|(other, _)| *other == name).and_then(|(_, inner)| value(inner))
        }
        Expr::MethodCall(call) if call.method == "unwrap" => value(&call.receiver),
        Expr::Call(call) => wrapped(call, value(call.args.first()?)?),
        _ => None,
    }
}

/// A number in a type of one field. Times are in nanoseconds.
fn wrapped(call: &syn::ExprCall, inner: f64) -> Option<f64> {
    let Expr::Path(path) = &*call.func else { return None };
    match path.path.segments.last()?.ident.to_string().as_str() {
        "from_secs" => Some(inner * 1e9),
        "from_millis" => Some(inner * 1e6),
        "from_micros" => Some(inner * 1e3),
        _ => Some(inner),
    }
}

fn operate(operator: &BinOp, left: f64, right: f64) -> Option<f64> {
    match operator {
        BinOp::Add(_) => Some(left + right),
        BinOp::Sub(_) => Some(left - right),
        BinOp::Mul(_) => Some(left * right),
        BinOp::Div(_) => Some((left / right).floor()),
        BinOp::BitOr(_) => Some((left as u64 | right as u64) as f64),
        BinOp::Shl(_) => Some(left * right.exp2()),
        _ => None,
    }
}

/// Single spaces in place of line breaks, comment marks and indentation.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("///").trim_start_matches("//!"));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// The number in a text where the fragment has `{}`.
fn text(text: &str, fragment: &str) -> Result<Amount, String> {
    let parts: Vec<String> = fragment.split("{}").map(regex::escape).collect();
    let [before, after] = parts.as_slice() else { return Err(format!("`{fragment}` needs one {{}}")) };
    let form = Regex::new(&format!("{before}(0x[0-9a-fA-F_]+|{NUMBER}|{}){after}", in_words())).unwrap();
    let text = joined(text);
    let found: Vec<_> = form.captures_iter(&text).filter_map(|all| all.get(1)).collect();
    let amounts: Vec<Amount> =
        found.iter().filter_map(|number| Amount::read(number.as_str(), &text[number.end()..])).collect();
    match amounts.as_slice() {
        [] => Err(format!("`{fragment}` is not there")),
        [first, rest @ ..] if rest.iter().all(|other| other.plain == first.plain) => Ok(*first),
        _ => Err(format!("`{fragment}` is there with several numbers")),
    }
}

/// All files below a folder.
fn files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path);
        }
    }
}

/// How often a form occurs in the files of a name in which `*` stands for anything, or how many `file`s these are.
fn count(root: &Path, names: &str, form: &str) -> Result<Amount, String> {
    let fixed = names.split('*').next().unwrap_or_default();
    let folder = root.join(fixed.rsplit_once('/').map_or("", |(folder, _)| folder));
    let parts: Vec<String> = names.split('*').map(regex::escape).collect();
    let wanted = Regex::new(&format!("^{}$", parts.join(".*"))).unwrap();
    let pattern = Regex::new(&format!("(?m){form}")).map_err(|error| error.to_string())?;
    let mut found = BTreeSet::new();
    files(&folder, &mut found);
    let below = |path: &Path| path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
    found.retain(|path| wanted.is_match(&below(path)));
    let in_file = |path| Some(pattern.find_iter(&std::fs::read_to_string(path).ok()?).count());
    let number = if form == "file" { found.len() } else { found.iter().filter_map(in_file).sum() };
    if number == 0 { Err(format!("{names}: nothing is `{form}`")) } else { Ok(Amount::plain(number as f64)) }
}

/// Whether a test exists, runs and asserts something.
fn tested(root: &Path, file: &str, name: &str) -> Result<(), String> {
    static TESTS: LazyLock<Vec<trapline_house::tests::Test>> = LazyLock::new(all_tests);
    let path = root.join(file).canonicalize().map_err(|error| format!("{file}: {error}"))?;
    let runs = |test: &&trapline_house::tests::Test| test.file == path && test.name == name;
    match TESTS.iter().find(runs) {
        Some(test) if test.asserts && !test.ignored => Ok(()),
        Some(_) => Err(format!("{file}: {name} does not run or asserts nothing")),
        None => Err(format!("{file} has no test {name}")),
    }
}
