//! The provider `dti`: `dti:CHANNEL::event` fires when a driver writes a record to its channel of the Driver Tracing Interface
//! (`guest-images/include/trapline/dti.h`).
//!
//! All writes go through the function `dti_log`, of the kernel's image or of Linux's module `dti.ko`, so this is the site of all
//! probes; a probe's condition compares the name in the channel, and the priority with the level. The arguments are the priority,
//! the address of the data and their length. The image and the files of modules name the channels of handles. Channels that a
//! driver names while it runs are not known before, so any name without wildcards has a probe.

use std::sync::Arc;

use trapline_emu::Core;
use trapline_emu::symbols::KernelModule;
use trapline_interposer::{Arguments, Condition, Place};
use trapline_rpn::{Argument, ArgumentError};
use trapline_trace::ProbeName;

use crate::name::Description;
use crate::provider::{ArgumentType, AtEntry, Probe, Provider, ProviderError, Site};
use crate::target::{Abi, Target};

const PROVIDER: &str = "dti";
const EVENT: &str = "event";
/// The function that all writes go through: channel, priority, data, length.
const LOG: &str = "dti_log";
/// What precedes the name of a channel, in its mark.
const MARKER: &[u8] = b"__DTI__";
/// Bytes of a name with its NUL.
const NAME: usize = 48;
/// What follows the name of a handle: the version, the bytes of a pointer, the kind of a handle.
const VERSION: u8 = 1;
const HANDLE: u8 = 2;
/// Offsets in `struct dti_info` of the name and of the level.
const NAME_AT: u64 = 15;
const LEVEL_AT: u64 = 76;
/// Characters with a meaning in descriptions.
const WILDCARDS: &[char] = &['*', '?', '[', '\\'];

/// The provider.
#[derive(Debug)]
pub struct Dti;

/// What the function of all writes is part of.
enum Home<'t> {
    Kernel,
    Module(&'t Arc<KernelModule>),
}

/// The function of all writes: its place, and its first byte.
struct Log {
    place: Place,
    opcode: u8,
}

impl Log {
    /// That of the kernel or, if it has none, of the first module that has one.
    fn of(target: &Target) -> Option<Self> {
        let (home, at) = find_log(target)?;
        match home {
            Home::Kernel => {
                let plan = target.image().plan();
                let place = Place::Kernel { linear: at, paddr: plan.vaddr_to_paddr(at)? };
                Some(Self { place, opcode: *plan.bytes_at(at, 1)?.first()? })
            }
            Home::Module(module) => {
                let opcode = *module.file().bytes_at(at, 1)?.first()?;
                Some(Self { place: Place::Module { module: Arc::clone(module), offset: at }, opcode })
            }
        }
    }
}

/// Where the function of all writes is: its address in the kernel, or its offset in the file of a module.
fn find_log(target: &Target) -> Option<(Home<'_>, u64)> {
    if let Some(symbol) = target.symbols().sole(LOG).filter(|symbol| symbol.is_function()) {
        return Some((Home::Kernel, symbol.addr));
    }
    modules(target).find_map(|module| {
        let symbol = module.file().symbols().sole(LOG).filter(|symbol| symbol.is_function())?;
        Some((Home::Module(module), symbol.addr))
    })
}

/// The kernel modules that the kernel can load.
fn modules(target: &Target) -> impl Iterator<Item = &Arc<KernelModule>> {
    let width = target.image().plan().width;
    target.kernel_modules().iter().filter(move |module| module.file().width() == width)
}

/// The names of the channels of handles, which the image and the files of modules contain, sorted. There are none without the
/// function.
fn names(target: &Target) -> Vec<String> {
    let mut names = Vec::new();
    if find_log(target).is_none() {
        return names;
    }
    let plan = target.image().plan();
    plan.segments.iter().for_each(|segment| add_names(plan.segment_bytes(segment), &mut names));
    modules(target).for_each(|module| add_names(module.file().bytes(), &mut names));
    names.sort_unstable();
    names.dedup();
    names
}

fn add_names(bytes: &[u8], names: &mut Vec<String>) {
    let marked = bytes.windows(MARKER.len()).enumerate().filter(|(_, window)| *window == MARKER);
    names.extend(marked.filter_map(|(at, _)| name(bytes.get(at + MARKER.len()..)?)));
}

