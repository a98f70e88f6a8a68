//! Prints the import circles of the crates whose folders are named, or of every crate of the workspace.

use std::process::ExitCode;

use trapline_house::{Crate, circles, members, root, targets};

fn main() -> ExitCode {
    let mut folders: Vec<String> = std::env::args().skip(1).collect();
    if folders.is_empty() {
        folders = members();
    }
    let mut failed = false;
    for target in folders.iter().flat_map(|folder| targets(&root().join(folder))) {
        match Crate::read(&target) {
            Ok(made) => {
                for circle in circles(&made) {
                    failed = true;
                    println!("{}: {circle}", target.display());
                }
            }
            Err(error) => {
                failed = true;
                eprintln!("{error}");
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
