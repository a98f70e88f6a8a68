//! The typed arguments of probes: for `fbt`, the parameters and the return value of the function; for tracepoints, the
//! arguments of their listeners.

use std::sync::Arc;

use trapline_d::{
    ArgumentType, Compiler, GuestArgument, GuestArguments, GuestType, GuestTypeId, Options, Types,
};
use trapline_emu::symbols::{CName, UserModule};
use trapline_interposer::Place;
use trapline_providers::{Probe, find};
use trapline_rpn::Width;

use super::{GuestTypes, linux, model_of};

/// Most typedefs and qualifiers that are followed to a type.
pub(super) const DEEPEST: usize = 32;
/// Registers of the convention that IA32 kernels of Linux are compiled with.
const IN_REGISTERS: u8 = 3;
/// Most arguments that D has names for.
const MOST: u8 = 10;

fn guest(ty: GuestTypeId, number: u8, pair: bool) -> GuestArgument {
    GuestArgument { ty: ArgumentType::Guest(ty), number, pair }
}

/// The program or library of a function's probe, of the provider `pid`.
fn in_program(probe: &Probe) -> Option<&Arc<UserModule>> {
    let place = &probe.sites.first().filter(|_| probe.name.provider.starts_with("pid"))?.place;
    match place {
        Place::User { module, .. } | Place::UserExit { module, .. } => Some(module),
        _ => None,
    }
}

/// Whether a probe is at calls of a function that does not exist; a static probe whose arguments are described otherwise
/// has types of its own.
fn is_call(probe: &Probe) -> bool {
    let provider = &*probe.name.provider;
    let in_place =
        |place: &Place| matches!(place, Place::LockNop { .. } | Place::Module { .. } | Place::User { .. });
    let is_other = matches!(provider, "fbt" | "tracepoint" | "syscall" | "profile" | "proc" | "sched" | "io");
    !is_other
        && in_program(probe).is_none()
        && probe.types.is_empty()
        && probe.sites.first().is_some_and(|site| in_place(&site.place))
}

/// A name as its symbol has it.
fn undashed(name: &str) -> String {
    name.replace('-', "__")
}

impl GuestTypes {
    /// The types of the arguments of the probes of a description, as C writes them; empty if they are not known.
    #[must_use]
    pub fn argument_names(self: &Arc<Self>, description: &str) -> Vec<String> {
        let GuestArguments::Known(list) = self.probe_arguments(description) else { return Vec::new() };
        let compiler = Compiler::new(model_of(&self.target), Options::default());
        let mut compiler = compiler.with_types(Arc::clone(self) as Arc<dyn Types>);
        let name = |ty: &ArgumentType| match ty {
            ArgumentType::Guest(id) => compiler.type_name(*id),
            ArgumentType::Named { native, translated } if translated.is_empty() => native.clone(),
            ArgumentType::Named { translated, .. } => translated.clone(),
        };
        list.iter().map(|argument| &argument.ty).map(name).collect()
    }

    /// The arguments of the probes of a description.
    pub(super) fn probe_arguments(&self, description: &str) -> GuestArguments {
        let Ok(probes) = find(&self.target, description) else { return GuestArguments::Unknown };
        let mut found = None;
        for probe in &probes {
            let Some(list) = self.arguments_of(probe) else {
                return if found.is_some() { GuestArguments::Different } else { GuestArguments::Unknown };
            };
            match &found {
                Some(before) if *before != list => return GuestArguments::Different,
                _ => found = Some(list),
            }
        }
        found.map_or(GuestArguments::Unknown, GuestArguments::Known)
    }

