//! The file of fbt's functions: the kernel's image, or a kernel module's file.
//!
//! A module's file is not linked: its calls and jumps to other sections and to the kernel are relocations. They
//! are applied here to a copy, as if the file were loaded unchanged at [`base`] and each undefined name had an
//! address after it. Then a jump to `__x86_return_thunk` differs from a jump into the function itself. None of this
//! affects the guest: a probe's place is an offset in the file.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use trapline_emu::load::{ElfView, LoadPlan, Width};
use trapline_emu::symbols::{KernelModule, Symbols};
use trapline_interposer::Place;

use super::scan::Targets;
use crate::object::elf::{Relocation, check_sections, relocations};
use crate::target::Target;

/// Longer functions are cut: no compiler makes them, but a damaged symbol table may contain them.
const LONGEST: u64 = 1 << 24;
/// The section of Linux that is executed until alternatives are applied: each `static_cpu_has` jumps there and returns.
const TESTS: &str = ".altinstr_aux";
/// R_386_32 and R_X86_64_64: an address of the word's width.
const ADDRESS: u32 = 1;
/// R_386_PC32 and R_X86_64_PC32, then PLT32 of both: four bytes, relative to their own address.
const RELATIVE: [u32; 2] = [2, 4];
/// Distance between the addresses of two undefined names.
const APART: u64 = 16;

/// The kernel or a module of it.
#[derive(Debug)]
pub(super) enum Home {
    /// The kernel; addresses are linear.
    Kernel,
    /// A module; addresses are offsets in its file.
    Module(LinkedModule),
}

impl Home {
    /// A module.
    pub fn of_module(module: &Arc<KernelModule>) -> Self {
        Self::Module(LinkedModule { module: Arc::clone(module), linked: OnceLock::new() })
    }

    /// Its symbols.
    pub fn symbols<'a>(&'a self, target: &'a Target) -> &'a Symbols {
        match self {
            Self::Kernel => target.symbols(),
            Self::Module(module) => module.module.file().symbols(),
        }
    }

    /// Whether there is code at an address.
    pub fn is_code(&self, target: &Target, at: u64) -> bool {
        let executable = match self {
            Self::Kernel => target.image().plan().is_executable(at),
            Self::Module(module) => module.module.file().is_executable_offset(at),
        };
        executable == Some(true) && !self.is_test(target, at)
    }

    /// Whether an address is in the section of feature tests.
    fn is_test(&self, target: &Target, at: u64) -> bool {
        let section = match self {
            Self::Kernel => target.image().plan().section_at(at).map(|section| section.name.as_str()),
            Self::Module(module) => module.module.section_at(at).map(|(name, _)| name),
        };
        section == Some(TESTS)
    }

    /// The bytes of a function in the file.
    pub fn bytes(&self, target: &Target, start: u64, size: u64) -> Option<Vec<u8>> {
        let size = usize::try_from(size.clamp(1, LONGEST)).ok()?;
        match self {
            Self::Kernel => kernel_bytes(target.image().plan(), start, size),
            Self::Module(module) => {
                let bytes = module.linked().bytes.get(usize::try_from(start).ok()?..)?;
                bytes.get(..size.min(bytes.len())).map(<[u8]>::to_vec)
            }
        }
    }

    /// The place of a probe at an address.
    pub fn place(&self, target: &Target, at: u64) -> Option<Place> {
        match self {
            Self::Kernel => {
                Some(Place::Kernel { linear: at, paddr: target.image().plan().vaddr_to_paddr(at)? })
            }
            Self::Module(module) => Some(Place::Module { module: Arc::clone(&module.module), offset: at }),
        }
    }

    /// The address for which the code at `at` was linked.
    pub fn linked_at(&self, at: u64) -> u64 {
        match self {
            Self::Kernel => at,
            Self::Module(module) => base(module.module.file().width()).wrapping_add(at),
        }
    }

    /// Classifies the targets of jumps.
    pub fn targets<'a>(&'a self, target: &'a Target) -> JumpTargets<'a> {
        JumpTargets { home: self, target, symbols: self.symbols(target) }
    }
}

fn kernel_bytes(plan: &LoadPlan, start: u64, size: usize) -> Option<Vec<u8>> {
    plan.bytes_at(start, size).or_else(|| {
        let segment =
            plan.segments.iter().find(|s| (s.vaddr..s.vaddr.saturating_add(s.mem_size)).contains(&start))?;
        let left = segment.vaddr.saturating_add(segment.mem_size) - start;
        plan.bytes_at(start, size.min(usize::try_from(left).ok()?))
    })
}

/// Classifies jump targets by the symbols of a kernel or module.
pub(super) struct JumpTargets<'a> {
    home: &'a Home,
    target: &'a Target,
    symbols: &'a Symbols,
}

