//! Probes that are added and switched for the whole run, and the list that follows from it.

use trapline_session::{Command, PointState, ProgramState, Selection};

use super::{App, Effect};
use crate::hits::{Filter, Hits};
use crate::message::{Listing, Request, Wish};
use crate::scene::Scene;

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
        self.probe(wish)
    }

    /// Changes the probes of the whole run, if nothing else is under way.
    pub(super) fn probe(&mut self, wish: Wish) -> Vec<Effect> {
        if self.travel.busy.is_some() {
            return self.say("a move is under way; Esc cancels it".to_owned());
        }
        self.travel.busy = Some("to the same position of the run with these probes".to_owned());
        self.travel.aim = None;
        vec![Effect::Ask(Request::Probe(wish))]
    }

    /// The run has other probes: its hits are listed anew.
    pub(super) fn probed(&mut self, more: Vec<Command>, scene: Box<Scene>) -> Vec<Effect> {
        self.run.hits = Hits::default();
        self.run.listed = 0;
        self.run.number += 1;
        self.cursor = None;
        let spots = self.travel.undo.iter_mut().chain(&mut self.travel.redo);
        spots.for_each(|spot| spot.hit = None);
        self.travel.queue.clear();
        // A text that was read once is read again.
        self.filter = self.filter.take().and_then(|filter| Filter::parse(filter.text()).ok().flatten());
        self.sort_again();
        self.travel.quiet = true;
        let listing = Listing { number: self.run.number, more, end: self.run.ended.clone() };
        let mut effects = vec![Effect::List(listing)];
        effects.extend(self.arrived(scene, None));
        effects
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