    pub(super) fn arguments_of(&self, probe: &Probe) -> Option<Vec<GuestArgument>> {
        let name = &probe.name;
        let in_program = in_program(probe).is_some();
        match (&*name.provider, &*name.name) {
            (provider, "entry") if provider == "fbt" || in_program => {
                let (_, parameters, variadic) = self.signature(self.function_of(probe)?)?;
                Some(self.passed(&parameters, variadic || in_program))
            }
            (provider, "return") if provider == "fbt" || in_program => {
                let (returns, ..) = self.signature(self.function_of(probe)?)?;
                let one = |ty, number| guest(ty, number, false);
                let mut list = vec![one(linux::INT, 0)];
                // For a value in two registers, the probe has only the lower half.
                if self.words(returns) == Some(1) {
                    list.push(one(returns, 1));
                }
                Some(list)
            }
            ("tracepoint", _) => {
                let (_, parameters, _) = self.signature(self.function_of(probe)?)?;
                let own = parameters.into_iter().skip(1).zip(0..MOST);
                Some(own.map(|(ty, number)| guest(ty, number, false)).collect())
            }
            _ if is_call(probe) => {
                let (_, parameters, _) = self.signature(self.function_of(probe)?)?;
                Some(self.passed(&parameters, true))
            }
            _ if probe.types.is_empty() => None,
            _ => {
                let mut next = 0;
                let named = |ty: &trapline_providers::ArgumentType| {
                    let number = next;
                    next += 1 + u8::from(ty.pair);
                    let (native, translated) = (ty.native.clone(), ty.translated.clone());
                    let argument = GuestArgument {
                        ty: ArgumentType::Named { native, translated },
                        number,
                        pair: ty.pair,
                    };
                    (next <= MOST).then_some(argument)
                };
                Some(probe.types.iter().map_while(named).collect())
            }
        }
    }

    /// The function whose signature gives the arguments of a probe: its own, or the one that calls the listeners of a
    /// tracepoint.
    pub(super) fn function_of(&self, probe: &Probe) -> Option<GuestTypeId> {
        let name = &probe.name;
        let in_kernel = |function: &str| self.find(CName::Function, Some(&name.module), function);
        match (&*name.provider, in_program(probe)) {
            (_, Some(program)) => self.program_function(program, &name.function),
            // A call of a function that does not exist, which the debugging information of the caller declares.
            ("sdt", _) if is_call(probe) => in_kernel(&format!("__dtrace_probe_{}", undashed(&name.name))),
            (provider, _) if is_call(probe) => {
                let Some(Place::User { module, .. }) = probe.sites.first().map(|site| &site.place) else {
                    return None;
                };
                let function = format!("__dtrace_{}___{}", undashed(provider), undashed(&name.name));
                self.program_function(module, &function)
            }
            ("fbt", _) => in_kernel(&name.function),
            ("tracepoint", _) => in_kernel(&format!("__traceiter_{}", name.name)),
            _ => None,
        }
    }

    /// The return type of a function, its parameters, and whether it is variadic.
    fn signature(&self, function: GuestTypeId) -> Option<(GuestTypeId, Vec<GuestTypeId>, bool)> {
        match self.describe(function) {
            GuestType::Function { returns, parameters, variadic } => Some((returns, parameters, variadic)),
            _ => None,
        }
    }

    /// The locations of the parameters, up to the first one whose location is unknown. `on_stack`: IA32 code of a program, or
    /// a variadic function of the kernel, gets no arguments in registers.
    fn passed(&self, parameters: &[GuestTypeId], on_stack: bool) -> Vec<GuestArgument> {
        let is_linux = self.target.image().plan().linux.is_some();
        let narrow = self.target.width() == Width::W32;
        let mut next = 0;
        let mut list = Vec::new();
        for ty in parameters {
            let Some(words) = self.words(*ty).filter(|words| (1..=2).contains(words)) else { break };
            // A parameter that does not fit into the last register is on the stack, and so are all after it.
            if narrow && is_linux && !on_stack && next < IN_REGISTERS && next + words > IN_REGISTERS {
                next = IN_REGISTERS;
            }
            if next + words > MOST {
                break;
            }
            list.push(guest(*ty, next, narrow && words == 2));
            next += words;
        }
        list
    }

    /// Number of words of the guest that a value takes; `None` if it is unknown, 0 for `void`.
    fn words(&self, mut id: GuestTypeId) -> Option<u8> {
        let word = u64::from(self.target.width().bits() / 8);
        for _ in 0..DEEPEST {
            let size = match self.describe(id) {
                GuestType::Typedef { to, .. } | GuestType::Qualified { to, .. } => {
                    id = to;
                    continue;
                }
                GuestType::Void => 0,
                GuestType::Int { size, .. } | GuestType::Enum { size, .. } => size.into(),
                GuestType::Pointer(_) => word,
                GuestType::Composite { size, members: Some(_), .. } => size,
                _ => return None,
            };
            return u8::try_from(size.div_ceil(word)).ok();
        }
        None
    }
}
