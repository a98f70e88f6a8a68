//! Targets that format and read records.

use crate::{Checks, Part};
use std::io;
use std::path::Path;
use trapline_trace::{Formatter, Header, MAX_TEXT, RecordView, TraceReader};

/// A dump of the data may follow the text; the output is at most this many times the length of the data, plus a constant.
const DUMP: usize = 8;

/// The template file, a NUL, then a record's data.
pub fn templates(bytes: &[u8], checks: Checks) {
    let (file, data) = match bytes.iter().position(|&b| b == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    let made = Formatter::initialise_with(Path::new("dir"), &mut |path| match path.to_str() {
        Some("dir") => Ok(b"major=1 file=\"one\"\n".to_vec()),
        Some("one") => Ok(file.to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    });
    match made {
        Err(errors) => assert!(!checks.have(Part::Shown) || !errors.to_string().is_empty()),
        Ok(formatter) => {
            for (minor, width) in [(1, 32), (1, 64), (2, 32)] {
                let header = Header { major: 1, minor, width, ..Header::default() };
                let text = formatter.format(&RecordView { header, name: b"", watch: None, data }).text;
                assert!(text.len() <= MAX_TEXT + DUMP * data.len() + 1024, "{} bytes", text.len());
            }
        }
    }
    // As the template directory, which may refer to itself many times.
    if checks.have(Part::Printed) {
        let only = Formatter::initialise_with(Path::new("dir"), &mut |_| Ok(bytes.to_vec()));
        assert!(only.is_ok() || !only.unwrap_err().to_string().is_empty());
    }
}

pub fn trace(bytes: &[u8], _: Checks) {
    let mut reader = match TraceReader::open(bytes) {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut pieces = 0;
    loop {
        match reader.next_piece() {
            Ok(Some(_)) => pieces += 1,
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
        assert!(pieces <= bytes.len(), "more pieces than bytes");
    }
}
