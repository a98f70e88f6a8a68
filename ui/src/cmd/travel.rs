//! `replay --at`: moves back and forth from there, with one command per line of standard input.

use trapline_session::{
    Arrival, Command, Found, Observer, Position, Reply, Session, SourceOptions, StopPoint, Timeline,
    TravelError, Watch, WatchKind, numbers,
};

use super::position::{STDIN, Shell};
use crate::failure::Failure;
use crate::output::Outputs;

/// Most bytes that `examine` shows.
const MOST_EXAMINED: u64 = 4096;

/// A shell that travels.
pub struct Travel<'a> {
    pub timeline: Timeline,
    pub source: &'a SourceOptions,
}

impl Shell for Travel<'_> {
    fn act(&mut self, number: u32, line: &str, outputs: &mut Outputs<'_>) -> Result<bool, Failure> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(replies) = self.travel(&words)? {
            replies.iter().try_for_each(|reply| outputs.reply(reply))?;
            return Ok(true);
        }
        let Some(command) = Command::parse(STDIN, number, line, self.source)? else {
            return Ok(true);
        };
        let stops = command.stops();
        let applied = self.timeline.apply(command).map_err(failure)?;
        outputs.reply(&applied.reply)?;
        if applied.cut {
            outputs.say("what came later in the recording is gone: from here on this is another run");
        }
        Ok(!stops)
    }
}

/// The failure of a journey.
pub fn failure(error: TravelError) -> Failure {
    match error {
        TravelError::Command(error) => error.into(),
        TravelError::Diverged { .. } => Failure::Diverged(error.to_string()),
        error => Failure::Usage(error.to_string()),
    }
}

fn usage(text: String) -> Failure {
    Failure::Usage(text)
}

/// How the commands are written.
const FORMS: [&str; 13] = [
    "step [N], or step op [N]",
    "back [N], back op [N], or back to caller",
    "goto POSITION",
    "next hit [of PROGRAM]",
    "previous hit [of PROGRAM]",
    "finish",
    "continue to ADDRESS, to write ADDRESS[:LENGTH], or to access ADDRESS[:LENGTH]",
    "reverse to ADDRESS, to write ADDRESS[:LENGTH], or to access ADDRESS[:LENGTH]",
    "where",
    "history",
    "registers",
    "examine ADDRESS LENGTH",
    "show handler",
];

impl Travel<'_> {
    /// Carries out a line that moves or shows something; returns nothing for lines of scripts.
    fn travel(&mut self, words: &[&str]) -> Result<Option<Vec<Reply>>, Failure> {
        let timeline = &mut self.timeline;
        if let Some(replies) = within_hit(timeline, words)? {
            return Ok(Some(replies));
        }
        match words {
            ["step"] => arrived(timeline.step(1)),
            ["step", n] => arrived(timeline.step(number(n)?)),
            ["back"] => arrived(timeline.back(1)),
            ["back", n] => arrived(timeline.back(number(n)?)),
            ["goto", position] => {
                let position = position.parse::<Position>().map_err(|error| usage(error.to_string()))?;
                arrived(timeline.goto(position))
            }
            ["next", "hit", of @ ..] => found(timeline.next_hit(program(of)?), "no hit comes any more"),
            ["previous", "hit", of @ ..] => {
                found(timeline.previous_hit(program(of)?), "there was no hit before")
            }
            ["finish"] => found(timeline.finish(), "the function does not return any more"),
            ["back", "to", "caller"] => found(timeline.back_to_caller(), "the call is before this history"),
            ["continue", "to", what @ ..] => {
                let point = stop_point(timeline.session(), what)?;
                found(timeline.run_until(&[point]), "it is not met any more")
            }
            ["reverse", "to", what @ ..] => {
                let point = stop_point(timeline.session(), what)?;
                found(timeline.reverse_continue(&[point]), "it was not met before")
            }
            ["where"] => Ok(()),
            ["history"] => return Ok(Some(vec![timeline.history_reply()])),
            ["registers"] => return Ok(Some(vec![timeline.registers()])),
            ["examine", address, length] => {
                let address = place(timeline.session(), address)?;
                let length =
                    numbers::within(length, 1, MOST_EXAMINED).map_err(|error| usage(error.to_string()))?;
                return Ok(Some(vec![timeline.examine(address, length)]));
            }
            [word, ..] => match FORMS.iter().find(|form| form.split(' ').next() == Some(*word)) {
                Some(form) => {
                    return Err(usage(format!("`{}` is not understood; write {form}", words.join(" "))));
                }
                None => return Ok(None),
            },
            [] => return Ok(None),
        }?;
        place_of(&self.timeline).map(Some)
    }
}

