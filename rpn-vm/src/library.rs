//! The procedures that come with the language: files of `library/`, held in the binary, included by
//! `#include <trapline/NAME>`. The first lines of each file list its procedures; docs/probe-language.md
//! describes them.

use crate::near::near_miss;

/// The prefix of their names in an `#include`.
pub const PREFIX: &str = "trapline/";

/// Name and text of each file.
pub const LIBRARY: &[(&str, &str)] = &[
    ("args.rpn", include_str!("../library/args.rpn")),
    ("bits.rpn", include_str!("../library/bits.rpn")),
    ("counter.rpn", include_str!("../library/counter.rpn")),
    ("cstring.rpn", include_str!("../library/cstring.rpn")),
    ("histogram.rpn", include_str!("../library/histogram.rpn")),
    ("memory.rpn", include_str!("../library/memory.rpn")),
];

/// The text of a file. `Err`: why there is no such file, and the file that was probably meant.
pub(crate) fn find(name: &str) -> Result<&'static str, (String, Option<String>)> {
    if let Some((_, text)) = LIBRARY.iter().find(|(own, _)| *own == name) {
        return Ok(text);
    }
    let help = match near_miss(name, LIBRARY.iter().map(|(own, _)| *own)) {
        Some(near) => format!("did you mean <{PREFIX}{near}>?"),
        None => {
            let all: Vec<String> = LIBRARY.iter().map(|(own, _)| format!("<{PREFIX}{own}>")).collect();
            format!("the files are {}", all.join(", "))
        }
    };
    Err(("no such file in the library".to_owned(), Some(help)))
}
