//! Functions, by address.

use serde::{Deserialize, Serialize};
use trapline_providers::{Function, FunctionGlob, Present, Target, functions, present_functions};
use trapline_trace::{HexStyle, hex};

use super::How;

/// The functions that the glob matches.
pub fn find(
    target: &Target,
    present: Option<&mut Present<'_>>,
    glob: Option<&FunctionGlob>,
) -> Vec<Function> {
    match present {
        Some(present) => present_functions(target, present, glob),
        None => functions(target, glob),
    }
}

/// A line each.
pub fn text(found: &[Function], how: How) -> Vec<String> {
    let modules = found.iter().map(|function| function.module.len()).max().unwrap_or(0);
    found.iter().map(|function| line(function, how, modules)).collect()
}

fn line(function: &Function, how: How, modules: usize) -> String {
    let digits = how.digits;
    let mut line = format!("{:#0digits$x} {:>7}  ", function.address, function.size);
    if how.opcode {
        let opcode = function.bytes.first().map_or_else(|| "-".to_owned(), |byte| format!("{byte:#04x}"));
        line.push_str(&format!("{opcode:4}  "));
    }
    if how.bytes {
        line.push_str(&format!("{:23}  ", hex(&function.bytes, HexStyle::Spaced)));
    }
    line.push_str(&format!("{:modules$}  {}", function.module, function.name));
    line
}

/// A function in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionRow {
    /// Its linear address.
    pub address: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its kernel or module.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Its offset in the module's file.
    pub offset: Option<String>,
    /// Its first byte.
    pub opcode: Option<String>,
    /// Its first bytes, as hexadecimal digits.
    pub bytes: String,
}

/// A function as a row.
pub fn row(function: &Function) -> FunctionRow {
    FunctionRow {
        address: format!("{:#x}", function.address),
        size: function.size,
        module: function.module.to_string(),
        name: function.name.to_string(),
        offset: function.offset.map(|offset| format!("{offset:#x}")),
        opcode: function.bytes.first().map(|byte| format!("{byte:#04x}")),
        bytes: hex(&function.bytes, HexStyle::Pairs),
    }
}
