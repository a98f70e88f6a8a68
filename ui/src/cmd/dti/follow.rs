//! `dti follow`: records as they are written, while a guest or a recording runs.

use std::io::{self, Write};

use trapline_dti::{Channel, Cursor};
use trapline_session::{
    Condition, Ending, Limits, Position, Script, Session, Timeline, TravelError, counted,
};
use trapline_trace::{HeaderItems, TextSink};

use super::printer::Printer;
use super::source::is_dump;
use crate::cli::{DtiFollowArgs, DtiSource, is_recording};
use crate::cmd::reach::{self, Cancelled};
use crate::cmd::travel;
use crate::ctrl_c;
use crate::failure::{Exit, Failure};
use crate::no_effect;
use crate::output::Outputs;
use crate::talk::Talk;

/// Instructions between two looks.
const EVERY: u64 = 1_000_000;

/// Runs the command.
///
/// # Errors
/// Bad files or options, or a recording that another run made.
pub fn run(args: &DtiFollowArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let printer = Printer::new(&args.records, args.source.form.format)?;
    let mut follower = Follower { printer, cursor: Cursor::new(), lost: 0, cpus: 0 };
    if is_dump(&args.source) {
        let text = "a crash dump does not run; use `dti show`";
        return Err(Failure::Usage(text.to_owned()));
    }
    no_effect::of_dti(&args.source, false)?;
    let signals = ctrl_c::prepare();
    let cancelled = signals.run();
    let every = args.every.unwrap_or(EVERY);
    let exit = if is_recording(&args.source.image) {
        recorded(&args.source, every, &cancelled, &mut follower, out)?
    } else {
        live(&args.source, every, &cancelled, &mut follower, (out, talk))?
    };
    follower.end(&args.records.name, talk)?;
    Ok(exit)
}

/// What has been printed.
struct Follower<'a> {
    printer: Printer<'a>,
    cursor: Cursor,
    /// Sub-buffers that were overwritten between two looks.
    lost: u64,
    /// CPUs of the channels that were asked for; 0 if none has been found.
    cpus: u16,
}

impl Follower<'_> {
    /// Prints what has been written since the last look.
    fn look(&mut self, session: &Session, out: &mut dyn Write) -> Result<(), Failure> {
        let memory = session.core().ram();
        let found = session.channels();
        // Until the driver begins, its channel does not exist.
        let wanted = |channel: &&Channel| self.printer.is_wanted(channel);
        let channels: Vec<&Channel> = found.channels.iter().filter(wanted).collect();
        self.cpus = channels.iter().map(|channel| channel.cpus()).fold(self.cpus, u16::max);
        let read: Vec<_> = channels.iter().map(|channel| (*channel, channel.read(memory))).collect();
        let mut fresh = Vec::new();
        for (channel, contents) in &read {
            let new = self.cursor.fresh(channel, contents);
            self.lost += new.lost;
            fresh.extend(new.records.into_iter().map(|record| (*channel, record)));
        }
        self.printer.print(fresh.into_iter(), out)?;
        out.flush().map_err(Failure::Output)
    }

    fn end(&self, name: &Option<String>, talk: &Talk) -> Result<(), Failure> {
        if self.lost > 0 {
            let lost = counted(self.lost, "sub-buffer");
            talk.warn(&format!("{lost} overwritten between two looks; use a smaller --every"));
        }
        match (name, self.cpus) {
            (Some(name), 0) => talk.warn(&format!("there was no channel {name}")),
            (None, 0) => {}
            (_, cpus) => return self.printer.check_cpu(cpus),
        }
        Ok(())
    }
}

/// Follows a guest.
fn live(
    args: &DtiSource,
    every: u64,
    cancelled: &Cancelled,
    follower: &mut Follower<'_>,
    (out, talk): (&mut dyn Write, &Talk),
) -> Result<Exit, Failure> {
    let machine = &args.machine;
    let mut session = reach::start(&args.image, machine, args.restore.as_deref(), talk)?;
    if let Some(path) = &args.restore {
        reach::restore(&mut session, path)?;
    }
    let at = reach::count(machine)?;
    let end = at.or(machine.limit_insns).unwrap_or(u64::MAX);
    let condition = machine.until.iter().fold(Condition::end(), |condition, text| condition.or_console(text));
    loop {
        let next = session.icount().saturating_add(every).min(end);
        let limits = Limits::insns(next).cancelled_by(cancelled.clone());
        let sink = Box::new(TextSink::new(io::sink(), HeaderItems::default()));
        let outputs = &mut Outputs::only(sink, *talk);
        let ending = session.run(&mut Script::default(), &condition, &limits, outputs)?;
        follower.look(&session, out)?;
        match ending {
            Ending::Limit if session.icount() < end => {}
            Ending::Limit if at.is_some() => return Ok(Exit::Ok),
            ending => return Ok(Exit::from(&ending)),
        }
    }
}

/// Follows a recording.
fn recorded(
    args: &DtiSource,
    every: u64,
    cancelled: &Cancelled,
    follower: &mut Follower<'_>,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let mut timeline: Timeline = reach::timeline(&args.image, &args.machine, cancelled)?;
    let to = args.machine.at.unwrap_or(Position::BeforeEnd(0));
    let end = match timeline.goto(to) {
        Ok(_) => timeline.session().icount(),
        Err(TravelError::Interrupted) => return Ok(Exit::Interrupted),
        Err(error) => return Err(travel::failure(error)),
    };
    let mut at = 0;
    while at < end {
        at = at.saturating_add(every).min(end);
        match timeline.goto(if at == end { to } else { Position::At { icount: at, ordinal: 0 } }) {
            Ok(_) => follower.look(timeline.session(), out)?,
            Err(TravelError::Interrupted) => return Ok(Exit::Interrupted),
            Err(error) => return Err(travel::failure(error)),
        }
    }
    Ok(Exit::Ok)
}
