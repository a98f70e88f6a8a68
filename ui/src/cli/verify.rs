//! The options of `verify`.

use std::path::PathBuf;

use clap::Args;
use trapline_session::numbers::{self, NumberError};

fn jobs(text: &str) -> Result<usize, NumberError> {
    numbers::within(text, 1, 1024).map(|jobs| jobs as usize)
}

/// `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Recordings, and folders of recordings
    #[arg(required = true, value_name = "DIR|FILE.tlr", help_heading = "Arguments")]
    pub paths: Vec<PathBuf>,
    /// Run so many at a time
    #[arg(long, value_name = "N", default_value = "1", value_parser = jobs)]
    pub jobs: usize,
    /// Write the results to this file too, as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Take what is found for what must be: record runs anew that are others now, and change numbers in assertions
    #[arg(long)]
    pub update: bool,
    /// Look for the guests' files in this folder too, by their names; may be repeated
    #[arg(long, value_name = "DIR")]
    pub image_dir: Vec<PathBuf>,
}
