//! The search: narrows the stage that differs down to an instruction.

use trapline_emu::Moment;

use super::differences::{self, spot};
use super::pair::{Marks, Pair, Wanted};
use super::plan::{self, Inputs};
use super::suspects::Suspects;
use super::{Both, Cause, CompareError, ComparedRun, Comparison, End, Point, Start};
use crate::timeline::TravelError;

/// Most instructions between two comparisons while nothing differs.
const STAGE: u64 = 1 << 25;
/// The number of parts into which a stage that differs is divided.
const PARTS: u64 = 32;
/// The distance at which new marks are made.
const APART: u64 = 1 << 16;

/// Compares two runs, each from its beginning.
///
/// # Errors
/// A guest cannot be loaded, or a run is not the one that was recorded.
pub fn compare(a: &ComparedRun<'_>, b: &ComparedRun<'_>) -> Result<Comparison, CompareError> {
    let inputs = [&Inputs::of(a), &Inputs::of(b)];
    let [of_a, of_b] = inputs;
    let (checkpoints, same) = plan::checkpoints(a, b);
    let first = plan::first_difference(of_a, of_b);
    let mut found = Comparison {
        same: plan::common_end(of_a, of_b).icount,
        checkpoints,
        start: None,
        inputs: first.clone().map(|(_, inputs)| inputs),
        devices: None,
        point: None,
        ends: None,
        unexplained: None,
        ran: false,
    };
    let mut pair = Pair::start([a, b], inputs)?;
    let alike = is_alike(&pair, a, b);
    let lines = of_a.is_a_line() && of_b.is_a_line();
    if alike && first.is_none() && !a.changed && !b.changed && lines {
        found.ends = plan::ends(a, b);
        found.unexplained = found.checkpoints.different.map(|_| unexplained(a, b));
        if found.unexplained.is_some() {
            found.same = same.map_or(0, |same| same.icount);
        }
        return Ok(found);
    }
    found.ran = true;
    let fork = first.map(|(at, _)| at.icount).filter(|at| *at > 0);
    if let Some(fork) = fork.filter(|_| alike && inputs.iter().all(|inputs| inputs.has_no_programs())) {
        pair.begin_alike(fork)?;
    }
    let suspects = Suspects::default();
    let mut search = Search { pair, inputs, suspects, found };
    search.run(same.map(|same| same.icount), plan::common_end(of_a, of_b))?;
    let mut found = search.found;
    let at = found.devices.as_ref().or(found.point.as_ref()).map(|point| point.icount);
    // Later inputs differ because the runs differ.
    let later =
        |input: &Option<super::Input>| input.as_ref().is_some_and(|i| at.is_some_and(|at| i.icount > at));
    found.inputs = found.inputs.filter(|inputs| !(later(&inputs.a) || later(&inputs.b)));
    Ok(found)
}

/// Whether both guests are the same, so that the runs differ only by their inputs.
fn is_alike(pair: &Pair, a: &ComparedRun<'_>, b: &ComparedRun<'_>) -> bool {
    let disk = |run: &ComparedRun<'_>| run.recording.config().disk.as_ref().map(|disk| disk.hash);
    pair.a.session().is_of_machine_of(pair.b.session()) && disk(a) == disk(b)
}

fn unexplained(a: &ComparedRun<'_>, b: &ComparedRun<'_>) -> String {
    let made_by = |run: &ComparedRun<'_>| run.recording.config().made_by.clone();
    format!(
        "a checkpoint differs although the guests are the same and the same came in: the first recording was made by \
         Trapline {}, the second by {}; `replay --verify` shows which of them this build reproduces",
        made_by(a),
        made_by(b)
    )
}

/// A search that is under way.
struct Search<'a> {
    pair: Pair,
    inputs: [&'a Inputs<'a>; 2],
    suspects: Suspects,
    found: Comparison,
}

