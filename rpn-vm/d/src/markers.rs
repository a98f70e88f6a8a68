//! Markers of the preprocessor in a text, `# line "file"`: where its lines are from.

/// The file that a line of a text is from, if a marker before it names one. Lines count from 1.
#[must_use]
pub fn file_of(text: &[u8], line: u32) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let before = text.lines().take((line as usize).saturating_sub(1));
    before.filter_map(marked).last().map(str::to_owned)
}

/// The file that a line names, if it is a marker.
fn marked(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix("line").unwrap_or(rest).trim_start();
    let (number, rest) = rest.split_once(char::is_whitespace)?;
    number.parse::<u32>().ok()?;
    let (file, _) = rest.trim_start().strip_prefix('"')?.rsplit_once('"')?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::file_of;

    #[test]
    fn a_line_is_of_the_file_that_the_last_marker_before_it_names() {
        let text = b"int x;\n# 3 \"inc/h.h\"\nint y;\n  #line 7 \"f.d\" 2\nint z;\n# 9\nint w;\n#pragma D option quiet\n";
        let files: Vec<_> = (1..=8).map(|line| file_of(text, line)).collect();
        let files: Vec<_> = files.iter().map(|file| file.as_deref().unwrap_or("-")).collect();
        assert_eq!(files, ["-", "-", "inc/h.h", "inc/h.h", "f.d", "f.d", "f.d", "f.d"]);
    }
}
