//! How records of channels are printed, and what is said about them.

use std::io::Write;

use trapline_dti::{Channel, Contents, Found, Record, View, is_text, json, show};
use trapline_session::counted;
use trapline_trace::Formatter;

use crate::cli::{DtiRecordArgs, DtiView, Format};
use crate::failure::Failure;
use crate::no_effect;
use crate::talk::Talk;

/// A form of records.
enum Shape {
    Json,
    Raw,
    Text(View),
    Template(Formatter),
}

/// Prints records.
pub struct Printer<'a> {
    args: &'a DtiRecordArgs,
    shape: Shape,
}

impl<'a> Printer<'a> {
    /// A printer for these options.
    ///
    /// # Errors
    /// The options exclude each other, or the template is wrong.
    pub fn new(args: &'a DtiRecordArgs, format: Format) -> Result<Self, Failure> {
        no_effect::of_records(args, format)?;
        let shape = match (&args.template, args.view) {
            _ if format == Format::Json => Shape::Json,
            (Some(text), _) => Shape::Template(template(text)?),
            (None, Some(DtiView::Raw)) => Shape::Raw,
            (None, Some(DtiView::Hex)) => Shape::Text(View::Hex),
            (None, Some(DtiView::Sprintf)) => Shape::Text(View::Text),
            (None, Some(DtiView::Auto) | None) => Shape::Text(View::Auto),
        };
        Ok(Self { args, shape })
    }

    /// The channels that are printed.
    ///
    /// # Errors
    /// There is no such channel.
    pub fn selected<'f>(&self, found: &'f Found) -> Result<Vec<&'f Channel>, Failure> {
        let wanted = self.args.name.as_deref();
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
        let channels: Vec<&Channel> =
            found.channels.iter().filter(|channel| is_wanted(channel.name())).collect();
        let unbound = found.unbound.iter().any(|handle| is_wanted(&handle.name));
        if let (Some(name), true, false) = (wanted, channels.is_empty(), unbound) {
            return Err(Failure::Usage(missing(name, found)));
        }
        let cpus = channels.iter().map(|channel| channel.cpus()).max();
        match (self.args.cpu, cpus) {
            (Some(cpu), Some(cpus)) if cpu >= cpus => {
                Err(Failure::Usage(format!("--cpu {cpu}: the channels have {}", counted(cpus.into(), "CPU"))))
            }
            _ => Ok(channels),
        }
    }

    /// Prints records by time, then channel, CPU and position.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn print<'r>(
        &self,
        records: impl Iterator<Item = (&'r Channel, Record<'r>)>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let wanted = |record: &Record<'_>| {
            self.args.cpu.is_none_or(|cpu| cpu == record.cpu) && (!self.args.unread || record.unread)
        };
        let mut records: Vec<_> = records.filter(|(_, record)| wanted(record)).collect();
        // Stable: records of one channel are in order.
        records.sort_by_key(|(_, record)| record.time);
        let width = records.iter().map(|(channel, _)| channel.name().len()).max().unwrap_or(0);
        for (channel, record) in &records {
            self.one(channel, record, width, out).map_err(Failure::Output)?;
        }
        Ok(())
    }

    fn one(
        &self,
        channel: &Channel,
        record: &Record<'_>,
        width: usize,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let text = match &self.shape {
            Shape::Json => return writeln!(out, "{}", json(channel.name(), record)),
            Shape::Raw => {
                let mut bytes = Vec::new();
                record.raw(&mut bytes);
                return out.write_all(&bytes);
            }
            Shape::Text(view) => show(record.data, *view),
            Shape::Template(template) => template.format_data(record.data, usize::from(channel.word())),
        };
        let head = format!("{:>14} {} {:width$}", record.time, record.cpu, channel.name());
        // Bytes are lines of their own.
        let is_bytes = match self.shape {
            Shape::Text(View::Auto) => !is_text(record.data),
            Shape::Text(view) => view == View::Hex,
            _ => text.contains('\n'),
        };
        if is_bytes {
            writeln!(out, "{}", head.trim_end())?;
            return text.lines().try_for_each(|line| writeln!(out, "  {line}"));
        }
        writeln!(out, "{}", format!("{head}  {text}").trim_end())
    }
}

fn template(text: &str) -> Result<Formatter, Failure> {
    Formatter::of_text(text).map_err(|error| Failure::Usage(format!("--template: {error}")))
}

fn missing(name: &str, found: &Found) -> String {
    let mut names: Vec<&str> = found.channels.iter().map(Channel::name).collect();
    names.extend(found.unbound.iter().map(|handle| handle.name.as_str()));
    names.sort_unstable();
    names.dedup();
    match names.is_empty() {
        true => format!("there is no channel {name}, nor any other"),
        false => format!("there is no channel {name}; use one of {}", names.join(", ")),
    }
}

/// Says what could not be read of the memory.
pub fn warn(found: &Found, talk: &Talk) {
    for damaged in &found.damaged {
        let (name, paddr, damage) = (&damaged.name, damaged.paddr, &damaged.damage);
        talk.warn(&format!("channel {name} at physical address {paddr:#x} cannot be read: {damage}"));
    }
    let more = found.damaged_count - found.damaged.len() as u64;
    if more > 0 {
        talk.warn(&format!("{more} more channels cannot be read"));
    }
    if found.channels.is_empty() && found.unbound.is_empty() && found.damaged.is_empty() {
        talk.note("there are no channels: no driver of the guest traces, or none has begun");
    }
}

/// Says what could not be read of a channel.
pub fn warn_of(channel: &Channel, contents: &Contents, talk: &Talk) {
    let name = channel.name();
    for (cpu, state) in contents.cpus.iter().enumerate() {
        if let Some(damage) = &state.damage {
            talk.warn(&format!("channel {name}: {damage}"));
        }
        if state.incomplete > 0 {
            let records = counted(state.incomplete.into(), "record");
            talk.note(&format!("channel {name}: {records} of CPU {cpu} not complete"));
        }
    }
}
