//! Updates the expected results of a test after an intended change.

use std::fs::File;
use std::io;
use std::path::Path;

use super::check::{Case, CaseError, Failed};
use crate::guest::{GuestBuilder, Places, ReplayError};
use crate::recording::Recorder;
use crate::replay::OwnPrograms;
use crate::session::{Followed, Way};

impl Case {
    /// Accepts the results of a run as expected: records the run again if it differs, writes the records' text if it is
    /// kept, and updates the numbers in equality assertions. Returns what still fails. An incomplete recording fails and
    /// stays as it is: its run was never seen to its end.
    ///
    /// # Errors
    /// As [`Case::run`], and a file cannot be written.
    pub fn update(self, places: &Places) -> Result<Vec<Failed>, CaseError> {
        let mut case = self;
        let places = Places { changed: true, ..places.clone() };
        let Err(mut failed) = case.run(&places)? else { return Ok(Vec::new()) };
        if failed.contains(&Failed::BreaksOff) {
            return Ok(failed);
        }
        let again = |failed: &Failed| matches!(failed, Failed::Diverged { .. });
        if failed.iter().any(again) || case.is_of_other_files(&places) {
            case.record_again(&places)?;
            case = case.read_again()?;
            failed = case.run(&places)?.err().unwrap_or_default();
        }
        for failed in &failed {
            case.take(failed)?;
        }
        let case = case.read_again()?;
        Ok(case.run(&places)?.err().unwrap_or_default())
    }

    /// The case as its files say it now.
    fn read_again(&self) -> Result<Self, CaseError> {
        let (limits, meter) = (self.limits.clone(), self.meter.clone());
        Ok(Self { limits, meter, ..Self::read(&self.path)? })
    }

    /// Whether a file of the guest has another content now.
    fn is_of_other_files(&self, places: &Places) -> bool {
        let same = Places { changed: false, ..places.clone() };
        GuestBuilder::of_recording(&self.recording, &same).is_err()
    }

    /// Records a run with the same inputs at the same instruction counts.
    fn record_again(&self, places: &Places) -> Result<(), CaseError> {
        let writing = |path: &Path, error: io::Error| CaseError::Write { path: path.to_owned(), error };
        let builder = GuestBuilder::of_recording(&self.recording, places)?;
        let embed = self.recording.brought().0 > 0;
        let (builder, mut config, blobs) = builder.recorded(embed).map_err(ReplayError::Guest)?;
        let old = self.recording.config();
        (config.probing, config.about) = (old.probing.clone(), old.about.clone());
        config.checkpoint_insns = old.checkpoint_insns;
        let new = self.path.with_extension("tlr.new");
        let file = File::create(&new).map_err(|error| writing(&new, error))?;
        let recorder =
            Recorder::begin(Box::new(file), &config, &blobs).map_err(|error| writing(&new, error))?;
        let recorder =
            if self.recording.changed_pages().is_empty() { recorder } else { recorder.with_pages() };
        let guest = builder.metered_by(&self.meter).open().map_err(ReplayError::Guest)?;
        let mut session = guest.start(config.probing.clone()).map_err(ReplayError::Guest)?;
        session.record(recorder).map_err(|error| writing(&new, io::Error::other(error)))?;
        let mut course = self.recording.course(Way::Branch, OwnPrograms::Stay);
        let mut dropped = super::shown::Shown::default();
        let Ok(followed) = session.follow(&mut course, None, &self.limits, &mut dropped);
        session.finish_recording().map_err(|error| writing(&new, error))?;
        if followed == Ok(Followed::Interrupted) {
            std::fs::remove_file(&new).map_err(|error| writing(&new, error))?;
            return Err(CaseError::Interrupted);
        }
        std::fs::rename(&new, &self.path).map_err(|error| writing(&self.path, error))
    }

    /// Accepts an actual result as the expected one.
    fn take(&self, failed: &Failed) -> Result<(), CaseError> {
        match failed {
            Failed::Records(_, found) => self.write("out", found),
            Failed::Assertion { line, holds: Some(holds), .. } => {
                let path = self.path.with_extension("expect");
                let text = crate::files::text_of(&path, crate::files::read_file(&path)?)?;
                let lines = (1..).zip(text.lines());
                let changed =
                    lines.map(
                        |(number, kept)| {
                            if number == *line { replaced(kept, holds) } else { kept.to_owned() }
                        },
                    );
                let changed: Vec<String> = changed.collect();
                self.write("expect", &(changed.join("\n") + "\n"))
            }
            _ => Ok(()),
        }
    }

    fn write(&self, extension: &str, text: &str) -> Result<(), CaseError> {
        let path = self.path.with_extension(extension);
        std::fs::write(&path, text).map_err(|error| CaseError::Write { path, error })
    }
}

/// The line with another assertion and the comment that it has.
fn replaced(line: &str, assertion: &str) -> String {
    let quoted = |c: char| c == '\'' || c == '"';
    let mut open = None;
    let comment = line.char_indices().find(|(_, c)| {
        match open {
            Some(mark) if mark == *c => open = None,
            None if quoted(*c) => open = Some(*c),
            _ => {}
        }
        open.is_none() && *c == '#'
    });
    match comment.and_then(|(at, _)| line.get(at..)) {
        Some(comment) => format!("{assertion} {comment}"),
        None => assertion.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_comment() {
        assert_eq!(replaced("hits('a#b') == 1  # why", "hits('a#b') == 2"), "hits('a#b') == 2 # why");
        assert_eq!(replaced("insns == 1", "insns == 2"), "insns == 2");
    }
}