/// Carries out a line about the operations of the current hit; returns nothing for other lines.
fn within_hit(timeline: &mut Timeline, words: &[&str]) -> Result<Option<Vec<Reply>>, Failure> {
    let moved = match words {
        ["into", "hit"] => timeline.into_hit(),
        ["step", "op"] => timeline.step_operation(1),
        ["step", "op", n] => timeline.step_operation(number(n)?),
        ["back", "op"] => timeline.back_operation(1),
        ["back", "op", n] => timeline.back_operation(number(n)?),
        ["out"] => timeline.out(),
        ["show", "handler"] => {
            return Ok(Some(vec![timeline.operation_reply(true).map_err(failure)?]));
        }
        _ => return Ok(None),
    };
    moved.map_err(failure)?;
    place_of(timeline).map(Some)
}

/// The current place: the operation within a hit, or the instruction.
fn place_of(timeline: &Timeline) -> Result<Vec<Reply>, Failure> {
    Ok(vec![match timeline.operation() {
        Some(_) => timeline.operation_reply(false).map_err(failure)?,
        None => timeline.place(),
    }])
}

fn arrived(arrival: Result<Arrival, TravelError>) -> Result<(), Failure> {
    // At the end, the output of the place contains this.
    arrival.map(|_| ()).map_err(failure)
}

fn found(found: Result<Found, TravelError>, nothing: &str) -> Result<(), Failure> {
    match found.map_err(failure)? {
        Found::Met(_) => Ok(()),
        Found::Nothing => Err(usage(nothing.to_owned())),
    }
}

fn number(text: &str) -> Result<u64, Failure> {
    numbers::count(text).map_err(|error| usage(error.to_string()))
}

/// `of PROBE`, or nothing.
fn program<'a>(words: &[&'a str]) -> Result<Option<&'a str>, Failure> {
    match words {
        [] => Ok(None),
        ["of", name] => Ok(Some(name)),
        _ => Err(usage("write `next hit`, `previous hit`, or the same with `of PROBE`".to_owned())),
    }
}

fn place(session: &Session, text: &str) -> Result<u64, Failure> {
    session.place(text).map_err(|error| usage(error.to_string()))
}

/// `PLACE`, `write PLACE[:LENGTH]` or `access PLACE[:LENGTH]`.
fn stop_point(session: &Session, words: &[&str]) -> Result<StopPoint, Failure> {
    let (kind, range) = match words {
        [at] => return Ok(Timeline::breakpoint(place(session, at)?)),
        ["write", range] => (WatchKind::Write, *range),
        ["access", range] => (WatchKind::ReadWrite, *range),
        _ => {
            let text = "write `to ADDRESS`, `to write ADDRESS[:LENGTH]` or `to access ADDRESS[:LENGTH]`";
            return Err(usage(text.to_owned()));
        }
    };
    let (at, length) = range.split_once(':').unwrap_or((range, "1"));
    let low = place(session, at)?;
    let length = numbers::within(length, 1, MOST_EXAMINED).map_err(|error| usage(error.to_string()))?;
    Ok(StopPoint::Watch(Watch { kind, low, high: low.saturating_add(length - 1) }))
}
