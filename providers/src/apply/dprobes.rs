//! Resolves the locations of an RPN program (dprobes.lang(8), PROBE POINTS; docs/providers.md, "Kernel and user").
//!
//! `modtype = kernel`: a symbol is its address, a plain number counts from the start of the kernel's text, and a quoted
//! `"file.c:123"` is the start of the code of that source line.
//! `modtype = user`: symbols and numbers are file offsets in the module of that path or, if it is the only one, of that file name. `address =` is a linear
//! address in the kernel. A watchpoint accepts any address, inside the kernel's image or not, mapped or not.
//! `modtype = kmod`: a symbol is that of the module's file, a plain number counts from the start of its `.text`.

use std::sync::Arc;

use trapline_emu::WatchKind;
use trapline_emu::symbols::{Ambiguous, KernelModule, UserModule};
use trapline_interposer::{Place, Point, Processes};
use trapline_rpn::{
    Diagnostic, Diagnostics, LinkedProbe, LinkedProgram, LocationForm, ModType, Program, Severity,
    SymbolResolver, Watch, services,
};

use super::expand::{Resolved, expand, find};
use crate::catalog::reasons;
use crate::target::{
    Abi, Code, KERNEL, NoModule, Refusal, SourceError, SourceLines, SourcePlace, Target, basename,
};

/// Most near misses that an error names.
const SUGGESTIONS: usize = 3;

/// Links `program` against `target` and checks every probe point by the target's files.
///
/// # Errors
/// All errors: an unknown module, unknown symbols with near misses, or for each probe point why it cannot be
/// armed.
pub fn resolve(target: &Target, program: &Program) -> Result<Resolved, Diagnostics> {
    let scope = Scope::find(target, program)?;
    let mut linked = program.link(target.width(), &scope)?;
    let (mut probes, mut points) = (Vec::new(), Vec::new());
    let mut refused = Diagnostics::default();
    let mut convention = None;
    for probe in &linked.probes {
        match scope.points(probe, &mut probes, &mut points) {
            Ok(found) => convention = convention.or(found),
            Err(error) => {
                let found = linked.location_error(probe, error.code, error.message, error.help);
                if refused.list.len() < Diagnostics::LIMIT {
                    refused.list.extend(found.list);
                } else {
                    refused.more += found.list.len();
                }
            }
        }
    }
    linked.probes = probes;
    if refused.list.is_empty() { Ok(Resolved { program: linked, points, convention }) } else { Err(refused) }
}

/// The diagnostic for a probe point of `program` that the interposer refused for the reason `kind`.
pub fn insert_error(program: &LinkedProgram, probe: usize, kind: &dyn std::fmt::Display) -> Diagnostics {
    match program.probes.get(probe) {
        Some(point) => program.location_error(point, "not-armed", kind.to_string(), None),
        None => Diagnostics::default(),
    }
}

/// Why a location cannot be resolved.
struct LocationError {
    code: &'static str,
    message: String,
    help: Option<String>,
}

/// Where the names of a program are looked up.
pub(crate) struct Scope<'a> {
    target: &'a Target,
    /// The module of a user program.
    module: Option<&'a Arc<UserModule>>,
    /// The processes that may have it mapped.
    processes: Option<Arc<Processes>>,
    /// The module of a program for a kernel module.
    kernel_module: Option<&'a Arc<KernelModule>>,
}

impl<'a> Scope<'a> {
    /// The location of a source line: an address in the kernel, an offset in a program's file. `None` for
    /// other names, in handlers, and in programs of kernel modules.
    fn source_line(&self, module: Option<&str>, name: &str) -> Option<Result<u64, SourceError>> {
        let place = SourcePlace::parse(name).filter(|_| module.is_some() && self.kernel_module.is_none())?;
        let Some(program) = self.module else {
            return Some(self.target.lines().address(place, self.target.symbols(), KERNEL));
        };
        let lines = SourceLines::new(vec![program.shared_bytes()]);
        let found = lines.address(place, program.symbols(), basename(program.name()));
        Some(found.map(|address| program.vaddr_to_offset(address).unwrap_or(address)))
    }

