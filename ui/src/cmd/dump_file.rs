//! Files with a crash dump, as the commands see them that read one.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use trapline_session::{DumpFile, counted};

use crate::talk::Talk;

/// Whether a file is a dump, and not a kernel.
pub fn is_dump_file(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(18).read_to_end(&mut first));
    read.is_ok() && DumpFile::begins(&first)
}

/// Says that a file was cut off, before something of it is shown.
pub fn warn_if_cut(path: &Path, file: &DumpFile, talk: &Talk) {
    let missing = file.missing();
    if missing > 0 {
        talk.warn(&format!(
            "{} is cut off: {} that it should have {} beyond its end, so not all of it can be shown",
            path.display(),
            counted(missing, "page"),
            if missing == 1 { "lies" } else { "lie" }
        ));
    }
}
