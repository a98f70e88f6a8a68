//! Changes of the run, and the list that follows from them: probes that are added and switched for the whole run, and lines that are
//! typed at the console.

use trapline_session::{Command, PointState, ProgramState, ScriptError, Selection, SourceOptions};

use super::{App, Effect};
use crate::hits::{Filter, free_later};
use crate::message::{Listing, Request, Wish};

impl App {
    /// The probe points of all programs, each with its program and its number there.
    pub fn points(&self) -> impl Iterator<Item = (&ProgramState, usize, &PointState)> {
        let programs = self.scene.iter().flat_map(|scene| &scene.programs);
        programs
            .flat_map(|program| program.points.iter().enumerate().map(move |(n, point)| (program, n, point)))
    }

    /// Switches the selected probe point.
    pub(super) fn switch_probe(&mut self) -> Vec<Effect> {
        let Some((program, number, point)) = self.points().nth(self.selected.point) else {
            return self.say("there is no probe point here; `a` adds one".to_owned());
        };
        let name = Some(program.name.clone());
        let wish =
            Wish::Switch(Selection { name, point: Some(number), ..Selection::default() }, !point.enabled);
        self.change(wish, "to the same position of the run with these probes")
    }

    /// Types a line at the console.
    ///
    /// # Errors
    /// A sentence that says what cannot be typed.
    pub(super) fn type_line(&mut self, text: &str) -> Result<Vec<Effect>, String> {
        let bytes = line(text)?;
        Ok(self.change(Wish::Type(bytes), "to the console"))
    }

    /// Changes the run, if nothing else is under way.
    pub fn change(&mut self, wish: Wish, words: &str) -> Vec<Effect> {
        if self.travel.busy.is_some() {
            return self.say("a move is under way; Esc cancels it".to_owned());
        }
        self.travel.busy = Some(words.to_owned());
        self.travel.aim = None;
        vec![Effect::Ask(Request::Change(wish))]
    }

    /// The run has other probes, or other input: its hits are listed anew.
    pub(super) fn changed(&mut self, listing: Listing) -> Vec<Effect> {
        self.run.ended.clone_from(&listing.end);
        free_later(std::mem::take(&mut self.run.hits));
        self.run.listed = 0;
        self.run.number = listing.number;
        self.cursor = None;
        let spots = self.travel.undo.iter_mut().chain(&mut self.travel.redo);
        spots.for_each(|spot| spot.hit = None);
        self.travel.queue.clear();
        // A text that was read once is read again.
        self.filter = self.filter.take().and_then(|filter| Filter::parse(filter.text()).ok().flatten());
        self.sort_again();
        self.travel.quiet = true;
        vec![Effect::List(listing)]
    }

    /// Names for the line that is being typed: what they have in common is typed.
    pub(super) fn completed(&mut self, text: &str, names: Vec<String>) -> Vec<Effect> {
        let Some(prompt) = self.prompt.as_mut().filter(|prompt| prompt.text == text) else {
            return Vec::new();
        };
        if let Some(first) = names.first() {
            let common = |length: usize, name: &String| {
                first.chars().zip(name.chars()).take(length).take_while(|(a, b)| a == b).count()
            };
            let length = names.iter().fold(first.chars().count(), common);
            prompt.text = first.chars().take(length).collect();
        }
        prompt.found = names;
        Vec::new()
    }
}

/// The bytes of a line, with the escapes of scripts, and its end.
///
/// # Errors
/// A sentence that says which escape there is not.
fn line(text: &str) -> Result<Vec<u8>, String> {
    if text.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
        return Err("the last \\ is an escape without its letter; write \\\\ for a backslash".to_owned());
    }
    let action = format!("type \"{}\\n\"", text.replace('"', "\\x22"));
    match Command::parse("the line", 1, &action, &SourceOptions::default()) {
        Ok(Some(Command::Type { bytes, .. })) => Ok(bytes),
        Err(ScriptError::Lines(found)) => {
            let first = found.list.first();
            let parts = first.map(|one| [Some(one.message.clone()), one.help.clone()].into_iter().flatten());
            Err(parts.map(|parts| parts.collect::<Vec<_>>().join("; ")).unwrap_or_default())
        }
        Ok(_) => Err(format!("`{text}` cannot be typed")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_line_has_its_end_and_the_escapes_of_scripts() {
        assert_eq!(line("ls -l").unwrap(), b"ls -l\n");
        assert_eq!(line("").unwrap(), b"\n");
        assert_eq!(line(r#" echo "a  b" \\ \x03"#).unwrap(), b" echo \"a  b\" \\ \x03\n");
        assert!(line("foo \\").unwrap_err().contains("write \\\\"));
        assert_eq!(line("foo \\\\").unwrap(), b"foo \\\n");
        let said = line(r"\q").unwrap_err();
        assert!(said.contains("is not an escape") && said.contains("write "), "{said}");
    }
}
