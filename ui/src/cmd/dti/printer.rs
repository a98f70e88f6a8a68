//! How records of channels are printed, and what is said about them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use trapline_dti::{Channel, Contents, Found, Record, View, is_text, json, lines, show};
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
    /// By the name of the channel.
    Templates(BTreeMap<String, Formatter>),
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
            _ if args.templates.is_some() => {
                Shape::Templates(args.templates.as_deref().map(templates).transpose()?.unwrap_or_default())
            }
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
    /// There is no such channel, or none has the CPU.
    pub fn selected<'f>(&self, found: &'f Found) -> Result<Vec<&'f Channel>, Failure> {
        let wanted = self.args.name.as_deref();
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
        let channels: Vec<&Channel> =
            found.channels.iter().filter(|channel| is_wanted(channel.name())).collect();
        let unbound = found.unbound.iter().any(|handle| is_wanted(&handle.name));
        if let (Some(name), true, false) = (wanted, channels.is_empty(), unbound) {
            return Err(Failure::Usage(missing(name, found)));
        }
        match channels.iter().map(|channel| channel.cpus()).max() {
            Some(cpus) => self.check_cpu(cpus).map(|()| channels),
            None => Ok(channels),
        }
    }

    /// Checks that the CPU is one of so many.
    ///
    /// # Errors
    /// It is not.
    pub fn check_cpu(&self, cpus: u16) -> Result<(), Failure> {
        match self.args.cpu {
            Some(cpu) if cpu >= cpus => {
                Err(Failure::Usage(format!("--cpu {cpu}: the channels have {}", counted(cpus.into(), "CPU"))))
            }
            _ => Ok(()),
        }
    }

    /// Whether records of this channel are wanted.
    pub fn is_wanted(&self, channel: &Channel) -> bool {
        self.args.name.as_deref().is_none_or(|wanted| wanted == channel.name())
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
        let by_template =
            |template: &Formatter| template.format_data(record.data, usize::from(channel.word()));
        let text = match &self.shape {
            Shape::Json => return writeln!(out, "{}", json(channel.name(), record)),
            Shape::Raw => {
                let mut bytes = Vec::new();
                record.raw(&mut bytes);
                return out.write_all(&bytes);
            }
            Shape::Text(view) => show(record.data, *view),
            Shape::Template(template) => by_template(template),
            Shape::Templates(templates) => {
                templates.get(channel.name()).map_or_else(|| show(record.data, View::Auto), by_template)
            }
        };
        let are_bytes = match self.shape {
            Shape::Text(View::Auto) => !is_text(record.data),
            Shape::Templates(ref templates) if !templates.contains_key(channel.name()) => {
                !is_text(record.data)
            }
            Shape::Text(view) => view == View::Hex,
            _ => text.contains('\n'),
        };
        let lines = lines(channel.name(), width, record, &text, are_bytes);
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

fn template(text: &str) -> Result<Formatter, Failure> {
    Formatter::of_text(text).map_err(|error| Failure::Usage(format!("--template: {error}")))
}

/// The templates of a folder, by the names of channels.
fn templates(folder: &Path) -> Result<BTreeMap<String, Formatter>, Failure> {
    let failed = |path: &Path, error| {
        Failure::Usage(format!("--templates: {}: {}", path.display(), trapline_session::io_sentence(&error)))
    };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".fmt")) else {
            continue;
        };
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
        let text = text.trim_end_matches('\n').replace('\n', "\\n");
        let template = Formatter::of_text(&text)
            .map_err(|error| Failure::Usage(format!("--templates: {}: {error}", path.display())))?;
        found.insert(name.to_owned(), template);
    }
    if found.is_empty() {
        let folder = folder.display();
        return Err(Failure::Usage(format!("--templates: {folder} has no file CHANNEL.fmt")));
    }
    Ok(found)
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
