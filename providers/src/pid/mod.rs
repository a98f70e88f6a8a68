//! Tracing of programs: `pid<N>:module:function:name`, where a name is `entry`, `return` or an offset in hexadecimal.
//!
//! Probes are made on request, because all instructions of all files would be millions of probes. Modules are the files
//! that the guest is known to have; the process is checked at the hit (`trapline_interposer::Processes`).
//! Rules and messages are those of DTrace; `docs/providers.md`, "pid", lists the extensions.

mod error;
mod functions;
mod scan;
mod stripped;
mod who;

use std::collections::HashMap;
use std::sync::Arc;

use trapline_emu::symbols::UserModule;
use trapline_interposer::{Arguments, Place, Processes, Who};
use trapline_trace::ProbeName;

use crate::name::Description;
use crate::provider::{
    AtEntry, AtOffset, AtReturn, AtTailCall, LOGGED, OwnError, Probe, Provider, ProviderError, Site,
};
use crate::target::{Abi, Programs, Target, basename};
pub use error::PidError;
use functions::{Function, Functions, Text, resolver};
use scan::Code;
pub use who::is_ours;
use who::{PID, meant};

/// Return probes log the offset of the return, and the value.
const LOGGED_AT_RETURN: u8 = 2;
/// The module name that stands for a process's program.
const PROGRAM: &str = "a.out";
/// The function of absolute addresses.
const ABSOLUTE: &str = "-";
/// Most near misses that a message names.
const SUGGESTIONS: usize = 3;

/// The provider.
#[derive(Debug, Clone, Copy)]
pub struct Pid;

impl From<PidError> for ProviderError {
    fn from(error: PidError) -> Self {
        OwnError::new(error).into()
    }
}

/// The last field of a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Entry,
    Return,
    Offset(u64),
    /// A glob of all of them.
    Several,
}

impl Wanted {
    fn parse(name: &str) -> Result<Self, PidError> {
        match name {
            "entry" => Ok(Self::Entry),
            "return" => Ok(Self::Return),
            _ if is_glob(name) => Ok(Self::Several),
            _ => hexadecimal(name).map(Self::Offset).ok_or_else(|| PidError::InvalidName(name.to_owned())),
        }
    }
}

/// A number in hexadecimal digits alone.
fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

/// Whether a field may match several names.
fn is_glob(field: &str) -> bool {
    field.is_empty() || field.contains(['*', '?', '[', '{', '\\'])
}

/// A module that matches a description, and the processes to probe in it.
struct Chosen<'a> {
    module: &'a Arc<UserModule>,
    processes: Arc<Processes>,
}

/// The modules that match a description.
fn chosen<'a>(programs: Programs<'a>, wanted: &Description, who: &Who) -> Result<Vec<Chosen<'a>>, PidError> {
    let field = &wanted.written()[1];
    let forked = programs.options.follow_fork;
    let holders = programs.holders();
    let chosen = |module: &'a Arc<UserModule>, program| {
        let processes = Processes { who: who.clone(), program, forked, ..holders.of([module]) };
        Chosen { module, processes: Arc::new(processes) }
    };
    let of = |module: &'a Arc<UserModule>| chosen(module, None);
    let all = programs.modules.iter();
    match (field.as_str(), who) {
        (PROGRAM, Who::Path(path)) => {
            let own: Vec<_> = all.filter(|module| module.name() == path).map(of).collect();
            if own.is_empty() { Err(PidError::UnknownProgram(path.clone())) } else { Ok(own) }
        }
        (PROGRAM, _) => Ok(all
            .filter(|module| module.is_program())
            .map(|module| chosen(module, Some(module.name().to_owned())))
            .collect()),
        (field, _) => {
            let path = if is_glob(field) { None } else { programs.files.resolve(field) };
            let named = |module: &&Arc<UserModule>| {
                wanted.module(basename(module.name()))
                    || wanted.module(module.name())
                    || path.as_deref() == Some(module.name())
            };
            Ok(all.filter(named).map(of).collect())
        }
    }
}

/// Makes the probes of one module.
struct Maker<'a> {
    provider: &'a Arc<str>,
    module: Arc<str>,
    chosen: &'a Chosen<'a>,
    functions: &'a Functions,
    wanted: &'a Description,
    name: Wanted,
    abi: Abi,
    /// Texts of offsets, which functions share.
    offsets: HashMap<u64, Arc<str>>,
    entry: Arc<str>,
    leave: Arc<str>,
    at_offset: Arc<dyn Arguments>,
}

impl<'a> Maker<'a> {
    fn new(
        (provider, wanted, name): (&'a Arc<str>, &'a Description, Wanted),
        chosen: &'a Chosen<'a>,
        functions: &'a Functions,
    ) -> Self {
        let abi = if chosen.module.width().bits() == 64 { Abi::SysV } else { Abi::Cdecl };
        Self {
            provider,
            module: basename(chosen.module.name()).into(),
            chosen,
            functions,
            wanted,
            name,
            abi,
            offsets: HashMap::new(),
            entry: "entry".into(),
            leave: "return".into(),
            at_offset: Arc::new(AtOffset(abi)),
        }
    }

