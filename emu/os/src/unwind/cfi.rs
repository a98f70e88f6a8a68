//! Call frame information: `.eh_frame` (Linux Standard Base, "Exception Frames") and `.debug_frame` (DWARF 5, section
//! 6.4) of an ELF file. gimli reads it; this module adds an index by address, and applies a row of its tables to
//! registers.
//!
//! The file is not trusted: data that gimli refuses ends the index or the walk, and an expression is cut off after
//! [`MAX_OPERATIONS`].

use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EhFrameHdr, Encoding, EndianArcSlice, EvaluationResult,
    LittleEndian, Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};
use goblin::elf::program_header::{PT_GNU_EH_FRAME, PT_LOAD};
use trapline_emu::load::{ElfView, Width};

use super::{Memory, SP, State, Step};

type Reader = EndianArcSlice<LittleEndian>;

/// Most operations of one DWARF expression.
const MAX_OPERATIONS: u32 = 1000;
/// SHF_COMPRESSED.
const COMPRESSED: u64 = 0x800;

/// General registers by DWARF's numbers on x86-64 (System V ABI, figure 3.36); on IA32 they are the machine's.
const WIDE: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// Which section an entry is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    Eh,
    Debug,
}

/// Where the entry of a range of addresses is.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: u64,
    end: u64,
    table: Table,
    offset: usize,
}

/// The call frame information of a file, at linked addresses.
pub(super) struct Cfi {
    eh: EhFrame<Reader>,
    debug: DebugFrame<Reader>,
    bases: BaseAddresses,
    wide: bool,
    /// By start; where ranges overlap, the one that begins last counts.
    index: Vec<Place>,
    context: UnwindContext<usize>,
}

impl Cfi {
    /// The call frame information of the ELF file `bytes`, if it has any. Compressed sections are left out. In a file
    /// without the section `.eh_frame`, the segment PT_GNU_EH_FRAME gives its place.
    pub(super) fn from_elf(bytes: &[u8]) -> Option<Self> {
        let view = ElfView::parse(bytes).ok()?;
        let named = |name: &str| {
            let section = view.sections().iter().find(|section| section.name == name);
            section.filter(|section| section.flags & COMPRESSED == 0)
        };
        let load = |name: &str| {
            let section = named(name)?;
            Some((section.addr, view.section_bytes(section).ok()?))
        };
        let reader = |bytes: &[u8]| Reader::new(Arc::from(bytes), LittleEndian);
        let (eh_address, eh) = load(".eh_frame").or_else(|| by_segment(&view)).unwrap_or_default();
        let address = |name: &str| named(name).map_or(0, |section| section.addr);
        let bases = BaseAddresses::default()
            .set_eh_frame(eh_address)
            .set_text(address(".text"))
            .set_got(address(".got"));
        let wide = view.width() == Width::Bits64;
        let debug = load(".debug_frame").unwrap_or_default().1;
        let (mut eh, mut debug) = (EhFrame::from(reader(eh)), DebugFrame::from(reader(debug)));
        let size = if wide { 8 } else { 4 };
        eh.set_address_size(size);
        debug.set_address_size(size);
        let mut index = places(&eh, &bases, Table::Eh);
        index.extend(places(&debug, &bases, Table::Debug));
        index.sort_by_key(|place| (place.start, place.table == Table::Eh));
        let context = UnwindContext::new();
        (!index.is_empty()).then_some(Self { eh, debug, bases, wide, index, context })
    }

    /// Whether the file's code is 64-bit code.
    pub(super) fn wide(&self) -> bool {
        self.wide
    }

    /// Goes to the caller of code of this file, which is loaded `bias` bytes above where it is linked; `None` without
    /// an entry for that address.
    pub(super) fn step(&mut self, memory: &dyn Memory, state: &mut State, bias: u64) -> Option<Step> {
        let at = state.within().wrapping_sub(bias);
        let at = if self.wide { at } else { at & u64::from(u32::MAX) };
        let next = self.index.partition_point(|place| place.start <= at);
        let place = *self.index.get(next.checked_sub(1)?)?;
        if at >= place.end {
            return None;
        }
        let Self { eh, debug, bases, context, .. } = self;
        Some(match place.table {
            Table::Eh => Row { section: eh, bases, memory }.step(context, place.offset, at, state),
            Table::Debug => Row { section: debug, bases, memory }.step(context, place.offset, at, state),
        })
    }
}