impl Search<'_> {
    fn run(&mut self, same: Option<u64>, end: Moment) -> Result<(), TravelError> {
        self.begin()?;
        self.suspects = Suspects::of(&self.pair, self.inputs, self.found.inputs.as_ref());
        let mut marks = self.pair.marks();
        // A temporary difference between two checkpoints must not be skipped.
        let skips = self.suspects.points().is_none();
        if let Some(same) = same.filter(|same| skips && *same > marks.icount) {
            let reached = self.pair.run_to(same, &marks)?;
            marks = self.look(marks, reached)?;
        }
        let (mut at, mut stage) = (marks.icount, 1);
        while self.found.point.is_none() && at < end.icount {
            let input = self.inputs.iter().filter_map(|inputs| inputs.next_after(at)).min();
            let to = at.saturating_add(stage).min(end.icount).min(input.unwrap_or(u64::MAX));
            stage = if input == Some(to) { 1 } else { (stage * 2).min(STAGE) };
            let aim = self.suspect(to, at, &marks)?.unwrap_or(to);
            let reached = self.pair.run_to(aim, &marks)?;
            if reached < aim {
                self.look(marks, reached)?;
                if self.found.point.is_none() {
                    self.found.ends = Some(self.ends());
                    self.found.same = reached;
                }
                return Ok(());
            }
            let known = self.found.devices.is_some();
            marks = self.look(marks, reached)?;
            let found = self.found.devices.is_some() != known;
            at = if found { marks.icount } else { reached };
            stage = if found { 1 } else { stage };
        }
        if self.found.point.is_none() {
            self.compare_ends(&marks, end)?;
        }
        let first = self.found.devices.as_ref().or(self.found.point.as_ref());
        self.found.same = first.map_or(self.found.same, |point| point.icount);
        Ok(())
    }

    /// Compares the beginnings.
    fn begin(&mut self) -> Result<(), TravelError> {
        let differing = self.pair.compare();
        if differing.memory {
            let (bytes, memory) = differences::memory(&self.pair);
            self.found.start = Some(Start { bytes, memory });
            self.pair.begins_with_these();
        }
        let at = self.spots();
        if differing.registers {
            self.found.point = Some(self.point(Cause::Start, at));
        } else if differing.devices {
            self.found.devices = Some(self.point(Cause::Start, at));
        }
        Ok(())
    }

    /// Runs both from their position `at` to a point before `to` that may make a difference; if there is one, goes back
    /// to the marks.
    fn suspect(&mut self, to: u64, at: u64, marks: &Marks) -> Result<Option<u64>, TravelError> {
        let Some(points) = self.suspects.points() else { return Ok(None) };
        let met = self.pair.run_to_suspect(to, points)?;
        if met.is_some() {
            self.suspects.met();
            self.pair.go_back(marks)?;
        }
        Ok(met.map(|met| met.max(at + 1)))
    }

    fn wanted(&self) -> Wanted {
        if self.found.devices.is_some() { Wanted::InGuest } else { Wanted::Any }
    }

    /// Compares the states that both have reached. If they differ, finds where the difference began. Returns the marks
    /// from which to continue.
    fn look(&mut self, from: Marks, reached: u64) -> Result<Marks, TravelError> {
        let wanted = self.wanted();
        if !wanted.is_in(self.pair.compare()) {
            let near = reached - from.icount < APART && reached > from.icount;
            return Ok(if near { from } else { self.pair.marks() });
        }
        let marks = self.narrow(from, reached, wanted)?;
        let (point, in_guest) = self.pinpoint(&marks, wanted)?;
        if in_guest {
            self.found.point = Some(point);
        } else {
            self.found.devices = Some(point);
            self.pair.go_back(&marks)?;
        }
        Ok(marks)
    }

    /// The last instruction count, not before `from`, at which they do not differ but at the next one they do; they
    /// differ at `to`.
    fn narrow(&mut self, mut from: Marks, mut to: u64, wanted: Wanted) -> Result<Marks, TravelError> {
        while to - from.icount > 1 {
            let step = ((to - from.icount) / PARTS).max(1);
            self.pair.go_back(&from)?;
            while from.icount < to {
                let next = (from.icount + step).min(to);
                self.pair.run_to(next, &from)?;
                if next == to || wanted.is_in(self.pair.compare()) {
                    to = next;
                    break;
                }
                from = self.pair.marks();
            }
        }
        Ok(from)
    }

    /// The event between these marks and the next instruction count that causes the difference; and whether registers
    /// or memory differ.
    fn pinpoint(&mut self, from: &Marks, wanted: Wanted) -> Result<(Point, bool), TravelError> {
        self.pair.go_back(from)?;
        loop {
            let at = self.spots();
            self.pair.a.take_due()?;
            self.pair.b.take_due()?;
            let found = self.pair.compare();
            if wanted.is_in(found) {
                return Ok((self.point(Cause::Input, at), found.in_guest()));
            }
            let before = self.pair.a.session().moment();
            self.pair.next_moment()?;
            let found = self.pair.compare();
            let retired = [&self.pair.a, &self.pair.b].map(|side| side.session().icount() > from.icount);
            let stuck = self.pair.a.session().moment() == before;
            if wanted.is_in(found) || retired == [true, true] || stuck {
                let cause = if retired == [true, true] { Cause::Instruction } else { Cause::Delivery };
                return Ok((self.point(cause, at), found.in_guest()));
            }
        }
    }

    fn spots(&self) -> Both<super::Spot> {
        Both { a: spot(self.pair.a.session()), b: spot(self.pair.b.session()) }
    }

    /// The differences at this point.
    fn point(&self, cause: Cause, at: Both<super::Spot>) -> Point {
        let sessions = Both { a: self.pair.a.session(), b: self.pair.b.session() };
        let icount = sessions.a.icount().min(sessions.b.icount());
        let retired = u64::from(cause == Cause::Instruction);
        let (bytes, memory) = differences::memory(&self.pair);
        let (fields, devices) = differences::devices(&sessions);
        let [of_a, of_b] = self.inputs;
        let now = |session: &crate::session::Session| Moment {
            icount: session.icount() - retired.min(session.icount()),
            virtual_ns: u64::MAX,
            delivered: u32::MAX,
        };
        Point {
            icount: icount - retired.min(icount),
            cause,
            at,
            registers: differences::registers(&sessions),
            bytes,
            memory,
            fields,
            devices,
            inputs: Both { a: of_a.last_at(now(sessions.a)), b: of_b.last_at(now(sessions.b)) },
            stacks: sessions.each(|session| session.stack(differences::FRAMES)),
        }
    }

    fn ends(&self) -> Both<End> {
        let end = |timeline: &crate::timeline::Timeline| End {
            icount: timeline.history().end.unwrap_or_else(|| timeline.session().icount()),
            ending: timeline.ending().cloned(),
        };
        Both { a: end(&self.pair.a), b: end(&self.pair.b) }
    }

    /// Compares the ends, if nothing differs up to the last instruction of both.
    fn compare_ends(&mut self, marks: &Marks, end: Moment) -> Result<(), TravelError> {
        let ends = self.ends();
        if ends.a.icount != ends.b.icount {
            self.found.ends = Some(ends);
            return Ok(());
        }
        self.pair.go_back(marks)?;
        self.pair.run_to(end.icount, marks)?;
        let last = self.pair.marks();
        self.pair.run_to_ends()?;
        let wanted = self.wanted();
        if wanted.is_in(self.pair.compare()) {
            let (point, in_guest) = self.pinpoint(&last, wanted)?;
            let place = if in_guest { &mut self.found.point } else { &mut self.found.devices };
            *place = Some(point);
        }
        Ok(())
    }
}
