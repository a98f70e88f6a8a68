//! What a probe without a handler logs: its arguments by their types, with the texts and the structs that they point to.
//!
//! A handler logs the words of the arguments first, then for each pointer what can be read there. The kernel's types
//! decide what is read, so the handler is known before the run.

use std::fmt::Write as _;
use std::sync::Arc;

use trapline_d::{ArgumentPlace, GuestTypeId};
use trapline_providers::{Probe, Site, Typed, TypedLog};
use trapline_rpn::{Argument, Width};
use trapline_trace::{Call, CallArgument, CallForm, Field, Layout, Members, Pointee, Shape};

use super::GuestTypes;
use super::shapes::Reader;

/// System calls whose `buf` has `count` bytes.
const WRITES: [&str; 2] = ["write", "pwrite64"];
/// How the names of a 64-bit kernel's handlers for 32-bit programs begin, and of those with types of their own.
const OF_32_BITS: &str = "__ia32_";
const COMPAT: &str = "__ia32_compat_sys_";
/// Bytes of the prefix of a piece of data.
const PREFIX: u32 = 3;

impl Typed for GuestTypes {
    fn log(&self, probe: &Probe, site: &Site) -> Option<TypedLog> {
        let is_known = site.arguments.has(Argument::Returned);
        let form = match (&*probe.name.name, site.tail_call && !is_known) {
            (_, true) => CallForm::TailCall,
            ("return", _) => CallForm::Return,
            _ => CallForm::Entry,
        };
        // Without a name, the words of a static probe tell no less.
        let is_view = matches!(&*probe.name.provider, "syscall" | "proc" | "sched" | "io");
        if !is_view && !probe.types.is_empty() && probe.types.iter().all(|ty| ty.name.is_empty()) {
            return None;
        }
        let mut arguments = self.arguments_of(probe)?;
        let is_syscall = &*probe.name.provider == "syscall";
        let names = self.parameter_names(probe);
        let first = match form {
            CallForm::Entry => 0,
            // Argument 0 is the offset of the return; that of a system call is the value itself.
            CallForm::Return | CallForm::TailCall => 1,
        };
        if form == CallForm::TailCall {
            arguments.truncate(1);
        }
        let words = arguments.iter().map(|argument| end(argument.place)).max().unwrap_or(0);
        let there = |n| site.arguments.has(Argument::Number(n));
        if !(0..words).all(there) {
            return None;
        }
        let reader = Reader { types: self, is_syscall };
        let within = site.within.as_deref().unwrap_or_default();
        let narrow = match is_syscall {
            true => self.target.width() == Width::W64 && within.starts_with(OF_32_BITS),
            false => self.is_of_32_bits(probe),
        };
        let mut logged =
            LoggedWords { words, registers: Vec::new(), wide: self.target.width() == Width::W64 };
        let own_types = within.starts_with(COMPAT);
        let shown = arguments.iter().enumerate().skip(first);
        let mut arguments: Vec<CallArgument> = shown
            .map(|(n, argument)| {
                let (shape, type_name) = reader.shape(probe, &names, n, &argument.ty);
                let shape = if narrow { of_32_bits(shape, own_types) } else { shape };
                let name = match form {
                    CallForm::Entry => name_of(&names, n),
                    CallForm::Return | CallForm::TailCall => String::new(),
                };
                let (word, pair, shape) = logged.place(argument.place, shape);
                CallArgument { name, type_name, word, pair, length: None, shape }
            })
            .collect();
        if is_syscall && WRITES.contains(&&*probe.name.function) {
            bounded(&mut arguments);
        }
        let word = u32::from(self.target.width().bits() / 8);
        let all = logged.count();
        let mut code = Code { text: String::new(), most: u32::from(all) * word, labels: 0, word };
        code.words(words, &logged.registers, all);
        arguments.iter().for_each(|argument| code.argument(argument));
        // A view, such as `proc:::create`, is not the function that it looks at.
        let name = &probe.name;
        let is_function = matches!(&*name.provider, "fbt" | "syscall") || name.provider.starts_with("pid");
        let function = if is_function { name.function.to_string() } else { name.name.to_string() };
        let layout = Arc::new(Layout::Call(Call { function, form, words: all, arguments }));
        Some(TypedLog { code: code.text, most: code.most.max(1), layout })
    }
}

/// The word behind those of an argument. One that is not shown counts as the first, so that there is one.
const fn end(place: ArgumentPlace) -> u8 {
    match place {
        ArgumentPlace::Words { number, pair } => number + 1 + pair as u8,
        ArgumentPlace::Register(_) => 0,
        ArgumentPlace::Unknown => 1,
    }
}

/// The words that are logged before everything else: those of arguments, then registers.
struct LoggedWords {
    words: u8,
    registers: Vec<&'static str>,
    wide: bool,
}

impl LoggedWords {
    /// Words of a register: of 128 bits, or of the x87's 80.
    fn size(&self, register: &str) -> u8 {
        match (self.wide, register.starts_with("xmm")) {
            (true, _) => 2,
            (false, true) => 4,
            (false, false) => 3,
        }
    }

    fn count(&self) -> u8 {
        self.words + self.registers.iter().map(|register| self.size(register)).sum::<u8>()
    }

