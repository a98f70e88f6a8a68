//! `trapline top`: the hottest functions and processes while a guest runs. It is a run, or a replay, with a probe for the
//! samples; the screen is in the crate `trapline-tui`.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::rc::Rc;

use trapline_export::profile::{Every, TopForm, TopSink};
use trapline_session::file_name;
use trapline_trace::Sink;
use trapline_tui::{Colours, Look, TopScreen};

use super::profile::{no_form_of_records, output_of, parsed, run_as, sampled_words};
use super::run::Own;
use crate::cli::{Command, Format, OutputArgs, TopArgs};
use crate::ctrl_c;
use crate::failure::{Exit, Failure};
use crate::output::{Made, OwnSink};
use crate::talk::Talk;

/// Virtual time between tables, unless an option says otherwise.
const EVERY: u64 = 1_000_000_000;
/// Rows of a table, unless an option says otherwise.
const ROWS: usize = 10;

/// Runs the command.
///
/// # Errors
/// Those of `run` or `replay`; a terminal that cannot be used.
pub fn run(args: &TopArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    let command = parsed(words(args))?;
    let output = output_of(&command);
    no_form_of_records(output, "top")?;
    if let Command::Replay(replay) = &command
        && replay.from.is_some()
    {
        let sentence =
            "--from after -- cannot be used with top, whose counts begin with the run; profile accepts it";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    let rows = args.rows.map_or(ROWS, |rows| usize::try_from(rows).unwrap_or(usize::MAX));
    if !has_screen(args) {
        let every = table_tick(args).map_or(Every::End, Every::Tick);
        let form = if args.format == Some(Format::Json) { TopForm::Json } else { TopForm::Text };
        let sink: OwnSink<'_> =
            Box::new(move |page, _: Made| Box::new(TopSink::new(page, every, form, rows)) as Box<dyn Sink>);
        return run_as(&command, Own { sink: Some(sink), exact: None }, out, talk);
    }
    leaves_the_terminal(&command, output)?;
    let left = Rc::new(Cell::new(false));
    let (told, title) = (Rc::clone(&left), file_name(&args.sampled.image).to_owned());
    let colours = if talk.colours_screen() { Colours::Dark } else { Colours::None };
    let look = Look { colours, utf8: false };
    let cancel = ctrl_c::prepare().flag();
    let sink: OwnSink<'_> = Box::new(move |page, _: Made| {
        Box::new(TopScreen::new(page, title, look, rows, cancel, told)) as Box<dyn Sink>
    });
    let exit = run_as(&command, Own { sink: Some(sink), exact: None }, out, talk)?;
    // Who quits is not interrupted.
    Ok(if left.get() && exit == Exit::Interrupted { Exit::Ok } else { exit })
}

/// The name of the probe at whose ticks tables are printed.
fn table_tick(args: &TopArgs) -> Option<String> {
    let every = args.every.unwrap_or(EVERY);
    (!args.once && !has_screen(args)).then(|| format!("tick-{every}ns"))
}

/// Whether there is a screen.
fn has_screen(args: &TopArgs) -> bool {
    let asks = args.once || args.every.is_some() || args.format.is_some();
    !asks && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Refuses what else writes to the terminal.
fn leaves_the_terminal(command: &Command, output: Option<&OutputArgs>) -> Result<(), Failure> {
    let stdio = |place: &Option<String>| place.as_deref().is_some_and(|place| place == "stdio");
    let option = match (command, output) {
        (Command::Run(args), _) if args.interactive => Some("-i"),
        (_, Some(output)) if stdio(&output.console) => Some("--console stdio"),
        (_, Some(output)) if stdio(&output.com2) => Some("--com2 stdio"),
        _ => None,
    };
    match option {
        Some(option) => Err(Failure::Usage(format!(
            "{option} needs the terminal that top shows its tables on; add --every 1s, which prints them"
        ))),
        None => Ok(()),
    }
}

/// The command line that it is.
fn words(args: &TopArgs) -> Vec<OsString> {
    let mut words = sampled_words(&args.sampled, true);
    if let Some(tick) = table_tick(args) {
        words.extend(["--rpn".into(), format!("profile:::{tick} {{}}").into()]);
    }
    words.extend(["--stack=1", "--ustack=1", "--header", "pid,name"].map(OsString::from));
    words.extend(args.sampled.options.iter().cloned());
    words
}