    /// The address of a symbol of the user program, which its handlers push. `None` if it has no such symbol.
    fn in_program(&self, name: &str) -> Option<Result<u64, String>> {
        let program = self.module?;
        let symbol = match program.symbols().named(name).one() {
            Ok(symbol) => symbol?,
            Err(ambiguous) => return Some(Err(ambiguous.to_string())),
        };
        if program.is_dynamic() {
            let program = basename(program.name());
            return Some(Err(format!("`{name}` has no fixed address: {program} can be mapped anywhere")));
        }
        Some(Ok(symbol.addr))
    }

    /// Why handlers cannot push a symbol of their own kernel module.
    fn in_kernel_module(&self, name: &str) -> Option<(String, Option<String>)> {
        let module = self.kernel_module?;
        module.file().symbols().all(name).next()?;
        let why = format!(
            "`{name}` has no fixed address: the guest decides where it loads the module {}",
            module.name()
        );
        let help = "compute the address from a register; symbols of the kernel can be pushed".to_owned();
        Some((why, Some(help)))
    }

    /// Several symbols with the name, where it is looked up.
    fn ambiguous(&self, module: Option<&str>, name: &str) -> Option<Ambiguous> {
        let own = self.file().filter(|file| module.is_some() || file.symbols().all(name).next().is_some());
        own.map_or(self.target.symbols(), UserModule::symbols).named(name).one().err()
    }

    /// Looks names up in the kernel.
    pub fn kernel_of(target: &'a Target) -> Self {
        Self { target, module: None, processes: None, kernel_module: None }
    }