    /// The word that holds a value, whether the next one holds its upper half, and how it is shown there.
    fn place(&mut self, place: ArgumentPlace, shape: Shape) -> (u8, bool, Shape) {
        match (place, shape) {
            (ArgumentPlace::Words { number, pair }, shape) => (number, pair, shape),
            (ArgumentPlace::Register(register), Shape::Float { bits }) => {
                let word = self.count();
                self.registers.push(register);
                let in_x87 = !register.starts_with("xmm");
                (word, false, if in_x87 { Shape::Extended { bits } } else { Shape::Float { bits } })
            }
            (ArgumentPlace::Register(_) | ArgumentPlace::Unknown, _) => (0, false, Shape::Inside),
        }
    }
}

/// What a call of a 32-bit program passes to a 64-bit kernel. Of a struct, only what lies at the same place for both is shown,
/// and nothing where the kernel has a handler with types of its own, which its prototype does not tell; there a `long` has
/// 32 bits.
fn of_32_bits(shape: Shape, own_types: bool) -> Shape {
    match shape {
        Shape::Int { bits, signed } if own_types => Shape::Int { bits: bits.min(32), signed },
        Shape::Pointer(Pointee::Struct(members)) if own_types || !is_same_in_32_bits(&members) => {
            Shape::Pointer(Pointee::Unread)
        }
        other => other,
    }
}

/// Whether the members that are shown follow each other from the start, and none is as wide as a word or as what has another
/// alignment.
fn is_same_in_32_bits(members: &Members) -> bool {
    let mut end = 0;
    members.fields.iter().all(|field| {
        let follows =
            std::mem::replace(&mut end, field.bit_offset.saturating_add(field.bits)) == field.bit_offset;
        let is_narrow = match field.shape {
            Shape::Characters => true,
            Shape::Pointer(_) | Shape::Inside | Shape::Elements => false,
            _ => field.bits <= 32,
        };
        follows && is_narrow
    })
}

/// Says which argument holds the length of the text that a system call writes.
fn bounded(arguments: &mut [CallArgument]) {
    let count = arguments.iter().find(|argument| argument.name == "count").map(|count| count.word);
    for argument in arguments.iter_mut().filter(|argument| argument.name == "buf") {
        argument.length = count;
    }
}

/// The name of an argument, or its number.
fn name_of(names: &[String], n: usize) -> String {
    names.get(n).filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| format!("arg{n}"))
}

/// The instructions of a handler.
struct Code {
    text: String,
    /// The most bytes that they log.
    most: u32,
    labels: usize,
    /// Bytes of the guest's word.
    word: u32,
}

impl Code {
    /// Logs the first arguments as words, and registers behind them.
    fn words(&mut self, words: u8, registers: &[&str], all: u8) {
        for register in registers.iter().rev() {
            self.line(format_args!("push u, {register}"));
        }
        for n in (0..words).rev() {
            self.line(format_args!("push arg, {n}"));
        }
        if all > 0 {
            self.line(format_args!("log {all}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Logs what an argument points to.
    fn argument(&mut self, argument: &CallArgument) {
        let base = format!("push arg, {}", argument.word);
        match &argument.shape {
            Shape::Pointer(Pointee::Text(most)) => self.read("log str", &base, (*most).into()),
            Shape::Pointer(Pointee::Struct(Members { reads, fields, .. })) => {
                for (offset, length) in reads {
                    self.read("log mrf", &at(&base, *offset), *length);
                }
                fields.iter().for_each(|field| self.pointed_to(&base, field));
            }
            _ => {}
        }
    }

    /// Logs the text that a member points to.
    fn pointed_to(&mut self, base: &str, Field { bit_offset, shape, .. }: &Field) {
        if let Shape::Pointer(Pointee::Text(most)) = shape {
            let load = format!("{}\npush mem, u{}", at(base, bit_offset / 8), self.word * 8);
            self.read("log str", &load, (*most).into());
        }
    }

    /// Logs `most` bytes at an address. What cannot be read is logged as such, and the handler goes on.
    fn read(&mut self, instruction: &str, address: &str, most: u64) {
        let label = self.labels;
        self.labels += 1;
        self.line(format_args!("sx caught{label}\npush {most}\n{address}\n{instruction}\ncaught{label}:"));
        let logged = u32::try_from(most).unwrap_or(u32::MAX).max(self.word);
        self.most = self.most.saturating_add(PREFIX + logged);
    }
}

/// The instructions that push an address some bytes behind another.
fn at(base: &str, offset: u64) -> String {
    if offset == 0 { base.to_owned() } else { format!("{base}\npush {offset}\nadd") }
}

impl GuestTypes {
    /// The names of a probe's arguments, as far as they are known.
    fn parameter_names(&self, probe: &Probe) -> Vec<String> {
        let name = &probe.name;
        if !probe.types.is_empty() {
            return probe.types.iter().map(|ty| ty.name.clone()).collect();
        }
        let skipped = usize::from(&*name.provider == "tracepoint");
        let names = self.function_of(probe).map(|id| self.names_of(id));
        names.unwrap_or_default().into_iter().skip(skipped).collect()
    }

    fn names_of(&self, id: GuestTypeId) -> Vec<String> {
        self.file(id.file).map(|file| file.info.parameter_names(id.id)).unwrap_or_default()
    }
}