    fn probe(&self, function: &Arc<str>, name: &Arc<str>, sites: Vec<Site>, logged: u8) -> Probe {
        let name = ProbeName {
            provider: Arc::clone(self.provider),
            module: Arc::clone(&self.module),
            function: Arc::clone(function),
            name: Arc::clone(name),
        };
        let processes = Some(Arc::clone(&self.chosen.processes));
        Probe { id: 0, name: Arc::new(name), sites, logged, processes, types: Vec::new() }
    }

    fn user(&self, text: Text<'_>, at: u64) -> Place {
        Place::User { module: Arc::clone(self.chosen.module), offset: text.offset + at }
    }

    fn site(
        &self,
        text: Text<'_>,
        at: u64,
        place: Place,
        rule: &'static str,
        arguments: Arc<dyn Arguments>,
    ) -> Site {
        let opcode = usize::try_from(at).ok().and_then(|at| text.bytes.get(at)).copied().unwrap_or_default();
        Site {
            place,
            within: None,
            offset: at,
            opcode,
            rule,
            arguments,
            shown: Vec::new(),
            at_call: false,
            tail_call: false,
            when: None,
        }
    }

    fn offset_name(&mut self, at: u64) -> Arc<str> {
        Arc::clone(self.offsets.entry(at).or_insert_with(|| format!("{at:x}").into()))
    }

    fn at_offset(&mut self, function: &Arc<str>, text: Text<'_>, at: u64, rule: &'static str) -> Probe {
        let site = self.site(text, at, self.user(text, at), rule, Arc::clone(&self.at_offset));
        let name = self.offset_name(at);
        self.probe(function, &name, vec![site], LOGGED)
    }

    fn entry(&self, function: &Function, text: Text<'_>) -> Probe {
        let site = self.site(text, 0, self.user(text, 0), "first byte", Arc::new(AtEntry(self.abi)));
        self.probe(&function.name, &self.entry, vec![Site { at_call: true, ..site }], LOGGED)
    }

    fn leave(&self, function: &Function, text: Text<'_>, code: &Code<'_>) -> Option<Probe> {
        let own = text.offset..text.offset.saturating_add(text.bytes.len() as u64);
        let exits = code.exits(|to| self.functions.are_one(function, to));
        let sites: Vec<Site> = exits
            .iter()
            .map(|exit| {
                let place = Place::UserExit {
                    module: Arc::clone(self.chosen.module),
                    offset: text.offset + exit.at,
                    stays_in: exit.may_stay.then(|| own.clone()),
                };
                let arguments: Arc<dyn Arguments> = match exit.tail_call {
                    true => Arc::new(AtTailCall { offset: exit.at, back: None }),
                    false => Arc::new(AtReturn { offset: exit.at, abi: self.abi }),
                };
                let site = self.site(text, exit.at, place, exit.rule, arguments);
                Site { tail_call: exit.tail_call, ..site }
            })
            .collect();
        (!sites.is_empty()).then(|| self.probe(&function.name, &self.leave, sites, LOGGED_AT_RETURN))
    }

