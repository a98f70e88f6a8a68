//! `replay --at`: moves back and forth from there, with one command per line of standard input.

use trapline_session::{
    Arrival, Command, Found, Observer, Position, Reply, Session, SourceOptions, StopPoint, Timeline,
    TravelError, Watch, WatchKind, go_to_change, go_to_when, numbers,
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
        if let Some(replies) = travel(&mut self.timeline, &words)? {
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

/// What a command of travel has done.
enum Done {
    /// It went somewhere, or nowhere: the current place is shown.
    Moved,
    Shown(Vec<Reply>),
}

/// Carries out a command with the words after its own; returns nothing when these are not understood.
type Act = fn(&mut Timeline, &[&str]) -> Result<Option<Done>, Failure>;

/// The commands of travel: their words, how the words after these are written, and what they do. A line is the command
/// that most of its words name.
const COMMANDS: [(&str, &str, Act); 22] = [
    ("into hit", "", |timeline, words| alone(words, || within(timeline.into_hit()))),
    ("out", "", |timeline, words| alone(words, || within(timeline.out()))),
    ("step", "[N]", |timeline, words| times(words, |n| arrived(timeline.step(n)))),
    ("step op", "[N]", |timeline, words| times(words, |n| within(timeline.step_operation(n)))),
    ("back", "[N]", |timeline, words| times(words, |n| arrived(timeline.back(n)))),
    ("back op", "[N]", |timeline, words| times(words, |n| within(timeline.back_operation(n)))),
    ("back to caller", "", |timeline, words| {
        alone(words, || found(timeline.back_to_caller(), "the call is before this history"))
    }),
    ("goto", "POSITION", goto),
    ("next hit", "[of PROGRAM]", |timeline, words| {
        of_program(words, |program| found(timeline.next_hit(program), "no hit comes any more"))
    }),
    ("previous hit", "[of PROGRAM]", |timeline, words| {
        of_program(words, |program| found(timeline.previous_hit(program), "there was no hit before"))
    }),
    ("finish", "", |timeline, words| {
        alone(words, || found(timeline.finish(), "the function does not return any more"))
    }),
    ("continue to", STOP_POINTS, |timeline, words| {
        let Some(points) = stop_points(timeline.session(), words)? else { return Ok(None) };
        found(timeline.run_until(&points), "it is not met any more").map(Some)
    }),
    ("reverse to", STOP_POINTS, |timeline, words| {
        let Some(points) = stop_points(timeline.session(), words)? else { return Ok(None) };
        found(timeline.reverse_continue(&points), "it was not met before").map(Some)
    }),
    ("continue when", "CONDITION", |timeline, words| when(timeline, words, true)),
    ("reverse when", "CONDITION", |timeline, words| when(timeline, words, false)),
    ("back to change of", "REGISTER", |timeline, words| {
        let [register] = words else { return Ok(None) };
        let gone = go_to_change(timeline, register).map_err(|error| usage(error.to_string()))?;
        found(Ok(gone), "it has not changed before").map(Some)
    }),
    ("where", "", |_, words| alone(words, || Ok(Done::Moved))),
    ("history", "", |timeline, words| alone(words, || Ok(Done::Shown(vec![timeline.history_reply()])))),
    ("registers", "", |timeline, words| alone(words, || Ok(Done::Shown(vec![timeline.registers()])))),
    ("examine", "ADDRESS LENGTH", examine),
    ("print", "EXPRESSION", print),
    ("show handler", "", |timeline, words| {
        alone(words, || Ok(Done::Shown(vec![timeline.operation_reply(true).map_err(failure)?])))
    }),
];

/// The words after `continue to` and `reverse to`.
const STOP_POINTS: &str = "ADDRESS, or to write, to read or to access ADDRESS[:LENGTH]";

/// Carries out a line that moves or shows something; returns nothing for lines of scripts.
///
/// # Errors
/// The line is wrong, or it leads nowhere.
pub fn travel(timeline: &mut Timeline, words: &[&str]) -> Result<Option<Vec<Reply>>, Failure> {
    let named = COMMANDS.iter().filter_map(|(name, _, act)| Some((after(name, words)?, act)));
    let done = match named.min_by_key(|(rest, _)| rest.len()) {
        Some((rest, act)) => act(timeline, rest)?,
        None => None,
    };
    match done {
        Some(Done::Moved) => place_of(timeline).map(Some),
        Some(Done::Shown(replies)) => Ok(Some(replies)),
        None => match forms(words) {
            Some(forms) => Err(usage(format!("`{}` is not understood; write {forms}", words.join(" ")))),
            None => Ok(None),
        },
    }
}

/// How all commands are written.
pub fn all_forms() -> impl Iterator<Item = String> {
    COMMANDS.iter().map(|(name, rest, _)| format!("{name} {rest}").trim_end().to_owned())
}

/// The words after those of this command, if the line is this command.
fn after<'a, 'b>(name: &str, words: &'a [&'b str]) -> Option<&'a [&'b str]> {
    let (own, rest) = words.split_at_checked(name.split(' ').count())?;
    name.split(' ').eq(own.iter().copied()).then_some(rest)
}

