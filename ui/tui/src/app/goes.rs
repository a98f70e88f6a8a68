//! Moves: the current one, the waiting ones, and those that can be undone.

use super::{App, Effect};
use crate::hits::free_later;
use crate::message::{Move, Request};
use crate::scene::Scene;
use trapline_session::Position;

/// Most moves that wait: more would only delay the user.
const MOST_WAITING: usize = 16;
/// Most moves that can be undone.
const MOST_UNDONE: usize = 1000;

impl App {
    /// Makes a move, now or when the current move is done.
    pub(super) fn go(&mut self, to: Move, aim: Option<usize>, words: String) -> Vec<Effect> {
        self.message = None;
        (self.travel.waits_for_end, self.travel.waits_for_hit) = (false, None);
        if self.travel.busy.is_some() {
            if self.travel.queue.len() < MOST_WAITING {
                self.travel.queue.push_back((to, aim, words));
            }
            return Vec::new();
        }
        self.travel.busy = Some(words);
        self.travel.aim = aim;
        vec![Effect::Ask(Request::Move(to))]
    }

    /// Goes to where the screen opens.
    pub fn open_at(&mut self, at: Position) -> Vec<Effect> {
        self.go(Move::To(at), None, format!("to {at}"))
    }

    /// Goes to a hit of the list.
    pub(super) fn go_to_hit(&mut self, number: usize) -> Vec<Effect> {
        let Some(hit) = self.run.hits.get(number) else {
            return self.say(format!("hit {} is not listed; {} are", number + 1, self.run.hits.len()));
        };
        self.go(Move::Hit(hit), Some(number), format!("to hit {}", number + 1))
    }

    /// The hit to which the last of the current and waiting moves leads; without moves, the current hit.
    fn coming(&self) -> (Option<usize>, u64) {
        let waiting = self.travel.queue.back().map(|(_, aim, _)| *aim);
        let aim = waiting.unwrap_or(if self.travel.busy.is_some() { self.travel.aim } else { None });
        let cursor = aim.or(self.cursor);
        (cursor, cursor.and_then(|n| self.run.hits.get(n)).map_or(self.at(), |hit| hit.at))
    }

    /// Goes to the next or the previous of the shown hits.
    pub(super) fn neighbour(&mut self, forwards: bool) -> Vec<Effect> {
        let (cursor, at) = self.coming();
        let nth = match (cursor, forwards) {
            (Some(hit), true) => {
                Some(self.shown_before(hit) + usize::from(self.filter.is_none() || self.is_shown(hit)))
            }
            (Some(hit), false) => self.shown_before(hit).checked_sub(1),
            (None, true) => Some(self.shown_before(self.run.hits.first_from(at))),
            (None, false) => self.shown_before(self.run.hits.first_from(at)).checked_sub(1),
        };
        match nth.and_then(|nth| self.shown_hit(nth)) {
            Some(hit) => self.go_to_hit(hit),
            None => self.no_hit(forwards, false),
        }
    }

    fn is_shown(&self, hit: usize) -> bool {
        self.shown_hit(self.shown_before(hit)) == Some(hit)
    }

    /// No hit is listed in this direction. A later one is waited for while the run is listed.
    fn no_hit(&mut self, forwards: bool, of_probe: bool) -> Vec<Effect> {
        let waits = forwards && self.run.ended.is_none();
        self.travel.waits_for_hit = waits.then_some(of_probe);
        if waits {
            return self.say(format!(
                "waiting for the next hit; the run is at {}, Esc stops waiting",
                self.run.listed
            ));
        }
        self.play.on = false;
        self.say(if forwards { "no hit comes any more" } else { "there was no hit before" }.to_owned())
    }

    /// Goes to the hit that is waited for, if it is listed by now, or says that there is none.
    pub(super) fn go_to_awaited(&mut self) -> Vec<Effect> {
        match self.travel.waits_for_hit {
            Some(true) => self.neighbour_of_probe(true),
            Some(false) => self.neighbour(true),
            None => Vec::new(),
        }
    }