impl JumpTargets<'_> {
    /// The address in the symbol table of an address that the code was linked for.
    fn own(&self, linked: u64) -> u64 {
        linked.wrapping_sub(self.home.linked_at(0))
    }
}

impl Targets for JumpTargets<'_> {
    fn same_function(&self, start: u64, to: u64) -> bool {
        let names = |at: u64| self.symbols.names_at(at).filter(|symbol| symbol.is_function());
        let Some(there) = self.symbols.at(self.own(to)) else { return false };
        names(self.own(start)).any(|own| {
            names(there.symbol.addr).any(|other| {
                let part = |whole: &str, part: &str| {
                    part.strip_prefix(whole).is_some_and(|rest| rest.starts_with(".cold"))
                };
                part(&own.name, &other.name) || part(&other.name, &own.name)
            })
        })
    }

    fn is_return_thunk(&self, to: u64) -> bool {
        let thunk = |name: &str| name.ends_with("_return_thunk");
        match self.home {
            Home::Kernel => self.symbols.names_at(to).any(|symbol| thunk(&symbol.name)),
            Home::Module(module) => module.linked().undefined(to).is_some_and(thunk),
        }
    }

    fn is_test(&self, to: u64) -> bool {
        self.home.is_test(self.target, self.own(to))
    }
}

/// A module whose file is linked when its code is first needed.
#[derive(Debug)]
pub(super) struct LinkedModule {
    module: Arc<KernelModule>,
    linked: OnceLock<Linked>,
}

impl LinkedModule {
    fn linked(&self) -> &Linked {
        self.linked.get_or_init(|| Linked::new(&self.module))
    }
}

/// The assumed load address of a module's file: no other number in code is near it.
fn base(width: Width) -> u64 {
    match width {
        Width::Bits32 => 0xf800_0000,
        Width::Bits64 => 0xffff_ffff_c000_0000,
    }
}

/// A module's file with the relocations of its code applied.
#[derive(Debug)]
struct Linked {
    bytes: Vec<u8>,
    width: Width,
    /// Its undefined names, by their addresses.
    undefined: BTreeMap<u64, String>,
}

impl Linked {
    fn new(module: &KernelModule) -> Self {
        let (bytes, width) = (module.file().bytes().to_vec(), module.file().width());
        let mut linked = Self { bytes, width, undefined: BTreeMap::new() };
        // A file with tables outside of it was refused before; a file with overlapping sections is used as it is.
        if let Ok(view) = ElfView::parse(module.file().bytes())
            && check_sections(&view).is_ok()
        {
            linked.relocate(&view);
        }
        linked
    }

    /// The undefined name of an address.
    fn undefined(&self, at: u64) -> Option<&str> {
        self.undefined.get(&at).map(String::as_str)
    }

    fn relocate(&mut self, view: &ElfView<'_>) {
        let mut addresses: BTreeMap<String, u64> = BTreeMap::new();
        let end = base(self.width) + (self.bytes.len() as u64).next_multiple_of(APART);
        for table in view.sections() {
            let Some(code) = view.sections().get(table.info as usize).filter(|home| home.is_executable())
            else {
                continue;
            };
            for relocation in relocations(view, table).unwrap_or_default() {
                let defined = view.sections().get(relocation.section).filter(|_| !relocation.is_undefined());
                let symbol = match defined {
                    Some(home) => base(self.width).wrapping_add(home.offset).wrapping_add(relocation.value),
                    None => {
                        let next = end + APART * addresses.len() as u64;
                        *addresses.entry(relocation.symbol.clone()).or_insert(next)
                    }
                };
                if relocation.offset < code.size
                    && let Some(at) = code.offset.checked_add(relocation.offset)
                {
                    self.fill_in(at, symbol, &relocation);
                }
            }
        }
        self.undefined = addresses.into_iter().map(|(name, address)| (address, name)).collect();
    }

    /// Applies the relocation at the file offset `at`, if it is of a type that jumps and pointers use.
    fn fill_in(&mut self, at: u64, symbol: u64, relocation: &Relocation) {
        let from = if RELATIVE.contains(&relocation.kind) {
            base(self.width).wrapping_add(at)
        } else if relocation.kind == ADDRESS {
            0
        } else {
            return;
        };
        let wide = relocation.kind == ADDRESS && self.width == Width::Bits64;
        let field = usize::try_from(at)
            .ok()
            .and_then(|at| self.bytes.get_mut(at..)?.get_mut(..if wide { 8 } else { 4 }));
        let Some(field) = field else { return };
        let there = field.first_chunk().map_or(0, |bytes| i64::from(i32::from_le_bytes(*bytes)));
        let addend = relocation.addend.unwrap_or(there);
        let value = symbol.wrapping_add_signed(addend).wrapping_sub(from).to_le_bytes();
        field.iter_mut().zip(value).for_each(|(to, byte)| *to = byte);
    }
}
