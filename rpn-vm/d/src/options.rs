//! Options of dtrace(1): `-x name=value` and `#pragma D option name=value`.

use std::collections::BTreeMap;

use trapline_trace::d::{ConsumerOptions, Limits};

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing, or a truth value.
    Flag,
    /// A number.
    Number,
    /// Bytes, with `k`, `m`, `g` or `t`.
    Bytes,
    /// A frequency or a time.
    Rate,
    /// Any text.
    Text,
}

/// The options: name, kind, default.
const OPTIONS: &[(&str, Kind, &str)] = &[
    ("aggpercpu", Kind::Flag, ""),
    ("agghist", Kind::Flag, ""),
    ("aggpack", Kind::Flag, ""),
    ("aggrate", Kind::Rate, "1hz"),
    ("aggsize", Kind::Bytes, "4m"),
    ("aggsortkey", Kind::Flag, ""),
    ("aggsortkeypos", Kind::Number, "0"),
    ("aggsortpos", Kind::Number, "0"),
    ("aggsortrev", Kind::Flag, ""),
    ("amin", Kind::Text, ""),
    ("argref", Kind::Flag, ""),
    ("bufpolicy", Kind::Text, "switch"),
    ("bufresize", Kind::Text, "auto"),
    ("bufsize", Kind::Bytes, "4m"),
    ("cleanrate", Kind::Rate, "101hz"),
    ("core", Kind::Flag, ""),
    ("cpp", Kind::Flag, ""),
    ("cpphdrs", Kind::Flag, ""),
    ("cpppath", Kind::Text, ""),
    ("cpu", Kind::Text, ""),
    ("ctypes", Kind::Text, ""),
    ("debug", Kind::Text, ""),
    ("defaultargs", Kind::Flag, ""),
    ("define", Kind::Text, ""),
    ("destructive", Kind::Flag, ""),
    ("disasm", Kind::Number, "0"),
    ("droptags", Kind::Flag, ""),
    ("dtypes", Kind::Text, ""),
    ("dynvarsize", Kind::Bytes, "1m"),
    ("empty", Kind::Flag, ""),
    ("errtags", Kind::Flag, ""),
    ("evaltime", Kind::Text, ""),
    ("flowindent", Kind::Flag, ""),
    ("grabanon", Kind::Flag, ""),
    ("incdir", Kind::Text, ""),
    ("iregs", Kind::Number, "8"),
    ("jstackframes", Kind::Number, "50"),
    ("jstackstrsize", Kind::Bytes, "512"),
    ("kdefs", Kind::Flag, ""),
    ("knodefs", Kind::Flag, ""),
    ("late", Kind::Text, "dynamic"),
    ("libdir", Kind::Text, ""),
    ("linkmode", Kind::Text, "kernel"),
    ("linktype", Kind::Text, "elf"),
    ("lockmem", Kind::Bytes, "0"),
    ("maxframes", Kind::Number, "127"),
    ("modpath", Kind::Text, ""),
    ("nlibs", Kind::Flag, ""),
    ("nolibs", Kind::Flag, ""),
    ("noresolve", Kind::Flag, ""),
    ("nspec", Kind::Number, "1"),
    ("pcapsize", Kind::Bytes, "64k"),
    ("pgmax", Kind::Number, "8"),
    ("preallocate", Kind::Bytes, "0"),
    ("procfspath", Kind::Text, ""),
    ("pspec", Kind::Flag, ""),
    ("quiet", Kind::Flag, ""),
    ("quietresize", Kind::Flag, ""),
    ("rawbytes", Kind::Flag, ""),
    ("scratchsize", Kind::Bytes, "256"),
    ("specsize", Kind::Bytes, "4m"),
    ("stackframes", Kind::Number, "20"),
    ("stackindent", Kind::Number, "14"),
    ("statusrate", Kind::Rate, "1hz"),
    ("stdc", Kind::Text, "a"),
    ("strip", Kind::Flag, ""),
    ("strsize", Kind::Bytes, "256"),
    ("switchrate", Kind::Rate, "1hz"),
    ("syslibdir", Kind::Text, ""),
    ("system", Kind::Flag, ""),
    ("tree", Kind::Text, ""),
    ("tregs", Kind::Number, "8"),
    ("udefs", Kind::Flag, ""),
    ("undef", Kind::Text, ""),
    ("unodefs", Kind::Flag, ""),
    ("useruid", Kind::Text, ""),
    ("ustackframes", Kind::Number, "20"),
    ("verbose", Kind::Flag, ""),
    ("version", Kind::Text, ""),
    ("zdefs", Kind::Flag, ""),
];

