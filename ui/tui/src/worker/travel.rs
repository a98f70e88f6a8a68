//! Moves within the run, and reads scenes. A move that finds nothing, or is cancelled, gives a sentence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use iced_x86::FlowControl;
use trapline_session::{
    Arrival, Ending, Found, Position, QuestionError, StopPoint, Timeline, TravelError, Watch, WatchKind,
    go_to_change, go_to_when,
};

use super::find::find;
use super::look::Looker;
use super::next;
use super::probing::{Prober, complete};
use super::source::{Sources, Substitutions};
use crate::hits::Hit;
use crate::message::{Input, Move, Request, Wish};
use crate::scene::Spot;

/// Most returns of other calls before a step over a call gives up.
const MOST_RETURNS: usize = 10_000;

/// Answers requests until the user interface ends; returns the timeline at its last position.
pub fn run(
    mut timeline: Timeline,
    (mut prober, sources): (Prober, Substitutions),
    asked: &Receiver<Request>,
    cancel: &AtomicBool,
    told: &Sender<Input>,
) -> Timeline {
    let mut looker = Looker::new(Sources::new(sources));
    let scene = Box::new(looker.look(&mut timeline));
    let mut answered = told.send(Input::Arrived(scene, None));
    while let (Ok(()), Some(request)) = (&answered, next(asked)) {
        answered = match request {
            Request::Move(to) => {
                let how = match go(&mut timeline, &to) {
                    Ok(how) => how,
                    Err(error) => Some(sentence(&error)),
                };
                cancel.store(false, Ordering::Relaxed);
                looker.code_at = None;
                told.send(Input::Arrived(Box::new(looker.look(&mut timeline)), how))
            }
            Request::Find(wanted, from) => {
                let found = find(&timeline, &wanted, from, cancel);
                cancel.store(false, Ordering::Relaxed);
                let found = found.map(|at| looker.show_bytes(Spot::at(at))).err();
                told.send(Input::Found(Box::new(looker.look(&mut timeline)), found))
            }
            Request::Memory(_)
            | Request::ScrollMemory(_)
            | Request::Expression(_)
            | Request::Follow(_)
            | Request::Unfold(_)
            | Request::MemoryBack => {
                let failed = show(&mut looker, &timeline, request).err();
                let scene = Box::new(looker.look(&mut timeline));
                told.send(Input::Shown(scene, failed))
            }
            Request::Code(at) => {
                looker.code_at = at;
                told.send(Input::Shown(Box::new(looker.look(&mut timeline)), None))
            }
            Request::Channels(wanted) => {
                looker.channels = wanted;
                // What is not wanted any more needs no scene.
                if wanted {
                    told.send(Input::Shown(Box::new(looker.look(&mut timeline)), None))
                } else {
                    Ok(())
                }
            }
            Request::Ended(at, ending) => {
                // Without the program that has stopped it, the run goes on.
                if !matches!(ending, Ending::HandlerStopped(_)) {
                    prober.end = Some((at, ending.clone()));
                }
                timeline.ends_at(at, Some(ending));
                Ok(())
            }
            Request::Change(wish) => {
                let failed = change(&mut timeline, &mut prober, wish, told).err();
                cancel.store(false, Ordering::Relaxed);
                looker.code_at = None;
                told.send(Input::Arrived(Box::new(looker.look(&mut timeline)), failed))
            }
            Request::Complete(text) => {
                let names = complete(&mut timeline, &text);
                told.send(Input::Completed(text, names))
            }
        };
    }
    timeline
}

/// An error with the names that actions have here: those of questions have a space.
fn sentence(error: &TravelError) -> String {
    error.to_string().replace("`next hit`", "`next-hit`").replace("`into hit`", "`into-hit`")
}

/// Shows other memory.
///
/// # Errors
/// A sentence that says why not.
fn show(looker: &mut Looker, timeline: &Timeline, request: Request) -> Result<(), String> {
    match request {
        Request::Memory(at) => looker.show_bytes(at),
        Request::ScrollMemory(at) => looker.scroll_to(at),
        Request::Expression(text) => looker.show_expression(timeline, text)?,
        Request::Follow(seen) => looker.show_value(seen),
        Request::Unfold(path) => looker.unfold(path),
        Request::MemoryBack => looker.back(),
        _ => {}
    }
    Ok(())
}