    /// Adds the matching probes of a function.
    fn function(&mut self, function: &Function, found: &mut Vec<Probe>) -> Result<(), PidError> {
        let create = |what, why: &str| PidError::Create {
            what,
            function: function.name.to_string(),
            why: why.to_owned(),
        };
        let what = match self.name {
            Wanted::Return => "return",
            Wanted::Offset(_) => "offset",
            Wanted::Entry | Wanted::Several => "entry",
        };
        let Some(text) = function.text(self.chosen.module) else {
            return Err(create(what, "its code is not in the file"));
        };
        let bits = self.chosen.module.width().bits();
        let code = Code { start: function.start, bytes: text.bytes, bits };
        match self.name {
            Wanted::Entry => found.push(self.entry(function, text)),
            Wanted::Return => match self.leave(function, text, &code) {
                Some(probe) => found.push(probe),
                None => return Err(create(what, "no instruction leaves it")),
            },
            Wanted::Offset(offset) => {
                let size = text.bytes.len() as u64;
                if offset >= size {
                    return Err(PidError::Outside { offset, function: function.name.to_string(), size });
                }
                let nearest = code.around(offset);
                if nearest.is_none_or(|(start, _)| start != offset) {
                    return Err(PidError::Misaligned { offset, nearest });
                }
                found.push(self.at_offset(&function.name, text, offset, "instruction"));
            }
            Wanted::Several => {
                if self.wanted.name(&self.entry) {
                    found.push(self.entry(function, text));
                }
                if self.wanted.name(&self.leave) {
                    found.extend(self.leave(function, text, &code));
                }
                for (at, _) in code.instructions() {
                    if self.wanted.name(&self.offset_name(at)) {
                        found.push(self.at_offset(&function.name, text, at, "instruction"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the probe at an absolute address, if the module has code there.
    fn absolute(&mut self, address: u64, found: &mut Vec<Probe>) -> Result<(), PidError> {
        let module = self.chosen.module;
        let offset =
            module.vaddr_to_offset(address).filter(|at| module.is_executable_offset(*at) == Some(true));
        let bytes = offset.and_then(|offset| Some(Text { offset, bytes: module.bytes_at(offset, 1)? }));
        let Some(text) = bytes else {
            let why = format!("{address:#x} is not in the code of {}", module.name());
            return Err(PidError::Create { what: "offset", function: ABSOLUTE.to_owned(), why });
        };
        if let Some(function) = self.functions.at(address)
            && let Some(whole) = function.text(module)
        {
            let bits = module.width().bits();
            let code = Code { start: function.start, bytes: whole.bytes, bits };
            let nearest = code.around(address - function.start);
            if let Some((start, end)) = nearest
                && function.start.wrapping_add(start) != address
            {
                let whole = |at| function.start.wrapping_add(at);
                let nearest = Some((whole(start), whole(end)));
                return Err(PidError::Misaligned { offset: address, nearest });
            }
        }
        let mut probe = self.at_offset(&ABSOLUTE.into(), text, 0, "address");
        let name = ProbeName { name: self.offset_name(address), ..(*probe.name).clone() };
        probe.name = Arc::new(name);
        found.push(probe);
        Ok(())
    }
}

impl Pid {
    /// Adds the probes that `make` makes for each module; if it makes none, the reason.
    fn add(
        found: &mut Vec<Probe>,
        modules: &[Chosen<'_>],
        mut make: impl FnMut(&Chosen<'_>, &Functions, &mut Vec<Probe>) -> Result<(), PidError>,
    ) -> Result<(), PidError> {
        let before = found.len();
        let mut refused = Ok(());
        for chosen in modules {
            let functions = Functions::of(chosen.module);
            refused = refused.and(make(chosen, &functions, found));
        }
        if found.len() > before { Ok(()) } else { refused }
    }

    fn absolute(
        programs: Programs<'_>,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), PidError> {
        let [provider, module, _, name] = wanted.written();
        if module != PROGRAM {
            return Err(PidError::OnlyProgram(module.clone()));
        }
        let address = hexadecimal(name).ok_or_else(|| PidError::InvalidAddress(name.clone()))?;
        let (who, provider) = meant(programs, provider)?;
        let modules = chosen(programs, wanted, &who)?;
        Self::add(found, &modules, |chosen, functions, found| {
            let name = Wanted::Offset(address);
            Maker::new((&provider, wanted, name), chosen, functions).absolute(address, found)
        })
    }

    fn by_function(
        programs: Programs<'_>,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), PidError> {
        let [provider, module, function, name] = wanted.written();
        let (who, provider) = meant(programs, provider)?;
        let name = Wanted::parse(name)?;
        let modules = chosen(programs, wanted, &who)?;
        if is_glob(function) {
            // A function without such a probe is skipped.
            return Self::add(found, &modules, |chosen, functions, found| {
                let mut maker = Maker::new((&provider, wanted, name), chosen, functions);
                functions.matching(wanted).for_each(|function| {
                    let _ = maker.function(function, found);
                });
                Ok(())
            });
        }
        let (mut known, mut near) = (is_glob(module) || modules.is_empty(), Vec::new());
        Self::add(found, &modules, |chosen, functions, found| {
            let mut maker = Maker::new((&provider, wanted, name), chosen, functions);
            let mut made = Ok(());
            for function in functions.named(function) {
                known = true;
                made = made.and(maker.function(function, found));
            }
            let resolver = resolver(function);
            if functions.named(&resolver).next().is_some() {
                known = true;
                let why = format!("it is chosen when the program starts (IFUNC), by {resolver}");
                return made.and(Err(PidError::Create { what: "any", function: function.clone(), why }));
            }
            near.extend(
                chosen.module.symbols().near_misses(function, SUGGESTIONS).into_iter().map(str::to_owned),
            );
            made
        })?;
        if known {
            return Ok(());
        }
        near.truncate(SUGGESTIONS);
        Err(PidError::Lookup { function: function.clone(), module: module.clone(), near })
    }
}

/// Adds the probes of programs that match a description of pid.
///
/// # Errors
/// No such probe can exist.
pub fn find(programs: Programs<'_>, wanted: &Description, found: &mut Vec<Probe>) -> Result<(), PidError> {
    let absolute = wanted.written()[2] == ABSOLUTE;
    let find = if absolute { Pid::absolute } else { Pid::by_function };
    find(programs, wanted, found)
}

impl Provider for Pid {
    fn name(&self) -> &str {
        PID
    }

    fn ids(&self, _: &Target) -> u32 {
        0
    }

    fn is_meant(&self, wanted: &Description) -> bool {
        is_ours(&wanted.written()[0])
    }

    fn find(
        &self,
        target: &Target,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), ProviderError> {
        Ok(find(target.programs(), wanted, found)?)
    }

    fn refusal(&self, _: &Target, wanted: &Description) -> Option<ProviderError> {
        let provider = &wanted.written()[0];
        let resembles = provider.starts_with(PID) && !is_ours(provider);
        resembles.then(|| PidError::NotAProvider(provider.clone()).into())
    }
}