/// An option, for the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Documented {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: &'static str,
    /// Its default; empty if there is none.
    pub default: &'static str,
}

/// All options.
pub fn documented() -> impl Iterator<Item = Documented> {
    OPTIONS.iter().map(|(name, kind, default)| {
        let takes = match kind {
            Kind::Flag => "nothing, or a truth value",
            Kind::Number => "a number",
            Kind::Bytes => "bytes, with k, m, g or t",
            Kind::Rate => "a frequency or a time",
            Kind::Text => "a text",
        };
        Documented { name, takes, default }
    })
}

/// The newest version of D whose programs are taken.
const VERSION: (u32, u32) = (2, 0);

/// Why an option is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub &'static str);

/// The options that were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    given: BTreeMap<&'static str, String>,
    /// `-x define=` and `-x undef=`, in order.
    defines: Vec<(String, bool)>,
}

/// Bytes with a suffix.
fn bytes(text: &str) -> Option<u64> {
    let low = text.to_ascii_lowercase();
    let digits = low.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match low.get(digits.len()..)? {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Whether a rate is one: a number with `hz` or a unit of time.
fn is_rate(text: &str) -> bool {
    let low = text.to_ascii_lowercase();
    let digits = low.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let units =
        ["", "hz", "ns", "nsec", "us", "usec", "ms", "msec", "s", "sec", "m", "min", "h", "hour", "d", "day"];
    low.get(digits.len()..).is_some_and(|unit| units.contains(&unit)) && digits.parse::<u64>().is_ok()
}

impl Options {
    /// Sets an option.
    ///
    /// # Errors
    /// There is no such option, or it does not take this value.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        let Some((name, kind, _)) = OPTIONS.iter().find(|(known, ..)| *known == name) else {
            return Err(OptionError("Invalid option name"));
        };
        let invalid = Err(OptionError("Invalid value for specified option"));
        let text = value.unwrap_or_default();
        match kind {
            Kind::Flag => match text {
                "" | "1" | "enable" | "on" | "yes" | "true" => {
                    self.given.insert(name, "1".to_owned());
                }
                "0" | "disable" | "off" | "no" | "false" => {
                    self.given.remove(name);
                }
                _ => return invalid,
            },
            _ if value.is_none() => return invalid,
            Kind::Number if number(text).is_none() => return invalid,
            Kind::Bytes if bytes(text).is_none() => return invalid,
            Kind::Rate if !is_rate(text) => return invalid,
            _ => {
                self.check(name, text)?;
                self.given.insert(name, text.to_owned());
            }
        }
        Ok(())
    }

    /// What single options ask of their values.
    fn check(&mut self, name: &str, text: &str) -> Result<(), OptionError> {
        let invalid = Err(OptionError("Invalid value for specified option"));
        match name {
            "define" => self.defines.push((text.to_owned(), true)),
            "undef" => self.defines.push((text.to_owned(), false)),
            "stdc" if !matches!(text, "a" | "c" | "s" | "t") => return invalid,
            "bufpolicy" if !matches!(text, "switch" | "fill" | "ring") => return invalid,
            "bufresize" if !matches!(text, "auto" | "manual") => return invalid,
            "linkmode" if !matches!(text, "kernel" | "primary" | "dynamic" | "static") => return invalid,
            "version" => {
                let mut parts = text.split('.').map(str::parse::<u32>);
                let (Some(Ok(major)), minor) = (parts.next(), parts.next().unwrap_or(Ok(0))) else {
                    return Err(OptionError("Invalid version string"));
                };
                let Ok(minor) = minor else { return Err(OptionError("Invalid version string")) };
                if (major, minor) > VERSION && major != 1 {
                    return Err(OptionError("Requested version is not supported by compiler"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// All that was given, as names and values that [`Options::set`] takes.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let defines = self.defines.iter().map(|(text, on)| (if *on { "define" } else { "undef" }, text));
        let others = self.given.iter().map(|(name, value)| (*name, value));
        let others = others.filter(|(name, _)| !matches!(*name, "define" | "undef"));
        others.chain(defines).map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }

    /// The text of an option, given or its default.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let default = OPTIONS.iter().find(|(known, ..)| *known == name).map_or("", |(.., default)| default);
        self.given.get(name).map_or(default, String::as_str)
    }

    /// A flag.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// A number or a number of bytes.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        let text = self.text(name);
        bytes(text).or_else(|| number(text)).unwrap_or(0)
    }

    /// The nanoseconds between two moments of a rate, if it was given: `10hz`, `100ms`.
    #[must_use]
    pub fn period(&self, name: &str) -> Option<u64> {
        let low = self.given.get(name)?.to_ascii_lowercase();
        let digits = low.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let count: u64 = digits.parse().ok().filter(|count| *count > 0)?;
        let unit = match low.get(digits.len()..)? {
            "" | "hz" => return Some((1_000_000_000 / count).max(1)),
            "ns" | "nsec" => 1,
            "us" | "usec" => 1_000,
            "ms" | "msec" => 1_000_000,
            "s" | "sec" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" | "hour" => 3_600_000_000_000,
            _ => 86_400_000_000_000,
        };
        count.checked_mul(unit)
    }

    /// The limits that they set for a run.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let size = |name| usize::try_from(self.number(name)).unwrap_or(usize::MAX);
        Limits {
            strsize: size("strsize"),
            scratchsize: size("scratchsize"),
            dynvarsize: size("dynvarsize"),
            aggsize: size("aggsize"),
            specsize: size("specsize"),
            nspec: size("nspec"),
            bufsize: size("bufsize"),
        }
    }

    /// How they have a program's data shown.
    #[must_use]
    pub fn output(&self) -> ConsumerOptions {
        let number = |name| usize::try_from(self.number(name)).unwrap_or(0);
        ConsumerOptions {
            quiet: self.flag("quiet"),
            strsize: number("strsize"),
            rawbytes: self.flag("rawbytes"),
            sort_key: self.flag("aggsortkey"),
            sort_reverse: self.flag("aggsortrev"),
            sort_key_position: number("aggsortkeypos"),
            sort_position: number("aggsortpos"),
            stack_indent: number("stackindent").min(200),
            flow_indent: self.flag("flowindent"),
        }
    }

    /// The macros that `-x define=` and `-x undef=` define and undefine, in order.
    pub fn defines(&self) -> impl Iterator<Item = (&str, bool)> {
        self.defines.iter().map(|(text, on)| (text.as_str(), *on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_by_the_kind_of_the_option() {
        let mut options = Options::default();
        assert_eq!(options.set("bufsize", Some("4k")), Ok(()));
        assert_eq!(options.number("bufsize"), 4096);
        assert_eq!(
            options.set("bufsize", Some("4x")),
            Err(OptionError("Invalid value for specified option"))
        );
        assert_eq!(options.set("buffsize", None), Err(OptionError("Invalid option name")));
        assert_eq!(options.set("quiet", None), Ok(()));
        assert!(options.flag("quiet") && !options.flag("destructive"));
        assert_eq!(options.number("strsize"), 256);
        assert_eq!(options.period("aggrate"), None);
        for (text, wanted) in [("10hz", 100_000_000), ("5ms", 5_000_000), ("2sec", 2_000_000_000)] {
            options.set("aggrate", Some(text)).unwrap();
            assert_eq!(options.period("aggrate"), Some(wanted), "{text}");
        }
        assert!(options.set("stdc", Some("X")).is_err());
        assert!(
            options.set("switchrate", Some("10hz")).is_ok()
                && options.set("switchrate", Some("10q")).is_err()
        );
    }
}