/// Address and bytes of the data that `.eh_frame_hdr` points to, up to the end of the segment that holds it, as far as
/// the file goes.
fn by_segment<'a>(view: &ElfView<'a>) -> Option<(u64, &'a [u8])> {
    let header = view.programs().iter().find(|program| program.p_type == PT_GNU_EH_FRAME)?;
    let at = |address: u64| {
        let holds = |program: &&goblin::elf::ProgramHeader| {
            let into = address.checked_sub(program.p_vaddr);
            program.p_type == PT_LOAD && into.is_some_and(|into| into < program.p_filesz)
        };
        let program = view.programs().iter().find(holds)?;
        let end = program.p_offset.checked_add(program.p_filesz)?.min(view.bytes().len() as u64);
        let start = program.p_offset.checked_add(address - program.p_vaddr)?;
        view.bytes().get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    };
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr);
    let size = if view.width() == Width::Bits64 { 8 } else { 4 };
    let parsed = EhFrameHdr::new(at(header.p_vaddr)?, LittleEndian).parse(&bases, size).ok()?;
    let address = parsed.eh_frame_ptr().direct().ok()?;
    Some((address, at(address)?))
}

/// The ranges of all entries up to the first that is damaged.
fn places<S: UnwindSection<Reader>>(section: &S, bases: &BaseAddresses, table: Table) -> Vec<Place> {
    let mut found = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(S::cie_from_offset) else { continue };
        let (start, end) = (entry.initial_address(), entry.end_address());
        if start != 0 && start < end {
            found.push(Place { start, end, table, offset: entry.offset() });
        }
    }
    found
}

/// Finds the row of one address, and goes to the caller by it.
struct Row<'a, S> {
    section: &'a S,
    bases: &'a BaseAddresses,
    memory: &'a dyn Memory,
}

impl<S: UnwindSection<Reader>> Row<'_, S> {
    fn step(&self, context: &mut UnwindContext<usize>, offset: usize, at: u64, state: &mut State) -> Step {
        self.caller(context, offset, at, state).unwrap_or(Step::Lost)
    }

    fn caller(
        &self,
        context: &mut UnwindContext<usize>,
        offset: usize,
        at: u64,
        state: &mut State,
    ) -> Option<Step> {
        let entry = self.section.fde_from_offset(self.bases, offset.into(), S::cie_from_offset).ok()?;
        let row = entry.unwind_info_for_address(self.section, self.bases, context, at).ok()?;
        let encoding = entry.cie().encoding();
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.memory.add(self.register(state, *register)?, *offset)
            }
            CfaRule::Expression(expression) => self.evaluate(*expression, encoding, state, None)?,
        };
        let mut caller = state.clone();
        caller.gpr[SP] = Some(cfa);
        for (register, rule) in row.registers() {
            if let Some(n) = self.number(*register) {
                caller.gpr[n] = self.value(rule, cfa, encoding, state, Some(*register));
            }
        }
        // A function without a return address is the outermost: the start of a program or a thread.
        let Some(rule) = row.register(entry.cie().return_address_register()) else { return Some(Step::End) };
        if rule == RegisterRule::Undefined {
            return Some(Step::End);
        }
        caller.ip = self.value(&rule, cfa, encoding, state, None)?;
        caller.exact = entry.is_signal_trampoline();
        *state = caller;
        Some(Step::Caller)
    }

    /// The machine's number of a general register.
    fn number(&self, register: Register) -> Option<usize> {
        let n = usize::from(register.0);
        if self.memory.wide() { WIDE.get(n).copied() } else { Some(n).filter(|n| *n < 8) }
    }

    fn register(&self, state: &State, register: Register) -> Option<u64> {
        state.gpr[self.number(register)?]
    }

    /// The value of a register in the caller.
    fn value(
        &self,
        rule: &RegisterRule<usize>,
        cfa: u64,
        encoding: Encoding,
        state: &State,
        own: Option<Register>,
    ) -> Option<u64> {
        match rule {
            RegisterRule::SameValue => self.register(state, own?),
            RegisterRule::Offset(offset) => self.memory.word(self.memory.add(cfa, *offset)),
            RegisterRule::ValOffset(offset) => Some(self.memory.add(cfa, *offset)),
            RegisterRule::Register(other) => self.register(state, *other),
            RegisterRule::Expression(expression) => {
                self.memory.word(self.evaluate(*expression, encoding, state, Some(cfa))?)
            }
            RegisterRule::ValExpression(expression) => self.evaluate(*expression, encoding, state, Some(cfa)),
            RegisterRule::Constant(value) => Some(*value),
            RegisterRule::Undefined | RegisterRule::Architectural => None,
        }
    }

    /// The address or value of a DWARF expression, with `first` on its stack.
    fn evaluate(
        &self,
        expression: UnwindExpression<usize>,
        encoding: Encoding,
        state: &State,
        first: Option<u64>,
    ) -> Option<u64> {
        let mut evaluation = expression.get(self.section).ok()?.evaluation(encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size, space: None, .. } => {
                    let bits = u32::from(size).min(8) * 8;
                    let value = self.memory.word(address)? & u64::MAX.checked_shr(64 - bits)?;
                    evaluation.resume_with_memory(Value::Generic(value)).ok()?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.register(state, register)?;
                    evaluation.resume_with_register(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Some(address),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "cfi_tests.rs"]
mod tests;
