//! Options whose file cannot be standard input.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

/// A file that is read more than once, or with others of its folder.
pub fn named_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("it cannot be standard input; write the name of a file"),
        false => Ok(path),
    })
}