    /// Goes to the next or the previous hit of the current hit's probe.
    pub(super) fn neighbour_of_probe(&mut self, forwards: bool) -> Vec<Effect> {
        let (cursor, _) = self.coming();
        let Some((number, hit)) = cursor.and_then(|n| Some((n, self.run.hits.get(n)?))) else {
            return self.say("this position is not a hit; go to one first".to_owned());
        };
        let found = match forwards {
            true => self.run.hits.next_of(hit.probe, number + 1),
            false => self.run.hits.previous_of(hit.probe, number),
        };
        match found {
            Some(hit) => self.go_to_hit(hit),
            None => self.no_hit(forwards, true),
        }
    }

    /// Moves along the operations of the hit at the target: this hit stays the current one.
    pub(super) fn go_within(&mut self, to: Move, words: &str) -> Vec<Effect> {
        let (cursor, _) = self.coming();
        self.go(to, cursor, words.to_owned())
    }

    /// Undoes the last move, or repeats an undone one.
    pub(super) fn retrace(&mut self, back: bool) -> Vec<Effect> {
        if self.travel.busy.is_some() {
            return Vec::new();
        }
        let spot = if back { self.travel.undo.pop() } else { self.travel.redo.pop() };
        let Some(spot) = spot else {
            return self
                .say(if back { "there is no move to undo" } else { "there is no undone move" }.to_owned());
        };
        let here = self.spot();
        let others = if back { &mut self.travel.redo } else { &mut self.travel.undo };
        others.extend(here);
        self.travel.quiet = true;
        match (spot.hit, spot.executed) {
            (hit, Some(executed)) => {
                let listed = hit.and_then(|number| self.run.hits.get(number));
                let to = Move::Within { hit: listed, at: spot.at, executed };
                self.go(to, hit, format!("to {}.{executed}", spot.at))
            }
            (Some(hit), None) => self.go_to_hit(hit),
            (None, None) => {
                let to = Move::To(Position::At { icount: spot.at, ordinal: 0 });
                self.go(to, None, format!("to {}", spot.at))
            }
        }
    }

    /// A move is done: shows its target.
    pub(super) fn arrived(&mut self, scene: Box<Scene>, how: Option<String>) -> Vec<Effect> {
        let quiet = std::mem::take(&mut self.travel.quiet);
        let spot = self.spot();
        if let Some(old) = self.scene.take() {
            let executed = |scene: &Scene| scene.handler.as_ref().map(|handler| handler.executed);
            let same = (old.at, old.ip, executed(&old)) == (scene.at, scene.ip, executed(&scene));
            if !quiet && !same {
                self.travel.undo.extend(spot);
                self.travel.redo.clear();
                if self.travel.undo.len() > MOST_UNDONE {
                    self.travel.undo.remove(0);
                }
            }
            let mut old = old;
            self.before = std::mem::take(&mut old.registers);
            self.memory_before = Some((old.memory_at, std::mem::take(&mut old.memory)));
            self.typed_before = old.typed.take();
            free_later(old);
        }
        self.travel.busy = None;
        // A move that was cancelled has not reached its hit.
        let reached = |number: &usize| self.run.hits.get(*number).is_some_and(|hit| hit.at == scene.at);
        let aim = self.travel.aim.take().filter(reached);
        self.cursor = aim.or_else(|| self.hit_at(&scene));
        let row = self.cursor.unwrap_or_else(|| self.run.hits.first_from(scene.at));
        self.selected.row = self.row_of(row).min(self.rows().saturating_sub(1));
        (self.selected.line, self.selected.frame) = (None, 0);
        self.scene = Some(scene);
        if how.is_some() {
            self.message = how;
            self.play.on = false;
            self.travel.queue.clear();
        }
        self.next_waiting()
    }

    /// Makes the next of the waiting moves.
    pub(super) fn next_waiting(&mut self) -> Vec<Effect> {
        match self.travel.queue.pop_front() {
            Some((to, aim, words)) => self.go(to, aim, words),
            None => Vec::new(),
        }
    }

    /// The hit at a position whose instruction is next.
    pub(super) fn hit_at(&self, scene: &Scene) -> Option<usize> {
        let from = self.run.hits.first_from(scene.at);
        let same = |n: &usize| self.run.hits.get(*n).is_some_and(|hit| hit.at == scene.at);
        (from..).take_while(same).find(|n| self.run.hits.get(*n).is_some_and(|hit| hit.ip == scene.ip))
    }

    /// Shows a message.
    pub(super) fn say(&mut self, sentence: String) -> Vec<Effect> {
        self.message = Some(sentence);
        Vec::new()
    }
}