    /// The file for names and offsets, if it is not the kernel.
    fn file(&self) -> Option<&'a UserModule> {
        self.module.map(Arc::as_ref).or(self.kernel_module.map(|module| module.file()))
    }

    /// Adds the place of a probe point, or the sites of the probes that its description matches. Returns the convention
    /// by which their arguments are found, if it was derived from the kernel's code.
    fn points(
        &self,
        probe: &LinkedProbe,
        probes: &mut Vec<LinkedProbe>,
        points: &mut Vec<Point>,
    ) -> Result<Option<Abi>, LocationError> {
        let Some(text) = description(probe) else {
            let place = self.place(probe)?;
            let mut probe = probe.clone();
            if let (Place::Kernel { linear, .. }, Some(base)) = (&place, self.target.text_base()) {
                probe.location.offset = linear.wrapping_sub(base) & self.target.width().mask();
            }
            if let Place::Module { module, offset } = &place {
                probe.location.offset = offset.wrapping_sub(module.text_offset(0).unwrap_or_default());
            }
            let mut point = Point::from(place);
            // A page with the same bytes may belong to another file.
            point.processes.clone_from(&self.processes);
            probes.push(probe);
            points.push(point);
            return Ok(None);
        };
        let refused = |code, message| LocationError { code, message, help: None };
        if let Some(module) = self.file() {
            let what = if self.module.is_some() { "user" } else { "kernel" };
            let message = format!(
                "\"{text}\" describes probes of the kernel, but {} is a {what} module",
                module.name()
            );
            let help = Some("write modtype = kernel for probes of the kernel".to_owned());
            return Err(LocationError { code: "not-kernel", message, help });
        }
        let found = find(self.target, text).map_err(|error| refused("no-probe", error.to_string()))?;
        let mut convention = None;
        for one in &found {
            let added = expand(self.target, &|_| Some(probe), one, probes, points);
            convention = convention.or(added.map_err(|error| refused("no-argument", error.to_string()))?);
        }
        Ok(convention)
    }

    fn find(target: &'a Target, program: &Program) -> Result<Self, Diagnostics> {
        let name = &program.header.name;
        match program.header.modtype {
            ModType::Kernel => Ok(Self::kernel_of(target)),
            ModType::Kmod => match target.kernel_module_named(name) {
                Ok(module) => Ok(Self { kernel_module: Some(module), ..Self::kernel_of(target) }),
                Err(why) => Err(unknown_kernel_module(target, program, &why)),
            },
            ModType::User => match target.module(name) {
                Ok(module) => {
                    let processes = Some(Arc::new(target.programs().holders().of([module])));
                    Ok(Self { module: Some(module), processes, ..Self::kernel_of(target) })
                }
                Err(why) => Err(unknown_module(target, program, &why)),
            },
        }
    }

    fn place(&self, probe: &LinkedProbe) -> Result<Place, LocationError> {
        let location = &probe.location;
        if let Some(watch) = probe.watch {
            return Ok(watched(watch, probe));
        }
        match (self.module, self.kernel_module, location.form) {
            (None, None, _) => self.kernel(probe),
            (Some(module), _, LocationForm::Offset) => self.user(module, probe),
            (_, Some(module), LocationForm::Offset) => kernel_module(module, probe),
            (Some(_), _, LocationForm::Address) => Err(LocationError {
                code: "address-in-user",
                message: "address = is for kernel programs only; a probe in a user module has an offset"
                    .to_owned(),
                help: Some("write offset = SYMBOL, or offset = and a file offset".to_owned()),
            }),
            (_, Some(_), LocationForm::Address) => Err(LocationError {
                code: "address-in-user",
                message: "address = is for kernel programs only; the address of a kernel module depends on where the guest loads it"
                    .to_owned(),
                help: Some(
                    "write offset = SYMBOL, or offset = and a number from the start of .text".to_owned(),
                ),
            }),
        }
    }

    fn kernel(&self, probe: &LinkedProbe) -> Result<Place, LocationError> {
        let location = &probe.location;
        let linear = match (location.form, &location.symbol) {
            (LocationForm::Offset, None) => {
                let base = self.target.text_base().ok_or_else(|| LocationError {
                    code: "no-text",
                    message:
                        "the kernel has no _text, .text or executable segment for a plain number to count from"
                            .to_owned(),
                    help: Some("write address = and a linear address".to_owned()),
                })?;
                base.wrapping_add(location.value) & self.target.width().mask()
            }
            _ => location.value,
        };
        let plan = self.target.image().plan();
        let code = Code::Kernel { plan, symbols: self.target.symbols() };
        code.check(linear, probe.opcode)?;
        match plan.vaddr_to_paddr(linear) {
            Some(paddr) => Ok(Place::Kernel { linear, paddr }),
            None => Err(LocationError {
                code: "not-mapped",
                message: format!("{} is not in the image", code.place(linear)),
                help: None,
            }),
        }
    }

    fn user(&self, module: &Arc<UserModule>, probe: &LinkedProbe) -> Result<Place, LocationError> {
        let location = &probe.location;
        if let Some(symbol) = &location.symbol
            && SourcePlace::parse(symbol).is_none()
            && module.symbol_offset(symbol).is_none()
        {
            return Err(LocationError {
                code: "not-mapped",
                message: format!("`{symbol}` has no bytes in the file {}", basename(module.name())),
                help: None,
            });
        }
        Code::User(module).check(location.value, probe.opcode)?;
        Ok(Place::User { module: Arc::clone(module), offset: location.value })
    }
}

/// A place in a kernel module's file. The value of a symbol is its file offset.
fn kernel_module(module: &Arc<KernelModule>, probe: &LinkedProbe) -> Result<Place, LocationError> {
    let location = &probe.location;
    let offset = match location.symbol {
        Some(_) => Some(location.value),
        None => module.text_offset(location.value),
    };
    let offset = offset.ok_or_else(|| LocationError {
        code: "no-text",
        message: format!("{} has no section .text for a plain number to count from", module.name()),
        help: Some("write offset = and a symbol of the module".to_owned()),
    })?;
    Code::User(module.file()).check(offset, probe.opcode)?;
    Ok(Place::Module { module: Arc::clone(module), offset })
}