/// Types here, or replaces the timeline by that of the same run with other probes, at the same position. The order to list its hits
/// comes first: the states on the way there are laid by what lists them.
///
/// # Errors
/// A sentence that says why not. The timeline is as it was.
fn change(
    timeline: &mut Timeline,
    prober: &mut Prober,
    wish: Wish,
    told: &Sender<Input>,
) -> Result<(), String> {
    let order = |prober: &mut Prober, timeline: &mut Timeline| {
        let listing = prober.listing(timeline);
        let layer = listing.layer.clone();
        // Who has ended needs no news.
        let _ = told.send(Input::Changed(Box::new(listing)));
        layer
    };
    if let Wish::Type(bytes) = wish {
        prober.type_here(timeline, bytes)?;
        order(prober, timeline);
        return Ok(());
    }
    let (mut other, commands) = prober.probe(&wish, timeline)?;
    let (at, ip) = (timeline.session().icount(), timeline.session().core().linear_ip());
    let before = std::mem::replace(&mut prober.more.commands, commands);
    let layer = order(prober, &mut other);
    let followed =
        prober.wait_for(&layer, at).and_then(|()| to_hit(&mut other, Hit { at, ip, probe: 0, pid: 0 }));
    match followed {
        Ok(_) => *timeline = other,
        Err(error) => {
            prober.more.commands = before;
            order(prober, timeline);
            return Err(error.to_string());
        }
    }
    Ok(())
}

type Went = Result<Option<String>, TravelError>;

/// Makes a move; returns a sentence if it did not simply reach its target.
fn go(timeline: &mut Timeline, to: &Move) -> Went {
    match to {
        Move::To(position) => arrived(timeline.goto(*position)?),
        Move::Hit(hit) => to_hit(timeline, *hit),
        Move::Step(n) => arrived(timeline.step(*n)?),
        Move::Back(n) => arrived(timeline.back(*n)?),
        Move::IntoHit => timeline.into_hit().map(|()| None),
        Move::Operations(n) => timeline.step_operation(*n).map(|()| None),
        Move::OperationsBack(n) => timeline.back_operation(*n).map(|()| None),
        Move::Out => timeline.out().map(|()| None),
        Move::Within { hit, at, executed } => within(timeline, *hit, *at, *executed),
        Move::Over => over(timeline),
        Move::BackOver => back_over(timeline),
        Move::Finish => found(timeline.finish()?, "the function does not return any more"),
        Move::Caller => found(timeline.back_to_caller()?, "the call is before this history"),
        Move::Until(points) => match points_with_debugger(timeline, points) {
            Err(nothing) => Ok(Some(nothing)),
            Ok(points) => found(timeline.run_until(&points)?, "no breakpoint or watchpoint is met any more"),
        },
        Move::BackTo(points) => match points_with_debugger(timeline, points) {
            Err(nothing) => Ok(Some(nothing)),
            Ok(points) => {
                found(timeline.reverse_continue(&points)?, "no breakpoint or watchpoint was met before")
            }
        },
        Move::When(text, true) => asked(go_to_when(timeline, text, true), "it does not become true any more"),
        Move::When(text, false) => asked(go_to_when(timeline, text, false), "it has not become true before"),
        Move::Change(register) => asked(go_to_change(timeline, register), "it has not changed before"),
        Move::Writer(low, high) => to_writer(timeline, *low, *high),
    }
}

/// These stop points, and that of handlers that ask for a debugger.
fn points_with_debugger(timeline: &Timeline, points: &[StopPoint]) -> Result<Vec<StopPoint>, String> {
    let all: Vec<StopPoint> = points.iter().cloned().chain(timeline.session().debugger_point()).collect();
    let nothing = "there is no breakpoint or watchpoint; `b` and `W` set one";
    if all.is_empty() { Err(nothing.to_owned()) } else { Ok(all) }
}

