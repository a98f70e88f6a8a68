//! The typed arguments of probes: for `fbt`, the parameters and the return value of the function; for tracepoints, the
//! arguments of their listeners.

use std::sync::Arc;

use trapline_d::{
    ArgumentPlace, ArgumentType, Compiler, GuestArgument, GuestArguments, GuestType, GuestTypeId, Options,
    Types,
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
/// Those of x86-64, and its registers for floating-point numbers.
const IN_REGISTERS_64: u8 = 6;
const FLOATS: [&str; 8] = ["xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"];
/// Most words of arguments that are logged; D has names for so many.
const MOST: u8 = 10;

fn guest(ty: GuestTypeId, number: u8) -> GuestArgument {
    GuestArgument { ty: ArgumentType::Guest(ty), place: ArgumentPlace::Words { number, pair: false } }
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
                let (returns, parameters, variadic) = self.signature(self.function_of(probe)?)?;
                Some(self.passed((returns, &parameters), variadic || in_program, self.code_of(probe)))
            }
            (provider, "return") if provider == "fbt" || in_program => {
                let (returns, ..) = self.signature(self.function_of(probe)?)?;
                let mut list = vec![guest(linux::INT, 0)];
                let place = self.returned(returns, self.code_of(probe));
                list.extend(place.map(|place| GuestArgument { ty: ArgumentType::Guest(returns), place }));
                Some(list)
            }
            ("tracepoint", _) => {
                let (_, parameters, _) = self.signature(self.function_of(probe)?)?;
                let own = parameters.into_iter().skip(1).zip(0..MOST);
                Some(own.map(|(ty, number)| guest(ty, number)).collect())
            }
            _ if is_call(probe) => {
                let (returns, parameters, _) = self.signature(self.function_of(probe)?)?;
                Some(self.passed((returns, &parameters), true, self.code_of(probe)))
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
                        place: ArgumentPlace::Words { number, pair: ty.pair },
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

    /// The code of a probe's function.
    fn code_of(&self, probe: &Probe) -> Code {
        let program = match probe.sites.first().map(|site| &site.place) {
            Some(Place::User { module, .. } | Place::UserExit { module, .. }) => Some(module),
            _ => None,
        };
        let narrow = match program {
            Some(program) => program.width() == trapline_emu::load::Width::Bits32,
            None => self.target.width() == Width::W32,
        };
        Code { word: if narrow { 4 } else { 8 }, narrow, in_program: program.is_some() }
    }

    /// Whether a probe is in a 32-bit program of a 64-bit guest.
    pub(super) fn is_of_32_bits(&self, probe: &Probe) -> bool {
        self.target.width() == Width::W64 && self.code_of(probe).narrow
    }

    /// The return type of a function, its parameters, and whether it is variadic.
    fn signature(&self, function: GuestTypeId) -> Option<(GuestTypeId, Vec<GuestTypeId>, bool)> {
        match self.describe(function) {
            GuestType::Function { returns, parameters, variadic } => Some((returns, parameters, variadic)),
            _ => None,
        }
    }

    /// The locations of the parameters. `on_stack`: IA32 code of a program, or a variadic function of the kernel, gets no
    /// arguments in registers.
    fn passed(
        &self,
        signature: (GuestTypeId, &[GuestTypeId]),
        on_stack: bool,
        abi: Code,
    ) -> Vec<GuestArgument> {
        let (returns, parameters) = signature;
        let in_registers = match abi.narrow {
            false => IN_REGISTERS_64,
            true if self.target.image().plan().linux.is_some() && !on_stack => IN_REGISTERS,
            true => 0,
        };
        let mut layout = Layout { abi, in_registers, words: 0, floats: 0, slots: 0, lost: false };
        match self.class(returns, abi) {
            // The address at which the value is to be stored is passed before the others.
            Class::Memory(_) => layout.lost = layout.words(1).is_none(),
            Class::Composite(size) if self.is_stored(size, abi) => layout.lost = layout.words(1).is_none(),
            // A complex number may be stored there too.
            Class::Unknown => layout.lost = abi.narrow,
            _ => {}
        }
        let place = |ty: &GuestTypeId| GuestArgument {
            ty: ArgumentType::Guest(*ty),
            place: layout.place(self.class(*ty, abi)),
        };
        parameters.iter().map(place).collect()
    }

    /// Where a function leaves a value of a type; `None` of `void`.
    fn returned(&self, ty: GuestTypeId, abi: Code) -> Option<ArgumentPlace> {
        Some(match self.class(ty, abi) {
            Class::Nothing => return None,
            Class::Words(1) => ArgumentPlace::Words { number: 1, pair: false },
            Class::Composite(size) if size <= abi.word && !abi.in_program && !self.is_stored(size, abi) => {
                ArgumentPlace::Words { number: 1, pair: false }
            }
            Class::Float(2) if abi.narrow => ArgumentPlace::Unknown,
            Class::Float(size) if abi.narrow || size > 8 => ArgumentPlace::Register("fr0"),
            Class::Float(_) => ArgumentPlace::Register("xmm0"),
            _ => ArgumentPlace::Unknown,
        })
    }

    /// Whether a value of a struct of at most 16 bytes is stored where the first argument says. Linux is compiled with
    /// -freg-struct-return.
    fn is_stored(&self, size: u64, abi: Code) -> bool {
        let is_linux = self.target.image().plan().linux.is_some() && !abi.in_program;
        abi.narrow && !(is_linux && matches!(size, 1 | 2 | 4 | 8))
    }

    /// How a value of a type is passed.
    fn class(&self, id: GuestTypeId, abi: Code) -> Class {
        let words = |size: u64| u8::try_from(size.div_ceil(abi.word)).map_or(Class::Unknown, Class::Words);
        match self.plain(id) {
            GuestType::Void => Class::Nothing,
            GuestType::Int { size, .. } | GuestType::Enum { size, .. } => words(size.into()),
            GuestType::Pointer(_) => words(abi.word),
            GuestType::Float { size } => Class::Float(size),
            GuestType::Composite { size, members: Some(_), .. } if size > 16 => Class::Memory(size),
            GuestType::Composite { size, members: Some(_), .. } => Class::Composite(size),
            _ => Class::Unknown,
        }
    }
}

/// Code by which arguments are passed.
#[derive(Debug, Clone, Copy)]
struct Code {
    /// Bytes of a word.
    word: u64,
    /// Whether it is of 32 bits.
    narrow: bool,
    /// Whether it is that of a program, whose structs may have members of all kinds, and whose language may be another than C.
    in_program: bool,
}

/// How a value is passed (System V ABI for x86-64, 3.2.3; for Intel386, "Function Calling Sequence").
#[derive(Debug, Clone, Copy)]
enum Class {
    Nothing,
    /// In as many words.
    Words(u8),
    /// A floating-point number of so many bytes.
    Float(u8),
    /// A struct or union of at most 16 bytes.
    Composite(u64),
    /// A larger one.
    Memory(u64),
    Unknown,
}

/// Gives parameters their places in order.
struct Layout {
    abi: Code,
    /// Words that are passed in general registers.
    in_registers: u8,
    /// Words in registers so far, floating-point numbers so far, and words on the stack so far.
    words: u8,
    floats: u8,
    slots: u8,
    /// Whether the place of one parameter is not known, and so those of all after it.
    lost: bool,
}

impl Layout {
    fn place(&mut self, class: Class) -> ArgumentPlace {
        let place = match class {
            _ if self.lost => None,
            Class::Words(count @ 1..=2) => self.words(count),
            Class::Float(size) => self.float(size),
            // The members of the kernel's structs are no floating-point numbers.
            Class::Composite(size @ 1..) if !self.abi.in_program => {
                let count = size.div_ceil(self.abi.word) as u8;
                self.words(count).map(|place| if count > 2 { ArgumentPlace::Unknown } else { place })
            }
            Class::Memory(size) if !self.abi.narrow && !self.abi.in_program => {
                u8::try_from(size.div_ceil(self.abi.word)).ok().map(|count| {
                    self.slots = self.slots.saturating_add(count);
                    ArgumentPlace::Unknown
                })
            }
            _ => None,
        };
        self.lost |= place.is_none();
        place.unwrap_or(ArgumentPlace::Unknown)
    }

    /// The place of so many words. What does not fit into the last registers is on the stack; with IA32's registers, so are all
    /// after it. On x86-64, what has two words and lies in registers is no one number, and on the stack it is aligned.
    fn words(&mut self, count: u8) -> Option<ArgumentPlace> {
        let narrow = self.abi.narrow;
        let pair = narrow && count == 2;
        if self.words.saturating_add(count) <= self.in_registers {
            let number = self.words;
            self.words += count;
            return Some(if count == 2 && !narrow {
                ArgumentPlace::Unknown
            } else {
                ArgumentPlace::Words { number, pair }
            });
        }
        if narrow {
            self.words = self.in_registers;
        } else if count > 1 {
            return None;
        }
        self.on_stack(count, pair)
    }

    fn on_stack(&mut self, count: u8, pair: bool) -> Option<ArgumentPlace> {
        let number = self.in_registers.saturating_add(self.slots);
        self.slots = self.slots.saturating_add(count);
        let fits = number.saturating_add(count) <= MOST;
        Some(if fits { ArgumentPlace::Words { number, pair } } else { ArgumentPlace::Unknown })
    }

    fn float(&mut self, size: u8) -> Option<ArgumentPlace> {
        match (self.abi.narrow, size) {
            // Where a kernel with arguments in registers has them is not known; none has any.
            (true, _) if self.in_registers > 0 => None,
            (true, 4 | 8) => self.on_stack(size / 4, size == 8),
            (true, _) => self.on_stack(size.div_ceil(4), false).map(|_| ArgumentPlace::Unknown),
            (false, 2 | 4 | 8) => {
                let register = FLOATS.get(usize::from(self.floats));
                self.floats = self.floats.saturating_add(1);
                register.map_or_else(|| self.on_stack(1, false), |name| Some(ArgumentPlace::Register(name)))
            }
            // A long double lies on the stack, aligned to two words.
            (false, _) => {
                self.slots = self.slots.saturating_add(self.slots % 2 + 2);
                Some(ArgumentPlace::Unknown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Code = Code { word: 8, narrow: false, in_program: true };
    const NARROW: Code = Code { word: 4, narrow: true, in_program: true };

    fn places(abi: Code, in_registers: u8, classes: &[Class]) -> String {
        let mut layout = Layout { abi, in_registers, words: 0, floats: 0, slots: 0, lost: false };
        let place = |class: &Class| match layout.place(*class) {
            ArgumentPlace::Words { number, pair } => format!("{number}{}", if pair { "+" } else { "" }),
            ArgumentPlace::Register(name) => name.to_owned(),
            ArgumentPlace::Unknown => "?".to_owned(),
        };
        classes.iter().map(place).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn integers_and_floats_have_registers_of_their_own_on_x86_64() {
        use Class::{Float, Words};
        let mixed = [Float(8), Words(1), Words(1), Float(4), Words(1)];
        assert_eq!(places(WIDE, 6, &mixed), "xmm0 0 1 xmm1 2");
        // What finds no register is on the stack, in order.
        let all: Vec<Class> = [[Float(8); 9].as_slice(), &[Words(1); 7], &[Float(4), Words(1)]].concat();
        let places_of_all = places(WIDE, 6, &all);
        assert!(places_of_all.ends_with("xmm7 6 0 1 2 3 4 5 7 8 9"), "{places_of_all}");
        // A long double takes two words of the stack, and no register; two words need two registers.
        assert_eq!(places(WIDE, 6, &[Float(16), Words(1), Words(2), Float(8)]), "? 0 ? xmm0");
        assert_eq!(places(WIDE, 6, &[Words(1); 6]), "0 1 2 3 4 5");
        let behind = [Words(1), Words(1), Words(1), Words(1), Words(1), Words(2), Words(1)];
        assert_eq!(places(WIDE, 6, &behind), "0 1 2 3 4 ? ?");
        // How a program passes a struct is not known here, nor where what follows it is.
        assert_eq!(places(WIDE, 6, &[Words(1), Class::Composite(8), Words(1), Float(8)]), "0 ? ? ?");
        let kernel = Code { in_program: false, ..WIDE };
        let structs = [Class::Composite(16), Class::Composite(4), Class::Memory(40), Words(1)];
        assert_eq!(places(kernel, 6, &structs), "? 2 ? 3");
    }

    #[test]
    fn all_are_words_on_the_stack_of_ia32_programs() {
        use Class::{Float, Words};
        assert_eq!(places(NARROW, 0, &[Words(1), Float(8), Float(4), Words(2), Words(1)]), "0 1+ 3 4+ 6");
        assert_eq!(places(NARROW, 0, &[Float(12), Words(1)]), "? 3");
        let kernel = Code { in_program: false, ..NARROW };
        assert_eq!(places(kernel, 3, &[Words(1), Words(1), Words(2), Words(1)]), "0 1 3+ 5");
        assert_eq!(places(kernel, 3, &[Words(1), Float(8), Words(1)]), "0 ? ?");
    }
}