/// The place of a watchpoint. The interposer checks whether the hardware could watch it.
fn watched(watch: Watch, probe: &LinkedProbe) -> Place {
    let kind = match watch {
        Watch::Execute => WatchKind::Execute,
        Watch::Write => WatchKind::Write,
        Watch::ReadWrite => WatchKind::ReadWrite,
        Watch::Io => WatchKind::Io,
    };
    let low = probe.location.value;
    Place::Watch(trapline_emu::Watch { kind, low, high: probe.location.end.unwrap_or(low) })
}

/// The description in place of a symbol: a text with a colon, which no symbol contains, that is not a source line.
fn description(probe: &LinkedProbe) -> Option<&str> {
    let location = &probe.location;
    let is_one = |text: &&str| text.contains(':') && SourcePlace::parse(text).is_none();
    location.symbol.as_deref().filter(|text| location.form == LocationForm::Offset && is_one(text))
}

impl From<Refusal> for LocationError {
    fn from(refusal: Refusal) -> Self {
        Self { code: refusal.code(), message: refusal.to_string(), help: refusal.help() }
    }
}

impl SymbolResolver for Scope<'_> {
    fn resolve(&self, module: Option<&str>, name: &str) -> Option<u64> {
        if let Some(service) = name.strip_prefix(services::PREFIX) {
            return self.target.services().number(service);
        }
        if let (Some(_), Some(module)) = (module, self.kernel_module) {
            return module.file().symbols().named(name).one().ok()?.map(|symbol| symbol.addr);
        }
        match (module, self.module) {
            (Some(_), Some(program)) => match program.symbols().named(name).one().ok()? {
                // A symbol without bytes in the file is known, but has no place: `Scope::user` reports it.
                Some(symbol) => Some(program.vaddr_to_offset(symbol.addr).unwrap_or(symbol.addr)),
                None => self.source_line(module, name)?.ok(),
            },
            (None, None) if self.in_kernel_module(name).is_some() => None,
            (None, Some(_)) if self.in_program(name).is_some() => self.in_program(name)?.ok(),
            (module, _) => match self.target.symbols().named(name).one().ok()? {
                Some(symbol) => Some(symbol.addr),
                None => self.source_line(module, name)?.ok(),
            },
        }
    }

    fn refusal(&self, module: Option<&str>, name: &str) -> Option<(String, Option<String>)> {
        if let Some(service) = name.strip_prefix(services::PREFIX) {
            let known: Vec<&str> = self.target.services().names().collect();
            let help = match known.as_slice() {
                [] => "a program that embeds Trapline can register services (docs/embedding.md)".to_owned(),
                known => format!("the registered services are {}", known.join(", ")),
            };
            return Some((format!("no service `{service}` is registered"), Some(help)));
        }
        if let Some(ambiguous) = self.ambiguous(module, name) {
            let help = match (module, self.file()) {
                (Some(_), None) => {
                    "write an address, or a probe description such as `fbt::NAME:entry`, which means all of them"
                }
                (Some(_), Some(_)) => {
                    "write offset = and the file offset of the one that is meant, or FILE.c:LINE in quotes"
                }
                (None, _) => "push the address of the one that is meant",
            };
            return Some((ambiguous.to_string(), Some(help.to_owned())));
        }
        if let (None, Some(Err(why))) = (module, self.in_program(name)) {
            let help =
                "link the program with -no-pie for fixed addresses, or compute the address from a register";
            return Some((why, Some(help.to_owned())));
        }
        if let (None, Some(refused)) = (module, self.in_kernel_module(name)) {
            return Some(refused);
        }
        let error = self.source_line(module, name)?.err()?;
        Some((error.to_string(), error.help()))
    }

    fn suggest(&self, module: Option<&str>, name: &str) -> Vec<String> {
        let symbols = match (module, self.file()) {
            (Some(_), Some(module)) => module.symbols(),
            _ => self.target.symbols(),
        };
        symbols.near_misses(name, SUGGESTIONS).into_iter().map(str::to_owned).collect()
    }
}