fn arrived(arrival: Arrival) -> Went {
    Ok(match arrival {
        Arrival::There => None,
        Arrival::End(Some(ending)) => Some(format!("the end of the run: {ending}")),
        Arrival::End(None) => Some("the end of the run".to_owned()),
    })
}

fn found(found: Found, nothing: &str) -> Went {
    Ok(match found {
        Found::Met(_) => None,
        Found::Nothing => Some(nothing.to_owned()),
    })
}

/// A question has no sentence of several lines here.
fn asked(gone: Result<Found, QuestionError>, nothing: &str) -> Went {
    match gone {
        Ok(gone) => found(gone, nothing),
        Err(QuestionError::Travel(error)) => Err(error),
        Err(QuestionError::Condition(error)) => Ok(Some(format!("{}; {}", error.message, error.help))),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// What may have written to memory beside instructions that use its address.
const OTHERWISE: &str = "a device, a handler or an instruction that uses another address of the same memory";

/// Most bytes that are compared.
const COMPARED: u64 = 4096;

/// Goes back to what wrote to a range of memory, by this address. What else has changed it cannot be reached.
fn to_writer(timeline: &mut Timeline, low: u64, high: u64) -> Went {
    let held = |timeline: &Timeline| {
        let mut bytes = vec![0; (high - low).saturating_add(1).min(COMPARED) as usize];
        let read = timeline.peek(low, &mut bytes);
        bytes.truncate(read);
        bytes
    };
    let before = held(timeline);
    let point = StopPoint::Watch(Watch { kind: WatchKind::Write, low, high });
    Ok(match timeline.reverse_continue(&[point])? {
        Found::Nothing => Some(format!("no instruction wrote to {low:#x} before; {OTHERWISE} may have")),
        Found::Met(_) if held(timeline) != before => {
            Some(format!("the last write to {low:#x} by an instruction; later, {OTHERWISE} has changed it"))
        }
        Found::Met(_) => None,
    })
}

/// Goes to an operation of the handlers at an instruction count.
fn within(timeline: &mut Timeline, hit: Option<Hit>, at: u64, executed: u64) -> Went {
    match hit {
        Some(hit) => to_hit(timeline, hit)?,
        None => arrived(timeline.goto(Position::At { icount: at, ordinal: 0 })?)?,
    };
    timeline.into_hit()?;
    let here = timeline.operation().map_or(0, |operation| operation.executed);
    match executed.checked_sub(here) {
        Some(more) => timeline.step_operation(more)?,
        None => timeline.back_operation(here - executed)?,
    }
    Ok(None)
}

/// Goes to a hit: to the moment before its instruction, of the moments with its count.
fn to_hit(timeline: &mut Timeline, hit: Hit) -> Went {
    let there = Position::At { icount: hit.at, ordinal: 0 };
    let arrival = timeline.goto(there)?;
    let at_site = |timeline: &Timeline| timeline.session().core().linear_ip() == hit.ip;
    while timeline.session().icount() == hit.at && !at_site(timeline) {
        let met = timeline.next_hit(None)?;
        if met == Found::Nothing || timeline.session().icount() != hit.at {
            // A hit after its instruction, of a watch or a return probe.
            return arrived(timeline.goto(there)?);
        }
    }
    arrived(arrival)
}

/// The address after the instruction here, if it is a call.
fn after_call(timeline: &Timeline) -> Option<u64> {
    let core = timeline.session().core();
    let instruction = core.decode_original(core.linear_ip())?;
    let call = instruction.is_call_near() || instruction.is_call_near_indirect() || instruction.is_call_far();
    call.then(|| core.linear_ip().wrapping_add(instruction.len() as u64))
}

fn stack_pointer(timeline: &Timeline) -> u64 {
    timeline.session().core().env().gpr(4)
}

fn over(timeline: &mut Timeline) -> Went {
    let Some(next) = after_call(timeline) else { return arrived(timeline.step(1)?) };
    let (from, sp) = (timeline.position(), stack_pointer(timeline));
    for _ in 0..MOST_RETURNS {
        if timeline.run_until(&[Timeline::breakpoint(next)])? == Found::Nothing {
            break;
        }
        // In a recursive call the stack pointer is lower.
        if stack_pointer(timeline) >= sp {
            return Ok(None);
        }
    }
    timeline.goto(from)?;
    Ok(Some("the call does not return any more".to_owned()))
}

fn back_over(timeline: &mut Timeline) -> Went {
    let next = timeline.session().core().linear_ip();
    timeline.back(1)?;
    let returned = {
        let core = timeline.session().core();
        core.decode_original(core.linear_ip())
            .is_some_and(|instruction| instruction.flow_control() == FlowControl::Return)
    };
    if !returned {
        return Ok(None);
    }
    let returns = timeline.position();
    if timeline.back_to_caller()? == Found::Nothing || after_call(timeline) != Some(next) {
        timeline.goto(returns)?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_session::{Command, Condition, GuestBuilder, Limits};

    #[test]
    fn the_end_after_many_moves_is_that_of_a_run_without_them() {
        const END: u64 = 3_000_000;
        let guest = GuestBuilder::embedded("ia32").memory(32 << 20).open().unwrap();
        let session = || {
            let mut session = guest.start(trapline_session::Probing::default()).unwrap();
            session.apply(Command::clause("fbt::do_fork:entry { push pid; log 1 }")).unwrap();
            session
        };
        let mut plain = session();
        let ending = plain.run_until(&Condition::end(), &Limits::insns(END));
        let mut timeline = Timeline::new(session(), 64 << 20).unwrap();
        timeline.ends_at(plain.moment(), Some(Ending::Limit));
        let hits: Vec<Hit> = plain
            .records()
            .map(|record| record.header)
            .map(|header| Hit { at: header.icount, ip: header.ip, probe: 0, pid: 0 })
            .collect();
        for hit in hits.iter().rev().take(5).chain(hits.iter().take(2)) {
            assert_eq!(go(&mut timeline, &Move::Hit(*hit)).unwrap(), None);
            assert_eq!(
                (timeline.session().icount(), timeline.session().core().linear_ip()),
                (hit.at, hit.ip)
            );
            assert_eq!(go(&mut timeline, &Move::IntoHit).unwrap(), None);
            let all = timeline.operation().unwrap().all;
            assert!(all > 0);
            for _ in 0..all {
                assert_eq!(go(&mut timeline, &Move::Operations(1)).unwrap(), None);
            }
            assert!(go(&mut timeline, &Move::Operations(1)).is_err());
            assert_eq!(go(&mut timeline, &Move::OperationsBack(all)).unwrap(), None);
            for to in [Move::Step(3), Move::Over, Move::BackOver, Move::Back(2), Move::Caller, Move::Finish] {
                let went = go(&mut timeline, &to);
                assert!(matches!(went, Ok(_) | Err(TravelError::NoCaller(_))), "{to:?}: {went:?}");
            }
        }
        let how = go(&mut timeline, &Move::To(Position::BeforeEnd(0))).unwrap();
        assert_eq!((ending, how), (Ending::Limit, None));
        assert_eq!(timeline.session().digest(), plain.digest());
    }

    #[test]
    fn a_cancelled_search_comes_back() {
        let session = GuestBuilder::embedded("ia32").memory(32 << 20).start().unwrap();
        let flag = std::sync::Arc::new(AtomicBool::new(false));
        let mut timeline = Timeline::new(session, 64 << 20).unwrap().cancelled_by(flag.clone());
        timeline.step(1000).unwrap();
        let digest = timeline.session().digest();
        flag.store(true, Ordering::Relaxed);
        let never = vec![Timeline::breakpoint(1)];
        let cancelled = go(&mut timeline, &Move::Until(never)).unwrap_err();
        assert!(matches!(cancelled, TravelError::Interrupted));
        assert_eq!(timeline.session().digest(), digest);
        flag.store(false, Ordering::Relaxed);
        assert_eq!(go(&mut timeline, &Move::Back(1)).unwrap(), None);
    }
}