/// The name at the beginning of these bytes, if they are of the mark of a handle: visible characters, and zeros up to its end.
fn name(bytes: &[u8]) -> Option<String> {
    let (field, [VERSION, 4 | 8, HANDLE, ..]) = bytes.split_at_checked(NAME)? else { return None };
    let len = field.iter().position(|byte| *byte == 0).filter(|len| *len > 0)?;
    let (name, rest) = field.split_at(len);
    let valid = name.iter().all(u8::is_ascii_graphic) && rest.iter().all(|byte| *byte == 0);
    valid.then(|| String::from_utf8_lossy(name).into_owned())
}

/// The probe of a channel.
fn probe(target: &Target, log: &Log, channel: &str) -> Probe {
    let abi = target.options().abi.unwrap_or_else(|| Abi::of(target));
    let types = ["int", "const void *", "size_t"].into_iter().zip(["prio", "data", "length"]);
    let types: Vec<ArgumentType> = types.map(|(native, name)| ArgumentType::named(native, name)).collect();
    let max = target.image().plan().width.max_addr();
    let site = Site {
        rule: "function of all writes",
        when: Some(Arc::new(IsWritten { abi, max, channel: channel.to_owned() })),
        arguments: Arc::new(OfRecord(abi)),
        shown: types.iter().map(ToString::to_string).collect(),
        at_call: true,
        ..Site::new(log.place.clone(), log.opcode)
    };
    let name = ProbeName {
        provider: PROVIDER.into(),
        module: channel.into(),
        function: LOG.into(),
        name: EVENT.into(),
    };
    let logged = types.len() as u8;
    Probe { id: 0, name: Arc::new(name), sites: vec![site], logged, processes: None, types }
}

/// Priority, data and length: the arguments of the function without the channel.
#[derive(Debug)]
struct OfRecord(Abi);

impl Arguments for OfRecord {
    fn has(&self, which: Argument) -> bool {
        matches!(which, Argument::Number(0..3))
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        let Argument::Number(n @ 0..3) = which else { return Err(ArgumentError::None) };
        let value = AtEntry(self.0).argument(core, Argument::Number(n + 1))?;
        Ok(if n == 0 { i64::from(value as i32).cast_unsigned() } else { value })
    }
}

/// Whether the record is one of the channel, and is written at its level.
#[derive(Debug)]
struct IsWritten {
    abi: Abi,
    /// The highest address.
    max: u64,
    channel: String,
}

impl IsWritten {
    /// `None` if the guest cannot be read.
    fn known(&self, core: &Core) -> Option<bool> {
        let argument = |n| AtEntry(self.abi).argument(core, Argument::Number(n)).ok();
        let (info, prio) = (argument(0)?, argument(1)? as i32);
        let mut name = [0; NAME];
        let own = name.get_mut(..=self.channel.len())?;
        core.peek(info.wrapping_add(NAME_AT) & self.max, own).ok()?;
        let is_own = own.split_last() == Some((&0, self.channel.as_bytes()));
        let mut level = [0; 4];
        core.peek(info.wrapping_add(LEVEL_AT) & self.max, &mut level).ok()?;
        Some(is_own && prio >= 0 && prio <= i32::from_le_bytes(level))
    }
}

impl Condition for IsWritten {
    fn holds(&self, core: &Core) -> bool {
        self.known(core).unwrap_or(false)
    }
}

impl Provider for Dti {
    fn name(&self) -> &str {
        PROVIDER
    }

    fn ids(&self, _: &Target) -> u32 {
        0
    }

    fn find(
        &self,
        target: &Target,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), ProviderError> {
        if !wanted.function(LOG) || !wanted.name(EVENT) {
            return Ok(());
        }
        let Some(log) = Log::of(target) else { return Ok(()) };
        let mut channels: Vec<String> =
            names(target).into_iter().filter(|channel| wanted.module(channel)).collect();
        let [provider, own, ..] = wanted.written();
        let is_literal = !own.is_empty() && own.len() < NAME && !own.contains(WILDCARDS);
        if provider == PROVIDER && is_literal && channels.is_empty() {
            channels.push(own.clone());
        }
        found.extend(channels.iter().map(|channel| probe(target, &log, channel)));
        Ok(())
    }

    fn near(&self, target: &Target, _: &Description) -> Vec<String> {
        let names = names(target);
        names.iter().map(|channel| format!("{PROVIDER}:{channel}:{LOG}:{EVENT}")).collect()
    }
}
