//! The table: one row per measurement, with its target, for people or as JSON lines.

use super::forms::{Cost, Line, name, summary};
use std::fmt::Write as _;
use trapline_interposer::Way;
use trapline_session::counted;
pub use trapline_tests::{cpu_seconds, median};

/// The bound of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// The ratio may be at most this.
    AtMost(f64),
    /// The ratio must be at least this.
    AtLeast(f64),
    /// For information.
    None,
}

impl Target {
    fn met(self, ratio: f64) -> Option<bool> {
        match self {
            Target::AtMost(t) => Some(ratio <= t),
            Target::AtLeast(t) => Some(ratio >= t),
            Target::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Target::AtMost(t) => format!("<= {t}x"),
            Target::AtLeast(t) => format!(">= {t:.2}x"),
            Target::None => String::new(),
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The measurement.
    pub what: String,
    /// The measured quantity with its unit.
    pub value: f64,
    /// `ns`, `us` or `s`.
    pub unit: &'static str,
    /// Median of the ratios to the row's own baseline, taken within each round.
    pub ratio: Option<f64>,
    /// The baseline of the ratio.
    pub of: &'static str,
    /// The bound that the ratio must meet.
    pub target: Target,
    /// The paper's ratio for the same experiment.
    pub paper: &'static str,
}

impl Row {
    /// A row without a ratio.
    pub fn plain(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Row { what: what.into(), value, unit, ratio: None, of: "", target: Target::None, paper: "" }
    }

    /// Adds the ratio, its baseline, and its target.
    pub fn against(mut self, ratio: f64, of: &'static str, target: Target) -> Self {
        (self.ratio, self.of, self.target) = (Some(ratio), of, target);
        self
    }

    /// Adds the paper's ratio.
    pub fn paper(mut self, ratio: &'static str) -> Self {
        self.paper = ratio;
        self
    }

    fn verdict(&self) -> &'static str {
        match self.ratio.and_then(|r| self.target.met(r)) {
            Some(true) => "ok",
            Some(false) => "MISS",
            None => "",
        }
    }
}

/// A table section by section; a section is printed when it is done.
pub struct Table {
    json: bool,
    misses: usize,
}

impl Table {
    /// A table for people, or as JSON lines.
    pub fn new(json: bool) -> Self {
        Table { json, misses: 0 }
    }

    /// Prints a section, if it has any rows.
    pub fn section(&mut self, title: &str, rows: &[Row]) {
        if rows.is_empty() {
            return;
        }
        self.misses += rows.iter().filter(|r| r.verdict() == "MISS").count();
        if self.json {
            rows.iter().for_each(|r| println!("{}", json(title, r)));
            return;
        }
        println!("\n{title}");
        let heads = ["", "measured", "ratio", "to", "target", "", "paper"];
        let [what, value, ratio, of, target, verdict, paper] = heads;
        println!("  {what:<50} {value:>12}    {ratio:>8} {of:<17} {target:<9} {verdict:<5} {paper}");
        for r in rows {
            let ratio = r.ratio.map(|x| format!("{x:.2}x")).unwrap_or_default();
            let line = format!(
                "  {:<50} {:>12.3} {:<2} {:>8} {:<17} {:<9} {:<5} {}",
                r.what,
                r.value,
                r.unit,
                ratio,
                r.of,
                r.target.text(),
                r.verdict(),
                r.paper
            );
            println!("{}", line.trim_end());
        }
    }

    /// Prints what the forms cost by the way they are displaced, and with `each` a line for each form; `unit` is the bare
    /// engine's iteration.
    pub fn forms(&self, lines: &[Line], unit: f64, each: bool) {
        if !self.json {
            println!(
                "\nEvery opcode form: how it is displaced and what a hit adds, in 32- and in 64-bit code"
            );
        }
        if each {
            self.each_form(lines, unit);
        }
        for (mode, bits) in [(0, 32), (1, 64)] {
            for way in [Way::Emulated, Way::OutOfLine, Way::Stepped] {
                let Some((count, [half, most, all])) = summary(lines, mode, way) else { continue };
                if self.json {
                    println!(
                        "{}",
                        serde_json::json!({
                            "type": "forms", "bits": bits, "way": name(way), "forms": count, "half_ns": half,
                            "most_ns": most, "all_ns": all,
                        })
                    );
                    continue;
                }
                println!(
                    "  {bits} bits, {:<11} {count:>5} forms; half add at most {half:.0} ns ({:.1}x), 95 % {most:.0} ns ({:.1}x), all {all:.0} ns",
                    name(way),
                    half / unit,
                    most / unit,
                );
            }
        }
    }

    fn each_form(&self, lines: &[Line], unit: f64) {
        if self.json {
            lines.iter().for_each(|l| println!("{}", form_json(l)));
            return;
        }
        println!(
            "  (* from a snapshot, its block new: the form spoils the loop; ratios to a bare iteration)"
        );
        for l in lines {
            let line =
                format!("  {:<64} {} {}", l.form, cost_text(l.costs[0], unit), cost_text(l.costs[1], unit));
            println!("{}", line.trim_end());
        }
    }

    /// Prints why something was not measured.
    pub fn note(&self, text: &str) {
        if self.json {
            println!("{}", serde_json::json!({ "type": "note", "text": text }));
        } else {
            println!("  {text}");
        }
    }

    /// Ends the table.
    pub fn end(&self, seconds: f64) {
        if self.json {
            println!("{}", serde_json::json!({ "type": "end", "misses": self.misses, "seconds": seconds }));
            return;
        }
        let mut line = format!("\n{seconds:.0} s; ");
        let _ = match self.misses {
            0 => write!(line, "every target met"),
            n => write!(line, "{} missed", counted(n as u64, "target")),
        };
        println!("{line}");
    }
}

fn json(section: &str, r: &Row) -> serde_json::Value {
    let (bound, limit) = match r.target {
        Target::AtMost(t) => (Some("max"), Some(t)),
        Target::AtLeast(t) => (Some("min"), Some(t)),
        Target::None => (None, None),
    };
    serde_json::json!({
        "type": "bench", "section": section, "what": r.what, "value": r.value, "unit": r.unit,
        "ratio": r.ratio, "of": (!r.of.is_empty()).then_some(r.of), "bound": bound, "target": limit,
        "ok": r.ratio.and_then(|x| r.target.met(x)), "paper": (!r.paper.is_empty()).then_some(r.paper),
    })
}

fn cost_text(cost: Option<Cost>, unit: f64) -> String {
    let Some(Cost { way, ns, looped }) = cost else { return format!("{:<32}", "-") };
    let star = if looped { ' ' } else { '*' };
    format!("{:<11} {ns:>8.0} ns{star}{:>6.1}x", name(way), ns / unit)
}

fn form_json(line: &Line) -> serde_json::Value {
    let cost = |n: usize| {
        line.costs[n].map(|c| serde_json::json!({ "way": name(c.way), "ns": c.ns, "looped": c.looped }))
    };
    serde_json::json!({ "type": "form", "form": line.form, "bits32": cost(0), "bits64": cost(1) })
}
