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
    /// Run N recordings at a time
    #[arg(long, value_name = "N", default_value = "1", value_parser = jobs)]
    pub jobs: usize,
    /// Also write the results to this file, as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Accept the results: record differing runs again, and update the numbers in assertions
    #[arg(long)]
    pub update: bool,
    /// Also look for the guests' files in this folder, by their names; may be repeated
    #[arg(long, value_name = "DIR")]
    pub image_dir: Vec<PathBuf>,
}