/// How the commands that begin with the line's first word are written.
fn forms(words: &[&str]) -> Option<String> {
    let alike = COMMANDS.iter().filter(|(name, ..)| name.split(' ').next() == words.first().copied());
    let forms: Vec<String> =
        alike.map(|(name, rest, _)| format!("{name} {rest}").trim_end().to_owned()).collect();
    let (last, before) = forms.split_last()?;
    Some(if before.is_empty() { last.clone() } else { format!("{}, or {last}", before.join(", ")) })
}

/// A command without further words.
fn alone(words: &[&str], act: impl FnOnce() -> Result<Done, Failure>) -> Result<Option<Done>, Failure> {
    if words.is_empty() { act().map(Some) } else { Ok(None) }
}

/// `[N]`.
fn times(words: &[&str], act: impl FnOnce(u64) -> Result<Done, Failure>) -> Result<Option<Done>, Failure> {
    match words {
        [] => act(1).map(Some),
        [n] => act(number(n)?).map(Some),
        _ => Ok(None),
    }
}

/// `[of PROGRAM]`.
fn of_program(
    words: &[&str],
    act: impl FnOnce(Option<&str>) -> Result<Done, Failure>,
) -> Result<Option<Done>, Failure> {
    match words {
        [] => act(None).map(Some),
        ["of", name] => act(Some(name)).map(Some),
        _ => Ok(None),
    }
}

fn goto(timeline: &mut Timeline, words: &[&str]) -> Result<Option<Done>, Failure> {
    let [position] = words else { return Ok(None) };
    let position = position.parse::<Position>().map_err(|error| usage(error.to_string()))?;
    arrived(timeline.goto(position)).map(Some)
}

fn examine(timeline: &mut Timeline, words: &[&str]) -> Result<Option<Done>, Failure> {
    let [address, length] = words else { return Ok(None) };
    let address = place(timeline.session(), address)?;
    let length = numbers::within(length, 1, MOST_EXAMINED).map_err(|error| usage(error.to_string()))?;
    last_address(timeline.session(), address, length)?;
    Ok(Some(Done::Shown(vec![timeline.examine(address, length)])))
}

fn when(timeline: &mut Timeline, words: &[&str], forwards: bool) -> Result<Option<Done>, Failure> {
    if words.is_empty() {
        return Ok(None);
    }
    let gone = go_to_when(timeline, &words.join(" "), forwards).map_err(|error| usage(error.to_string()))?;
    let nothing = if forwards { "it does not become true any more" } else { "it has not become true before" };
    found(Ok(gone), nothing).map(Some)
}

fn print(timeline: &mut Timeline, words: &[&str]) -> Result<Option<Done>, Failure> {
    if words.is_empty() {
        return Ok(None);
    }
    let printed = timeline.print(&words.join(" ")).map_err(|error| usage(error.sentence()));
    printed.map(|reply| Some(Done::Shown(vec![reply])))
}

/// A move within the current hit.
fn within<T>(moved: Result<T, TravelError>) -> Result<Done, Failure> {
    moved.map(|_| Done::Moved).map_err(failure)
}

/// The current place: the operation within a hit, or the instruction.
fn place_of(timeline: &Timeline) -> Result<Vec<Reply>, Failure> {
    Ok(vec![match timeline.operation() {
        Some(_) => timeline.operation_reply(false).map_err(failure)?,
        None => timeline.place(),
    }])
}

/// A move that ends at the end of the history if not before. There, the output of the place says so.
fn arrived(arrival: Result<Arrival, TravelError>) -> Result<Done, Failure> {
    arrival.map(|_| Done::Moved).map_err(failure)
}

fn found(found: Result<Found, TravelError>, nothing: &str) -> Result<Done, Failure> {
    match found.map_err(failure)? {
        Found::Met(_) => Ok(Done::Moved),
        Found::Nothing => Err(usage(nothing.to_owned())),
    }
}

fn number(text: &str) -> Result<u64, Failure> {
    numbers::count(text).map_err(|error| usage(error.to_string()))
}

fn place(session: &Session, text: &str) -> Result<u64, Failure> {
    session.place(text).map_err(|error| usage(error.to_string()))
}

fn last_address(session: &Session, low: u64, length: u64) -> Result<u64, Failure> {
    session.last_address(low, length).map_err(|error| usage(error.to_string()))
}

/// What follows `to`: `PLACE`, or `write`, `read` or `access` and `PLACE[:LENGTH]`. Of code, all places with the name.
fn stop_points(session: &Session, words: &[&str]) -> Result<Option<Vec<StopPoint>>, Failure> {
    let (kind, range) = match words {
        [at] => {
            let places = session.places(at).map_err(|error| usage(error.to_string()))?;
            return Ok(Some(places.into_iter().map(Timeline::breakpoint).collect()));
        }
        ["write", range] => (Some(WatchKind::Write), *range),
        ["read", range] => (None, *range),
        ["access", range] => (Some(WatchKind::ReadWrite), *range),
        _ => return Ok(None),
    };
    let (at, length) = range.split_once(':').unwrap_or((range, "1"));
    let low = place(session, at)?;
    let length = numbers::within(length, 1, MOST_EXAMINED).map_err(|error| usage(error.to_string()))?;
    let high = last_address(session, low, length)?;
    let point = match kind {
        Some(kind) => StopPoint::Watch(Watch { kind, low, high }),
        None => StopPoint::Read { low, high },
    };
    Ok(Some(vec![point]))
}