/// The name means a place where no module is, or several modules.
fn misnamed(program: &Program, why: &NoModule) -> Option<Diagnostics> {
    if *why == NoModule::Unknown {
        return None;
    }
    let help = "write name = and the module's path in the guest, in quotes";
    Some(about_name(program, "unknown-module", why.to_string(), Some(help.to_owned())))
}

fn unknown_kernel_module(target: &Target, program: &Program, why: &NoModule) -> Diagnostics {
    if let Some(misnamed) = misnamed(program, why) {
        return misnamed;
    }
    let name = &program.header.name;
    let known: Vec<String> = target.kernel_modules().iter().map(|m| format!("`{}`", m.name())).collect();
    let message = if known.is_empty() {
        format!("no kernel module `{name}`: no kernel module's file is known")
    } else {
        format!("no kernel module `{name}`; the known ones are {}", known.join(", "))
    };
    let help = "--file /PATH/NAME.ko=FILE gives its file; those of an initial RAM disk are known. modtype = kernel \
                names the kernel's own image";
    about_name(program, "unknown-module", with_unread(target, message), Some(help.to_owned()))
}

/// The message, and the files that could not be read: the module may be one of them.
fn with_unread(target: &Target, message: String) -> String {
    message + &reasons(target.unread())
}

fn unknown_module(target: &Target, program: &Program, why: &NoModule) -> Diagnostics {
    if let Some(misnamed) = misnamed(program, why) {
        return misnamed;
    }
    let name = &program.header.name;
    let known: Vec<String> = target.modules().iter().map(|m| format!("`{}`", basename(m.name()))).collect();
    let message = if known.is_empty() {
        format!("no user module `{name}`: no module was given")
    } else {
        format!("no user module `{name}`; the known ones are {}", known.join(", "))
    };
    let help = if basename(name) == basename(&target.image().plan().name) || name == "vmlinux" {
        "write modtype = kernel for a probe in the kernel; without modtype it is in a user program"
    } else {
        "add the program with --module FILE, or with --file /PATH/IN/GUEST=FILE if the guest has it; name = must be its name"
    };
    about_name(program, "unknown-module", with_unread(target, message), Some(help.to_owned()))
}

/// A diagnostic that points at the value of `name =`.
fn about_name(program: &Program, code: &'static str, message: String, help: Option<String>) -> Diagnostics {
    let sources = &program.sources;
    let main = sources.main();
    let found = (1..=sources.line_count(main))
        .find_map(|line| name_value(sources.line(main, line)).map(|at| (line, at)));
    let (line, (col, len)) = found.unwrap_or((0, (0, 0)));
    let diagnostic = Diagnostic {
        severity: Severity::Error,
        code,
        file: sources.name(main).to_owned(),
        line,
        col,
        len,
        message,
        notes: Vec::new(),
        help,
        source: sources.line(main, line).to_owned(),
    };
    Diagnostics { list: vec![diagnostic], more: 0 }
}

/// Column, from 1, and length in characters of the value, if the line is a `name =` statement.
fn name_value(line: &str) -> Option<(u32, u32)> {
    let (key, rest) = line.split_once('=')?;
    if !key.trim().eq_ignore_ascii_case("name") {
        return None;
    }
    let value = rest.trim_start();
    let before = key.chars().count() + 1 + rest.chars().count() - value.chars().count();
    let len = match value.strip_prefix('"') {
        Some(quoted) => quoted.chars().take_while(|c| *c != '"').count() + 2,
        None => value.chars().take_while(|c| !c.is_whitespace()).count(),
    };
    Some((u32::try_from(before + 1).ok()?, u32::try_from(len.max(1)).ok()?))
}
